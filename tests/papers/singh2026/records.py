"""Records of the figures: what they computed, or numbers that agree with the paper or contradict it."""

from dataclasses import replace

import numpy as np
import torch

from ritz.lab.models import gpt as gpt_model
from ritz.papers.frame.registry import figures
from ritz.papers.singh2026 import (
    attention,
    attention_descent,
    attention_edge,
    attention_sinks,
    edge_of_stability,
    gpt,
    gpt_sinks,
    pretraining,
)
from ritz.record import Record, plain

FIGURES = {name: figure for name, figure in figures().items() if name.startswith("singh20")}
ATTENTION = [name for module in (attention, attention_sinks, attention_edge, gpt, gpt_sinks) for name in module.FIGURES]


def record_with(config, result):
    """What a figure computed at this config, as a record."""
    arrays = {name: np.asarray(value) for name, value in result.items() if getattr(value, "ndim", 0)}
    scalars = {name: value for name, value in result.items() if name not in arrays}
    return Record("", "smoke", plain(config), scalars, arrays)


def record_of(figure, result):
    """A record of a figure at preset "smoke"."""
    return record_with(figure.presets["smoke"], result)


def verdicts(figure, record):
    return {claim.statement: claim.verdict for claim in figure.claims(record)}


def ended(names, points, finished=1.0):
    """How training ended, at every point alike."""
    return {"finished": np.full((names, points), finished), "used": np.full((names, points, 2), 8)}


def of_all_readings(figure, arrays):
    """The arrays for each reading of the preset; those of other widths have none."""
    count = len(figure.presets["smoke"].readings)
    rows = {name: array if name.startswith("width_") else np.stack([array] * count) for name, array in arrays.items()}
    return record_of(figure, rows)


STEPS = np.linspace(0.1, 0.9, 8)
GRID = np.arange(5.0)


def heads(varied, *, copies=7, **arrays):
    """A record of Fig. 2 with the same rows for three draws, whose measured bulk repeats so often at the last point."""
    rows = {name: np.tile(np.asarray(row, dtype=float), (3, *[1] * np.ndim(row))) for name, row in arrays.items()}
    measured = {"measured_copies": np.array([7, copies]), "measured_error": np.array([1e-14, 1e-13]), "shown": 0}
    return record_with(attention.Config(varied, (0.0,), key_size=8), {"grid": GRID, **rows, **measured})


def norms(bulk, top, kappa, bound, copies=7):
    return heads("query and key", copies=copies, bulk=bulk, sharpness=top, condition=kappa, condition_bound=bound)


def sunk(bulk, top, kappa, moments):
    return heads("sink", bulk=bulk, sharpness=top, condition=kappa, moments=moments)


UP, DOWN, FLAT = 2.0**GRID, 0.2**GRID, np.ones(5)
MOMENTS = np.stack([UP, DOWN, DOWN], 1)


def vectors(bulk, outliers):
    rows = {"bulk": np.tile(bulk[:, None], (2, 1, 3)), "outliers": np.tile(outliers[:, None], (2, 1, 4))}
    return record_with(attention_sinks.Config(), {"biases": GRID, **rows})


def trained_heads(agree):
    """Sharpness that rises to 2/η = 1 and hovers there, or one that gets there and does nothing of what is said."""
    t, before = np.arange(400), 40
    late, sign = np.clip(t - before, 0, None), np.where(t % 2 == 0, 1.0, -1.0)
    fade = np.exp(-late / 50)
    if agree:
        rise = np.clip(t / before, 0, 1)
        sharpness = np.where(t < before, 0.1 + 0.88 * rise, 1 + 0.1 * sign * fade)
        trace = np.where(t < before, rise, 1 - 0.1 * sign * fade)
        losses = np.where(t < before, 1.0, 0.5 * fade * (1 + 0.2 * sign))
        residual, grows = fade, rise + 0.01 * t
    else:
        sharpness = np.where(t < before, 0.9 - t / 100 + 0.01 * sign, 2 + 0.001 * late * sign)
        trace = np.where(t < before, t, 2 + 0.001 * late * sign)
        losses, residual, grows = np.ones(400), fade, -t
    series = dict.fromkeys(edge_of_stability.NORMS, grows) | {"losses": losses, "sharpness": sharpness, "trace": trace}
    return tiled(series | {"residual": residual}, inside=agree)


def tiled(series, inside=True):
    """One series for thirty draws at one rate."""
    rows = {name: np.tile(row, (1, 30, 1)).astype(float) for name, row in series.items()}
    return rows | {"inside_bounds": np.full((1, 30, 4), float(inside))}


def edge_record(*readings):
    """The record of as many readings as series are given, at η = 2."""
    names = tuple(one.value for one in attention_descent.SOURCES)[: len(readings)]
    config = attention_edge.Config(learning_rate=2.0, factors=(1.0,), readings=names, num_draws=30)
    kept = [attention_edge.summary(series, np.array([2.0]), 2.0) for series in readings]
    stacked = {name: np.stack([one[name] for one in kept]) for name in kept[0]}
    return record_with(config, {"rates": np.array([2.0]), **stacked})


def sinking(top, near_zero, first=0.32, missed=0.0):
    """A record with one row of ends of the spectrum for each seed, without and with a sink; all missed by so much.

    Without a sink 99 eigenvalues in 100 are zero; with it, the share that is given.
    """
    nodes = np.tile(np.array([0.0, 5.0]), (len(top), 2, 1, 1))
    weights = np.tile(np.array([[[0.99, 0.01]], [[near_zero, 1 - near_zero]]]), (len(top), 1, 1, 1))
    arrays = {"top": np.array(top, dtype=float), "nodes": nodes, "weights": weights}
    arrays["top_residuals"] = np.full_like(arrays["top"], missed)
    config = gpt_sinks.Config(weights="given", seeds=tuple(range(len(top))))
    return record_with(config, {**arrays, "attention": np.array([[first, 0.81]] * len(top))})


def errors(attention_errors, twin_errors):
    return np.array([[attention_errors] * 2, [twin_errors] * 2])


def pretrained(error, *, residual=None, difference=None, sizes=(100, 100), missed=0.0):
    """A record of both models whose relative errors are given: models × seeds × checkpoints.

    The eigenvalues are missed by so much, relative to them; ‖H - G‖ is the residual unless given.
    """
    error = np.asarray(error, dtype=float)
    residual = np.broadcast_to(np.linspace(1.0, 0.1, error.shape[-1]), error.shape) if residual is None else residual
    arrays = {"residual": residual, "batch_loss": 3 * residual, "hessian": np.ones_like(error)}
    arrays |= {"gauss_newton": 1 - error, "steps": np.arange(error.shape[-1])}
    arrays |= {f"{name}_residual": missed * np.abs(arrays[name]) for name in ("hessian", "gauss_newton")}
    arrays["converged"] = np.full_like(error, float(missed < 1e-3))
    arrays["difference"] = residual if difference is None else np.broadcast_to(difference, error.shape)
    config = replace(pretraining.TINY, seeds=tuple(range(error.shape[1])))
    return record_with(config, {**arrays, "num_parameters": list(sizes)})


def climbing(**changed):
    return {name: np.linspace(0.1, 2.0, 400) for name in attention_descent.SERIES} | changed


def tiny_gpt(seed=0, **changed):
    """A GPT of some hundred weights."""
    config = pretraining.architecture(replace(pretraining.TINY, **changed), attention=True)
    return gpt_model(config, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
