"""Singh et al. (2026) and the poster of 2024: the printed form fails, the corrected one holds. See docs/errata.md."""

import math

import pytest
import torch
from pytest import approx
from torch.testing import assert_close

from ritz import theory
from ritz.checks import singh2026, singh2026_attention
from ritz.checks.draws import normal
from ritz.checks.oracles import dense_hessian, squared_error
from tests.seeds import real, seeded

W, V, X = (torch.tensor(numbers, dtype=torch.float64) for numbers in ([1, 2], [2, 0.5], [1, 2]))  # ⟨w,v⟩ = 3, σ² = 2.5
ABOVE = torch.tensor([1.0, 1.0], dtype=torch.float64)  # targets with δx = 6
BELOW = torch.tensor([5.0, 6.0], dtype=torch.float64)  # targets with δx = -1


def linear_hessian(y, w=W, v=V, x=X):
    return dense_hessian(lambda v, w: squared_error((w @ v) * x, y), v, w)


def moments(y, w=W, v=V, x=X):
    """σ², δx, ‖w‖², ‖v‖², ⟨w,v⟩."""
    return [float(s) for s in (x.square().mean(), (((w @ v) * x - y) * x).mean(), w @ w, v @ v, w @ v)]


def residual(H, z):
    """‖Hz - λz‖/‖z‖ with the Rayleigh quotient λ."""
    z = z / z.norm()
    return float((H @ z - (z @ H @ z) * z).norm())


def farthest(H, values):
    return float((torch.linalg.eigvalsh(H) - real(*values).sort().values).abs().max())


# Linear network


def test_poster_lacks_the_variance_in_the_outliers():
    sigma2, delta, ww, vv, c = moments(ABOVE)
    yx = c * sigma2 - delta

    def outliers(deviation):
        root = (sigma2**2 * (ww - vv) ** 2 + 4 * sigma2**2 * (ww * vv - c * c) + 4 * deviation**2) ** 0.5
        return [(sigma2 * (ww + vv) + sign * root) / 2 for sign in (1, -1)]

    bulk = [delta, -delta]
    assert farthest(linear_hessian(ABOVE), bulk + outliers(2 * c - yx)) == approx(6.231, abs=1e-3)
    assert farthest(linear_hessian(ABOVE), bulk + outliers(2 * c * sigma2 - yx)) < 1e-13


def test_eq_10_has_the_wrong_upper_right_block():
    sigma2, delta, *_ = moments(ABOVE)
    block = linear_hessian(ABOVE)[:2, 2:]
    eye = torch.eye(2, dtype=torch.float64)
    assert float((block - sigma2 * torch.outer(V, V) - delta * eye).abs().max()) == approx(7.5)
    assert_close(block, sigma2 * torch.outer(W, V) + delta * eye)


def test_eq_30_lost_two_powers_of_lambda():
    sigma2, d, ww, vv, c = moments(ABOVE)
    lam = float(torch.linalg.eigvalsh(linear_hessian(ABOVE)).max())
    common = sigma2 * lam**2 * ww + sigma2 * d**2 * vv + 2 * sigma2 * d * lam * c - lam**3 - sigma2 * d**2 * vv
    assert abs(common + d**2 * vv + d**2) > 100
    assert common + sigma2 * lam**2 * vv + lam * d**2 == approx(0.0, abs=1e-9)


def test_eq_34_needs_absolute_values():
    H, delta = linear_hessian(BELOW), moments(BELOW)[1]
    smallest = float(torch.linalg.eigvalsh(H).min())
    assert delta == approx(-1.0)  # printed: λ_min = -δx, which is +1
    assert smallest == approx(-abs(delta))
    loss = float(squared_error((W @ V) * X, BELOW))
    assert abs(delta) <= math.sqrt(2 * loss * moments(BELOW)[0])


