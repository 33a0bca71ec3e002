"""
Where the large eigenvalues come from
=====================================

For a classifier, G is the sum of four parts: between classes, across classes, own class, and what is left within them.
Every eigenvalue is split into what these parts give, and the split is exact. *Where lines come from*, under Concepts,
says what the parts are.
"""

import torch
from mine import risk

import ritz

answer = ritz.attribution(risk().first(100), num_lines=12)
for sentence in answer.findings:
    print("-", sentence)

# %%

lines = answer.gauss_newton
figure, (ax,) = ritz.plot.panels(width=6)
below = torch.zeros(len(lines.pairs))
for name, share in lines.shares.items():
    part = share * lines.pairs.values
    ax.bar(range(1, len(below) + 1), part, bottom=below, label=name)
    below = below + part
ax.set(xlabel="rank of the eigenvalue of G", ylabel="λ, and what it is made of")
ax.legend(frameon=False, fontsize="small")
figure
