"""
The exact spectrum of G
=======================

At most as many eigenvalues of G are not zero as there are examples times classes. ``gram_spectrum`` computes them all,
through a matrix of that size. Nothing is random, and the number of zeros is known, too.
"""

from mine import risk

import ritz

risk = risk().first(200)
exact = ritz.gram_spectrum(risk)
print(exact)

# %%

G = ritz.gauss_newton(risk)
estimate = ritz.spectral_density(G, num_steps=64, num_probes=8, outliers=10)
figure, (ax,) = ritz.plot.panels(width=5)
ritz.plot.comparison(ax, {"exact": exact, "Lanczos": estimate}, log=True)
figure
