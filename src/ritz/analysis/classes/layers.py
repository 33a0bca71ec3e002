"""Which layers are looked at, and the place where everything that was found of them is gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor

from ...errors import RitzError
from ...layers.capture import Layers, layers
from ...layers.linear import Affine, affine_layers
from ...risk.risk import Risk

SHOWN = 8  # panels that a page has room for: as many layers as the networks of Papyan (2020), Sec. 7, have
Result = TypeVar("Result")


@dataclass
class Measured:
    """Numbers by layer, arrays by "kind/layer/curve", and a sentence for everything that was left out."""

    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrays: dict[str, Float[Tensor, "..."]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, layer: str, curves: dict[str, Tensor], **scalars: Any) -> None:
        """Note the curves and numbers of one layer."""
        self.arrays |= {f"{kind}/{layer}/{name}": values for name, values in curves.items()}
        self.layers.setdefault(layer, {}).update(scalars)

    def attempted(self, what: str, run: Callable[[], Result]) -> Result | None:
        """What `run` returns; where it refuses, None and a note that says why."""
        try:
            return run()
        except RitzError as error:
            self.notes.append(f"{what}: left out. {error.seen} {error.why}")
            return None

    def ungrouped(self, what: str, layers: list[Affine]) -> list[Affine]:
        """The layers whose weight is one matrix; the others are noted."""
        grouped = ", ".join(layer.name for layer in layers if layer.groups > 1)
        if grouped:
            self.notes.append(f"{what}: left out in {grouped}, whose weights are a matrix for each group.")
        return [layer for layer in layers if layer.groups == 1]

    def fitting(self, what: str, layers: list[Affine], width: Callable[[Affine], int], limit: int) -> list[Affine]:
        """The layers, 8 at most, whose matrices may be decomposed; the others are noted."""
        wide = [layer for layer in layers if width(layer) > limit]
        if wide:
            told = ", ".join(f"{layer.name} ({width(layer):,})" for layer in wide)
            self.notes.append(
                f"{what}: left out in {told}, for matrices of more than {limit:,} rows are not decomposed; "
                "raise exact_rows (--exact-rows) to have them."
            )
        return spaced([layer for layer in layers if layer not in wide])


def affine(risk: Risk) -> tuple[list[Affine], list[str]]:
    """The linear layers and convolutions of θ; none, and why, where they cannot be told."""
    found = Measured()
    known = found.attempted("Layers", lambda: affine_layers(_captured(found, risk), "The class structure of layers"))
    chosen = list((known or {}).values())
    if len(chosen) > SHOWN:
        found.notes.append(f"Of {len(chosen)} layers, {SHOWN} are shown, evenly spaced.")
    return chosen, found.notes


def _captured(found: Measured, risk: Risk) -> Layers:
    """The layers of θ without the parameters that enter in another way, such as encodings of positions."""
    known = layers(risk)
    inside = [name for name in risk.shapes if name not in known.others]
    if not known.others or not inside:
        return known
    told = ", ".join(name for name in risk.shapes if name in known.others)
    found.notes.append(f"Layers: {told} left out, for they enter through no layer that can be captured.")
    return layers(risk.restricted_to(inside))


def spaced(items: Sequence[Result]) -> list[Result]:
    """All items up to 8; of more, 8 that are evenly spaced, the first and the last among them."""
    count = len(items)
    if count <= SHOWN:
        return list(items)
    return [items[round(index * (count - 1) / (SHOWN - 1))] for index in range(SHOWN)]


def names(layers: Sequence[Affine]) -> list[str]:
    """The parameters of some layers."""
    return [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
