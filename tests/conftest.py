from jaxtyping import install_import_hook

NUMERICS = """
    losses autodiff batches selection risk linearizations probe products operators spectrum vectors krylov eigen estimates
""".split()
hook = install_import_hook([f"ritz.{name}" for name in NUMERICS], "beartype.beartype")  # shapes are checked everywhere

import pytest
import torch


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
