from jaxtyping import install_import_hook

NUMERICS = (
    "losses",
    "autodiff",
    "batches",
    "selection",
    "risk",
    "products",
    "operators",
    "spectrum",
    "vectors",
    "krylov",
    "eigen",
    "estimates",
)
hook = install_import_hook(
    [f"ritz.{name}" for name in NUMERICS], "beartype.beartype"
)  # shapes are checked in every test

import pytest
import torch


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
