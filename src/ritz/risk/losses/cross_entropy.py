"""Cross-entropy, with its derivatives in closed form."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from jaxtyping import Float
from torch import Tensor

from ...errors import ArgumentError, OutputsWarning, check_whole, warn_user
from .classification import Classification
from .loss import (
    Outputs,
    Reduction,
    Targets,
    check_finite_weights,
    check_reduction,
    check_weight_tensors,
    restored,
)


@dataclass(frozen=True, eq=False)
class CrossEntropy(Classification):
    """ℓ = -Σ_c q_c log p_c with p = softmax(z): labels as class indices, or as probabilities of z's own shape.

    Conventions of `torch.nn.CrossEntropyLoss` (class weights, ignored labels, smoothing), but the classes are the
    last dimension unless `class_dim` says otherwise, so that token-level outputs (batch, length, vocabulary) fit.

    >>> import torch
    >>> z, y = torch.zeros(2, 4), torch.tensor([3, 0])
    >>> CrossEntropy().terms(z, y), CrossEntropy(ignore_index=0).weights(z, y)
    (tensor([1.3863, 1.3863]), tensor([1., 0.]))
    """

    weight: Float[Tensor, " C"] | None = None
    _: KW_ONLY
    ignore_index: int = -100
    label_smoothing: float = 0.0
    class_dim: int = -1
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        check_reduction(self.reduction)
        check_weight_tensors(weight=self.weight)
        check_whole(class_dim=self.class_dim, ignore_index=self.ignore_index)
        if not (isinstance(self.label_smoothing, (int, float)) and 0 <= self.label_smoothing <= 1):
            raise ArgumentError(
                f"label_smoothing={self.label_smoothing!r} was given.",
                "It is the share of a label that is spread over all classes.",
                "Pass a number from 0 to 1.",
            )

    @property
    def is_convex(self) -> bool:
        return self.weight is None or bool((self.weight >= 0).all())

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        log_p = self._rows(z).log_softmax(-1)
        if y.is_floating_point():
            return -(self._coefficients(z, y) * log_p).sum(-1)
        terms = self._of_labels(log_p, y) * log_p.gather(1, self.labels(y)[:, None])[:, 0]
        return -(terms + self._kept(log_p, y) * (log_p @ self._of_all(log_p)) if self.label_smoothing else terms)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        rows = self._rows(z)
        if y.is_floating_point():
            return rows.new_ones(len(rows))
        kept = self._kept(rows, y)
        return kept if self.weight is None else kept * self._class_weights(rows)[self.labels(y)]

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        """a p - (a_c), whose entries sum to zero.

        The entry of the likeliest class is computed as minus the others: p - 1 would be mere rounding where a network
        is sure.
        """
        p = self.probabilities(z)
        top, slope = p.argmax(-1, keepdim=True), p * self.masses(z, y)[:, None]
        if y.is_floating_point():
            slope -= self._coefficients(z, y)
        else:
            slope.scatter_add_(1, self.labels(y)[:, None], -self._of_labels(p, y)[:, None])
            if self.label_smoothing:
                slope -= self._kept(p, y)[:, None] * self._of_all(p)
        slope.scatter_(-1, top, 0.0)
        return restored(slope.scatter_(-1, top, -slope.sum(-1, keepdim=True)), z, self.class_dim)

    def probabilities(self, z: Outputs) -> Float[Tensor, "terms C"]:
        return self._rows(z).softmax(-1)

    def masses(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """Σ_c a_c of every term: one, except for class weights and ignored labels."""
        if y.is_floating_point():
            return self._coefficients(z, y).sum(-1)
        rows = self._rows(z)
        masses = self._of_labels(rows, y)
        return masses + self._kept(rows, y) * self._of_all(rows).sum() if self.label_smoothing else masses

    def check(self, z: Outputs, y: Targets) -> None:
        if y.is_floating_point():
            self._check_shape(z, y, "probabilities", lambda: z.shape)
            self._check_probabilities()
        else:
            super().check(z, y)
        check_finite_weights("class weights", self.weight)
        self._warn_of_probabilities(z)
        count = z.shape[self.class_dim]
        if self.weight is not None and self.weight.shape != (count,):
            raise ArgumentError(
                f"Class weights of shape {tuple(self.weight.shape)} came with {count} outputs.",
                "Every class has one weight.",
                f"Pass {count} weights, in the order of the outputs.",
            )

    def _warn_of_probabilities(self, z: Tensor) -> None:
        """Warn if the outputs are already probabilities, whose softmax is not the intended model."""
        if z.shape[self.class_dim] < 2 or not bool((z >= 0).all()):
            return
        if bool(((z.sum(self.class_dim) - 1).abs() < 1e-5).all()):
            warn_user(
                "The outputs of every example are between 0 and 1 and sum up to 1, as probabilities do. Cross-entropy "
                "takes the logits before them and applies softmax itself: on probabilities it would be applied twice. "
                "If that is not meant, leave the softmax out of the model, or pass their logarithms: "
                "torch.log(outputs).",
                OutputsWarning,
            )

    def _check_probabilities(self) -> None:
        if self.ignore_index >= 0:
            raise ArgumentError(
                f"ignore_index={self.ignore_index} was given with probabilities as targets.",
                "Only class indices can be ignored; PyTorch refuses this, too.",
                "Give ignored rows the probability zero for every class, or pass class indices.",
            )

    def _class_weights(self, rows: Tensor) -> Tensor:
        return rows.new_ones(rows.shape[-1]) if self.weight is None else self.weight.to(rows)

    def _coefficients(self, z: Tensor, y: Tensor) -> Tensor:
        """a with t = -Σ_c a_c log p_c for targets that are probabilities: smoothed, and weighted."""
        rows = self._rows(z)
        return (1 - self.label_smoothing) * self._rows(y).to(rows) * self._class_weights(rows) + self._of_all(rows)

    def _of_labels(self, rows: Tensor, y: Tensor) -> Tensor:
        """The part of a that belongs to the label of each term; no array has an entry for each class here."""
        return self._kept(rows, y) * (1 - self.label_smoothing) * self._class_weights(rows)[self.labels(y)]

    def _of_all(self, rows: Tensor) -> Tensor:
        """The part of a that smoothing gives to every class, whatever the label."""
        return self.label_smoothing / rows.shape[-1] * self._class_weights(rows)

    def _kept(self, rows: Tensor, y: Tensor) -> Tensor:
        """One for every label that counts, zero for one to ignore."""
        return (~self.ignored(y)).to(rows.dtype)
