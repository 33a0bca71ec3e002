"""Embeddings of which PyTorch has no second derivative, against twins of which it has one."""

import pytest
import torch
from torch import nn

from tests.engine.rules.networks import check_curvature


def tokens(*shape):
    return torch.randint(4, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}])
def test_embeddings_with_sparse_gradients_have_the_curvature_of_dense_ones(options):
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
def test_an_embedding_bag_has_the_curvature_of_pooled_embeddings(mode):
    twin = Bags(mode, nn.Embedding(4, 3))
    model = Bags(mode, nn.EmbeddingBag(4, 3, mode=mode))
    check_curvature(model, tokens(6, 3), twin=twin.double())


class Texts(nn.Module):
    """Bags of any number of words, some of which are padding and one of which is empty; or the same by masks."""

    STARTS = torch.tensor([0, 1, 5, 5, 9])

    def __init__(self, table, form):
        super().__init__()
        self.table, self.form, self.out = table, form, nn.Sequential(nn.Tanh(), nn.Linear(3, 3))

    def forward(self, x):  # (examples, words)
        return self.out(self.bags(x) if isinstance(self.table, nn.EmbeddingBag) else self.by_masks(x))

    def bags(self, x):
        if self.form == "rows":
            return self.table(x)
        starts = (self.STARTS + x.shape[1] * torch.arange(len(x))[:, None]).flatten()
        starts = torch.cat([starts, torch.tensor([x.numel()])]) if self.table.include_last_offset else starts
        return self.table(x.flatten(), starts).unflatten(0, (len(x), -1)).sum(1)

    def by_masks(self, x):
        ends = torch.cat([self.STARTS[1:], torch.tensor([x.shape[1]])])
        cuts = [(0, x.shape[1])] if self.form == "rows" else list(zip(self.STARTS, ends, strict=True))
        return torch.stack([self.bag(x[:, a:b]) for a, b in cuts], 1).sum(1)

    def bag(self, x):
        if not x.shape[1]:
            return self.table.weight.new_zeros(len(x), 3)
        rows, kept = self.table(x), (x != self.PADDING)[..., None]
        if self.MODE == "max":
            return rows.masked_fill(~kept, -9.0).amax(1) * kept.any(1)
        sums = (rows * kept).sum(1)
        return sums if self.MODE == "sum" else sums / kept.sum(1).clamp(min=1)


@pytest.mark.parametrize("form", ["rows", "offsets", "last offset"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
def test_bags_of_any_size_with_padding(mode, form, padding):
    options = {"include_last_offset": form == "last offset", "padding_idx": padding}
    model, twin = Texts(nn.EmbeddingBag(4, 3, mode=mode, **options), form), Texts(nn.Embedding(4, 3), form)
    twin.MODE, twin.PADDING = mode, -1 if padding is None else padding
    check_curvature(model, tokens(6, 12), twin=twin.double())
