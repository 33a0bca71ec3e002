from jaxtyping import install_import_hook

ENGINE = ("losses", "autodiff", "batches", "selection", "risk", "linearizations", "probe", "products", "operators")
SOLVERS = ("spectrum", "vectors", "eigen", "krylov", "estimates", "classes", "knockout")
LAYERS = ("affine", "factors", "kronecker")
LAB = ("lab.train", "lab.ensemble")
CHECKED = ENGINE + SOLVERS + LAYERS + LAB
hook = install_import_hook([f"ritz.{name}" for name in CHECKED], "beartype.beartype")  # shapes are checked

import pytest
import torch


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)
