"""Solutions are those of a dense solver, with residuals that are true and a word wherever they are not small."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError, ConvergenceWarning, NumericalError
from ritz.lab.data import digits
from ritz.operators import Operator
from ritz.solvers import solve

from .memory import diagonal, peak_vectors, with_room
from .spectra import KINDS, counted, kinds, linspace, random, rotated, with_eigenvalues

N = 520  # more than are solved by their matrix


def true_residuals(A, solution, b):
    return (A @ solution.x - b).reshape(len(b), -1).norm(dim=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_systems_of_every_kind_are_solved_as_a_dense_solver_does(kind, dtype, generator):
    eigenvalues = kinds(N)[kind]
    damping = 0.02 * float(eigenvalues.abs().max())
    eigenvalues[(eigenvalues + damping).abs() < damping] = 0.0
    A, b = rotated(eigenvalues, dtype=dtype), random(N, 3, generator=generator, dtype=dtype)
    solution = solve(A, b, damping=damping)
    assert bool(solution.converged.all()) and solution.x.shape == b.shape
    exact = rotated(1 / (eigenvalues + damping)) @ b.double()
    nearest = float((eigenvalues + damping).abs().min())
    assert float((solution.x.double() - exact).norm(dim=0).max()) <= 2e-5 * float(b.norm(dim=0).max()) / nearest
    assert_close(solution.residuals, true_residuals(A + damping, solution, b), rtol=0.05, atol=1e-7)
    assert float((solution.residuals / b.norm(dim=0)).max()) <= 1e-5
    definite = float((eigenvalues + damping).min()) > 0
    assert solution.method == ("conjugate gradients" if definite else "MINRES")


@pytest.mark.parametrize("kind", KINDS)
def test_small_systems_are_solved_to_the_last_digits(kind, generator):
    eigenvalues = kinds(40)[kind]
    A = with_eigenvalues(eigenvalues)
    b = A @ random(40, generator=generator)  # in its range, where it is singular
    watched, calls = counted(A)
    solution = solve(watched, b, tolerance=1e-12)
    assert bool(solution.converged) and solution.num_products == sum(calls) <= 83
    assert float((A @ solution.x - b).norm()) <= 1e-12 * float(b.norm())
    assert_close(A @ solution.x, b, atol=1e-10, rtol=0)


def test_damping_is_the_algebra_of_operators(generator):
    A, b = rotated(linspace(0, 1, N)), random(N, generator=generator)
    assert_close(solve(A, b, damping=0.3).x, solve(A + 0.3, b).x)
    assert solve(A, b, damping=0.3).x.shape == (N,)


def test_one_pass_serves_all_right_hand_sides_for_as_long_as_they_need_it(generator):
    A, calls = counted(rotated(linspace(0.1, 1, N)))
    b = torch.cat([random(N, 2, generator=generator), (A @ torch.ones(N, 1).double()), torch.zeros(N, 1).double()], 1)
    calls.clear()
    solution = solve(A, b, tolerance=1e-8)
    assert bool(solution.converged.all()) and solution.num_products == sum(calls)
    assert max(calls) == 3 and len(calls) < 60 and float(solution.x[:, 3].norm()) == 0  # a zero needs no product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nonzero", [[5.0], [5.0, 4.0], [5.0, -5.0], [5.0, 4.0, 3.0, 2.0, 1.0], [1e8, 1.0]])
@pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")  # there is no solution
def test_a_system_of_low_rank_without_a_solution_leaves_a_residual_that_is_no_larger_than_without_x(nonzero, dtype):
    """The Krylov space is exhausted after two to six steps; whatever follows is rounding, blown up."""
    A = rotated(torch.cat([torch.tensor(nonzero).double(), torch.zeros(900 - len(nonzero)).double()]), dtype=dtype)
    for seed in range(10):
        b = random(900, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
        solution = solve(A, b)
        assert bool((solution.residuals <= b.norm(dim=0) * (1 + 1e-6)).all())
        assert not bool(solution.converged.any())


@pytest.mark.parametrize("n", [40, N])
@pytest.mark.parametrize("low", [0.1, -1.0])
def test_a_singular_system_is_solved_where_it_can_be(n, low, generator):
    """Semi-definite and indefinite; b in the range has a solution, other b a least residual, and a warning."""
    eigenvalues = torch.cat([linspace(low, -low / 5, n // 4), linspace(0.1, 1, n // 4), torch.zeros(n - n // 4 * 2)])
    eigenvalues[: n // 4] = eigenvalues[: n // 4] if low < 0 else linspace(0.2, 0.9, n // 4)
    A, v = with_eigenvalues(eigenvalues), random(n, generator=generator)
    assert bool(solve(A, A @ v).converged)
    with pytest.warns(ConvergenceWarning, match="no solution"):
        solution = solve(A, v)
    values, vectors = torch.linalg.eigh(A.dense())
    least = float((vectors[:, values.abs() < 1e-8].T @ v).norm())
    assert float(solution.residuals) == pytest.approx(least, rel=1e-6)
    assert float(solution.x.norm()) < 1e4 * float(v.norm()) and not bool(solution.converged)


def test_a_start_saves_products(generator):
    A, b = rotated(linspace(0.01, 1, N)), random(N, 2, generator=generator)
    plain = solve(A, b, tolerance=1e-6)
    with pytest.raises(ArgumentError, match="start has entries that are infinite or NaN"):
        solve(A, b, start=math.nan * plain.x)
    again = solve(A, b, tolerance=1e-6, start=plain.x)
    nearby = solve(A, 1.001 * b, tolerance=1e-6, start=plain.x)
    assert again.num_products == 2 and bool(again.converged.all())
    assert again.num_products < nearby.num_products < plain.num_products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tolerance_that_cannot_be_reached_is_warned_of(dtype, generator):
    A, b = rotated(10 ** linspace(-3, 0, N), dtype=dtype), random(N, generator=generator, dtype=dtype)
    with pytest.warns(ConvergenceWarning, match="tolerance"):
        solution = solve(A, b, tolerance=0.1 * torch.finfo(dtype).eps)
    assert not bool(solution.converged) and "not converged" in repr(solution)
    relative = float(solution.residuals) / float(b.norm())
    assert relative < 1e4 * torch.finfo(dtype).eps and solution.num_products < 1200
    assert float(solution.residuals) == pytest.approx(float(true_residuals(A, solution, b)), rel=0.5)  # rounding
    with pytest.warns(ConvergenceWarning, match="max_products"):
        assert solve(A, b, max_products=10).num_products <= 11


def test_float32_reaches_what_its_recursion_alone_does_not(generator):
    """The recursion's own residual falls on when the true one no longer does: it starts again from the true one."""
    A, b = rotated(10 ** linspace(-4.5, 0, N), dtype=torch.float32), torch.ones(N)
    solution = solve(A, A @ b, tolerance=2e-6, max_products=3000)
    assert bool(solution.converged) and float(true_residuals(A, solution, A @ b)) <= 2.2e-6 * float((A @ b).norm())


