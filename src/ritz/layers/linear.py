"""Linear layers and convolutions: the rows of features and of errors of each, in pieces that fit into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ModelError
from ..risk.batches import Batch
from ..risk.risk import Risk
from .capture import Layers, Pass, Use

COLUMNS = 8  # cotangents that are sent back together: enough to fill a GPU
COPIES = 3  # of the rows of a piece: in the risk's precision, in float64, and weighted


@dataclass(frozen=True)
class Affine:
    """A linear layer or convolution W h + b: its parameters in θ, and the shape of what it sees and returns.

    Positions are those of one example in all uses of the layer: pixels, tokens, steps. In class statistics and in
    Kronecker factors each is a row of its own.
    """

    name: str
    weight: str | None  # names in θ
    bias: str | None
    inputs: int  # d, the length of h; for a convolution, of a patch
    outputs: int  # o
    positions: int  # T, as seen on the first examples
    groups: int

    def features(self, passed: Pass) -> Float[Tensor, "N T d"]:
        """h at all positions, in float64."""
        return torch.cat([use.features().double() for use in self._uses(passed)], 1)

    def errors(self, passed: Pass, errors: list[Tensor]) -> Float[Tensor, "r N T o"]:
        """δ at all positions, in float64: a network that is sure has errors whose squares are too small for float32."""
        chosen = [e.double() for use, e in zip(passed.uses, errors, strict=True) if self._key == _key(use)]
        return torch.cat(chosen, 2)

    def _uses(self, passed: Pass) -> list[Use]:
        return [use for use in passed.uses if self._key == _key(use)]

    @property
    def _key(self) -> tuple[str | None, str | None]:
        return self.weight, self.bias


def affine_layers(known: Layers, purpose: str) -> dict[str, Affine]:
    """The linear layers and convolutions of θ, in the order of their use, by the names of their modules."""
    known.check_complete(purpose)
    found: dict[tuple[str | None, str | None], list[Use]] = {}
    for use in known.uses:
        if use.kind == "linear":
            found.setdefault(_key(use), []).append(use)
    if not found:
        raise ModelError(
            "No linear layer and no convolution has parameters in θ.",
            f"{purpose} is made of what such layers see.",
            "Choose others: Risk(..., parameters=...), or risk.restricted_to(...) of a risk that has some.",
        )
    shared = {name for name, count in Counter(uses[0].layer for uses in found.values()).items() if count > 1}
    layers = [_affine(uses, shared) for uses in found.values()]
    return {layer.name: layer for layer in layers}


def _affine(uses: list[Use], shared: set[str]) -> Affine:
    first = uses[0]
    name = (first.weight or first.bias or "") if first.layer in shared else first.layer
    h = first.features()
    outputs = first.layout(first.inputs.new_zeros(first.shape)).shape[-1]
    positions = sum(use.shape.numel() for use in uses) // (len(h) * outputs)
    return Affine(name, first.weight, first.bias, h.shape[-1], outputs, positions, first.groups)


def _key(use: Use) -> tuple[str | None, str | None]:
    return (use.weight, use.bias) if use.kind == "linear" else ("", "")


def pieces(known: Layers, layers: Iterable[Affine], label: str) -> Iterator[tuple[Batch, Pass]]:
    """All data, a pass over as many examples at a time as fit into memory with the rows of every layer."""
    risk = known.risk
    count = max(1, int(risk.memory / 4 / max(1.0, _bytes(layers))))
    with progress.bar(label, total=risk.num_examples) as bar:
        for batch in risk.batches:
            for first in range(0, len(batch), count):
                piece = batch.rows(slice(first, first + count)) if len(batch) > count else batch
                yield piece, known.passed(piece)
                bar.advance(len(piece))


def _bytes(layers: Iterable[Affine]) -> float:
    """What the rows of one example take: the features of the widest layer, the errors of all."""
    features = max((layer.positions * layer.inputs for layer in layers), default=0)
    errors = sum(layer.positions * layer.outputs for layer in layers)
    return 8.0 * COPIES * (features + COLUMNS * errors)


def columns(risk: Risk, passed: Pass, cotangents: Float[Tensor, "r ..."]) -> Iterator[tuple[slice, list[Tensor]]]:
    """The errors of all uses for a few of the cotangents at a time, and which these are."""
    for first in range(0, len(cotangents), COLUMNS):
        part = slice(first, min(first + COLUMNS, len(cotangents)))
        with risk.numerics():
            yield part, passed.errors(cotangents[part])


def check_ungrouped(layers: Iterable[Affine], purpose: str) -> None:
    """Refuse convolutions in groups, whose weight is several matrices."""
    grouped = [layer.name for layer in layers if layer.groups > 1]
    if grouped:
        raise ModelError(
            f"These convolutions have groups: {', '.join(grouped)}.",
            f"{purpose} takes the weight as one matrix, and here it is one for each group.",
            "Leave them out: risk.restricted_to(...) with globs that match the other parameters.",
        )


def check_own(known: Layers, layers: Iterable[Affine], purpose: str) -> None:
    """Refuse parameters that enter in several kinds of layers, such as embeddings tied to the outputs."""
    pairs = {(use.kind, use.weight, use.bias) for use in known.uses}
    counts = Counter(name for _, *names in pairs for name in names if name is not None)
    tied = [n for layer in layers for n in (layer.weight, layer.bias) if n is not None and counts[n] > 1]
    if tied:
        raise ModelError(
            f"These parameters enter in layers of several kinds: {', '.join(sorted(set(tied)))}.",
            f"{purpose} takes a parameter from one layer, with one bias, however often that is used.",
            "Leave them out: risk.restricted_to(...) with globs that match the other parameters.",
        )
