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

from ...errors import ArgumentError
from ...lab import ensemble, models
from ...lab.training import HALVING, EquivalentExamples, Pause, compressed, linear_descent
from ...record import Picture, Record
from ...risk import SquaredError
from ..frame.figure import Context, Figure
from . import data, imbalance_statements, pictures
from .data import Inputs, Whitening
from .networks import Chain, Start, WhiteDescent, exact_sharpness, printed_sharpness, top_eigenpairs
from .setting import Setting, by_data_set, logarithmic

TOLERANCE = 1e-4  # of an eigenvalue, relative; float32 would hardly allow for less
Arrays = dict[str, np.ndarray]
Measure = Callable[[Pause[Any, Any]], dict[str, Tensor]]
Regressions = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Config(Setting):
    """The setting of Fig. 1 right; what is new in it."""

    alphas: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # open: the paper prints no values
    inputs: tuple[Inputs, ...] = ("qr", "rank")  # the paper's whitening, and beside it the rank-revealing one
    starts: tuple[Start, ...] = ("balanced",)  # "initialized with balanced weights"
    activation: Literal["linear", "tanh"] = "linear"
    raw_scale: float = 1.0  # open: what raw inputs are multiplied by; those of images are pixels in [0, 1] before


@dataclass(frozen=True)
class Variant:
    """One way to treat a data set: its inputs, and how the networks start."""

    inputs: Inputs
    start: Start


def variants(config: Any) -> list[Variant]:
    """All ways to treat a data set, of a config or of a record's mapping of it."""
    pair = (config["inputs"], config["starts"]) if isinstance(config, dict) else (config.inputs, config.starts)
    return [Variant(inputs, start) for inputs, start in product(*pair)]


def run(
    config: Config, context: Context, *, need: Inputs, may: Sequence[Inputs], several_starts: bool = False
) -> dict[str, Any]:
    """Train and measure networks on every data set, for every share of the largest class: arrays data × variant × α.

    A figure needs some inputs to be judged by and may have others; not every one compares initial weights.
    """
    if need not in config.inputs or not set(config.inputs) <= {need, *may} or len(config.starts) > 1 + several_starts:
        others = f", and may have {', '.join(may)}" if may else ""
        raise ArgumentError(
            f"inputs={','.join(config.inputs)} and starts={','.join(config.starts)} were given.",
            f"This figure is drawn and judged on inputs={need}{others}"
            + (", for one or both starts." if several_starts else ", for one start."),
            "Set these, or run another of linear2026.fig1c, fig2a, fig2b, fig2c, which share their settings.",
        )
    return by_data_set(train, config, context, name="networks")


def train(config: Config, *, device: torch.device, data_dir: Path | None = None, folder: Path | None = None) -> Arrays:
    """The networks of one data set: arrays variant × α; those of one kind are trained in step."""
    (name,) = config.data
    examples = data.training_set(name, data_dir)
    cuts = [data.subset(examples, config.num_examples, alpha_max=alpha, seed=config.seed) for alpha in config.alphas]
    del examples
    sets = [data.regression(cut, device) for cut in cuts]
    rows = []
    for number, (kind, group) in enumerate(groupby(variants(config), partial(_kind, config))):
        file = None if folder is None else folder / "training" / f"{name}-{number}.npz"
        rows.append(_TRAINERS[kind[:2]](config, list(group), sets, file))
    shares = np.array([data.largest_share(cut) for cut in cuts])
    joined = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
    return {key: values.reshape(-1, len(cuts), *values.shape[1:]) for key, values in joined.items()} | {
        "shares": shares,
        "printed": np.array([printed_sharpness(share, config.depth, config.sigma_x) for share in shares]),
        "epochs": np.array(logarithmic(config.num_epochs, config.num_pauses)),
    }


def _kind(config: Config, variant: Variant) -> tuple[str, bool, str]:
    """What variants that are trained together have in common: linear networks may have different white inputs."""
    raw = variant.inputs == "raw"
    return config.activation, raw, "" if config.activation == "linear" else variant.inputs


