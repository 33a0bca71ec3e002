"""Training is a generator, so that measuring is a `for` loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from .. import progress


@dataclass(frozen=True)
class Epoch:
    """What one pass over the data left: its number, from 1, and the mean training loss seen during it."""

    number: int
    loss: float

    @property
    def diverged(self) -> bool:
        """Whether the loss is no number any more; what to do about it is the caller's choice."""
        return not isfinite(self.loss)


def train(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Shaped[Tensor, "N ..."], Shaped[Tensor, "N ..."]],
    optimizer: torch.optim.Optimizer,
    *,
    num_epochs: int,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Epoch]:
    """Train the model in place, pausing after every epoch.

        for epoch in train(model, loss, data, optimizer, num_epochs=20, batch_size=64, generator=generator):
            risk = Risk(model, loss, data)
            ...

    At every pause the model is in eval mode, as a measurement needs it; a schedule is a line in the caller's loop.
    """
    x, y = data
    with progress.bar("Training", total=num_epochs) as bar:
        for number in range(1, num_epochs + 1):
            model.train()
            total = sum(
                step(model, loss, x[rows], y[rows], optimizer) * len(rows)
                for rows in torch.randperm(len(x), generator=generator).to(x.device).split(batch_size)
            )
            model.eval()
            bar.advance(loss=total / len(x))
            yield Epoch(number, total / len(x))


def step(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    optimizer: torch.optim.Optimizer,
) -> float:
    """One optimiser step on one batch; returns the mean loss before it."""
    optimizer.zero_grad()
    value = loss(model(x), y).mean()
    value.backward()
    optimizer.step()
    return float(value.detach())


@torch.no_grad()
def accuracy(model: nn.Module, data: tuple[Shaped[Tensor, "N ..."], Shaped[Tensor, "N ..."]]) -> float:
    """The fraction of examples whose largest output is that of their class."""
    x, y = data
    return float((model(x).argmax(-1) == y).double().mean())
