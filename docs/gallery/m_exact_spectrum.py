"""
The exact spectrum of G
=======================

G has at most (examples × classes) eigenvalues that are not zero. ``gram_spectrum`` computes them all through a matrix
of that size. There is no randomness, and the number of zeros is known, too.
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
