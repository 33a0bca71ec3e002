"""A training run on its way to the edge of stability and at it, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import pearsonr, spearmanr

WINDOW = 10  # steps over which an oscillation's amplitude is taken
SETTLED = 1e-9  # relative amplitude below which nothing but rounding oscillates
GROWING = ("value", "query", "key", "m1", "m2", "m3")  # what is said to grow on the way
MEASURES = ("rising", "level", "crossings", "loss_ratio", "rising_losses", "trace_follows", "phase", "damping")


def measures(series: Mapping[str, np.ndarray], edge: float) -> dict[str, float]:
    """All of MEASURES and the growth of GROWING, of one head; NaN if it never reaches the edge 2/η, or diverged."""
    run = _cut(series, edge)
    names = [*MEASURES, *(f"growth_{name}" for name in GROWING)]
    if run is None:
        return dict.fromkeys(["reached", *names], float("nan")) | {"reached": 0.0}
    values = [getattr(run, name)() for name in MEASURES] + [run.growth(name) for name in GROWING]
    return {"reached": 1.0, **dict(zip(names, values, strict=True))}


def first_at_edge(sharpness: np.ndarray, edge: float) -> int | None:
    """The first step at which the sharpness is 2/η or more."""
    there = np.flatnonzero(sharpness >= edge)
    return int(there[0]) if len(there) else None


@dataclass(frozen=True)
class Run:
    """One trained head, cut where its sharpness first reaches 2/η."""

    before: dict[str, np.ndarray]  # progressive sharpening, the first step at the edge included
    after: dict[str, np.ndarray]  # the edge of stability
    edge: float

    def rising(self) -> float:
        """The fraction of steps before the edge at which the sharpness rises."""
        return float(np.mean(np.diff(self.before["sharpness"]) > 0))

    def level(self) -> float:
        """The median of η λ_max/2 from the edge on."""
        return float(np.median(self.after["sharpness"])) / self.edge

    def crossings(self) -> float:
        """How often the sharpness crosses 2/η."""
        return float(np.count_nonzero(np.diff(self.after["sharpness"] >= self.edge)))

    def loss_ratio(self) -> float:
        """The mean loss of the last steps over that of the first ones at the edge."""
        return float(self.after["losses"][-WINDOW:].mean() / self.after["losses"][:WINDOW].mean())

    def rising_losses(self) -> float:
        """The fraction of steps at the edge of stability, while it oscillates, at which the loss rises."""
        return float(np.mean(np.diff(self._unsettled("losses")) > 0))

    def growth(self, name: str) -> float:
        """Rank correlation of a quantity with the step number, before the edge."""
        return _spearman(np.arange(len(self.before[name])), self.before[name])

    def trace_follows(self) -> float:
        """Rank correlation of trace and sharpness before the edge."""
        return _spearman(self.before["trace"], self.before["sharpness"])

    def phase(self) -> float:
        """Correlation of the steps of sharpness and trace while they oscillate: -1 in opposite phases, 1 in step."""
        steps = [np.diff(self._unsettled(name)) for name in ("sharpness", "trace")]
        oscillate = all(len(step) > 2 and np.ptp(step) > SETTLED * np.abs(step).max() for step in steps)
        return float(pearsonr(*steps).statistic) if oscillate else float("nan")

    def damping(self) -> float:
        """Rank correlation of the oscillation's amplitude and the norm of the residual, window by window."""
        amplitude, residual = (
            np.array([reduce(piece) for piece in _windows(self._unsettled(name))])
            for name, reduce in (("sharpness", np.ptp), ("residual", np.mean))
        )
        return _spearman(amplitude, residual) if len(amplitude) > 2 else float("nan")

    def _unsettled(self, name: str) -> np.ndarray:
        """The part after the edge in which the sharpness still moves by more than rounding."""
        moving = np.flatnonzero(np.abs(np.diff(self.after["sharpness"])) > SETTLED * self.edge)
        return self.after[name][: int(moving[-1]) + 2] if len(moving) else self.after[name][:1]


def _cut(series: Mapping[str, np.ndarray], edge: float) -> Run | None:
    at = first_at_edge(series["sharpness"], edge)
    if at is None or at < 2 or len(series["sharpness"]) - at < 2 * WINDOW or not np.isfinite(series["losses"]).all():
        return None
    return Run({k: v[: at + 1] for k, v in series.items()}, {k: v[at:] for k, v in series.items()}, edge)


def _windows(values: np.ndarray) -> Iterator[np.ndarray]:
    yield from (values[start : start + WINDOW] for start in range(0, len(values) - WINDOW + 1, WINDOW))


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(spearmanr(x, y).statistic) if np.ptp(x) and np.ptp(y) else float("nan")
