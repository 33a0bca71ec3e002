"""Every closed form at about 3,000 parameters, three draws each, by products with the autograd Hessian."""

from functools import partial

import pytest
import torch
from torch.func import grad, jvp, vjp, vmap
from torch.testing import assert_close

from ritz import theory
from ritz.checks import all_checks, linear2026, linear2026_aligned, singh2026, singh2026_attention
from ritz.checks.draws import normal
from tests.seeds import seeded

MODULES = (singh2026, singh2026_attention, linear2026, linear2026_aligned)
CHECKS = {(check.paper, check.result): check for module in MODULES for check in module.CHECKS}
SINGH, LINEAR = singh2026.PAPER, linear2026.PAPER


class Products:
    """A matrix by products alone, with the parameters that it belongs to as one vector."""

    def __init__(self, function, *parameters):
        sizes = [p.numel() for p in parameters]
        self.theta = torch.cat([p.flatten() for p in parameters])
        self.size, self.dtype, self.device = len(self.theta), torch.float64, torch.device("cpu")

        def flat(theta):
            parts = zip(theta.split(sizes), parameters, strict=True)
            return function(*[part.reshape(p.shape) for part, p in parts])

        self.function = flat

    def __matmul__(self, V):
        return vmap(self.product, 1, 1)(V)


class Hessian(Products):
    def product(self, v):
        return jvp(grad(self.function), (self.theta,), (v,))[1]

    def trace(self):
        diagonals = [(self @ E).mul(E).sum() for E in torch.eye(self.size).double().split(500, 1)]
        return torch.stack(diagonals).sum()


class GaussNewton(Products):
    def product(self, v):
        outputs, transposed = vjp(self.function, self.theta)
        return transposed(jvp(self.function, (self.theta,), (v,))[1])[0] / len(outputs)


def shaped(*shapes):
    return lambda generator: tuple(normal(generator, *shape) for shape in shapes)


scalar = shaped((1500,), (1500,), (40,), (40,))
two_layers = shaped((150, 10), (10, 150), (30, 10), (30, 10))
relu_layers = shaped((500, 3), (3, 500), (3, 3), (3, 3))
head = partial(singh2026_attention.head, d=1500)
aligned = partial(linear2026_aligned.aligned, widths=(12, 45, 40, 10), kind="unbalanced")
WIDTHS = (5, 50, 50, 4)
SMALLER = {"diagonal network": 600}  # one unit per input leaves no bulk: its form is the dense problem, 20 s at 3,000
DRAWS = {
    (SINGH, "linear network"): scalar,
    (SINGH, "linear network, G"): scalar,
    (SINGH, "linear network, any loss"): scalar,
    (SINGH, "ReLU network"): scalar,
    (SINGH, "ReLU network, G"): scalar,
    (SINGH, "leaky ReLU network"): scalar,
    (SINGH, "bias network"): partial(singh2026.theorem_b1_inputs, m=1000),
    (SINGH, "bias network, any weights"): shaped((1000,), (1000,), (1000,), (40,), (40,)),
    (SINGH, "several inputs"): partial(singh2026.several_inputs, D=5, m=300, correlated=False),
    (SINGH, "correlated inputs"): partial(singh2026.several_inputs, D=5, m=300, correlated=True),
    (SINGH, "diagonal network"): partial(singh2026.diagonal, D=300),
    (SINGH, "several outputs"): shaped((5, 300), (5, 300), (40,), (40, 5)),
    (SINGH, "paired outliers"): partial(singh2026.outlier_pairs, m=600, D=4),
    (SINGH, "self-attention"): head,
    (SINGH, "self-attention, G"): head,
    (SINGH, "self-attention, batches"): partial(singh2026_attention.heads, d=1500),
    (SINGH, "self-attention, any loss"): partial(singh2026_attention.any_head, d=1500),
    (SINGH, "self-attention, wide"): partial(singh2026_attention.wide_head, e=3, d=480),
    (LINEAR, "two layers"): two_layers,
    (LINEAR, "two layers, G"): two_layers,
    (LINEAR, "two layers, any loss"): partial(linear2026.classification, shape=(480, 3, 3)),
    (LINEAR, "two layers, ReLU"): relu_layers,
    (LINEAR, "two layers, leaky ReLU"): relu_layers,
    (LINEAR, "two layers, ReLU, any loss"): partial(linear2026.relu_classification, shape=(480, 3, 3)),
    (LINEAR, "any layers, G"): partial(linear2026.deep, widths=WIDTHS),
    (LINEAR, "trace"): partial(linear2026.regression, widths=WIDTHS),
    (LINEAR, "balanced layers"): partial(linear2026.balanced, widths=WIDTHS),
    (LINEAR, "balanced layers, any loss"): partial(linear2026.balanced_with_residual, widths=WIDTHS),
    (LINEAR, "balanced solution"): partial(linear2026.solution, widths=(5, 200, 2, 250, 4)),  # 2 < 4 leaves a loss
    (LINEAR, "shallow network"): lambda g: (
        normal(g, 300, 5), normal(g, 5, 300), theory.whitened(normal(g, 40, 5), 1.5)
    ),
    (LINEAR, "aligned layers"): aligned,
    (LINEAR, "aligned layers, G"): aligned,
    (LINEAR, "aligned layers near convergence"): partial(
        linear2026_aligned.near_convergence, widths=(12, 45, 40, 10), size=1e-8
    ),
}  # fmt: skip