def test_thm_3_2_gives_no_vector_at_the_solution_and_none_of_unit_length():
    H = linear_hessian(3 * X)  # δx = 0
    delta, solution = moments(3 * X)[1], theory.linear_network(V, W, X, 3 * X)
    assert (
        float((solution["outlier 2"].value * torch.cat([W, V]) + delta * torch.cat([V, W])).norm()) == 0
    )  # printed z₂
    second = torch.cat([V, W]) - 2 * 3 / 9.25 * torch.cat([W, V])
    assert residual(H, second) < 1e-13
    found = solution.eigenvectors("outlier 2")[:, 0]
    assert abs(float(found @ second) / float(second.norm())) == approx(1.0)
    delta, first = moments(ABOVE)[1], theory.linear_network(V, W, X, ABOVE)["outlier 1"].value
    printed = first * torch.cat([W, V]) + delta * torch.cat([V, W])
    assert residual(linear_hessian(ABOVE), printed) < 1e-12  # right, but not normalised:
    assert float(printed @ printed) == approx((first**2 + delta**2) * 9.25 + 4 * first * delta * 3)


def test_thm_3_2_gives_no_vector_where_the_layers_are_equal():
    delta = moments(ABOVE, v=W)[1]
    found = theory.linear_network(W, W, X, ABOVE)
    second = found["outlier 2"].value
    assert (
        second == approx(-delta) and float(((second + delta) * W).norm()) < 1e-12
    )  # printed: z₂ = (λ₂ + δx)(w; w) = 0
    H = linear_hessian(ABOVE, v=W)
    z = found.eigenvectors("outlier 2")[:, 0]
    assert_close(H @ z, second * z, atol=1e-12, rtol=0.0)


def test_thm_3_3_has_the_wrong_sign_for_negative_residuals():
    H, delta = linear_hessian(BELOW), moments(BELOW)[1]

    def bulk(sign):
        u = W + sign * V
        z = real(-u[1], u[0])
        return torch.cat([z, sign * z])

    positive = -delta  # the bulk eigenvalue +1; printed sign +1, corrected s = λ/δx = -1
    for sign, error in ((1, 2.0), (-1, 0.0)):
        z = bulk(sign) / bulk(sign).norm()
        assert float((H @ z - positive * z).norm()) == approx(error, abs=1e-13)


def test_app_c_phases_are_reversed_for_negative_targets():
    x = real(1.0, -1.0)
    w, v, target = real(-1.0), real(1.0), -2.0  # c/θ* = 1/2
    printed = "early" if target / 3 >= -1.0 else "late"
    assert printed == "early" and theory.linear_network(v, w, x, target * x)["outlier 2"].value > 0
    assert theory.phase(v, w, x, target * x) == "late"


def test_eigenvalues_are_proportional_to_the_variance_only_where_the_covariance_is():
    values = []
    for x in (1.0, 2.0):
        found = theory.linear_network(real(1.0, 0.0), real(1.0, 0.0), real(x), real(3.0))
        values.append([found[name].value for name in ("bulk +", "outlier 1")])
    assert values == [approx([-2.0, 2.0]), approx([-2.0, 6.0])]  # printed: four times as large
    found = theory.linear_network(real(1.0, 0.0), real(1.0, 0.0), real(2.0), real(6.0))  # targets that scale with x
    assert [found[name].value for name in ("bulk +", "outlier 1")] == approx([-8.0, 8.0])


def test_sec_4_1_pairs_need_their_assumptions():
    inputs, w, y = real([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]), real(1.0, 1.0), real(1.0, 0.0, 2.0)
    H = dense_hessian(lambda A, w: squared_error(inputs @ (A.T @ w), y), real([1.0, 0.0], [1.0, 2.0]), w)
    values = torch.linalg.eigvalsh(H)
    first, second = torch.triu_indices(len(values), len(values), 1)
    gaps = (values[first] + values[second] - values.sum() / 2).abs()
    assert float(values.sum()) / 2 == approx(4.0) and float(gaps.min()) == approx(1.479, abs=1e-3)


