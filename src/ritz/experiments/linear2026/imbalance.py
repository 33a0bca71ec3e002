"""Sharpness of the learnt solution against the share of the largest class: Fig. 1 right, and its ablations, Fig. 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ... import SquaredError
from ...lab import ensemble, models
from ...lab.train import HALVING, Checkpoint, compressed, linear_descent
from ...record import Record
from .. import Context, Figure
from . import data, judged, pictures
from .data import Inputs, Name, White
from .networks import Chain, Start, WhiteDescent, exact_sharpness, initial_weights, printed_sharpness, top_eigenpairs

TOLERANCE = 1e-4  # of an eigenvalue, relative; float32 would hardly allow for less
Measure = Callable[[Checkpoint[Any, Any]], Tensor]


@dataclass(frozen=True)
class Config:
    """The setting of Fig. 1 right; sources: linear2026, App. C, unless another is named."""

    data: tuple[Name, ...] = ("mnist", "fashion_mnist", "cifar10")
    alphas: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # open: the paper prints no values
    num_examples: int = 5000  # "subsets of n = 5,000 samples"
    depth: int = 4  # "4-layer Linear-MLP"
    width: int = 64  # "with width 64"
    sigma_x: float = 1.0  # "orthogonalized with σ_x = 1"
    learning_rate: float = 0.01  # "trained with η_max = 0.01", halved by the rule of "Training"
    num_epochs: int = 10_000  # "full-batch gradient descent for 10,000 epochs"
    inputs: tuple[Inputs, ...] = ("qr", "rank")  # the paper's whitening, and beside it the rank-revealing one
    starts: tuple[Start, ...] = ("balanced",)  # "initialized with balanced weights"
    singular_values: tuple[float, float] = (0.0, 1.0)  # open; uniform in [0, 1], as in Fig. 1 left
    activation: Literal["linear", "tanh"] = "linear"
    num_pauses: int = 1  # measurements along training, the last at its end: only a peak needs more than one
    seed: int = 0  # open: which images, which weights


@dataclass(frozen=True)
class Variant:
    """One way to treat a data set: its inputs, and how the networks start."""

    inputs: Inputs
    start: Start

    @property
    def name(self) -> str:
        """As records name it."""
        return f"{self.inputs}, {self.start}"


def variants(config: Any) -> list[Variant]:
    """All ways to treat a data set, of a config or of a record's mapping of it."""
    pair = (config["inputs"], config["starts"]) if isinstance(config, dict) else (config.inputs, config.starts)
    return [Variant(inputs, start) for inputs, start in product(*pair)]


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train and measure networks on every data set, for every share of the largest class: arrays data × variant × α."""
    task = partial(measured, device=context.device, data_dir=context.data_dir, folder=context.folder)
    records = context.sweep(task, [replace(config, data=(name,)) for name in config.data], name="networks")
    return {name: np.stack([record.arrays[name] for record in records]) for name in records[0].arrays}


def measured(
    config: Config, *, device: torch.device, data_dir: Path | None = None, folder: Path | None = None
) -> dict[str, np.ndarray]:
    """The networks of one data set: arrays variant × α; those of one kind are trained in step."""
    (name,) = config.data
    examples = data.training_set(name, data_dir)
    cuts = [data.subset(examples, config.num_examples, alpha_max=alpha, seed=config.seed) for alpha in config.alphas]
    del examples
    sets = [data.regression(cut, device) for cut in cuts]
    rows = []
    for number, (trained, group) in enumerate(groupby(variants(config), partial(_trainer, config))):
        file = None if folder is None else folder / "training" / f"{name}-{number}.npz"
        rows.append(trained(config, list(group), sets, file))
    shares = np.array([data.largest_share(cut) for cut in cuts])
    printed = np.array([printed_sharpness(share, config.depth, config.sigma_x) for share in shares])
    found = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
    return {key: _by_variant(values, len(cuts)) for key, values in found.items()} | {
        "shares": shares,
        "printed": printed,
    }


Regressions = Sequence[tuple[Tensor, Tensor]]
Trainer = Callable[["Config", list["Variant"], Regressions, "Path | None"], dict[str, np.ndarray]]


def _trainer(config: Config, variant: Variant) -> Trainer:
    """What variants can be trained together."""
    if config.activation == "tanh":
        return _TANH_BY_INPUTS[variant.inputs]
    return _raw if variant.inputs == "raw" else _white


def _by_variant(values: np.ndarray, num_shares: int) -> np.ndarray:
    return values.reshape(-1, num_shares, *values.shape[1:])


def _white(config: Config, group: list[Variant], sets: Regressions, file: Path | None) -> dict[str, np.ndarray]:
    """Linear networks on white inputs."""
    seen = [_seen(config, {variant.inputs for variant in group}, X, Y) for X, Y in sets]
    cases = [(variant, whites[variant.inputs]) for variant in group for whites in seen]
    problems = [white for _, white in cases]
    descent = WhiteDescent([_start(config, variant, white.T.shape[1], white.T) for variant, white in cases], problems)
    first = [cases.index(case) for case in cases]  # where two whitenings are one, their networks are, too

    def sharpness(pause: Checkpoint[Any, Any]) -> Tensor:
        layers, chosen = pause.parameters, sorted(set(first))
        chains = [Chain(descent.weights(layers, index)) for index in chosen]
        found = _sharpest(chains, [problems[index].examples() for index in chosen])
        return found[[chosen.index(index) for index in first]]

    rate, epochs = config.learning_rate, config.num_epochs
    found = _followed(descent.pauses(learning_rate=rate, num_epochs=epochs, checkpoint=file), sharpness, config)
    exact = [exact_sharpness(white, config.depth, config.width) for white in problems]
    return found | {"exact": np.array(exact), "num_inputs": np.array([white.T.shape[1] for white in problems])}


def _seen(config: Config, kinds: set[Inputs], X: Tensor, Y: Tensor) -> dict[Inputs, White]:
    """The data as each whitening leaves them; where they have full rank, both leave the same."""
    by_qr = White.of(data.white_inputs(X, config.sigma_x, "qr"), Y, config.sigma_x)
    if "rank" not in kinds or data.has_full_rank(X):
        return {"qr": by_qr, "rank": by_qr}
    return {"qr": by_qr, "rank": White.of(data.white_inputs(X, config.sigma_x, "rank"), Y, config.sigma_x)}


def _raw(config: Config, group: list[Variant], sets: Regressions, file: Path | None) -> dict[str, np.ndarray]:
    """Linear networks on the data as they are: no closed form, and it may diverge."""
    moments = [compressed(X, Y) for X, Y in sets]
    cases = [(variant, own) for variant in group for own in moments]
    starts = [_start(config, variant, own.x.shape[1], own.x) for variant, own in cases]
    pauses = linear_descent(
        [torch.stack(layer) for layer in zip(*starts, strict=True)],
        torch.stack([own.x for _, own in cases]),
        torch.stack([own.y for _, own in cases]),
        learning_rate=config.learning_rate,
        num_epochs=config.num_epochs,
        schedule=HALVING,
        checkpoint=file,
    )

    def sharpness(pause: Checkpoint[Any, Any]) -> Tensor:
        layers = pause.parameters
        return _sharpest([Chain([W[index] for W in layers]) for index in range(len(cases))], [own for _, own in cases])

    return _followed(pauses, sharpness, config) | _without_theory([own.x.shape[1] for _, own in cases])


def _tanh(
    config: Config, group: list[Variant], sets: Regressions, file: Path | None, *, inputs: Inputs
) -> dict[str, np.ndarray]:
    """Tanh networks: float32, for they see every example in every epoch."""
    pairs = [(X if inputs == "raw" else data.white_inputs(X, config.sigma_x, inputs), Y) for X, Y in sets]
    x, y = (torch.stack(part).float().repeat(len(group), 1, 1) for part in zip(*pairs, strict=True))
    del pairs
    stack = ensemble.Ensemble.of(
        [_tanh_network(config, variant, x) for variant in group for _ in sets], device=x.device
    )
    pauses = ensemble.train(
        stack,
        SquaredError(),
        (x, y),
        learning_rate=config.learning_rate,
        num_epochs=config.num_epochs,
        schedule=HALVING,
        each=True,
        checkpoint=file,
    )

    def sharpness(pause: Checkpoint[Any, Any]) -> Tensor:
        return _sharpest([stack.network(index) for index in range(len(x))], list(zip(x, y, strict=True)))

    return _followed(pauses, sharpness, config) | _without_theory([x.shape[2]] * len(x))


_TANH_BY_INPUTS: dict[Inputs, Trainer] = {kind: partial(_tanh, inputs=kind) for kind in ("qr", "rank", "raw")}


def _tanh_network(config: Config, variant: Variant, x: Tensor) -> nn.Module:
    return models.mlp(
        _widths(config, x.shape[2]),
        generator=torch.Generator(),  # not used: the weights are given
        activation="tanh",
        bias=False,
        parametrization=_start(config, variant, x.shape[2], x),
    )


def _followed(pauses: Iterator[Checkpoint[Any, Any]], sharpness: Measure, config: Config) -> dict[str, np.ndarray]:
    """Go through the training and measure where it is wanted; a network that diverged has no sharpness."""
    wanted = logarithmic(config.num_epochs, config.num_pauses)
    for pause in pauses:
        if pause.epoch in wanted or bool((pause.diverged | pause.done).all()):
            seen = sharpness(pause)
            pause.note(sharpness=torch.where(pause.diverged.to(seen.device), torch.nan, seen))
    history = pause.history
    along = history["sharpness"].values
    padded = np.full((config.num_pauses, along.shape[1]), np.nan)  # a run in which all have diverged ends early
    padded[: min(len(along), len(padded))] = along[: len(padded)]
    return {
        "sharpness": along[-1],
        "peak": np.where(np.isnan(along[-1]), np.nan, np.fmax.reduce(along)),
        "along": padded.T,
        "loss": history["loss"].values[-1],
        "diverged": pause.diverged.cpu().numpy(),
    }


def logarithmic(num_epochs: int, count: int) -> list[int]:
    """So many epochs from 1 to the last, evenly spaced on a logarithmic scale; the last alone for a count of one."""
    if count == 1:
        return [num_epochs]
    return sorted({round(num_epochs ** (index / (count - 1))) for index in range(count)})


def _start(config: Config, variant: Variant, num_inputs: int, like: Tensor) -> list[Tensor]:
    """The same initial weights for every share of the largest class, in float64."""
    generator = torch.Generator().manual_seed(config.seed)
    widths = _widths(config, num_inputs)
    drawn = initial_weights(variant.start, widths, singular_values=config.singular_values, generator=generator)
    return [W.to(like.device) for W in drawn]


def _widths(config: Config, num_inputs: int) -> list[int]:
    return [num_inputs, *[config.width] * (config.depth - 1), data.NUM_CLASSES]


def _sharpest(networks: Sequence[nn.Module], sets: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    found = [top_eigenpairs(network, pair, tolerance=TOLERANCE) for network, pair in zip(networks, sets, strict=True)]
    return torch.tensor([torch.nan if top is None else float(top.values[0]) for top in found], dtype=torch.float64)


def _without_theory(num_inputs: Sequence[int]) -> dict[str, np.ndarray]:
    return {"exact": np.full(len(num_inputs), np.nan), "num_inputs": np.array(num_inputs)}


def _shown(record: Record) -> Any:
    return pictures.by_variant(record, variants(record.config))


_LAPTOP = replace(Config(), alphas=(0.1, 0.3, 0.5, 0.7, 0.9), num_epochs=4000)
_SMOKE = Config(
    data=("digits",), alphas=(0.1, 0.3, 0.5), num_examples=150, depth=3, width=12, learning_rate=0.2, num_epochs=300
)
_RAW = {"inputs": ("raw",), "num_pauses": 6}  # "Datasets are not orthogonalized"; open: their scale, pixels in [0, 1]
_KAIMING: dict[str, Any] = {"inputs": ("qr",), "starts": ("kaiming",)}  # "initialized with Kaiming uniform"
_TANH: dict[str, Any] = {
    "inputs": ("qr",),
    "starts": ("kaiming", "balanced"),  # both: the caption says unbalanced, App. C balanced
    "activation": "tanh",
}
_FEW = {"data": ("mnist", "fashion_mnist"), "alphas": (0.1, 0.4, 0.6, 0.9), "num_examples": 2000, "num_epochs": 1000}


def _presets(paper: dict[str, Any], laptop: dict[str, Any], smoke: dict[str, Any]) -> dict[str, Config]:
    return {
        "paper": replace(Config(), **paper),
        "laptop": replace(_LAPTOP, **{**paper, **laptop}),
        "smoke": replace(_SMOKE, **{**paper, **smoke}),
    }


FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "linear2026.fig1c",
            "Sharpness of trained balanced networks against the largest class: (14), and exactly",
            presets=_presets({}, {}, {}),
            run=run,
            draw=pictures.by_data_set,
            claims=judged.balanced,
        ),
        Figure(
            "linear2026.fig2a",
            "The same on raw inputs, without Assumption 2",
            presets=_presets(_RAW, {"num_pauses": 4}, {"learning_rate": 0.02}),
            run=run,
            draw=_shown,
            claims=judged.raw,
        ),
        Figure(
            "linear2026.fig2b",
            "The same from Kaiming uniform weights, without Assumption 3",
            presets=_presets(_KAIMING, {}, {}),
            run=run,
            draw=_shown,
            claims=judged.unbalanced,
        ),
        Figure(
            "linear2026.fig2c",
            "The same for tanh networks, from unbalanced and from balanced weights",
            presets=_presets(_TANH, _FEW, {}),
            run=run,
            draw=_shown,
            claims=judged.nonlinear,
        ),
    )
}
