"""The numerical faults of the tools in use today, one by one: what holds here instead.

Faults 1 to 37 are those of a survey of the field, in its order; 38 was found while this library was tested. Each
docstring names the tool and what it does. Where it is cheap, the fault itself is written out beside the truth, so
that the test is seen to tell them apart.
"""

import ast
import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.data import DataLoader

import ritz
from ritz import operators
from ritz.engine import PATHS
from ritz.errors import ArgumentError, ConvergenceWarning, DataError, ModelError
from ritz.risk.batches import Batch
from ritz.testing import check_operator
from tests.risk.problem import Examples
from tests.seeds import seeded

from .source import code, every_path
from .zoo import OUTPUTS, Case, case, dense_hessian, unequal_batches, whole

FAULTS = {}


def fault(number):
    """Register a test as the one that guards against a fault of the list."""

    def register(test):
        assert number not in FAULTS, f"fault {number} has a test already"
        FAULTS[number] = test
        return test

    return register


# Matrices and networks to test with -----------------------------------------------------------------------------------


def linspace(low, high, num):
    return torch.linspace(low, high, num, dtype=torch.float64)


def with_eigenvalues(eigenvalues, dtype=torch.float64):
    """An operator with these eigenvalues, its eigenvectors those of a reflection; it counts its products."""
    d, n = torch.as_tensor(eigenvalues, dtype=torch.float64).to(dtype)[:, None], len(eigenvalues)
    u = torch.randn(n, 1, generator=seeded(5), dtype=torch.float64)
    u = (u / u.norm()).to(dtype)
    reflected = lambda V: V - 2 * u * (u.T @ V)
    return counting(operators.Operator(lambda V: reflected(d * reflected(V)), n, dtype, torch.device("cpu")))


def counting(A):
    """The operator with a list `A.matmat.inputs` of what it was multiplied with."""

    def product(V):
        product.inputs.append(V.clone())
        return A @ V

    product.inputs = []
    return operators.Operator(product, A.size, A.dtype, A.device)


def num_products(A):
    return sum(V.shape[1] for V in A.matmat.inputs)


def with_outliers(n=1000, top=100.0):
    """Ten outliers over a bulk of both signs."""
    return torch.cat([linspace(top / 3, top, 10), linspace(-1, 1, n - 10)])


def copies(values, target, tolerance):
    return int(((values - target).abs() <= tolerance * abs(target)).sum())


def labels(shape, seed=1):
    return torch.randint(OUTPUTS, shape[:-1], generator=seeded(seed))


def mlp(*widths, activation=nn.Tanh, seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), activation())]
        return nn.Sequential(*layers[:-1]).to(dtype)


def classification(num_examples, model, seed=2):
    """A case of inputs for the model, and their labels."""
    x = torch.randn(num_examples, model[0].in_features, generator=seeded(seed), dtype=torch.float64)
    y = torch.randint(OUTPUTS, (num_examples,), generator=seeded(seed))
    return Case(model, x, (num_examples, OUTPUTS)), y


def dense_curvature(risk, built, y, total):
    """H and G of total(f(θ), y) on all data at once."""
    outputs = whole(risk, built)
    z = outputs(risk.theta).detach()
    J = torch.func.jacfwd(lambda t: outputs(t).flatten())(risk.theta)
    B = dense_hessian(lambda u: total(u.view_as(z), y), z.flatten())
    return dense_hessian(lambda t: total(outputs(t), y), risk.theta), J.T @ B @ J


def integral(values, grid):
    return float(torch.trapezoid(values, grid))


def relative(actual, expected):
    return float((actual - expected).norm() / expected.norm())


def parsed_sources():
    return [(parts, code(parts)) for parts in every_path()]


# curvlinops -----------------------------------------------------------------------------------------------------------


@fault(1)
def test_no_eigenvalue_appears_twice():
    """Fault 1, curvlinops `fast_lanczos`: without reorthogonalisation, the twelve largest Ritz values are one."""
    eigenvalues = with_outliers()
    A = with_eigenvalues(eigenvalues, torch.float32)
    start = torch.randn(A.size, 1, generator=seeded())
    kept, three_term = (ritz.lanczos(A, start, 100, keep_basis=basis) for basis in (True, False))
    assert copies(three_term.eigh()[0][0], 100.0, 1e-4) > 1  # the ghosts, where only their summed weight counts
    assert copies(kept.eigh()[0][0], 100.0, 1e-4) == 1
    found = ritz.eigenpairs(A, 12, generator=seeded()).values.double()
    assert_close(found, eigenvalues.sort(descending=True).values[:12], atol=0.01, rtol=0)
    values, _ = ritz.spectral_density(A, outliers=10, generator=seeded()).split(10)
    assert_close(values, linspace(100, 100 / 3, 10), atol=0.01, rtol=0)
    quadrature = ritz.spectral_density(A, num_steps=100, generator=seeded())
    assert_close(quadrature.split(10)[0], linspace(100, 100 / 3, 10), atol=0.01, rtol=0)  # ghosts are one, of mass 1/n
    with pytest.raises(ArgumentError, match="atoms of mass 1/n"):  # what has not converged is no outlier
        quadrature.split(quadrature.num_atoms + 1)


@fault(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_invariant_space_ends_the_recursion(dtype):
    """Fault 2, curvlinops: a zero operator gives NaN, a rank-one operator its eigenvalue five times."""
    zero, rank_one = (with_eigenvalues([top] + 299 * [0.0], dtype) for top in (0.0, 3.0))
    assert ritz.spectral_density(zero, num_steps=10).moment(2) == 0.0
    assert not ritz.eigenpairs(zero, 3).values.any()
    nodes = ritz.spectral_density(rank_one, num_steps=10, generator=seeded()).nodes
    assert nodes.shape[1] == 2 and nodes.isfinite().all()
    assert all(copies(row, 3.0, 1e-5) == 1 for row in nodes)
    found = ritz.eigenpairs(rank_one, 3).values.double()
    assert_close(found, torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64), atol=1e-5, rtol=0)


