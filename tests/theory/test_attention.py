"""Self-attention where the softmax saturates, its bounds, its moments, and batches of sequences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz import theory
from ritz.checks import singh2026_attention
from ritz.checks.draws import normal, scale, whole
from ritz.errors import NumericalError
from tests.draws import patient
from tests.seeds import seeded

seeds = st.integers(0, 2**32 - 1)


def long_double_scalars(w_v, w_q, w_k, x, y):
    """α, β, γ, ζ in extended precision."""
    w_q, w_k, x, y = (given.numpy().astype(np.longdouble) for given in (w_q, w_k, x, y))
    w_v, root, n = np.longdouble(w_v), np.sqrt(np.longdouble(len(w_q))), len(x)
    scores = (w_q @ w_k) / root * np.outer(x, x)
    A = np.exp(scores - scores.max(1, keepdims=True))
    A /= A.sum(1, keepdims=True)
    m1 = A @ x
    apart = x - m1[:, None]
    slope, bend, delta = x * (A * apart**2).sum(1), x * x * (A * apart**3).sum(1), w_v * m1 - y
    zeta = (w_v**2 * (slope @ slope) + w_v * (delta @ bend)) / root**2
    return [float(s / n) for s in (m1 @ m1, (w_v * m1 + delta) @ slope / root, w_v * (delta @ slope) / root, zeta)]


@patient
@given(seeds)
def test_attention_stays_exact_where_the_softmax_saturates_and_autograd_does_not(seed):
    """Inputs within 10^±3 saturate the softmax: there autograd is off by up to 1e-5, and extended precision judges."""
    generator = seeded(seed)
    d, n = whole(generator, 1, 20), whole(generator, 1, 12)
    w_q, w_k, x, y = (normal(generator, size, scale=scale(generator)) for size in (d, d, n, n))
    w_v = float(normal(generator, 1, scale=scale(generator)))
    alpha, beta, gamma, zeta = long_double_scalars(w_v, w_q, w_k, x, y)
    g = torch.cat([w_k, w_q])
    H = torch.zeros(2 * d + 1, 2 * d + 1, dtype=torch.float64)
    H[0, 0], H[0, 1:], H[1:, 0] = alpha, beta * g, beta * g
    swap = torch.eye(2 * d, dtype=torch.float64).roll(d, 0)
    H[1:, 1:] = zeta * torch.outer(g, g) + gamma * swap
    found = theory.compare(theory.self_attention(w_v, w_q, w_k, x, y), H)
    assert found.value <= 1e-10 and found.residual <= 1e-9


@patient
@given(seeds)
def test_attention_bounds_hold(seed):
    inputs = singh2026_attention.head(seeded(seed))
    found, bounds = theory.self_attention(*inputs), theory.attention_bounds(*inputs)
    values, margin = found.eigenvalues(), 1e-10 * found.scale
    outliers = [found[f"outlier {i}"].value for i in (1, 2, 3)]
    assert bounds.outliers[0] - margin <= min(outliers) and max(outliers) <= bounds.outliers[1] + margin
    assert bounds.largest_outlier[0] - margin <= outliers[0] <= bounds.largest_outlier[1] + margin
    assert bounds.sharpness[0] - margin <= float(values.max()) <= bounds.sharpness[1] + margin
    smallest = float(values.abs().min())
    assert bounds.largest_outlier[0] * smallest <= bounds.gamma * float(values.abs().max()) * (1 + 1e-9) + margin**2


def test_attention_moments_are_derivatives_of_the_mean():
    x = normal(seeded(), 7)
    mean = lambda s: (s * torch.outer(x, x)).softmax(1) @ x
    s = torch.tensor(0.3, dtype=torch.float64)
    first = torch.func.jacfwd(mean)
    m1, m2, m3 = theory.attention_moments((s * torch.outer(x, x)).softmax(1), x)
    assert_close(m1, mean(s))
    assert_close(x * m2, first(s))
    assert_close(x * x * m3, torch.func.jacfwd(first)(s))


def test_a_batch_of_equal_lengths_is_the_mean_of_its_sequences():
    w_q, w_k = normal(seeded(), 5), normal(seeded(1), 5)
    X, Y = normal(seeded(2), 3, 6), normal(seeded(3), 3, 6)
    causal = torch.ones(6, 6).tril().bool()
    together = theory.attention_scalars(0.7, w_q, w_k, X, Y, mask=causal)
    single = [theory.attention_scalars(0.7, w_q, w_k, x, y, mask=causal) for x, y in zip(X, Y)]
    assert_close(together.zeta, sum(each.zeta for each in single) / 3)
    as_list = theory.attention_scalars(0.7, w_q, w_k, list(X), list(Y), mask=[causal] * 3)
    assert as_list == together


@pytest.mark.parametrize("d", [1, 3, 9])
def test_any_smooth_function_of_the_product_has_its_hessian(d):
    loss = lambda w_v, s: torch.sin(w_v * s) + w_v**2 * s**3
    w_v, w_q, w_k = (normal(seeded(seed), size) for seed, size in enumerate((1, d, d)))
    theta = torch.cat([w_v, w_q, w_k])
    of = lambda t: loss(t[0], t[1 : d + 1] @ t[d + 1 :] / d**0.5)
    found = theory.compare(theory.attention_product(w_v[0], w_q, w_k, loss), torch.func.hessian(of)(theta))
    assert found.value <= 1e-12 and found.residual <= 1e-12


def test_weights_and_inputs_whose_powers_leave_float64_are_refused():
    w, x = torch.ones(2).double(), torch.tensor([1.0, -1.0], dtype=torch.float64)
    for number in (theory.attention_scalars, theory.attention_bounds, theory.self_attention):
        with pytest.raises(NumericalError, match="Entries of the Hessian are beyond"):
            number(1e200, w, w, x, x)
    with pytest.raises(NumericalError, match="Moments of the attention are beyond"):
        theory.attention_moments(torch.full((2, 2), 0.5), 1e200 * x)
