"""Figure 27 read in several ways: what the paper leaves open, and what is judged of each reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...record import Claim, Record, Verdict
from ...risk.losses import SquaredError
from ..frame.claims import Each, Rule, at_least, at_most, within
from . import claim
from .edge import NORMS


@dataclass(frozen=True)
class Reading:
    """What is meant by the sequences, and by the MSE: the paper gives neither."""

    told: str
    count: int  # of sequences
    size: float | None  # of the sequence (size, -size); None for Gaussian ones, drawn anew for each draw
    loss: SquaredError

    @property
    def scale(self) -> float:
        """The loss over ½(f - y)², averaged over all positions."""
        return 2.0 if self.loss.elementwise else 1.0


_INPUTS: dict[str, tuple[str, int, float | None]] = {
    "signs": ("x = (1, -1)", 1, 1.0),  # what two numbers are once they have mean 0 and variance 1
    "standardised": ("x = (1, -1)/√2", 1, 2**-0.5),  # the same by torch.std, which divides by n - 1
    "gaussian": ("1 Gaussian sequence", 1, None),
    "gaussians": ("10 Gaussian sequences", 10, None),
}
READINGS = {
    f"{name}-{short}": Reading(f"{told}, {words}", count, size, loss)
    for name, (told, count, size) in _INPUTS.items()
    for short, words, loss in (("half", "½MSE", SquaredError()), ("mse", "MSELoss", SquaredError(elementwise=True)))
}


FOUND = "standardised-mse"  # by trying all of them at η = 2.3: the one that shows what the paper describes


@dataclass(frozen=True)
class Among(Each):
    """A verdict on the readings that have a number; one in words says why it has none. No where there is no number."""

    def __call__(self, measured: Any) -> Verdict:
        """The verdict, from the measured numbers alone."""
        return super().__call__(_numbers(measured))

    def against(self, measured: Mapping[str, Any]) -> list[str]:
        """The names of those that have a number and do not say yes."""
        return super().against(_numbers(measured))

    def __str__(self) -> str:
        return f"each that has a number: {self.rule}; partly if they differ"


def _numbers(measured: Mapping[str, Any]) -> dict[str, float]:
    """Without what is said in words."""
    return {name: value for name, value in measured.items() if not isinstance(value, str)}


@dataclass(frozen=True)
class Readings:
    """What a record says of every reading, at the learning rate of the paper.

    Of a draw that starts below 2/η can be said whether it reaches it. A reading is asked what happens there if at
    least half of these do: else it would be told by its exceptions.
    """

    record: Record

    @property
    def arrays(self) -> Mapping[str, Any]:
        return self.record.arrays

    @property
    def at(self) -> int:
        """Which of the rates it is."""
        return int(np.abs(np.asarray(self.arrays["rates"]) - self.record.config["learning_rate"]).argmin())

    @property
    def names(self) -> list[str]:
        return [READINGS[name].told for name in self.record.config["readings"]]

    @property
    def below(self) -> np.ndarray:
        """How many draws start below 2/η: readings × rates."""
        return (self.arrays["started_above"] == 0).sum(-1)

    def reached(self) -> dict[str, float]:
        """The fraction of them that reach it."""
        counts, below = self.arrays["reached"][:, self.at].sum(-1), self.below[:, self.at]
        return {name: float(counts[i] / below[i]) if below[i] else 0.0 for i, name in enumerate(self.names)}

    def median(self, *measures: str) -> dict[str, float | str]:
        """Of each measure, over the draws that have it, with their number; in words where these are too few."""
        return dict(self._median(i, measure) for i in range(len(self.names)) for measure in measures)

    def _median(self, i: int, measure: str) -> tuple[str, float | str]:
        values, below = self.arrays[measure][i, self.at], int(self.below[i, self.at])
        known = values[~np.isnan(values)]
        label = NORMS.get(measure.removeprefix("growth_"))
        name = self.names[i] if label is None else f"{self.names[i]}: {label}"
        if not len(known) or 2 * len(known) < below:
            return name, f"{len(known)} of {below} draws"
        return f"{name} ({len(known)} draws)", float(np.median(known))

    def rates(self) -> dict[str, float | str]:
        """The fraction of rates at which a reading shows both phenomena, of those that reach 2/η at the paper's."""
        shows, reached = self.shows(), self.reached()
        few = "too few draws reach 2/η"
        return {name: float(shows[i].mean()) if reached[name] >= 0.5 else few for i, name in enumerate(self.names)}

    def shows(self) -> np.ndarray:
        """Where half of the draws that start below 2/η rise to it and stay within a fifth of it: readings × rates."""
        rising, level = self.arrays["rising"], self.arrays["level"]
        count = ((rising >= 0.8) & (level >= 0.8) & (level <= 1.2)).sum(-1)
        return (count > 0) & (2 * count >= self.below)

    def found(self) -> str:
        """Which reading is one that we found, in words."""
        told = READINGS[FOUND].told
        return f"We found the reading {told} by trying; the paper does not say it." if told in self.names else ""

    def fates(self) -> str:
        """What became of the draws, in words."""
        return " ".join(f"{name}: {self._fate(i)}." for i, name in enumerate(self.names))

    def _fate(self, i: int) -> str:
        above, lost, there = (self.arrays[name][i, self.at] == 1 for name in ("started_above", "diverged", "reached"))
        counts = {
            "reached 2/η": there.sum(),
            "above 2/η from the start": above.sum(),
            "diverged": (lost & ~above).sum(),
            "below 2/η throughout": (~(above | lost | there)).sum(),
        }
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"of {len(above)} draws {told}"

    def claim(
        self,
        statement: str,
        rule: Rule,
        measured: Mapping[str, float | str],
        expected: Any,
        why: str,
        where: str = "App. D.5",
    ) -> Claim:
        """One claim, for each reading that has a number."""
        where = f"{where}, Fig. 27"
        told = why if _numbers(measured) else "In no reading do half of the draws reach 2/η."
        return claim(statement, where=where, rule=Among(rule), measured=measured, expected=expected, why=told)


