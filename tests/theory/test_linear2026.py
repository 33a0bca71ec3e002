"""Linear networks against dense autograd: draws of any size and scale, degenerate cases by name, errata."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from torch.func import grad
from torch.testing import assert_close

from ritz import theory
from ritz.checks import deviation, linear2026, linear2026_aligned
from ritz.checks.draws import normal
from ritz.checks.oracles import dense_gauss_newton, dense_hessian, squared_error
from ritz.errors import ArgumentError, RitzError
from ritz.lab import data as lab_data
from ritz.lab import init as lab_init
from ritz.lab.training import HALVING, linear_descent
from tests.draws import patient
from tests.seeds import real, seeded
from tests.shapes import unchecked

CHECKS = {check.result: check for check in (*linear2026.CHECKS, *linear2026_aligned.CHECKS)}
seeds = st.integers(0, 2**32 - 1)
small = st.integers(-2, 2).map(float)


def network(weights, X):
    for W in weights:
        X = X @ W.T
    return X


def hessian(weights, X, Y):
    return dense_hessian(lambda *Ws: squared_error(network(Ws, X), Y), *weights)


def gauss_newton(weights, X):
    return dense_gauss_newton(lambda *Ws: network(Ws, X), *weights)


def matrices(rows, columns):
    entries = st.lists(small, min_size=rows * columns, max_size=rows * columns)
    return entries.map(lambda numbers: real(*numbers).view(rows, columns))


@st.composite
def small_regressions(draw):
    """W₁, W₂, X, Y of small integers: equal, zero and dependent rows, kinks, zero residuals turn up by themselves."""
    m, D, K, N = (draw(st.integers(1, top)) for top in (6, 2, 2, 3))
    return tuple(draw(matrices(*shape)) for shape in ((m, D), (K, m), (N, D), (N, K)))


@st.composite
def diagonal_networks(draw):
    """Aligned layers of small integers in coordinate axes: every pattern of equal and zero factors."""
    widths = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    weights = [torch.eye(b, a).double() * draw(matrices(1, a)) for a, b in pairwise(widths)]
    X = 2.0 * torch.eye(widths[0]).double()
    return weights, X, X @ (torch.eye(widths[-1], widths[0]).double() * draw(matrices(1, widths[0]))).T


@pytest.mark.parametrize("result", ["two layers", "two layers, G", "two layers, ReLU", "two layers, leaky ReLU"])
@patient
@given(inputs=small_regressions())
def test_small_whole_numbers_hit_every_degeneracy(result, inputs):
    with unchecked():
        assert deviation(CHECKS[result], inputs).small


@patient
@given(inputs=diagonal_networks())
def test_aligned_networks_of_whole_numbers_hit_every_degeneracy(inputs):
    with unchecked():
        assert deviation(CHECKS["aligned layers"], inputs).small


@pytest.mark.parametrize("widths", [(1, 1, 1, 3, 3), (1, 3, 1, 2, 3), (2, 1, 1, 2, 2), (2, 2, 3, 3)])
@pytest.mark.parametrize("gauss_newton", [False, True])
def test_layers_that_share_no_directions_are_refused_however_narrow(widths, gauss_newton):
    """One column decomposes whatever follows it, into vectors that are not orthogonal."""
    weights = [normal(seeded(i), b, a) for i, (a, b) in enumerate(pairwise(widths))]
    X = theory.whitened(normal(seeded(8), 7, widths[0]))
    with pytest.raises(ArgumentError, match="share no singular vectors"):
        theory.aligned_linear(weights, X, normal(seeded(9), 7, widths[-1]), gauss_newton=gauss_newton)


def test_layers_of_rank_one_that_share_no_directions_are_refused():
    """More directions arrive at the inputs than there are inputs."""
    draw = seeded()
    weights = [torch.outer(normal(draw, 3), normal(draw, 3)) for _ in range(3)]
    X = theory.whitened(normal(draw, 5, 3))
    with pytest.raises(ArgumentError, match="share no singular vectors"):
        theory.aligned_linear(weights, X, normal(draw, 5, 3))


def test_balanced_networks_are_known_from_the_start_of_training_to_convergence():
    X = theory.whitened(normal(seeded(), 20, 4))
    Y = normal(seeded(1), 20, 5)  # more outputs than the hidden layer passes
    M = Y.T @ X / len(X)
    U, S, Vt = torch.linalg.svd(M, full_matrices=False)
    goal = theory.balanced_weights((U[:, :3] * S[:3]) @ Vt[:3], [3, 6])
    Y = Y - (U[:, 3:] * S[3:] @ Vt[3:] @ X.T).T  # what no such network can fit is not asked of it
    for share in 10.0 ** -torch.arange(0, 17, 0.5, dtype=torch.float64):  # of the residual that is left
        weights = [(1 - share) ** (1 / 3) * W for W in goal]
        form, H = theory.aligned_linear(weights, X, Y), hessian(weights, X, Y)
        assert_close(form.eigenvalues(), torch.linalg.eigvalsh(H), atol=1e-10 * form.scale, rtol=0)


def test_the_vectors_of_the_kernel_have_an_index_set_as_large_as_inputs_and_outputs():
    W1, W2 = normal(seeded(), 2, 4), normal(seeded(1), 3, 2)  # a hidden layer narrower than both
    X = theory.whitened(normal(seeded(2), 9, 4), 1.5)
    form = theory.tangent_kernel([W1, W2], X)
    s1, s2 = (torch.cat([torch.linalg.svdvals(W), real(0, 0)]) for W in (W1, W2))
    assert form["q 4, 3"].value == approx(0, abs=1e-12) and form["q 1, 3"].value == approx(1.5**2 * float(s1[0] ** 2))
    assert form["q 3, 1"].value == approx(1.5**2 * float(s2[0] ** 2))  # printed: i ≤ 2, j ≤ 2
    J = torch.func.jacrev(lambda A, B: network([A, B], X), argnums=(0, 1))(W1, W2)
    kernel = sum(torch.einsum("nkab,mlab->nkml", part, part).reshape(27, 27) for part in J) / 9
    q = torch.kron(X @ torch.linalg.svd(W1).Vh[0] / 3, torch.linalg.svd(W2).U[:, 1])  # (16), as printed
    assert_close(kernel @ q, 1.5**2 * (s1[0] ** 2 + s2[1] ** 2) * q)
    with pytest.raises(ArgumentError, match="balanced"):
        theory.tangent_kernel([normal(seeded(), 4, 4)] * 2 + [normal(seeded(3), 4, 4)], X)


def test_a_hidden_width_of_a_hundred_thousand_never_forms_a_matrix():
    inputs = [normal(seeded(), *shape) for shape in ((100_000, 10), (10, 100_000), (1000, 10), (1000, 10))]
    form = theory.two_layer_linear(*inputs)
    assert form.size == 2_000_000 and form["bulk + 1"].multiplicity == 100_000 - 20
    assert form.spectrum().moment(1) * form.size == approx(float(theory.linear_trace(inputs[:2], inputs[2])), rel=1e-9)
    z = form.eigenvectors("bulk + 1", 1)[:, 0]
    assert float(z.norm()) == approx(1)


def test_one_input_and_one_output_give_the_scalar_theorem():
    w, v, x, y = (normal(seeded(), size) for size in (7, 7, 9, 9))
    scalar = theory.linear_network(v, w, x, y).eigenvalues()
    assert_close(theory.two_layer_linear(v[:, None], w[None], x[:, None], y[:, None]).eigenvalues(), scalar)
    relu = theory.relu_network(v, w, x, y).eigenvalues()
    assert_close(theory.two_layer_relu(v[:, None], w[None], x[:, None], y[:, None]).eigenvalues(), relu)


def test_the_compressed_network_keeps_each_bulk_line_once_more():
    """(h bᵢᵀ, ±aᵢhᵀ) with W₂h = t aᵢ, W₁ᵀh = ∓t bᵢ is an eigenvector too: m - r + 1 in all, m - 1 at D = K = 1."""
    inputs = [normal(seeded(), *shape) for shape in ((12, 2), (3, 12), (9, 2), (9, 3))]
    form = theory.two_layer_linear(*inputs)
    outliers = torch.tensor([g.value for g in form.groups if g.name.startswith("outlier")], dtype=torch.float64)
    for line in ("bulk + 1", "bulk + 2", "bulk - 1", "bulk - 2"):
        assert int(((outliers - form[line].value).abs() < 1e-12 * form.scale).sum()) == 1


def test_a_bias_is_an_input_of_one():
    W1, b, W2, X, Y = (normal(seeded(), *shape) for shape in ((6, 2), (6, 1), (3, 6), (9, 2), (9, 3)))
    whole = torch.cat([W1, b], 1)
    H = dense_hessian(lambda A, B: squared_error((X @ A[:, :2].T + A[:, 2]) @ B.T, Y), whole, W2)
    form = theory.two_layer_linear(whole, W2, torch.cat([X, torch.ones(9, 1).double()], 1), Y)
    assert theory.compare(form, H).value < 1e-13


@patient
@given(seeds)
def test_bounds_hold_at_any_loss(seed):
    weights, X, Y = linear2026.regression(seeded(seed))
    H, G = hessian(weights, X, Y), gauss_newton(weights, X)
    top = float(torch.linalg.eigvalsh(H)[-1])
    assert top >= theory.sharpness_bound(weights, X) * (1 - 1e-9)
    assert float(torch.linalg.eigvalsh(G)[-1]) <= theory.spectral_norm_bound(weights, X) * (1 + 1e-9)
    scale = float(H.diagonal().abs().sum())
    assert float(H.trace()) == approx(float(theory.linear_trace(weights, X)), abs=1e-10 * scale)


def test_eq_6_is_an_equality_for_two_layers_and_for_balanced_ones():
    W1, W2, X = linear2026.shallow(seeded(3))
    top = theory.shallow_linear(W1, W2, theory.input_scale(X)).scale
    assert float(theory.spectral_norm_bound([W1, W2], X)) == approx(top, rel=1e-12)
    sigma, widths, sigma_x, weights, X = linear2026.balanced(seeded(1), (4, 3, 5, 4))
    assert float(theory.spectral_norm_bound(weights, X)) == approx(theory.balanced_linear(sigma, widths, sigma_x).scale)


def test_strongly_balanced_lines_have_the_closed_form_of_their_blocks():
    """i = i: σ²Ls^(2(L-1)) + (L-1)ρs^(L-2) once, -ρs^(L-2) L-1 times; i < j, L = 2: a square root."""
    s, t, rho, tau, x2, L = 1.3, 0.7, 0.4, -0.9, 1.5**2, 4
    one = theory.balanced_linear(real(s), (1,) * (L + 1), 1.5, residuals=real(rho)).eigenvalues()
    assert_close(one[-1], real(x2 * L * s ** (2 * L - 2) + (L - 1) * rho * s ** (L - 2))[0])
    assert_close(one[:-1], real(-rho * s ** (L - 2)).expand(L - 1))
    two = theory.balanced_linear(real(s, t), (2, 2, 2), 1.5, residuals=real(rho, tau)).eigenvalues()
    expected = [2 * x2 * s**2 + rho, -rho, 2 * x2 * t**2 + tau, -tau]
    for sign in (1, -1):
        root = ((x2 * (t**2 - s**2) + sign * (rho - tau)) ** 2 + 4 * x2**2 * s**2 * t**2) ** 0.5
        expected += [(x2 * (s**2 + t**2) + sign * (rho + tau) + other * root) / 2 for other in (1, -1)]
    assert_close(two, real(*sorted(expected)))


def test_the_minimum_that_a_bottleneck_leaves_is_a_minimum():
    X = theory.whitened(normal(seeded(), 20, 4))
    Y = normal(seeded(1), 20, 4)
    weights = theory.balanced_weights(Y.T @ X / 20, [2, 3])
    gradients = grad(lambda Ws: squared_error(network(Ws, X), Y))(tuple(weights))
    assert max(float(g.abs().max()) for g in gradients) < 1e-14
    form = theory.balanced_solution(X, Y, 3, [2, 3])
    assert float(form.eigenvalues()[0]) > -1e-14
    assert_close(form.eigenvalues(), theory.aligned_linear(weights, X, Y).eigenvalues(), atol=1e-12, rtol=0)
    assert nonzero(hessian(weights, X, Y)) == 12 and float(form.eigenvalues()[-12]) == approx(0.111, abs=1e-3)
    assert float(theory.linear_gauss_newton(weights, X).eigenvalues()[-12]) == approx(0.260, abs=1e-3)


@pytest.mark.parametrize("form", [
    theory.balanced_linear(real(1.0, 2.0), (3, 2, 3), 1.0),
    theory.balanced_linear(real(1.0, 2.0), (3, 2, 3), 1.0, residuals=real(0.1, 0.2, 0.3)),
    theory.balanced_solution(torch.eye(3).double(), torch.eye(3).double(), 2, 4),
])  # fmt: skip
def test_without_weights_there_are_no_eigenvectors(form):
    with pytest.raises(theory.NoEigenvectorsError, match="not known"):
        form.eigenvectors(form.groups[0])


def test_rank_deficient_data_are_whitened_to_their_rank():
    X = normal(seeded(), 30, 3) @ normal(seeded(1), 3, 5)
    white, kept = theory.whitened(X, 2.0), theory.whitened(X, 2.0, keep_inputs=True)
    assert white.shape == (30, 3) and theory.whiteness(white) < 1e-13 and theory.input_scale(white) == approx(2)
    assert_close(torch.linalg.eigvalsh(kept.T @ kept / 30), real(0, 0, 4, 4, 4))
    W1, W2, Y = normal(seeded(2), 4, 5), normal(seeded(3), 2, 4), normal(seeded(4), 30, 2)
    narrow = torch.linalg.lstsq(kept, white).solution.T  # white = kept Aᵀ
    H = hessian([W1, W2], kept, Y)
    assert_close(torch.linalg.lstsq(X, white).solution.T @ X.T, white.T)  # a function of the data
    compressed = theory.two_layer_linear(W1 @ narrow.T, W2, white, Y).eigenvalues()
    both = torch.cat([compressed, torch.zeros(4 * 2).double()]).sort().values  # and d₁(d₀ - r) zeros
    assert_close(torch.linalg.eigvalsh(H), both, atol=1e-12, rtol=0)


def test_assumptions_can_be_asked_for():
    X = normal(seeded(), 30, 3)
    assert theory.whiteness(X) > 0.1 and theory.whiteness(theory.whitened(X, 3.0)) < 1e-13
    weights = theory.balanced_weights(normal(seeded(), 3, 4), [5, 3], generator=seeded())
    assert theory.balancedness(weights) < 1e-14
    assert float(theory.balancedness([2 * weights[0], *weights[1:]])) == approx(0.75)
    assert theory.balancedness(weights[:1]) == 0 and theory.whiteness(0 * X) == 0


W, X3, Y2 = torch.ones(4, 3).double(), torch.ones(5, 3).double(), torch.ones(5, 2).double()
REFUSED = {
    "inputs that do not fit": lambda: theory.two_layer_linear(W, W[:2], X3, Y2),
    "outputs that do not fit": lambda: theory.two_layer_linear(W, W[:3, :1] @ W[:1, :1].expand(1, 4), X3, Y2),
    "rows that do not fit": lambda: theory.two_layer_linear(W, W.new_ones(2, 4), X3, Y2[:3]),
    "a vector for a matrix": lambda: theory.two_layer_relu(W[:, 0], W, X3, Y2),
    "no weights": lambda: theory.linear_trace([], X3),
    "not a number": lambda: theory.linear_gauss_newton([W * torch.nan], X3),
    "data that are not white": lambda: theory.aligned_linear([W, W.new_ones(2, 4)], normal(seeded(), 5, 3), Y2),
    "data that are not white, no weights": lambda: theory.balanced_solution(normal(seeded(), 5, 3), Y2, 2, 4),
    "layers that are not aligned": lambda: theory.aligned_linear(
        [normal(seeded(), 4, 3), normal(seeded(1), 2, 4)], theory.whitened(normal(seeded(), 5, 3)), Y2
    ),
    "more singular values than the narrowest layer": lambda: theory.balanced_linear(real(1, 2), (3, 1, 3), 1.0),
    "negative singular values": lambda: theory.balanced_linear(real(-1.0), (3, 1, 3), 1.0),
    "too many inputs to diagonalise": lambda: theory.two_layer_linear(
        normal(seeded(), 150, 150), normal(seeded(1), 2, 150), normal(seeded(2), 5, 150), Y2
    ),
    "too many patterns to diagonalise": lambda: theory.two_layer_relu(
        normal(seeded(), 600, 30), normal(seeded(1), 30, 600), normal(seeded(2), 40, 30), normal(seeded(3), 40, 30)
    ),
    "too many patterns, any loss": lambda: theory.relu_pair(
        normal(seeded(), 600, 30), normal(seeded(1), 30, 600), normal(seeded(2), 40, 30), torch.norm
    ),
    "too many further parameters": lambda: theory.linear_pair(
        W, W.T, lambda M, rest: M.square().sum() + rest.sum(), torch.ones(20_000).double()
    ),
    "too few hidden widths": lambda: theory.balanced_solution(theory.whitened(normal(seeded(), 5, 3)), Y2, 4, [3]),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
@pytest.mark.usefixtures("unchecked")
def test_bad_input_says_what_was_seen_why_and_the_ways_out(call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert isinstance(caught.value, RitzError) and caught.value.seen and caught.value.why and caught.value.ways_out


# Errata: the printed form fails, the corrected one holds. See docs/errata.md.


def nonzero(H):
    return int((torch.linalg.eigvalsh(H).abs() > 1e-9 * float(H.abs().max())).sum())


def balanced_example(widths=(3, 2, 4), sigma=(2.0, 1.0)):
    """Coordinate axes as singular vectors, σₓ = 1."""
    diagonal = torch.diag(real(*sigma))
    weights = [torch.zeros(b, a).double() for a, b in pairwise(widths)]
    for W in weights:
        W[: len(sigma), : len(sigma)] = diagonal
    X = widths[0] ** 0.5 * torch.eye(widths[0]).double()
    return weights, X, network(weights, X)


def test_eq_4_holds_for_columns_stacked_one_after_another_with_the_data_outside_the_brace():
    weights, X = [normal(seeded(i), *s) for i, s in enumerate(((4, 3), (2, 4), (3, 2)))], normal(seeded(9), 5, 3)
    P, S = theory.products_before(weights), theory.products_after(weights)
    assert P[1].shape == (4, 3)  # d₁ × d₀, which P₂X is not
    J = torch.func.jacfwd(lambda W: network([weights[0], W, weights[2]], X).T)(weights[1])  # (out, n, d₂, d₁)
    J = J.permute(1, 0, 3, 2).reshape(5 * 3, 4 * 2)  # both indices column-major
    assert_close(J, torch.kron((P[1] @ X.T).T.contiguous(), S[1].contiguous()))


def test_eq_7_is_exact_for_the_full_hessian_at_any_loss():
    weights, X = [normal(seeded(i), *s) for i, s in enumerate(((4, 3), (2, 4), (3, 2)))], normal(seeded(9), 5, 3)
    H, trace = hessian(weights, X, 10 * normal(seeded(8), 5, 3)), float(theory.linear_trace(weights, X))
    assert float(H.trace()) == approx(trace, rel=1e-13) == approx(45.375270834678, rel=1e-13)
    assert float((H - gauss_newton(weights, X)).norm() / H.norm()) == approx(0.93, abs=0.01)  # far from zero loss


def test_balanced_layers_share_left_with_right_singular_vectors_not_right_with_left():
    first, second = theory.balanced_weights(normal(seeded(), 3, 3), [3], generator=seeded(1))
    U1, _, V1 = torch.linalg.svd(first)
    U2, _, V2 = torch.linalg.svd(second)
    assert_close((U1.T @ V2.T).abs(), torch.eye(3).double())
    assert float(((V1 @ U2).abs() - torch.eye(3).double()).abs().max()) == approx(0.90, abs=0.01)  # as printed


def test_eq_9_has_lines_beyond_the_narrowest_layer():
    weights, X, Y = balanced_example()
    H = hessian(weights, X, Y)
    assert nonzero(H) == 2 * (3 + 4 - 2) == 10  # printed: at most min(3, 2, 4)² = 4
    printed = sorted([4 + 4, 4 + 1, 1 + 4, 1 + 1])  # σᵢ² + σⱼ² for i, j ≤ 2
    found = torch.linalg.eigvalsh(H)
    assert_close(found[-10:], real(*sorted([*printed, *[4.0] * 3, *[1.0] * 3])))
    assert theory.compare(theory.balanced_linear(real(2, 1), (3, 2, 4), 1.0), H).value < 1e-14


def test_eq_9b_cancels_where_singular_values_nearly_agree():
    s, t, L = 1.0, 1.0 + 1e-8, 4
    divided = (s ** (2 * L) - t ** (2 * L)) / (s**2 - t**2)
    summed = theory.balanced_linear(real(t, s), (2,) * 5, 1.0)["singular values 1, 2"].value
    exact = 4 * (1 + 3e-8)  # to second order
    assert divided == approx(4.00000014, abs=1e-8) and abs(divided - exact) > 2e-8
    assert abs(summed - exact) < 1e-14


def test_eq_14_at_non_zero_loss_has_the_moments_of_inputs_and_labels_in_place_of_the_labels():
    X = theory.whitened(normal(seeded(), 40, 3))
    Y = X @ normal(seeded(1), 3, 3) + normal(seeded(2), 40, 3)
    weights = theory.balanced_weights(Y.T @ X / 40, [4, 4])
    measured = float(torch.linalg.eigvalsh(hessian(weights, X, Y))[-1])
    printed = 3 * 40 ** (1 / 3 - 1) * float(torch.linalg.matrix_norm(Y, 2)) ** (2 - 2 / 3)
    assert theory.balanced_solution(X, Y, 3, 4).scale == approx(measured, rel=1e-12)
    assert (measured, printed) == (approx(7.288, abs=1e-3), approx(8.145, abs=1e-3))  # an upper bound
    assert float(squared_error(network(weights, X), Y)) == approx(1.27, abs=0.01)  # and equal at zero loss:
    Y = X @ normal(seeded(1), 3, 3)
    printed = 3 * 40 ** (1 / 3 - 1) * float(torch.linalg.matrix_norm(Y, 2)) ** (2 - 2 / 3)
    assert theory.balanced_solution(X, Y, 3, 4).scale == approx(printed, rel=1e-12)


def test_one_hot_labels_make_sharpness_the_largest_class_proportion():
    X = theory.whitened(torch.eye(10).double()[:, :10], 0.5)
    Y = torch.eye(3).double()[torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2])]
    assert theory.balanced_solution(X, Y, 4, 5).scale == approx(4 * 0.5 ** (2 / 4) * 0.6 ** (1 - 1 / 4))


def test_eq_15_has_lines_beyond_the_narrow_layer():
    W1, W2 = torch.diag(real(2, 1))[:, [0, 1, 1]] * real(1, 1, 0), torch.zeros(4, 2).double()
    W2[:2] = torch.diag(real(3, 1))
    X = 3**0.5 * torch.eye(3).double()
    H = hessian([W1, W2], X, network([W1, W2], X))
    assert nonzero(H) == 3 * 4 - (3 - 2) * (4 - 2) == 10  # printed: at most 2 · 2 = 4
    pairs = sorted(a + b for a in (4, 1, 0) for b in (9, 1, 0, 0) if a + b)
    assert_close(torch.linalg.eigvalsh(H)[-10:], real(*pairs))
    assert theory.compare(theory.shallow_linear(W1, W2, 1.0), H).value < 1e-14


def test_d_3_3_is_a_lower_bound_and_eq_10_is_the_sum():
    W1, W2, X = real(2.0)[:, None], real(1.0)[:, None], torch.ones(1, 1).double()
    H = hessian([W1, W2], X, network([W1, W2], X))
    assert_close(torch.linalg.eigvalsh(H), real(0, 5))  # ‖W₁‖² + ‖W₂‖²; the maximum of both is 4
    assert theory.sharpness_bound([W1, W2], X) == 4 and theory.spectral_norm_bound([W1, W2], X) == 5


def test_qr_of_rank_deficient_data_invents_inputs():
    X = normal(seeded(), 6, 3)
    X[:, 0] = 0  # a pixel that is always black
    Q = torch.linalg.qr(X).Q * 6**0.5
    assert theory.whiteness(Q) < 1e-14  # Assumption 2 appears to hold
    assert_close(Q[:, 0].abs(), 6**0.5 * torch.eye(6)[0].double())  # the indicator of the first sample
    outside = Q - X @ torch.linalg.lstsq(X, Q, driver="gelsd").solution
    assert_close(outside.norm(dim=0)[[0, 2]], real(2.068, 1.255), atol=1e-3, rtol=0)  # no function of the data
    assert float(Q[:, 0].norm()) == approx(2.449, abs=1e-3)
    white = theory.whitened(X)
    assert white.shape == (6, 2) and float((white - X @ torch.linalg.pinv(X) @ white).norm()) < 1e-13


def test_balanced_sampling_draws_left_singular_vectors():
    """As printed, step 1 redraws what step 3 has set, and consecutive layers are not balanced."""
    S, generator = torch.diag(real(2, 1)), seeded()
    U1, V1, V2, U2 = (torch.linalg.qr(normal(generator, 2, 2)).Q for _ in range(4))
    assert float(theory.balancedness([U1 @ S @ V1.T, U2 @ S @ V2.T])) == approx(0.75, abs=0.01)
    assert theory.balancedness([U1 @ S @ V1.T, U2 @ S @ U1.T]) < 1e-15


def test_subsampling_as_printed_asks_for_more_samples_than_there_are():
    n, alpha, C = 5000, 0.5, 10
    assert int((1 - alpha) * n) * (C - 1) == 22500 > n
    others = int((1 - alpha) * n / (C - 1))
    assert others == 277 and n - others * (C - 1) == 2507  # class 0: 0.5014 of all


def test_a_sliding_window_halves_the_learning_rate_at_every_step_of_a_plateau():
    losses = [1.0] * 1500
    halved = [t for t in range(100, 1500) if losses[t - 100] - losses[t] < 1e-3 * losses[t - 100]]
    assert 0.01 * 0.5 ** len(halved) == 0  # underflow
    assert len([t for t in halved if t % 100 == 0]) == 14  # disjoint windows


def test_the_sharpness_of_the_balanced_minimum_depends_on_the_number_of_images():
    digits = lab_data.digits(generator=seeded()).train
    values = []
    for n in (100, 200, 400):
        cut = lab_data.imbalanced(digits, alpha_max=0.28, total=n, generator=seeded())
        Y = lab_data.one_hot(cut.y, 10, dtype=torch.float64)
        X = theory.whitened(cut.x.double())
        values.append(theory.balanced_solution(X, Y, 4, 10).scale)
    share = float(Y.sum(0).max()) / len(Y)
    assert values == approx([1.517, 1.485, 1.457], abs=1e-3)  # eq. (14) has one number for all
    assert 4 * share**0.75 == approx(1.540, abs=1e-3)


def test_halving_the_rate_on_a_plateau_freezes_training_far_from_its_minimum():
    M = torch.diag(real(1.0, 0.3))
    start = [torch.diag(real(0.5, 0.05))] * 3  # the second direction waits on a plateau
    X = 2**0.5 * torch.eye(2).double()

    def end(schedule):
        """Where it has come to in 10,000 epochs: what follows a loss or a rate that small changes no digit of it."""
        epochs = linear_descent(start, X, X @ M.T, learning_rate=0.01, num_epochs=10_000, schedule=schedule)
        return next(pause for pause in epochs if pause.loss < 1e-9 or pause.learning_rate < 1e-20)

    next(linear_descent(start, X, X @ M.T, learning_rate=0.01, num_epochs=1))  # its shapes are right
    with unchecked():
        printed, constant = end(HALVING), end(None)
    assert printed.loss == approx(0.0450, abs=2e-4) and printed.learning_rate < 1e-20
    assert constant.loss < 1e-9 and constant.learning_rate == 0.01


def test_the_caption_of_figure_2_and_its_appendix_start_from_different_weights():
    widths = (12, 8, 8, 3)
    balanced = lab_init.balanced(widths, torch.rand(3, generator=seeded(), dtype=torch.float64), generator=seeded())
    kaiming = [lab_init.kaiming_uniform(b, a, generator=seeded()) for a, b in pairwise(widths)]
    assert float(theory.balancedness(balanced)) < 1e-12 and float(theory.balancedness(kaiming)) > 0.4
