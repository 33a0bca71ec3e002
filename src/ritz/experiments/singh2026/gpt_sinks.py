"""Figure 6: the spectrum of GPT with attention sinks.

At preset "paper" with the published weights of GPT-2, else with a small GPT that is trained first:

    ritz run singh2026.fig6 --preset paper --device cuda --set tokens=train.bin --set weights=model.safetensors
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import plot, progress
from ...eigen import eigenpairs
from ...errors import ArgumentError, FileError
from ...krylov import spectral_density
from ...lab.models import GPT, attention_on_first_token, gpt2, parameter_count, set_sink, sink_bias
from ...losses import CrossEntropy
from ...operators import hessian
from ...record import Claim, Picture, Record
from ...risk import Risk
from ...spectrum import Spectrum
from ..figure import Context, Figure, at_least, each, near
from .attention import said
from .pretraining import SMALL, TINY, pretraining, sequences, token_stream
from .pretraining import Config as Pretraining


@dataclass(frozen=True)
class Config:
    """Spectra of a trained GPT whose first token is made a sink, in the first head of every block."""

    weights: str = ""  # path of published GPT-2 weights; without it, a model is trained as `training` says
    tokens: str = ""  # path, as in Config
    training: Pretraining = field(default_factory=Pretraining)
    targets: tuple[float, ...] = (0.81,)  # attention on the first token: D.1.6
    num_steps: int = 1024  # products with the Hessian: D.1.6
    num_probes: int = 1  # not given
    num_sequences: int = 8  # not given; as in D.1.5
    outliers: int = 5  # eigenvalues certified at each end
    tolerance: float = 1e-3
    basis_size: int = 60  # 30 GB
    seeds: tuple[int, ...] = (0,)  # of the sequences, and of the model where one is trained


@dataclass(frozen=True)
class Task:
    """The spectra of one model."""

    config: Config
    seed: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """The spectrum without and with sinks, for each seed: arrays of seeds × sinks."""
    token_stream(_training(config), context.data_dir)  # what is missing is missed now
    if config.weights and not Path(config.weights).is_file():
        raise FileError(
            f"{config.weights} is no file.",
            "It was named as the weights of GPT-2.",
            "Name the model.safetensors published with GPT-2: --set weights=model.safetensors",
        )
    if not config.weights and config.training.corpus == "tokens":
        raise ArgumentError(
            "This preset takes the published weights of GPT-2, and no file was named.",
            "The paper studies a fitted model, and the weights do not come with ritz.",
            "Name them: --set weights=model.safetensors",
            "Or take --preset laptop, which trains a small model first.",
        )
    task = partial(sinking, device=context.device, data_dir=context.data_dir, folder=context.folder)
    records = context.sweep(task, [Task(config, seed) for seed in config.seeds])
    names = ("attention", "bias", "top", "top_residuals", "nodes", "weights")
    size = records[0].scalars["num_parameters"]
    return {**{name: np.stack([record.arrays[name] for record in records]) for name in names}, "num_parameters": size}


def sinking(task: Task, *, device: torch.device, data_dir: Path | None, folder: Path | None) -> dict[str, Any]:
    """The spectra of one model: without a sink first, then at each target."""
    config, training = task.config, _training(task.config)
    stream = token_stream(training, data_dir)
    model = (
        gpt2(config.weights, device=device) if config.weights else _fitted(training, stream, task.seed, device, folder)
    )
    generator = torch.Generator().manual_seed(10**6 + task.seed)
    context = min(training.context, model.config.context)
    rows = sequences(stream, config.num_sequences, context, generator).to(device)
    biases = [0.0, *(sink_bias(model, rows[:, :-1], target) for target in config.targets)]
    found = list[dict[str, Any]]()
    with progress.bar("Sinks", total=len(biases)) as bar:
        for bias in biases:
            set_sink(model, bias)
            found.append({"bias": bias, **_sunk(model.eval(), rows, config)})
            bar.advance()
    stacked = {name: np.stack([np.asarray(one[name]) for one in found]) for name in found[0]}
    return {**stacked, "num_parameters": parameter_count(model)}


def _sunk(model: GPT, rows: Tensor, config: Config) -> dict[str, Any]:
    x, y = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    H = hessian(Risk(model, CrossEntropy(), (x, y)))
    top = eigenpairs(H, 2 * config.outliers, which="both", tolerance=config.tolerance, basis_size=config.basis_size)
    spectrum = spectral_density(H, num_steps=config.num_steps, num_probes=config.num_probes)
    return {
        "attention": attention_on_first_token(model, x),
        "top": top.values.cpu().double(),
        "top_residuals": top.residuals.cpu().double(),
        "nodes": spectrum.nodes.cpu().double(),
        "weights": spectrum.weights.cpu().double(),
    }


def _fitted(config: Pretraining, stream: np.ndarray, seed: int, device: torch.device, folder: Path | None) -> GPT:
    """A model of our own, trained to the last step."""
    file = None if folder is None else folder / f"fitted-{seed}.npz"
    model, pauses = pretraining(config, stream, attention=True, seed=seed, device=device, file=file)
    for _ in pauses:
        pass
    return model


def _training(config: Config) -> Pretraining:
    return replace(config.training, tokens=config.tokens)


def draw(record: Record) -> Picture:
    """The densities without and with sinks of the first seed, and the ends of the spectrum against the attention."""
    figure, (left, right) = plot.panels(2, width=4.6, height=3.2)
    arrays, size = record.arrays, record.scalars["num_parameters"]
    spectra = {
        f"attention {share:.2f}": Spectrum(torch.from_numpy(nodes), torch.from_numpy(weights), size)
        for share, nodes, weights in zip(arrays["attention"][0], arrays["nodes"][0], arrays["weights"][0], strict=True)
    }
    plot.comparison(left, spectra, width=float(np.ptp(arrays["nodes"][0])) / 300)
    half = arrays["top"].shape[-1] // 2
    for seed, (share, values) in enumerate(zip(arrays["attention"], arrays["top"], strict=True)):
        for end, colour in ((values[:, :half], plot.COLOURS[0]), (values[:, half:], plot.COLOURS[1])):
            right.plot(share, end[:, 0], "-", color=colour, linewidth=0.8, alpha=0.6)
            right.plot(share, end, "o", color=colour, markersize=3)
        if seed == 0:
            right.plot([], [], "o-", color=plot.COLOURS[0], markersize=3, label=f"{half} largest")
            right.plot([], [], "o-", color=plot.COLOURS[1], markersize=3, label=f"{half} smallest")
    right.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    right.set(xlabel="attention on the first token, first head", ylabel="eigenvalue of H")
    right.legend(frameon=False, fontsize=7)
    return figure


def claims(record: Record) -> list[Claim]:
    """Fig. 6: sinks stretch the spectrum and leave the many small eigenvalues."""
    top, half = record.arrays["top"], record.arrays["top"].shape[-1] // 2
    largest, spread = top[..., 0], top[..., 0] - top[..., half]
    outliers = top[..., :half].mean(-1)
    found = [
        said(
            "The more prominent the attention sinks, the larger the outliers (with the largest sink over without).",
            where="Sec. 4.3, Fig. 6", rule=each(at_least(1.1, partly=1.0)), expected="above 1",
            measured={
                "sharpness": float((largest[:, -1] / largest[:, 0]).mean()),
                f"mean of the {half} largest": float((outliers[:, -1] / outliers[:, 0]).mean()),
            },
            why={"no": "In this model a sink of one head in each block does not enlarge them."},
        ),
        said(
            "Larger attention sinks stretch the spectrum (its range, with the largest sink over without).",
            where="Fig. 6", rule=at_least(1.1, partly=1.0), expected="above 1",
            measured=float((spread[:, -1] / spread[:, 0]).mean()),
            why={"no": "In this model a sink of one head in each block does not widen the spectrum."},
        ),
        said(
            "Many eigenvalues stay close to zero (fraction within a hundredth of the sharpness).",
            where="Sec. 4.3, Fig. 6", rule=at_least(0.9, partly=0.5), expected="many",
            measured=float(_near_zero(record)[:, -1].mean()), why={"no": "The bulk of the spectrum is wider."},
        ),
    ]  # fmt: skip
    if record.config["weights"]:
        attention = float(record.arrays["attention"][:, 0].mean())
        found.append(
            said(
                "The average attention of the first head on the first token is 0.32 in the fitted GPT-2.",
                where="D.1.6", rule=near(0.32, relative=0.1, partly=0.3), measured=attention, expected=0.32,
                why={"no": "It depends on the text and on the length of the sequences, which the paper leaves open."},
            )
        )  # fmt: skip
    return found


def _near_zero(record: Record) -> np.ndarray:
    """The fraction of eigenvalues within a hundredth of the largest: seeds × sinks."""
    nodes, weights = record.arrays["nodes"], record.arrays["weights"]
    small = np.abs(nodes) <= 0.01 * record.arrays["top"][..., :1, None]
    return (weights * small).sum(-1).mean(-1) / weights.sum(-1).mean(-1)


_PRESETS = {
    "paper": Config(),
    "laptop": Config(training=SMALL, targets=(0.5, 0.81), num_steps=128, seeds=(0, 1), basis_size=100),
    "smoke": Config(training=TINY, targets=(0.5, 0.81), num_steps=12, outliers=1, tolerance=1e-2, num_sequences=2),
}
_PAPER_COST = (
    "It needs the weights of GPT-2 and tokens of OpenWebText, neither of which comes with ritz; with them, estimated "
    "and not measured, about a quarter of an hour of one H200 (2 × 1,024 products at 124M parameters, and eigenpairs)."
)
_TITLE = "GPT: spectra with attention sinks"
FIGURES = {"singh2026.fig6": Figure("singh2026.fig6", _TITLE, _PRESETS, run, draw, claims, paper_cost=_PAPER_COST)}