def train_white(config: Config, group: list[Variant], sets: Regressions, file: Path | None) -> Arrays:
    """Train linear networks on white inputs; where two whitenings are one, so are their networks."""
    kinds: list[Whitening] = [variant.inputs for variant in group if variant.inputs != "raw"]
    by_kind = [data.whitenings(X, Y, config.sigma_x, kinds) for X, Y in sets]
    cases = [(variant.start, whites[variant.inputs]) for variant in group for whites in by_kind]
    names = [(start, id(white)) for start, white in cases]
    distinct = list(dict.fromkeys(names))
    starts, problems = zip(*(cases[names.index(name)] for name in distinct), strict=True)
    weights = [config.weights(start, white.T.shape[1], white.T) for start, white in zip(starts, problems, strict=True)]
    descent = WhiteDescent(weights, problems)

    def sharpness(pause: Pause[Any, Any]) -> dict[str, Tensor]:
        layers = pause.parameters
        small = [descent.reduction(layers, index) for index in range(len(problems))]
        return _top_eigenvalues([Chain(weights) for weights, _ in small], [white.examples() for _, white in small])

    rate, epochs = config.learning_rate, config.num_epochs
    arrays = _measurements(descent.pauses(learning_rate=rate, num_epochs=epochs, checkpoint=file), sharpness, config)
    arrays["exact"] = np.array([exact_sharpness(white, config.depth) for white in problems])
    arrays["rest"] = np.array([white.rest for white in problems])
    arrays["num_inputs"] = np.array([white.T.shape[1] for white in problems])
    return {key: values[[distinct.index(name) for name in names]] for key, values in arrays.items()}


def _raw(config: Config, group: list[Variant], sets: Regressions, file: Path | None) -> Arrays:
    """Linear networks on the data as they are: no closed form, and it may diverge."""
    moments = [compressed(config.raw_scale * X, Y) for X, Y in sets]
    cases = [(variant, own) for variant in group for own in moments]
    starts = [config.weights(variant.start, own.x.shape[1], own.x) for variant, own in cases]
    pauses = linear_descent(
        [torch.stack(layer) for layer in zip(*starts, strict=True)],
        torch.stack([own.x for _, own in cases]),
        torch.stack([own.y for _, own in cases]),
        learning_rate=config.learning_rate,
        num_epochs=config.num_epochs,
        schedule=HALVING,
        checkpoint=file,
    )

    def sharpness(pause: Pause[Any, Any]) -> dict[str, Tensor]:
        layers = pause.parameters
        return _top_eigenvalues(
            [Chain([W[index] for W in layers]) for index in range(len(cases))], [own for _, own in cases]
        )

    arrays = _measurements(pauses, sharpness, config) | _without_theory([own.x.shape[1] for _, own in cases])
    return arrays | {"rest": np.array([_least_loss(own) for _, own in cases])}


def _least_loss(moments: EquivalentExamples) -> float:
    """What no linear map can fit: the last example has it, with the input 0 (`compressed`)."""
    return float(moments.y[-1].square().sum()) / (2 * len(moments.y))


def _tanh(config: Config, group: list[Variant], sets: Regressions, file: Path | None) -> Arrays:
    """Tanh networks, all on the same inputs: float32, for they see every example in every epoch."""
    inputs = group[0].inputs
    inputs_of = [
        config.raw_scale * X if inputs == "raw" else data.white_inputs(X, config.sigma_x, inputs) for X, _ in sets
    ]
    x, y = (torch.stack(part).float().repeat(len(group), 1, 1) for part in (inputs_of, [Y for _, Y in sets]))
    del inputs_of
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

    def sharpness(pause: Pause[Any, Any]) -> dict[str, Tensor]:
        return _top_eigenvalues([stack.network(index) for index in range(len(x))], list(zip(x, y, strict=True)))

    return _measurements(pauses, sharpness, config) | _without_theory([x.shape[2]] * len(x))


