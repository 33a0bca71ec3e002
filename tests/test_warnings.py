"""A warning names the line of the user that led to it, not one of ritz."""

import contextlib
import inspect
import tempfile
import warnings
from pathlib import Path

import pytest
import torch

import ritz
from ritz import errors
from ritz.errors import ConvergenceWarning, OutputsWarning, PaddingWarning, PrecisionWarning, VersionWarning
from tests.processes import run_alone
from tests.solvers.spectra import linspace, network_like, rotated


class Halved(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.bfloat16().float())


def half_precision():
    risk = ritz.Risk(Halved(3, 2), torch.nn.CrossEntropyLoss(), (torch.ones(4, 3), torch.arange(4) % 2))
    ritz.hessian(risk) @ torch.ones(8)


def probabilities_for_logits():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(-1))
    ritz.Risk(model, torch.nn.CrossEntropyLoss(), (torch.ones(4, 3), torch.tensor([0, 1, 0, 1])))


def counted_padding():
    def loss(z, y):
        return torch.nn.functional.cross_entropy(z, y, reduction="none")

    ritz.hessian(
        ritz.Risk(torch.nn.Linear(3, 2), loss, (torch.ones(4, 3), torch.tensor([0, 1, -100, 1])))
    ) @ torch.ones(8)


def another_version():
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        trace = lambda: ritz.trace(rotated(network_like()), num_products=9, checkpoint=Path(folder) / "x.npz")
        trace()
        patch.setattr("ritz.record.checkpoints.versions", lambda: {"ritz": "of tomorrow"})
        trace()


def missing_copies():
    copies = torch.tensor([3.0, 4.0, -3.0]).repeat_interleave(5)
    ritz.eigenpairs(rotated(torch.cat([linspace(-1, 1, 585), copies])), 3, which="magnitude", max_products=40)


def failing(config):
    raise RuntimeError("it fails")


def failed_task():
    with tempfile.TemporaryDirectory() as folder:
        ritz.lab.sweeps.sweep(failing, [{"x": 1}], folder)


BULK = linspace(1e-6, 1, 2000)
ONES = torch.ones(2000, dtype=torch.float64)
GIVEN = {
    "trace": (ConvergenceWarning, lambda: ritz.trace(rotated(network_like()), tolerance=1e-9)),
    "pairs": (ConvergenceWarning, lambda: ritz.eigenpairs(rotated(network_like()), 3, max_products=9)),
    "copies": (ConvergenceWarning, missing_copies),
    "condition number": (
        ConvergenceWarning,
        lambda: ritz.solvers.condition_number(rotated(BULK) + 0.1, max_products=20),
    ),
    "solution": (ConvergenceWarning, lambda: ritz.solve(rotated(BULK), ONES, max_products=3)),
    "function": (ConvergenceWarning, lambda: ritz.solvers.function(rotated(BULK), torch.log, ONES, max_steps=3)),
    "density": (ConvergenceWarning, lambda: ritz.spectral_density(rotated(BULK), tolerance=1e-3, max_products=64)),
    "quadrature": (
        ConvergenceWarning,
        lambda: ritz.solvers.LanczosQuadrature(rotated(BULK)).refine(1e-3, max_products=64),
    ),
    "versions": (VersionWarning, another_version),
    "precision": (PrecisionWarning, half_precision),
    "padding": (PaddingWarning, counted_padding),
    "probabilities": (OutputsWarning, probabilities_for_logits),
    "sweep": (UserWarning, failed_task),
}


def check(name):
    kind, call = GIVEN[name]
    with warnings.catch_warnings(record=True) as caught, contextlib.suppress(ritz.RitzError):
        warnings.simplefilter("always")
        call()
    places = {one.filename for one in caught if issubclass(one.category, kind)}
    assert places == {__file__}, (name, places, [str(one.message) for one in caught])


def test_a_warning_names_the_line_that_called_ritz():
    """In a process of its own: where annotations are checked, the checker's lines stand between."""
    run_alone("from tests import test_warnings as t\nfor name in t.GIVEN: t.check(name)")


def test_one_function_gives_all_warnings():
    files = [path for path in Path(errors.__file__).parent.rglob("*.py") if "warnings.warn(" in path.read_text()]
    assert files == [Path(errors.__file__)]


@pytest.mark.parametrize("library", ["contextlib", "functools", "torch.utils._contextlib"])
def test_libraries_between_two_lines_of_ritz_are_no_callers(library):
    inner = {"__name__": "ritz.inner", "warn_user": inspect.unwrap(errors.warn_user)}
    exec("def call(): warn_user('seen', UserWarning)", inner)
    between = {"__name__": library, "inner": inner["call"]}
    exec("def call(): inner()", between)
    outer = {"__name__": "ritz.outer", "between": between["call"]}
    exec("def call(): between()", outer)
    with pytest.warns(UserWarning, match="seen") as caught:
        outer["call"]()
    assert caught[0].filename == __file__
