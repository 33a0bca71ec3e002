"""The closed form of the measured matrix's spectrum, for models that have one.

These are two linear layers, also with a bias in the first, two layers with a (leaky) ReLU between them, deep linear
networks that have one output or aligned layers, and models with a method `closed_form(x, y, *, gauss_newton)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ... import theory
from ...errors import RitzError
from ...operators import gauss_newton, hessian
from ...risk import Risk, SquaredError
from ...theory import ClosedForm, Group

ROWS = 1_500  # of the largest matrix that may be diagonalised on the way: a second or two
ENTRIES = 20_000_000  # of the data, which are copied in float64
TOLERANCE = 1e-3  # by which the model may differ from the formula: rounding in float32 is far below

LINEAR, RECTIFIED = "two linear layers", "two layers with a ReLU between them"
DEEP = "a deep linear network"


class Known(NamedTuple):
    """A closed form under ½‖f - y‖² averaged over the terms, the name of the model, and f by its formula."""

    title: str
    form: ClosedForm
    outputs: Tensor | None = None  # None: the model says itself that this is its closed form


def closed_form(risk: Risk, operator: Any) -> tuple[str, ClosedForm] | None:
    """The name of the model and the closed-form spectrum of its H or G on these data; None if none applies."""
    if operator not in (hessian, gauss_newton) or not _is_regression(risk):
        return None
    x, y, z = _data(risk)
    try:
        known = _formula(risk.model, x, y, operator is gauss_newton)
    except RitzError:  # an assumption that does not hold
        return None
    if known is None or not _computes(known.outputs, z):
        return None
    factor = 2 if isinstance(risk.loss, SquaredError) and risk.loss.elementwise else 1
    scale = factor * risk.num_terms / risk.total_weight
    return known.title, ClosedForm(
        [Group(line.name, scale * line.value, line.multiplicity) for line in known.form.groups]
    )


def _is_regression(risk: Risk) -> bool:
    """Whether this is a squared error in all parameters of a model, on tensors in memory."""
    held, names = risk.batches.held, [name for name, _ in risk.model.named_parameters()]
    if type(risk.loss) is not SquaredError or risk.group is not None or not held or [*risk.shapes] != names:
        return False
    return sum(len(batch.targets.flatten()) + _entries(batch.inputs) for batch in held) <= ENTRIES


def _entries(inputs: Any) -> float:
    """How many numbers a tensor holds; infinitely many for anything else, which is then too large."""
    return inputs.numel() if isinstance(inputs, Tensor) else math.inf


def _data(risk: Risk) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and the model's outputs, in float64 on the CPU."""
    batches = list(risk.batches)
    inputs = [batch.inputs for batch in batches if isinstance(batch.inputs, Tensor)]
    with torch.no_grad(), risk.numerics():
        outputs = [risk.outputs(risk.leaves(), batch) for batch in batches]
    x, y, z = (torch.cat(part).double().cpu() for part in (inputs, [batch.targets for batch in batches], outputs))
    return x, y, z


def _computes(outputs: Tensor | None, of_model: Tensor) -> bool:
    """Whether the formula gives the model's outputs; a hook in a layer, for example, would change them."""
    if outputs is None:
        return True
    gap = (outputs - of_model).abs().max() if outputs.shape == of_model.shape else math.inf
    return bool(gap <= TOLERANCE * of_model.abs().max())


def _formula(model: nn.Module, x: Tensor, y: Tensor, gauss_newton: bool) -> Known | None:
    """The closed form of a model that brings one, or of a network of layers for which theory has one."""
    own = getattr(model, "closed_form", None)
    if callable(own) and [*inspect.signature(own).parameters] == ["x", "y", "gauss_newton"]:
        form = own(x, y, gauss_newton=gauss_newton)
        return Known(type(model).__name__, form) if isinstance(form, ClosedForm) else None
    layers = list(model) if type(model) is nn.Sequential else []
    if x.ndim != 2 or y.ndim != 2:
        return None
    return _formula_of_layers(layers, x, y, gauss_newton)


def _formula_of_layers(layers: Sequence[nn.Module], x: Tensor, y: Tensor, gauss_newton: bool) -> Known | None:
    """The closed form of linear layers, at most the first with a bias; or of two with a ReLU between them."""
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    if len(linear) < 2 or any(layer.bias is not None for layer in linear[1:]):
        return None
    weights, x = _weights(linear, x)
    if len(linear) == len(layers):
        return _linear(weights, x, y, gauss_newton)
    if len(layers) == 3 and type(layers[1]) in (nn.ReLU, nn.LeakyReLU):
        return _rectified(weights, x, y, getattr(layers[1], "negative_slope", 0.0), gauss_newton)
    return None


def _weights(layers: Sequence[nn.Linear], x: Tensor) -> tuple[list[Tensor], Tensor]:
    """The weights of the layers and the inputs; a bias of the first is a weight of an input that is constantly one."""
    weights = [layer.weight.detach().double().cpu() for layer in layers]
    if layers and layers[0].bias is not None:
        weights[0] = torch.cat([weights[0], layers[0].bias.detach().double().cpu()[:, None]], 1)
        x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    return weights, x


def _linear(weights: list[Tensor], x: Tensor, y: Tensor, gauss_newton: bool) -> Known | None:
    sizes = [weights[0].shape[1], *(len(W) for W in weights)]
    outputs = x @ torch.linalg.multi_dot([W.T for W in weights])
    if len(weights) == 2:
        ends = sizes[0] + sizes[2]
        if ends * min(sizes[1], ends) > ROWS:
            return None
        W1, W2 = weights
        return Known(LINEAR, theory.two_layer_linear(W1, W2, x, y, gauss_newton=gauss_newton), outputs)
    if gauss_newton or sizes[-1] != 1:
        return Known(DEEP, theory.aligned_linear(weights, x, y, gauss_newton=gauss_newton), outputs)
    if sum(map(sum, pairwise(sizes))) > ROWS:
        return None
    spectra = theory.linear_spectra([W[None] for W in weights], x[None], y[None])
    lines = [Group(f"line {rank}", float(value)) for rank, value in enumerate(spectra.values[0].flip(0), 1)]
    return Known(DEEP, ClosedForm([*lines, Group("zero", 0.0, spectra.zeros)]), outputs)


def _rectified(weights: list[Tensor], x: Tensor, y: Tensor, slope: float, gauss_newton: bool) -> Known | None:
    W1, W2 = weights
    if len(W1) * (W1.shape[1] + len(W2)) > ROWS:
        return None
    form = theory.two_layer_relu(W1, W2, x, y, slope=slope, gauss_newton=gauss_newton)
    return Known(RECTIFIED, form, nn.functional.leaky_relu(x @ W1.T, slope) @ W2.T)
