"""Readers of layers while a model runs: one for every kind of layer that parameters enter.

Layers are recognised by the functions through which parameters enter (`F.linear`, `torch.conv2d`, ...), not by module
type, so that shared, tied and functional uses are seen, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..engine.rules import TRANSPARENT
from ..risk.precision import in_precision
from .uses import Kind, Layout, Use

ORDERS = 3  # the layouts that the rows of examples can have


class Watch(TorchFunctionMode):
    """While active, every layer that a parameter of θ enters uses a copy of the parameter and notes what it saw.

    A gradient that still reaches the parameter itself shows that it entered in another way. `orders` says how the rows
    of examples are laid out in the layers of some parameters, if not one example after the other.
    """

    def __init__(self, names: dict[int, str], count: int, orders: Mapping[str, int]) -> None:
        super().__init__()
        self.names, self.count, self.orders = names, count, orders
        self.uses: list[Use] = []
        self.copies: list[tuple[Tensor, str]] = []  # with the names of the parameters

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in TRANSPARENT:
            with self:
                return TRANSPARENT[func](*args, **(kwargs or {}))
        reader = READERS.get(func) if _leaves_a_graph() else None
        output = reader(self, *args, **(kwargs or {})) if reader else NotImplemented
        return func(*args, **(kwargs or {})) if output is NotImplemented else output

    def name(self, parameter: Any) -> str | None:
        return self.names.get(id(parameter))

    def copy(self, parameter: Tensor | None) -> Tensor | None:
        if parameter is None or id(parameter) not in self.names:
            return parameter
        copy = parameter.detach().requires_grad_()
        self.copies.append((copy, self.names[id(parameter)]))
        return copy

    def note(self, kind: Kind, weight: Any, bias: Any, inputs: Tensor, output: Tensor, **options: Any) -> Tensor:
        edge, names = get_gradient_edge(output), (self.name(weight), self.name(bias))
        order, parameter = self.order(weight, bias), bias if weight is None else weight
        seen = inputs.detach().to(in_precision(inputs, parameter.dtype))  # in that of θ: autocast may have lowered it
        self.uses.append(Use(kind, *names, seen, edge, output.shape, parameter.dtype, **options, order=order))
        return output

    def order(self, *parameters: Any) -> int:
        return max(self.orders.get(self.name(parameter) or "", 0) for parameter in parameters)

    def rows(self, channels: int, order: int = 0) -> Layout:
        """The layout of (..., channels). It must not hold the watch, which holds the graph of the whole model."""
        return partial(_rows, count=self.count, channels=channels, order=order)

    @property
    def maps(self) -> Layout:
        """The layout of (N, channels, ...)."""
        return partial(_maps, count=self.count)

    def ignores(self, *parameters: Any) -> bool:
        return all(self.name(parameter) is None for parameter in parameters)


def _rows(values: Tensor, *, count: int, channels: int, order: int) -> Tensor:
    """(..., channels) as (N, T, channels): examples lie first (order 0), last (1), or second (2: time-major)."""
    if order == 0:
        return values.reshape(count, -1, channels)
    if order == 1:
        return values.reshape(-1, count, channels).transpose(0, 1)
    return values.reshape(len(values), count, -1, channels).transpose(0, 1).flatten(1, 2)


def _maps(values: Tensor, *, count: int) -> Tensor:
    """(N, channels, ...) as (N, T, channels)."""
    positions = values.reshape(*values.shape[:2], -1).transpose(1, 2)
    return _rows(positions, count=count, channels=values.shape[1], order=0)


def _leaves_a_graph() -> bool:
    """Whether errors come back to what is computed now: not without gradients, and not inside a transform."""
    return torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()


def _linear(watch: Watch, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if watch.ignores(weight, bias) or not _is_matrix(weight) or not (bias is None or bias.shape == weight.shape[:1]):
        return NotImplemented
    output = F.linear(input, watch.copy(weight), watch.copy(bias))  # type: ignore[arg-type]
    order = watch.order(weight, bias)
    return watch.note(
        "linear", weight, bias, input, output,
        layout=watch.rows(len(weight), order), unfolded=watch.rows(weight.shape[1], order),
    )  # fmt: skip


def _is_matrix(weight: Tensor) -> bool:
    """Whether a weight has entries for inputs and outputs, unlike a vector, or a layer without features."""
    return weight.ndim == 2 and weight.numel() > 0


def _convolution(
    watch: Watch,
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
    output = function(input, watch.copy(weight), watch.copy(bias), groups=groups, **settings)  # type: ignore
    maps = watch.maps
    patches = _Patches(tuple(weight.shape[2:]), **{k: _per_dimension(v, dims) for k, v in settings.items()})
    return watch.note(
        "linear", weight, bias, input, output, layout=maps, unfolded=lambda t: maps(patches(t)), groups=groups
    )


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
    watch: Watch,
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
    output = F.batch_norm(input, running_mean, running_var, watch.copy(weight), watch.copy(bias), *settings)
    maps = watch.maps
    return watch.note(
        "scale", weight, bias, input, output, layout=maps,
        unfolded=lambda t: maps(F.batch_norm(t, running_mean, running_var, None, None, *settings)),
    )  # fmt: skip


def _layer_norm(
    watch: Watch,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if watch.ignores(weight, bias):
        return NotImplemented
    shape = list(normalized_shape)
    rows = watch.rows(torch.Size(shape).numel(), watch.order(weight, bias))
    output = F.layer_norm(input, shape, watch.copy(weight), watch.copy(bias), eps)
    return watch.note(
        "scale", weight, bias, input, output, layout=rows,
        unfolded=lambda t: rows(F.layer_norm(t, shape, None, None, eps)),
    )  # fmt: skip


def _group_norm(
    watch: Watch,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if watch.ignores(weight, bias):
        return NotImplemented
    output = F.group_norm(input, num_groups, watch.copy(weight), watch.copy(bias), eps)
    maps = watch.maps
    return watch.note(
        "scale", weight, bias, input, output, layout=maps,
        unfolded=lambda t: maps(F.group_norm(t, num_groups, None, None, eps)),
    )  # fmt: skip


def _embedding(
    watch: Watch, input: Tensor, weight: Tensor, padding_idx: int | None = None, *args: Any, **kw: Any
) -> Any:
    options = {**dict(zip(("max_norm", "norm_type", "scale_grad_by_freq", "sparse"), args, strict=False)), **kw}
    if watch.ignores(weight) or options.get("max_norm") is not None or options.get("scale_grad_by_freq"):
        return NotImplemented  # max_norm changes the weight; scaling by frequency depends on the batch
    output = F.embedding(input, watch.copy(weight), padding_idx)  # type: ignore[arg-type]
    padding = None if padding_idx is None else (input == padding_idx % len(weight))[..., None]
    rows, indices = (watch.rows(channels, watch.order(weight)) for channels in (weight.shape[1], 1))
    counted = lambda t: t if padding is None else t.masked_fill(padding, 0.0)  # padding has no gradient
    return watch.note(
        "embedding", weight, None, input, output,
        layout=lambda t: rows(counted(t)), unfolded=lambda t: indices(t[..., None])[..., 0],
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