@fault(3)
def test_the_log_spectrum_is_the_density_of_log_eigenvalues():
    """Fault 3, curvlinops: it returns the density of λ on an exponential grid, whose integral over log λ is 45 555."""
    exact = ritz.Spectrum.of_eigenvalues(linspace(-12, 0, 2000).exp())
    u = exact.log_grid(width=0.1, floor=1e-9)
    q = exact.log_density(u, width=0.1, floor=1e-9)
    assert integral(q, u) == pytest.approx(1, abs=1e-3)
    inside = (u > -11) & (u < -1)
    assert_close(q[inside], torch.full_like(q[inside], 1 / 12), rtol=0.02, atol=0)  # uniform in log λ
    signed = ritz.spectral_density(with_eigenvalues(with_outliers(300)), num_steps=40, generator=seeded())
    u = signed.log_grid()
    assert integral(signed.log_density(u), u) == pytest.approx(1, abs=1e-3)


@fault(4)
def test_smoothing_has_one_default():
    """Fault 4, curvlinops: κ is 1.04 in the function and 3 in the class for the same density."""
    for function in (ritz.spectral_density, ritz.lanczos):  # smoothing belongs to the result alone
        assert not {"width", "kappa", "sigma"} & set(inspect.signature(function).parameters)
    spectrum = ritz.spectral_density(with_eigenvalues(with_outliers(200)), num_steps=30, generator=seeded())
    x, u = spectrum.grid(), spectrum.log_grid()
    assert_close(spectrum.density(x), spectrum.density(x, spectrum.width), rtol=0, atol=0)
    assert_close(spectrum.log_density(u), spectrum.log_density(u, width=spectrum.log_width()), rtol=0, atol=0)
    default = ritz.spectral_density(with_eigenvalues(with_outliers(600)))
    parameters = inspect.signature(ritz.log_determinant).parameters
    assert default.num_probes == parameters["num_probes"].default
    assert default.num_products == default.num_probes * parameters["num_steps"].default


@fault(5)
def test_the_range_costs_nothing_beyond_the_run_itself():
    """Fault 5, curvlinops: finding the range by ARPACK takes 182 products before the first step."""
    A, eigenvalues = with_eigenvalues(with_outliers()), with_outliers()
    spectrum = ritz.spectral_density(A, num_steps=64, num_probes=2, generator=seeded())
    assert num_products(A) == 2 * 64
    assert spectrum.range == pytest.approx((-1.0, 100.0), abs=0.01)
    A.matmat.inputs.clear()
    low, high = ritz.solvers.spectral_range(A, generator=seeded())
    assert num_products(A) == 32
    assert low <= float(eigenvalues.min()) and float(eigenvalues.max()) <= high
    assert high - low < 1.25 * 101


@fault(6)
def test_float32_products_are_not_asked_for_float64_accuracy():
    """Fault 6, curvlinops: ARPACK in float64 over float32 products, to 1e-16 that they do not have."""
    A = with_eigenvalues(with_outliers(), torch.float32)
    assert A.to_scipy().dtype == np.float32
    values = eigsh(A.to_scipy(), k=5, which="LA", return_eigenvectors=False)
    assert values.dtype == np.float32 and {V.dtype for V in A.matmat.inputs} == {torch.float32}
    reachable = ritz.eigenpairs(A, 5, tolerance=1e-6, generator=seeded())
    with pytest.warns(ConvergenceWarning, match="float32 limits"):
        beyond = ritz.eigenpairs(A, 5, tolerance=1e-16, generator=seeded())
    assert reachable.converged.all() and not beyond.converged.any()
    assert beyond.num_products <= 2 * reachable.num_products  # it sees what remains for rounding, and stops


@fault(7)
@pytest.mark.parametrize("options", [{"ignore_index": 0}, {"weight": torch.tensor([0.2, 1.0, 5.0]).double()}])
def test_batches_weigh_as_much_as_their_terms(options):
    """Fault 7, curvlinops: batches weigh B/N whatever their terms do: with ignore_index the product is 72 % off."""
    built, _ = classification(11, mlp(4, 5, OUTPUTS))
    y = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, 2, 2, 2])  # the first batch of seven holds one term of label 1
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(**options), unequal_batches(built.inputs, y))
    H, G = dense_curvature(risk, built, y, nn.CrossEntropyLoss(**options))
    check_operator(ritz.hessian(risk), H)
    check_operator(ritz.gauss_newton(risk), G)
    first, second = (
        ritz.hessian(ritz.Risk(built.model, nn.CrossEntropyLoss(**options), batch)).dense()
        for batch in unequal_batches(built.inputs, y)
    )
    assert relative((7 * first + 4 * second) / 11, H) > 0.1


@fault(8)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_class_weights_and_smoothing_are_in_every_matrix(smoothing):
    """Fault 8, curvlinops: the Monte Carlo GGN, and KFAC, leave out class weights and label smoothing."""
    built, y = classification(11, mlp(4, 5, OUTPUTS))
    weight = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)
    weighted = nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)
    risk = ritz.Risk(built.model, weighted, unequal_batches(built.inputs, y))
    H, G = dense_curvature(risk, built, y, weighted)
    check_operator(ritz.gauss_newton(risk), G)
    check_operator(ritz.functional_hessian(risk), H - G)
    z = whole(risk, built)(risk.theta).detach()
    S = risk.loss.square_root(z, y)
    J = torch.func.jacfwd(whole(risk, built))(risk.theta)
    factor = torch.einsum("ikn,ikr->nir", J, S).flatten(1)
    assert_close(factor @ factor.T / risk.total_weight, G)
    plain = ritz.gauss_newton(ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))).dense()
    assert relative(plain, G) > 0.1


@fault(9)
def test_probes_are_normalised():
    """Fault 9, curvlinops `hutchinson_diag`: normal probes are not divided by their squares: 18 % on a diagonal."""
    diagonal = torch.randn(200, generator=seeded(), dtype=torch.float64)
    A = operators.Operator.from_matrix(torch.diag(diagonal))
    one = ritz.solvers.hutchinson(A, num_products=1, generator=seeded())  # random signs are exact here
    assert one.value == pytest.approx(float(diagonal.sum()), rel=1e-12)
    identity = operators.Operator.from_matrix(3 * torch.eye(200, dtype=torch.float64))
    spectrum = ritz.spectral_density(identity, num_probes=3, generator=seeded())
    assert [spectrum.moment(degree) for degree in (0, 1, 2)] == pytest.approx([1, 3, 9], rel=1e-12)
    assert ritz.trace(identity, num_products=10, generator=seeded()).value == pytest.approx(600, rel=1e-12)


