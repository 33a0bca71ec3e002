"""Embeddings of which PyTorch has no second derivative, against twins of which it has one."""

import pytest
import torch
from torch import nn

from tests.engine.rules.networks import check_curvature


def tokens(*shape):
    return torch.randint(4, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}])
def test_sparse_gradients_of_embeddings(options):
    layers = nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)
    network, twin = (nn.Sequential(nn.Embedding(4, 3, sparse=sparse, **options), *layers) for sparse in (True, False))
    check_curvature(network, tokens(6, 2), twin=twin.double())


class Bags(nn.Module):
    """Bags of words, each word with a weight of its own if that can be; or the same by an embedding."""

    def __init__(self, mode, layer):
        super().__init__()
        self.table, self.mode = layer, mode
        self.weights = nn.Parameter(torch.ones(4)) if mode == "sum" else None
        self.out = nn.Sequential(nn.Tanh(), nn.Linear(3, 3))

    def forward(self, x):
        weights = None if self.weights is None else self.weights[x]
        if isinstance(self.table, nn.EmbeddingBag):
            return self.out(self.table(x, per_sample_weights=weights))
        rows = self.table(x) if weights is None else self.table(x) * weights[..., None]
        return self.out({"sum": rows.sum(1), "mean": rows.mean(1), "max": rows.max(1).values}[self.mode])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_words(mode):
    twin = Bags(mode, nn.Embedding(4, 3))
    model = Bags(mode, nn.EmbeddingBag(4, 3, mode=mode))
    check_curvature(model, tokens(6, 3), twin=twin.double())
