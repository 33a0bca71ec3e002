"""One animal of the zoo: a network of somebody else's with its data, at a size that a laptop holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .losses import CrossEntropy, PlainLoss

Pairs = list[tuple[Any, Tensor]]
SIZES = (2, 3)  # of the batches: small enough to be joined, and not of one size


@dataclass(frozen=True)
class Network:
    """How to build a network and its data, and what is known of it beforehand."""

    name: str
    build: Callable[[], nn.Module]
    data: Callable[[], Pairs]
    loss: PlainLoss = field(default_factory=CrossEntropy)
    oracle: Literal["double backward", "central differences"] = "double backward"
    rules: bool = True  # whether one of its layers has a rule, so that the rules are to be taken
    slope: bool = True  # whether its gradient is that of its loss: DoRA takes a norm for a constant on purpose
    stir: bool = True  # whether its parameters may be moved at random before it is looked at

    def model(self) -> nn.Module:
        """The network in float64 and evaluation mode, the same at every call."""
        torch.manual_seed(0)
        model = self.build().double()
        if self.stir:
            _fill_statistics(model, self.data()[0][0])
            _stir(model)
        return model.eval()


@torch.no_grad()
def _fill_statistics(model: nn.Module, inputs: Any) -> None:
    """Take the running statistics from a batch: with those of a new network, deep ones overflow or saturate."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.5
    model.train()
    model(inputs)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum


@torch.no_grad()
def _stir(model: nn.Module) -> None:
    """Move every parameter a little: heads, scales and adapters begin at zero, where curvature vanishes."""
    for parameter in model.parameters():
        parameter.add_(0.02 * torch.randn_like(parameter))


def images(size: int, classes: int = 10, channels: int = 3) -> Callable[[], Pairs]:
    """Random images with random labels."""

    def pairs() -> Pairs:
        draw = torch.Generator().manual_seed(1)
        return [(_normal(draw, n, channels, size, size), _integers(draw, classes, n)) for n in SIZES]

    return pairs


def sentences(vocabulary: int, length: int, classes: int = 0) -> Callable[[], Pairs]:
    """Random tokens as `input_ids`, with the next tokens or, if `classes` is given, a label as targets."""

    def pairs() -> Pairs:
        draw = torch.Generator().manual_seed(1)
        tokens = [_integers(draw, vocabulary - 1, n, length + 1) + 1 for n in SIZES]  # 0 is padding
        targets = [_integers(draw, classes, len(t)) if classes else t[:, 1:].contiguous() for t in tokens]
        return [({"input_ids": t[:, :-1].contiguous()}, y) for t, y in zip(tokens, targets, strict=True)]

    return pairs


def vectors(*shape: int, classes: int = 0, outputs: tuple[int, ...] = ()) -> Callable[[], Pairs]:
    """Random arrays with random labels, or with random arrays of shape `outputs` as targets."""

    def pairs() -> Pairs:
        draw = torch.Generator().manual_seed(1)
        target = lambda n: _integers(draw, classes, n) if classes else _normal(draw, n, *outputs)
        return [(_normal(draw, n, *shape), target(n)) for n in SIZES]

    return pairs


def _normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def _integers(draw: torch.Generator, high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=draw)
