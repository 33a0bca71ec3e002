"""Gradient, H v, G v and E v of a network by nothing but PyTorch, in float64: no line of ritz is used.

By double backward, each batch on its own, or by central differences of first derivatives, for networks of which
PyTorch has no second derivative or a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from .losses import PlainLoss
from .network import Pairs

Truth = dict[str, Tensor]  # "gradient" (n,), and "H", "G", "E" with a column for each direction
STEP = 1e-5  # of central differences, with a second one of twice the length to remove their leading error


def by_double_backward(model: nn.Module, loss: PlainLoss, data: Pairs, V: Tensor) -> Truth:
    """∇R, ∇(∇R·v), Jᵀ L J v by a derivative of u ↦ Jᵀu, and ∇(∇(z·u)·v) for fixed u = ∂ℓ/∂z."""
    sums = _Sums(model, loss, data, V)
    parameters = _parameters(model)
    for x, y in data:
        z = _outputs(model, x)
        gradient = _flat_gradient(loss.total(z, y), parameters, create_graph=True)
        (slope,) = torch.autograd.grad(loss.total(leaf := z.detach().requires_grad_(), y), leaf)
        probe = torch.zeros_like(z, requires_grad=True)
        transposed = _flat_gradient((z * probe).sum(), parameters, create_graph=True)
        functional = _flat_gradient((z * slope).sum(), parameters, create_graph=True)
        middle = loss.curvature(z.detach(), y)
        sums.add("gradient", gradient.detach())
        for column, v in enumerate(V.T):
            sums.add("H", _flat_gradient(gradient @ v, parameters, retain_graph=True), column)
            (Jv,) = torch.autograd.grad(transposed @ v, probe, retain_graph=True)
            sums.add("G", _flat_gradient((z * middle(Jv)).sum(), parameters, retain_graph=True), column)
            sums.add("E", _flat_gradient(functional @ v, parameters, retain_graph=True), column)
    return sums.means()


def by_central_differences(model: nn.Module, loss: PlainLoss, data: Pairs, V: Tensor) -> Truth:
    """H v, G v and E v by differences along v of ∇R, of z and of Jᵀu: first derivatives alone."""
    sums = _Sums(model, loss, data, V)
    parameters = _parameters(model)
    for x, y in data:
        z = _outputs(model, x)
        (slope,) = torch.autograd.grad(loss.total(leaf := z.detach().requires_grad_(), y), leaf)
        middle = loss.curvature(z.detach(), y)
        sums.add("gradient", _flat_gradient(loss.total(z, y), parameters))
        pulled = lambda u, x=x: _flat_gradient((_outputs(model, x) * u).sum(), parameters)
        slopes = lambda x=x, y=y: _flat_gradient(loss.total(_outputs(model, x), y), parameters)
        for column, v in enumerate(V.T):
            sums.add("H", _derivative(slopes, parameters, v), column)
            sums.add("G", pulled(middle(_derivative(lambda x=x: _outputs(model, x).detach(), parameters, v))), column)
            sums.add("E", _derivative(lambda u=slope, pulled=pulled: pulled(u), parameters, v), column)
    return sums.means()


ORACLES = {"double backward": by_double_backward, "central differences": by_central_differences}


class _Sums:
    """Sums over the batches, and the means that they become."""

    def __init__(self, model: nn.Module, loss: PlainLoss, data: Pairs, V: Tensor) -> None:
        with torch.no_grad():
            self.count = sum(loss.count(_outputs(model, x), y) for x, y in data)
        self.totals: Truth = {"gradient": torch.zeros(len(V), dtype=V.dtype)}
        self.totals |= {name: torch.zeros_like(V) for name in ("H", "G", "E")}

    def add(self, name: str, value: Tensor, column: int | None = None) -> None:
        (self.totals[name] if column is None else self.totals[name][:, column]).add_(value)

    def means(self) -> Truth:
        return {name: total / self.count for name, total in self.totals.items()}


def _parameters(model: nn.Module) -> list[Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _outputs(model: nn.Module, x: Any) -> Tensor:
    """One tensor, by attention in plain operations: the fused kernels have no second derivative."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            z = model(**x) if isinstance(x, dict) else model(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        _forget(model)
    return z if isinstance(z, Tensor) else z.logits


def _forget(model: nn.Module) -> None:
    """Empty what modules keep of their parameters between two calls in evaluation mode, as timm's LeViT does."""
    for module in model.modules():
        for name, value in vars(module).items():
            if name.endswith("_cache") and isinstance(value, dict):
                value.clear()


def _flat_gradient(value: Tensor, parameters: Sequence[Tensor], **options: bool) -> Tensor:
    if not value.requires_grad:
        return torch.cat([torch.zeros_like(p).reshape(-1) for p in parameters])
    pieces = torch.autograd.grad(value, parameters, allow_unused=True, **options)
    return _flat(torch.zeros_like(p) if g is None else g.to_dense() for p, g in zip(parameters, pieces, strict=True))


def _flat(pieces: Iterable[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])


def slope_error(model: nn.Module, loss: PlainLoss, data: Pairs, gradient: Tensor, v: Tensor) -> float:
    """|∇R·v - dR/dt| / ‖∇R‖ along v, by differences of R itself: first derivatives are not beyond doubt either."""
    value = lambda: torch.stack([loss.total(_outputs(model, x), y).detach() for x, y in data]).sum()
    count = sum(loss.count(_outputs(model, x), y) for x, y in data)
    return float((_derivative(value, _parameters(model), v) / count - gradient @ v).abs() / gradient.norm())


def _derivative(function: Callable[[], Tensor], parameters: list[Tensor], v: Tensor) -> Tensor:
    """d/dt of a function of the parameters along v, by differences of fourth order."""
    near, far = (_difference(function, parameters, v, step) for step in (STEP, 2 * STEP))
    return (4 * near - far) / 3


def _difference(function: Callable[[], Tensor], parameters: list[Tensor], v: Tensor, step: float) -> Tensor:
    start = [parameter.detach().clone() for parameter in parameters]
    values = []
    for sign in (1, -1):
        _move(parameters, start, v, sign * step)
        values.append(function())
    _move(parameters, start, v, 0.0)
    return (values[0] - values[1]) / (2 * step)


@torch.no_grad()
def _move(parameters: list[Tensor], start: list[Tensor], v: Tensor, step: float) -> None:
    pieces = v.split([parameter.numel() for parameter in parameters])
    for parameter, origin, piece in zip(parameters, start, pieces, strict=True):
        parameter.copy_(origin + step * piece.view_as(origin))


class InDouble(TorchFunctionMode):
    """While active, what a model in float64 would compute in float32 is computed in float64."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        func = Tensor.double if func is Tensor.float else func
        swap = lambda value: torch.float64 if value is torch.float32 else value
        return func(*map(swap, args), **{name: swap(value) for name, value in (kwargs or {}).items()})


class Float32(TorchFunctionMode):
    """Sees whether a model in float64 computes something that depends on its parameters in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dtype == torch.float32 and result.requires_grad:
            self.seen = True
        return result
