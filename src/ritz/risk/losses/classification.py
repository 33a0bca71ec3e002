"""The interface of losses with classes: what the analysis of class structure needs from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...errors import DataError
from .loss import LinearMap, Loss, Outputs, Targets, class_rows, misfit, not_convex, restored


class Classification(Loss):
    """A loss whose terms have the Hessian a (diag(p) - p pᵀ), for probabilities p of the classes and a mass a.

    Every cross-entropy of shifted or scaled outputs is of this form. A new one is a subclass with `terms`, `weights`,
    `gradient`, `probabilities` and `masses`; everything in ritz that knows classes then works with it. Targets are
    class indices, or `ignore_index` for no class.

    >>> from ritz.risk import CrossEntropy
    >>> loss, z, y = CrossEntropy(), torch.zeros(1, 2), torch.tensor([1])
    >>> isinstance(loss, Classification), loss.probabilities(z), loss.masses(z, y)
    (True, tensor([[0.5000, 0.5000]]), tensor([1.]))
    """

    ignore_index: int = -100

    @abstractmethod
    def probabilities(self, z: Outputs) -> Float[Tensor, "terms C"]:
        """p of every term."""

    @abstractmethod
    def masses(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """a of every term; zero where it is ignored."""

    def labels(self, y: Targets) -> Int[Tensor, " terms"]:
        """The class of every term; zero where it is ignored."""
        return y.flatten().long().masked_fill(self.ignored(y), 0)

    def ignored(self, y: Targets) -> Tensor:
        """Which terms count for nothing."""
        return is_label(y.flatten(), self.ignore_index)

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        """a (diag(p) - p pᵀ)."""
        dim, shape = self.class_dim, z.movedim(self.class_dim, -1).shape
        p, a = restored(self.probabilities(z), z, dim), self.masses(z, y).reshape(shape[:-1]).unsqueeze(dim)
        mass, top, a = a * p, p.argmax(dim, keepdim=True), a.masked_fill(a == 0, 1.0)  # p, as large as z, is not kept

        def product(u: Tensor) -> Tensor:
            u = u - u.gather(dim, top)  # constants are mapped to zero; where p is nearly 1, u - Σ p u would be rounding
            return u.sub_((mass * u).sum(dim, keepdim=True) / a).mul_(mass)

        return product

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms C r"]:
        """√a diag(√p) Q, with a the mass of the term and Q an orthonormal basis of the complement of √p; r = C - 1.

        The symmetric form √a (diag(√p) - p √pᵀ) has one column more, and cancels where a network is sure.
        """
        p, mass = self.probabilities(z), self._convex_masses(z, y)
        return mass.sqrt()[:, None, None] * p.sqrt()[:, :, None] * complement_of_root(p)

    def total_hessian(self, z: Outputs, y: Targets) -> Float[Tensor, "C C"]:
        """Σ a (diag(p) - p pᵀ), in float64; rows sum to zero, so that nothing cancels where a network is sure."""
        p, mass = self.probabilities(z).double(), self._convex_masses(z, y).double()
        pairs = (p.T @ (mass[:, None] * p)).fill_diagonal_(0.0)
        return torch.diag(pairs.sum(1)) - pairs

    def sampled_gradient(self, z: Outputs, y: Targets, uniform: Float[Tensor, "..."]) -> Outputs:
        """√a (p - e_c), with c drawn from p: the gradient for a sampled label; one random number for each term."""
        mass, p = self._convex_masses(z, y), self.probabilities(z)
        heights = p.double().cumsum(-1)
        level = uniform.flatten()[: len(p), None].to(heights) * heights[:, -1:]
        label = torch.searchsorted(heights, level).clamp_(max=p.shape[-1] - 1)
        others = p.scatter(-1, label, 0.0)  # the entries sum to zero: p - 1 would be rounding where a network is sure
        error = others.scatter(-1, label, -others.sum(-1, keepdim=True))
        return restored(mass.sqrt()[:, None] * error, z, self.class_dim)

    def num_uniforms(self, z: Outputs) -> int:
        return z.numel() // z.shape[self.class_dim]

    def check(self, z: Outputs, y: Targets) -> None:
        self._check_shape(z, y, "class indices", lambda: z.movedim(self.class_dim, -1).shape[:-1])
        if y.is_floating_point():
            raise misfit(z, y, "The targets are class indices here.", "Class indices are integers: y.long().")
        self._check_labels(y, z.shape[self.class_dim])

    def _check_shape(self, z: Tensor, y: Tensor, kind: str, expected: Callable[[], torch.Size]) -> None:
        if z.ndim < 2:
            raise misfit(
                z,
                y,
                f"{type(self).__name__} takes outputs with a dimension for the examples and one for the classes.",
                "For a single logit, use ritz.BinaryCrossEntropy() or torch.nn.BCEWithLogitsLoss().",
            )
        if not (-z.ndim < self.class_dim < 0 or 0 < self.class_dim < z.ndim):
            raise misfit(
                z,
                y,
                f"The classes were to be in dimension {self.class_dim}; the first dimension counts the examples.",
                f"Pass class_dim=-1, or one of 1 to {z.ndim - 1}.",
            )
        if z.shape[self.class_dim] == 1:
            raise DataError(
                f"The outputs have shape {tuple(z.shape)}, of one class in dimension {self.class_dim}.",
                "The softmax of a single logit is one, so that the loss would be zero at every θ.",
                "For a single logit, use ritz.BinaryCrossEntropy() or torch.nn.BCEWithLogitsLoss().",
                "Let the model return one logit for each class: (0, z) in place of a single z has two.",
            )
        if y.shape != (shape := expected()):
            raise misfit(
                z,
                y,
                f"{type(self).__name__} with classes in dimension {self.class_dim} takes {kind} of shape "
                f"{tuple(shape)} here.",
                *(["Class indices are integers: y.long()."] if y.is_floating_point() else []),
                *([f"One-hot rows become indices by y.argmax({self.class_dim})."] if y.shape == z.shape else []),
                "For outputs (batch, length, classes) use ritz.CrossEntropy(), whose classes are the last dimension. "
                "It takes weight, ignore_index and label_smoothing as PyTorch's does.",
            )

    def _check_labels(self, y: Tensor, count: int) -> None:
        labels = y[~is_label(y, self.ignore_index)].long()
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < count:
            raise DataError(
                f"Labels run from {int(labels.min())} to {int(labels.max())}; there are {count} outputs.",
                "A label is the index of an output, counted from zero.",
                "Shift the labels, widen the model's last layer, or set ignore_index for padding.",
            )

    def _convex_masses(self, z: Tensor, y: Tensor) -> Float[Tensor, " terms"]:
        masses = self.masses(z, y)
        if bool((masses < 0).any()):
            raise not_convex(float(masses.min()))
        return masses

    def _rows(self, z: Tensor) -> Tensor:
        return class_rows(z, self.class_dim)


def is_label(y: Targets, label: int) -> Bool[Tensor, "..."]:
    """Which targets equal this label, without wrapping it: in uint8, -100 would become 156."""
    return (y if y.is_floating_point() else y.long()) == label


def class_indices(loss: Loss, y: Targets) -> Int[Tensor, "..."]:
    """Targets as the indices of classes, `ignore_index` included; refuses targets and losses that have no classes."""
    if y.is_floating_point() or not isinstance(loss, Classification):
        raise DataError(
            f"The targets are {y.dtype} values, and the loss is {loss.name}.",
            "Only class indices can serve as labels.",
            "Use a cross-entropy risk with integer targets.",
            "One-hot rows become class indices by y.argmax(-1).",
            "Without classes, look at the spectrum alone: ritz spectrum.",
        )
    return y.long()


def complement_of_root(p: Float[Tensor, "terms C"]) -> Float[Tensor, "terms C r"]:
    """Q with QᵀQ = I and Qᵀ√p = 0 for probabilities p, r = C - 1: the Householder reflection of √p, without its image.

    The reflection maps √p to the class of largest p, so that nothing cancels and every entry has full precision.
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
