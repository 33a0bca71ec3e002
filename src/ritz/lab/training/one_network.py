"""Training one network, of any kind, with an optimiser of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import ArgumentError, DataError, ResumptionWarning, check_instance, check_positive, warn_user
from ...record import SAVE_SECONDS, digest, identity_of, model_identity
from ...record.arrays import under
from ...record.checkpoints import Arrays
from .arithmetic import Arithmetic, autocast, check_arithmetic, multiply_in
from .batches import BatchSource, Data, Division, check_tensors
from .captured import CapturedStep
from .loop import Pause, check_run, pauses
from .optimizer_state import OptimizerState
from .schedules import Constant, Pace, Schedule
from .scores import AnyLoss, check_fit, check_loss, hits, mean_loss


def train(
    model: nn.Module,
    loss: AnyLoss,
    data: Data | BatchSource,
    optimizer: torch.optim.Optimizer,
    *,
    num_epochs: int,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    schedule: Schedule | None = None,
    clip: float | None = None,
    checkpoint: str | Path | None = None,
    save_seconds: float = SAVE_SECONDS,
    precision: Arithmetic | None = None,
    capture: bool = False,
    least_batch: int = 1,
) -> Iterator[Pause[float, dict[str, Tensor]]]:
    """Train the model in place, pausing after every epoch.

        pairs = None  # each search starts from what the last one found
        for pause in train(model, loss, data, optimizer, num_epochs=20, batch_size=64, generator=generator):
            pairs = eigenpairs(hessian(Risk(model, loss, data)), 1, start=pairs)
            pause.note(sharpness=pairs.values[0])
        pause.history["sharpness"]

    At every pause the model is in eval mode, as a measurement needs it. The run ends early where the loss is NaN or
    infinite (`pause.diverged`) or the schedule says so (`pause.done`). With `checkpoint`, a file, a run that was killed
    goes on from its last saved pause, on the CPU to the same bits; start it with the same arguments.

    Args:
        loss: As `Risk` takes it: a `ritz` loss, or a callable whose values are averaged over a batch.
        data: Inputs and targets, of which an epoch is one pass; or a function that draws one batch from the
            generator, and an epoch is one step.
        batch_size: None for all examples at once, in their order.
        schedule: Multiplies the learning rates of the optimiser; `HALVING`, `Annealing()`, `Plateau`, `Cosine`. Without
            one, an epoch takes the rates as it finds them, so that a scheduler of PyTorch may set them at the pauses.
            What that scheduler remembers is not in `checkpoint`, with which changed rates are refused.
        clip: The largest norm of a gradient.
        save_seconds: The least time between two writings of the file.
        precision: "tf32" allows it in products and convolutions on a GPU, "bfloat16" runs the network under autocast;
            parameters, their gradients and the loss stay as they are.
        capture: Take the steps of one batch size as one CUDA graph, where data and parameters are on a GPU and the
            step can be captured; elsewhere it changes nothing.
        least_batch: What an epoch leaves over, if it is less than that, waits for another epoch. Batch norm has no
            business with two examples.

    >>> model, data = nn.Linear(1, 1), (torch.ones(2, 1), torch.ones(2, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> [pause.epoch for pause in train(model, nn.MSELoss(), data, optimizer, num_epochs=3)]
    [1, 2, 3]
    """
    check_run(num_epochs=num_epochs, batch_size=batch_size, generator=generator)
    check_positive(clip=clip)
    check_instance(nn.Module, "Pass the network itself.", model=model)
    check_loss(loss)
    _check_optimizer(optimizer, model)
    _check_data(data, batch_size, generator)
    check_arithmetic(precision)
    found = schedule is None and checkpoint is None
    schedule = Constant() if schedule is None else schedule
    steps = _Steps(batch_size, clip, precision, least_batch)
    trainee = _Network(model, loss, data, optimizer, generator, steps, capture=capture, found_rates=found)
    return pauses(
        trainee,
        schedule,
        torch.tensor(torch.inf, dtype=torch.float64),
        num_epochs=num_epochs,
        label="Training",
        checkpoint=checkpoint,
        save_seconds=save_seconds,
        settings={"loss": loss, **asdict(steps)},
    )


@dataclass(frozen=True)
class _Steps:
    """How an epoch is divided into steps; with a file, this must stay the same from start to end."""

    batch_size: int | None
    clip: float | None
    precision: Arithmetic | None
    least_batch: int


class _Network:
    """A module and its optimiser as the loop of `pauses` sees them."""

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss,
        data: Data | BatchSource,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator | None,
        steps: _Steps,
        *,
        capture: bool,
        found_rates: bool,
    ) -> None:
        self.model, self.loss, self.data, self.optimizer = model, loss, data, optimizer
        self.generator, self.steps = generator, steps
        self.base_rates = self.last_rates = _rates(optimizer)
        self.has_stepped = False
        self.found_rates = found_rates  # whether each epoch takes the rates that it finds
        self.optimizer_state = OptimizerState(optimizer)
        self.device = optimizer.param_groups[0]["params"][0].device
        self.division = Division(1 if callable(data) else len(data[0]), steps.batch_size, generator, steps.least_batch)
        self.steps_per_epoch = self.division.num_batches
        self.outside: dict[str, str] | None = None  # what the model is beside its state_dict, when it was last saved
        self.captured = CapturedStep(self._step_of_rows) if capture and self._can_capture() else None

    def epoch(self, pace: Pace) -> tuple[Tensor, float | None]:
        self._set_rates(float(pace.factor))
        self.model.train()
        with multiply_in(self.steps.precision, self.device):
            results = list(self._steps())
        self.model.eval()
        losses, scores, counts = zip(*results, strict=True)
        mean = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
        if scores[0] is None:
            return mean.to("cpu", torch.float64), None
        right, labels = sum(scores).tolist()
        return mean.to("cpu", torch.float64), right / max(labels, 1)

    def _set_rates(self, factor: float) -> None:
        self._look_at_rates()
        rates = [base * factor for base in self.base_rates]
        if self.captured is not None and rates != self.last_rates:
            self.captured.forget()
        self.last_rates = rates
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def _look_at_rates(self) -> None:
        """Take the rates as they are, or refuse that they were changed."""
        now = _rates(self.optimizer)
        if self.found_rates:
            self.base_rates = now
        else:
            _check_rates(now, self.last_rates)

    def _can_capture(self) -> bool:
        tensors = () if callable(self.data) else (*self.data, *self.model.parameters())
        return self.steps.batch_size is not None and bool(tensors) and all(one.is_cuda for one in tensors)

    def rate(self, pace: Pace) -> Tensor:
        self._look_at_rates()
        return self.base_rates[0] * pace.factor

    def parameters(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}

    def _steps(self) -> Iterator[tuple[Tensor, Tensor | None, int]]:
        """The steps of an epoch: for each, the loss before it, right answers and labels, and the number of examples."""
        if callable(self.data):
            assert self.generator is not None
            x, y = self.data(self.generator)
            yield *self._step(x, y), len(x)
            return
        x, y = self.data
        if self.steps.batch_size is None:
            yield *self._step(x, y), len(x)
            return
        for rows in self.division.shuffled(x.device):
            loss, *score = self._step_of_rows(rows) if self.captured is None else self.captured(rows)
            yield loss, score[0] if score else None, len(rows)

    def _step_of_rows(self, rows: Tensor) -> tuple[Tensor, ...]:
        x, y = self.data  # type: ignore[misc]  # tensors: only these have rows
        loss, score = self._step(x[rows], y[rows])
        return (loss,) if score is None else (loss, score)

    def _step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Make one optimiser step; returns the loss before it, right answers and labels; no device is waited for."""
        self.optimizer.zero_grad()
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)  # data may lie elsewhere
        with autocast(self.steps.precision, self.device):
            outputs = self.model(x)
        outputs = outputs.float() if self.steps.precision == "bfloat16" else outputs
        if not self.has_stepped:
            check_fit(self.loss, outputs.detach(), y)
            self.has_stepped = True
        value = mean_loss(self.loss, outputs, y)
        value.backward()
        if self.steps.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.steps.clip)
        self.optimizer.step()
        return value.detach().double(), hits(self.loss, outputs.detach(), y)

    def state(self) -> tuple[Arrays, Mapping[str, Any]]:
        self._warn_of_what_is_not_saved()
        arrays, header = self.optimizer_state.state()
        return {f"model/{name}": value for name, value in self.model.state_dict().items()} | arrays, header

    def _warn_of_what_is_not_saved(self) -> None:
        """Warn of what changes from one saving to the next outside the state_dict; a cache settles before the first."""
        before, self.outside = self.outside, model_identity("model", self.model)
        if before not in (None, self.outside):
            warn_user(
                "The model keeps something outside its state_dict that changes while it is trained: an attribute, or a "
                "buffer with persistent=False. The file does not hold it, so a run that goes on from the file may end "
                "in other bits.\n"
                "  - Keep it as a buffer: self.register_buffer('steps', torch.zeros(())), and self.steps += 1.",
                ResumptionWarning,
            )

    def restore(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.optimizer_state.check(tensors, header)
        self.model.load_state_dict(under("model/", tensors))
        self.optimizer_state.restore(tensors, header)
        self.last_rates, self.outside, self.has_stepped = _rates(self.optimizer), None, True
        self.model.eval()

    def identity(self) -> dict[str, str]:
        """The settings that identify this run, before it starts; the data are read whole, once."""
        state = self.model.state_dict()
        return {
            "initial weights": digest(*state.values()),
            **model_identity("model", self.model),
            **({} if not callable(self.data) else identity_of("data", self.data)),
            **({} if callable(self.data) else {"data": digest(*self.data)}),
            **self.optimizer_state.identity(),
            **identity_of("trained parameters", self._trained_names()),
            **identity_of("generator", self.generator),
        }

    def _trained_names(self) -> list[list[str]]:
        """The names of the parameters in each group of the optimiser."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [[names.get(id(one), "") for one in group["params"]] for group in self.optimizer.param_groups]


def _rates(optimizer: torch.optim.Optimizer) -> list[float]:
    """The learning rate of each group of parameters."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def _check_rates(now: list[float], before: list[float]) -> None:
    """Refuse rates that somebody else has set, where a schedule would undo it, or a resumed run would not repeat it."""
    if now != before:
        raise ArgumentError(
            f"The optimiser's learning rates were changed from {before} to {now} during training.",
            "A schedule sets them anew in every epoch, and a run that goes on from its checkpoint cannot know how far "
            "a scheduler of PyTorch had come.",
            "Pass a schedule: train(..., schedule=Cosine()), or an object of your own with its method `after`.",
            "With a scheduler of PyTorch, leave out `schedule` and `checkpoint`.",
            "For other groups of parameters, begin another training.",
        )


def _check_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    check_instance(
        torch.optim.Optimizer, "Build one: torch.optim.SGD(model.parameters(), lr=0.1).", optimizer=optimizer
    )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ArgumentError(
            "The optimiser is LBFGS.",
            "It evaluates the loss many times in a step, while an epoch here evaluates it once for each batch.",
            "Take another optimiser, such as torch.optim.SGD.",
        )
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if trained.isdisjoint(map(id, model.parameters())):
        raise ArgumentError(
            f"None of the {len(trained)} tensors that the optimiser moves is a parameter of the model.",
            "Training would leave the model as it is, as it does where the model was copied or replaced afterwards.",
            "Build the optimiser from this model: torch.optim.SGD(model.parameters(), lr=0.1).",
        )


def _check_data(data: Data | BatchSource, batch_size: int | None, generator: torch.Generator | None) -> None:
    if callable(data):
        if batch_size is not None or generator is None:
            raise ArgumentError(
                f"A function that draws batches was given, with batch_size={batch_size} and generator={generator}.",
                "The function itself decides how large a batch is, and draws it with the generator.",
                "Pass a generator and no batch_size.",
            )
        return
    check_tensors(data)
    x, y = data
    if len(x) != len(y) or len(x) == 0:
        raise DataError(
            f"There are {len(x)} inputs and {len(y)} targets.",
            "Every example needs one input and one target, and there must be at least one example.",
            "Check how the data were cut.",
        )
