"""
Training data and test data
===========================

The same network, two data sets. On data that it has not seen the loss is larger, and the curvature, too.
"""

import torch
from torch import nn

import ritz
from ritz.lab.data import digits
from ritz.lab.models import mlp
from ritz.lab.training import train

generator = torch.Generator().manual_seed(0)
data = digits(generator=generator)
model = mlp((64, 32, 10), activation="tanh", generator=generator)
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
settings = {"num_epochs": 15, "batch_size": 64, "generator": generator}
for _ in train(model, loss, data.train, optimizer, **settings):
    pass

spectra = {}
for name, examples in {"training": data.train, "test": data.test}.items():
    risk = ritz.Risk(model, loss, examples)
    H = ritz.hessian(risk)
    spectra[name] = ritz.spectral_density(H, num_steps=48, num_probes=8, outliers=10)
    largest = float(ritz.eigenpairs(H, 1).values[0])
    print(f"{name}: loss {risk.loss_value():.4f}, largest eigenvalue {largest:.2f}")

figure, (ax,) = ritz.plot.panels(width=5)
ritz.plot.comparison(ax, spectra, log=True)
figure