# ReLU network


def relu_hessian(w, v, x, y):
    return singh2026.relu_hessian(v, w, x, y)


RELU = (real(1, -1, 2, 0.5), real(1, 2, -1, -3), real(1, 2, -1, -3, 2), real(1, 0, 2, -1, 1))


def cell(w, v, x, y, sign):
    """Members, S, D of one cell, and n/n_cell."""
    active = sign * x > 0
    delta = torch.relu(torch.outer(x, v)) @ w - y
    S, D = ((x * x) * active).mean(), (x * delta * active).mean()
    return sign * v > 0, float(S), float(D), len(x) / int(active.sum())


def test_thm_3_4_puts_units_without_input_weight_in_no_cell():
    w, v, x, y = RELU
    v = v * real(1, 1, 1, 0)  # the last unit has v = 0
    found = theory.relu_network(v, w, x, y)
    assert found["v = 0"].multiplicity == 2
    assert theory.compare(found, relu_hessian(w, v, x, y)).value < 1e-14
    printed = theory.relu_network(v - 1e-30 * (v == 0), w, x, y)  # printed: cell -, 1{v ≤ 0}
    assert theory.compare(printed, relu_hessian(w, v, x, y)).value > 0.1


def test_thm_3_4_empty_cells_add_no_lines():
    w, v, x, y = RELU
    found = theory.relu_network(v.abs(), w, x, y)
    assert found.size == 8 and not any(
        "cell -" in group.name for group in found.groups
    )  # printed: m - q - 1 = -1 pairs


def test_eq_62_mixes_two_scalings():
    w, v, x, y = RELU
    H, (members, _, D, share) = relu_hessian(w, v, x, y), cell(w, v, x, y, 1)
    lam = theory.relu_network(v, w, x, y)["cell +, outlier 1"].value
    a, b = w * members, v * members
    printed = torch.cat([lam * a + share * D * b, share * D * a + lam * b])
    corrected = torch.cat([lam * a + D * b, D * a + lam * b])
    assert residual(H, printed) > 0.1 and residual(H, corrected) < 1e-13


def test_relu_bulk_eigenvalues_carry_the_share_of_their_cell():
    w, v, x, y = RELU
    H, (members, _, D, share) = relu_hessian(w, v, x, y), cell(w, v, x, y, 1)
    u = (w + v) * members
    z = real(-u[1], u[0], 0, 0)
    z = torch.cat([z, z]) / (math.sqrt(2) * z.norm())
    assert_close(H @ z, D * z, atol=1e-13, rtol=0.0)
    assert float((H @ z - share * D * z).norm()) > 0.1  # printed below eq (64)
    c = real(1, 2, 3, 4)  # printed: any c; it must live on the cell
    free = c - (u @ c) / (u @ u) * u
    assert residual(H, torch.cat([free, free])) > 0.1


# Bias network


def assumed(m=5):
    """An input of Thm B.1 with round numbers: x = ±1, y ⟂ 1, x."""
    v, b = 2 * torch.eye(m, dtype=torch.float64)[:2]
    return torch.arange(1.0, m + 1, dtype=torch.float64), v, b, real(1, 1, -1, -1), real(1, -1, 1, -1)


def bias_hessian(w, v, b, x, y):
    return singh2026.bias_hessian(v, b, w, x, y)


def test_eq_82_transposes_two_blocks():
    w, v, b, x, y = assumed()
    H = bias_hessian(w, v, b, x, y)
    delta = (w @ v) * x + w @ b - y
    below, eye = H[:5, 10:], torch.eye(5, dtype=torch.float64)  # rows v, columns w: the block under the diagonal
    printed, corrected = torch.outer(v, w), torch.outer(w, v)
    assert float((below - (delta * x).mean() * eye - printed).abs().max()) == approx(10.0)
    assert_close(below, (delta * x).mean() * eye + corrected)


