"""The forward pass that records what every layer saw, and from which errors are sent back to each layer.

Parameters that enter in a way that is not watched are named, never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError, listed
from ..foreign_errors import is_out_of_memory
from ..risk import Risk
from ..risk.batches import Batch
from .readers import ORDERS, Watch
from .uses import Use

WATCHED_EXAMPLES = 8  # on which layouts are detected: too many for reordered rows to keep their order by chance


@dataclass(frozen=True)
class Forward:
    """The outputs of one batch, and every use of a layer on the way to them."""

    z: Tensor
    uses: tuple[Use, ...]
    copies: tuple[tuple[Tensor, str], ...] = ()  # of the parameters that entered, one for each use, by name

    def errors(self, cotangents: Float[Tensor, "r ..."]) -> list[Float[Tensor, "r N T o"]]:
        """δ of every use for r cotangents u of the outputs: one backward pass for each, or all at once on a GPU."""
        gradients = self._all_at_once(cotangents) if self.z.is_cuda else None
        if gradients is None:
            rows = [self.gradients(u) for u in cotangents]
            gradients = [torch.stack(column) for column in zip(*rows, strict=True)]
        return [use.by_position(error) for use, error in zip(self.uses, gradients, strict=True)]

    def _all_at_once(self, cotangents: Tensor) -> list[Tensor] | None:
        try:
            return self.gradients(cotangents, is_grads_batched=True)
        except RuntimeError:  # an operation without a batching rule
            return None

    def gradients(self, cotangents: Tensor, **options: Any) -> list[Tensor]:
        """∂(u·z)/∂o for every use, in the shape of o; zero where the outputs do not depend on it."""
        if not self.uses:
            return []
        edges = [use.edge for use in self.uses]
        pieces = torch.autograd.grad(self.z, edges, cotangents, retain_graph=True, allow_unused=True, **options)
        leading = cotangents.shape[: cotangents.ndim - self.z.ndim]
        zeros = (self.z.new_zeros(*leading, *use.shape, dtype=use.dtype) for use in self.uses)
        return [zero if piece is None else piece.to(zero.dtype) for piece, zero in zip(pieces, zeros, strict=True)]


@dataclass(frozen=True)
class Layers:
    """The layers of a risk's model through which θ enters, except for the parameters named in `others`."""

    risk: Risk
    others: frozenset[str]
    orders: Mapping[str, int] = field(default_factory=dict)  # how rows are laid out, where not example by example

    @classmethod
    def of(cls, risk: Risk) -> Layers:
        """The layers of a risk's model.

        A parameter is among the `others` if it enters in any way that is not watched (in a recurrent cell, by itself,
        as weight of a transposed convolution), or in a layer that has its examples neither first nor second nor last.
        """
        _check_separable(risk)
        batch, others, orders = _first(risk), frozenset[str](), dict[str, int]()
        while True:
            forward, outside = _watch(risk, batch, others, orders)
            _check_outputs(forward.z, len(batch))
            misplaced = _misplaced_names(forward, len(batch))
            mixed = {name for use in forward.uses for name in use.names} & outside  # watched, and used otherwise too
            mixed |= {name for name in misplaced if orders.get(name, 0) == ORDERS - 1}  # no order of rows is left
            if not (mixed | misplaced) - others:
                mixed = _unexplained_names(forward, risk.lowest_precision)
                if not mixed:
                    return cls(risk, frozenset(outside), orders)
            others = others | mixed
            orders.update({name: orders.get(name, 0) + 1 for name in misplaced - others})  # tried in the next round

    def forward(self, batch: Batch) -> Forward:
        """A forward pass that records what every layer saw."""
        forward, outside = _watch(self.risk, batch, self.others, self.orders)
        _check_rows(self, forward, len(batch))
        if _shares(forward.uses, len(batch)) != _shares(self.uses, self.num_watched):
            _check_places(self, forward, len(batch))
        _check_ways(self, _ways(forward.uses) ^ _ways(self.uses), outside - self.others, batch)
        return forward

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The uses of layers by the first examples, which show what layers there are."""
        batch = _first(self.risk)
        forward = _watch(self.risk, batch, self.others, self.orders)[0]
        _check_rows(self, forward, len(batch))
        return forward.uses

    @property
    def num_watched(self) -> int:
        """The number of examples in `uses`."""
        return len(_first(self.risk))

    def without(self, names: Collection[str]) -> str:
        """How to leave out parameters, as a way out of a refusal."""
        globs = self.risk.globs_without(names)
        if not globs:
            return "Use gauss_newton(risk), which takes any parameters: none of θ is left without these."
        return f"Leave them out: risk.restricted_to({(globs[0] if len(globs) == 1 else globs)!r})."

    def check_complete(self, purpose: str, unfit: Collection[str] = ()) -> None:
        """Refuse a model some of whose parameters enter in a way that is not watched.

        It says how to leave these out, and with them what is `unfit` for another reason.
        """
        if self.others:
            rest = sorted({*unfit} - self.others)
            also = f" It does not take these either: {', '.join(rest)}." if rest else ""
            raise ModelError(
                f"These parameters enter through no layer that can be captured: {', '.join(sorted(self.others))}.",
                f"{purpose} is made of what linear layers, convolutions, normalisations and embeddings see, "
                f"example by example.{also}",
                self.without({*self.others, *unfit}),
            )


def _watch(risk: Risk, batch: Batch, others: frozenset[str], orders: Mapping[str, int]) -> tuple[Forward, set[str]]:
    """A forward pass, and the parameters that influence its outputs in a way that is not watched."""
    leaves = risk.leaves()
    names = {id(leaf): name for leaf, name in zip(leaves, risk.shapes, strict=True) if name not in others}
    watch = Watch(names, len(batch), orders)
    with risk.numerics(), torch.enable_grad():
        try:
            with watch:
                z = risk.outputs(leaves, batch)
        except RuntimeError as error:  # where a network itself differentiates by parameters, not our copies
            if is_out_of_memory(error) or not names:
                raise
            return _watch(risk, batch, frozenset(risk.shapes), orders)
        if not z.requires_grad:
            return Forward(z, ()), set()
        direct = torch.autograd.grad(z, leaves, torch.zeros_like(z), retain_graph=True, allow_unused=True)
    outside = {name for name, gradient in zip(risk.shapes, direct, strict=True) if gradient is not None}
    return Forward(z, tuple(watch.uses), tuple(watch.copies)), outside


def _unexplained_names(forward: Forward, precision: torch.dtype) -> set[str]:
    """Parameters whose gradient is not made of features and errors, such as those used in an inner derivative."""
    cotangent = torch.linspace(0.5, 1.5, forward.z.numel()).to(forward.z).view_as(forward.z)
    copies = [copy for copy, _ in forward.copies]
    found = torch.autograd.grad(forward.z, copies, cotangent, retain_graph=True, allow_unused=True) if copies else ()
    rests: dict[str, Tensor] = {}
    sizes: dict[str, float] = defaultdict(float)
    for (copy, name), gradient in zip(forward.copies, found, strict=True):
        gradient = torch.zeros_like(copy) if gradient is None else gradient
        rests[name] = rests.get(name, 0.0) + gradient.reshape(-1)
        sizes[name] += float(gradient.norm())
    for use, error in zip(forward.uses, forward.gradients(cotangent), strict=True):
        for name, gradient in use.gradients(use.by_position(error[None])[0]).items():
            rests[name][: gradient.numel()] -= gradient.reshape(-1)  # the rows of a table that were looked up
            sizes[name] += float(gradient.norm())
    near = torch.finfo(precision).eps ** 0.5
    return {name for name, rest in rests.items() if float(rest.norm()) > near * sizes[name]}


def _misplaced_names(forward: Forward, count: int) -> set[str]:
    """Parameters of layers in which errors of some examples reach rows of others.

    Some digit of their numbers, in binary, tells any two examples apart: those that have it, and those that do not, are
    sent back each without the others, so that no order of rows is missed.
    """
    numbers = torch.arange(count, device=forward.z.device)
    digits = [numbers >> place & 1 == 1 for place in range((count - 1).bit_length())]
    names = {name for use in forward.uses if not _is_divisible(use, count) for name in use.names}
    for chosen in (own for digit in digits for own in (digit, ~digit)):
        cotangent = torch.zeros_like(forward.z)
        cotangent[chosen] = torch.linspace(0.5, 1.5, cotangent[0].numel()).to(cotangent).view_as(cotangent[0])
        for use, error in zip(forward.uses, forward.gradients(cotangent), strict=True):
            if not use.names <= names and bool(use.by_position(error[None])[0, ~chosen].any()):
                names |= use.names
    return names


def _is_divisible(use: Use, count: int) -> bool:
    """Whether the rows of a layer divide evenly among this many examples."""
    rows = (use.shape[0], use.shape[:-1].numel(), use.shape[1] if len(use.shape) > 2 else 1)
    return rows[use.order] % count == 0


def _first(risk: Risk) -> Batch:
    """The first examples, from several batches if these are small: a single one does not show how rows are laid out.

    They are shuffled: sorted ones would not show a layer that sorts them.
    """
    batches: list[Batch] = []
    for batch in risk.batches:
        batches.append(batch.first(WATCHED_EXAMPLES))
        if sum(map(len, batches)) >= WATCHED_EXAMPLES:
            break
    few = max(replace(risk.batches, held=batches).joined(len(batches)), key=len)
    order = torch.randperm(len(few), generator=torch.Generator().manual_seed(0))
    return few.rows(order.to(few.targets.device))


def _check_outputs(z: Tensor, count: int) -> None:
    if len(z) != count:
        raise ModelError(
            f"The model returns {len(z)} rows of outputs for {count} examples.",
            "Gradients are taken example by example, by the first dimension of the outputs.",
            "Let the model return the rows of each example together, and the loss flatten them: z.flatten(0, 1).",
            "Use products with gauss_newton(risk) and hessian(risk), which need no single examples.",
        )


def _check_rows(layers: Layers, forward: Forward, count: int) -> None:
    odd = {name for use in forward.uses if not _is_divisible(use, count) for name in use.names}
    if odd:
        raise _unclear(layers, forward, odd, count)


def _shares(uses: Iterable[Use], count: int) -> list[int]:
    """How many numbers every use returns for each of this many examples."""
    return [use.shape.numel() // count for use in uses]


def _check_places(layers: Layers, forward: Forward, count: int) -> None:
    """Refuse rows that divide evenly by chance, as where experts see a part of all tokens."""
    misplaced = _misplaced_names(forward, count)
    if misplaced:
        raise _unclear(layers, forward, misplaced, count)


def _unclear(layers: Layers, forward: Forward, names: Collection[str], count: int) -> ModelError:
    use = next(use for use in forward.uses if use.names & set(names))
    return ModelError(
        f"Layer {use.layer} saw {use.shape[0]} rows of a batch of {count} examples.",
        "Which row belongs to which example is not clear, though it was on the first examples.",
        layers.without(names),
    )


def _ways(uses: Iterable[Use]) -> set[tuple[str, str | None, str | None]]:
    """The kinds of layers through which parameters enter, and the names of the parameters."""
    return {(use.kind, use.weight, use.bias) for use in uses}


def _check_ways(
    layers: Layers, differing: set[tuple[str, str | None, str | None]], outside: set[str], batch: Batch
) -> None:
    """Refuse a batch that takes a different way through the model than the first examples."""
    names = sorted({name for _, *names in differing for name in names if name is not None} | outside)
    if names:
        raise ModelError(
            f"In {batch.name}, these parameters are used in another way than on the first examples, or not at all: "
            f"{listed(names, 4)}.",
            "Only the layers seen on the first examples are captured; what enters elsewhere would be lost.",
            layers.without(names),
            "Use products with gauss_newton(risk), which need no layers.",
        )


def _check_separable(risk: Risk) -> None:
    if not risk.separable:
        raise ModelError(
            "The outputs or the loss of an example depend on the other examples of its batch.",
            "Then single examples have no gradients of their own.",
            "Use products with gauss_newton(risk) and hessian(risk), which need none.",
        )
