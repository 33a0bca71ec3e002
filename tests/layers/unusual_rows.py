"""Models whose layers see other rows than one example after the other."""

import torch
from torch import nn


class Stacked(nn.Module):
    """A layer that sees all examples twice, one copy of the batch after the other."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.layer(torch.cat([x, x.flip(1)])).tanh().unflatten(0, (2, -1)).sum(0))


class Sorted(nn.Module):
    """A layer that sees the examples in the order of their first entry."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        order = x[:, 0].argsort()
        return self.head(self.layer(x[order]).tanh()[order.argsort()])


class Routed(nn.Module):
    """Two layers, each of which sees a part of the examples."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 5), nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        positive = x[:, 0] > 0
        h = torch.where(positive[:, None], 0.0, self.right(x))
        return self.head(h.masked_scatter(positive[:, None], self.left(x[positive])).tanh())


class TokensRouted(nn.Module):
    """Two layers, each of which sees a part of all tokens."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        chosen = [(tokens[:, 0] > 0).nonzero()[:, 0], (tokens[:, 0] <= 0).nonzero()[:, 0]]
        rows = (layer(tokens[own]) for layer, own in zip((self.left, self.right), chosen, strict=True))
        h = sum(torch.zeros_like(tokens).index_add(0, own, row) for own, row in zip(chosen, rows, strict=True))
        return self.head(h.view_as(x).tanh().mean(1))


class ByLength(nn.Module):
    """A layer for long sequences; for short ones its weight alone."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.layer(x) if x.shape[1] > 3 else x @ self.layer.weight.T
        return self.head(hidden.mean(1).tanh())


def by_length(lengths):
    """Batches of unequal size and length."""
    generator = torch.Generator().manual_seed(0)
    shapes = zip((9, 6), lengths, strict=True)
    return [(torch.randn(n, t, 4, generator=generator).double(), torch.arange(n) % 3) for n, t in shapes]
