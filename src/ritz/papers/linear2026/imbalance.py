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
from torch import Tensor

from ...errors import ArgumentError
from ...lab.data import Examples
from ...record import Picture, Record
from ..frame.figure import Context, Figure
from . import ablation_statements, balanced_statements, data, pictures
from .data import Inputs, White
from .networks import Start, exact_sharpness, printed_sharpness
from .setting import Setting, by_data_set, logarithmic
from .training import Arrays, Sets, train_raw, train_tanh, train_white
from .variants import DRAWS, RATES, SCALES, STARTS, Draws, Rates, Scale, Variant, seed_of, variants


@dataclass(frozen=True)
class Config(Setting):
    """The setting of Fig. 1 right, as far as it adds to the common one; the first reading of each open choice leads."""

    alphas: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # open: the paper prints no values
    inputs: tuple[Inputs, ...] = ("qr", "rank")  # "QR decomposition"; beside it the rank-revealing one
    starts: tuple[Start, ...] = ("balanced",)  # "initialized with balanced weights"
    scales: tuple[Scale, ...] = ("one",)  # open
    rates: tuple[Rates, ...] = ("halved", "constant")  # "successively halved"
    draws: tuple[Draws, ...] = ("own", "shared")  # open
    num_seeds: int = 5  # open: networks for each share, whose spread is part of the result
    activation: Literal["linear", "tanh"] = "linear"  # "Linear-MLP"
    raw_scale: float = 1.0  # open: what raw inputs are multiplied by; those of images are pixels in [0, 1] before
    sizes: tuple[int, ...] = ()  # open: n, for "independent of the dataset size n"; no network is trained for them
    size_alpha: float = 0.3  # open: α_max there


def run(
    config: Config, context: Context, *, need: Inputs, may: Sequence[Inputs], several_starts: bool = False
) -> dict[str, Any]:
    """Train and measure networks on every data set, for every share of the largest class.

    Arrays are data × variant × seed × α. A figure `need`s the inputs that it is judged on and `may` have others beside
    them; with `several_starts` it compares initial weights, too.
    """
    wrong = config.inputs[:1] != (need,) or not set(config.inputs) <= {need, *may}
    if wrong or len(config.starts) > 1 + several_starts:
        others = f", and may have {', '.join(may)}" if may else ""
        raise ArgumentError(
            f"inputs={','.join(config.inputs)} and starts={','.join(config.starts)} were given.",
            f"This figure is drawn and judged on inputs={need}, which comes first{others}"
            + (", for one or both starts." if several_starts else ", for one start."),
            "Set these, or run another of linear2026.fig1c, fig2a, fig2b, fig2c, which share their settings.",
        )
    return by_data_set(train, config, context, name="networks")


def train(config: Config, *, device: torch.device, data_dir: Path | None = None, folder: Path | None = None) -> Arrays:
    """Train the networks of one data set, those of one kind in step: arrays variant × seed × α."""
    (name,) = config.data
    examples = data.training_set(name, data_dir)
    all_variants = variants(config)
    rows: dict[Variant, Arrays] = {}
    for number, (_, members) in enumerate(groupby(sorted(all_variants, key=_kind), _kind)):
        group = list(members)
        file = None if folder is None else folder / "training" / f"{name}-{number}"
        trainer = _trainer(config, group[0])
        rows |= zip(group, trainer(config, group, _sets(config, examples, group[0].draws, device), file), strict=True)
    shape = (config.num_seeds, len(config.alphas))
    keys = rows[all_variants[0]]
    arrays = {
        key: np.stack([rows[one][key].reshape(*shape, *rows[one][key].shape[1:]) for one in all_variants])
        for key in keys
    }
    shares = np.array([data.largest_share(_cut(config, examples, alpha, 0)) for alpha in config.alphas])
    return arrays | {
        "shares": shares,
        "printed": np.array([printed_sharpness(share, config.depth, config.sigma_x) for share in shares]),
        "epochs": np.array(logarithmic(config.num_epochs, config.num_pauses)),
        "by_size": np.array([_minimum_of_size(config, examples, size, device) for size in config.sizes]),
    }


def _kind(variant: Variant) -> tuple[str, str, bool]:
    """What variants must share to be trained in step."""
    return variant.draws, variant.rate, variant.inputs == "raw"


def _trainer(config: Config, variant: Variant) -> Callable[[Any, list[Variant], Sets, Path | None], list[Arrays]]:
    if config.activation == "tanh":
        return train_tanh
    return train_raw if variant.inputs == "raw" else train_white


def _cut(config: Config, examples: Examples, alpha: float, seed: int) -> Examples:
    return data.subset(examples, config.num_examples, alpha_max=alpha, seed=seed)


