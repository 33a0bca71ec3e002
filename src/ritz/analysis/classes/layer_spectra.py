"""Spectra of the features, errors or weights of layers, before their class means are knocked out, then after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ... import classes
from ...classes.knockouts import project
from ...classes.layers.error_structure import ErrorStructure
from ...classes.layers.feature_structure import FeatureStructure
from ...classes.layers.weight_structure import WeightStructure
from ...layers.linear import LinearLayer
from ...operators import Operator, low_rank
from ...risk import Risk
from .layer_choice import names
from .results import Results

TOP, TOP_WEIGHTS = 750, 150  # values that are kept: Papyan (2020), Figs. 7 and 13
Curves = dict[str, Float[Tensor, " k"]]


def measure(
    results: Results, risk: Risk, layers: list[LinearLayer], exact_rows: int, weight_decay: float | None
) -> None:
    """The class structure of features, of errors and, with a weight decay, of weights."""
    if not layers:
        return
    fitting = partial(results.fitting, layers=layers, limit=exact_rows)
    fit = fitting("Features", width=lambda layer: layer.inputs)
    for name, Phi in _structures(results, "Features", classes.features, risk, fit).items():
        results.add(
            "features", name, _features(Phi), class_part_of_features=_part(Phi.between_class, Phi.second_moment)
        )
    fit = fitting("Errors", width=lambda layer: layer.outputs)
    for name, D in _structures(results, "Errors", classes.backpropagated_errors, risk, fit).items():
        results.add("errors", name, _errors(D), class_part_of_errors=_part(D.between_class, D.second_moment))
    if weight_decay is None:
        results.notes.append(
            "Weights: left out, because their structure needs the weight decay of the training: give weight_decay "
            "(--weight-decay)."
        )
        return
    plain = results.plain("Weights", layers)
    fit = results.fitting("Weights", plain, lambda layer: min(layer.inputs, layer.outputs), exact_rows)
    measured = partial(classes.weights, weight_decay=weight_decay)
    for name, W in _structures(results, "Weights", measured, risk, fit).items():
        results.add("weights", name, _weights(W), weight_residual=W.residual)


def _structures(
    results: Results, what: str, structures: Callable[[Risk], dict[str, Any]], risk: Risk, layers: list[LinearLayer]
) -> Mapping[str, Any]:
    """The structures of the given layers; what is kept of the others might not fit into memory."""
    if not layers:
        return {}
    return results.attempt(what, lambda: structures(risk.restricted_to(names(layers)))) or {}


def _features(Phi: FeatureStructure) -> Curves:
    return {
        "whole": _eigenvalues(Phi.second_moment),
        "class": _low_rank_eigenvalues(Phi.between_class),
        "off_class": _eigenvalues(project(Phi.second_moment, Phi.between_class)),
    }


def _errors(D: ErrorStructure) -> Curves:
    means = low_rank(torch.cat([_factor(D.between_class), _factor(D.cross_class)], 1))
    return {
        "whole": _eigenvalues(D.second_moment),
        "class": _low_rank_eigenvalues(D.between_class),
        "class_and_cross": _low_rank_eigenvalues(means),
        "off_class": _eigenvalues(project(D.second_moment, D.between_class)),
        "off_class_and_cross": _eigenvalues(project(D.second_moment, means)),
    }


def _weights(W: WeightStructure) -> Curves:
    """Singular values; the projection takes columns and rows of W_class out."""
    left = project(W.weight, W.between_class)
    return {
        "whole": torch.linalg.svdvals(W.weight)[:TOP_WEIGHTS],
        "off_class": torch.linalg.svdvals(left)[:TOP_WEIGHTS],
    }


def _eigenvalues(A: Operator) -> Float[Tensor, " k"]:
    return torch.linalg.eigvalsh(A.dense()).flip(0)[:TOP].clamp(min=0)


def _low_rank_eigenvalues(A: Operator) -> Float[Tensor, " k"]:
    return torch.linalg.svdvals(_factor(A)).square()[: min(TOP, A.size)]


def _factor(A: Operator) -> Float[Tensor, "n r"]:
    assert A.factor is not None  # class means are held
    return A.factor


def _part(A: Operator, whole: Operator) -> float:
    """tr A / tr whole."""
    total = float(whole.dense().trace())
    return float(_factor(A).square().sum()) / total if total > 0 else 0.0
