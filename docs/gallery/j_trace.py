"""
The trace and its error
=======================

Each run of ``trace`` says how far it may be off. Two of its standard errors should hold the truth in 95 % of all runs.
"""

import torch
from mine import risk

import ritz

H = ritz.hessian(risk(dtype=torch.float64))
exact = float(H.dense().trace())

figure, (ax,) = ritz.plot.panels(width=5)
held = 0
for seed in range(40):
    estimate = ritz.trace(H, num_products=30, generator=torch.Generator().manual_seed(seed))
    ax.errorbar(seed, estimate.value, 2 * estimate.standard_error, fmt="o", markersize=3, color=ritz.plot.COLOURS[0])
    held += abs(estimate.value - exact) <= 2 * estimate.standard_error
ax.axhline(exact, color="k", linewidth=1)
ax.set(xlabel="seed", title=f"tr H with 30 products each: {held} of 40 intervals hold the truth")
figure
