"""The sharpness of a GPT and of its twin along training: by the Hessian, by the Gauss-Newton matrix, and ‖H - G‖."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from ...lab.models import GPT, parameter_count
from ...lab.training import Series
from ...operators import Operator, functional_hessian, gauss_newton, hessian
from ...record import discard
from ...risk import Risk
from ...risk.losses import CrossEntropy
from ...solvers import eigenpairs
from ...spectrum import Eigenpairs
from ..frame.figure import Context
from .pretraining import Config, checkpoints, pretrain, sequences, token_stream

MODELS = ("with attention", "without attention")
QUANTITIES = (
    "batch_loss",
    "residual",
    "hessian",
    "gauss_newton",
    "hessian_residual",
    "gauss_newton_residual",
    "difference",
    "converged",
)
ROUGHLY = 1e-2  # tolerance of ‖H - G‖, of which only the size matters


@dataclass(frozen=True)
class TrainingRun:
    """One training run: a task of a sweep."""

    config: Config
    attention: bool
    seed: int


def run(config: Config, context: Context) -> dict[str, Any]:
    """Train both models from each seed and measure along the way: arrays of models × seeds × checkpoints."""
    token_stream(config, context.data_dir)  # fails now, and not after hours, if a file is missing
    tasks = [TrainingRun(config, attention, seed) for attention in (True, False) for seed in config.seeds]
    task = partial(trajectory, device=context.device, data_dir=context.data_dir, folder=context.folder)
    records = context.sweep(task, tasks)
    shape = (len(MODELS), len(config.seeds), -1)
    result = {name: np.stack([record.arrays[name] for record in records]).reshape(shape) for name in QUANTITIES}
    sizes = [records[0].scalars["num_parameters"], records[-1].scalars["num_parameters"]]
    return {"steps": np.array(checkpoints(config)), **result, "num_parameters": sizes}


def trajectory(
    task: TrainingRun, *, device: torch.device, data_dir: Path | None, folder: Path | None
) -> dict[str, Any]:
    """One run: loss, residual and both sharpnesses at each checkpoint; NaN from where it diverged."""
    config, name, at = task.config, MODELS[0 if task.attention else 1], checkpoints(task.config)
    stream = token_stream(config, data_dir)
    file = None if folder is None else folder / f"{name.replace(' ', '-')}-{task.seed}.npz"
    model, pauses = pretrain(config, stream, attention=task.attention, seed=task.seed, device=device, file=file)

    def values(step: int) -> dict[str, float]:
        generator = torch.Generator().manual_seed(10**6 * (task.seed + 1) + step)
        rows = sequences(stream, config.num_sequences, config.context, generator, vocabulary=config.vocabulary)
        return measurements(model, rows.to(device), tolerance=config.tolerance, basis_size=config.basis_size)

    first = values(0)
    for pause in pauses:
        if pause.step in at:
            pause.note(**values(pause.step))
    nothing = Series(np.empty(0), np.empty(0))  # NaN for a run that diverged before the next checkpoint
    history = pause.history
    result = {entry: np.array([first[entry], *history.get(entry, nothing).at(at[1:])]) for entry in QUANTITIES}
    if file is not None:
        discard(file)
    return {**result, "num_parameters": parameter_count(model)}


def measurements(model: GPT, rows: Int[Tensor, "b m"], *, tolerance: float, basis_size: int) -> dict[str, float]:
    """The largest eigenvalues of H and G with their residuals, ‖H - G‖, the loss, and the mean of ‖∂ℓ/∂z‖."""
    x, y = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        return dict.fromkeys(QUANTITIES, float("nan"))  # diverged
    risk = Risk(model, CrossEntropy(), (x, y))
    H = pairs_of(hessian(risk), 1, tolerance=tolerance, basis_size=basis_size)
    G = pairs_of(gauss_newton(risk), 1, tolerance=tolerance, basis_size=basis_size)
    E = pairs_of(functional_hessian(risk), 1, tolerance=ROUGHLY, basis_size=basis_size, which="magnitude")
    return {
        "batch_loss": risk.loss_value(),
        "residual": residual_norm(model, x, y),
        "hessian": float(H.values[0]),
        "gauss_newton": float(G.values[0]),
        "hessian_residual": float(H.residuals[0]),
        "gauss_newton_residual": float(G.residuals[0]),
        "difference": float(E.values[0].abs()),
        "converged": float(H.converged[0] and G.converged[0]),
    }


def pairs_of(A: Operator, k: int, **search: Any) -> Eigenpairs:
    """The requested eigenpairs; on a GPU, found in TF32 and certified in float32."""
    return eigenpairs(A, k, precision="own" if A.rough is None else "mixed", **search)


@torch.no_grad()
def residual_norm(model: nn.Module, x: Int[Tensor, "b n"], y: Int[Tensor, "b n"]) -> float:
    """The mean of ‖softmax(z) - e_y‖ over all tokens: z the logits, e_y the one-hot target. D.1.5."""
    p = torch.cat([model(row[None]).softmax(-1)[0] for row in x])
    p[torch.arange(len(p), device=p.device), y.flatten()] -= 1
    return float(p.norm(dim=-1).double().mean())
