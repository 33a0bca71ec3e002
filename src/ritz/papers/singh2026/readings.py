"""Figure 27 read in several ways: what the paper leaves open, and what is judged of each reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...record import Record, Verdict
from ...risk.losses import SquaredError
from ..frame.claims import Each, Rule, Statement, at_least, at_most, within
from .edge import NORMS
from .paper import says


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


# A draw that starts below 2/η either reaches it or does not. A reading is asked what happens there if at least half of
# these do: else it would be judged by its exceptions.


def paper_rate(record: Record) -> int:
    """Which of the learning rates is that of the paper."""
    return int(np.abs(np.asarray(record.arrays["rates"]) - record.config["learning_rate"]).argmin())


def labels(record: Record) -> list[str]:
    """The readings in words."""
    return [READINGS[name].told for name in record.config["readings"]]


def below(record: Record) -> np.ndarray:
    """How many draws start below 2/η: readings × rates."""
    return np.asarray((record.arrays["started_above"] == 0).sum(-1))


def shares_reached(record: Record) -> dict[str, float]:
    """The fraction of them that reach it."""
    at = paper_rate(record)
    counts, starts = record.arrays["reached"][:, at].sum(-1), below(record)[:, at]
    return {name: float(counts[i] / starts[i]) if starts[i] else 0.0 for i, name in enumerate(labels(record))}


def medians(*measures: str) -> Callable[[Record], dict[str, float | str]]:
    """Of each measure, over the draws that have it, with their number; in words where these are too few."""
    return lambda record: dict(
        _median(record, i, measure) for i in range(len(labels(record))) for measure in measures
    )  # fmt: skip


def _median(record: Record, i: int, measure: str) -> tuple[str, float | str]:
    at = paper_rate(record)
    values, starts = record.arrays[measure][i, at], int(below(record)[i, at])
    numbers, norm = values[~np.isnan(values)], NORMS.get(measure.removeprefix("growth_"))
    name = labels(record)[i] if norm is None else f"{labels(record)[i]}: {norm}"
    if not len(numbers) or 2 * len(numbers) < starts:
        return name, f"{len(numbers)} of {starts} draws"
    return f"{name} ({len(numbers)} draws)", float(np.median(numbers))


def both_phenomena(record: Record) -> np.ndarray:
    """Where half of the draws that start below 2/η rise to it and stay within a fifth of it: readings × rates."""
    rising, level = record.arrays["rising"], record.arrays["level"]
    count = ((rising >= 0.8) & (level >= 0.8) & (level <= 1.2)).sum(-1)
    return np.asarray((count > 0) & (2 * count >= below(record)))


def shares_of_rates(record: Record) -> dict[str, float | str]:
    """The fraction of rates at which a reading shows both phenomena, of those that reach 2/η at the paper's."""
    few = "too few draws reach 2/η"
    rows = zip(shares_reached(record).items(), both_phenomena(record), strict=True)
    return {name: float(row.mean()) if share >= 0.5 else few for (name, share), row in rows}


def shares_within_bounds(record: Record) -> dict[str, float | str]:
    """The fraction of heads within the bounds, wherever they are."""
    inside = record.arrays["inside_bounds"]
    numbers = {name: inside[i][~np.isnan(inside[i])] for i, name in enumerate(labels(record))}
    return {name: float(values.mean()) if len(values) else "all diverged" for name, values in numbers.items()}


def why_not_reached(record: Record) -> str:
    """What became of the draws, in words, and which reading is ours."""
    fates = " ".join(f"{name}: {_fate(record, i)}." for i, name in enumerate(labels(record)))
    tried = READINGS[FOUND].told
    ours = f"We found the reading {tried} by trying; the paper does not say it." if tried in labels(record) else ""
    return f"The paper says neither what x is nor how the loss is scaled. {fates} {ours}".strip()


def _fate(record: Record, i: int) -> str:
    at = paper_rate(record)
    above, lost, there = (record.arrays[name][i, at] == 1 for name in ("started_above", "diverged", "reached"))
    counts = {
        "reached 2/η": there.sum(),
        "above 2/η from the start": above.sum(),
        "diverged": (lost & ~above).sum(),
        "below 2/η throughout": (~(above | lost | there)).sum(),
    }
    return f"of {len(above)} draws {', '.join(f'{count} {what}' for what, count in counts.items() if count)}"