def test_eq_92_lacks_a_square():
    w, v, b, x, y = assumed()
    found = theory.bias_network(v, b, w, x, y)
    outliers = [found[name].value for name in ("pair 1", "pair 2", "triple 1", "triple 2", "triple 3")]
    second = (sum(outliers) ** 2 - sum(value**2 for value in outliers)) / 2  # the coefficient of λ⁴
    rho2, ww, vv, bb = found["bulk +"].value ** 2, float(w @ w), float(v @ v), float(b @ b)
    assert second == approx(-4 * rho2 + (vv + ww) * (bb + ww))
    assert abs(second + 4 * rho2 - (vv + ww) * (bb**0.5 + ww)) == approx((vv + ww) * 2)  # printed ‖b‖: 118 off


BREACHES = {
    "⟨v,b⟩ ≠ 0": lambda w, v, b, x, y: (w, v, 0.6 * v + 0.8 * b, x, y),
    "‖v‖ ≠ ‖b‖": lambda w, v, b, x, y: (w, v, 1.5 * b, x, y),
    "σ² ≠ 1": lambda w, v, b, x, y: (w, v, b, 1.5 * x, y),
    "E x ≠ 0": lambda w, v, b, x, y: (w, v, b, x + 0.5, y),
    "E y ≠ 0": lambda w, v, b, x, y: (w, v, b, x, y + 3),
    "E xy ≠ 0": lambda w, v, b, x, y: (w, v, b, x, y + 6 * x),
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=list(BREACHES))
def test_thm_b1_needs_every_assumption(breach):
    w, v, b, x, y = breach(*assumed())
    H = bias_hessian(w, v, b, x, y)
    ww, vv = float(w @ w), float(v @ v)
    delta = (w @ v) * x + w @ b - y
    rho2 = float((delta * x).mean() ** 2 + delta.mean() ** 2)
    largest = (ww + vv + math.sqrt((ww + vv) ** 2 + 12 * rho2)) / 2  # eq (68)
    assert float((torch.linalg.eigvalsh(H) - largest).abs().min()) > 0.05
    assert theory.compare(theory.bias_network(v, b, w, x, y), H).value < 1e-13


def test_arccos_loses_half_the_digits_at_double_roots():
    nu, ww, rho = 4.0, 55.0, 1e-6
    s = nu + ww
    p, q = -(rho**2) - s**2 / 3, -2 / 27 * s**3 - nu * rho**2 / 3 + 2 * ww * rho**2 / 3
    angle = math.acos(max(-1.0, min(1.0, 3 * q / (2 * p) * math.sqrt(-3 / p)))) / 3
    printed = sorted(2 * math.sqrt(-p / 3) * math.cos(angle - 2 * math.pi * k / 3) + s / 3 for k in range(3))
    cross = math.sqrt(nu * ww)
    M = real(nu, rho, cross, rho, 0, 0, cross, 0, ww).reshape(3, 3)
    exact = rho * math.sqrt(ww / s)  # the two small roots, to second order
    robust = torch.linalg.eigvalsh(M)
    assert float(robust[1]) == approx(exact, rel=1e-6)
    assert abs(printed[1] - exact) > 1e-8


# Self-attention


HEAD = (-0.9, real(0.9, 0.7, 0.9), real(1.8, -0.1, 0.1), real(-1.6, 0.2, 2.2, 0.8), real(3.6, -1.2, -4.2, 2.7))
IMAGINARY = (-0.6, real(0.2, -1.1, 1.4), real(0.1, -0.1, 0.4), real(1, -2.2, -0.7, 0.5), real(3, 1.8, 3.3, -1.5))
BULK_ON_TOP = (1.0, real(0.2, 0.5, -0.6), real(-0.1, -0.2, 0.3), real(-0.3, -1.3, -0.9, 1.5), real(-1, 4, 7, 18))
FALLING = (1.0, real(-0.4, 0.3, 1.2), real(0.6, 0.4, 0), real(-1, 0, -1.2, 2.4), real(3.6, 2.4, 2.7, 2.7))