@pytest.fixture(scope="module")
def badly_scaled():
    """A network whose inputs have scales from 0.1 to 10, with more examples than parameters."""
    generator = torch.Generator().manual_seed(0)
    x = random(600, 12, generator=generator) * 10 ** linspace(1, -1, 12)
    y = torch.randint(5, (600,), generator=generator)
    model = nn.Sequential(nn.Linear(12, 10), nn.Tanh(), nn.Linear(10, 5)).double()
    for parameter in model.parameters():
        parameter.data.copy_(0.3 * random(*parameter.shape, generator=generator))
    return ritz.Risk(model.eval(), nn.CrossEntropyLoss(), (x, y))


def test_kfac_and_ekfac_save_products(badly_scaled, generator):
    G, b = ritz.gauss_newton(badly_scaled), random(185, generator=generator)
    exact = torch.linalg.solve(G.dense() + 1e-3 * torch.eye(185).double(), b)
    counts = {}
    for name, preconditioner in [("none", None), ("kfac", ritz.kfac), ("ekfac", ritz.ekfac)]:
        M = preconditioner and preconditioner(badly_scaled)
        solution = solve(G, b, damping=1e-3, preconditioner=M, tolerance=1e-6)
        counts[name] = solution.num_products
        assert bool(solution.converged.all())
        assert_close(solution.x, exact, atol=1e-2 * float(exact.abs().max()), rtol=0)
    assert counts["kfac"] < 0.75 * counts["none"] and counts["ekfac"] < counts["kfac"]


