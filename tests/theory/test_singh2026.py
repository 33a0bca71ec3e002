"""Closed forms of Singh et al. (2026) against dense autograd: draws of any size and scale, degenerate cases by name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz import theory
from ritz.checks import deviation, singh2026, singh2026_attention
from ritz.checks.draws import normal
from ritz.checks.oracles import dense_hessian
from ritz.errors import ArgumentError, RitzError
from ritz.operators import Operator, gauss_newton, hessian
from ritz.risk import Risk
from ritz.risk.losses import SquaredError
from ritz.spectrum import Spectrum
from tests.draws import patient
from tests.seeds import real, seeded

CHECKS = {check.result: check for check in singh2026.CHECKS + singh2026_attention.CHECKS}
seeds = st.integers(0, 2**32 - 1)
small = st.integers(-2, 2).map(float)


def vectors(size):
    return st.lists(small, min_size=size, max_size=size).map(lambda numbers: real(*numbers))


@st.composite
def small_regressions(draw):
    """v, w, x, y of small integers: parallel, equal, opposite and zero weights turn up by themselves."""
    m, N = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return tuple(draw(vectors(size)) for size in (m, m, N, N))


def test_a_nearly_sure_softmax_has_a_symmetric_oracle():
    """Second derivatives in two orders differ there by 1e-12 of the largest entry, which is refused as asymmetry."""
    check = CHECKS["self-attention, batches"]
    assert deviation(check, check.draw(seeded(88))).small


@pytest.mark.parametrize("result", ["linear network", "ReLU network", "leaky ReLU network", "linear network, G"])
@patient
@given(inputs=small_regressions())
def test_small_whole_numbers_hit_every_degeneracy(result, inputs):
    assert deviation(CHECKS[result], inputs).small


def test_a_million_units_and_samples_never_form_a_matrix():
    v, w, x, y = (normal(seeded(), 10**6) for _ in range(4))
    found = theory.linear_network(v, w, x, y)
    assert found.size == 2 * 10**6
    z = found.eigenvectors("bulk -", 2)
    assert_close(z.T @ z, torch.eye(2, dtype=torch.float64))


def test_the_small_outlier_keeps_its_digits():
    # exact: λ₂ = -δ(δ + 2σ²c)/λ₁; eq (1) gives -2.91e-11
    v, w, x, y = real(3.0, 1e3), real(1e3, -3.0 + 1e-9), real(1.0), real(0.0)
    c = float(w @ v)
    found = theory.product_network(v, w, lambda c: 0.5 * c**2)
    total = float(w @ w + v @ v)
    assert_close(found["outlier 2"].value, -3 * c**2 / total, rtol=1e-6, atol=0.0)
    assert theory.linear_network(v, w, x, y)["outlier 2"].value == found["outlier 2"].value


def test_the_small_outlier_of_tiny_weights_is_not_zero():
    v, w = 1e-100 * real(1.0, 2.0), -1e-100 * real(1.0, 2.0)
    found = theory.product_network(v, w, torch.square)  # F' = 2c and F'' = 2: lines ±2c, -2c + 2‖v‖² and 2c + 0
    assert_close(found.eigenvalues(), 1e-200 * real(-10.0, -10.0, 10.0, 30.0), rtol=1e-12, atol=0.0)


@patient
@given(seeds)
def test_sharpness_terms_add_up_to_the_outliers(seed):
    inputs = CHECKS["linear network"].draw(seeded(seed))
    found, terms = theory.linear_network(*inputs), theory.sharpness_terms(*inputs)
    lines = [found["outlier 1"].value, found["outlier 2"].value]
    assert_close(real(*terms.outliers), real(*lines), rtol=0.0, atol=1e-10 * found.scale)
    assert min(terms.imbalance, terms.non_collinearity, terms.deviation, terms.norm) >= 0


def test_sharpness_terms_say_what_they_mean():
    terms = theory.sharpness_terms(real(1.0, 2.0), real(2.0, 4.0), real(1.0), real(20.0))
    assert terms.non_collinearity == 0.0 and terms.deviation == 0.0
    assert terms.outliers == (20.0, 5.0)
    assert "different directions" in repr(terms)


@patient
@given(seeds)
def test_the_late_phase_is_where_the_small_outlier_is_not_negative(seed):
    v, w, x, y = CHECKS["linear network"].draw(seeded(seed))
    small_outlier = theory.linear_network(v, w, x, y)["outlier 2"].value
    assert (theory.phase(v, w, x, y) == "late") == (small_outlier >= 0)


@pytest.mark.parametrize("target", [2.0, -2.0])
def test_phases_for_either_sign_of_the_target(target):
    x = real(1.0, -1.0)
    slopes = {0.1: "early", -3.0: "early", 0.5: "late", 1.0: "late", 1.1: "divergent", 1 / 3: "late"}
    for ratio, expected in slopes.items():
        assert theory.phase(real(ratio * target), real(1.0), x, target * x) == expected


def test_a_zero_target_has_no_late_phase_but_the_solution():
    x = real(1.0, -1.0)
    assert theory.phase(real(0.3), real(1.0), x, 0 * x) == "divergent"
    assert theory.phase(real(0.0), real(1.0), x, 0 * x) == "late"
    with pytest.raises(ArgumentError, match="zero"):
        theory.phase(real(1.0), real(1.0), 0 * x, x)


@patient
@given(seeds)
def test_outliers_and_bulk_interlace(seed):
    inputs = CHECKS["linear network"].draw(seeded(seed))
    found = theory.linear_network(*inputs)
    delta, margin = _residual_covariance(*inputs), 1e-12 * found.scale
    first, second = found["outlier 1"].value, found["outlier 2"].value
    assert -abs(delta) - margin <= second <= abs(delta) + margin <= first + 2 * margin


def _residual_covariance(v, w, x, y):
    return float((((w @ v) * x - y) * x).mean())


@pytest.mark.parametrize("momentum, decay", [(0.0, 0.0), (0.9, 0.0), (0.5, 0.1)])
def test_the_bulk_is_invariant_under_descent(momentum, decay):
    v, w, x, y = (normal(seeded(1), size) for size in (6, 6, 9, 9))
    v = v + 0.1 * w
    plus, minus = theory.invariant_bulk(v, w)
    velocity = [0 * v, 0 * w]
    for _ in range(50):
        delta = _residual_covariance(v, w, x, y)
        velocity = [momentum * u - 0.02 * g for u, g in zip(velocity, (delta * w + decay * v, delta * v + decay * w))]
        v, w = v + velocity[0], w + velocity[1]
        theta, delta = torch.cat([v, w]), _residual_covariance(v, w, x, y)
        H = dense_hessian(lambda v, w: 0.5 * ((w @ v) * x - y).square().mean(), v, w)
        assert_close(H @ plus, delta * plus, atol=1e-12, rtol=0.0)
        assert_close(H @ minus, -delta * minus, atol=1e-12, rtol=0.0)
        assert (torch.cat([plus, minus], 1).T @ theta).abs().max() <= 1e-12
    assert plus.shape == minus.shape == (12, 5)


def test_the_bulk_turns_under_adam():
    v, w, x, y = (normal(seeded(1), size) for size in (6, 6, 9, 9))
    bulk = torch.cat(theory.invariant_bulk(v, w), 1)
    theta = torch.nn.Parameter(torch.cat([v, w]))
    optimiser = torch.optim.Adam([theta], lr=0.05)
    for _ in range(10):
        optimiser.zero_grad()
        (0.5 * ((theta[6:] @ theta[:6]) * x - y).square().mean()).backward()
        optimiser.step()
    assert (bulk.T @ theta.detach()).norm() > 0.1


def test_equal_or_opposite_layers_leave_one_more_invariant_direction():
    w = real(1.0, 2.0, 2.0)
    assert [space.shape[1] for space in theory.invariant_bulk(w, w)] == [2, 3]
    assert [space.shape[1] for space in theory.invariant_bulk(w, -w)] == [3, 2]


def test_weight_decay_shifts_every_line():
    v, w, x, y = CHECKS["linear network"].degenerate(seeded())["negative residual"]
    H = dense_hessian(lambda v, w: 0.5 * ((w @ v) * x - y).square().mean() + 0.15 * (v @ v + w @ w), v, w)
    assert theory.compare(theory.shifted(theory.linear_network(v, w, x, y), 0.3), H).value <= 1e-14


@patient
@given(seeds)
def test_the_pair_sums_to_a_fraction_of_the_trace(seed):
    V, w, X, y = singh2026.outlier_pairs(seeded(seed))
    found, D = theory.paired_outliers(V, w, X, y), V.shape[1]
    share = float(found.eigenvalues().sum()) / D
    assert_close(found["pair 1"].value + found["pair 2"].value, share, rtol=1e-9, atol=1e-9 * found.scale)
    if D > 1:
        triple = sum(found[f"triple {i}"].value for i in (1, 2, 3))
        assert_close(triple, share, rtol=1e-9, atol=1e-9 * found.scale)


def test_what_is_rounding_beside_the_largest_line_breaks_no_assumption():
    V, w, X = torch.zeros(3, 2, dtype=torch.float64), 10 * torch.ones(3).double(), real(1.0, 1.0, 1.0, -1.0).view(2, 2)
    assert theory.paired_outliers(V, w, X, 1e-11 * X.sum(1)).size == 9  # E[yx] is 1e-11, the largest line 300
    with pytest.raises(ArgumentError, match="parallel"):
        theory.paired_outliers(V, w, X, 1e-8 * X.sum(1))


def test_the_bias_network_names_its_lines_where_the_theorem_holds():
    v, b, w, x, y = singh2026.theorem_b1_inputs(seeded(5))
    named = theory.bias_network(v, b, w, x, y)
    m = len(w)
    assert {group.name: group.multiplicity for group in named.groups} == {
        "pair 1": 1, "pair 2": 1, "triple 1": 1, "triple 2": 1, "triple 3": 1, "bulk +": m - 2, "bulk -": m - 2,
        "zero": m - 1,
    }  # fmt: skip
    general = theory.bias_network(1.1 * v, b, w, x, y)
    assert "pair 1" not in {group.name for group in general.groups}


@pytest.mark.parametrize("gauss_newton", [True, False])
def test_gauss_newton_of_the_other_networks(gauss_newton):
    V, W, X, y = (normal(seeded(), *shape) for shape in ((3, 4), (3, 4), (8, 3), (8,)))
    solved = X @ (W * V).sum(1)  # where nothing is left to fit, G = H
    for function, inputs, target in [
        (theory.multi_input_network, (V, W, X), (y, solved)),
        (theory.diagonal_network, (V[:, 0], W[:, 0], X), (y, X @ (W * V)[:, 0])),
        (theory.multi_output_network, (V, W, y), (X, torch.outer(y, (W * V).sum(1)))),
        (theory.bias_network, (V[0], W[1], W[0], y), (X[:, 0], (W[0] @ V[0]) * y + W[0] @ W[1])),
    ]:
        G = function(*inputs, target[0], gauss_newton=True).eigenvalues()
        assert_close(G, function(*inputs, target[1], gauss_newton=gauss_newton).eigenvalues(), atol=1e-12, rtol=0.0)


def test_closed_forms_measure_and_print():
    v, w, x, y = (normal(seeded(seed), size) for seed, size in enumerate((4, 4, 5, 5)))
    found = theory.linear_network(v, w, x, y)
    H = CHECKS["linear network"].oracle(v, w, x, y)
    assert found.spectrum().wasserstein(Spectrum.of_matrix(H)) <= 1e-14
    assert theory.compare(found, Spectrum.of_matrix(H)).residual is None
    assert theory.compare(found, Operator.from_matrix(H)).residual <= 1e-14
    assert "bulk +" in repr(found) and "× 3" in repr(found)
    assert "outlier 2" in repr(theory.compare(found, H))
    assert [group.name for group in found.groups] == ["bulk +", "bulk -", "outlier 1", "outlier 2"]


class Perceptron(torch.nn.Module):
    """f(x) = ⟨w, relu(v x)⟩, its parameters in the order of the closed form."""

    def __init__(self, v, w):
        super().__init__()
        self.v, self.w = torch.nn.Parameter(v), torch.nn.Parameter(w)

    def forward(self, x):
        return torch.relu(x * self.v) @ self.w[:, None]


def test_theory_meets_what_is_measured():
    v, w, x, y = (normal(seeded(seed), size) for seed, size in enumerate((8, 8, 9, 9)))
    batches = [(x[:4, None], y[:4, None]), (x[4:, None], y[4:, None])]
    risk = Risk(Perceptron(v, w), SquaredError(), batches)
    assert theory.compare(theory.relu_network(v, w, x, y), hessian(risk)).residual <= 1e-13
    assert theory.compare(theory.relu_network(v, w, x, y, gauss_newton=True), gauss_newton(risk)).residual <= 1e-13


NINE, FOUR = normal(seeded(), 9), normal(seeded(1), 4)
WRONG = {
    "unequal layers": lambda: theory.linear_network(FOUR, NINE, NINE, NINE),
    "unequal data": lambda: theory.relu_network(FOUR, FOUR, NINE, FOUR),
    "a matrix for a vector": lambda: theory.linear_network(FOUR[None], FOUR, NINE, NINE),
    "not finite": lambda: theory.linear_network(FOUR / 0, FOUR, NINE, NINE),
    "empty": lambda: theory.linear_network(FOUR[:0], FOUR[:0], NINE, NINE),
    "unequal rows": lambda: theory.multi_input_network(FOUR[None], FOUR[:2, None], NINE[:, None], NINE),
    "too few inputs": lambda: theory.multi_input_network(FOUR[:, None], FOUR[:, None], NINE[:, None], NINE),
    "unwhitened": lambda: theory.paired_outliers(torch.eye(4)[:, :2].double(), FOUR, NINE[:8].reshape(4, 2), FOUR),
    "narrow": lambda: theory.paired_outliers(FOUR[None, :2], FOUR[:1], NINE[:8].reshape(4, 2), FOUR),
    "no sequence": lambda: theory.self_attention(1.0, FOUR, FOUR, [], []),
    "unequal sequences": lambda: theory.self_attention(1.0, FOUR, FOUR, NINE, FOUR),
    "a mask that hides all": lambda: theory.self_attention(1.0, FOUR, FOUR, NINE, NINE, mask=torch.zeros(9, 9)),
    "a bias of another length": lambda: theory.self_attention(1.0, FOUR, FOUR, NINE, NINE, scores_bias=FOUR),
    "an attention matrix of another length": lambda: theory.attention_moments(torch.eye(4), NINE),
    "an estimated spectrum": lambda: theory.compare(
        theory.linear_network(FOUR, FOUR, NINE, NINE), Spectrum(FOUR[None], torch.full((1, 4), 0.25), 8, resolution=0.1)
    ),
    "another size": lambda: theory.compare(theory.linear_network(FOUR, FOUR, NINE, NINE), torch.eye(3)),
    "an unknown line": lambda: theory.linear_network(FOUR, FOUR, NINE, NINE).eigenvectors("outlier 3"),
    "too many eigenvectors": lambda: theory.linear_network(FOUR, FOUR, NINE, NINE).eigenvectors("outlier 1", 2),
    "a line named twice": lambda: theory.ClosedForm([theory.Group("a", 1.0), theory.Group("a", 2.0)]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused_in_three_parts(wrong):
    with pytest.raises(ArgumentError) as caught:
        wrong()
    assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_a_closed_form_without_weights_says_why_it_has_no_eigenvectors():
    found = theory.ClosedForm([theory.Group("bulk", 1.0, 3)])
    with pytest.raises(RitzError, match="weights") as caught:
        found.eigenvectors("bulk")
    assert isinstance(caught.value, theory.NoEigenvectorsError)


@pytest.mark.parametrize("rank", ["nothing", "first layer"])
def test_weights_that_are_zero_leave_the_bulk_alone(rank):
    W1 = torch.zeros(3, 2, dtype=torch.float64)
    W2 = torch.zeros(2, 3, dtype=torch.float64) if rank == "nothing" else torch.eye(2, 3, dtype=torch.float64)
    M = torch.arange(1.0, 5.0, dtype=torch.float64).view(2, 2)
    form = theory.linear_pair(W1, W2, lambda product: (M * product).sum() + product.square().sum())
    H = dense_hessian(lambda A, B: (M * (B @ A)).sum() + (B @ A).square().sum(), W1, W2)
    assert_close(form.eigenvalues(), torch.linalg.eigvalsh(H), atol=1e-12, rtol=0)
    assert theory.relu_pair(W1, 0 * W2, torch.ones(4, 2), lambda f: (f + f.square()).sum()).size == 12
