"""Lanczos recursions and their quadratures on matrices of known spectrum."""

import math

import pytest
import torch
from torch.testing import assert_close

from ritz.errors import ArgumentError, NumericalError
from ritz.operators import Operator
from ritz.solvers import lanczos, spectral_density
from ritz.solvers.lanczos_recursion import recursion
from ritz.spectrum import Spectrum

from .spectra import counted, linspace, random, with_eigenvalues


def tridiagonal(T):
    off = torch.diag_embed(T.off_diagonal, 1)
    return torch.diag_embed(T.diagonal) + off + off.mT


@pytest.mark.parametrize("num_steps", [1, 7, 30])
@pytest.mark.parametrize("num_probes", [1, 3])
def test_lanczos_satisfies_its_decomposition(num_steps, num_probes, generator):
    A = with_eigenvalues(linspace(-1, 3, 30), generator)
    T = lanczos(A, random(30, num_probes, generator=generator), num_steps, keep_basis=True)
    R = A.dense() @ T.basis - T.basis @ tridiagonal(T)
    identity = torch.eye(num_steps, dtype=torch.float64).expand(num_probes, -1, -1)
    assert_close(T.basis.mT @ T.basis, identity, atol=1e-12, rtol=0)
    assert_close(R[..., :-1], torch.zeros_like(R[..., :-1]), atol=1e-12, rtol=0)
    assert_close(R[..., -1].norm(dim=1), T.residual, atol=1e-12, rtol=1e-6)


