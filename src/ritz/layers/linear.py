"""Linear layers, convolutions included: their features φ and errors δ, in pieces that fit into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from .. import progress
from ..errors import ModelError
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.losses.loss import class_rows
from .capture import Forward, Layers
from .uses import Use

COLUMNS = {"cuda": 8}  # cotangents that are sent back together, to fill a GPU; one elsewhere, for less memory
USUAL = ("weight", "bias", "in_proj_weight", "in_proj_bias")  # names of parameters that their module stands for
COPIES = 3  # of the rows of a piece: in the risk's precision, in float64, and weighted


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer or convolution W φ + b: its parameters in θ, and the shape of what it sees and returns.

    Positions are pixels, tokens or steps of one example, over all uses of the layer. In class statistics and in
    Kronecker factors each of them is a row of its own.
    """

    name: str
    weight: str | None  # names in θ
    bias: str | None
    inputs: int  # d, the length of φ; for a convolution, that of a patch
    outputs: int  # o
    positions: int  # T, as seen on the first examples
    groups: int
    tied: bool  # whether one of its parameters is used by another kind of layer, too

    def features(self, forward: Forward) -> Float[Tensor, "N T d"]:
        """φ at all positions, in float64."""
        return torch.cat([use.features().double() for use in self._uses(forward)], 1)

    def errors(self, forward: Forward, errors: list[Tensor]) -> Float[Tensor, "r N T o"]:
        """δ at all positions, in float64: where a network is sure, squares of errors underflow in float32."""
        own = [e.double() for use, e in zip(forward.uses, errors, strict=True) if self._key == _key(use)]
        return torch.cat(own, 2)

    def returns_terms(self, forward: Forward, class_dim: int) -> bool:
        """Whether what it returns is what the model returns, the channels of a position being the outputs of a term."""
        uses, z = self._uses(forward), forward.z
        if len(uses) != 1 or z.ndim < 2 or uses[0].edge != get_gradient_edge(z):
            return False
        places = torch.arange(z.numel(), device=z.device).view(z.shape)
        return torch.equal(uses[0].layout(places).flatten(0, 1), class_rows(places, class_dim))

    def _uses(self, forward: Forward) -> list[Use]:
        return [use for use in forward.uses if self._key == _key(use)]

    @property
    def _key(self) -> tuple[str | None, str | None]:
        return self.weight, self.bias


def linear_layers(layers: Layers, purpose: str, unfit: Collection[str] = ()) -> dict[str, LinearLayer]:
    """The linear layers and convolutions of θ, in the order of their use, by the names of their modules.

    A refusal says how to leave out what it names, and with it what is `unfit` for the purpose.
    """
    layers.check_complete(purpose, unfit)
    groups: dict[tuple[str | None, str | None], list[Use]] = {}
    for use in layers.uses:
        if use.kind == "linear":
            groups.setdefault(_key(use), []).append(use)
    if not groups:
        raise ModelError(
            "No linear layer and no convolution has parameters in θ.",
            f"{purpose} is made of what such layers see.",
            "Choose other parameters: Risk(..., parameters=...), or risk.restricted_to(...) of a risk that has some.",
        )
    several, linear = tied(layers), dict[str, LinearLayer]()
    for uses in groups.values():
        name = _name(uses[0], linear)
        linear[name] = _linear_layer(name, uses, bool(uses[0].names & several))
    return linear


def _name(use: Use, taken: Collection[str]) -> str:
    """The module's where the parameter has the usual name in it, else the parameter's, else both parameters'.

    It does not depend on what else is in θ, but where one weight is used with several biases.
    """
    names = [name for name in (use.weight, use.bias) if name is not None]
    module, _, own = names[0].rpartition(".")
    usual = module if own in USUAL else names[0]
    return usual if usual not in taken else " + ".join(names)


def _linear_layer(name: str, uses: list[Use], is_tied: bool) -> LinearLayer:
    first = uses[0]
    features = first.features()
    outputs = first.layout(first.inputs.new_zeros(first.shape)).shape[-1]
    positions = sum(use.shape.numel() for use in uses) // (len(features) * outputs)
    return LinearLayer(name, first.weight, first.bias, features.shape[-1], outputs, positions, first.groups, is_tied)


def _key(use: Use) -> tuple[str | None, str | None]:
    return (use.weight, use.bias) if use.kind == "linear" else ("", "")


def pieces(
    layers: Layers, linear: Iterable[LinearLayer], label: str, further: float = 0.0
) -> Iterator[tuple[Batch, Forward]]:
    """All data, as many examples at a time as fit into memory with the rows of every layer, and further bytes each."""
    risk = layers.risk
    count = max(1, int(risk.memory / 4 / max(1.0, _bytes(linear, _num_columns(risk)) + further)))
    with progress.bar(label, total=risk.num_examples) as bar:
        for batch in risk.batches:
            for first in range(0, len(batch), count):
                piece = batch.rows(slice(first, first + count)) if len(batch) > count else batch
                yield piece, layers.forward(piece)
                bar.advance(len(piece))


def _num_columns(risk: Risk) -> int:
    """How many cotangents are sent back together."""
    return COLUMNS.get(risk.device.type, 1)


def _bytes(linear: Iterable[LinearLayer], columns: int) -> float:
    """The bytes of one example's rows: the features of the widest layer, and the errors of all layers."""
    features = max((layer.positions * layer.inputs for layer in linear), default=0)
    errors = sum(layer.positions * layer.outputs for layer in linear)
    return 8.0 * COPIES * (features + columns * errors)


def columns(risk: Risk, forward: Forward, cotangents: Float[Tensor, "r ..."]) -> Iterator[tuple[slice, list[Tensor]]]:
    """The errors of all uses, a few of the cotangents at a time, with the slice of these cotangents."""
    step = _num_columns(risk)
    for first in range(0, len(cotangents), step):
        part = slice(first, min(first + step, len(cotangents)))
        with risk.numerics():
            errors = forward.errors(cotangents[part])
        yield part, errors


def grouped(layers: Layers) -> set[str]:
    """The parameters of convolutions in groups."""
    return {name for use in layers.uses if use.groups > 1 for name in use.names}


def tied(layers: Layers) -> set[str]:
    """The parameters that are used by several kinds of layers, such as embeddings tied to the output layer."""
    pairs = {(use.kind, use.weight, use.bias) for use in layers.uses}
    counts = Counter(name for _, *names in pairs for name in names if name is not None)
    return {name for name, count in counts.items() if count > 1}


def check_ungrouped(layers: Layers, linear: Iterable[LinearLayer], purpose: str) -> None:
    """Refuse convolutions in groups, whose weight is several matrices."""
    names = [layer.name for layer in linear if layer.groups > 1]
    if names:
        raise ModelError(
            f"These convolutions have groups: {', '.join(names)}.",
            f"{purpose} takes the weight as one matrix, and such a convolution has one for each group.",
            layers.without(grouped(layers) | tied(layers)),
        )


def check_own(layers: Layers, linear: Iterable[LinearLayer], purpose: str) -> None:
    """Refuse parameters of linear layers that are used by several kinds of layers."""
    several = tied(layers)
    names = {name for layer in linear if layer.tied for name in (layer.weight, layer.bias) if name in several}
    if names:
        raise ModelError(
            f"These parameters enter in layers of several kinds: {', '.join(sorted(map(str, names)))}.",
            f"{purpose} needs each parameter to belong to one layer, with one bias, however often that layer is used.",
            layers.without(several),
        )
