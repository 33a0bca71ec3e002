"""Gradient descent of many heads of self-attention at once, with the whole Hessian of each at every step.

The paper gives neither the sequences of Fig. 27 nor the scale of its loss, so that there are several readings of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...lab import ensemble
from ...risk.losses import SquaredError
from ...theory import attention_bounds, attention_moments
from ..frame.readings import Reading
from .edge_of_stability import NORMS, blown_up

WEIGHTS = ("w_q", "w_k", "w_v")
SERIES = ("losses", "sharpness", "trace", "residual", *NORMS)


@dataclass(frozen=True)
class Sequences:
    """A reading of "the sequences" and "the MSE", which the paper does not define."""

    label: str
    count: int  # of sequences
    size: float | None  # of the sequence (size, -size); None for Gaussian ones, drawn anew for each draw
    loss: SquaredError

    @property
    def scale(self) -> float:
        """The factor between the loss and ½(f - y)² averaged over all positions."""
        return 2.0 if self.loss.elementwise else 1.0


_INPUTS: dict[str, tuple[str, int, float | None]] = {
    "signs": ("x = (1, -1)", 1, 1.0),  # what two numbers are once they have mean 0 and variance 1
    "standardised": ("x = (1, -1)/√2", 1, 2**-0.5),  # the same by torch.std, which divides by n - 1
    "gaussian": ("1 Gaussian sequence", 1, None),
    "gaussians": ("10 Gaussian sequences", 10, None),
}
READINGS = {
    f"{name}-{short}": Sequences(f"{inputs}, {words}", count, size, loss)
    for name, (inputs, count, size) in _INPUTS.items()
    for short, words, loss in (("half", "½MSE", SquaredError()), ("mse", "MSELoss", SquaredError(elementwise=True)))
}
_SINGLE = (
    "Sec. 3.3, to which D.2 refers: “x is a single sequence”; its numbers are open, and the loss has Sec. 3's 1/2n"
)
_SOURCES = {  # of the readings that are run; the first one leads
    "gaussian-half": _SINGLE,
    "gaussians-half": "D.1.1: “batch size and sequence length equal to 10”, there for Fig. 2",
    "signs-half": "open: what two numbers are once they are standardised",
    "standardised-mse": "not printed: found by trying all at η = 2.3, the one that shows what the paper describes",
}
SOURCES = tuple(Reading("readings", name, READINGS[name].label, source) for name, source in _SOURCES.items())


def descent(
    heads: ensemble.Ensemble,
    x: Float[Tensor, "B b n"],
    y: Float[Tensor, "B b n 1"],
    reading: Sequences,
    *,
    rates: Float[Tensor, " B"],
    num_steps: int,
    checkpoint: Path | None,
) -> dict[str, Float[np.ndarray, "B _"]]:
    """The SERIES of each head before the first and after every step, and whether λ_max is within its bounds."""
    first, inside = observables(heads, x, y, reading.loss), within_bounds(heads, x, y, reading)
    pauses = ensemble.train(
        heads,
        reading.loss,
        (x, y),
        learning_rate=rates,
        num_epochs=num_steps,
        each=True,
        checkpoint=checkpoint,
    )
    for pause in pauses:
        pause.note(**observables(heads, x, y, reading.loss))
        if pause.epoch in checked_steps(num_steps):
            pause.note(inside=within_bounds(heads, x, y, reading))
    history, steps = pause.history, range(1, num_steps + 1)
    later = {name: history[name].at(steps) for name in SERIES}  # NaN from where every head has diverged
    series = {name: np.vstack([first[name].cpu().numpy(), later[name]]).T for name in SERIES}
    held = np.vstack([inside, history["inside"].at(checked_steps(num_steps))]).T
    return {**series, "inside_bounds": np.where(divergence(series["losses"], num_steps), np.nan, held)}


def observables(
    networks: ensemble.Ensemble, x: Tensor, y: Tensor, loss: SquaredError
) -> dict[str, Float[Tensor, " B"]]:
    """The quantities that the figure shows for each head; norms run over all positions of all sequences."""
    H = ensemble.hessians(networks, loss, (x, y), each=True)
    sound = H.isfinite().all(-1).all(-1)
    values = torch.linalg.eigvalsh(torch.where(sound[:, None, None], H, 0.0))
    w_q, w_k, w_v = (networks.parameters[name] for name in WEIGHTS)
    s = (w_q * w_k).sum((1, 2)) / w_q.shape[-1] ** 0.5
    A = (s[:, None, None, None] * x[..., :, None] * x[..., None, :]).softmax(-1)
    m1, m2, m3 = attention_moments(A, x)
    return {
        "losses": ensemble.losses(networks, loss, (x, y), each=True),
        "sharpness": torch.where(sound, values[:, -1], torch.nan),
        "trace": H.diagonal(dim1=1, dim2=2).sum(1),
        "residual": (networks.outputs(x, each=True) - y).flatten(1).norm(dim=1),
        **{name: w.flatten(1).norm(dim=1) for name, w in (("value", w_v), ("query", w_q), ("key", w_k))},
        **{name: m.flatten(1).norm(dim=1) for name, m in (("m1", m1), ("m2", m2), ("m3", m3))},
    }


def checked_steps(num_steps: int) -> list[int]:
    """The steps after which the bounds are checked: the first, the last, and powers of ten between them."""
    return [step for step in (1, 10, 100, 1000, 10_000) if step < num_steps] + [num_steps]


def divergence(losses: np.ndarray, num_steps: int) -> np.ndarray:
    """Whether each head has diverged at or before each of the checked steps."""
    lost = np.maximum.accumulate(blown_up(losses), axis=-1)
    return lost[..., [0, *checked_steps(num_steps)]]


def within_bounds(networks: ensemble.Ensemble, x: Tensor, y: Tensor, reading: Sequences) -> Float[np.ndarray, " B"]:
    """Whether tr/3 + ξ/2 ≤ λ_max ≤ tr/3 + ξ up to rounding, for each head; NaN for a head that is NaN."""
    result = list[float]()
    for i, top in enumerate(ensemble.sharpness(networks, reading.loss, (x, y), each=True).values[:, 0].tolist()):
        if not np.isfinite(top):
            result.append(float("nan"))
            continue
        w_q, w_k, w_v = (networks.parameters[name][i].cpu() for name in WEIGHTS)
        bounds = attention_bounds(w_v[0, 0], w_q[0], w_k[0], x[i].cpu(), y[i, ..., 0].cpu())
        low, high = (reading.scale * bound for bound in bounds.largest_outlier)
        result.append(float(low - 1e-9 * abs(high) <= top <= high + 1e-9 * abs(high)))
    return np.array(result)