def cubic(inputs):
    """a, b, e, N, c and the scalars: λ³ - aλ² - bλ - e = 0."""
    _, w_q, w_k, *_ = inputs
    s = theory.attention_scalars(*inputs)
    N, c = float(w_q @ w_q + w_k @ w_k), float(w_q @ w_k)
    extra = s.beta**2 - s.alpha * s.zeta
    a, b = s.alpha + s.zeta * N, extra * N + 2 * s.gamma * s.zeta * c + s.gamma**2
    return a, b, 2 * s.gamma * extra * c - s.alpha * s.gamma**2, N, c, s


def xi_squared(inputs, *, squared):
    _, b, _, N, _, s = cubic(inputs)
    norms = N if squared else float(inputs[1].norm() + inputs[2].norm())
    return 4 / 9 * (3 * b + (s.zeta * norms + s.alpha) ** 2)


def test_attention_hessian_columns_are_query_then_key():
    H, s = singh2026_attention.attention_hessian(*HEAD), theory.attention_scalars(*HEAD)
    w_q, w_k = HEAD[1:3]
    assert_close(H[0, 1:], s.beta * torch.cat([w_k, w_q]))  # columns (w_q, w_k)
    assert float((H[0, 1:] - s.beta * torch.cat([w_q, w_k])).abs().max()) > 0.1  # columns (w_k, w_q), as printed


def test_attention_q_misplaces_a_bracket():
    a, b, e, N, c, s = cubic(HEAD)
    p = -(3 * b + a * a) / 3
    printed = (
        -(2 * a**3 + 9 * a * (s.beta**2 - s.alpha * s.zeta) * N + 2 * s.gamma * s.zeta * c + s.gamma**2 + 27 * e) / 27
    )
    corrected = -(2 * a**3 + 9 * a * b + 27 * e) / 27
    t = theory.self_attention(*HEAD)["outlier 1"].value - a / 3
    assert abs(t**3 + p * t + printed) > 0.1 and t**3 + p * t + corrected == approx(0.0, abs=1e-12)


def test_attention_xi_needs_squared_norms():
    largest = theory.self_attention(*HEAD)["outlier 1"].value
    centre = cubic(HEAD)[0] / 3
    assert largest == approx(3.270, abs=1e-3)
    assert centre + xi_squared(HEAD, squared=False) ** 0.5 == approx(2.652, abs=1e-3)  # printed upper bound: violated
    assert centre + xi_squared(HEAD, squared=True) ** 0.5 == approx(3.348, abs=1e-3)
    assert xi_squared(IMAGINARY, squared=False) < 0  # printed: the root of a negative number
    assert theory.attention_bounds(*HEAD).xi == approx(xi_squared(HEAD, squared=True) ** 0.5)


def test_remark_b4_bounds_the_outlier_and_not_the_bulk():
    found, bounds = theory.self_attention(*BULK_ON_TOP), theory.attention_bounds(*BULK_ON_TOP)
    s = theory.attention_scalars(*BULK_ON_TOP)
    sharpness = float(torch.linalg.eigvalsh(singh2026_attention.attention_hessian(*BULK_ON_TOP)).max())
    assert s.zeta < 0 and sharpness == approx(abs(s.gamma)) == approx(1.372, abs=1e-3)
    assert bounds.largest_outlier[1] == approx(1.187, abs=1e-3)  # printed as a bound of λ_max
    assert found["outlier 1"].value <= bounds.largest_outlier[1]
    assert bounds.sharpness[0] <= sharpness + 1e-12 and sharpness <= bounds.sharpness[1] + 1e-12


def frozen_bound(inputs, factor):
    """2 tr + 3ξ of Remark 3.1 with N multiplied and α, β, γ, ζ, ⟨w_k,w_q⟩ frozen."""
    _, _, _, N, c, s = cubic(inputs)
    N = factor * N
    a, b = s.alpha + s.zeta * N, (s.beta**2 - s.alpha * s.zeta) * N + 2 * s.gamma * s.zeta * c + s.gamma**2
    return 2 * a + 2 * math.sqrt(3 * b + a * a)


