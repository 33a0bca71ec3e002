"""The choice of layers that a class analysis looks at."""

from __future__ import annotations

from collections.abc import Sequence

from ...layers.capture import Layers
from ...layers.linear import LinearLayer, linear_layers
from ...risk import Risk
from .results import SHOWN, Results


def linear_layers_of(risk: Risk) -> tuple[list[LinearLayer], list[str]]:
    """The linear layers and convolutions of θ; none, with a reason, if they cannot be recognised."""
    results = Results()
    purpose = "The class structure of layers"
    linear = results.attempt("Layers", lambda: linear_layers(_layers(results, risk), purpose)) or {}
    if len(linear) > SHOWN:
        results.notes.append(f"Of {len(linear)} layers, {SHOWN} are shown, evenly spaced.")
    return list(linear.values()), results.notes


def _layers(results: Results, risk: Risk) -> Layers:
    """The layers of θ, leaving out parameters that enter in another way, such as position encodings."""
    layers = Layers.of(risk)
    inside = [name for name in risk.shapes if name not in layers.others]
    if not layers.others or not inside:
        return layers
    left_out = ", ".join(name for name in risk.shapes if name in layers.others)
    results.notes.append(f"Layers: {left_out} left out, because they enter through no layer that can be captured.")
    return Layers.of(risk.restricted_to(inside))


def names(layers: Sequence[LinearLayer]) -> list[str]:
    """The parameters of some layers."""
    return [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
