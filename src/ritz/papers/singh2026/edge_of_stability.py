"""Measures of a training run on its way to the edge of stability and at the edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..frame.statistics import spearman

WINDOW = 10  # steps over which an oscillation's amplitude is taken
SETTLED = 1e-9  # relative amplitude below which nothing but rounding oscillates
STEADY = 1e-6  # relative difference below which an amplitude is that of the last window
BLOWN_UP = 1e3  # a loss so many times its first value has diverged
NORMS = {"value": "|w_V|", "query": "‖w_Q‖", "key": "‖w_K‖", "m1": "‖m₁‖", "m2": "‖m₂‖", "m3": "‖m₃‖"}
FATE = ("first_step", "started_above", "diverged", "final_loss", "reached")
BEFORE = ("trace_follows", *(f"growth_{name}" for name in ("sharpness", *NORMS)))


def measures(series: Mapping[str, np.ndarray], edge: float) -> dict[str, float]:
    """All measures in FATE, BEFORE and AFTER for one head.

    Those in BEFORE are NaN unless the head reaches the edge 2/η after two steps or more, those in AFTER unless enough
    steps are left then. A head that starts above the edge, or diverges, is recorded as such, and does not count as
    reaching it.
    """
    result = dict.fromkeys((*BEFORE, *AFTER), float("nan")) | _fate(series, edge)
    if not result["reached"]:
        return result
    at = int(result["first_step"])
    if at >= 2:
        rise = Rise({name: values[: at + 1] for name, values in series.items()})
        result |= {"trace_follows": rise.trace_follows()}
        result |= {f"growth_{name}": rise.growth(name) for name in ("sharpness", *NORMS)}
    if len(series["sharpness"]) - at >= 2 * WINDOW:
        stay = Stay({name: values[at:] for name, values in series.items()}, edge)
        result |= {name: measure(stay) for name, measure in AFTER.items()}
    return result


def first_at_edge(sharpness: np.ndarray, edge: float) -> int | None:
    """The first step at which the sharpness is 2/η or more."""
    there = np.flatnonzero(sharpness >= edge)
    return int(there[0]) if len(there) else None


def blown_up(losses: np.ndarray) -> np.ndarray:
    """At which steps, along the last axis, the loss is NaN or a thousand times its first value."""
    with np.errstate(invalid="ignore"):
        return ~np.isfinite(losses) | (losses > BLOWN_UP * losses[..., :1])


def _fate(series: Mapping[str, np.ndarray], edge: float) -> dict[str, float]:
    at, diverged = first_at_edge(series["sharpness"], edge), bool(blown_up(series["losses"]).any())
    return {
        "first_step": float("nan") if at is None else float(at),
        "started_above": float(at == 0),
        "diverged": float(diverged),
        "final_loss": float(series["losses"][-1]),
        "reached": float(at is not None and at > 0 and not diverged),
    }


@dataclass(frozen=True)
class Rise:
    """Progressive sharpening: one head up to and including the first step at the edge."""

    series: dict[str, np.ndarray]

    def trace_follows(self) -> float:
        """Rank correlation of trace and sharpness."""
        return spearman(self.series["trace"], self.series["sharpness"])

    def growth(self, name: str) -> float:
        """Rank correlation of a quantity with the step number."""
        return spearman(np.arange(len(self.series[name])), self.series[name])


@dataclass(frozen=True)
class Stay:
    """The edge of stability: one head from the first step at 2/η on."""

    series: dict[str, np.ndarray]
    edge: float

    def level(self) -> float:
        """The mean of η λ_max/2, over an even number of steps: a cycle of two has no middle value."""
        sharpness = self.series["sharpness"]
        return float(np.mean(sharpness[: len(sharpness) // 2 * 2])) / self.edge

    def crossings(self) -> float:
        """How often the sharpness crosses 2/η."""
        return float(np.count_nonzero(np.diff(self.series["sharpness"] >= self.edge)))

    def loss_ratio(self) -> float:
        """The mean loss over the last steps, relative to that over the first steps at the edge."""
        return float(self.series["losses"][-WINDOW:].mean() / self.series["losses"][:WINDOW].mean())

    def rising_losses(self) -> float:
        """The fraction of steps, while the sharpness oscillates, at which the loss rises."""
        rises = np.diff(self._unsettled("losses")) > 0
        return float(rises.mean()) if len(rises) else 0.0

    def phase(self) -> float:
        """Correlation of the changes of sharpness and trace while they oscillate: -1 in opposite phases, 1 in step."""
        steps = [np.diff(self._unsettled(name)) for name in ("sharpness", "trace")]
        oscillate = all(len(step) > 2 and np.ptp(step) > SETTLED * np.abs(step).max() for step in steps)
        return float(np.corrcoef(steps[0], steps[1])[0, 1]) if oscillate else float("nan")

    def shrinking(self) -> float:
        """The oscillation's amplitude in the last window at the edge over that in the first."""
        first, *_, last = map(np.ptp, _windows(self.series["sharpness"]))
        return float(last / first) if first > SETTLED * self.edge else float("nan")

    def damping(self) -> float:
        """How surely the amplitude falls with the residual: the smaller of ρ(amplitude, ‖δ‖) and -ρ(t, amplitude).

        Both are taken over windows. Windows that already have the amplitude of the last one are left out, since they
        would only add the order of rounding errors; if hardly any is left, the amplitude does not fall, and the result
        is 0.
        """
        amplitude, residual = (
            np.array([reduce(piece) for piece in _windows(self._unsettled(name))])
            for name, reduce in (("sharpness", np.ptp), ("residual", np.mean))
        )
        if len(amplitude) < 3:
            return float("nan")
        moving = np.abs(amplitude - amplitude[-1]) > STEADY * amplitude[-1]
        moving[-1] = True
        if moving.sum() < 3:
            return 0.0
        amplitude, residual = amplitude[moving], residual[moving]
        return min(spearman(amplitude, residual), -spearman(np.arange(len(amplitude)), amplitude))

    def _unsettled(self, name: str) -> np.ndarray:
        """The steps at which the sharpness still moves by more than rounding."""
        moving = np.flatnonzero(np.abs(np.diff(self.series["sharpness"])) > SETTLED * self.edge)
        return self.series[name][: int(moving[-1]) + 2] if len(moving) else self.series[name][:1]


AFTER: dict[str, Callable[[Stay], float]] = {
    "level": Stay.level,
    "crossings": Stay.crossings,
    "loss_ratio": Stay.loss_ratio,
    "rising_losses": Stay.rising_losses,
    "phase": Stay.phase,
    "shrinking": Stay.shrinking,
    "damping": Stay.damping,
}


def _windows(values: np.ndarray) -> Iterator[np.ndarray]:
    yield from (values[start : start + WINDOW] for start in range(0, len(values) - WINDOW + 1, WINDOW))