@fault(10)
def test_both_passes_over_the_data_are_read_to_their_ends():
    """Fault 10, curvlinops: a check of two passes that ends with the shorter; dict inputs stay on their device."""
    built, y = classification(11, mlp(4, 5, OUTPUTS))
    batches = unequal_batches(built.inputs, y)

    class Changing:
        def __init__(self, *passes):
            self.passes = iter(passes)

        def __iter__(self):
            return iter(next(self.passes))

    for passes in ((batches, batches[:1]), (batches[:1], batches)):
        with pytest.raises(DataError, match="second pass"):
            ritz.Risk(built.model, nn.CrossEntropyLoss(), Changing(*passes))
    ritz.Risk(built.model, nn.CrossEntropyLoss(), Changing(batches, batches, batches))
    batch = Batch({"a": torch.ones(2, 3), "b": torch.ones(2, dtype=torch.long)}, torch.ones(2))
    moved = batch.to(torch.device("meta"), torch.float64)
    assert {t.device.type for t in moved.tensors()} == {"meta"}
    assert [t.dtype for t in moved.tensors()] == [torch.float64, torch.int64, torch.float64]


@fault(11)
@pytest.mark.parametrize("eigenvalues", [[2.0], [0.0], [-1.0, 4.0], list(range(9))])
@pytest.mark.parametrize("num_steps", [1, 128])
def test_one_dimension_and_one_step_have_a_density(eigenvalues, num_steps):
    """Fault 11, curvlinops: a width of 2/(m - 1) divides by zero for one step."""
    spectrum = ritz.spectral_density(with_eigenvalues(eigenvalues), num_steps=num_steps, generator=seeded())
    for grid, curve in ((spectrum.grid(), spectrum.density), (spectrum.log_grid(), spectrum.log_density)):
        assert math.isfinite(spectrum.width) and spectrum.width > 0
        assert integral(curve(grid), grid) == pytest.approx(1, abs=1e-3)


# hessian-eigenthings --------------------------------------------------------------------------------------------------


@fault(12)
def test_an_unequal_last_batch_changes_nothing():
    """Fault 12, hessian-eigenthings: the mean over batches: for 32 and 1 examples the product is 185 % off."""
    built, y = classification(33, mlp(4, 5, OUTPUTS))
    parts = [(built.inputs[:32], y[:32]), (built.inputs[32:], y[32:])]
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), parts)
    H, G = dense_curvature(risk, built, y, F.cross_entropy)
    check_operator(ritz.hessian(risk), H)
    check_operator(ritz.gauss_newton(risk), G)
    risks = [ritz.Risk(built.model, nn.CrossEntropyLoss(), part) for part in parts]
    assert relative(sum(ritz.hessian(r).dense() for r in risks) / 2, H) > 0.5
    tokens = case("transformer")
    y = labels(tokens.shape)
    y[:7, 1:] = -100  # the first batch has 7 valid tokens, the second 16
    risk = ritz.Risk(tokens.model, ritz.CrossEntropy(), unequal_batches(tokens.inputs, y))
    H, _ = dense_curvature(risk, tokens, y, lambda z, y: F.cross_entropy(z.reshape(-1, OUTPUTS), y.flatten()))
    check_operator(ritz.hessian(risk), H)


@fault(13)
def test_a_search_goes_on_until_its_tolerance_or_says_so():
    """Fault 13, hessian-eigenthings: 2k steps: λ_max is 39 % off for k = 1, silently."""
    eigenvalues = torch.cat([linspace(9, 10, 20), linspace(-1, 8.9, 980)])  # hardly a gap anywhere
    A = with_eigenvalues(eigenvalues)
    for k in (1, 5):
        pairs = ritz.eigenpairs(A, k, tolerance=1e-6, generator=seeded())
        assert_close(pairs.values, eigenvalues.sort(descending=True).values[:k], rtol=1e-6, atol=0)
        assert pairs.converged.all() and pairs.num_products > 2 * k
    with pytest.warns(ConvergenceWarning, match="did not reach the tolerance"):
        early = ritz.eigenpairs(A, 1, max_products=3, generator=seeded())
    assert not early.converged.all()
    error = abs(10 - float(early.values[0]))
    assert error > 0.5 and float(early.residuals[0]) > 0.5  # far off, and its own residual says so


@fault(14)
def test_long_searches_find_thirty_different_eigenvalues():
    """Fault 14, hessian-eigenthings: beyond 50 steps nothing is reorthogonalised: λ₁ six times, all "converged"."""
    eigenvalues = torch.cat([0.8 ** torch.arange(40, dtype=torch.float64), linspace(-1e-5, 1e-5, 960)])
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-5)):
        pairs = ritz.eigenpairs(with_eigenvalues(eigenvalues, dtype), 30, tolerance=tolerance, generator=seeded())
        assert pairs.num_products > 50 and pairs.converged.all()
        assert_close(pairs.values.double(), eigenvalues[:30], atol=10 * tolerance, rtol=0)
        gram = pairs.vectors.double().T @ pairs.vectors.double()
        assert_close(gram, torch.eye(30, dtype=torch.float64), atol=1e-5, rtol=0)


@fault(15)
def test_eigenvalues_are_rayleigh_quotients():
    """Fault 15, hessian-eigenthings: with momentum, power iteration returns 8 for diag(10, 5, 1, ½), "converged"."""
    A = with_eigenvalues([10.0, 5.0, 1.0, 0.5])
    for pairs in (ritz.eigenpairs(A, 1), ritz.solvers.subspace_iteration(A, 1, 30)):
        v = pairs.vectors[:, 0]
        assert float(pairs.values[0]) == pytest.approx(float(v @ (A @ v) / (v @ v)), rel=1e-12)
        assert float(pairs.values[0]) == pytest.approx(10, rel=1e-9) and pairs.converged.all()
    early = ritz.solvers.subspace_iteration(A, 1, 2, tolerance=1e-3)
    assert not early.converged.any() and float(early.residuals[0]) >= abs(10 - float(early.values[0]))


