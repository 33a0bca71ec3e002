"""What every layer sees and what comes back to it: its inputs h, and the errors δ = ∂(u·z)/∂o at its outputs o.

The gradient of a linear layer's weight is Σₜ δₜ hₜᵀ over the positions t at which the layer was applied, so that
Gram matrices, Kronecker factors and class means of gradients follow from h and δ without any gradient being formed.
Layers are found by watching the functions through which parameters enter (`F.linear`, `torch.conv2d`, ...) and not by
module type, so that shared, tied and functional uses are seen, too. What enters in another way is named, never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..errors import ModelError
from ..risk.batches import Batch, Batches
from ..risk.risk import Risk

Kind = Literal["linear", "scale", "embedding"]
Layout = Callable[[Tensor], Tensor]  # a tensor of the shape of the layer's output -> (N, T, channels)
WATCHED_EXAMPLES = 8  # on which layouts are found out: too many for rows that are sorted to keep their order by chance


@dataclass(frozen=True)
class Use:
    """One application of a layer: the weight's gradient is made of the features h and the errors δ at T positions.

    kind "linear" (convolutions, too): Σₜ δₜ hₜᵀ;  "scale" (normalisations): Σₜ δₜ hₜ, entry by entry;
    "embedding": Σₜ δₜ in row hₜ. The bias's gradient is Σₜ δₜ. Convolutions have one block for each of their groups.
    """

    kind: Kind
    weight: str | None  # names in θ; None where there is none, or where it is not part of θ
    bias: str | None
    inputs: Tensor
    edge: GradientEdge  # the output as a place in the graph, untouched by what is done to it in place
    shape: torch.Size  # of the output
    layout: Layout
    unfolded: Layout
    groups: int = 1

    @property
    def layer(self) -> str:
        """The name of the layer, after its weight: "features.0" for "features.0.weight"."""
        return (self.weight or self.bias or "").rpartition(".")[0]

    def features(self) -> Shaped[Tensor, "N T ..."]:
        """h: (N, T, d) numbers, patches for a convolution; (N, T) indices for an embedding."""
        return self.unfolded(self.inputs)

    def arranged(self, errors: Float[Tensor, "r ..."]) -> Float[Tensor, "r N T o"]:
        """Errors of r cotangents, given in the shape of the output, position by position."""
        return torch.stack([self.layout(error) for error in errors])


@dataclass(frozen=True)
class Pass:
    """The outputs of one batch, and every use of a layer on the way to them."""

    z: Tensor
    uses: tuple[Use, ...]

    def errors(self, cotangents: Float[Tensor, "r ..."]) -> list[Float[Tensor, "r N T o"]]:
        """δ of every use for r cotangents u of the outputs: one backward pass for each, or all at once on a GPU."""
        found = self._all_at_once(cotangents) if self.z.is_cuda else None
        if found is None:
            rows = [self._gradients(u) for u in cotangents]
            found = [torch.stack(column) for column in zip(*rows, strict=True)]
        return [use.arranged(error) for use, error in zip(self.uses, found, strict=True)]

    def _all_at_once(self, cotangents: Tensor) -> list[Tensor] | None:
        try:
            return self._gradients(cotangents, is_grads_batched=True)
        except RuntimeError:  # an operation without a batching rule
            return None

    def _gradients(self, cotangents: Tensor, **options: Any) -> list[Tensor]:
        """∂(u·z)/∂o for every use; zero where the outputs do not depend on it."""
        if not self.uses:
            return []
        edges = [use.edge for use in self.uses]
        found = torch.autograd.grad(self.z, edges, cotangents, retain_graph=True, allow_unused=True, **options)
        leading = cotangents.shape[: cotangents.ndim - self.z.ndim]
        zeros = (self.z.new_zeros(*leading, *use.shape) for use in self.uses)
        return [zero if gradient is None else gradient for gradient, zero in zip(found, zeros, strict=True)]


@dataclass(frozen=True)
class Layers:
    """The layers of a risk's model through which all of θ enters, but for the parameters named in `others`."""

    risk: Risk
    others: frozenset[str]

    def passed(self, batch: Batch) -> Pass:
        """A forward pass that remembers what every layer saw."""
        found = _watched(self.risk, batch, self.others)[0]
        _check_rows(found, len(batch))
        return found

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The uses on the first examples, to see what layers there are."""
        return self.passed(_first(self.risk)).uses

    @property
    def num_watched(self) -> int:
        """On how many examples `uses` were seen."""
        return len(_first(self.risk))

    def check_complete(self, purpose: str) -> None:
        """Refuse a model some of whose parameters enter in a way that is not watched."""
        if self.others:
            raise ModelError(
                f"These parameters enter through no layer that can be captured: {', '.join(sorted(self.others))}.",
                f"{purpose} is made of what linear layers, convolutions, normalisations and embeddings see, "
                "example by example.",
                "Leave them out: risk.restricted_to(...) with globs that match the other parameters.",
            )


def layers(risk: Risk) -> Layers:
    """The layers of a risk's model.

    A parameter is among the `others` if it enters in any way that is not watched (in a recurrent cell, by itself, as
    weight of a transposed convolution), or in a layer whose first dimension is not that of the examples.
    """
    _check_separable(risk)
    batch, others = _first(risk), frozenset[str]()
    while True:
        found, outside = _watched(risk, batch, others)
        mixed = {n for use in found.uses for n in (use.weight, use.bias) if n is not None} & outside
        mixed |= _misplaced(found, len(batch))
        if not mixed - others:
            return Layers(risk, frozenset(outside))
        others = others | mixed


def _watched(risk: Risk, batch: Batch, others: frozenset[str]) -> tuple[Pass, set[str]]:
    """A pass, and the parameters that influence its outputs in a way that was not watched."""
    leaves = risk.leaves()
    names = {id(leaf): name for leaf, name in zip(leaves, risk.shapes, strict=True) if name not in others}
    watch = _Watch(names, len(batch))
    with risk.numerics(search=False), torch.enable_grad():
        with watch:
            z = risk.outputs(leaves, batch)
        if not z.requires_grad:
            return Pass(z, ()), set()
        direct = torch.autograd.grad(z, leaves, torch.zeros_like(z), retain_graph=True, allow_unused=True)
    outside = {name for name, gradient in zip(risk.shapes, direct, strict=True) if gradient is not None}
    return Pass(z, tuple(watch.uses)), outside


def _misplaced(found: Pass, count: int) -> set[str]:
    """Parameters of layers in which the errors of half of the examples do not stay with them."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(found.z.device)
    half, others = order[: (count + 1) // 2], order[(count + 1) // 2 :]
    cotangent = torch.zeros_like(found.z)
    cotangent[half] = torch.linspace(0.5, 1.5, cotangent[0].numel()).to(cotangent).view_as(cotangent[0])
    names: set[str] = set()
    for use, error in zip(found.uses, found._gradients(cotangent), strict=True):
        if len(error) % count or bool(error.reshape(count, -1)[others].any()):
            names |= {name for name in (use.weight, use.bias) if name is not None}
    return names


def _first(risk: Risk) -> Batch:
    """The first examples, of several batches where these are small: one alone tells nothing of where others lie."""
    found: list[Batch] = []
    for batch in risk.batches:
        found.append(batch.first(WATCHED_EXAMPLES))
        if sum(map(len, found)) >= WATCHED_EXAMPLES:
            break
    return max(Batches.of(found).joined(len(found)), key=len)


def _check_rows(found: Pass, count: int) -> None:
    for use in found.uses:
        if use.shape[0] % count:
            raise ModelError(
                f"Layer {use.layer} saw {use.shape[0]} rows of a batch of {count} examples.",
                "Which row belongs to which example cannot be told, though it could on the first ones.",
                "Leave it out: risk.restricted_to(...) with globs that match the other parameters.",
            )


def _check_separable(risk: Risk) -> None:
    if not risk.separable:
        raise ModelError(
            "The outputs or the loss of an example depend on the other examples of its batch.",
            "Gradients of single examples do not exist then.",
            "Use products with gauss_newton(risk) and hessian(risk), which need none.",
        )


# What is watched ----------------------------------------------------------------------------------------------------


class _Watch(TorchFunctionMode):
    """While active, every layer that a parameter of θ enters uses a copy of it and notes what it saw.

    What still reaches the parameters themselves has entered in another way.
    """

    def __init__(self, names: dict[int, str], count: int) -> None:
        super().__init__()
        self.names, self.count = names, count
        self.uses: list[Use] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        reader = READERS.get(func)
        output = reader(self, *args, **(kwargs or {})) if reader else NotImplemented
        return func(*args, **(kwargs or {})) if output is NotImplemented else output

    def name(self, parameter: Any) -> str | None:
        return self.names.get(id(parameter))

    def copied(self, parameter: Tensor | None) -> Tensor | None:
        known = parameter is not None and id(parameter) in self.names
        return parameter.detach().requires_grad_() if known and parameter is not None else parameter

    def note(self, kind: Kind, weight: Any, bias: Any, inputs: Tensor, output: Tensor, **options: Any) -> Tensor:
        edge, names = get_gradient_edge(output), (self.name(weight), self.name(bias))
        self.uses.append(Use(kind, *names, inputs.detach(), edge, output.shape, **options))
        return output

    def rows(self, values: Tensor, channels: int) -> Tensor:
        """(..., channels) as (N, T, channels)."""
        return values.reshape(self.count, -1, channels)

    def maps(self, values: Tensor) -> Tensor:
        """(N, channels, ...) as (N, T, channels)."""
        return self.rows(values.reshape(*values.shape[:2], -1).transpose(1, 2), values.shape[1])

    def ignores(self, *parameters: Any) -> bool:
        return all(self.name(parameter) is None for parameter in parameters)


def _linear(watch: _Watch, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if watch.ignores(weight, bias):
        return NotImplemented
    output = F.linear(input, watch.copied(weight), watch.copied(bias))  # type: ignore[arg-type]
    return watch.note(
        "linear", weight, bias, input, output,
        layout=lambda t: watch.rows(t, len(weight)), unfolded=lambda t: watch.rows(t, weight.shape[1]),
    )  # fmt: skip


def _convolution(
    watch: _Watch,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    if watch.ignores(weight, bias) or input.ndim != weight.ndim:
        return NotImplemented
    settings: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    dims = weight.ndim - 2
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[dims - 1]
    output = function(input, watch.copied(weight), watch.copied(bias), groups=groups, **settings)  # type: ignore
    patches = _Patches(tuple(weight.shape[2:]), **{k: _per_dimension(v, dims) for k, v in settings.items()})
    return watch.note(
        "linear", weight, bias, input, output,
        layout=watch.maps, unfolded=lambda t: watch.maps(patches(t)), groups=groups,
    )  # fmt: skip


@dataclass(frozen=True)
class _Patches:
    """The patch under the kernel at every position, in the order of the weight's own entries: (N, in·k, T)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        x = F.pad(x, [side for pair in reversed(self._sides()) for side in pair])
        for axis, (size, step, gap) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True), start=2):
            x = x.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap]
        dims = len(self.kernel)  # now (N, in, *positions, *kernel)
        order = [0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims)]
        return x.permute(order).flatten(1, 1 + dims)

    def _sides(self) -> list[tuple[int, int]]:
        if not isinstance(self.padding, str):
            return [(p, p) for p in self.padding]
        spans = [gap * (size - 1) for size, gap in zip(self.kernel, self.dilation, strict=True)]
        return [(s // 2, s - s // 2) if self.padding == "same" else (0, 0) for s in spans]


def _per_dimension(value: Any, dims: int) -> Any:
    if isinstance(value, str):
        return value
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    return values * dims if len(values) == 1 else values


def _batch_norm(
    watch: _Watch,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if watch.ignores(weight, bias) or training or running_mean is None or running_var is None:
        return NotImplemented
    settings = (False, momentum, eps)
    output = F.batch_norm(input, running_mean, running_var, watch.copied(weight), watch.copied(bias), *settings)
    return watch.note(
        "scale", weight, bias, input, output, layout=watch.maps,
        unfolded=lambda t: watch.maps(F.batch_norm(t, running_mean, running_var, None, None, *settings)),
    )  # fmt: skip


def _layer_norm(
    watch: _Watch,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if watch.ignores(weight, bias):
        return NotImplemented
    shape = list(normalized_shape)
    channels = torch.Size(shape).numel()
    output = F.layer_norm(input, shape, watch.copied(weight), watch.copied(bias), eps)
    return watch.note(
        "scale", weight, bias, input, output, layout=lambda t: watch.rows(t, channels),
        unfolded=lambda t: watch.rows(F.layer_norm(t, shape, None, None, eps), channels),
    )  # fmt: skip


def _group_norm(
    watch: _Watch,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if watch.ignores(weight, bias):
        return NotImplemented
    output = F.group_norm(input, num_groups, watch.copied(weight), watch.copied(bias), eps)
    return watch.note(
        "scale", weight, bias, input, output, layout=watch.maps,
        unfolded=lambda t: watch.maps(F.group_norm(t, num_groups, None, None, eps)),
    )  # fmt: skip


def _embedding(
    watch: _Watch, input: Tensor, weight: Tensor, padding_idx: int | None = None, *args: Any, **kw: Any
) -> Any:
    options = {**dict(zip(("max_norm", "norm_type", "scale_grad_by_freq", "sparse"), args, strict=False)), **kw}
    if watch.ignores(weight) or options.get("max_norm") is not None or options.get("scale_grad_by_freq"):
        return NotImplemented  # max_norm changes the weight; frequencies are those of a batch
    output = F.embedding(input, watch.copied(weight))  # type: ignore[arg-type]
    padding = None if padding_idx is None else (input == padding_idx % len(weight))[..., None]
    counted = lambda t: t if padding is None else t.masked_fill(padding, 0.0)  # what is padding has no gradient
    return watch.note(
        "embedding", weight, None, input, output,
        layout=lambda t: watch.rows(counted(t), weight.shape[1]), unfolded=lambda t: t.reshape(watch.count, -1),
    )  # fmt: skip


READERS: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    torch.conv1d: _convolution,
    torch.conv2d: _convolution,
    torch.conv3d: _convolution,
    F.batch_norm: _batch_norm,
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    F.embedding: _embedding,
}