def test_products_with_errors_leave_the_basis_orthogonal(generator):
    A = random(6, 6, generator=generator)
    A = A + A.T + 0.005 * A  # less symmetric than in bfloat16: older vectors return in every product
    M = 1e-12 * random(40, 40, generator=generator) + torch.nn.functional.pad(A, (0, 34, 0, 34))
    noisy = Operator(lambda V: M @ V, 40, torch.float64, torch.device("cpu"))
    Q = lanczos(noisy, torch.eye(40, 1, dtype=torch.float64), 20, keep_basis=True).basis[0]
    assert_close(Q.T @ Q, torch.eye(20, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_recursion_stays_outside_the_space_it_is_kept_from(generator):
    A, outside = with_eigenvalues(linspace(-1, 3, 60), generator), torch.linalg.qr(random(60, 5, generator=generator)).Q
    starts = outside[:, :2] + 1e-10 * random(60, 2, generator=generator)  # what lies outside is lost in rounding
    basis = recursion(A, starts.T.contiguous(), 10, keep_basis=True, outside=outside.T).basis
    assert float((outside.T @ basis).abs().max()) < 1e-12


def test_recursions_with_and_without_basis_agree_while_rounding_is_small(generator):
    A, starts = with_eigenvalues(linspace(-1, 3, 60), generator), random(60, 2, generator=generator)
    kept, free = (lanczos(A, starts, 8, keep_basis=keep) for keep in (True, False))
    assert free.basis is None
    assert_close(free.diagonal, kept.diagonal)
    assert_close(free.off_diagonal, kept.off_diagonal)


def test_probes_in_step_are_the_probes_alone(generator):
    A, starts = with_eigenvalues(linspace(0, 1, 40), generator), random(40, 3, generator=generator)
    together = lanczos(A, starts, 10, keep_basis=True)
    for i in range(3):
        alone = lanczos(A, starts[:, i : i + 1], 10, keep_basis=True)
        assert_close(together.diagonal[i : i + 1], alone.diagonal)


@pytest.mark.parametrize("keep_basis", [True, False])
def test_quadrature_is_exact_below_degree_2m(keep_basis, generator):
    A, v = with_eigenvalues(linspace(-1, 2, 40), generator), random(40, generator=generator)
    nodes, weights = lanczos(A, v[:, None], 5, keep_basis=keep_basis).quadrature()
    rule = Spectrum(nodes, weights, 40)
    for degree in range(10):
        exact = v @ torch.linalg.matrix_power(A.dense(), degree) @ v / (v @ v)
        assert rule.moment(degree) == pytest.approx(float(exact), rel=1e-10, abs=1e-10)
    exact = v @ torch.linalg.matrix_power(A.dense(), 10) @ v / (v @ v)
    assert rule.moment(10) != pytest.approx(float(exact), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keep_basis", [True, False])
def test_scaling_the_operator_scales_the_ritz_values(scale, dtype, keep_basis, generator):
    matrix = with_eigenvalues(linspace(-1, 3, 50), generator).dense()
    starts = random(50, 2, generator=generator, dtype=dtype)
    (plain, first), (scaled, second) = (
        lanczos(Operator.from_matrix((s * matrix).to(dtype)), starts, 10, keep_basis=keep_basis).quadrature()
        for s in (1.0, scale)
    )
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    assert_close(scaled / scale, plain, atol=tolerance, rtol=0)
    assert_close(second, first, atol=tolerance, rtol=0)


@pytest.mark.parametrize("keep_basis", [True, False])
def test_an_invariant_space_leaves_weight_on_true_eigenvalues_only(keep_basis, generator):
    A, calls = counted(with_eigenvalues(torch.tensor([1.0] * 10 + [2.0] * 10), generator))
    T = lanczos(A, random(20, 2, generator=generator), 20, keep_basis=keep_basis)
    nodes, weights = T.quadrature()
    carried = nodes[weights > 1e-12]
    assert_close(carried.sort().values, torch.tensor([1.0, 1.0, 2.0, 2.0], dtype=torch.float64))
    assert len(calls) < 20 and float(nodes.min()) > 1 - 1e-9 and float(nodes.max()) < 2 + 1e-9


@pytest.mark.parametrize("keep_basis", [True, False])
def test_one_probe_stops_where_another_goes_on(keep_basis, generator):
    A = Operator.from_matrix(torch.diag(torch.arange(1.0, 11, dtype=torch.float64)))
    starts = torch.stack([torch.eye(10, dtype=torch.float64)[2], torch.ones(10, dtype=torch.float64)], dim=1)
    T = lanczos(A, starts, 10, keep_basis=keep_basis)
    nodes, weights = T.quadrature()
    assert_close(nodes[0], torch.full((10,), 3.0, dtype=torch.float64))
    assert not T.off_diagonal[0].any() and not float(T.residual[0])
    assert_close(nodes[1], torch.arange(1.0, 11, dtype=torch.float64), atol=1e-10, rtol=0)
    assert_close(weights[1], torch.full((10,), 0.1, dtype=torch.float64), atol=1e-10, rtol=0)


@pytest.mark.parametrize("keep_basis", [True, False])
def test_zero_identity_and_rank_one_operators_stop_at_once(keep_basis, generator):
    u = random(50, generator=generator)
    cases = [(torch.zeros(50, 50), 1), (torch.eye(50), 1), (torch.outer(u, u), 2)]
    for matrix, steps in cases:
        A, calls = counted(Operator.from_matrix(matrix.double()))
        T = lanczos(A, random(50, 3, generator=generator), 40, keep_basis=keep_basis)
        assert len(calls) == steps
        assert bool(T.diagonal.isfinite().all()) and not T.residual.any()


def test_an_operator_that_returns_its_argument_is_the_identity(generator):
    A = Operator(lambda V: V, 30, torch.float64, torch.device("cpu"))
    T = lanczos(A, random(30, 2, generator=generator), 5, keep_basis=False)
    assert_close(T.diagonal, torch.ones_like(T.diagonal))
    assert spectral_density(A, generator=generator).range == pytest.approx((1.0, 1.0))


def test_ghosts_do_not_change_the_density(generator):
    outliers = torch.tensor([100.0, 90.0, 80.0])
    A = with_eigenvalues(torch.cat([outliers, linspace(0, 1, 197)]), generator)
    starts = random(200, 4, generator=generator)
    (free, free_weights), (kept, kept_weights) = (
        lanczos(A, starts, 120, keep_basis=keep).quadrature() for keep in (False, True)
    )
    assert int((free > 99).sum()) > 4 and int((kept > 99).sum()) == 4  # several copies against one for each probe
    rules = [Spectrum(n, w, 200, 1.0) for n, w in ((free, free_weights), (kept, kept_weights))]
    x = linspace(-5, 105, 500)
    assert float((rules[0].density(x) - rules[1].density(x)).abs().max()) < 1e-5
    for low, high in ((99, 101), (89, 91), (79, 81)):
        masses = [float(rule.cdf(linspace(low, high, 2)).diff()) for rule in rules]
        assert masses[0] == pytest.approx(masses[1], rel=1e-9)


@pytest.mark.parametrize("num_steps", [0, 11])
def test_an_impossible_number_of_steps_is_refused(num_steps):
    A = Operator.from_matrix(torch.eye(10))
    with pytest.raises(ArgumentError, match=f"num_steps={num_steps}"):
        lanczos(A, torch.ones(10, 1), num_steps, keep_basis=True)


@pytest.mark.parametrize("starts", [torch.zeros(10, 2), torch.full((10, 1), math.nan), torch.ones(9, 1)])
def test_start_vectors_without_direction_are_refused(starts):
    with pytest.raises(ArgumentError, match="starts"):
        lanczos(Operator.from_matrix(torch.eye(10)), starts, 3, keep_basis=False)


def test_nan_products_are_refused():
    A = Operator(lambda V: V * math.nan, 10, torch.float64, torch.device("cpu"))
    with pytest.raises(NumericalError, match="NaN"):
        lanczos(A, torch.ones(10, 1, dtype=torch.float64), 5, keep_basis=False)
    with pytest.raises(NumericalError, match="NaN"):
        spectral_density(A)


def test_a_recursion_keeps_no_basis_unless_asked(generator):
    T = lanczos(with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator), 8)
    assert T.basis is None


def test_a_recursion_after_fewer_steps_is_the_shorter_one(generator):
    A, starts = with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator)
    longer, shorter = lanczos(A, starts, 12).after(5), lanczos(A, starts, 5)
    for name in ("diagonal", "off_diagonal", "residual"):
        assert_close(getattr(longer, name), getattr(shorter, name))


def test_what_a_quadrature_leaves_open_is_nothing_for_polynomials(generator):
    A, starts = with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator)
    T = lanczos(A, starts, 8)
    assert T.truncation_error(lambda x: x**3) < 1e-12 < T.truncation_error(lambda x: (x + 1e-3).log())
    assert_close(T.integral(lambda x: x), (starts * (A @ starts)).sum(0) / starts.square().sum(0))


def test_a_recursion_padded_with_steps_has_the_same_integrals():
    A = Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 3.0]).double()))
    run = lanczos(A, torch.ones(3, 2).double(), 3)
    assert torch.allclose(run.padded(5).integral(torch.exp), run.integral(torch.exp))


def test_steps_that_were_not_made_are_not_made_up(generator):
    run = lanczos(with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator), 4)
    with pytest.raises(ArgumentError, match="Make the steps"):
        run.padded(5)