@fault(16)
def test_products_are_derivatives_whatever_the_length_of_the_vector():
    """Fault 16, hessian-eigenthings: differences with a step that ignores ‖v‖: 12 % off, and the trace by 7σ."""
    built, y = classification(40, mlp(6, 16, 16, OUTPUTS, activation=nn.ReLU))
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))
    exact, _ = dense_curvature(risk, built, y, F.cross_entropy)
    H, signs = ritz.hessian(risk), torch.randint(2, (risk.size,), generator=seeded()).double() * 2 - 1
    for length in (1e-9, 1.0, 1e9):
        assert_close(H @ (length * signs), length * (exact @ signs), rtol=1e-9, atol=1e-12 * length)
    estimate = ritz.solvers.hutchinson(H, num_products=200, generator=seeded())
    assert abs(estimate.value - float(exact.trace())) < 4 * estimate.standard_error
    assert ritz.trace(H, generator=seeded(), num_products=risk.size).value == pytest.approx(float(exact.trace()))
    slope = torch.func.grad(lambda t: F.cross_entropy(whole(risk, built)(t), y))
    difference = (slope(risk.theta + 5e-3 * signs) - slope(risk.theta - 5e-3 * signs)) / 1e-2
    assert relative(difference, exact @ signs) > 0.01


@fault(17)
def test_gauss_newton_is_exact_and_symmetric_and_moves_no_weight():
    """Fault 17, hessian-eigenthings before 1.0.0a5: finite differences, 0.3 % off, asymmetric, weights changed."""
    model = mlp(4, 8, OUTPUTS, activation=nn.ReLU, dtype=torch.float32)
    built, y = classification(20, mlp(4, 8, OUTPUTS, activation=nn.ReLU))
    before = [(p.clone(), p._version) for p in model.parameters()]
    G = ritz.gauss_newton(ritz.Risk(model, nn.CrossEntropyLoss(), unequal_batches(built.inputs.float(), y)))
    dense = G.dense()
    assert_close(dense, dense.T, rtol=0, atol=1e-6 * float(dense.abs().max()))
    built.model.load_state_dict(model.state_dict())
    double = ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))
    assert relative(dense.double(), dense_curvature(double, built, y, F.cross_entropy)[1]) < 1e-5
    for parameter, (value, version) in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value) and parameter._version == version


@fault(18)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_refused_before_the_first_product(dtype):
    """Fault 18, hessian-eigenthings: advertised for bfloat16, whose small matrices have no eigh and no qr."""
    built, y = classification(11, mlp(4, 5, OUTPUTS))
    with pytest.raises(ModelError, match=str(dtype)):
        ritz.Risk(mlp(4, 5, OUTPUTS, dtype=dtype), nn.CrossEntropyLoss(), (built.inputs, y))
    with pytest.raises(ArgumentError, match="float32"):
        operators.Operator.from_matrix(torch.eye(300, dtype=dtype))
    diagonal = linspace(1, 4, 300).to(dtype)[:, None]  # the way out that the message names
    A = operators.Operator(lambda V: (diagonal * V.to(dtype)).float(), 300, torch.float32, torch.device("cpu"))
    assert float(ritz.eigenpairs(A, 1, tolerance=0.02).values) == pytest.approx(4, rel=0.02)
    assert ritz.spectral_density(A, num_steps=20).moment(1) == pytest.approx(2.5, rel=0.05)
    assert ritz.trace(A, tolerance=0.1, generator=seeded()).value == pytest.approx(750, rel=0.3)
    assert float(ritz.solvers.subspace_iteration(A, 2, 50, tolerance=0.1).values[0]) == pytest.approx(4, rel=0.05)


@fault(19)
def test_different_seeds_share_no_probe():
    """Fault 19, hessian-eigenthings: run r takes seed + r, so seeds 0 and 1 share all probes but one."""
    A = with_eigenvalues(with_outliers(400))

    def probes(generator):
        A.matmat.inputs.clear()
        ritz.spectral_density(A, num_steps=2, num_probes=6, generator=generator)
        return A.matmat.inputs[0].T

    continued = seeded(0)
    rows = torch.cat([probes(seeded(0)), probes(seeded(1)), probes(continued)[:0], probes(continued)])
    cosines = (rows @ rows.T - torch.eye(18, dtype=torch.float64)).abs()
    assert float(cosines.max()) < 0.5
    assert torch.equal(probes(None), probes(seeded(0)))  # as documented, and reproducible
    for function in (
        ritz.spectral_density,
        ritz.eigenpairs,
        ritz.solvers.spectral_range,
        ritz.solvers.subspace_iteration,
    ):
        assert "seed 0" in function.__doc__


@fault(20)
def test_breakdown_is_relative_and_every_step_sees_the_same_matrix():
    """Fault 20, hessian-eigenthings: a breakdown below 1e-12, never reached in float32; another batch each step."""
    for scale in (1e-9, 1.0, 1e9):
        A = with_eigenvalues(scale * torch.tensor([3.0, 2.0, -1.0] + 297 * [0.0]), torch.float32)
        T = ritz.lanczos(A, torch.randn(300, 2, generator=seeded()), 20, keep_basis=True)
        assert T.diagonal.shape[1] <= 5 and not T.residual.any()
    built, y = classification(64, mlp(40, 4, OUTPUTS))
    loader = DataLoader(Examples(built.inputs, y), batch_size=16, shuffle=True)
    expected, _ = dense_curvature(
        ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y)), built, y, F.cross_entropy
    )
    V = torch.randn(len(expected), 2, generator=seeded(), dtype=torch.float64)
    H = ritz.hessian(ritz.Risk(built.model, nn.CrossEntropyLoss(), loader))
    H @ V
    one = H.info.kept_bytes / 4
    for shuffle, memory in itertools.product((False, True), (0, 1.5 * one, 2.5 * one, 1e9)):
        loader = DataLoader(Examples(built.inputs, y), batch_size=16, shuffle=shuffle)
        try:  # data read anew for every product, some linearisations kept, or all of it held
            H = ritz.hessian(ritz.Risk(built.model, nn.CrossEntropyLoss(), loader, memory=memory))
        except DataError:  # in another order each time, what is kept of a batch would be added to another one
            assert shuffle and memory < 1e9
            continue
        for _ in range(4):
            torch.rand(1)  # the user's own random numbers, between products
            assert_close(H @ V, expected @ V)
    with pytest.raises(DataError, match="second pass"):
        dropping = DataLoader(Examples(built.inputs, y), batch_size=15, shuffle=True, drop_last=True)
        ritz.Risk(built.model, nn.CrossEntropyLoss(), dropping)


