"""Section 9.3, which has no figure: what batch normalisation does to the outliers of the Hessian, and why.

ritz run papyan2020.sec9 --preset paper --data-dir FOLDER
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ... import plot
from ...classes import backpropagated_errors, features
from ...errors import NumericalError
from ...lab import models
from ...lab.training import Annealing, accuracy, train
from ...operators import hessian
from ...record import Picture, Record
from ...risk import CrossEntropy, Risk
from ...solvers import eigenpairs
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import at_least, at_most, each
from .networks import Place
from .paper import BEYOND, says
from .setting import NUM_CLASSES, TITLES, Data, Piece, Training, split

C = NUM_CLASSES
KINDS = {True: "with batch norm", False: "without"}


@dataclass(frozen=True)
class Config:
    """MLPs that differ in their batch normalisation alone, each from several seeds."""

    data: Data = "mnist"  # open: Sec. 9.3 names no network
    per_class: int = 136  # open: as in Fig. 5
    width: int = 256  # open: that of the paper's MLP is 2048
    depth: int = 8  # open: as in the paper's MLP
    num_epochs: int = 120  # open: until both kinds make no error in training
    rate: float = 0.05  # open: both kinds train at it
    seeds: tuple[int, ...] = (0, 1, 2)  # open: how much a network differs from the next
    tolerance: float = 1e-3  # open: of the eigenpairs, relative

    @property
    def piece(self) -> Piece:
        """Its data, as a piece like those of the other figures."""
        return Piece("mlp", self.data, self.per_class, training=Training(self.num_epochs), width=self.width)


@dataclass(frozen=True)
class One:
    """One of the networks."""

    config: Config
    batch_norm: bool
    seed: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train and measure every network."""
    ones = [One(config, kind, seed) for seed in config.seeds for kind in KINDS]
    records = context.sweep(partial(measured, place=Place.of(context)), ones)
    result: dict[str, Any] = {}
    for one, record in zip(ones, records, strict=True):
        prefix = f"{one.seed}/{KINDS[one.batch_norm]}"
        result |= {f"{prefix}/{name}": value for name, value in {**record.arrays, **record.scalars}.items()}
    return result


