"""Figure 6: the spectrum of GPT with attention sinks.

At preset "printed" with the published weights of GPT-2, else with a GPT that is trained first, as in Fig. 5:

    ritz run singh2026.fig6 --preset printed --device cuda --set tokens=train.bin --set weights=model.safetensors
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ... import plot, progress
from ...errors import ArgumentError, FileError
from ...lab.models import GPT, attention_on_first_token, gpt2, parameter_count, set_sink, sink_bias
from ...operators import hessian
from ...record import Picture, Record, discard
from ...risk import Risk
from ...risk.losses import CrossEntropy
from ...solvers import spectral_density
from ...spectrum import Spectrum
from ..frame.accuracy import eigenvalue_statement
from ..frame.figure import Context, Figure
from ..frame.pictures import legend_below
from ..frame.statements import at_least, each, near
from .gpt_sharpness import pairs_of
from .paper import BEYOND, says
from .pretraining import CHARACTERS, GPT2_SIZE, SMALL, TINY, pretrain, sequences, token_stream
from .pretraining import Config as Pretraining

_LINES = ("-", "--", ":")
_GROWS = at_least(1.1, partly=1.0)  # a factor: by a tenth, or at all
_KEPT = at_least(0.9, partly=0.5)  # of the eigenvalues close to zero
CLOSE = 1e-3  # of the sharpness without a sink: what is close to zero

VOCABULARY = 50257  # of the published GPT-2


@dataclass(frozen=True)
class Config(Pretraining):
    """Spectra of a trained GPT whose first token is made a sink, in the first head of every block.

    The fields shared with Figs. 5 and 23 to 25 say how the GPT is trained; with `weights` they are not used.
    """

    weights: str = ""  # path of published GPT-2 weights; without it, a model is trained
    targets: tuple[float, ...] = (0.81,)  # attention on the first token: D.1.6
    num_products: int = 1024  # D.1.6; its Gaussians (κ = 3) are a 3,000th of the range wide, drawn a 300th to be seen
    num_probes: int = 1  # open: curvlinops takes one by default
    outliers: int = 5  # eigenvalues certified at each end, and drawn one by one; not in the paper
    basis_size: int = 60  # 30 GB
    seeds: tuple[int, ...] = (0, 1, 2)  # of the sequences, and of the model where one is trained; the paper has one


@dataclass(frozen=True)
class SinkRun:
    """One model and its sequences, with every sink: a task of the sweep."""

    config: Config
    seed: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """The spectrum without and with sinks, for each seed: arrays of seeds × sinks."""
    _check(config)
    read = replace(config, vocabulary=min(config.vocabulary, VOCABULARY)) if config.weights else config
    token_stream(read, context.data_dir)  # fails now, and not after hours, if a file is missing
    if not config.weights and config.corpus == "tokens":
        raise ArgumentError(
            "This preset takes the published weights of GPT-2, and no file was named.",
            "The paper studies a fitted model, and the weights do not come with ritz.",
            "Name them: --set weights=model.safetensors",
            "Or take --preset paper, large or laptop, which train a model first.",
        )
    task = partial(sink_spectra, device=context.device, data_dir=context.data_dir, folder=context.folder)
    records = context.sweep(task, [SinkRun(config, seed) for seed in config.seeds])
    names = ("attention", "bias", "top", "top_residuals", "nodes", "weights")
    size = records[0].scalars["num_parameters"]
    return {**{name: np.stack([record.arrays[name] for record in records]) for name in names}, "num_parameters": size}


def _check(config: Config) -> None:
    """Refuse a missing file of weights, and weights without a text in their tokens."""
    if config.weights and config.corpus != "tokens":
        raise ArgumentError(
            f"Weights were named, {config.weights}, with a text of another vocabulary: corpus={config.corpus}.",
            "GPT-2 reads tokens of its own, and would take characters for them.",
            "Take --preset printed, with --set tokens=train.bin",
            "Or leave weights=... out: then a small model is trained.",
        )
    if config.weights and not Path(config.weights).is_file():
        raise FileError(
            f"{config.weights} is not a file.",
            "It was named as the weights of GPT-2.",
            "Name the model.safetensors published with GPT-2: --set weights=model.safetensors",
        )


def sink_spectra(task: SinkRun, *, device: torch.device, data_dir: Path | None, folder: Path | None) -> dict[str, Any]:
    """The spectra of one model: first without a sink, then at each target."""
    config, stream = task.config, token_stream(task.config, data_dir)
    file = None if folder is None else folder / f"fitted-{task.seed}.npz"
    model = (
        gpt2(config.weights, device=device)
        if config.weights
        else _trained_model(config, stream, task.seed, device, file)
    )
    generator = torch.Generator().manual_seed(10**6 + task.seed)
    context, vocabulary = min(config.context, model.config.context), model.config.vocabulary
    rows = sequences(stream, config.num_sequences, context, generator, vocabulary=vocabulary).to(device)
    biases = [0.0, *(sink_bias(model, rows[:, :-1], target) for target in config.targets)]
    spectra = list[dict[str, Any]]()
    with progress.bar("Attention sinks", total=len(biases)) as bar:
        for bias in biases:
            set_sink(model, bias)
            spectra.append({"bias": bias, **_spectrum(model.eval(), rows, config)})
            bar.advance()
    if file is not None:
        discard(file)
    stacked = {name: np.stack([np.asarray(one[name]) for one in spectra]) for name in spectra[0]}
    return {**stacked, "num_parameters": parameter_count(model)}


def _spectrum(model: GPT, rows: Tensor, config: Config) -> dict[str, Any]:
    x, y = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    H = hessian(Risk(model, CrossEntropy(), (x, y)))
    top = pairs_of(H, 2 * config.outliers, which="both", tolerance=config.tolerance, basis_size=config.basis_size)
    # The pairs count 1/n each, exactly: a probe would hardly see some of them.
    spectrum = spectral_density(H, num_steps=config.num_products, num_probes=config.num_probes, outliers=top)
    return {
        "attention": attention_on_first_token(model, x),
        "top": top.values.cpu().double(),
        "top_residuals": top.residuals.cpu().double(),
        "nodes": _filled(spectrum.nodes, config),
        "weights": _filled(spectrum.weights, config),
    }


def _filled(values: Float[Tensor, "p k"], config: Config) -> Float[Tensor, "p m"]:
    """Pad to as many columns as there are products and pairs: converged atoms leave fewer nodes than steps."""
    missing = config.num_products + 2 * config.outliers - values.shape[1]
    return torch.nn.functional.pad(values.cpu().double(), (0, max(missing, 0)))


def _trained_model(config: Config, stream: np.ndarray, seed: int, device: torch.device, file: Path | None) -> GPT:
    """A model of our own, trained to the last step."""
    model, pauses = pretrain(config, stream, attention=True, seed=seed, device=device, file=file)
    for _ in pauses:
        pass
    return model


def draw(record: Record) -> Picture:
    """The densities without and with sinks of the first seed, and the ends of the spectrum against the attention."""
    figure, (left, right) = plot.panels(2, width=4.6, height=3.4)
    arrays, size, seeds = record.arrays, record.scalars["num_parameters"], record.config["seeds"]
    spectra = {
        f"attention {share:.2f}": Spectrum(torch.from_numpy(nodes), torch.from_numpy(weights), size)
        for share, nodes, weights in zip(arrays["attention"][0], arrays["nodes"][0], arrays["weights"][0], strict=True)
    }
    plot.comparison(left, spectra, width=float(np.ptp(arrays["nodes"][0])) / 300)
    half = arrays["top"].shape[-1] // 2
    left.set_xlabel(f"eigenvalue λ, seed {seeds[0]}")
    for i, (share, values) in enumerate(zip(arrays["attention"], arrays["top"], strict=True)):
        look: dict[str, Any] = {"marker": "os^Dv"[i % 5], "linestyle": _LINES[i % len(_LINES)], "linewidth": 0.8}
        for ends, colour in ((values[:, :half], plot.COLOURS[0]), (values[:, half:], plot.COLOURS[1])):
            right.plot(share, ends[:, 0], color=colour, markersize=4, **look)
            right.plot(share, ends[:, 1:], color=colour, markersize=3, alpha=0.4, **{**look, "linestyle": ""})
        right.plot([], [], color="0.3", markersize=4, label=f"seed {seeds[i]}", **look)
    right.plot([], [], "s", color=plot.COLOURS[0], markersize=4, label=f"{half} largest")
    right.plot([], [], "s", color=plot.COLOURS[1], markersize=4, label=f"{half} smallest")
    right.axhline(0, color="0.7", linewidth=0.6, zorder=0)
    right.set(xlabel="attention on the first token, first head", ylabel="eigenvalue of H")
    legend_below(right, columns=5, columnspacing=1.0, handlelength=1.6)
    return figure


def _factors(record: Record, values: np.ndarray) -> dict[str, float]:
    """The factor by which each sink changes a number, for each seed; NaN where the number is not defined without it."""
    seeds, shares = record.config["seeds"], record.arrays["attention"]
    return {
        f"seed {seed}, sink {shares[i, sink]:.2f}": float(values[i, sink] / values[i, 0]) if values[i, 0] else np.nan
        for i, seed in enumerate(seeds)
        for sink in range(1, values.shape[1])
    }


def _half(record: Record) -> int:
    """How many eigenvalues are certified at each end of the spectrum."""
    return int(record.arrays["top"].shape[-1]) // 2


def sharpness_factors(record: Record) -> dict[str, float]:
    """The factors of the largest eigenvalue."""
    return _factors(record, record.arrays["top"][..., 0])


def outlier_factors(record: Record) -> dict[str, float]:
    """The factors of the mean of the largest eigenvalues."""
    return _factors(record, record.arrays["top"][..., : _half(record)].mean(-1))


def range_factors(record: Record) -> dict[str, float]:
    """The factors of the range from the smallest to the largest eigenvalue."""
    top = record.arrays["top"]
    return _factors(record, top[..., 0] - top[..., _half(record)])


def kept_near_zero(record: Record) -> dict[str, float]:
    """The factors of the share of eigenvalues that are within a thousandth of the sharpness without a sink."""
    nodes, weights = record.arrays["nodes"], record.arrays["weights"]
    small = np.abs(nodes) <= CLOSE * record.arrays["top"][:, :1, :1, None]
    return _factors(record, (weights * small).sum(-1).mean(-1) / weights.sum(-1).mean(-1))


def attention_of_gpt2(record: Record) -> float | None:
    """The attention on the first token without a sink, if the weights are the published ones."""
    return float(record.arrays["attention"][:, 0].mean()) if record.config["weights"] else None


def end_residuals(record: Record) -> dict[str, float]:
    """The largest residual at both ends of the spectrum, relative to one scale, for each seed."""
    relative = record.arrays["top_residuals"] / np.abs(record.arrays["top"][..., :1])
    names = (f"seed {seed}" for seed in record.config["seeds"])
    return dict(zip(names, relative.max((1, 2)).tolist(), strict=True))


def _not_so(do: str, does: str) -> dict[str, str]:
    """Why a sink changes a number less than the paper says, in words."""
    start = "In this model a sink of one head in each block"
    return {"no": f"{start} does not {do}.", "partly": f"{start} {does} by less than a tenth, or not always."}


STATEMENTS = (  # sinks stretch the spectrum and leave the many small eigenvalues: every seed and every sink is asked
    says(
        "The more prominent the attention sinks, the larger the sharpness (over that without).",
        where="Sec. 4.3, Fig. 6", measured=sharpness_factors, rule=each(_GROWS), expected="above 1",
        why=_not_so("enlarge it", "enlarges it"),
    ),
    says(
        "The more prominent the attention sinks, the larger the outliers (mean of the largest that were certified).",
        where="Sec. 4.3, Fig. 6", measured=outlier_factors, rule=each(_GROWS), expected="above 1",
        why=_not_so("enlarge them", "enlarges them"),
    ),
    says(
        "Larger attention sinks stretch the spectrum (its range, over that without).",
        where="Fig. 6", measured=range_factors, rule=each(_GROWS), expected="above 1",
        why=_not_so("widen the spectrum", "widens it"),
    ),
    says(
        "… while still preserving many eigenvalues close to zero (those within a thousandth of the sharpness that the "
        "model has without a sink, over their number without it).",
        where="Sec. 4.3, Fig. 6", measured=kept_near_zero, rule=each(_KEPT), expected=1.0,
        why="The sink widens the bulk of the spectrum, too.",
    ),
    says(
        "The average attention of the first head on the first token is 0.32 in the fitted GPT-2.",
        where="D.1.6", measured=attention_of_gpt2, rule=near(0.32, relative=0.1, partly=0.3), expected=0.32,
        why="It depends on the text and on the length of the sequences, which the paper leaves open.",
    ),
    eigenvalue_statement(
        end_residuals, paper=BEYOND, where="Fig. 6", what="are eigenvalues of the Hessian", scale="λ₁",
        why="The search ended before all pairs had converged to that.",
    ),
)  # fmt: skip


def _config(pretraining: Pretraining, **rest: Any) -> Config:
    return Config(**{**vars(pretraining), **rest})


_PRESETS = {
    "printed": Config(),
    "large": _config(GPT2_SIZE, seeds=(0,)),
    "paper": _config(CHARACTERS),
    # Trained for less than in Fig. 5, and with fewer products than one probe of 128: three seeds at the cost of two.
    "laptop": _config(SMALL, targets=(0.5, 0.81), num_products=40, num_probes=2, num_steps=400, decay_steps=400),
    "smoke": _config(TINY, targets=(0.5, 0.81), num_products=12, outliers=1),
}
_PAPER_COST = (
    "As printed it needs the weights of GPT-2 and tokens of OpenWebText, neither of which comes with ritz; with them, "
    "estimated and not measured, about three quarters of an hour of one H200 (for each of three seeds 2 × 1,024 "
    "products at 124M parameters, and eigenpairs). Preset paper is what tiny Shakespeare allows."
)
_TITLE = "GPT: spectra with attention sinks"
FIGURES = {"singh2026.fig6": Figure("singh2026.fig6", _TITLE, _PRESETS, run, draw, STATEMENTS, paper_cost=_PAPER_COST)}
