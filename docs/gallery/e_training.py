"""
Sharpness along training
========================

Gradient descent with step size η on a quadratic diverges where the largest eigenvalue is above 2/η. Here it climbs to
that line, turns back and falls: with cross-entropy the curvature vanishes as the network gets sure of its labels.
"""

import torch
from torch import nn

import ritz
from ritz.lab.data import digits

x, y = digits(generator=torch.Generator().manual_seed(0)).train
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
loss, rate = nn.CrossEntropyLoss(), 0.8
optimizer = torch.optim.SGD(model.parameters(), lr=rate)

risk = ritz.Risk(model, loss, (x, y))
steps, sharpness, losses, top = [], [], [], None
for step in range(301):
    value = loss(model(x), y)
    if step % 15 == 0:
        H = ritz.hessian(risk.at(model))  # the same risk at the weights of now
        top = ritz.eigenpairs(H, 1, start=top, tolerance=1e-3)  # from the last one
        steps.append(step)
        sharpness.append(float(top.values[0]))
        losses.append(value.item())
    optimizer.zero_grad()
    value.backward()
    optimizer.step()

# %%

figure, (left, right) = ritz.plot.panels(2)
left.plot(steps, sharpness, "o-", markersize=3)
left.axhline(2 / rate, color="0.4", linestyle="--", label="2/η")
left.legend(frameon=False)
left.set(xlabel="step", title="largest eigenvalue of H")
right.semilogy(steps, losses, "o-", markersize=3)
right.set(xlabel="step", title="loss")
figure
