"""Training of the networks of Fig. 1 right and Fig. 2: all of one kind in step, measured on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...lab import ensemble, models
from ...lab.training import HALVING, Constant, EquivalentExamples, Pause, Schedule, compressed
from ...risk import SquaredError
from ...theory import balancedness, spectral_norm_bound
from . import data
from .data import White, Whitening
from .networks import Chain, RawDescent, WhiteDescent, exact_sharpness, top_eigenpairs
from .setting import logarithmic
from .variants import SCALE, Variant

TOLERANCE = 1e-4  # of an eigenvalue, relative; float32 would hardly allow for less
SCHEDULES: dict[str, Schedule] = {"halved": HALVING, "constant": Constant()}
Arrays = dict[str, np.ndarray]
Measure = Callable[[Pause[Any, Any], Sequence[int]], dict[str, Tensor]]


@dataclass(frozen=True)
class Sets:
    """The data of one variant's networks: the seed of each, and an iterator over their inputs and targets."""

    seeds: Sequence[int]
    regressions: Callable[[], Iterator[tuple[Tensor, Tensor]]]


def train_white(config: Any, group: list[Variant], sets: Sets, file: Path | None) -> list[Arrays]:
    """Train linear networks on white inputs; networks whose start and inputs are the same are trained once."""
    cases = _white_cases(config, group, sets)
    distinct: dict[Any, _WhiteCase] = {}
    for case in cases:
        distinct.setdefault(case.identity, case)
    arrays = _train_distinct(config, list(distinct.values()), SCHEDULES[group[0].rate], len(sets.seeds), file)
    places = [list(distinct).index(case.identity) for case in cases]
    return _by_variant({key: values[places] for key, values in arrays.items()}, group)


