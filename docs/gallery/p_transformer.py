"""
A small transformer
===================

A causal transformer that learns to reverse sequences, with attention, layer norms and embeddings. It needs nothing
special. The largest eigenvalues of its layers differ by more than a factor of ten.
"""

import torch
from torch import nn

import ritz
from ritz.lab.models import GPTConfig, gpt

generator = torch.Generator().manual_seed(0)
tokens = torch.randint(1, 20, (64, 17), generator=generator)
tokens[:, 9:] = tokens[:, :8].flip(1)  # the second half mirrors the first
x, y = tokens[:, :-1], tokens[:, 1:]
config = GPTConfig(vocabulary=20, context=16, depth=2, width=32, num_heads=2)
model = gpt(config, generator=generator)
loss = ritz.CrossEntropy()  # over all tokens
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()

analysis = ritz.analysis.spectrum
settings = analysis.Settings(num_eigenpairs=5, num_probes=2, num_steps=24, per_layer=True)
record = analysis.run(ritz.Risk(model.eval(), loss, (x, y)), settings)

# %%

layers = record.scalars["layers"]
names = [name for name in layers if layers[name]["num_parameters"] > 500]
figure, (ax,) = ritz.plot.panels(width=6, height=3)
ax.barh(range(len(names)), [layers[name]["range"][1] for name in names])
ax.set(yticks=range(len(names)), yticklabels=names, xlabel="largest eigenvalue")
ax.invert_yaxis()
figure
