"""Fully connected networks: linear and deep, one- and many-dimensional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ... import theory
from ...errors import ArgumentError
from ..init import Parametrization, Recipe, check_widths
from . import build

Activation = Literal["linear", "relu", "leaky", "tanh"]
LEAK = 0.01  # slope of "leaky" left of zero, PyTorch's default

_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky": lambda: nn.LeakyReLU(LEAK),
    "tanh": nn.Tanh,
}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda h: h,
    "relu": F.relu,
    "leaky": lambda h: F.leaky_relu(h, LEAK),
    "tanh": torch.tanh,
}


class Scaled(nn.Module):
    """Multiply by a constant, as the neural-tangent parametrisation does after each layer.

    >>> Scaled(0.5)(torch.tensor([2.0, 4.0]))
    tensor([1., 2.])
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, h: Tensor) -> Tensor:
        return self.factor * h

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


def mlp(
    widths: Sequence[int],
    *,
    generator: torch.Generator,
    activation: Activation = "relu",
    bias: bool = True,
    parametrization: Recipe | Parametrization | Sequence[Tensor] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """f(x) = W_L φ(W_{L-1} ⋯ φ(W₁x + b₁) ⋯ + b_{L-1}) + b_L on rows of d₀ numbers; `widths` are d₀ … d_L.

    PyTorch's default weights, unless a `parametrization` is given: one of `lab.init` (`init.maximal_update`), what it
    returned, or a list of weights (`init.balanced(…)`); biases start at zero then.

    >>> model = mlp((64, 32, 10), activation="tanh", generator=torch.Generator().manual_seed(0))
    >>> model(torch.zeros(5, 64)).shape
    torch.Size([5, 10])
    """
    check_widths(widths)
    check_activation(activation)
    start = _start(parametrization, widths, generator)

    def layout() -> nn.Sequential:
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(widths)):
            layers.append(nn.Linear(before, after, bias=bias))
            if start is not None and start.multipliers[index] != 1.0:
                layers.append(Scaled(start.multipliers[index]))
            if activation != "linear" and index < len(widths) - 2:
                layers.append(_LAYERS[activation]())
        return nn.Sequential(*layers)

    model = build.network(layout, build.default, generator=generator, device=device, dtype=dtype)
    if start is not None and torch.device(device).type != "meta":
        _set_weights(model, start.weights)
    return model


