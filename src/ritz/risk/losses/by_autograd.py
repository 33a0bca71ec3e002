"""Losses given as any callable of outputs and targets, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...errors import ModelError, OutputsWarning, PaddingWarning, first_line, warn_user
from ...foreign_errors import is_out_of_memory
from ..hidden_derivatives import has_custom_function, is_derivative
from ..precision import in_precision
from .loss import LinearMap, Loss, Outputs, Reduction, Targets, class_rows, misfit, not_convex, on_device

CONVEX = 1e-6  # of the largest eigenvalue: how far below zero others may be by rounding
PADDING = -100  # the label that PyTorch's losses ignore
ROUNDING = 64  # roundings of one: all that is left where a network is sure, as softmax is of order one


@dataclass(frozen=True, eq=False)
class Autodiff(Loss):
    """Any callable (outputs, targets) -> one loss per term or per output, differentiated by autograd.

    Losses of single outputs are summed along the dimension of the classes, with one weight for each; which dimension
    that is, only outputs show (`settled`). `weigh` gives the weights of the terms if they are not one.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    weigh: Callable[[Tensor, Tensor], Tensor] | None = None
    reduction: Reduction = "mean"
    class_dim: int = -1
    by_rows: bool = True
    hides: bool | None = None  # whether its second derivative by autograd lacks something; None: nothing tells yet

    @property
    def name(self) -> str:
        """The name of the user's function, or of the class of their module.

        >>> Autodiff(torch.nn.functional.huber_loss).name, Autodiff(torch.nn.L1Loss()).name
        ('huber_loss', 'L1Loss')
        """
        function: Any = self.function
        while isinstance(function, partial):
            function = next((part for part in function.args if isinstance(part, nn.Module)), function.func)
        return str(getattr(function, "__name__", None) or type(function).__name__)

    def settled(self, z: Outputs, y: Targets) -> Autodiff:
        """The loss with its class dimension, knowing whether its derivatives are complete."""
        return replace(self, hides=self._hides_derivative(z, y))._with_class_dim(z, y)

    def _hides_derivative(self, z: Tensor, y: Tensor) -> bool | None:
        """Whether a custom Function in it has a backward pass that gives the slope, but hides the derivative of that.

        Seen in float64 where the Function takes it: between the kinks of a loss, steps must be small.
        """
        with torch.enable_grad():
            if not has_custom_function(self.function(z.detach().requires_grad_(), y)):
                return False
        own = cast(Autodiff, on_device(self, z.device, torch.float64))
        try:
            return own._differs_from_differences(z.double(), y.to(in_precision(y, torch.float64)))
        except Exception:  # whatever a user's Function raises in another precision
            return self._differs_from_differences(z, y)

    def _differs_from_differences(self, z: Tensor, y: Tensor) -> bool | None:
        """Whether finite differences show more of the second derivative; None without a slope, where nothing is seen.

        Along a random direction: along its gradient, a loss may be straight.
        """
        eps, scale = torch.finfo(z.dtype).eps, float(z.square().mean().sqrt()) or 1.0
        v = torch.randn(z.shape, generator=torch.Generator(z.device).manual_seed(0), device=z.device, dtype=z.dtype)
        v, length = scale * v, lambda t: float(t.double().norm())
        right = lambda candidate, f: is_derivative(candidate, lambda t: f(z + t * v), eps ** (1 / 3), length)
        gradient = self.gradient(z, y)
        if not bool(gradient.any()):
            return None
        if not right((gradient * v).sum(), lambda moved: self.terms(moved, y).sum()):
            return False  # a straight-through gradient, say: a convention, and so is what is derived from it
        return not right(self._product(z, y)(v), lambda moved: self.gradient(moved, y))

    def _with_class_dim(self, z: Tensor, y: Tensor) -> Autodiff:
        """The loss with the dimension along which each term runs, depending on no other row of outputs."""
        if z.ndim < 3:  # one row an example
            return self
        own = self.class_dim % z.ndim
        dims = [own, *(dim for dim in range(1, z.ndim) if dim != own)]
        fitting = next((dim for dim in dims if replace(self, class_dim=dim)._splits_by_rows(z, y)), None)
        if fitting is None:
            return replace(self, by_rows=False)
        return self if fitting == own else replace(self, class_dim=fitting)

    def _splits_by_rows(self, z: Tensor, y: Tensor) -> bool:
        """Whether there are as many terms as rows of outputs, and no term depends on the row of another."""
        places = z.numel() // z.shape[self.class_dim] // len(z)  # rows of one example
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            terms = self.terms(z, y)
        if len(terms) != len(z) * places:
            return False
        if not terms.requires_grad:
            return True
        uneven = torch.linspace(1, 2, len(terms)).to(terms)  # different numbers, so that no two slopes cancel
        for half in _halves(places):
            some = (half.to(terms).repeat(len(z)) * uneven,)
            (slope,) = torch.autograd.grad([terms], [z], some, retain_graph=True, materialize_grads=True)
            if bool(class_rows(slope, self.class_dim).unflatten(0, (len(z), places))[:, ~half].any()):
                return False
        return True

    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        values = self.function(z, y)
        return class_rows(values, self.class_dim).sum(-1) if values.shape == z.shape else values.flatten()

    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        if self.weigh is not None:
            return self.weigh(z, y)
        values = self.function(z, y)
        if values.shape != z.shape:
            return torch.ones_like(values).flatten()
        return torch.ones_like(class_rows(values, self.class_dim)).sum(-1)

    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        try:
            return torch.func.grad(self._total(y))(z)
        except RuntimeError:  # torch.func works under transforms, but not under hooks on saved tensors
            return self._slope(z, y)[1].detach()

    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        if self._hides_derivative(z, y) if self.hides is None else self.hides:
            raise _hidden_derivative()
        return self._product(z, y)

    def _product(self, z: Tensor, y: Tensor) -> LinearMap:
        z, slope = self._slope(z, y)
        if not slope.requires_grad:  # the loss is linear in the outputs
            return torch.zeros_like
        return lambda u: torch.autograd.grad(slope, z, u, retain_graph=True, materialize_grads=True)[0]

    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K K"]:
        """The symmetric root of each term's Hessian, from one product per output.

        Of all roots it is the one that does not depend on signs and rotations of eigenvectors, which rounding decides.
        """
        dim = -1 if z.ndim == 1 else self.class_dim
        rows = lambda t: class_rows(t, dim)
        self._check_rows(z, y)
        product, width = self.curvature(z, y), rows(z).shape[1]
        unit = lambda k: torch.zeros_like(z).index_fill_(dim, torch.tensor(k, device=z.device), 1.0)
        ones = torch.ones_like(z)
        try:
            blocks = torch.stack([rows(product(ones if z.ndim == 1 else unit(k))) for k in range(width)], dim=-1)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise no_second_derivative(error) from error
        self._check_blocks(blocks, rows, product, z)
        values, vectors = torch.linalg.eigh((blocks + blocks.mT) / 2)
        least, eps = float(values.min()), torch.finfo(values.dtype).eps
        if least < -CONVEX * float(values.abs().max()) - ROUNDING * eps:
            raise not_convex(least)
        zeros = values.abs() <= ROUNDING * eps * values.abs().amax(-1, keepdim=True)  # whose roots would be √ε
        return vectors * values.clamp(min=0).masked_fill(zeros, 0.0).sqrt()[:, None, :] @ vectors.mT

    def _check_rows(self, z: Tensor, y: Tensor) -> None:
        terms, rows = len(self.terms(z, y)), len(class_rows(z, self.class_dim))
        if terms != rows or not self.by_rows:
            raise _joins_rows(terms, rows)

    def _check_blocks(self, blocks: Tensor, rows: LinearMap, product: LinearMap, z: Tensor) -> None:
        """Refuse a loss whose Hessian is not block diagonal, because its terms compare the examples of a batch."""
        u = torch.linspace(-1, 1, z.numel()).cos().to(z).roll(z.numel() // 3).view_as(z)
        expected = rows(product(u))
        rest = (torch.einsum("tkj,tj->tk", blocks, rows(u)) - expected).norm()
        eps = torch.finfo(z.dtype).eps
        if float(rest) > eps**0.5 * float(blocks.norm()) + ROUNDING * eps * len(blocks):
            raise _joins_rows(len(blocks), len(blocks))

    def check(self, z: Outputs, y: Targets) -> None:
        with torch.enable_grad():
            values = self._checked_values(z.detach().requires_grad_(), y)
        if not isinstance(values, Tensor) or values.ndim == 0 or (values.numel() == 1 and len(z) > 1):
            got = "one value for a whole batch" if isinstance(values, Tensor) else f"a {type(values).__name__}"
            raise ModelError(
                f"The loss function returned {got}.",
                "It must return one value per term: an average over a batch would weigh unequal batches wrongly.",
                'Use reduction="none" inside the loss, or return what stands before its .mean() or .sum().',
                "Leave out what does not count, such as padding, whose zeros would count: values[targets != -100].",
                "Pass a torch.nn loss module such as torch.nn.CrossEntropyLoss().",
            )
        if values.numel() > z.numel():
            raise misfit(z, y, f"The loss broadcasts them to {values.numel()} values, more than there are outputs.")
        if not values.requires_grad and bool(values.any()):  # a batch without loss may be a plain zero
            raise ModelError(
                "The loss has no gradient with respect to the outputs.",
                "All its derivatives would be zero: it counts errors, or its gradient is lost inside.",
                "Pass the training loss, not an error rate or a score.",
                "Leave out .argmax(), comparisons, torch.no_grad(), .detach() and .item() in it.",
            )
        self._warn_of_padding(values, y)
        self._warn_of_other_logarithms(z)

    def _warn_of_other_logarithms(self, z: Tensor) -> None:
        """Warn if the loss expects log-probabilities and the outputs are none."""
        if not isinstance(self.function, nn.NLLLoss):
            return
        if not bool((z.detach().logsumexp(self.class_dim).abs() < 1e-3).all()):
            warn_user(
                "torch.nn.NLLLoss takes log-probabilities, and these outputs are not: their exponentials do not sum to "
                "1. For logits pass torch.nn.CrossEntropyLoss(), for probabilities pass their logarithms.",
                OutputsWarning,
            )

    def _warn_of_padding(self, values: Tensor, y: Tensor) -> None:
        """Warn that zero losses of ignored labels count as terms, if no weights exclude them."""
        padding = (y == PADDING).flatten()
        counted = self.reduction == "mean" and self.weigh is None and values.numel() == y.numel()
        if not counted or y.is_floating_point() or not bool(padding.any()):
            return
        if not bool(values.flatten()[padding].any()):
            warn_user(
                f"{int(padding.sum())} of {padding.numel()} targets of a batch are {PADDING}, and the loss returns a "
                "zero for each: ritz counts them as terms, so that its mean is over padding too. If they should not "
                f"count, leave them out of what the loss returns: values[targets != {PADDING}].",
                PaddingWarning,
            )

    def _checked_values(self, z: Tensor, y: Tensor) -> Any:
        try:
            return self.function(z, y)
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            raise ModelError(
                f"The loss failed on outputs {tuple(z.shape)} and targets {tuple(y.shape)} ({y.dtype}): "
                f"{first_line(error)}",
                "A loss is called as loss(outputs, targets), with one batch of each.",
                "Call it on one batch by hand and compare the shapes.",
                "If outputs must lie between 0 and 1, as for nn.BCELoss, pass nn.BCEWithLogitsLoss(): it takes logits.",
                "If it takes more than two arguments, wrap it in a function that packs them into outputs or targets.",
            ) from error

    def _slope(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs as a leaf of autograd, and ∂/∂z Σ tᵢ with its graph."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._total(y)(z), z, create_graph=True)
        return z, slope

    def _total(self, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda z: self.function(z, y).sum()


def _joins_rows(terms: int, rows: int) -> ModelError:
    return ModelError(
        f"The loss has {terms} {'term' if terms == 1 else 'terms'} for {rows} rows of outputs"
        + (", each of which depends on several rows." if terms == rows else "."),
        "A term that joins several rows has a Hessian that does not split into blocks of one row.",
        "Use products with gauss_newton(risk), which need no square root.",
        "Return one value for each row of outputs.",
        "Let the model return the rows of an example as one, z.flatten(1), and the loss undo it: z.unflatten(1, ...).",
    )


def no_second_derivative(error: RuntimeError) -> ModelError:
    """The error for a loss that PyTorch differentiates only once."""
    return ModelError(
        f"The loss has no second derivative: {first_line(error)}",
        "H and G are computed from it; the network itself may well have second derivatives.",
        "Write the loss as a function of operations that PyTorch differentiates twice.",
        "Use empirical_fisher(risk), which takes first derivatives of the loss alone.",
    )


def _hidden_derivative() -> ModelError:
    return ModelError(
        "The backward pass of a custom autograd Function in the loss hides part of its derivative from autograd.",
        "Products with H and G would lack it: finite differences of the loss's gradient show more than autograd has.",
        "Let the backward pass compute the slope from ctx.saved_tensors, of which forward saved nothing but its inputs "
        "and outputs, in operations that PyTorch differentiates, without once_differentiable.",
        "Pass a loss that computes the same otherwise, such as torch.nn.CrossEntropyLoss().",
        "Use empirical_fisher(risk), which takes first derivatives of the loss alone.",
    )


def _halves(count: int) -> Iterator[Tensor]:
    """Halves of `count` places, such that for any two places some half has the first without the second."""
    places = torch.arange(count)
    for bit in range((count - 1).bit_length()):
        half = (places >> bit) % 2 == 0
        yield from (half, ~half)
