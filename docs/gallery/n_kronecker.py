"""
KFAC, EKFAC and the truth
=========================

Some optimisers replace G by Kronecker products, layer by layer. How much of its spectrum is left?
"""

import torch
from mine import risk

import ritz

risk = risk(dtype=torch.float64).first(400)
G = ritz.gauss_newton(risk)
matrices = {
    "G": G,
    "KFAC": ritz.kfac(risk).operator,
    "EKFAC": ritz.ekfac(risk).operator,
    "CFAC": ritz.cfac(risk).operator,
}
values = {name: ritz.eigenpairs(A, 40).values for name, A in matrices.items()}

figure, (ax,) = ritz.plot.panels(width=5)
ritz.plot.screes(ax, values)
ax.set_ylabel("eigenvalue λ")
ax.legend(frameon=False)
figure

# %%

for name, A in matrices.items():
    trace = ritz.trace(A, num_products=80)
    print(f"{name:6s} trace {trace}, largest {float(values[name][0]):.3f}")