def test_a_damping_of_its_own_makes_a_rough_preconditioner_save_products():
    generator = torch.Generator().manual_seed(0)
    x, y = digits(generator=generator, dtype=torch.float64).train
    x, y = x.flatten(1)[:250], y[:250]
    model = nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10)).double()
    for parameter in model.parameters():
        parameter.data.copy_(0.2 * random(*parameter.shape, generator=generator))
    for _ in range(150):
        loss = nn.functional.cross_entropy(model(x), y)
        for parameter, slope in zip(model.parameters(), torch.autograd.grad(loss, model.parameters()), strict=True):
            parameter.data -= 0.5 * slope
    risk = ritz.Risk(model.eval(), nn.CrossEntropyLoss(), (x, y))
    G, K, b = ritz.gauss_newton(risk), ritz.ekfac(risk).operator, risk.gradient()
    top = ritz.eigenpairs(G, 1).values.item()
    for share in (1e-2, 1e-3):
        own = share**0.5 * top  # √(μ λ₁)
        none, same, more = (solve(G, b, damping=share * top, preconditioner=M).num_products for M in (None, K, K + own))
        assert more < none and more < same


def test_an_exact_preconditioner_needs_a_step_or_two(generator):
    matrix = with_eigenvalues(10 ** linspace(-4, 0, 60)).dense()
    A, b = Operator.from_matrix(matrix), random(60, generator=generator)
    assert solve(A, b, damping=1e-3, preconditioner=A).num_products <= 4
    inverse = torch.linalg.inv(matrix + 1e-3 * torch.eye(60).double())
    assert solve(A, b, damping=1e-3, preconditioner=lambda R: inverse @ R).num_products <= 4
    shifted = Operator(lambda V: matrix @ V - 0.5 * V, 60, torch.float64, torch.device("cpu"))  # indefinite
    assert bool(solve(shifted, b, preconditioner=Operator.from_matrix(matrix + torch.eye(60).double())).converged)


def test_a_preconditioner_that_is_none_is_refused(generator):
    A, b = rotated(linspace(0.1, 1, N)), random(N, generator=generator)
    with pytest.raises(NumericalError, match="positive definite"):
        solve(A, b, preconditioner=lambda R: -R)
    with pytest.raises(ArgumentError, match="no known inverse") as caught:
        solve(A, b, preconditioner=A)
    assert "lambda R: M @ R" in caught.value.ways_out[1]
    assert bool(solve(A, b, preconditioner=lambda R: A @ R).converged)
    with pytest.raises(ArgumentError, match="same vectors"):
        solve(A, b, preconditioner=with_eigenvalues(linspace(1, 2, 10)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"b": torch.ones(N - 1).double()},
        {"b": torch.ones(N)},
        {"b": torch.ones(N, 2, 2).double()},
        {"b": torch.ones(N, 0).double()},
        {"b": torch.full((N,), math.nan).double()},
        {"start": torch.ones(N, 2).double()},
        {"tolerance": -1.0},
        {"tolerance": math.nan},
        {"damping": math.inf},
        {"max_products": 0},
        {"max_products": 2.5},
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))) as caught:
        solve(rotated(linspace(0.1, 1, N)), **{"b": torch.ones(N).double(), **wrong})
    assert caught.value.seen and caught.value.why and caught.value.ways_out


@pytest.mark.parametrize("low, vectors", [(0.1, 6.0), (-1.0, 11.0)])
def test_right_hand_sides_come_as_the_room_allows(low, vectors):
    size = 40_000
    A, b = diagonal(torch.cat([linspace(0.1, 1, size - 50), linspace(low, low / 2, 50)])), torch.ones(size, 4)
    for times in (1, 2):
        tight = with_room(A, times * vectors)
        solution = solve(tight, b, tolerance=1e-2)
        assert bool(solution.converged.all())
        assert float(true_residuals(A, solution, b).max()) <= 1.01e-2 * float(b[:, 0].norm())
        peak = peak_vectors(lambda: solve(tight, b, tolerance=1e-2), size)
        assert peak - 4 <= (times + (low < 0)) * vectors  # beside x itself; a switch holds what it came from