def why_not_at_all_rates(record: Record) -> str:
    """At which rates a reading that is asked does not show both phenomena."""
    missing = [
        f"η = {rate:.3g} ({name})"
        for (name, share), row in zip(shares_of_rates(record).items(), both_phenomena(record), strict=True)
        for rate, both in zip(record.arrays["rates"], row, strict=True)
        if not both and not isinstance(share, str)
    ]
    return f"The paper does not give the range; not seen at {', '.join(missing)}."


def of_each_reading(
    statement: str,
    rule: Rule,
    measured: Callable[[Record], Mapping[str, float | str]],
    expected: Any,
    why: str | Callable[[Record], str],
    where: str = "App. D.5",
) -> Statement:
    """One statement, judged for each reading that has a number."""

    def reason(record: Record) -> str:
        if not _numbers(measured(record)):
            return "In no reading do half of the draws reach 2/η."
        return why(record) if callable(why) else why

    return says(
        statement, where=f"{where}, Fig. 27", measured=measured, rule=Among(rule), expected=expected, why=reason
    )


CLAIMS = (
    of_each_reading(
        "The sharpness reaches 2/η, without diverging (fraction of the draws that start below it).",
        at_least(0.5, partly=0.05), shares_reached, 1.0, why_not_reached,
    ),
    of_each_reading(
        "Both phenomena can be observed for a range of learning rates around 2.3 (fraction of rates).",
        at_least(1.0, partly=0.5), shares_of_rates, 1.0, why_not_at_all_rates, where="App. D.2",
    ),
    # progressive sharpening, and what grows with it
    of_each_reading(
        "The sharpness consistently increases during the initial stages (fraction of steps before 2/η).",
        at_least(0.95, partly=0.8), medians("rising"), 1.0,
        "It falls at first, while the weights leave the saddle at zero.",
    ),
    of_each_reading(
        "Progressive sharpening coincides with a growing trace of the Hessian (rank correlation).",
        at_least(0.9, partly=0.7), medians("trace_follows"), 1.0,
        "Trace and sharpness do not rise together all the way.",
    ),
    of_each_reading(
        "So do the norms of the parameters grow (rank correlation with the step).",
        at_least(0.9, partly=0.7), medians("growth_value", "growth_query", "growth_key"), 1.0,
        "Not all of them grow on the way to the edge.",
    ),
    of_each_reading(
        "So do the norms of the moments of the attention grow (rank correlation with the step).",
        at_least(0.9, partly=0.7), medians("growth_m1", "growth_m2", "growth_m3"), 1.0,
        "A central moment falls on the way where the attention concentrates on one of the two numbers.",
    ),
    # sharpness and trace once the edge is reached
    of_each_reading(
        "Having reached 2/η, the sharpness stays around it (mean of η λ_max/2).",
        within(0.95, 1.05, partly=(0.8, 1.2)), medians("level"), 1.0, "It leaves the edge.",
    ),
    of_each_reading(
        "The sharpness oscillates around 2/η (crossings).", at_least(4, partly=2), medians("crossings"), "many",
        "It crosses the threshold and does not come back often.",
    ),
    of_each_reading(
        "At the edge of stability sharpness and trace oscillate in completely opposite phases (correlation).",
        at_most(-0.9, partly=-0.5), medians("phase"), -1.0,
        "They are in step, or have no fixed phase.",
    ),
    # the loss there
    of_each_reading(
        "At the edge of stability the loss goes on decreasing over long times (last over first ten steps there).",
        at_most(0.1, partly=0.5), medians("loss_ratio"), "decreases",
        "The loss stays about where it was when the edge was reached, as on a cycle of two steps.",
    ),
    of_each_reading(
        "It does so despite local non-monotonic behaviour (fraction of steps at which the loss rises).",
        at_least(0.1, partly=0.01), medians("rising_losses"), "above 0",
        "The loss falls at nearly every step.",
    ),
    # what becomes of the oscillation
    of_each_reading(
        "The amplitude of the oscillations decreases (last over first ten steps at the edge).",
        at_most(0.1, partly=0.5), medians("shrinking"), "decreases",
        "The oscillation goes on, as on a cycle of two steps.",
    ),
    of_each_reading(
        "It decreases like the norm of the residual (rank correlation; of amplitude and time, if that is less).",
        at_least(0.9, partly=0.7), medians("damping"), 1.0,
        "The residual and the amplitude do not both fall.",
    ),
    of_each_reading(
        "The largest eigenvalue is between tr/3 + ξ/2 and tr/3 + ξ (fraction of heads, before, in and after training).",
        at_least(1.0, partly=0.9), shares_within_bounds, 1.0,
        "Where ζ < 0 the bulk ±γ may be on top, of which the remark does not speak.", where="Remark B.4",
    ),
)  # fmt: skip
