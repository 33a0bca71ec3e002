"""Distances, of which PyTorch before 2.15 has no second derivative, against twins of plain operations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.engine.rules.networks import check_curvature


class Distances(nn.Module):
    """Distances of hidden points to centres and to each other, by PyTorch's functions or by differences of points."""

    def __init__(self, p, plain, **options):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 6), nn.Linear(16, 3)
        self.centres = nn.Parameter(torch.zeros(2, 2))
        self.p, self.plain, self.options = p, plain, options

    def forward(self, x):
        points = self.hidden(x).unflatten(1, (3, 2))
        to_centres, among, pairs = self.distances(points)
        return self.out(torch.sin(torch.cat([to_centres.flatten(1), among.flatten(1)[:, :7], pairs], 1)))

    def distances(self, points):
        if not self.plain:
            pairs = torch.stack([F.pdist(own, self.p) for own in points])
            to_centres = torch.cdist(points, self.centres, self.p, **self.options)
            return to_centres, torch.cdist(points, points, p=self.p), pairs
        zero = torch.zeros(len(points), dtype=points.dtype)
        length = lambda a, b: torch.linalg.vector_norm(a - b, self.p, -1)
        to_centres = torch.stack([length(points, centre) for centre in self.centres], 2)
        a, b, c = length(points[:, [0, 0, 1]], points[:, [1, 2, 2]]).T
        among = torch.stack([zero, a, b, a, zero, c, b, c, zero], 1)
        return to_centres, among, torch.stack([a, b, c], 1)


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, float("inf")])
def test_distances_have_the_curvature_of_differences(p):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    check_curvature(Distances(p, False), x, twin=Distances(p, True).double())


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_the_way_to_compute_distances_stays_that_of_the_user(mode):
    x = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).sin()
    check_curvature(Distances(2.0, False, compute_mode=mode), x, twin=Distances(2.0, True).double())
