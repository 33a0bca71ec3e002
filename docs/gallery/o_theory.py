"""
Theory beside measurement
=========================

For some networks the spectrum is known in closed form. Weights and data go in; named eigenvalues with eigenvectors come
out. Here: two linear layers under squared error, at any weights, not only at a minimum.
"""

import torch
from torch import nn

import ritz

generator = torch.Generator().manual_seed(0)
X = torch.randn(200, 3, generator=generator).double()
Y = torch.randn(200, 2, generator=generator).double()
model = nn.Sequential(nn.Linear(3, 20, bias=False), nn.Linear(20, 2, bias=False)).double()
W1, W2 = (layer.weight.detach() for layer in model)

theory = ritz.theory.two_layer_linear(W1, W2, X, Y)
H = ritz.hessian(ritz.Risk(model, ritz.SquaredError(), (X, Y)))
measured = torch.linalg.eigvalsh(H.dense())
print(ritz.theory.compare(theory, H))

# %%

figure, (left, right) = ritz.plot.panels(2)
ritz.plot.eigenvalues(left, measured, theory.eigenvalues())
left.set_title("every eigenvalue")
ritz.plot.density(right, ritz.Spectrum.of_eigenvalues(measured), width=0.02)
right.set_title("density: few values")
figure