# PyHessian ------------------------------------------------------------------------------------------------------------


@fault(21)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scale_of_the_loss_is_only_a_factor(dtype):
    """Fault 21, PyHessian: v/(‖v‖ + 1e-6): for λ_max = 3.6e-7 the density ends 97 % too low."""
    unit = ritz.spectral_density(with_eigenvalues(with_outliers(400), dtype), num_steps=30, generator=seeded())
    for scale in (2.0**-40, 2.0**-28, 2.0**30):  # powers of two: another factor would round, and show other ghosts
        A = with_eigenvalues(scale * with_outliers(400), dtype)
        spectrum = ritz.spectral_density(A, num_steps=30, generator=seeded())
        assert spectrum.range[1] == pytest.approx(100 * scale, rel=1e-4)
        assert spectrum.moment(2) == pytest.approx(scale**2 * unit.moment(2), rel=1e-12)
        assert spectrum.width == pytest.approx(scale * unit.width, rel=1e-12)
        pairs = ritz.eigenpairs(A, 3, generator=seeded())
        assert_close(pairs.values.double(), scale * linspace(100, 100 / 3, 10)[:3], rtol=1e-4, atol=0)


@fault(22)
def test_the_tridiagonal_matrix_is_that_of_its_basis():
    """Fault 22, PyHessian: β is measured before the reorthogonalisation that changes it."""
    A = with_eigenvalues(torch.cat([10.0 ** -torch.arange(0, 8, dtype=torch.float64), torch.zeros(192)]))
    T = ritz.lanczos(A, torch.randn(200, 2, generator=seeded(), dtype=torch.float64), 8, keep_basis=True)
    for Q, a, b, beta in zip(T.basis, T.diagonal, T.off_diagonal, T.residual, strict=True):
        m = Q.shape[1]
        dense = torch.diag(a) + torch.diag(b, 1) + torch.diag(b, -1)
        assert_close(Q.T @ Q, torch.eye(m, dtype=torch.float64), atol=1e-13, rtol=0)
        rest = A @ Q - Q @ dense
        assert_close(rest[:, :-1], torch.zeros_like(rest[:, :-1]), atol=1e-14, rtol=0)
        assert float(rest[:, -1].norm()) == pytest.approx(float(beta), rel=1e-3, abs=1e-14)
        assert_close(Q.T @ (A @ Q), dense, atol=1e-14, rtol=0)


@fault(23)
def test_symmetric_matrices_have_real_spectra_in_float64():
    """Fault 23, PyHessian: `torch.linalg.eig` in float32 of a symmetric T: complex weights, squared as they are."""
    A = with_eigenvalues(with_outliers(300), torch.float32)
    T = ritz.lanczos(A, torch.randn(300, 3, generator=seeded()), 40, keep_basis=False)
    values, S = T.eigh()
    nodes, weights = T.quadrature()
    for tensor in (T.diagonal, T.off_diagonal, values, S, nodes, weights):
        assert tensor.dtype == torch.float64
    assert_close(S.mT @ S, torch.eye(40, dtype=torch.float64).expand(3, -1, -1), atol=1e-10, rtol=0)
    assert (weights >= 0).all()
    assert_close(weights.sum(1), torch.ones(3, dtype=torch.float64))
    called = [n.func for _, tree in parsed_sources() for n in ast.walk(tree) if isinstance(n, ast.Call)]
    last = lambda f: getattr(f, "attr", getattr(f, "id", ""))
    assert "torch.linalg.eigh" in {ast.unparse(f) for f in called if last(f) == "eigh"}
    assert not {last(f) for f in called} & {"eig", "eigvals"}


@fault(24)
def test_the_trace_stops_by_its_error_and_not_by_luck():
    """Fault 24, PyHessian: it stops where two means agree: from 2.8 to 4.5 for a trace of 3.6, without an error."""
    eigenvalues = torch.cat([linspace(0.1, 1, 4), 0.01 * torch.randn(496, generator=seeded(), dtype=torch.float64)])
    A, truth = with_eigenvalues(eigenvalues), float(eigenvalues.sum())
    runs = [ritz.trace(A, tolerance=0.05, generator=seeded(seed)) for seed in range(40)]
    assert all(run.standard_error <= 0.05 * abs(run.value) for run in runs)
    assert sum(abs(run.value - truth) <= 2 * run.standard_error for run in runs) >= 32
    assert all(abs(run.value - truth) <= 0.25 * truth for run in runs)
    with pytest.raises(ArgumentError, match="one probe"):
        _ = ritz.solvers.hutchinson(A, num_products=1, generator=seeded()).standard_error
    with pytest.warns(ConvergenceWarning, match="known only as"):
        ritz.trace(A, tolerance=1e-9, generator=seeded())


@fault(25)
def test_values_vectors_and_residuals_belong_together():
    """Fault 25, PyHessian: the eigenvalue of the iterate before, and vectors orthogonal to 2e-2 only."""
    A = with_eigenvalues(torch.cat([linspace(5, 5.5, 6), linspace(-4, 4, 500)]))
    for pairs in (ritz.eigenpairs(A, 6, tolerance=1e-2, generator=seeded()), ritz.solvers.subspace_iteration(A, 6, 4)):
        V, AV = pairs.vectors, A @ pairs.vectors
        assert_close(V.T @ V, torch.eye(6, dtype=torch.float64), atol=1e-12, rtol=0)
        assert_close(V.T @ AV, torch.diag(pairs.values), atol=1e-12, rtol=0)
        assert_close((AV - V * pairs.values).norm(dim=0), pairs.residuals, atol=1e-12, rtol=1e-6)
        assert torch.equal(pairs.converged, pairs.residuals <= (1e-2 if pairs.num_products > 24 else 1e-4) * 5.5)


