"""Formulas of Singh et al. (2026) that the code does not use, a small matrix being safer: they hold all the same."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz import theory
from ritz.checks import singh2026, singh2026_attention
from ritz.checks.draws import normal, whole
from ritz.checks.oracles import dense_hessian, squared_error
from tests.draws import patient
from tests.seeds import seeded

seeds = st.integers(0, 2**32 - 1)


def moments(v, w, x, y):
    """σ², δx, ‖w‖² + ‖v‖², ⟨w,v⟩."""
    return [float(s) for s in (x.square().mean(), (((w @ v) * x - y) * x).mean(), w @ w + v @ v, w @ v)]


def moderate(generator):
    m, N = whole(generator, 1, 8), whole(generator, 1, 8)
    return tuple(normal(generator, size) for size in (m, m, N, N))


@patient
@given(seeds)
def test_eq_1_and_122_give_the_outliers(seed):
    inputs = moderate(seeded(seed))
    sigma2, delta, N, c = moments(*inputs)
    found = theory.linear_network(*inputs)
    first, second = found["outlier 1"].value, found["outlier 2"].value
    root = math.sqrt((sigma2 * N) ** 2 + 4 * (delta**2 + 2 * sigma2 * delta * c))
    assert_close([first, second], [(sigma2 * N + root) / 2, (sigma2 * N - root) / 2], atol=1e-10 * found.scale, rtol=0)
    yx = sigma2 * c - delta
    assert_close(-first * second, (c * sigma2 - yx) * (3 * c * sigma2 - yx), atol=1e-10 * found.scale**2, rtol=0)


@patient
@given(seeds)
def test_thm_3_2_and_eq_12_span_gradient_and_weights(seed):
    v, w, *_ = inputs = moderate(seeded(seed))
    sigma2, delta, N, _ = moments(*inputs)
    H, theta, swapped = singh2026.linear_hessian(*inputs), torch.cat([v, w]), torch.cat([w, v])
    gradient = delta * swapped
    found = theory.linear_network(*inputs)
    margin = 1e-10 * (1 + found.scale) ** 2 * (1 + float(theta.norm()))
    assert_close(H @ gradient, delta * sigma2 * N * swapped + delta**2 * theta, atol=margin, rtol=0)
    for name in ("outlier 1", "outlier 2"):
        z = found[name].value * swapped + delta * theta
        assert_close(H @ z, found[name].value * z, atol=margin, rtol=0)


def test_a_step_that_solves_one_layer_frees_one_more_direction():
    v, w = normal(seeded(), 5), normal(seeded(1), 5)
    assert [space.shape[1] for space in theory.invariant_bulk(v, w)] == [4, 4]
    assert [space.shape[1] for space in theory.invariant_bulk(w - v, v - w)] == [5, 4]  # one step with η δx = 1


def test_the_sharper_cell_sets_the_sharpness():
    inputs = tuple(normal(seeded(i), size) for i, size in enumerate((9, 9, 7, 7)))
    found = theory.relu_network(*inputs)
    assert float(found.eigenvalues().max()) == max(found[f"cell {sign}, outlier 1"].value for sign in "+-")


def test_a_single_unit_has_no_bulk_below_its_small_outlier():
    v, w, x, y = (normal(seeded(i), size) for i, size in enumerate((1, 1, 6, 6)))
    found = theory.linear_network(v, w, x, y)
    assert found.size == 2 and found.eigenvalues()[0] == found["outlier 2"].value


@patient
@given(seeds)
def test_any_scalar_output_network_has_the_determinant_of_the_closed_form(seed):
    """det(H - λ) for D inputs, arbitrary data and width; a bias is a constant input. Not in the papers."""
    generator = seeded(seed)
    D, m = whole(generator, 1, 3), whole(generator, 1, 4)
    V, w, X, y = (normal(generator, *shape) for shape in ((m, D), (m,), (7, D), (7,)))
    lam = float(normal(generator, 1)) + 0.1
    H = dense_hessian(lambda V, w: squared_error(X @ (V.T @ w), y), V, w)
    S, c, eye = X.T @ X / 7, V.T @ w, torch.eye(D, dtype=torch.float64)
    d = (X @ c - y) @ X / 7
    bulk = lam**2 - float(d @ d)
    B = lam**2 * V.T @ V + lam * (torch.outer(d, c) + torch.outer(c, d)) + (w @ w) * (bulk * eye + torch.outer(d, d))
    expected = ((-lam) ** (D - 1) * bulk) ** m / (lam * bulk) ** D * torch.linalg.det(lam * bulk * eye - S @ B)
    actual = torch.linalg.det(H - lam * torch.eye(len(H), dtype=torch.float64))
    assert_close(actual, expected, rtol=1e-6, atol=1e-9 * float(H.norm()) ** len(H))


def test_pair_and_triple_of_the_bias_network_are_centred_at_fractions_of_the_trace():
    found = theory.bias_network(*singh2026.theorem_b1_inputs(seeded(3)))
    total = float(found.eigenvalues().sum())
    assert_close((found["pair 1"].value + found["pair 2"].value) / 2, total / 4)
    assert_close(sum(found[f"triple {i}"].value for i in (1, 2, 3)) / 3, total / 6)


@patient
@given(seeds)
def test_the_cubic_and_the_eigenvectors_of_attention(seed):
    _, w_q, w_k, *_ = inputs = singh2026_attention.head(seeded(seed))
    s, found = theory.attention_scalars(*inputs), theory.self_attention(*inputs)
    N, c, extra = float(w_q @ w_q + w_k @ w_k), float(w_q @ w_k), s.beta**2 - s.alpha * s.zeta
    a, b = s.alpha + s.zeta * N, extra * N + 2 * s.gamma * s.zeta * c + s.gamma**2
    e = 2 * s.gamma * extra * c - s.alpha * s.gamma**2
    vectors = torch.cat([found.eigenvectors(f"outlier {i}") for i in (1, 2, 3)], 1)
    for i in (1, 2, 3):
        lam = found[f"outlier {i}"].value
        assert abs(lam**3 - a * lam**2 - b * lam - e) <= 1e-9 * found.scale**3
        parts = [(lam - s.alpha) * (lam * g + s.gamma * h) for g, h in ((w_k, w_q), (w_q, w_k))]
        z = torch.cat([torch.tensor([s.beta * (lam * N + 2 * s.gamma * c)], dtype=torch.float64), *parts])
        residual = vectors.T @ z * torch.tensor([found[f"outlier {j}"].value - lam for j in (1, 2, 3)]).to(z)
        assert float(residual.norm()) <= 1e-9 * found.scale * max(float(z.norm()), found.scale**2)


def test_the_query_key_block_is_a_linear_network():
    _, w_q, w_k, *_ = inputs = singh2026_attention.head(seeded(2))
    s, at = theory.attention_scalars(*inputs), w_q @ w_k
    block = theory.product_network(w_k, w_q, lambda c: s.gamma * (c - at) + s.zeta / 2 * (c - at) ** 2)  # Remark B.2
    assert theory.compare(block, singh2026_attention.attention_hessian(*inputs)[1:, 1:]).value <= 1e-10


@pytest.mark.parametrize("gauss_newton", [False, True])
def test_without_residual_the_cubic_is_a_quadratic(gauss_newton):
    w_v, w_q, w_k, x, y = singh2026_attention.head(seeded(2))
    y = y if gauss_newton else singh2026_attention.head_outputs(torch.tensor(w_v, dtype=torch.float64), w_q, w_k, x)
    s = theory.attention_scalars(w_v, w_q, w_k, x, y, gauss_newton=gauss_newton)
    N = float(w_q @ w_q + w_k @ w_k)
    half, product = (s.alpha + s.zeta * N) / 2, (s.beta**2 - s.alpha * s.zeta) * N
    found = theory.self_attention(w_v, w_q, w_k, x, y, gauss_newton=gauss_newton)
    assert abs(found["outlier 1"].value - half - math.sqrt(half**2 + product)) <= 1e-12 * found.scale  # Remark B.3
    assert int((found.eigenvalues().abs() <= 1e-12 * found.scale).sum()) >= 2 * len(w_q) - 1
