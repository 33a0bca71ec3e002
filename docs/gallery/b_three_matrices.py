"""
Three matrices: H, G and E
==========================

H = G + E. G comes from the curvature of the loss and, for cross-entropy, has no negative eigenvalue. E comes from the
curvature of the network. At the end of training E is small, because it is weighted by what the network gets wrong.
"""

from mine import risk

import ritz

risk = risk()
matrices = {
    "H": ritz.hessian(risk),
    "G": ritz.gauss_newton(risk),
    "E": ritz.functional_hessian(risk),
}
for name, matrix in matrices.items():
    high, low = ritz.eigenpairs(matrix, 2, which="both").values
    trace = ritz.trace(matrix, num_products=60)
    print(f"{name}: eigenvalues from {low:.3f} to {high:.3f}, trace {trace}")

# %%
# What is left of zero comes from E.

figure, axes = ritz.plot.panels(3)
for ax, (name, matrix) in zip(axes, matrices.items()):
    spectrum = ritz.spectral_density(matrix, num_steps=48, num_probes=4, outliers=10)
    ritz.plot.density(ax, spectrum, outliers=10)
    ax.set_title(name)
figure
