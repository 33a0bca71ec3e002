"""
What a residual says
====================

Every eigenpair is checked by a product that the search did not use: r = ‖A v - λ v‖. Some eigenvalue of A lies within r
of λ, whatever the solver did.
"""

import torch
from mine import risk

import ritz

H = ritz.hessian(risk(dtype=torch.float64))
exact = torch.linalg.eigvalsh(H.dense()).flip(0)[:10]

figure, (ax,) = ritz.plot.panels(width=5)
for tolerance in (1e-2, 1e-4, 1e-6):
    pairs = ritz.eigenpairs(H, 10, tolerance=tolerance)
    errors = (pairs.values - exact).abs().clamp(min=1e-16)
    label = f"tolerance {tolerance:g}, {pairs.num_products} products"
    ax.loglog(pairs.residuals, errors, "o", label=label)
    assert (errors <= pairs.residuals + 1e-12).all()
ends = [1e-16, 1e-1]
ax.loglog(ends, ends, color="0.5", label="error = residual")
ax.set(xlabel="residual that ritz reports", ylabel="true error of λ")
ax.legend(frameon=False, fontsize="small")
figure

# %%
# All points lie below the line, down to rounding at 1e-15. The error is about the square of the residual, over the gap
# to the next eigenvalue.
