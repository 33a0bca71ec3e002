"""
Two checkpoints compared
========================

Before and after training. The distance between two spectra says how far the eigenvalues of one must move, on average,
to become those of the other. Each spectrum has a bound on how far it is from the true one: if the distance exceeds the
sum of both bounds, the spectra differ.
"""

import torch
from mine import train
from torch import nn

import ritz
from ritz.lab.data import digits

x, y = digits(generator=torch.Generator().manual_seed(0)).train
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

spectra = {}
for name in ("before", "after"):
    H = ritz.hessian(ritz.Risk(model, nn.CrossEntropyLoss(), (x, y)))
    spectra[name] = ritz.spectral_density(H, num_steps=64, num_probes=8, outliers=10)
    train(model, x, y)

before, after = spectra.values()
print(f"distance {before.wasserstein(after):.5f}")
print(f"bounds   {before.wasserstein_bound() + after.wasserstein_bound():.5f}")

# %%

figure, (ax,) = ritz.plot.panels(width=5)
ritz.plot.comparison(ax, spectra)
figure
