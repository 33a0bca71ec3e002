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
    generator = torch.Generator().manual_seed(seed)
    estimate = ritz.trace(H, num_products=30, generator=generator)
    error = 2 * estimate.standard_error
    ax.errorbar(seed, estimate.value, error, fmt="o", markersize=3, color="#0072B2")
    held += abs(estimate.value - exact) <= error
ax.axhline(exact, color="k", linewidth=1)
ax.set(xlabel="seed", ylabel="tr H, from 30 products")
ax.set_title(f"{held} of 40 intervals hold the truth")
figure

# %%
# Forty runs are few: 38 intervals are expected to hold it, and 36 or fewer do so in one of seven such pictures. *How
# often intervals hold what is true*, under Trust, has the counts of many more runs.