@fault(26)
@pytest.mark.parametrize("memory", [None, 0])
def test_nothing_of_the_user_is_left_changed(memory):
    """Fault 26, PyHessian: `model.eval()` for good, `.grad` that holds a graph, a crash on unused parameters."""
    built = case("partly_trained")
    built.model.train()  # it has neither dropout nor batch norm, so it may be
    y = labels(built.shape)
    loader = DataLoader(Examples(built.inputs, y), batch_size=4, shuffle=memory is None)
    before, randomness = _state(built.model), torch.get_rng_state()
    with torch.no_grad():  # as in an evaluation loop
        risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), loader, memory=memory)
        gradient = risk.gradient()
        H = ritz.hessian(risk)
        pairs = ritz.eigenpairs(H, 2, generator=seeded())
        ritz.gauss_newton(risk) @ risk.theta
        ritz.spectral_density(H, num_steps=4, generator=seeded())
    assert H.info.path != "forward"  # by the fast path, not by the way out
    assert not (gradient.requires_grad or pairs.vectors.requires_grad or (H @ gradient).requires_grad)
    assert _state(built.model) == before
    assert torch.equal(torch.get_rng_state(), randomness)
    unused = torch.cat([torch.full((shape.numel(),), name.startswith("unused")) for name, shape in risk.shapes.items()])
    assert unused.any() and not H.dense()[unused].any() and not gradient[unused].any()
    assert gradient[~unused].all()