def _tanh_network(config: Config, variant: Variant, x: Tensor) -> nn.Module:
    weights = config.weights(variant.start, x.shape[2], x)
    return models.mlp(
        [x.shape[2], *(len(W) for W in weights)],
        generator=torch.Generator(),  # what it draws is overwritten by the weights
        activation="tanh",
        bias=False,
        parametrization=weights,
    )


_TRAINERS: dict[tuple[str, bool], Callable[[Config, list[Variant], Regressions, Path | None], Arrays]] = {
    ("linear", False): train_white,
    ("linear", True): _raw,
    ("tanh", False): _tanh,
    ("tanh", True): _tanh,
}


def _measurements(pauses: Iterator[Pause[Any, Any]], sharpness: Measure, config: Config) -> Arrays:
    """Go through the training and measure at its pauses; a network that diverged has no sharpness."""
    epochs = logarithmic(config.num_epochs, config.num_pauses)
    for pause in pauses:
        if pause.epoch in epochs or bool((pause.diverged | pause.done).all()):
            measurement = sharpness(pause)
            gone = pause.diverged.cpu()
            pause.note(**{key: torch.where(gone, torch.nan, values) for key, values in measurement.items()})
    history = pause.history
    values = history["sharpness"].values
    return {
        "sharpness": values[-1],
        "residual": history["residual"].values[-1],
        "converged": history["converged"].values[-1] == 1,
        "peak": np.where(np.isnan(values[-1]), np.nan, np.fmax.reduce(values)),
        "along": history["sharpness"].at(epochs).T,  # a run in which all have diverged ends early
        "loss": history["loss"].values[-1],
        "learning_rate": history["learning_rate"].values[-1],
        "diverged": pause.diverged.cpu().numpy(),
    }


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


def _without_theory(num_inputs: Sequence[int]) -> Arrays:
    unknown = np.full(len(num_inputs), np.nan)
    return {"exact": unknown, "rest": unknown, "num_inputs": np.array(num_inputs)}


def draw_variants(record: Record) -> Picture:
    """A panel for each way to treat the data."""
    return pictures.by_variant(record, variants(record.config))


_LAPTOP = replace(Config(), alphas=(0.1, 0.3, 0.5, 0.7, 0.9), num_epochs=4000)
_SMOKE = Config(
    data=("digits",), alphas=(0.1, 0.3, 0.5), num_examples=150, depth=3, width=12, learning_rate=0.2, num_epochs=300
)
_RAW: dict[str, Any] = {
    "inputs": ("raw", "qr"),  # "Datasets are not orthogonalized"; beside them white ones, at the same pauses
    "num_pauses": 16,  # open: for a peak, which comes early; nine are before epoch 200
}
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
            run=partial(run, need="qr", may=("rank",)),
            draw=pictures.by_data_set,
            statements=imbalance_statements.BALANCED,
        ),
        Figure(
            "linear2026.fig2a",
            "The same on raw inputs, without Assumption 2",
            presets=_presets(_RAW, {"num_pauses": 11}, {"learning_rate": 0.02, "num_pauses": 5}),
            run=partial(run, need="raw", may=("qr", "rank")),
            draw=draw_variants,
            statements=imbalance_statements.RAW,
        ),
        Figure(
            "linear2026.fig2b",
            "The same from Kaiming uniform weights, without Assumption 3",
            presets=_presets(_KAIMING, {}, {}),
            run=partial(run, need="qr", may=("rank",)),
            draw=draw_variants,
            statements=imbalance_statements.UNBALANCED,
        ),
        Figure(
            "linear2026.fig2c",
            "The same for tanh networks, from unbalanced and from balanced weights",
            presets=_presets(_TANH, _FEW, {}),
            run=partial(run, need="qr", may=("rank", "raw"), several_starts=True),
            draw=draw_variants,
            statements=imbalance_statements.NONLINEAR,
        ),
    )
}