def measured(one: One, *, place: Place) -> dict[str, Any]:
    """Errors, the largest eigenvalues of H, the composition of its eigenvectors, and the norms of the global means."""
    model, risk, errors = _trained(one, place)
    weights = [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    risk = risk.restricted_to(weights)
    pairs = eigenpairs(hessian(risk), 2 * C, tolerance=one.config.tolerance, block_size=C)
    h, delta = features(risk), backpropagated_errors(risk)
    V = pairs.vectors[:, :C].double()
    return {
        "values": pairs.values.double().cpu(),
        "in_global": _inside(V, [(delta[name].class_means, h[name].global_mean.expand(C, -1)) for name in h]),
        "in_class": _inside(V, [(delta[name].class_means, h[name].class_means) for name in h]),
        "global_share": np.array([_share(h[name].global_mean, h[name].class_means) for name in h]),
        "class_size": np.array([float(h[name].class_means.square().sum(1).mean()) for name in h]),
        **errors,
    }


def _share(mean: Tensor, means: Tensor) -> float:
    """‖h_G‖² over the mean of ‖h_c‖²."""
    return float(mean.square().sum() / means.square().sum(1).mean().clamp(min=1e-300))


def _inside(V: Tensor, sides: list[tuple[Tensor, Tensor]]) -> float:
    """The mean ‖Pv‖² of eigenvectors, P on the span of C Khatri-Rao products, one block for each layer."""
    blocks = [torch.einsum("co,cd->cod", e.double(), x.double()).flatten(1) for e, x in sides]
    Q = torch.linalg.qr(torch.cat(blocks, 1).T).Q
    return float((Q.T @ V).square().sum(0).mean())


def _trained(one: One, place: Place) -> tuple[nn.Module, Risk, dict[str, float]]:
    config, both = one.config, split(one.config.piece.with_seed(one.seed), place.data_dir)
    train_set, test_set = ((part.x.to(place.device), part.y.to(place.device)) for part in (both.train, both.test))
    generator = torch.Generator().manual_seed(one.seed)
    model = models.wide_mlp(
        train_set[0].shape[1], C, generator=generator, depth=config.depth, width=config.width,
        batch_norm=one.batch_norm, device=place.device,
    )  # fmt: skip
    settings = config.piece.training
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config.rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    *_, last = train(
        model, F.cross_entropy, train_set, optimizer, num_epochs=config.num_epochs, batch_size=settings.batch_size,
        generator=torch.Generator().manual_seed(one.seed), schedule=Annealing(),
    )  # fmt: skip
    if last.diverged:
        raise NumericalError(
            f"Training {KINDS[one.batch_norm]} diverged at the rate {config.rate:g}.",
            "There is no trained network whose Hessian could be measured.",
            "Take a smaller rate: --set rate=0.01",
        )
    model.eval()
    errors = {f"{name}_error": 1 - accuracy(model, part) for name, part in (("train", train_set), ("test", test_set))}
    return model, Risk(model, CrossEntropy(), train_set), errors


def values(record: Record, seed: int, kind: str) -> np.ndarray:
    """The largest eigenvalues of H, largest first."""
    return np.sort(np.asarray(record.arrays[f"{seed}/{kind}/values"]))[::-1]


def apart(record: Record, seed: int, kind: str) -> float:
    """The mean of ln λ_k/λ_{C+1} over k = 1, …, C: how far the outliers stand above what follows."""
    own = np.maximum(values(record, seed, kind), 1e-30)
    return float(np.log(own[:C] / own[C]).mean())


def by_seed(number: Callable[[Record, int], float]) -> Callable[[Record], dict[str, float]]:
    """A number for every pair of networks."""
    return lambda record: {f"seed {seed}": number(record, seed) for seed in record.config["seeds"]}


def pushed_back(record: Record, seed: int) -> float:
    """How much further outliers stand above the rest without batch norm than with it, in ln λ."""
    return apart(record, seed, KINDS[False]) - apart(record, seed, KINDS[True])


def suppressed(record: Record, seed: int) -> float:
    """ln of λ₁ without batch norm over that with it."""
    return float(np.log(values(record, seed, KINDS[False])[0] / values(record, seed, KINDS[True])[0]))


def left(record: Record, seed: int) -> float:
    """The geometric mean of λ_k/λ_{C+1} over k = 1, …, C with batch norm."""
    return float(np.exp(apart(record, seed, KINDS[True])))


def smaller_means(record: Record, seed: int) -> float:
    """The mean ‖h_c‖² of hidden layers, the median, with batch norm over that without."""
    medians = {kind: np.median(record.arrays[f"{seed}/{kind}/class_size"][1:]) for kind in KINDS.values()}
    return float(medians[KINDS[True]] / medians[KINDS[False]])


def shorter_means(record: Record, seed: int) -> float:
    """‖h_G‖² over the mean ‖h_c‖² of hidden layers, the median, with batch norm over that without."""
    medians = {kind: np.median(record.arrays[f"{seed}/{kind}/global_share"][1:]) for kind in KINDS.values()}
    return float(medians[KINDS[True]] / medians[KINDS[False]])


def inside(name: str, kind: str) -> Callable[[Record, int], float]:
    """The mean ‖Pv‖² of the C largest eigenvectors of H in the span of products of means."""
    return lambda record, seed: float(record.scalars[f"{seed}/{kind}/{name}"])


def draw(record: Record) -> Picture:
    """The largest eigenvalues of H over λ_{C+1}, with and without batch norm; and the global mean by layer."""
    figure, axes = plot.panels(2, width=4.0, height=2.8)
    for colour, kind in zip(plot.COLOURS, KINDS.values(), strict=False):
        for seed in record.config["seeds"]:
            own, label = values(record, seed, kind), kind if seed == record.config["seeds"][0] else None
            axes[0].plot(range(1, len(own) + 1), own / own[C], "o-", ms=3, lw=0.8, color=colour, label=label)
            share = record.arrays[f"{seed}/{kind}/global_share"]
            axes[1].plot(range(len(share)), share, "o-", ms=3, lw=0.8, color=colour)
    axes[0].axvline(C + 0.5, color="0.7", lw=0.8)
    axes[0].set(yscale="log", xlabel="rank", ylabel="eigenvalue of H over λ$_{C+1}$")
    axes[1].set(xlabel="layer l that the features leave", ylabel="$‖h_G‖^2$ over the mean $‖h_c‖^2$", ylim=(0, None))
    axes[0].legend(frameon=False, fontsize=7)
    write_title(axes[0], f"Hessian of MLPs on {TITLES[record.config['data']]}: C outliers, left of the line", size=8)
    write_title(axes[1], "the global mean's share in the class means", size=8)
    return figure


STATEMENTS = (
    says(
        "Batch normalisation pushes outliers back into the bulk (mean ln λ_k/λ_{C+1}, k ≤ C: without it, minus with "
        "it).",
        where="Sec. 9.3", measured=by_seed(pushed_back), rule=each(at_least(0.2, partly=0.0)), expected="above 0",
        why="The outliers stand hardly nearer to the rest with it, or no nearer.",
    ),
    says(
        "Batch normalisation suppresses outlier eigenvalues (ln of λ₁ without it over λ₁ with it).",
        where="Sec. 9.3", measured=by_seed(suppressed), rule=each(at_least(0.2, partly=0.0)), expected="above 0",
        why="The largest eigenvalue is no smaller with it.",
    ),
    says(
        "The outliers are not completely removed by batch normalisation (the mean of λ_k/λ_{C+1}, k ≤ C, with it).",
        where="Sec. 9.3", measured=by_seed(left), rule=each(at_least(1.5, partly=1.1)), expected="above 1",
        why="With it no eigenvalue stands apart.",
    ),
    says(
        "Batch normalisation takes the global mean out of the features (‖h_G‖² over the mean ‖h_c‖² of hidden layers, "
        "the median, with it over without).",
        where="Sec. 9.3", measured=by_seed(shorter_means), rule=each(at_most(0.5, partly=1.0)), expected=0.0,
        why="It stands before the ReLU, behind which every feature has a mean above zero again.",
    ),
    says(
        "It significantly decreases the magnitude of the features' class means (the mean ‖h_c‖² of hidden layers, the "
        "median, with it over without).",
        where="Sec. 9.3", measured=by_seed(smaller_means), rule=each(at_most(0.5, partly=1.0)), expected="below 1",
        why="The class means are as long with it.",
    ),
    says(
        "The top C outliers are caused by the products of h_G and δ_c (mean ‖Pv‖² of the C largest eigenvectors of H, "
        "without it).",
        where="Sec. 9.3", measured=by_seed(inside("in_global", KINDS[False])), rule=each(at_least(0.9, partly=0.5)),
        expected=1.0, why="The class means h_c are not all about h_G.",
    ),
    says(
        "The top C outliers are caused by the products of h_c and δ_c: class means in place of the global mean (mean "
        "‖Pv‖² of the C largest eigenvectors of H, without it).",
        where="Sec. 9.3", paper=BEYOND, measured=by_seed(inside("in_class", KINDS[False])),
        rule=each(at_least(0.9, partly=0.5)), expected=1.0, why="Features and errors of single examples vary together.",
    ),
)  # fmt: skip
PRESETS = {
    "paper": Config(),
    "laptop": Config(width=128, num_epochs=60, seeds=(0,)),
    "smoke": Config("digits", 8, 12, 3, 4, seeds=(0,), tolerance=0.1),
}
FIGURES = {
    "papyan2020.sec9": Figure(
        "papyan2020.sec9", "MLPs with and without batch normalisation: outliers of the Hessian", PRESETS, run, draw,
        STATEMENTS,
    )
}  # fmt: skip
