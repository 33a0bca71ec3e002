"""
A density, its band and the truth
=================================

Few Lanczos steps blur the spectrum, and few probes make it noisy. The band accounts for both: it should hold the exact
density, smoothed by the same width, at 95 % of the points. Here the matrix is small enough to know the truth. The
titles say probes × steps.
"""

import torch
from mine import risk

import ritz

H = ritz.hessian(risk())
exact = ritz.Spectrum.of_eigenvalues(torch.linalg.eigvalsh(H.dense().double()))

figure, axes = ritz.plot.panels(3)
for ax, (probes, steps) in zip(axes, [(1, 16), (2, 32), (8, 64)]):
    estimate = ritz.spectral_density(H, num_probes=probes, num_steps=steps)
    ritz.plot.density(ax, estimate, label="estimate")
    x = estimate.grid()
    ax.plot(x, exact.density(x, estimate.width), "k:", linewidth=1, label="exact")
    low, high = estimate.band(x)
    truth = exact.density(x, estimate.width)
    held = ((low <= truth) & (truth <= high)).float().mean()
    ax.set_title(f"{probes} × {steps}: band holds {held:.0%}")
axes[0].legend(frameon=False, fontsize="small")
figure
