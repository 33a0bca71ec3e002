"""Closed forms have as many eigenvalues as there are parameters, and G drops the slope of the loss."""

import inspect

import pytest
import torch

import ritz
from ritz import theory
from ritz.errors import ArgumentError, RitzError

V, W = (
    torch.tensor([[1.0, 2.0, 0.5], [0.5, -1.0, 2.0]]).double(),
    torch.tensor([[2.0, 1.0, 1.0], [1.0, 1.0, 0.5]]).double(),
)
X, y = torch.tensor([[1.0, 0.0], [0.0, -1.0]]).double(), torch.tensor([2.0, 1.0]).double()


def test_a_closed_form_has_an_eigenvalue_for_every_parameter():
    assert theory.multi_input_network(V, W, X, y).size == 12


def test_the_gauss_newton_matrix_of_a_product_has_no_slope():
    v, w = V[0], W[0]
    form = theory.product_network(v, w, lambda p: 3 * p + p**2, gauss_newton=True)
    direction = torch.cat([w, v])
    assert abs(form.eigenvalues().max() - 2 * direction @ direction) < 1e-12 and form.eigenvalues().min() == 0


def test_a_spectrum_with_repeated_eigenvalues_is_compared_one_by_one():
    form = theory.ClosedForm([theory.Group("a", 1.0, 3), theory.Group("b", 4.0)])
    measured = ritz.Spectrum.of_eigenvalues(torch.tensor([1.0, 4.0]).double(), torch.tensor([3, 1]))
    assert theory.compare(form, measured).value == 0


@pytest.mark.parametrize("measured", [torch.ones(4), torch.eye(4).numpy(), torch.ones(4).numpy(), [1.0] * 4, None])
def test_what_is_neither_a_matrix_nor_an_operator_is_not_compared(measured):
    form = theory.ClosedForm([theory.Group("a", 1.0, 4)])
    with pytest.raises(ArgumentError, match="not a square matrix"):
        theory.compare(form, measured)


@pytest.mark.parametrize("inputs", [X, X + 0.5])  # decoupled and correlated
def test_eigenvectors_have_an_entry_for_every_parameter(inputs):
    loss = lambda V, W: ((inputs @ (V * W).sum(1) - y) ** 2).mean() / 2
    blocks = torch.func.hessian(loss, (0, 1))(V, W)
    H = torch.cat([torch.cat([block.reshape(6, 6) for block in row], 1) for row in blocks])
    form = theory.multi_input_network(V, W, inputs, y)
    assert all(form.eigenvectors(group, 1).shape == (12, 1) for group in form.groups)
    assert theory.compare(form, ritz.Operator.from_matrix(H)).residual < 1e-12


@pytest.mark.parametrize("name", sorted(name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))))
def test_flags_are_passed_by_name(name):
    """What has a default comes after the data, and cannot be mistaken for them; all data can be passed by name."""
    parameters = inspect.signature(getattr(theory, name)).parameters.values()
    assert not any(parameter.kind is parameter.POSITIONAL_ONLY for parameter in parameters)
    flags = [parameter for parameter in parameters if isinstance(parameter.default, bool)]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in flags)


def test_lines_are_numbered_from_the_largest():
    *lines, zero = theory.linear_gauss_newton([W, V[:, :2]], torch.eye(3, dtype=torch.float64)).groups
    assert [line.name for line in lines] == [f"line {i}" for i in range(1, 7)] and zero.name == "zero"
    assert [line.value for line in lines] == sorted((line.value for line in lines), reverse=True)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "match, form",
    [
        ("multipliers", lambda: theory.linear_trace([V.T, V], X, multipliers=[1.0])),
        ("multipliers", lambda: theory.sharpness_bound([V.T, V], X, multipliers=[1.0, float("nan")])),
        ("beyond", lambda: theory.linear_trace([1e200 * V.T, V], 1e200 * X)),
        ("shape .2,", lambda: theory.product_network(V[0], W[0], lambda c: torch.stack([c, c]))),
        ("float", lambda: theory.product_network(V[0], W[0], lambda c: 1.0)),
        ("shape .2,", lambda: theory.attention_product(1.0, V[0], W[0], lambda a, s: torch.stack([a, s]))),
        ("Stacks", lambda: theory.balancedness([torch.ones(2, 3, 3), torch.ones(3, 3, 3)])),
        ("from 0 to 1", lambda: theory.product_without([X, X], 5)),
        ("No weights", lambda: theory.product_without([], 0)),
    ],
)
def test_what_does_not_fit_is_refused_in_words(match, form):
    with pytest.raises(RitzError, match=match):
        form()
