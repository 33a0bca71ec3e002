"""
The spectrum of a trained network
=================================

Most eigenvalues of the Hessian lie near zero. A few stand apart: here about as many as there are classes.
"""

from mine import risk

import ritz

H = ritz.hessian(risk())
top = ritz.eigenpairs(H, 10)
print(top)

# %%
# Behind each ± stands the residual: the Hessian has an eigenvalue within that distance. The last value lies at the edge
# of the bulk, where others are so near that one of them may have been missed; the last line says so.
#
# Below, the stems are these ten eigenvalues. The curve is an estimate of all others. Its band holds the truth at 95 %
# of the points.

spectrum = ritz.spectral_density(H, num_steps=64, num_probes=8, outliers=top)
figure, (ax,) = ritz.plot.panels(width=5)
ritz.plot.density(ax, spectrum, outliers=10)
figure
