"""Second moments Φ of features and Δ of errors, layer by layer: the factors of Kronecker-factored curvature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..engine.curvatures import Samples
from ..errors import ModelError
from ..layers.capture import Forward, Layers
from ..layers.jacobian_rows import cotangents
from ..layers.linear import LinearLayer, check_own, check_ungrouped, columns, grouped, linear_layers, pieces, tied
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.losses import Loss
from ..risk.memory import check_memory

ROOTS = 3  # copies of the loss's square root while it is computed


class SecondMoments:
    """Second moments of features and errors, for each group of examples, added up piece by piece."""

    def __init__(self, risk: Risk, groups: int, outputs: int, inputs: int) -> None:
        self.bytes = 8.0 * groups * (outputs**2 + inputs**2)
        self.shape, self.device = (groups, outputs, inputs), risk.device
        self._sums: list[Tensor] | None = None

    @property
    def sums(self) -> list[Tensor]:
        """Σ a over examples and over positions, Σ δδᵀ and Σ a φφᵀ; allocated when it is sure that they fit."""
        if self._sums is None:
            g, o, d = self.shape
            shapes = (g,), (g,), (g, o, o), (g, d, d)
            self._sums = [torch.zeros(shape, dtype=torch.float64, device=self.device) for shape in shapes]
        return self._sums

    def add_features(self, phi: Float[Tensor, "N T d"], masses: Float[Tensor, " N"], groups: Int[Tensor, " N"]) -> None:
        examples, positions, _, total = self.sums
        examples.index_add_(0, groups, masses)
        positions.index_add_(0, groups, masses * phi.shape[1])
        weighted = phi * masses.sqrt()[:, None, None]
        for g in groups.unique().tolist():
            X = weighted[groups == g].flatten(0, 1)
            total[g].addmm_(X.T, X)

    def add_errors(self, delta: Float[Tensor, "r N T o"], groups: Int[Tensor, " N"]) -> None:
        for g in groups.unique().tolist():
            X = delta[:, groups == g].flatten(0, 2)
            self.sums[2][g].addmm_(X.T, X)

    def add_hessians(self, loss: Loss, z: Tensor, y: Tensor, groups: Int[Tensor, " N"]) -> None:
        """Add the errors of a layer whose outputs are the model's: Σ δδᵀ is the Hessian of the loss, term by term."""
        for g in groups.unique().tolist():
            self.sums[2][g] += loss.total_hessian(z[groups == g], y[groups == g])

    def means(self, risk: Risk) -> tuple[Tensor, Tensor, Tensor]:
        """π_c, Δ_c and Φ_c; zero for a class without examples. The sums are overwritten: a copy may not fit."""
        examples, positions, errors, features = (risk.sum_over_ranks(total) for total in self.sums)
        weights = examples / examples.sum()
        inverse = lambda scale: torch.where(scale > 0, 1 / scale, 0.0)[:, None, None]
        return weights, errors.mul_(inverse(weights * risk.total_weight)), features.mul_(inverse(positions))


def factored_layers(risk: Risk) -> tuple[Layers, list[LinearLayer]]:
    """The layers of θ; refuses layers that are not linear."""
    purpose, layers = "A Kronecker factorisation", Layers.of(risk)
    scales = [use for use in layers.uses if use.kind != "linear"]
    unfit = {name for use in scales for name in use.names} | grouped(layers) | tied(layers)
    linear = list(linear_layers(layers, purpose, unfit).values())
    if scales:
        raise ModelError(
            f"These layers are not linear: {', '.join(sorted({f'{use.layer} ({use.kind})' for use in scales}))}.",
            f"{purpose} can be computed only for the weight matrices of linear layers and convolutions.",
            layers.without(unfit),
        )
    check_ungrouped(layers, linear, purpose)
    check_own(layers, linear, purpose)
    return layers, linear


def passes(
    layers: Layers, linear: list[LinearLayer], groups: int, samples: Samples | None = None, further: float = 0.0
) -> Iterator[tuple[Batch, Forward, Tensor, Tensor]]:
    """All data in pieces, with the weight and the group of every example, which takes further bytes."""
    root = _root_bytes(layers.risk) if samples is None else 0.0
    for batch, forward in pieces(layers, linear, "Kronecker factors", root + further):
        masses = _masses(layers.risk.loss, forward.z.detach(), batch)
        labels = torch.zeros(len(batch), dtype=torch.long, device=masses.device)
        if groups > 1:
            labels = batch.targets.long().masked_fill(masses == 0, 0)
        yield batch, forward, masses, labels


def _root_bytes(risk: Risk) -> float:
    """The bytes of the loss's square root for one example, and of what it is made of."""
    terms = risk.num_targets / risk.num_examples
    return ROOTS * terms * risk.num_classes**2 * risk.theta.element_size()


def _masses(loss: Loss, z: Tensor, batch: Batch) -> Float[Tensor, " N"]:
    """The weights of examples: the masses of their terms."""
    masses = loss.masses(z, batch.targets)
    return masses.double().reshape(len(batch), -1).sum(1)


def errors_of(risk: Risk, batch: Batch, forward: Forward, samples: Samples | None = None) -> Iterator[list[Tensor]]:
    """The errors of every use, for all columns of the loss's square root or for samples of it, a few at a time."""
    for U in _cotangents(risk.loss, forward.z.detach(), batch, samples):
        for _, errors in columns(risk, forward, U):
            yield errors


def _cotangents(loss: Loss, z: Tensor, batch: Batch, samples: Samples | None) -> Iterable[Float[Tensor, "r N ..."]]:
    """Cotangents whose second moments are the loss's Hessian: each of one term of every example, or samples of all."""
    if samples is None:
        return cotangents(loss, z, loss.square_root(z, batch.targets))
    return [torch.stack(samples.of(loss, z, batch)) / samples.count**0.5]


def features_of(layer: LinearLayer, forward: Forward) -> Float[Tensor, "N T d"]:
    """The features of [W b]: φ if θ has the weight, and a constant one if it has the bias."""
    phi = layer.features(forward)
    parts = [phi] if layer.weight is not None else []
    return torch.cat([*parts, torch.ones_like(phi[..., :1])] if layer.bias is not None else parts, -1)


def width(layer: LinearLayer) -> int:
    """The number of columns of [W b]."""
    return layer.inputs * (layer.weight is not None) + (layer.bias is not None)


def check_size(risk: Risk, moments: Iterable[SecondMoments]) -> None:
    """Refuse factors that take more than the risk's memory, before any is allocated."""
    check_memory(sum(own.bytes for own in moments), risk.common_memory(), "The Kronecker factors")