def _state(model):
    """Everything about a model that a measurement could change."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    flags = [(name, module.training) for name, module in model.named_modules()]
    return flags, [(n, t.tolist(), t._version, t.requires_grad, t.grad, t.data_ptr()) for n, t in tensors]


@fault(27)
def test_the_grid_shows_every_probe_and_the_width_follows_the_quadrature():
    """Fault 27, PyHessian: a grid up to the mean of the maxima, renormalised; a width that knows nothing of either."""
    nodes = torch.tensor([[0.0, 1.0], [0.0, 9.0]])  # one probe has seen an outlier
    spectrum = ritz.Spectrum(nodes, torch.full((2, 2), 0.5), 100, resolution=0.1)
    x = spectrum.grid(20000)
    assert float(x[-1]) > 9
    density = spectrum.density(x)
    assert integral(density, x) == pytest.approx(1, abs=1e-3)
    assert integral(density[x > 5], x[x > 5]) == pytest.approx(0.25, abs=1e-3)
    A = with_eigenvalues(linspace(-1, 1, 800))
    coarse, fine = (ritz.spectral_density(A, num_steps=m, generator=seeded()).width for m in (20, 80))
    assert coarse / fine == pytest.approx(79 / 19, rel=0.05)


# Papyan's code --------------------------------------------------------------------------------------------------------


@fault(28)
def test_the_log_spectrum_sees_magnitudes_and_has_a_floor():
    """Fault 28, Papyan: |λ + ε| for |λ| + ε, singular at λ = -ε; and ε = 0 by default, whose log is -∞."""
    values = torch.tensor([3.0, 0.5, 1e-3], dtype=torch.float64)
    plus, minus = (ritz.Spectrum.of_eigenvalues(sign * values) for sign in (1, -1))
    u = plus.log_grid(floor=1e-3)
    for width in (None, 0.2):
        there = minus.log_density(u, width=width, floor=1e-3)  # -1e-3 is minus the floor
        assert there.isfinite().all()
        assert_close(there, plus.log_density(u, width=width, floor=1e-3), rtol=1e-12, atol=1e-12)
    zeros = ritz.Spectrum.of_eigenvalues(torch.tensor([0.0, 0.0, 2.0]))
    u = zeros.log_grid(width=0.3)
    q = zeros.log_density(u, width=0.3)
    assert zeros.floor > 0 and q.isfinite().all() and integral(q, u) == pytest.approx(1, abs=1e-2)
    with pytest.raises(ArgumentError, match="floor=0"):
        zeros.log_density(u, floor=0.0)


@fault(29)
@pytest.mark.parametrize("network", ["transformer", "normalised", "no bias"])
def test_the_functional_part_needs_no_particular_last_parameter(network):
    """Fault 29, Papyan: E takes the last parameter for a bias, and zeroes whatever it is."""
    if network == "transformer":  # its outputs are tied to its embeddings and have no bias
        built = case(network)
    else:
        last = [nn.Linear(5, OUTPUTS, bias=False)] + [nn.LayerNorm(OUTPUTS)] * (network == "normalised")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), *last).double()
        built, _ = classification(11, model)
    y = labels(built.shape)
    risk = ritz.Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    H, G = dense_curvature(risk, built, y, lambda z, y: F.cross_entropy(z.reshape(-1, OUTPUTS), y.flatten()))
    E = ritz.functional_hessian(risk)
    check_operator(E, H - G)
    if network == "no bias":  # the last block of E is zero here, but its coupling to the others is not
        assert not E.dense()[-5 * OUTPUTS :, -5 * OUTPUTS :].abs().max() > 1e-12
        assert E.dense()[-5 * OUTPUTS :].abs().max() > 1e-3


@fault(30)
def test_subspace_iteration_keeps_signs_and_projects():
    """Fault 30, Papyan: column norms for eigenvalues: 5 for -5, and (3.6, 4.7, 3.9) for (5, 4, 3)."""
    A = with_eigenvalues(torch.cat([torch.tensor([-5.0, 4.0, 3.0]).double(), linspace(-0.5, 0.5, 197)]))
    pairs = ritz.solvers.subspace_iteration(A, 3, 4, generator=seeded())
    assert_close(pairs.values, torch.tensor([-5.0, 4.0, 3.0], dtype=torch.float64), rtol=3e-3, atol=0)
    gram = pairs.vectors.T @ pairs.vectors
    assert_close(gram, torch.eye(3, dtype=torch.float64), atol=1e-13, rtol=0)
    generator = seeded()
    V = torch.stack([torch.randn(200, generator=generator, dtype=torch.float64) for _ in range(3)], dim=1)
    for _ in range(4):
        Q = torch.linalg.qr(V).Q
        V = A @ Q
    assert_close(pairs.values, torch.linalg.eigvalsh(Q.T @ V)[[0, 2, 1]])
    assert relative(V.norm(dim=0), torch.tensor([5.0, 4.0, 3.0], dtype=torch.float64)) > 0.01
    found = ritz.eigenpairs(A, 3, which="magnitude", tolerance=1e-8, generator=seeded()).values
    assert_close(found, torch.tensor([-5.0, 4.0, 3.0], dtype=torch.float64))


@fault(31)
@pytest.mark.parametrize("sharpness", [1.0, 30.0, 3000.0])
def test_classes_may_be_unbalanced_and_probabilities_may_vanish(sharpness):
    """Fault 31, Papyan: class 0 counted for all, division by probabilities that underflow, `eig` and then `abs`.

    A network that is sure of every label has a curvature below the rounding of 1 - p, and it is still the right one.
    """
    model = nn.Sequential(*mlp(4, 5, OUTPUTS), _Times(sharpness))
    x = torch.randn(11, 4, generator=seeded(), dtype=torch.float64)
    built = Case(model, x, (11, OUTPUTS))
    y = model(x).argmax(-1)
    assert len(set(y.bincount(minlength=OUTPUTS).tolist())) > 1
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        risk = ritz.Risk(model.to(dtype), nn.CrossEntropyLoss(), unequal_batches(x.to(dtype), y))
        check_operator(ritz.gauss_newton(risk), softmax_curvature(risk, built), tolerance=tolerance)
        for operator in (ritz.hessian, ritz.functional_hessian, ritz.empirical_fisher):
            check_operator(operator(risk))
        assert risk.labels.tolist() == y.tolist() and risk.num_classes == OUTPUTS
        model.double()


def softmax_curvature(risk, built):
    """Σᵢ Σ_{k<m} p_k p_m (J_k - J_m)(J_k - J_m)ᵀ / N, in which nothing cancels, in float64."""
    outputs, theta = whole(risk, Case(built.model.double(), built.inputs, built.shape)), risk.theta.double()
    p, J = outputs(theta).softmax(-1), torch.func.jacfwd(outputs)(theta)
    pairs = list(itertools.combinations(range(OUTPUTS), 2))
    rows = torch.cat([(p[:, k] * p[:, m]).sqrt()[:, None] * (J[:, k] - J[:, m]) for k, m in pairs])
    return rows.T @ rows / len(p)


class _Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, z):
        return self.factor * z


@fault(32)
def test_no_default_argument_can_be_changed():
    """Fault 32, Papyan: `vecs=[]`, `vals=[]`, shared by all calls."""
    assert mutable_defaults(ast.parse("def f(vecs=[], *, vals={}, ok=()): pass\ng = lambda a=list(): a")) == 3
    for parts, tree in parsed_sources():
        assert not mutable_defaults(tree), parts


def mutable_defaults(tree):
    """How many defaults of functions are lists, dicts, sets, comprehensions or calls that make one."""
    containers = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    makers = {"list", "dict", "set", "defaultdict", "OrderedDict", "Counter", "deque", "bytearray"}
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))]
    defaults = [d for f in functions for d in (*f.args.defaults, *f.args.kw_defaults) if d is not None]
    made = [d for d in defaults if isinstance(d, ast.Call) and ast.unparse(d.func).split(".")[-1] in makers]
    return len(made) + sum(isinstance(d, containers) for d in defaults)


# Others ---------------------------------------------------------------------------------------------------------------


@fault(33)
def test_the_hessian_is_taken_at_the_weights_and_of_the_loss():
    """Fault 33, HessFormer: the Hessian at θ = v of the mean logit: the same for all weights, and not linear."""
    built, y = classification(11, mlp(4, 5, OUTPUTS))
    risk = ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))
    assert risk.loss_value() == pytest.approx(F.cross_entropy(built.model(built.inputs), y).item(), rel=1e-12)
    before = ritz.hessian(risk).dense()
    check_operator(ritz.hessian(risk), dense_curvature(risk, built, y, F.cross_entropy)[0])  # linearity included
    with torch.no_grad():
        for parameter in built.model.parameters():
            parameter.mul_(0.5)
    assert_close(ritz.hessian(risk).dense(), before, rtol=1e-12, atol=1e-14)  # a risk stays where it was taken
    moved = ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))
    assert relative(ritz.hessian(moved).dense(), before) > 0.1
    check_operator(ritz.hessian(moved), dense_curvature(moved, built, y, F.cross_entropy)[0])


@fault(34)
def test_the_number_of_batches_is_no_factor():
    """Fault 34, hessian-spectrum, loss-landscape, nngeometry: batches are summed, so eigenvalues grow with them."""
    built, y = classification(12, mlp(4, 5, OUTPUTS))
    whole_batch = ritz.Risk(built.model, nn.CrossEntropyLoss(), (built.inputs, y))
    singles = ritz.Risk(
        built.model, nn.CrossEntropyLoss(), [(built.inputs[i : i + 1], y[i : i + 1]) for i in range(12)]
    )
    repeated = ritz.Risk(built.model, nn.CrossEntropyLoss(), 3 * [(built.inputs, y)])
    expected = dense_curvature(whole_batch, built, y, F.cross_entropy)[0]
    for risk in (whole_batch, singles, repeated):
        check_operator(ritz.hessian(risk), expected)
        assert risk.loss_value() == pytest.approx(whole_batch.loss_value(), rel=1e-12)
        assert_close(risk.gradient(), whole_batch.gradient())


@fault(35)
def test_a_sum_is_a_sum_and_a_mean_a_mean():
    """Fault 35, spectral-density: wants a summed loss and divides it by the number of batches; all in float32."""
    built, y = classification(11, mlp(4, 5, OUTPUTS))
    batches = unequal_batches(built.inputs, y)
    summed = ritz.Risk(built.model, nn.CrossEntropyLoss(reduction="sum"), batches)
    mean = ritz.Risk(built.model, nn.CrossEntropyLoss(), batches)
    H = dense_curvature(summed, built, y, nn.CrossEntropyLoss(reduction="sum"))[0]
    check_operator(ritz.hessian(summed), H)
    check_operator(ritz.hessian(mean), H / 11)
    assert summed.loss_value() == pytest.approx(11 * mean.loss_value(), rel=1e-12)
    A = with_eigenvalues(with_outliers(200), torch.float32)
    spectrum = ritz.spectral_density(A, num_steps=10)
    assert spectrum.nodes.dtype == spectrum.weights.dtype == spectrum.density(spectrum.grid()).dtype == torch.float64


@fault(36)
def test_the_recursion_without_basis_has_its_three_terms():
    """Fault 36, laplax: without reorthogonalisation -β v is missing; most of the returned pairs have not converged."""
    A = with_eigenvalues(with_outliers(500))
    start = torch.randn(500, 2, generator=seeded(), dtype=torch.float64)
    kept, three_term = (ritz.lanczos(A, start, 12, keep_basis=basis) for basis in (True, False))
    for name in ("diagonal", "off_diagonal", "residual"):
        assert_close(getattr(three_term, name), getattr(kept, name), rtol=1e-6, atol=1e-8)
    nodes, weights = three_term.quadrature()  # a Gauss rule: exact moments vᵀAᵈv of degree below 2m
    v = start / start.norm(dim=0)
    exact, power = [], v
    for degree in range(12):
        exact.append((v * power).sum(0))
        assert_close((weights * nodes**degree).sum(1), exact[-1], rtol=1e-9, atol=0)
        power = A @ power
    pairs = ritz.eigenpairs(A, 10, tolerance=1e-8, generator=seeded())
    assert len(pairs) == 10 and pairs.converged.all()
    assert float((A @ pairs.vectors - pairs.vectors * pairs.values).norm(dim=0).max()) <= 1e-6


@fault(37)
def test_ranges_take_every_probe_and_ends_and_small_eigenvalues_are_what_they_are():
    """Fault 37, GradVis: the range of the last file; EoS: large negative "leading" values; CoLA: small ones zeroed."""
    rows = torch.tensor([[-7.0, 1.0], [0.0, 9.0], [0.5, 2.0]])
    spectrum = ritz.Spectrum(rows, torch.full((3, 2), 0.5), 50, resolution=0.1)
    assert spectrum.range == (-7.0, 9.0)
    assert float(spectrum.grid()[0]) < -7 and float(spectrum.grid()[-1]) > 9
    A = with_eigenvalues(torch.cat([linspace(-20, -15, 5), linspace(-1, 1, 300), linspace(8, 10, 3)]))
    ends = {which: ritz.eigenpairs(A, 2, which=which, tolerance=1e-8).values for which in ("largest", "smallest")}
    assert_close(ends["largest"], torch.tensor([10.0, 9.0], dtype=torch.float64))
    assert_close(ends["smallest"], torch.tensor([-20.0, -18.75], dtype=torch.float64))
    assert inspect.signature(ritz.eigenpairs).parameters["which"].default == "largest"
    small = 10.0 ** -torch.arange(0, 9, dtype=torch.float64)
    spectrum = ritz.spectral_density(with_eigenvalues(small), generator=seeded())
    assert_close(spectrum.nodes[0], small.flip(0), rtol=1e-6, atol=0)
    assert spectrum.zero_mass(1e-10) == 0.0
    estimate = ritz.log_determinant(with_eigenvalues(small.repeat(40)), num_probes=30, generator=seeded())
    assert abs(estimate.value - 40 * float(small.log().sum())) < 4 * estimate.standard_error


# Found while this library was tested ----------------------------------------------------------------------------------


@fault(38)
def test_layer_norm_has_the_hessian_of_its_gradient():
    """Fault 38, `torch.func.hessian` and curvlinops: forward over `jacrev` of a layer norm is wrong in PyTorch 2.13.

    On this network `torch.func.hessian`, and the jvp of `jacrev` that curvlinops' HessianLinearOperator takes, are off
    by 0.2 where the largest entry is 1.5. Right are jacfwd(grad), jacrev(grad), `torch.autograd.functional.hessian` -
    and central differences of the gradient, which know nothing of second derivatives.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, OUTPUTS)]
        model = nn.Sequential(*layers).double()
    built, y = classification(9, model)
    data = unequal_batches(built.inputs, y)
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), data)
    differences = central_differences(risk)
    function = lambda t: F.cross_entropy(whole(risk, built)(t), y)
    assert_close(differences, torch.func.jacfwd(torch.func.grad(function))(risk.theta), rtol=0, atol=1e-7)
    for path in PATHS:
        H = ritz.hessian(ritz.Risk(model, nn.CrossEntropyLoss(), data, path=path.name))
        assert_close(H.dense(), differences, rtol=0, atol=1e-7)
    assert_close(ritz.hessian(risk).dense(), differences, rtol=0, atol=1e-7)


def central_differences(risk, step=1e-5):
    """Columns (∇R(θ + h eᵢ) - ∇R(θ - h eᵢ)) / 2h, from the risk at shifted weights."""
    shifts = step * torch.eye(risk.size, dtype=risk.dtype)
    gradient = lambda theta: risk.at(theta).gradient()
    columns = [(gradient(risk.theta + shift) - gradient(risk.theta - shift)) / (2 * step) for shift in shifts]
    return torch.stack(columns, dim=1)


def test_every_fault_has_one_test_in_the_order_of_the_list():
    assert list(FAULTS) == list(range(1, 39))
    for number, test in FAULTS.items():
        assert test.__name__.startswith("test_") and globals()[test.__name__] is test
        assert test.__doc__.startswith(f"Fault {number}, ")
    with pytest.raises(AssertionError, match="has a test already"):
        fault(12)(print)