@dataclass(frozen=True, eq=False)
class _WhiteCase:
    """One linear network and its white inputs."""

    variant: Variant
    seed: int
    white: White

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides the result: the initial weights, and the inputs, one object where two whitenings are equal."""
        return self.variant.start, self.variant.scale, self.seed, id(self.white)


def _white_cases(config: Any, group: list[Variant], sets: Sets) -> list[_WhiteCase]:
    kinds: list[Whitening] = [variant.inputs for variant in group if variant.inputs != "raw"]
    by_kind = [data.whitenings(X, Y, config.sigma_x, kinds) for X, Y in sets.regressions()]
    return [
        _WhiteCase(variant, seed, whites[variant.inputs])
        for variant in group
        for seed, whites in zip(sets.seeds, by_kind, strict=True)
    ]


def _train_distinct(
    config: Any, cases: Sequence[_WhiteCase], schedule: Schedule, num_sets: int, file: Path | None
) -> Arrays:
    problems = [case.white for case in cases]
    starts = [_weights(config, case.variant, case.white.T.shape[1], case.white.T, case.seed) for case in cases]
    descent = WhiteDescent(starts, problems)
    pauses = descent.pauses(**_run(config, file), schedule=schedule)
    measure = partial(_measure_white, descent, config.sigma_x)
    arrays = _measurements(pauses, measure, config, len(cases), along=range(min(num_sets, len(cases))))
    return arrays | {
        "exact": np.array([exact_sharpness(white, config.depth) for white in problems]),
        "rest": np.array([white.rest for white in problems]),
        "num_inputs": np.array([white.T.shape[1] for white in problems]),
    }


def _measure_white(
    descent: WhiteDescent, sigma_x: float, pause: Pause[Any, Any], which: Sequence[int]
) -> dict[str, Tensor]:
    small = [descent.reduction(pause.parameters, index) for index in which]
    tops = _top_eigenvalues([Chain(Ws) for Ws, _ in small], [white.examples() for _, white in small])
    return tops | {
        "balance": torch.cat([balancedness([W[None] for W in Ws]) for Ws, _ in small]),  # a stack may have NaN
        "bound": torch.cat([spectral_norm_bound([W[None] for W in Ws], sigma_x) for Ws, _ in small]),
    }


def train_raw(config: Any, group: list[Variant], sets: Sets, file: Path | None) -> list[Arrays]:
    """Train linear networks on the data as they are: there is no closed form, and they may diverge."""
    moments = [compressed(config.raw_scale * X, Y) for X, Y in sets.regressions()]
    principal = [data.principal_examples(own) for own in moments]
    cases = [(variant, n) for variant in group for n in range(len(moments))]
    starts = [_weights(config, variant, moments[n].x.shape[1], moments[n].x, sets.seeds[n]) for variant, n in cases]
    descent = RawDescent(starts, [principal[n] for _, n in cases])
    pauses = descent.pauses(**_run(config, file), schedule=SCHEDULES[group[0].rate])
    measure = partial(_measure_raw, descent, [moments[n] for _, n in cases])
    arrays = _measurements(pauses, measure, config, len(cases), along=range(len(sets.seeds)))
    arrays |= _without_theory([moments[n].x.shape[1] for _, n in cases])
    return _by_variant(arrays | {"rest": np.array([_least_loss(moments[n]) for _, n in cases])}, group)


def _measure_raw(
    descent: RawDescent, moments: Sequence[EquivalentExamples], pause: Pause[Any, Any], which: Sequence[int]
) -> dict[str, Tensor]:
    networks = [descent.weights(pause.parameters, index) for index in which]
    tops = _top_eigenvalues([Chain(Ws) for Ws in networks], [moments[index] for index in which])
    balance = torch.cat([balancedness([W[None] for W in Ws]) for Ws in networks])
    return tops | {"balance": balance, "bound": torch.full_like(balance, torch.nan)}


def _run(config: Any, file: Path | None) -> dict[str, Any]:
    return {"learning_rate": config.learning_rate, "num_epochs": config.num_epochs, "checkpoint": _file(file)}


def train_tanh(config: Any, group: list[Variant], sets: Sets, file: Path | None) -> list[Arrays]:
    """Train tanh networks, one variant after the other; in float32, as every epoch passes over all examples."""
    return [_train_tanh(config, variant, sets, _file(file, number)) for number, variant in enumerate(group)]


def _train_tanh(config: Any, variant: Variant, sets: Sets, checkpoint: Path | None) -> Arrays:
    x, y = _tanh_data(config, variant, sets)
    stack = ensemble.Ensemble.of([_tanh_network(config, variant, x, seed) for seed in sets.seeds], device=x.device)
    pauses = ensemble.train(
        stack,
        SquaredError(),
        (x, y),
        learning_rate=config.learning_rate,
        num_epochs=config.num_epochs,
        schedule=SCHEDULES[variant.rate],
        each=True,
        checkpoint=checkpoint,
    )

    def measure(_: Pause[Any, Any], which: Sequence[int]) -> dict[str, Tensor]:
        tops = _top_eigenvalues([stack.network(index) for index in which], [(x[index], y[index]) for index in which])
        nothing = torch.full((len(which),), torch.nan, dtype=torch.float64)
        return tops | {"balance": nothing, "bound": nothing}

    arrays = _measurements(pauses, measure, config, len(x), along=range(len(x)))
    return arrays | _without_theory([x.shape[2]] * len(x))


def _tanh_data(config: Any, variant: Variant, sets: Sets) -> tuple[Tensor, Tensor]:
    pairs = [
        (config.raw_scale * X if variant.inputs == "raw" else data.white_inputs(X, config.sigma_x, variant.inputs), Y)
        for X, Y in sets.regressions()
    ]
    inputs, targets = (torch.stack([part.float() for part in parts]) for parts in zip(*pairs, strict=True))
    return inputs, targets


def _tanh_network(config: Any, variant: Variant, x: Tensor, seed: int) -> nn.Module:
    weights = _weights(config, variant, x.shape[2], x, seed)
    return models.mlp(
        [x.shape[2], *(len(W) for W in weights)],
        generator=torch.Generator(),  # what it draws is overwritten by the weights
        activation="tanh",
        bias=False,
        parametrization=weights,
    )


def _weights(config: Any, variant: Variant, num_inputs: int, like: Tensor, seed: int) -> list[Tensor]:
    weights: list[Tensor] = config.weights(variant.start, num_inputs, like, seed=seed, scale=SCALE[variant.scale])
    return weights


def _measurements(
    pauses: Iterator[Pause[Any, Any]], measure: Measure, config: Any, count: int, *, along: Sequence[int]
) -> Arrays:
    """Run the training and measure the networks `along` at its pauses, for their peaks, and all networks at its end.

    A network that diverged has no sharpness.
    """
    epochs = logarithmic(config.num_epochs, config.num_pauses)
    late = max(round(0.9 * config.num_epochs), 1)
    for pause in pauses:
        over = bool((pause.diverged | pause.done).all()) or pause.epoch == config.num_epochs
        if pause.epoch in epochs or over:
            pause.note(**_of_all(measure, pause, range(count) if over else along, count))
    history = pause.history
    values, loss = history["sharpness"].values, history["loss"].values
    return {
        **{key: history[key].values[-1] for key in ("sharpness", "residual", "balance", "bound", "learning_rate")},
        "converged": history["converged"].values[-1] == 1,
        "peak": np.where(np.isnan(values[-1]), np.nan, np.fmax.reduce(values)),
        "along": history["sharpness"].at(epochs).T,  # a run in which all have diverged ends early
        "loss": loss[-1],
        "first_loss": loss[0],
        "late_change": 1 - loss[-1] / history["loss"].at([late])[0],  # of the file: a run may begin after it
        "diverged": pause.diverged.cpu().numpy(),
    }


def _of_all(measure: Measure, pause: Pause[Any, Any], which: Sequence[int], count: int) -> dict[str, Tensor]:
    """The measurements of some networks, with NaN for all others and for those that have diverged."""
    gone, notes = pause.diverged.cpu(), {}
    for key, values in measure(pause, which).items():
        notes[key] = torch.full((count,), torch.nan, dtype=torch.float64)
        notes[key][list(which)] = values.detach().cpu().double()
        notes[key] = torch.where(gone, torch.nan, notes[key])
    return notes


def _top_eigenvalues(networks: Sequence[nn.Module], sets: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """The largest eigenvalue of each Hessian, its relative residual, and whether the search converged."""
    tops = [top_eigenpairs(network, pair, tolerance=TOLERANCE) for network, pair in zip(networks, sets, strict=True)]
    rows = [
        (torch.nan, torch.nan, 0.0)
        if top is None
        else (float(top.values[0]), float(top.residuals[0] / top.values[0].abs()), float(top.converged[0]))
        for top in tops
    ]
    names = ("sharpness", "residual", "converged")
    return dict(zip(names, torch.tensor(rows, dtype=torch.float64).T, strict=True))


def _by_variant(arrays: Arrays, group: list[Variant]) -> list[Arrays]:
    parts = {key: np.split(values, len(group)) for key, values in arrays.items()}
    return [{key: values[number] for key, values in parts.items()} for number in range(len(group))]


def _file(file: Path | None, number: int = 0) -> Path | None:
    return None if file is None else file.with_name(f"{file.name}-{number}.npz")


def _least_loss(moments: EquivalentExamples) -> float:
    """The loss that no linear map can fit: that of the last example, whose input is 0 (`compressed`)."""
    return float(moments.y[-1].square().sum()) / (2 * len(moments.y))


def _without_theory(num_inputs: Sequence[int]) -> Arrays:
    unknown = np.full(len(num_inputs), np.nan)
    return {"exact": unknown, "rest": unknown, "num_inputs": np.array(num_inputs)}
