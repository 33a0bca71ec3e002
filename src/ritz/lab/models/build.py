"""Construction of models: laid out on the meta device, then initialised from a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)
Draw = Callable[[nn.Module, torch.Generator], None]


def network(
    layout: Callable[[], Model],
    draw: Draw,
    *,
    generator: torch.Generator,
    device: torch.device | str,
    dtype: torch.dtype,
) -> Model:
    """The module that `layout` returns, each of its parts initialised by `draw` in the order of `modules()`.

    torch's own generator is neither read nor advanced. On the meta device nothing is drawn.
    """
    with torch.device("meta"):
        model = layout().to(dtype)
    if torch.device(device).type == "meta":
        return model
    model = model.to_empty(device=device)
    with torch.no_grad():
        for part in model.modules():
            draw(part, generator)
    return model


def default(part: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's own initialisation: uniform in ±1/√fan-in for weights and biases, norms at one and zero."""
    if isinstance(part, nn.Linear | nn.Conv2d):
        bound = part.weight[0].numel() ** -0.5
        fill_uniform(part.weight, bound, generator)
        if part.bias is not None:
            fill_uniform(part.bias, bound, generator)
    else:
        fill_norm(part)


def fill_norm(part: nn.Module) -> None:
    """Weights one, biases zero, and running statistics as if nothing had been seen."""
    if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm):
        part.reset_parameters()  # nothing random in it


def fill_uniform(target: Tensor, bound: float, generator: torch.Generator) -> None:
    """Fill with uniform numbers in ±bound, drawn in float64 where the generator lives."""
    draws = torch.rand(target.shape, generator=generator, dtype=torch.float64, device=generator.device)
    target.copy_((2 * draws - 1) * bound)


def fill_normal(target: Tensor, deviation: float, generator: torch.Generator) -> None:
    """Fill with Gaussians of mean zero, drawn in float64 where the generator lives."""
    draws = torch.randn(target.shape, generator=generator, dtype=torch.float64, device=generator.device)
    target.copy_(draws * deviation)


def parameter_count(model: nn.Module) -> int:
    """How many parameters the model has, counting shared ones once.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters())
