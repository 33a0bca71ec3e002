"""Solvers that were killed go on from their file to the same bits, and from no other file."""

import itertools
import os
import signal

import numpy as np
import pytest
import torch

import ritz
from ritz.errors import FileError
from ritz.record import checkpoints, read_arrays, write_arrays

from .spectra import linspace, with_eigenvalues

SIZE = 700  # above what is solved exactly
SOLVERS = {
    "eigenpairs": lambda A, **options: ritz.eigenpairs(A, 4, tolerance=1e-8, **options),
    "both ends, in blocks": lambda A, **options: ritz.eigenpairs(A, 4, which="both", block_size=2, **options),
    "density": lambda A, **options: ritz.spectral_density(A, num_steps=20, num_probes=9, **options),
    "trace": lambda A, **options: ritz.trace(A, num_products=100, **options),
    "exact trace": lambda A, **options: ritz.trace(A, num_products=SIZE, **options),
    "density with outliers": lambda A, **options: ritz.spectral_density(A, num_steps=12, outliers=2, **options),
}


class Killed(BaseException):
    """Not an Exception: nobody catches it."""


def operator(after=None):
    """A matrix of 700 rows; after so many products, no more."""
    A = with_eigenvalues(torch.cat([linspace(-1, 1, SIZE - 6), linspace(2, 4, 6)]), torch.Generator().manual_seed(3))
    left = [after]

    def product(V):
        if left[0] is not None:
            left[0] -= V.shape[1]
            if left[0] < 0:
                raise Killed
        return A.matmat(V)

    return ritz.Operator(product, A.size, A.dtype, A.device)


def bits(result):
    if isinstance(result, ritz.Estimate):
        return [torch.tensor([result.value, result.standard_error, result.num_products], dtype=torch.float64)]
    return [tensor for tensor in vars(result).values() if isinstance(tensor, torch.Tensor)]


@pytest.fixture
def eager(monkeypatch):
    """Files are written before every step."""
    ticks = itertools.count(step=1000.0)
    monkeypatch.setattr(checkpoints, "SHARE", 0)
    monkeypatch.setattr(checkpoints, "monotonic", lambda: next(ticks))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_killed_again_and_again_gives_the_same_bits(tmp_path, name):
    whole = SOLVERS[name](operator(), checkpoint=tmp_path / "whole.npz", generator=torch.Generator().manual_seed(1))
    attempts, result, products = 0, None, 160 if name == "exact trace" else 16
    while result is None:
        try:
            source = torch.Generator().manual_seed(1)
            result = SOLVERS[name](
                operator(after=products),
                checkpoint=tmp_path / "killed.npz",
                generator=source,
            )
        except Killed:
            attempts += 1
            assert attempts < 100, "it does not get on"
    assert attempts > 1
    assert all(torch.equal(one, other) for one, other in zip(bits(result), bits(whole), strict=True))
    after = torch.Generator().manual_seed(1)
    again = SOLVERS[name](operator(after=1), checkpoint=tmp_path / "killed.npz", generator=after)  # is read alone
    assert all(torch.equal(one, other) for one, other in zip(bits(again), bits(whole), strict=True))
    assert torch.equal(after.get_state(), source.get_state())


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["eigenpairs", "density", "trace"])
def test_the_state_is_small(tmp_path, name):
    for after in (10, 20, 30):
        with pytest.raises(Killed):
            SOLVERS[name](operator(after), checkpoint=tmp_path / f"{after}.npz")
        arrays, _ = read_arrays(tmp_path / f"{after}.npz")
        vectors = sum(array.size // SIZE for array in arrays.values() if array.shape[-1:] == (SIZE,))
        assert 0 < vectors <= (2 * 4 if name == "eigenpairs" else 0) + 12


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "other, what",
    [
        (lambda A, path: ritz.eigenpairs(A, 5, tolerance=1e-8, checkpoint=path), "settings"),
        (lambda A, path: ritz.eigenpairs(2 * A, 4, tolerance=1e-8, checkpoint=path), "operator"),
        (
            lambda A, path: ritz.eigenpairs(A, 4, tolerance=1e-8, checkpoint=path, generator=torch.Generator()),
            "generator",
        ),
        (lambda A, path: ritz.spectral_density(A, num_steps=9, checkpoint=path), "solver"),
        (lambda A, path: ritz.trace(A, checkpoint=path), "solver"),
    ],
)
def test_a_file_of_another_computation_is_refused_with_what_differs(tmp_path, other, what):
    path = tmp_path / "x.npz"
    with pytest.raises(Killed):
        ritz.eigenpairs(operator(30), 4, tolerance=1e-8, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileError, match=f"different .*{what}"):
        other(operator(), path)
    assert path.read_bytes() == before


def nan(arrays, header):
    arrays["basis"][0, 0] = float("nan")


def short(arrays, header):
    arrays["basis"] = arrays["basis"][:, :-1]


def negative(arrays, header):
    header["num_products"] = -3


def text(arrays, header):
    arrays["H"] = np.array(["text"])


def lost(arrays, header):
    arrays.pop("H")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("damage", [nan, short, negative, lost, text])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, damage):
    path = tmp_path / "x.npz"
    with pytest.raises(Killed):
        ritz.eigenpairs(operator(30), 4, tolerance=1e-8, checkpoint=path)
    arrays, header = read_arrays(path)
    damage(arrays, header)
    write_arrays(path, arrays, header)
    before = path.read_bytes()
    with pytest.raises(FileError, match="is damaged"):
        ritz.eigenpairs(operator(), 4, tolerance=1e-8, checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("num_products", [1, 7, 40, 200, 400])
def test_a_kept_trace_is_right_to_its_error(tmp_path, num_products):
    A, truth = operator(), 18.0
    estimate = ritz.trace(A, num_products=num_products, checkpoint=tmp_path / "x.npz")
    assert estimate.num_products == num_products
    assert estimate.has_error == (num_products > 1)
    if num_products > 1:
        assert abs(estimate.value - truth) < 4 * estimate.standard_error
    if num_products >= 200:  # the largest are taken exactly
        assert estimate.standard_error < ritz.solvers.hutchinson(A, num_products=num_products).standard_error


def test_a_kept_trace_ends_at_its_tolerance(tmp_path):
    A = operator() + 10.0
    estimate = ritz.trace(A, tolerance=0.01, checkpoint=tmp_path / "x.npz")
    assert estimate.num_products < 256 and estimate.standard_error <= 0.01 * estimate.value
    assert estimate.value == pytest.approx(7018, rel=0.03)


@pytest.mark.usefixtures("eager")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_for_good_loses_nothing(tmp_path):
    path = tmp_path / "x.npz"
    child = os.fork()
    if not child:
        try:
            SOLVERS["eigenpairs"](operator(30), checkpoint=path)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    result = SOLVERS["eigenpairs"](operator(), checkpoint=path)
    whole = SOLVERS["eigenpairs"](operator(), checkpoint=tmp_path / "whole.npz")
    assert all(torch.equal(one, other) for one, other in zip(bits(result), bits(whole), strict=True))