def claims(record: Record) -> list[Claim]:
    """App. D.5: how many draws reach the edge, and what the median of those that do shows, for each reading."""
    of = Readings(record)
    return [*_reaching(of), *_along_the_way(of), *_around_the_edge(of), *_losing(of), *_damped(of), _bounded(of)]


def _reaching(of: Readings) -> list[Claim]:
    """Whether the edge is reached, and how widely."""
    missing = [
        f"η = {rate:.3g} ({name})"
        for name, row, told in zip(of.names, of.shows(), of.rates().values(), strict=True)
        for rate, shows in zip(of.arrays["rates"], row, strict=True)
        if not shows and not isinstance(told, str)
    ]
    return [
        of.claim(
            "The sharpness reaches 2/η, without diverging (fraction of the draws that start below it).",
            at_least(0.5, partly=0.05), of.reached(), 1.0,
            f"The paper says neither what x is nor how the loss is scaled. {of.fates()} {of.found()}".strip(),
        ),
        of.claim(
            "Both phenomena can be observed for a range of learning rates around 2.3 (fraction of rates).",
            at_least(1.0, partly=0.5), of.rates(), 1.0,
            f"The paper does not give the range; not seen at {', '.join(missing)}.", where="App. D.2",
        ),
    ]  # fmt: skip


def _along_the_way(of: Readings) -> list[Claim]:
    """Progressive sharpening, and what grows with it."""
    return [
        of.claim(
            "The sharpness consistently increases during the initial stages (fraction of steps before 2/η).",
            at_least(0.95, partly=0.8), of.median("rising"), 1.0,
            "It falls at first, while the weights leave the saddle at zero.",
        ),
        of.claim(
            "Progressive sharpening coincides with a growing trace of the Hessian (rank correlation).",
            at_least(0.9, partly=0.7), of.median("trace_follows"), 1.0,
            "Trace and sharpness do not rise together all the way.",
        ),
        of.claim(
            "So do the norms of the parameters grow (rank correlation with the step).",
            at_least(0.9, partly=0.7), of.median("growth_value", "growth_query", "growth_key"), 1.0,
            "Not all of them grow on the way to the edge.",
        ),
        of.claim(
            "So do the norms of the moments of the attention grow (rank correlation with the step).",
            at_least(0.9, partly=0.7), of.median("growth_m1", "growth_m2", "growth_m3"), 1.0,
            "A central moment falls on the way where the attention concentrates on one of the two numbers.",
        ),
    ]  # fmt: skip


def _around_the_edge(of: Readings) -> list[Claim]:
    """What sharpness and trace do once the edge is reached."""
    return [
        of.claim(
            "Having reached 2/η, the sharpness stays around it (mean of η λ_max/2).",
            within(0.95, 1.05, partly=(0.8, 1.2)), of.median("level"), 1.0, "It leaves the edge.",
        ),
        of.claim(
            "The sharpness oscillates around 2/η (crossings).", at_least(4, partly=2), of.median("crossings"), "many",
            "It crosses the threshold and does not come back often.",
        ),
        of.claim(
            "At the edge of stability sharpness and trace oscillate in completely opposite phases (correlation).",
            at_most(-0.9, partly=-0.5), of.median("phase"), -1.0,
            "They are in step, or have no fixed phase.",
        ),
    ]  # fmt: skip


def _losing(of: Readings) -> list[Claim]:
    """What the loss does there."""
    return [
        of.claim(
            "At the edge of stability the loss goes on decreasing over long times (last over first ten steps there).",
            at_most(0.1, partly=0.5), of.median("loss_ratio"), "decreases",
            "The loss stays about where it was when the edge was reached, as on a cycle of two steps.",
        ),
        of.claim(
            "It does so despite local non-monotonic behaviour (fraction of steps at which the loss rises).",
            at_least(0.1, partly=0.01), of.median("rising_losses"), "above 0",
            "The loss falls at nearly every step.",
        ),
    ]  # fmt: skip


def _damped(of: Readings) -> list[Claim]:
    """What becomes of the oscillation."""
    return [
        of.claim(
            "The amplitude of the oscillations decreases (last over first ten steps at the edge).",
            at_most(0.1, partly=0.5), of.median("shrinking"), "decreases",
            "The oscillation goes on, as on a cycle of two steps.",
        ),
        of.claim(
            "It decreases like the norm of the residual (rank correlation; of amplitude and time, if that is less).",
            at_least(0.9, partly=0.7), of.median("damping"), 1.0,
            "The residual and the amplitude do not both fall.",
        ),
    ]  # fmt: skip


def _bounded(of: Readings) -> Claim:
    """Whether the bounds hold, wherever a head is."""
    inside = of.arrays["inside_bounds"]
    known = {name: inside[i][~np.isnan(inside[i])] for i, name in enumerate(of.names)}
    measured: dict[str, float | str] = {
        name: float(values.mean()) if len(values) else "all diverged" for name, values in known.items()
    }
    return of.claim(
        "The largest eigenvalue is between tr/3 + ξ/2 and tr/3 + ξ (fraction of heads, before, in and after training).",
        at_least(1.0, partly=0.9), measured, 1.0,
        "Where ζ < 0 the bulk ±γ may be on top, of which the remark does not speak.", where="Remark B.4",
    )  # fmt: skip