def _sets(config: Config, examples: Examples, draws: Draws, device: torch.device) -> Sets:
    """The seed and the data of every network, in the order seed × share."""
    shares = range(len(config.alphas))
    seeds = [seed_of(config.seed, draws, repeat, share) for repeat, share in product(range(config.num_seeds), shares)]

    def regressions() -> Iterator[tuple[Tensor, Tensor]]:
        for seed, alpha in zip(seeds, config.alphas * config.num_seeds, strict=True):
            yield data.regression(_cut(config, examples, alpha, seed), device)

    return Sets(seeds, regressions)


def _minimum_of_size(config: Config, examples: Examples, size: int, device: torch.device) -> float:
    """The sharpness of the balanced minimum on this many images; NaN if they are fewer than the inputs."""
    cut = data.subset(examples, size, alpha_max=config.size_alpha, seed=config.seed)
    X, Y = data.regression(cut, device)
    if len(X) < X.shape[1]:
        return float("nan")
    white = White.of(data.white_inputs(X, config.sigma_x, "rank"), Y, config.sigma_x)
    return exact_sharpness(white, config.depth)


def draw_variants(record: Record) -> Picture:
    """The leading reading in the first panel, and then a panel for every single change of a choice."""
    return pictures.by_variant(record, variants(record.config))


_LAPTOP = replace(Config(), alphas=(0.1, 0.3, 0.5, 0.7, 0.9), num_examples=2000, num_epochs=2000, num_seeds=3)
_SMOKE = Config(
    data=("digits",), alphas=(0.1, 0.3, 0.5), num_examples=150, depth=3, width=12, learning_rate=0.2, num_epochs=120,
    num_seeds=2,
)  # fmt: skip
_FEW = {"data": ("mnist", "fashion_mnist")}
_BALANCED: dict[str, Any] = {"sizes": (800, 1000, 2000, 5000, 10_000)}
_RAW: dict[str, Any] = {
    "inputs": ("raw", "qr"),
    "scales": ("one", "half"),
    "num_pauses": 16,  # nine of them are before epoch 200
    "num_seeds": 3,
}
_KAIMING: dict[str, Any] = {"inputs": ("qr",), "starts": ("kaiming",)}
_TANH: dict[str, Any] = {
    "inputs": ("qr",), "starts": ("balanced", "kaiming"), "rates": ("halved",), "activation": "tanh", "num_seeds": 3
}  # fmt: skip
_FEW_TANH = {**_FEW, "alphas": (0.1, 0.5, 0.9), "num_examples": 2000, "num_epochs": 1000, "num_seeds": 2}
_PRINTED_RAW = {
    "inputs": '"Datasets are not orthogonalized"; beside them white ones, from the same weights, at the same pauses',
    "num_pauses": "open: for a peak, which comes early; nine are before epoch 200",
}
_PRINTED_KAIMING = {"starts": '"initialized with Kaiming uniform initialization (standard in PyTorch)"'}
_PRINTED_TANH = {"activation": '"Tanh-MLP"'}


def _presets(paper: dict[str, Any], laptop: dict[str, Any], smoke: dict[str, Any]) -> dict[str, Config]:
    return {
        "paper": replace(Config(), **paper),
        "laptop": replace(_LAPTOP, **{**paper, "num_seeds": 3, **laptop}),
        "smoke": replace(_SMOKE, **{**paper, "num_seeds": 2, **smoke}),
    }


FIGURES = {
    figure.id: figure
    for figure in (
        Figure(
            "linear2026.fig1c",
            "Sharpness of trained balanced networks against the largest class: (14), and exactly",
            presets=_presets(_BALANCED, _FEW, {"sizes": (100, 150)}),
            run=partial(run, need="qr", may=("rank",)),
            draw=pictures.by_data_set,
            statements=balanced_statements.BALANCED,
            readings=(*DRAWS, *RATES),
        ),
        Figure(
            "linear2026.fig2a",
            "The same on raw inputs, without Assumption 2",
            presets=_presets(_RAW, {**_FEW, "num_pauses": 6}, {"learning_rate": 0.02, "num_pauses": 2}),
            run=partial(run, need="raw", may=("qr", "rank")),
            draw=draw_variants,
            statements=ablation_statements.RAW,
            readings=(*DRAWS, *RATES, *SCALES),
            printed=_PRINTED_RAW,
        ),
        Figure(
            "linear2026.fig2b",
            "The same from Kaiming uniform weights, without Assumption 3",
            presets=_presets(_KAIMING, _FEW, {}),
            run=partial(run, need="qr", may=("rank",)),
            draw=draw_variants,
            statements=ablation_statements.UNBALANCED,
            readings=(*DRAWS, *RATES),
            printed=_PRINTED_KAIMING,
        ),
        Figure(
            "linear2026.fig2c",
            "The same for tanh networks, from balanced and from unbalanced weights",
            presets=_presets(_TANH, _FEW_TANH, {}),
            run=partial(run, need="qr", may=("rank", "raw"), several_starts=True),
            draw=draw_variants,
            statements=ablation_statements.NONLINEAR,
            readings=(*DRAWS, *STARTS),
            printed=_PRINTED_TANH,
        ),
    )
}
