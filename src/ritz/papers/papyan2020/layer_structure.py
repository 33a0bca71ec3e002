"""Features, backpropagated errors and weights of every layer of one trained MLP, with and without their class means."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import classes
from ...classes import project
from ...classes.layers.error_structure import ErrorStructure
from ...classes.layers.feature_structure import FeatureStructure
from ...classes.layers.weight_structure import WeightStructure
from ...operators import Operator, low_rank
from ...risk import Risk
from .networks import Place
from .setting import NUM_CLASSES, Piece, check_ten_classes, examples
from .spectra import risk_of

C = NUM_CLASSES
TOP, TOP_WEIGHTS = 750, 150  # captions of Figs 7, 9 and 13
_BATCH, _RIDGE = 5000, 1e-6  # examples at a time, and what is added to the second moment, of its mean eigenvalue


@dataclass(frozen=True)
class Layers:
    """All layers of a trained network, over its training examples or some of them."""

    piece: Piece
    num_examples: int | None = None


def weights_risk(measurement: Layers, place: Place) -> tuple[Risk, str]:
    """The risk with the weight matrices of all linear layers for θ: the paper's layers have no other parameters."""
    check_ten_classes(piece := measurement.piece)
    risk, identity = risk_of(piece, piece.num_epochs, "train", place, num_examples=measurement.num_examples)
    modules = dict(risk.model.named_modules())
    names = [f"{name}.weight" for name, module in modules.items() if isinstance(module, nn.Linear)]
    return risk.restricted_to(names), identity


def structure(measurement: Layers, *, place: Place) -> dict[str, Any]:
    """The eigenvalues of all layers' features, errors and weights, before and after their class means are taken out."""
    start = time.perf_counter()
    risk, identity = weights_risk(measurement, place)
    result: dict[str, Any] = {}
    for layer, Phi in enumerate(classes.features(risk).values(), 1):
        result |= {f"features/{layer}/{name}": values for name, values in _features(Phi).items()}
    for layer, D in enumerate(classes.backpropagated_errors(risk).values(), 1):
        result |= {f"errors/{layer}/{name}": values for name, values in _errors(D).items()}
    for layer, error in enumerate(linear_errors(measurement, risk.model, place), 1):
        result[f"features/{layer}/linear_error"] = error
    decay = measurement.piece.training.weight_decay
    for layer, W in enumerate(classes.weights(risk, decay).values(), 1):
        result |= {f"weights/{layer}/{name}": values for name, values in _weights(W).items()}
    return result | {"identity": identity, "seconds_of_structure": time.perf_counter() - start}


def _features(Phi: FeatureStructure) -> dict[str, Any]:
    values, vectors = torch.linalg.eigh(Phi.second_moment.dense())
    mean = Phi.global_mean / Phi.global_mean.norm().clamp(min=1e-300)
    return {
        "whole": _top(values),
        "class": _squares(Phi.between_class),
        "within": _eigenvalues(Phi.within)[:C],
        "off_class": _eigenvalues(project(Phi.second_moment, Phi.between_class)),
        "global_alignment": float((vectors[:, -1] @ mean).square()),
        "global_size": float(Phi.global_mean.square().sum()),
        "mean_cosine": _mean_cosine(Phi.class_means),
    }


def _mean_cosine(means: Tensor) -> float:
    """The mean |cos| of the angles between the means of two classes: 0 where they are orthogonal."""
    unit = means / means.norm(dim=1, keepdim=True).clamp(min=1e-300)
    others = ~torch.eye(len(means), dtype=torch.bool, device=means.device)
    return float((unit @ unit.T).abs()[others].mean())


def linear_errors(measurement: Layers, model: nn.Module, place: Place) -> list[float]:
    """The test error of a linear least-squares classifier on the inputs of each layer: how separable they are."""
    piece, folder, device = measurement.piece, place.data_dir, place.device
    train = examples(piece, "train", folder, device, num_examples=measurement.num_examples)
    test = examples(piece, "test", folder, device)
    moments: list[tuple[Tensor, Tensor]] = []
    for x, y in zip(train.x.split(_BATCH), train.y.split(_BATCH), strict=True):
        hot = torch.eye(C, dtype=torch.float64, device=y.device)[y]
        own = [(phi.T @ phi, phi.T @ hot) for phi in _entering(model, x)]
        moments = own if not moments else [(A + a, B + b) for (A, B), (a, b) in zip(moments, own, strict=True)]
    maps = [torch.linalg.solve(A + _RIDGE * A.trace() / len(A) * torch.eye(len(A)).to(A), B) for A, B in moments]
    wrong = torch.zeros(len(maps))
    for x, y in zip(test.x.split(_BATCH), test.y.split(_BATCH), strict=True):
        guesses = [(phi @ W).argmax(1) for phi, W in zip(_entering(model, x), maps, strict=True)]
        wrong += torch.stack([(guess != y).sum() for guess in guesses]).cpu()
    return (wrong / len(test.y)).tolist()


def _entering(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The inputs of every linear layer, with a one for the bias, in float64."""
    seen: list[Tensor] = []
    keep = lambda module, inputs: seen.append(F.pad(inputs[0].double(), (0, 1), value=1.0))
    hooks = [m.register_forward_pre_hook(keep) for m in model.modules() if isinstance(m, nn.Linear)]
    try:
        with torch.no_grad():
            model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _errors(D: ErrorStructure) -> dict[str, Any]:
    means = low_rank(torch.cat([_factor(D.between_class), _factor(D.cross_class)], 1))
    values, vectors = torch.linalg.eigh(D.second_moment.dense())
    mean = D.global_mean / D.global_mean.norm().clamp(min=1e-300)
    return {
        "whole": _top(values),
        "class": _squares(D.between_class),
        "class_and_cross": _squares(means),
        "within": _eigenvalues(D.within)[:C],
        "off_class": _eigenvalues(project(D.second_moment, D.between_class)),
        "off_class_and_cross": _eigenvalues(project(D.second_moment, means)),
        "global_alignment": float((vectors[:, -1] @ mean).square()),
    }


def _weights(W: WeightStructure) -> dict[str, Any]:
    return {
        "whole": _singular_values(W.weight)[:TOP_WEIGHTS],
        "off_class": _singular_values(project(W.weight, W.between_class))[:TOP_WEIGHTS],
        "class": _singular_values(W.between_class)[:C],
        "residual": W.residual,
    }


def _singular_values(A: Tensor) -> Tensor:
    """Singular values from the smaller Gram matrix: small ones may be inaccurate, but CUDA's SVD may take minutes."""
    A = (A if A.shape[0] <= A.shape[1] else A.T).double()
    return torch.linalg.eigvalsh(A @ A.T).flip(0).clamp(min=0).sqrt().cpu()


def _top(values: Tensor) -> Tensor:
    return values.flip(0)[:TOP].clamp(min=0).cpu()


def _eigenvalues(A: Operator) -> Tensor:
    return _top(torch.linalg.eigvalsh(A.dense()))


def _squares(A: Operator) -> Tensor:
    return torch.linalg.svdvals(_factor(A)).square()[:TOP].cpu()


def _factor(A: Operator) -> Tensor:
    assert A.factor is not None  # class means are held
    return A.factor
