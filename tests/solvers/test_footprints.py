"""The memory that solvers forecast is the memory that they take."""

import warnings
from dataclasses import replace

import pytest
import torch

import ritz
from ritz.errors import ArgumentError, ConvergenceWarning
from ritz.solvers import (
    condition_number,
    effective_rank,
    eigenpairs,
    function,
    hutchinson,
    lanczos,
    log_determinant,
    memory_needed,
    negative_mass,
    norm,
    solve,
    spectral_density,
    subspace_iteration,
    trace,
)
from ritz.solvers import diagonal as diagonal_of
from ritz.solvers.footprints import EXACT
from ritz.solvers.lanczos_recursion import Recursion
from ritz.solvers.quadratures import COPIES

from .memory import diagonal, peak_vectors, with_room
from .spectra import linspace

N = 50_000
LARGE = torch.cat([linspace(3, 10, 20), -linspace(2, 5, 20), linspace(-1, 1, N - 40)])
WORK = [
    (eigenpairs, (3,), {"tolerance": 1e-2}),
    (eigenpairs, (20,), {"tolerance": 1e-3, "which": "both", "basis_size": 45}),
    (eigenpairs, (8,), {"tolerance": 1e-2, "block_size": 4}),
    (subspace_iteration, (5, 2), {}),
    (spectral_density, (), {"num_probes": 6, "num_steps": 5}),
    (spectral_density, (), {"num_probes": 2, "num_steps": 5, "outliers": 3}),
    (spectral_density, (), {"tolerance": 0.1, "max_products": 200}),
    (negative_mass, (), {"num_probes": 5, "num_steps": 5}),
    (log_determinant, (), {"num_probes": 5, "num_steps": 5, "damping": 20.0}),
    (trace, (), {"num_products": 12}),
    (hutchinson, (), {"num_products": 20}),
    (effective_rank, (), {"num_products": 12}),
    (lanczos, (torch.ones(N, 2), 5), {"keep_basis": True}),
    (solve, (torch.ones(N, 3),), {"damping": 20.0, "tolerance": 1e-2}),
    (solve, (torch.ones(N, 3),), {"damping": 1.5, "tolerance": 0.1}),  # indefinite
    (diagonal_of, (), {"num_products": 10}),
    (diagonal_of, (), {"num_products": 20}),
    (norm, ("fro",), {"num_products": 10}),
    (norm, ("nuc",), {"num_products": 40}),
    (function, (torch.exp, torch.ones(N, 2)), {"max_steps": 10, "tolerance": 1.0}),
    (function, (torch.exp, torch.ones(N, 2)), {"max_steps": 20, "tolerance": 1e-2}),
    (condition_number, (), {"damping": 20.0}),
]


@pytest.mark.parametrize("solver, arguments, options", WORK)
@pytest.mark.parametrize("vectors", [None, 40.0])
def test_no_solver_takes_more_than_it_says(solver, arguments, options, vectors):
    A = diagonal(LARGE) if vectors is None else with_room(diagonal(LARGE), vectors)
    stated = memory_needed(solver, A, *arguments, **options) / (4 * N)
    assert peak_vectors(lambda: solver(A, *arguments, **options), N) <= stated + 0.5
    if vectors is not None and "basis_size" not in options:
        assert stated <= vectors + 2 * max(options.get("block_size", 1), 1) + 1


@pytest.mark.parametrize("n", [60, 400, 1200])
@pytest.mark.parametrize(
    "solver, arguments, options",
    [
        (eigenpairs, (3,), {}),
        (log_determinant, (), {}),  # of the whole matrix
        (log_determinant, (), {"num_steps": 10, "num_probes": 4}),
        (norm, ("nuc",), {"num_products": 2000}),
        (norm, ("fro",), {}),
        (spectral_density, (), {}),
        (spectral_density, (), {"tolerance": 1e-3}),
        (diagonal_of, (), {"num_products": 1200}),
        (trace, (), {}),
        (subspace_iteration, (3, 2), {}),
        (condition_number, (), {}),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_small_matrices_are_counted_where_vectors_are_short(solver, arguments, options, n):
    A = diagonal(linspace(1, 2, n))
    stated = memory_needed(solver, A, *arguments, **options) / (4 * n)
    assert peak_vectors(lambda: solver(A, *arguments, **options), n) <= stated + 0.5


@pytest.mark.parametrize("room", [500.0, 1000.0, 2000.0])
@pytest.mark.parametrize("options", [{"tolerance": 1e-3}, {"num_probes": 6, "num_steps": 20}])
@pytest.mark.usefixtures("unchecked")
def test_bases_of_small_matrices_are_counted_and_share_the_room(room, options, monkeypatch):
    held, of_probes = [], Recursion.of_probes

    def noted(*arguments):
        held.append(of_probes(*arguments))
        return held[-1]

    monkeypatch.setattr(Recursion, "of_probes", noted)
    A = with_room(diagonal(linspace(1, 2, 400)), room)
    stated = memory_needed(spectral_density, A, **options) / 1600
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert peak_vectors(lambda: spectral_density(A, **options), 400) <= stated + 0.5
    assert sum(len(run.basis) * 404 for run in held if run.basis is not None) <= room


@pytest.mark.parametrize("k, vectors", [(1, 12.0), (3, 12.0), (10, 32.0)])
def test_eigenpairs_live_with_two_vectors_a_pair_and_twelve(k, vectors):
    A = with_room(diagonal(LARGE), 2 * k + 6)
    stated = memory_needed(eigenpairs, A, k) / (4 * N)
    assert peak_vectors(lambda: eigenpairs(A, k, tolerance=1e-2), N) <= stated + 0.5 <= 2 * k + 12


def test_a_mixed_search_takes_no_more_than_it_says():
    plain = diagonal(LARGE)
    A = replace(plain, rough=replace(plain, matmat=lambda V: plain.matmat(V) * 1.001))
    stated = memory_needed(eigenpairs, A, 5, precision="mixed") / (4 * N)
    assert peak_vectors(lambda: eigenpairs(A, 5, tolerance=1e-3, precision="mixed"), N) <= stated + 1


def test_only_solvers_have_a_footprint():
    with pytest.raises(ArgumentError, match="spectral_density"):
        memory_needed(ritz.hessian, diagonal(LARGE))


def test_a_matrix_is_counted_where_it_has_room_alone():
    A = diagonal(linspace(1, 2, 400))
    stated = lambda vectors, *work, **options: (
        memory_needed(work[0], with_room(A, vectors), *work[1:], **options) / 1600
    )
    copies = COPIES * 400
    fits, does_not = (stated(room, spectral_density, tolerance=0.1, max_products=400) for room in (copies, copies - 1))
    assert fits - does_not == pytest.approx(copies)
    fits, does_not = (stated(room, norm, "nuc") for room in (1200.0, 1199.0))
    assert fits == EXACT * 400 > does_not
