"""
The bulk on a logarithmic axis
==============================

On a linear axis the bulk is one peak at zero. On a logarithmic one it spreads over many powers of ten.
"""

from mine import risk

import ritz

H = ritz.hessian(risk())
spectrum = ritz.spectral_density(H, num_steps=64, num_probes=8, outliers=10)

figure, (left, right) = ritz.plot.panels(2)
ritz.plot.density(left, spectrum, outliers=10)
left.set_title("linear in λ")
ritz.plot.log_spectrum(right, spectrum)
right.set_title("logarithmic in |λ|")
figure

# %%
# Grey is the region near zero that the quadrature does not resolve. What share of all eigenvalues is larger than 0.01?
# The answer has an error, too.

share = spectrum.mass(0.01, float("inf"))
print(f"{float(share):.1%} ± {share.standard_error:.1%}")
