"""Cross-entropy, with its derivatives in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ArgumentError, DataError
from .loss import (
    LinearMap,
    Loss,
    Outputs,
    Reduction,
    Targets,
    check_finite_weights,
    misfit,
    not_convex,
)


@dataclass(frozen=True, eq=False)
class CrossEntropy(Loss):
    """ℓ = -Σ_c q_c log p_c with p = softmax(z): labels as class indices, or as probabilities of z's own shape.

    Conventions of `torch.nn.CrossEntropyLoss` (class weights, ignored labels, smoothing), but the classes are the
    last dimension unless `class_dim` says otherwise, so that token-level outputs (batch, length, vocabulary) fit.

    >>> z, y = torch.zeros(2, 4), torch.tensor([3, 0])
    >>> CrossEntropy().terms(z, y), CrossEntropy(ignore_index=0).weights(z, y)
    (tensor([1.3863, 1.3863]), tensor([1., 0.]))
    """

    weight: Float[Tensor, " C"] | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    class_dim: int = -1
    reduction: Reduction = "mean"

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        return -(self._coefficients(z, y) * self._rows(z).log_softmax(-1)).sum(-1)

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        rows = self._rows(z)
        if y.is_floating_point():
            return rows.new_ones(len(rows))
        kept = (y.flatten() != self.ignore_index).to(rows.dtype)
        return kept if self.weight is None else kept * self._class_weights(rows)[self._labels(y)]

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        """a p - (a_c), whose entries sum to zero: that of the likeliest class is minus the others, not p - 1, which
        would be rounding alone where a network is sure."""
        a, p = self._coefficients(z, y), self._rows(z).softmax(-1)
        top = p.argmax(-1, keepdim=True)
        others = (p * a.sum(-1, keepdim=True) - a).scatter(-1, top, 0.0)
        return self._restore(others.scatter(-1, top, -others.sum(-1, keepdim=True)), z)

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        """a (diag(p) - p pᵀ), with a = Σ_c a_c the mass of the term."""
        p, dim = z.softmax(self.class_dim), self.class_dim
        mass = self.masses(z, y).reshape(z.movedim(dim, -1).shape[:-1]).unsqueeze(dim) * p
        top = p.argmax(dim, keepdim=True)

        def product(u: Tensor) -> Tensor:
            u = u - u.gather(dim, top)  # constants are mapped to zero; where p is nearly 1, u - Σ p u would be rounding
            return mass * (u - (p * u).sum(dim, keepdim=True))

        return product

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms C r"]:
        """√a diag(√p) Q, with a the mass of the term and Q an orthonormal basis of the complement of √p; r = C - 1.

        The symmetric form √a (diag(√p) - p √pᵀ) has one column more, and cancels where a network is sure.
        """
        p, mass = self._rows(z).softmax(-1), self.masses(z, y)
        if bool((mass < 0).any()):
            raise not_convex(float(mass.min()))
        return mass.sqrt()[:, None, None] * p.sqrt()[:, :, None] * complement_of_root(p)

    def sampled_gradient(self, z: Outputs, y: Targets, uniform: Float[Tensor, "..."]) -> Outputs:
        """√a (p - e_c), with c drawn from p: the gradient for a would-be label; one number for each term."""
        mass, p = self.masses(z, y), self._rows(z).softmax(-1)
        if bool((mass < 0).any()):
            raise not_convex(float(mass.min()))
        heights = p.double().cumsum(-1)
        level = uniform.flatten()[: len(p), None].to(heights) * heights[:, -1:]
        label = torch.searchsorted(heights, level).clamp_(max=p.shape[-1] - 1)
        others = p.scatter(-1, label, 0.0)  # the entries sum to zero: p - 1 would be rounding where a network is sure
        error = others.scatter(-1, label, -others.sum(-1, keepdim=True))
        return self._restore(mass.sqrt()[:, None] * error, z)

    def num_uniforms(self, z: Outputs) -> int:
        return z.numel() // z.shape[self.class_dim]

    def masses(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """a of every term, whose Hessian is a (diag(p) - p pᵀ): one, but for class weights and ignored labels."""
        return self._coefficients(z, y).sum(-1)

    def check(self, z: Outputs, y: Targets) -> None:
        if z.ndim < 2:
            raise misfit(
                z,
                y,
                "Cross-entropy takes outputs with a dimension for the examples and one for the classes.",
                "For a single logit, use ritz.BinaryCrossEntropy() or torch.nn.BCEWithLogitsLoss().",
            )
        shape = z.shape if y.is_floating_point() else z.movedim(self.class_dim, -1).shape[:-1]
        if y.shape != shape:
            kind = "probabilities" if y.is_floating_point() else "class indices"
            raise misfit(
                z,
                y,
                f"Cross-entropy with classes in dimension {self.class_dim} takes {kind} of shape {tuple(shape)} here.",
                "Class indices are integers: y.long().",
                "For outputs (batch, length, classes) use ritz.CrossEntropy(), whose classes are the last dimension.",
            )
        check_finite_weights("class weights", self.weight)
        count = z.shape[self.class_dim]
        if self.weight is not None and self.weight.shape != (count,):
            raise ArgumentError(
                f"Class weights of shape {tuple(self.weight.shape)} came with {count} outputs.",
                "Every class has one weight.",
                f"Pass {count} weights, in the order of the outputs.",
            )
        if y.is_floating_point():
            self._check_probabilities()
        else:
            self._check_labels(y, count)

    def _check_labels(self, y: Tensor, count: int) -> None:
        labels = y[y != self.ignore_index]
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < count:
            raise DataError(
                f"Labels run from {int(labels.min())} to {int(labels.max())}; there are {count} outputs.",
                "A label is the index of an output, counted from zero.",
                "Shift the labels, widen the model's last layer, or set ignore_index for padding.",
            )

    def _check_probabilities(self) -> None:
        if self.ignore_index >= 0:
            raise ArgumentError(
                f"ignore_index={self.ignore_index} was given with probabilities as targets.",
                "Only class indices can be ignored; PyTorch refuses this, too.",
                "Give ignored rows the probability zero for every class, or pass class indices.",
            )

    def _rows(self, z: Tensor) -> Tensor:
        return z.movedim(self.class_dim, -1).reshape(-1, z.shape[self.class_dim])

    def _restore(self, rows: Tensor, z: Tensor) -> Tensor:
        return rows.reshape(z.movedim(self.class_dim, -1).shape).movedim(-1, self.class_dim)

    def _labels(self, y: Tensor) -> Tensor:
        return y.flatten().long().masked_fill(y.flatten() == self.ignore_index, 0)

    def _class_weights(self, rows: Tensor) -> Tensor:
        return rows.new_ones(rows.shape[-1]) if self.weight is None else self.weight.to(rows)

    def _coefficients(self, z: Tensor, y: Tensor) -> Tensor:
        """a with t = -Σ_c a_c log p_c: the smoothed target, weighted."""
        rows, smoothing = self._rows(z), self.label_smoothing
        weight, count = self._class_weights(rows), rows.shape[-1]
        if y.is_floating_point():
            return ((1 - smoothing) * self._rows(y).to(rows) + smoothing / count) * weight
        a = (smoothing / count * weight).repeat(len(rows), 1)
        labels = self._labels(y)[:, None]
        a.scatter_add_(1, labels, (1 - smoothing) * weight[labels])
        return a.masked_fill_((y.flatten() == self.ignore_index)[:, None], 0.0)


def complement_of_root(p: Float[Tensor, "terms C"]) -> Float[Tensor, "terms C r"]:
    """Q with QᵀQ = I and Qᵀ√p = 0 for probabilities p, r = C - 1: the Householder reflection of √p, without its image.

    It takes √p to the class of largest p, so that nothing cancels: every entry is right to its last digits.
    """
    count, root = p.shape[-1], p.sqrt()
    top = p.argmax(-1, keepdim=True)
    v = root.scatter_add(-1, top, torch.ones_like(root[:, :1]))
    reflection = (
        torch.diag_embed(torch.ones_like(p)) - v[:, :, None] * root[:, None, :] / (1 + root.gather(1, top))[:, None]
    )
    others = torch.arange(count, device=p.device).expand_as(p)
    kept = others[others != top].reshape(len(p), count - 1)
    return reflection.gather(2, kept[:, None, :].expand(-1, count, -1))