def test_remark_3_1_is_monotone_in_the_norms_for_positive_zeta_only():
    assert cubic(FALLING)[5].zeta < 0
    assert frozen_bound(FALLING, 1.0) == approx(0.334, abs=1e-3) and frozen_bound(FALLING, 1.5) == approx(
        0.267, abs=1e-3
    )
    inputs = singh2026_attention.degenerate_heads(seeded())["ζ > 0"]
    assert cubic(inputs)[5].zeta > 0 and frozen_bound(inputs, 1.5) > frozen_bound(inputs, 1.0)


def test_a_growing_sink_shrinks_the_bulk_only_in_the_end():
    w_q, w_k = real(-0.6, 0.2, -0.9), real(1.1, -1.1, 0.1)
    x, y = real(1.5, -0.3, -2.2, 0.6, -1.1), real(-1.4, 0.4, 0.8, -0.7, -0.4)
    sink = real(1, 0, 0, 0, 0)[None]
    gammas = [abs(theory.attention_scalars(1.0, w_q, w_k, x, y, scores_bias=b * sink).gamma) for b in (0.0, 4.0, 20.0)]
    assert gammas == approx([0.181, 0.826, 0.0], abs=1e-3)


# Appendix D


def test_d33_sharpness_is_bounded_by_the_norms_and_not_equal_to_them():
    W1, W2, X = normal(seeded(1), 4, 3), normal(seeded(2), 3, 4), 20**0.5 * torch.linalg.qr(normal(seeded(3), 20, 3)).Q
    Y = X @ (W2 @ W1).T  # zero loss, so that H = G
    sharpness = float(theory.two_layer_linear(W1, W2, X, Y).eigenvalues().max())
    norms = [float(torch.linalg.matrix_norm(M, 2)) ** 2 for M in (W1, W2)]
    assert sharpness == approx(sum(norms)) and sharpness > 1.2 * max(norms)  # printed: the larger of the two


def test_d4_trace_weighs_the_layers_by_the_other_dimension():
    W1, W2, X = normal(seeded(1), 4, 3), normal(seeded(2), 2, 4), 20**0.5 * torch.linalg.qr(normal(seeded(3), 20, 3)).Q
    Y = normal(seeded(4), 20, 2)
    H = dense_hessian(lambda A, B: squared_error(X @ A.T @ B.T, Y), W1, W2)
    first, second = float(W1.square().sum()), float(W2.square().sum())
    assert float(H.trace()) == approx(2 * first + 3 * second)  # K‖W₁‖² + D‖W₂‖²
    assert abs(float(H.trace()) - 3 * (first + second)) > 1  # printed: D(‖W₁‖² + ‖W₂‖²), right for K = D


def test_d13_mup_variance_as_printed_breaks_the_spectral_condition():
    def ratio(fan_out, fan_in, variance):
        M = variance**0.5 * normal(seeded(), fan_out, fan_in)
        return float(torch.linalg.matrix_norm(M, 2)) / math.sqrt(fan_out / fan_in)

    printed = [ratio(n, n, 1.0) for n in (32, 128, 512)]
    corrected = [ratio(n, n, 1.0 / n) for n in (32, 128, 512)]
    assert printed[2] > 3 * printed[0] and max(corrected) < 1.2 * min(corrected)


def test_d33_the_lower_bound_is_that_of_white_inputs():
    W1, W2, x = real(2.0), real(1.0), real(0.5)
    found = theory.linear_network(W1, W2, x, real(1.0))  # at the solution
    assert found["outlier 1"].value == approx(1.25)  # printed: at least 4
    assert float(theory.sharpness_bound([W1[:, None], W2[None]], x[:, None])) == approx(1.0)