def at_minimum(sigma, widths, sigma_x, weights, X):
    return theory.aligned_linear(weights, X, linear2026.network_outputs(weights, X))


def away_from_it(sigma, widths, sigma_x, rho, weights, X, Y):
    return theory.aligned_linear(weights, X, Y)


def at_solution(X, Y, hidden):
    return theory.aligned_linear(linear2026.solution_weights(X, Y, hidden), X, Y)


# Closed forms of singular values or data alone have no eigenvectors: those of the same network given its weights
WITH_WEIGHTS = {
    "balanced layers": at_minimum,
    "balanced layers, any loss": away_from_it,
    "balanced solution": at_solution,
}


def test_no_result_is_left_out():
    """Those of Papyan (2020) hold at any size against loops over examples, which no large network would end.

    A kernel is a matrix of outputs, and not larger for a larger network.
    """
    checks = [check for check in all_checks() if check.paper != "Papyan 2020" and "kernel" not in check.result]
    assert set(DRAWS) == {(check.paper, check.result) for check in checks}


def assert_diagonalises(form, A, generator):
    """Z Zᵀv = v and Z Λ Zᵀv = A v for random v: Z is orthogonal and A = Z Λ Zᵀ, so Λ are all its eigenvalues."""
    V = normal(generator, A.size, 8)
    whole, multiplied = torch.zeros_like(V), torch.zeros_like(V)
    for group in form.groups:  # one by one: all of Z would be 70 MB
        Z = form.eigenvectors(group)
        part = Z @ (Z.T @ V)
        whole += part
        multiplied += group.value * part
    assert_close(whole, V, atol=1e-9, rtol=0)
    assert_close(multiplied, A @ V, atol=1e-9 * form.scale, rtol=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("result", DRAWS, ids=lambda result: result[1])
@pytest.mark.usefixtures("unchecked")
def test_closed_forms_hold_against_operators_with_three_thousand_parameters(result, seed, monkeypatch):
    for module in MODULES[:-1]:
        monkeypatch.setattr(module, "dense_hessian", Hessian)
        monkeypatch.setattr(module, "dense_gauss_newton", GaussNewton)
    check, generator = CHECKS[result], seeded(seed)
    inputs = DRAWS[result](generator)
    form, A = check.closed_form(*inputs), check.oracle(*inputs)
    if result[1] == "trace":
        assert form.groups[0].value == pytest.approx(float(A), rel=1e-10)
        return
    assert form.size == A.size >= SMALLER.get(result[1], 2400)
    if result[1] in WITH_WEIGHTS:
        known = WITH_WEIGHTS[result[1]](*inputs)
        assert_close(form.eigenvalues(), known.eigenvalues(), atol=1e-10 * form.scale, rtol=0)
        form = known
    assert_diagonalises(form, A, generator)


GAUSS_NEWTON = {  # the variants that are no check of their own: closed form, how to draw, outputs, their parameters
    "bias network": (
        theory.bias_network,
        DRAWS[SINGH, "bias network, any weights"],
        lambda v, b, w, x, y: GaussNewton(lambda v, b, w: (w @ v) * x + w @ b, v, b, w),
    ),
    "correlated inputs": (
        theory.multi_input_network,
        DRAWS[SINGH, "correlated inputs"],
        lambda V, W, X, y: GaussNewton(lambda V, W: X @ (W * V).sum(1), V, W),
    ),
    "diagonal network": (
        theory.diagonal_network,
        DRAWS[SINGH, "diagonal network"],
        lambda v, w, X, y: GaussNewton(lambda v, w: X @ (w * v), v, w),
    ),
    "several outputs": (
        theory.multi_output_network,
        DRAWS[SINGH, "several outputs"],
        lambda V, W, x, Y: GaussNewton(lambda V, W: torch.outer(x, (W * V).sum(1)), V, W),
    ),
    "two layers, ReLU": (
        theory.two_layer_relu,
        relu_layers,
        lambda W1, W2, X, Y: GaussNewton(lambda A, B: (X @ A.T).relu() @ B.T, W1, W2),
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("result", GAUSS_NEWTON)
def test_three_thousand_parameters_of_other_gauss_newton_matrices(result, seed):
    function, draw, oracle = GAUSS_NEWTON[result]
    generator = seeded(seed)
    inputs = draw(generator)
    form, G = function(*inputs, gauss_newton=True), oracle(*inputs)
    assert form.size == G.size >= SMALLER.get(result, 2400)
    assert_diagonalises(form, G, generator)


def test_large_operators_are_compared_by_products():
    inputs = scalar(seeded())
    v, w, x, y = inputs
    H = Hessian(lambda v, w: 0.5 * ((w @ v) * x - y).square().mean(), v, w)
    found = theory.compare(theory.linear_network(*inputs), H)
    assert found.value <= 1e-12 and found.residual <= 1e-12