def linear_network(
    widths: Sequence[int],
    *,
    generator: torch.Generator,
    parametrization: Recipe | Parametrization | Sequence[Tensor] | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """f(x) = W_L ⋯ W₁x, parameters in the order (W₁ … W_L) of the closed forms: `mlp` without activation and bias.

    >>> linear_network((3, 2, 1), generator=torch.Generator().manual_seed(0))
    Sequential(
      (0): Linear(in_features=3, out_features=2, bias=False)
      (1): Linear(in_features=2, out_features=1, bias=False)
    )
    """
    return mlp(
        widths,
        generator=generator,
        activation="linear",
        bias=False,
        parametrization=parametrization,
        device=device,
        dtype=dtype,
    )


def wide_mlp(
    num_inputs: int,
    num_classes: int = 10,
    *,
    generator: torch.Generator,
    depth: int = 8,
    width: int = 2048,
    batch_norm: bool = True,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """The eight-layer ReLU network with 2048 units in each hidden layer of Papyan (2020), App. D.1, on flat inputs.

    The paper does not say whether the output counts among the eight; here it does, as its figures have l = 1 … 8. Batch
    normalisation stands before every ReLU (footnote 4), unless it is left out.

    >>> build.parameter_count(wide_mlp(784, generator=torch.Generator(), device="meta"))
    26834954
    """
    if depth < 1:
        raise ArgumentError(
            f"A network of {depth} layers was requested.",
            "A network needs at least its output layer.",
            "Choose depth=1 or more.",
        )
    widths = (num_inputs, *[width] * (depth - 1), num_classes)
    check_widths(widths)
    if not batch_norm:
        return mlp(widths, generator=generator, activation="relu", bias=True, device=device, dtype=dtype)

    def layout() -> nn.Sequential:
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        return nn.Sequential(*layers[:-2])

    return build.network(layout, build.default, generator=generator, device=device, dtype=dtype)


class ScalarNetwork(nn.Module):
    """f(x) = ⟨w, φ(v x)⟩ on numbers, with parameters (v, w): Singh et al. (2026), Sec. 3.1 and 3.2.

    Inputs (N,) give outputs (N,), inputs (N, 1) outputs (N, 1).

    >>> network = ScalarNetwork(3, "relu")
    >>> [name for name, _ in network.named_parameters()]
    ['v', 'w']
    """

    def __init__(self, width: int, activation: Activation = "linear") -> None:
        super().__init__()
        check_activation(activation)
        check_widths([1, width])
        self.activation = activation
        self.v, self.w = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N ..."]:
        return (_FUNCTIONS[self.activation](x.reshape(-1, 1) * self.v) @ self.w).view(x.shape)

    def closed_form(self, x: Tensor, y: Tensor, *, gauss_newton: bool = False) -> theory.ClosedForm | None:
        """The spectrum under squared error on these data, which reports compare with measurements; None if unknown."""
        given = (self.v.detach(), self.w.detach(), x.flatten(), y.flatten())
        slopes = {"relu": 0.0, "leaky": LEAK}
        if self.activation in slopes:
            return theory.relu_network(*given, slope=slopes[self.activation], gauss_newton=gauss_newton)
        return theory.linear_network(*given, gauss_newton=gauss_newton) if self.activation == "linear" else None


class BiasNetwork(nn.Module):
    """f(x) = ⟨w, v x + b⟩ on numbers, with parameters (v, b, w): Singh et al. (2026), App. B.3.

    >>> [name for name, _ in BiasNetwork(3).named_parameters()]
    ['v', 'b', 'w']
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        check_widths([1, width])
        self.v, self.b, self.w = (nn.Parameter(torch.empty(width)) for _ in range(3))

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N ..."]:
        return ((x.reshape(-1, 1) * self.v + self.b) @ self.w).view(x.shape)

    def closed_form(self, x: Tensor, y: Tensor, *, gauss_newton: bool = False) -> theory.ClosedForm:
        """The spectrum under squared error on these data, which reports compare with the measured one."""
        own = (self.v.detach(), self.b.detach(), self.w.detach())
        return theory.bias_network(*own, x.flatten(), y.flatten(), gauss_newton=gauss_newton)


def scalar_network(
    width: int,
    *,
    generator: torch.Generator,
    activation: Activation = "linear",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> ScalarNetwork:
    """f(x) = ⟨w, φ(v x)⟩ in the standard parametrisation: v ~ N(0, 1), w ~ N(0, 1/m).

    >>> network = scalar_network(3, generator=torch.Generator().manual_seed(0))
    >>> network(torch.zeros(2)).tolist()
    [0.0, 0.0]
    """
    layout = lambda: ScalarNetwork(width, activation)
    return build.network(layout, _draw_scalar, generator=generator, device=device, dtype=dtype)


def bias_network(
    width: int,
    *,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> BiasNetwork:
    """f(x) = ⟨w, v x + b⟩ in the standard parametrisation of two inputs, x and 1: v, b ~ N(0, 1/2), w ~ N(0, 1/m).

    >>> network = bias_network(3, generator=torch.Generator().manual_seed(0))
    >>> bool((network(torch.zeros(2)) == network.b @ network.w).all())
    True
    """
    layout = lambda: BiasNetwork(width)
    return build.network(layout, _draw_scalar, generator=generator, device=device, dtype=dtype)


def check_activation(activation: str) -> None:
    """Refuse an unknown activation."""
    if activation not in get_args(Activation):
        raise ArgumentError(
            f"The activation {activation!r} was requested.",
            f"The networks here have {', '.join(get_args(Activation))}.",
            "For another one, build an nn.Sequential of your own: everything in ritz takes any nn.Module.",
        )


def _draw_scalar(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, ScalarNetwork | BiasNetwork):
        inputs = [part.v, part.b] if isinstance(part, BiasNetwork) else [part.v]
        for parameter in inputs:
            build.fill_normal(parameter, len(inputs) ** -0.5, generator)
        build.fill_normal(part.w, len(part.w) ** -0.5, generator)


def _start(
    given: Recipe | Parametrization | Sequence[Tensor] | None, widths: Sequence[int], generator: torch.Generator
) -> Parametrization | None:
    if given is None or isinstance(given, Parametrization):
        start = given
    elif callable(given):
        start = given(widths, generator=generator)
    else:
        start = Parametrization(list(given), [1.0] * len(given), [1.0] * len(given))
    shapes = [(after, before) for before, after in pairwise(widths)]
    if start is not None and [tuple(W.shape) for W in start.weights] != shapes:
        raise ArgumentError(
            f"The weights have shapes {[tuple(W.shape) for W in start.weights]}.",
            f"A network of widths {list(widths)} has layers {shapes}, out × in.",
            "Draw them for the same widths.",
        )
    return start


@torch.no_grad()
def _set_weights(model: nn.Sequential, weights: Sequence[Tensor]) -> None:
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer, W in zip(linear, weights, strict=True):
        layer.weight.copy_(W)
        if layer.bias is not None:
            layer.bias.zero_()
