"""No solver returns NaN without a word: products that are NaN or infinite are refused by every one of them."""

import inspect
import math
import warnings

import pytest
import torch

from ritz import solvers
from ritz.errors import NumericalError
from ritz.operators import Operator

N = 600
ARGUMENTS = {
    "condition_number": {},
    "diagonal": {"num_products": 20},
    "effective_rank": {"num_products": 20},
    "eigenpairs": {"k": 2},
    "function": {"f": torch.exp, "v": torch.ones(N, 2).double()},
    "hutchinson": {"num_products": 20},
    "lanczos": {"starts": torch.ones(N, 2).double(), "num_steps": 20},
    "log_determinant": {"num_steps": 20},
    "negative_mass": {"num_steps": 20},
    "norm": {"num_products": 20},
    "solve": {"b": torch.ones(N, 2).double()},
    "spectral_density": {"num_steps": 20},
    "spectral_range": {},
    "subspace_iteration": {"k": 2, "num_iterations": 8},
    "trace": {"num_products": 20},
}
VARIANTS = [
    ("norm", {"ord": 2}), ("norm", {"ord": "nuc", "num_products": 80}), ("spectral_density", {"outliers": 2}),
    ("lanczos", {"keep_basis": True}), ("solve", {"preconditioner": lambda R: R}), ("eigenpairs", {"which": "both"}),
]  # fmt: skip


def test_every_solver_is_tested():
    functions = {name for name in solvers.__all__ if inspect.isfunction(getattr(solvers, name))}
    assert functions - {"memory_needed"} == {*ARGUMENTS}  # which multiplies nothing


def operator(wrong, first, n):
    """The matrix of 1, 2, ..., whose products from one on have an entry that is wrong."""
    made, d = [], torch.arange(1.0, n + 1, dtype=torch.float64)[:, None]

    def product(V):
        made.append(V)
        result = d * V
        if len(made) > first:
            result[n // 2] = wrong
        return result

    return Operator(product, n, torch.float64, torch.device("cpu"))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("n", [20, N])
@pytest.mark.parametrize("name, more", [*((name, {}) for name in ARGUMENTS), *VARIANTS])
@pytest.mark.usefixtures("unchecked")
def test_products_that_are_not_finite_are_refused(name, more, n, first, wrong):
    arguments = {key: value[:n] if isinstance(value, torch.Tensor) else value for key, value in ARGUMENTS[name].items()}
    A = operator(wrong, first, n)
    calls = []
    counted = Operator(lambda V: calls.append(0) or A @ V, n, A.dtype, A.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(solvers, name)(counted, **{**arguments, **more})
        except NumericalError as error:
            assert error.seen and error.ways_out
            return
    assert len(calls) <= first  # it had all it needed before


@pytest.mark.parametrize("estimate", [solvers.trace, solvers.diagonal])
def test_a_single_entry_off_the_diagonal_is_refused_where_all_columns_are_multiplied(estimate):
    def product(V):
        AV = V.clone()
        AV[20] += torch.where(V[25] == 0, 0.0, math.nan)
        return AV

    A = Operator(product, 30, torch.float64, torch.device("cpu"))
    with pytest.raises(NumericalError):
        estimate(A, num_products=30)
