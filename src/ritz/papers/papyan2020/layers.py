"""The computations of Figures 7 to 13 and Table 1: all layers of MLPs, on three data sets and from several seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...record import Record
from ..frame.figure import Context
from ..frame.loans import Loan, below
from . import gradients, layer_blocks, layer_structure
from .gradients import Exact, Network
from .layer_blocks import Blocks
from .layer_structure import Layers
from .networks import sweep_on_shelf
from .setting import Data, Piece, Training

KEPT = 110  # values of a curve that are kept of seeds after the first: the outliers, the mini-bulk, some of the bulk
COMPUTATION, STRUCTURE = "papyan2020.layers", "papyan2020.structure"
SPECTRA = ("G", "class", "cross", "only_within", "only_cross")  # for Table 1
MLP = Piece("mlp")  # App. D.1
SETS: tuple[Data, ...] = ("mnist", "fashion_mnist", "cifar10")


@dataclass(frozen=True)
class Structure:
    """The eight-layer MLP of width 2048 on three data sets."""

    piece: Piece = MLP
    sets: tuple[Data, ...] = SETS  # "Each row of panels corresponds to a different dataset"
    seeds: tuple[int, ...] = (0,)  # open: print shows one network; more of them say how much it differs from the next

    @property
    def pieces(self) -> list[Piece]:
        """All networks."""
        return [replace(self.piece, data=name, seed=seed) for seed in self.seeds for name in self.sets]


@dataclass(frozen=True)
class Config:
    """The networks of `Structure`, with the blocks of G and their approximations."""

    piece: Piece = MLP
    sets: tuple[Data, ...] = SETS  # "Each subfigure corresponds to one specific dataset"
    seeds: tuple[int, ...] = (0,)  # open: print shows one network; more of them say how much it differs from the next
    num_examples: int | None = 10_000  # open: of 50,000, for the blocks of G and their factors
    num_steps: int = 128  # "M ∈ {128, 256}"
    gram_examples: int = 1360  # open: for Table 1's parts of G and eigenvectors of H; 136 a class, as in Fig. 5

    @property
    def structure(self) -> Structure:
        """The config for Figs 7 to 10 and 13, which show these networks."""
        return Structure(self.piece, self.sets, self.seeds)


def run(config: Config, context: Context) -> dict[str, Any]:
    """Features, errors, weights and blocks of all networks, and the parts of their G and H."""
    return run_structure(config.structure, context) | _blocks(config, context) | _origins(config, context)


def run_structure(config: Structure, context: Context) -> dict[str, Any]:
    """Features, errors and weights of all networks."""
    return _gathered("structure", layer_structure.structure, _layers(config), config.seeds[0], context)


def loans(config: Config) -> list[Loan]:
    """The results of sweeps in a record of this config."""
    ends = _ends(config)
    blocks = _lent("blocks", layer_blocks.blocks, _sampled(config), config.seeds[0])
    grams = [Loan(gradients.exact, Exact(end, SPECTRA), below(f"{name}/gram")) for name, end in ends.items()]
    origins = [Loan(gradients.origins, end, below(f"{name}/origins")) for name, end in ends.items()]
    return structure_loans(config.structure) + blocks + grams + origins


def structure_loans(config: Structure) -> list[Loan]:
    """The results of sweeps in a record of features, errors and weights."""
    return _lent("structure", layer_structure.structure, _layers(config), config.seeds[0])


def _lent(kind: str, task: Callable[..., Any], measurements: Mapping[Piece, Any], first: int) -> list[Loan]:
    return [
        Loan(task, measurement, below(f"{piece.data}/{piece.seed}/{kind}"), "" if piece.seed == first else "cut")
        for piece, measurement in measurements.items()
    ]


def _layers(config: Structure) -> dict[Piece, Layers]:
    return {piece: Layers(piece) for piece in config.pieces}


def _sampled(config: Config) -> dict[Piece, Blocks]:
    return {piece: Blocks(piece, config.num_examples, config.num_steps) for piece in config.structure.pieces}


def _ends(config: Config) -> dict[str, Network]:
    """The networks at the end of their training, by data set and seed: their G and H are taken apart."""
    return {
        f"{piece.data}/{piece.seed}": Network(piece, piece.num_epochs, config.gram_examples)
        for piece in config.structure.pieces
    }


def _blocks(config: Config, context: Context) -> dict[str, Any]:
    return _gathered("blocks", layer_blocks.blocks, _sampled(config), config.seeds[0], context)


def _gathered(
    kind: str, task: Callable[..., Any], measurements: Mapping[Piece, Any], first: int, context: Context
) -> dict[str, Any]:
    """The results of a task for every network, whole curves of the first seed alone."""
    result: dict[str, Any] = {}
    records = sweep_on_shelf(task, measurements.values(), context)
    for piece, record in zip(measurements, records, strict=True):
        _add(result, f"{piece.data}/{piece.seed}/{kind}", record, None if piece.seed == first else KEPT)
    return result


def _origins(config: Config, context: Context) -> dict[str, Any]:
    """The parts of G, and what the largest eigenvectors of G and H are made of."""
    ends, result = _ends(config), dict[str, Any]()
    grams = sweep_on_shelf(gradients.exact, [Exact(end, SPECTRA) for end in ends.values()], context)
    origins = sweep_on_shelf(gradients.origins, ends.values(), context)
    for name, gram, origin in zip(ends, grams, origins, strict=True):
        _add(result, f"{name}/gram", gram, None)
        _add(result, f"{name}/origins", origin, None)
    return result


def _add(result: dict[str, Any], prefix: str, record: Record, kept: int | None) -> None:
    """The results of a task under a prefix, long curves cut; densities of the first seed alone, and G's upper nodes."""
    for name, value in record.arrays.items():
        if kept is not None and name.endswith("/G/nodes"):
            value = np.sort(value)[::-1]  # where the main bulk ends is asked of every seed
        elif kept is not None and name.endswith(("/nodes", "/counts")):
            continue
        result[f"{prefix}/{name}"] = value[:kept].astype(np.float32 if value.dtype == np.float64 else value.dtype)
    result |= {f"{prefix}/{name}": value for name, value in record.scalars.items()}


BRIEF = Training(num_epochs=4, batch_size=32, rates=(0.05,), num_errors=3)
LAPTOP = Training(num_epochs=10, rates=(0.03,))
PRESETS = {
    "paper": Config(seeds=(0, 1, 2)),
    "laptop": Config(Piece("mlp", "mnist", 300, training=LAPTOP, width=128, depth=5), SETS, (0,), 500, 64, 200),
    "smoke": Config(Piece("mlp", "digits", 12, training=BRIEF, width=24, depth=3), ("digits",), (0,), None, 20, 60),
}
STRUCTURES = {name: preset.structure for name, preset in PRESETS.items()}
