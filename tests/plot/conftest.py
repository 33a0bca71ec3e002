import pytest
import torch

from ritz import plot
from ritz.spectrum import Spectrum
from tests.plot.curves import OUTLIERS


@pytest.fixture
def ax():
    return plot.panels()[1][0]


@pytest.fixture
def spectrum():
    """Two outliers known to each of three probes, above a bulk of which each probe saw its own part."""
    bulk = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(-2, 2)
    nodes = torch.cat([OUTLIERS.expand(3, 2), bulk], dim=1)
    weights = torch.cat([torch.full((3, 2), 0.01), torch.full((3, 8), 0.98 / 8)], dim=1)
    return Spectrum(nodes, weights, size=100, resolution=0.5, num_atoms=2)
