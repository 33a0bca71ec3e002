"""Training many networks in step, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ModelError
from ...record import SAVE_SECONDS, digest, identity_of, model_identity
from ...record.checkpoints import Arrays
from ..training.batches import Data, Division, check_tensors
from ..training.captured import step_of_rows
from ..training.loop import Pause, check_run, pauses
from ..training.rates import factors, learning_rates
from ..training.schedules import Constant, Pace, Schedule
from ..training.scores import AnyLoss, check_loss
from .networks import Ensemble, losses_at, on_device

EXAMPLES = 64  # on which outputs in training mode and in eval mode are compared
ALIKE = 1e-3  # of the largest output: above what another kernel rounds, below what dropout does


def train(
    ensemble: Ensemble,
    loss: AnyLoss,
    data: Data,
    *,
    learning_rate: float | Float[Tensor, " B"],
    num_epochs: int,
    schedule: Schedule | None = None,
    layer_rates: Sequence[float] | None = None,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    each: bool = False,
    checkpoint: str | Path | None = None,
    save_seconds: float = SAVE_SECONDS,
    capture: bool = False,
) -> Iterator[Pause[Tensor, dict[str, Tensor]]]:
    """Gradient descent of all networks in place, in step, pausing after every epoch: SGD without momentum.

        for pause in ensemble.train(networks, loss, data, learning_rate=1e-2, num_epochs=500, batch_size=128,
                                    schedule=Plateau(10, 1e-2, 0.1, floor=1e-3), generator=generator):
            pause.loss, pause.diverged, pause.done

    Each network has its own pace. One that diverged, or that the schedule has ended, stays as it is while the others
    go on; the run ends with the last of them. Linear networks are trained far faster by `lab.training.linear_descent`.

    Args:
        learning_rate: One for all, or one for each network.
        layer_rates: Multiplies it, for each parameter in the order of `named_parameters()`.
        batch_size: None for all examples at once; else batches, the same for all networks.
        each: Whether every network has its own data, B × N × ….
        schedule, checkpoint, save_seconds, capture: As in `lab.training.train`.

    >>> from ritz.lab.ensemble import linear
    >>> networks, data = linear([torch.tensor([[[1.0]], [[2.0]]])]), (torch.ones(1, 1), torch.zeros(1, 1))
    >>> [pause.loss.tolist() for pause in train(networks, torch.nn.MSELoss(), data, learning_rate=0.5, num_epochs=2)]
    [[1.0, 4.0], [0.0, 0.0]]
    """
    check_loss(loss)
    check_tensors(data)
    check_run(num_epochs=num_epochs, batch_size=batch_size, generator=generator)
    schedule = Constant() if schedule is None else schedule
    names = list(ensemble.parameters)
    rates = factors("layer_rates", layer_rates, len(names), of=f"parameter tensors: {', '.join(names)}")
    rate = learning_rates(learning_rate, torch.Size([len(ensemble)]), ensemble.device)
    data = on_device(ensemble, data, each)
    _check_mode(ensemble, data[0][0] if each else data[0])
    division = Division(data[0].shape[1 if each else 0], batch_size, generator)
    trainee = _Stack(ensemble, loss, data, each, rate, rates, division, capture=capture)
    return pauses(
        trainee,
        schedule,
        torch.full_like(rate, torch.inf),
        num_epochs=num_epochs,
        label=f"Training {len(ensemble)} networks",
        checkpoint=checkpoint,
        save_seconds=save_seconds,
        settings={"loss": loss, "batch_size": batch_size, "layer_rates": rates},
    )


def _check_mode(ensemble: Ensemble, x: Tensor) -> None:
    """Refuse networks that compute differently while they train, whatever in them does: layers alone do not tell."""
    network, some = ensemble.network(0), x[:EXAMPLES]
    with torch.no_grad(), torch.random.fork_rng([x.device.index] if x.is_cuda else []):
        found, expected = network.train()(some), network.eval()(some)
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    if not torch.allclose(found, expected, rtol=0.0, atol=ALIKE * scale, equal_nan=True):
        raise ModelError(
            "The networks give other outputs in training mode than in eval mode.",
            "An ensemble computes in eval mode, even in training, so it would train a different network.",
            "Leave out what differs, such as F.dropout, or train one network at a time with `train`.",
        )


class _Stack:
    """An ensemble as the loop of `pauses` sees it."""

    def __init__(
        self,
        ensemble: Ensemble,
        loss: AnyLoss,
        data: Data,
        each: bool,
        learning_rate: Tensor,
        layer_rates: Sequence[float],
        division: Division,
        *,
        capture: bool,
    ) -> None:
        self.ensemble, self.loss, self.data, self.each = ensemble, loss, data, each
        self.learning_rate, self.layer_rates = learning_rate, layer_rates
        self.division, self.generator, self.steps_per_epoch = division, division.generator, division.num_batches
        self.current = torch.zeros_like(learning_rate)  # the rates of this epoch, where a graph reads them
        tensors = [*data, *ensemble.parameters.values()]
        self.step_of_rows = step_of_rows(self._step_of_rows, capture=capture, tensors=tensors)

    def epoch(self, pace: Pace) -> tuple[Tensor, None]:
        self.current.copy_(torch.where(pace.done, 0.0, self.learning_rate * pace.factor))
        if self.division.batch_size is None:
            return self._step(self.data), None
        return self.division.mean(lambda rows: self.step_of_rows(rows)[0], torch.zeros_like(pace.factor)), None

    def _step_of_rows(self, rows: Tensor) -> tuple[Tensor]:
        x, y = (part.index_select(1 if self.each else 0, rows) for part in self.data)
        return (self._step((x, y)),)

    def _step(self, batch: Data) -> Tensor:
        parameters = {name: value.requires_grad_() for name, value in self.ensemble.parameters.items()}
        with torch.enable_grad():
            values = losses_at(self.ensemble, parameters, self.loss, batch, self.each)
            gradients = torch.autograd.grad(values.sum(), list(parameters.values()), materialize_grads=True)
        for parameter, gradient, factor in zip(parameters.values(), gradients, self.layer_rates, strict=True):
            parameter.requires_grad_(False)
            here = (factor * self.current).to(parameter.dtype).view(-1, *[1] * (parameter.ndim - 1))
            parameter.copy_(torch.where(here == 0, parameter, parameter - here * gradient))
        return values.detach().double()

    def rate(self, pace: Pace) -> Tensor:
        return self.learning_rate * self.layer_rates[0] * pace.factor

    def parameters(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.ensemble.parameters.items()}

    def state(self) -> tuple[Arrays, Mapping[str, Any]]:
        arrays: Arrays = {f"parameters/{name}": value for name, value in self.ensemble.parameters.items()}
        return arrays, {}

    def restore(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
        for name, value in self.ensemble.parameters.items():
            value.copy_(torch.from_numpy(arrays[f"parameters/{name}"]))

    def identity(self) -> dict[str, str]:
        """The settings that identify this run, before it starts."""
        return {
            "initial weights": digest(*self.ensemble.parameters.values(), *self.ensemble.buffers.values()),
            **model_identity("model", self.ensemble.model),
            **identity_of("each", self.each),
            "data": digest(*self.data),
            "learning_rate": digest(self.learning_rate),
            **identity_of("generator", self.generator),
        }
