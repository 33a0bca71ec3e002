"""Second moments of what layers see and of what comes back to them: the factors of Kronecker-factored curvature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ModelError
from ..layers.capture import Layers, Pass, layers
from ..layers.linear import Affine, affine_layers, check_own, check_ungrouped, columns, pieces
from ..layers.rows import cotangents
from ..risk.batches import Batch
from ..risk.losses import CrossEntropy, Loss
from ..risk.memory import check_memory
from ..risk.risk import Risk


class Factors:
    """Second moments of features and errors, for each group of examples, added up piece by piece."""

    def __init__(self, risk: Risk, groups: int, outputs: int, inputs: int) -> None:
        self.bytes = 8.0 * groups * (outputs**2 + inputs**2)
        self.shape, self.device = (groups, outputs, inputs), risk.device
        self._sums: list[Tensor] | None = None

    @property
    def sums(self) -> list[Tensor]:
        """Σ a over examples and over positions, Σ δδᵀ and Σ a hhᵀ; allocated when it is sure that they fit."""
        if self._sums is None:
            g, o, d = self.shape
            shapes = (g,), (g,), (g, o, o), (g, d, d)
            self._sums = [torch.zeros(shape, dtype=torch.float64, device=self.device) for shape in shapes]
        return self._sums

    def add_features(self, h: Float[Tensor, "N T d"], masses: Float[Tensor, " N"], groups: Int[Tensor, " N"]) -> None:
        examples, positions, _, total = self.sums
        examples.index_add_(0, groups, masses)
        positions.index_add_(0, groups, masses * h.shape[1])
        weighted = h * masses.sqrt()[:, None, None]
        for g in groups.unique().tolist():
            X = weighted[groups == g].flatten(0, 1)
            total[g].addmm_(X.T, X)

    def add_errors(self, delta: Float[Tensor, "r N T o"], groups: Int[Tensor, " N"]) -> None:
        for g in groups.unique().tolist():
            X = delta[:, groups == g].flatten(0, 2)
            self.sums[2][g].addmm_(X.T, X)

    def means(self, risk: Risk) -> tuple[Tensor, Tensor, Tensor]:
        """π_c, Δ_c and H_c; zero for a class without examples. The sums are used up: two copies of them may not fit."""
        examples, positions, errors, features = (risk.reduced(total) for total in self.sums)
        weights = examples / examples.sum()
        inverse = lambda scale: torch.where(scale > 0, 1 / scale, 0.0)[:, None, None]
        return weights, errors.mul_(inverse(weights * risk.total_weight)), features.mul_(inverse(positions))


def linear_layers(risk: Risk) -> tuple[Layers, list[Affine]]:
    """The layers of θ, all of them linear."""
    purpose, known = "A Kronecker factorisation", layers(risk)
    chosen = list(affine_layers(known, purpose).values())
    others = sorted({f"{use.layer} ({use.kind})" for use in known.uses if use.kind != "linear"})
    if others:
        raise ModelError(
            f"These layers are not linear: {', '.join(others)}.",
            f"{purpose} is that of the weight matrices of linear layers and convolutions.",
            "Leave them out: risk.restricted_to(...) with globs that match the other parameters.",
        )
    check_ungrouped(chosen, purpose)
    check_own(known, chosen, purpose)
    return known, chosen


def passes(known: Layers, chosen: list[Affine], groups: int) -> Iterator[tuple[Batch, Pass, Tensor, Tensor]]:
    """All data in pieces, with the weight and the group of every example."""
    for batch, passed in pieces(known, chosen, "Kronecker factors"):
        masses = _masses(known.risk.loss, passed.z.detach(), batch)
        labels = torch.zeros(len(batch), dtype=torch.long, device=masses.device)
        if groups > 1:
            labels = batch.targets.long().masked_fill(masses == 0, 0)
        yield batch, passed, masses, labels


def _masses(loss: Loss, z: Tensor, batch: Batch) -> Float[Tensor, " N"]:
    """How much an example counts: the masses of its terms."""
    found = loss.masses(z, batch.targets) if isinstance(loss, CrossEntropy) else loss.weights(z, batch.targets)
    return found.double().reshape(len(batch), -1).sum(1)


def errors_of(risk: Risk, batch: Batch, passed: Pass) -> Iterator[list[Tensor]]:
    """The errors of every use for all columns of the loss's square root, a few at a time."""
    z = passed.z.detach()
    for U in cotangents(risk.loss, z, risk.loss.square_root(z, batch.targets)):
        for _, errors in columns(risk, passed, U):
            yield errors


def features_of(layer: Affine, passed: Pass) -> Float[Tensor, "N T d"]:
    """What the columns of [W b] are multiplied with: h and one, as far as θ has weight and bias."""
    h = layer.features(passed)
    parts = [h] if layer.weight is not None else []
    return torch.cat([*parts, torch.ones_like(h[..., :1])] if layer.bias is not None else parts, -1)


def width(layer: Affine) -> int:
    """How many columns [W b] has."""
    return layer.inputs * (layer.weight is not None) + (layer.bias is not None)


def check_size(risk: Risk, factors: Iterable[Factors]) -> None:
    """Refuse factors that take more than the risk's memory, before any is allocated."""
    check_memory(sum(found.bytes for found in factors), risk.memory, "The Kronecker factors")
