"""Lanczos and its quadratures on matrices of known spectrum."""

import math
from dataclasses import replace

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz.errors import ArgumentError, NumericalError
from ritz.operators import Operator
from ritz.solvers.eigen import eigenpairs
from ritz.solvers.krylov import lanczos, spectral_density, spectral_range
from ritz.spectrum import Spectrum


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def random(*shape, generator, dtype=torch.float64):
    return torch.randn(*shape, generator=generator, dtype=dtype)


def linspace(low, high, num):
    return torch.linspace(low, high, num, dtype=torch.float64)


def with_eigenvalues(eigenvalues, generator, dtype=torch.float64):
    Q, _ = torch.linalg.qr(random(len(eigenvalues), len(eigenvalues), generator=generator))
    A = (Q * eigenvalues.double()) @ Q.T
    return Operator.from_matrix(((A + A.T) / 2).to(dtype))


def counted(A):
    """The operator, and the list of how many columns each of its products had."""
    calls = []
    return Operator(lambda V: calls.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device), calls


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
    assert_close(nodes[1], torch.arange(1.0, 11, dtype=torch.float64), atol=1e-6, rtol=0)
    assert_close(weights[1], torch.full((10,), 0.1, dtype=torch.float64), atol=1e-6, rtol=0)


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
    with pytest.raises(ArgumentError, match="Start vectors"):
        lanczos(Operator.from_matrix(torch.eye(10)), starts, 3, keep_basis=False)


def test_nan_products_are_refused():
    A = Operator(lambda V: V * math.nan, 10, torch.float64, torch.device("cpu"))
    with pytest.raises(NumericalError, match="NaN"):
        lanczos(A, torch.ones(10, 1, dtype=torch.float64), 5, keep_basis=False)
    with pytest.raises(NumericalError, match="NaN"):
        spectral_density(A)


def test_spectral_density_converges_to_the_exact_spectrum(generator):
    A = with_eigenvalues(torch.cat([linspace(0, 1, 190), linspace(3, 4, 10)]), generator)
    estimate = spectral_density(A, num_steps=50, num_probes=20, generator=generator)
    assert estimate.wasserstein(Spectrum.of_matrix(A.dense())) < 0.05
    assert estimate.size == 200 and estimate.num_probes == 20


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_moments_lie_within_their_standard_error_at_the_stated_rate(degree, generator):
    A = with_eigenvalues(linspace(-1, 2, 100), generator)
    truth = Spectrum.of_matrix(A.dense()).moment(degree)
    covered = 0
    for _ in range(60):
        found = spectral_density(A, num_steps=5, num_probes=30, generator=generator)
        covered += abs(found.moment(degree) - truth) < 2 * float(found.standard_error(lambda s: s.moment(degree)))
    assert covered >= 52  # 95 % of 60 are 57, with standard deviation 1.7


def test_the_density_lies_within_its_standard_error_at_the_stated_rate(generator):
    A = with_eigenvalues(torch.cat([linspace(0, 1, 140), linspace(2, 3, 10)]), generator)
    x, covered = linspace(-0.5, 3.5, 21), []
    exact = Spectrum.of_matrix(A.dense()).density(x, 0.3)
    for _ in range(40):
        found = spectral_density(A, num_steps=40, num_probes=30, generator=generator)
        covered.append((found.density(x, 0.3) - exact).abs() < 2 * found.standard_error(lambda s: s.density(x, 0.3)))
    assert 0.90 < float(torch.stack(covered).double().mean()) < 0.99


def test_the_error_falls_with_the_root_of_the_number_of_probes(generator):
    A = with_eigenvalues(linspace(0, 1, 100), generator)
    few, many = (
        float(
            spectral_density(A, num_steps=10, num_probes=p, generator=generator).standard_error(lambda s: s.moment(1))
        )
        for p in (50, 800)
    )
    assert few / many == pytest.approx(4, rel=0.4)


