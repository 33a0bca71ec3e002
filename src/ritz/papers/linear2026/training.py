"""The networks of Fig. 1 right and Fig. 2: trained in step, all that are of one kind, and measured on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...lab import ensemble, models
from ...lab.training import HALVING, Constant, EquivalentExamples, Pause, Schedule, compressed, linear_descent
from ...risk import SquaredError
from ...theory import balancedness, spectral_norm_bound
from . import data
from .data import Whitening
from .networks import Chain, HiddenUnits, WhiteDescent, exact_sharpness, top_eigenpairs
from .setting import logarithmic
from .variants import SCALE, Variant

TOLERANCE = 1e-4  # of an eigenvalue, relative; float32 would hardly allow for less
SCHEDULES: dict[str, Schedule] = {"halved": HALVING, "constant": Constant()}
Arrays = dict[str, np.ndarray]
Measure = Callable[[Pause[Any, Any], Sequence[int]], dict[str, Tensor]]


@dataclass(frozen=True)
class Sets:
    """The data of the networks of one variant: the seed of each, and its inputs and targets one after the other."""

    seeds: Sequence[int]
    regressions: Callable[[], Iterator[tuple[Tensor, Tensor]]]


def train_white(config: Any, group: list[Variant], sets: Sets, file: Path | None) -> list[Arrays]:
    """Train linear networks on white inputs; where two whitenings are one, so are their networks."""
    kinds: list[Whitening] = [variant.inputs for variant in group if variant.inputs != "raw"]
    by_kind = [data.whitenings(X, Y, config.sigma_x, kinds) for X, Y in sets.regressions()]
    cases = [
        (variant, seed, whites[variant.inputs])
        for variant in group
        for seed, whites in zip(sets.seeds, by_kind, strict=True)
    ]
    names = [(variant.start, variant.scale, seed, id(white)) for variant, seed, white in cases]
    distinct = list(dict.fromkeys(names))
    chosen = [cases[names.index(name)] for name in distinct]
    problems = [white for _, _, white in chosen]
    weights = [_weights(config, variant, white.T.shape[1], white.T, seed) for variant, seed, white in chosen]
    descent = WhiteDescent(weights, problems)

    def measure(pause: Pause[Any, Any], which: Sequence[int]) -> dict[str, Tensor]:
        small = [descent.reduction(pause.parameters, index) for index in which]
        tops = _top_eigenvalues([Chain(Ws) for Ws, _ in small], [white.examples() for _, white in small])
        return tops | {
            "balance": torch.cat([balancedness([W[None] for W in Ws]) for Ws, _ in small]),  # a stack may have NaN
            "bound": torch.cat([spectral_norm_bound([W[None] for W in Ws], config.sigma_x) for Ws, _ in small]),
        }

    rate, epochs = config.learning_rate, config.num_epochs
    schedule = SCHEDULES[group[0].rate]
    pauses = descent.pauses(learning_rate=rate, num_epochs=epochs, checkpoint=_file(file), schedule=schedule)
    arrays = _measurements(pauses, measure, config, len(problems), along=range(min(len(sets.seeds), len(problems))))
    arrays["exact"] = np.array([exact_sharpness(white, config.depth) for white in problems])
    arrays["rest"] = np.array([white.rest for white in problems])
    arrays["num_inputs"] = np.array([white.T.shape[1] for white in problems])
    return _by_variant({key: values[[distinct.index(name) for name in names]] for key, values in arrays.items()}, group)


def train_raw(config: Any, group: list[Variant], sets: Sets, file: Path | None) -> list[Arrays]:
    """Linear networks on the data as they are: no closed form, and they may diverge."""
    moments = [compressed(config.raw_scale * X, Y) for X, Y in sets.regressions()]
    turned = [data.principal_examples(own) for own in moments]
    cases = [(variant, n) for variant in group for n in range(len(moments))]
    starts = [_weights(config, variant, moments[n].x.shape[1], moments[n].x, sets.seeds[n]) for variant, n in cases]
    hidden = HiddenUnits(starts)
    first, *others = [torch.stack(layer) for layer in zip(*starts, strict=True)]
    first = torch.stack([W @ turned[n][0] for W, (_, n) in zip(first, cases, strict=True)])
    pauses = linear_descent(
        hidden.compressed([first, *others]),
        torch.stack([turned[n][1].x for _, n in cases]),
        torch.stack([turned[n][1].y for _, n in cases]),
        learning_rate=config.learning_rate,
        num_epochs=config.num_epochs,
        schedule=SCHEDULES[group[0].rate],
        checkpoint=_file(file),
    )

    def measure(pause: Pause[Any, Any], which: Sequence[int]) -> dict[str, Tensor]:
        layers = [hidden.whole(pause.parameters, index) for index in which]
        numbers = [cases[index][1] for index in which]
        layers = [[Ws[0] @ turned[n][0].T, *Ws[1:]] for Ws, n in zip(layers, numbers, strict=True)]
        sets_of = [moments[n] for n in numbers]
        tops = _top_eigenvalues([Chain(Ws) for Ws in layers], sets_of)
        balance = torch.cat([balancedness([W[None] for W in Ws]) for Ws in layers])
        return tops | {"balance": balance, "bound": torch.full_like(balance, torch.nan)}

    arrays = _measurements(pauses, measure, config, len(cases), along=range(len(sets.seeds)))
    arrays |= _without_theory([moments[n].x.shape[1] for _, n in cases])
    return _by_variant(arrays | {"rest": np.array([_least_loss(moments[n]) for _, n in cases])}, group)


def train_tanh(config: Any, group: list[Variant], sets: Sets, file: Path | None) -> list[Arrays]:
    """Tanh networks: float32, for they see every example in every epoch; one kind of inputs after the other."""
    rows = []
    for number, variant in enumerate(group):
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
            checkpoint=_file(file, number),
        )

        def measure(
            pause: Pause[Any, Any], which: Sequence[int], stack: Any = stack, x: Tensor = x, y: Tensor = y
        ) -> dict[str, Tensor]:
            tops = _top_eigenvalues(
                [stack.network(index) for index in which], [(x[index], y[index]) for index in which]
            )
            nothing = torch.full((len(which),), torch.nan, dtype=torch.float64)
            return tops | {"balance": nothing, "bound": nothing}

        arrays = _measurements(pauses, measure, config, len(x), along=range(len(x)))
        rows.append(arrays | _without_theory([x.shape[2]] * len(x)))
        del x, y, stack
    return rows


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
    """Go through the training and measure some networks at its pauses, all at its end: peaks are asked of the first.

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
    """What was measured of some networks, with NaN for the others and for those that have diverged."""
    gone, notes = pause.diverged.cpu(), {}
    for key, values in measure(pause, which).items():
        notes[key] = torch.full((count,), torch.nan, dtype=torch.float64)
        notes[key][list(which)] = values.detach().cpu().double()
        notes[key] = torch.where(gone, torch.nan, notes[key])
    return notes


def _top_eigenvalues(networks: Sequence[nn.Module], sets: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """The largest eigenvalue of each Hessian, its residual relative to it, and whether the search for it ended well."""
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
    """What no linear map can fit: the last example has it, with the input 0 (`compressed`)."""
    return float(moments.y[-1].square().sum()) / (2 * len(moments.y))


def _without_theory(num_inputs: Sequence[int]) -> Arrays:
    unknown = np.full(len(num_inputs), np.nan)
    return {"exact": unknown, "rest": unknown, "num_inputs": np.array(num_inputs)}