def test_outliers_are_exact_atoms_and_the_bulk_has_no_spurious_zeros(generator):
    eigenvalues = torch.cat([torch.tensor([-20.0, 15.0, 10.0]), linspace(1, 2, 97)])
    A = with_eigenvalues(eigenvalues, generator)
    found = spectral_density(A, num_steps=30, num_probes=6, outliers=3, generator=generator)
    outliers, bulk = found.split(3)
    assert_close(outliers, torch.tensor([-20.0, 15.0, 10.0], dtype=torch.float64), atol=1e-6, rtol=0)
    assert bulk.size == 97 and bulk.zero_mass() < 1e-12
    assert bulk.range[0] > 1 - 1e-6 and bulk.range[1] < 2 + 1e-6
    assert_close(found.weights.sum(1), torch.ones(6, dtype=torch.float64))
    assert float(found.cdf(torch.tensor([-19.0], dtype=torch.float64))) == pytest.approx(0.01, rel=1e-12)
    assert found.wasserstein(Spectrum.of_eigenvalues(eigenvalues)) < 0.05


def test_deflation_reduces_the_error_of_the_mean(generator):
    A = with_eigenvalues(torch.cat([torch.tensor([50.0, 40.0]), linspace(0, 1, 98)]), generator)
    plain, split = (
        float(spectral_density(A, outliers=k, generator=generator).standard_error(lambda s: s.moment(1)))
        for k in (0, 2)
    )
    assert split < plain / 5


def test_all_eigenvalues_as_outliers_give_the_exact_spectrum(generator):
    eigenvalues = linspace(-1, 2, 12)
    found = spectral_density(with_eigenvalues(eigenvalues, generator), outliers=12, generator=generator)
    assert found.wasserstein(Spectrum.of_eigenvalues(eigenvalues)) < 1e-12


@given(st.integers(1, 12), st.integers(1, 300), st.integers(1, 3), st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_any_small_problem_gives_a_measure_on_its_eigenvalues(size, num_steps, num_probes, outliers):
    generator = torch.Generator().manual_seed(size)
    A = with_eigenvalues(torch.arange(size).double() - 3, generator)
    outliers = min(outliers, size)
    found = spectral_density(A, num_steps=num_steps, num_probes=num_probes, outliers=outliers, generator=generator)
    assert_close(found.weights.sum(1), torch.ones(num_probes, dtype=torch.float64))
    assert found.range[0] > -3 - 1e-9 and found.range[1] < size - 4 + 1e-9
    if num_steps >= size:  # every node that carries mass is an eigenvalue
        carried = found.nodes[found.weights > 1e-9]
        assert_close(carried, carried.round(), atol=1e-6, rtol=0)


def test_more_steps_than_n_are_clipped(generator):
    A, calls = counted(with_eigenvalues(linspace(0, 1, 15), generator))
    found = spectral_density(A, num_steps=128, num_probes=2, generator=generator)
    assert len(calls) == 15
    assert_close(found.nodes[0], linspace(0, 1, 15), atol=1e-9, rtol=0)


def test_one_product_serves_all_probes_and_columns_are_contiguous(generator):
    A, strides = with_eigenvalues(linspace(0, 1, 60), generator), set()
    watched = Operator(lambda V: strides.add(V.stride()) or A @ V, 60, A.dtype, A.device)
    spectral_density(watched, num_steps=20, num_probes=4, generator=generator)
    assert strides == {(1, 60)}


def test_a_generator_decides_the_result_and_seeds_share_nothing():
    A = with_eigenvalues(linspace(0, 1, 50), torch.Generator().manual_seed(0))
    first, again, other = (
        spectral_density(A, num_steps=10, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first.nodes, again.nodes)
    assert torch.equal(first.nodes, spectral_density(A, num_steps=10).nodes)
    assert not torch.isin(other.nodes, first.nodes).any()


def test_the_global_random_state_is_untouched():
    state = torch.get_rng_state()
    spectral_density(Operator.from_matrix(torch.eye(20)), outliers=1)
    assert torch.equal(state, torch.get_rng_state())


def test_float32_spectra_agree_with_float64_ones(generator):
    eigenvalues = torch.cat([torch.tensor([30.0, 20.0]), linspace(0, 1, 298)])
    found = spectral_density(with_eigenvalues(eigenvalues, generator, torch.float32), outliers=2, num_probes=20)
    assert found.wasserstein(Spectrum.of_eigenvalues(eigenvalues)) < 0.02
    assert found.nodes.dtype == torch.float64


def test_the_spectral_range_holds_the_spectrum(generator):
    for _ in range(10):
        eigenvalues = random(150, generator=generator)
        low, high = spectral_range(with_eigenvalues(eigenvalues, generator), generator=generator)
        assert low < float(eigenvalues.min()) and high > float(eigenvalues.max())
        assert high - low < 1.3 * float(eigenvalues.max() - eigenvalues.min())


def test_the_residual_of_the_range_is_that_of_its_ritz_vector(generator):
    A, start = with_eigenvalues(linspace(0, 1, 80), generator), random(80, 1, generator=generator)
    T = lanczos(A, start, 6, keep_basis=True)
    (theta,), (S,) = T.eigh()
    ritz = T.basis[0] @ S
    assert_close((A.dense() @ ritz - ritz * theta).norm(dim=0), T.residual[0] * S[-1].abs())


@pytest.mark.parametrize("wrong", [{"num_steps": 0}, {"num_probes": 0}, {"outliers": -1}, {"outliers": 11}])
def test_counts_that_cannot_be_are_refused(wrong):
    with pytest.raises(ArgumentError):
        spectral_density(Operator.from_matrix(torch.eye(10)), **wrong)


def test_eigenpairs_that_are_known_serve_as_outliers(generator):
    values = torch.cat([torch.tensor([9.0, -8.0, 7.0]), torch.linspace(0, 1, 197)]).double()
    A = Operator.from_matrix(torch.diag(values))
    pairs = eigenpairs(A, 3, which="magnitude", generator=generator)
    given = spectral_density(A, num_steps=10, num_probes=2, outliers=pairs, generator=generator)
    atoms, bulk = given.split(3)
    assert_close(atoms, torch.tensor([9.0, -8.0, 7.0], dtype=torch.float64))
    assert bulk.range[1] <= 1.0 + 1e-9 and bulk.range[0] >= -1e-9


def test_outliers_of_another_space_are_refused_in_three_parts(generator):
    A, half = with_eigenvalues(linspace(0, 1, 40), generator), with_eigenvalues(linspace(0, 1, 30), generator)
    single = with_eigenvalues(linspace(0, 1, 40), generator, torch.float32)
    pairs = eigenpairs(A, 3)
    for wrong in (eigenpairs(half, 3), eigenpairs(single, 3), replace(pairs, vectors=1.01 * pairs.vectors)):
        with pytest.raises(ArgumentError) as caught:
            spectral_density(A, outliers=wrong)
        assert caught.value.seen and caught.value.why and caught.value.ways_out


@pytest.mark.parametrize("wrong", [{"num_steps": 8.0}, {"num_probes": 2.0}, {"outliers": 1.0}, {"generator": 0}])
def test_counts_that_are_no_integers_and_seeds_that_are_no_generators_are_refused(wrong, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        spectral_density(Operator.from_matrix(torch.eye(10)), **wrong)


def test_a_recursion_keeps_no_basis_unless_asked(generator):
    T = lanczos(with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator), 8)
    assert T.basis is None


def test_a_shortened_recursion_is_the_shorter_one(generator):
    A, starts = with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator)
    longer, shorter = lanczos(A, starts, 12).shortened(5), lanczos(A, starts, 5)
    for name in ("diagonal", "off_diagonal", "residual"):
        assert_close(getattr(longer, name), getattr(shorter, name))


def test_what_a_quadrature_leaves_open_is_nothing_for_polynomials(generator):
    A, starts = with_eigenvalues(linspace(0, 1, 30), generator), random(30, 2, generator=generator)
    T = lanczos(A, starts, 8)
    assert T.unresolved(lambda x: x**3) < 1e-12 < T.unresolved(lambda x: (x + 1e-3).log())
    assert_close(T.integral(lambda x: x), (starts * (A @ starts)).sum(0) / starts.square().sum(0))
