"""Rules for Fig. 1 right and Fig. 2, and the statements that several of these figures share.

The rules were fixed before the runs: see docs/decisions.md. A curve "rises" if its rank correlation is at least 0.9,
which allows two neighbours of nine to change places. A formula "predicts" a curve if it is within ten per cent at every
point, about what one sees in a plot, and partly if within thirty. Numbers are those of the median seed; reasons give
the spread over all seeds, computed from the record.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...record import Record
from ..frame.accuracy import eigenvalue_statement, largest_finite
from ..frame.statements import OURS, Statement, at_least, at_most, each, within
from .curves import (
    by_reading,
    distance_of_curves,
    falling_steps,
    interval,
    largest_error,
    num_ended,
    range_of_ranks,
    rank,
    variant_curves,
)  # fmt: skip
from .paper import says
from .setting import titles

RISES = at_least(0.9, partly=0.5)
FALLS = at_most(-0.9, partly=-0.5)
PREDICTED = at_most(0.1, partly=0.3)
SLIGHTLY = at_most(0.25, partly=0.5)  # "slightly different": still nearer to the prediction than to none
MOST = at_least(0.5, partly=0.25)  # "most cases"
BROKEN = at_least(2.0, partly=1 / 0.7)  # a factor: where PREDICTED says no of a larger sharpness, and partly
INCONSISTENT = at_most(0.5, partly=0.9)  # the other side of RISES
NO_LOWER = at_least(-0.5, partly=-0.9)  # the other side of FALLS
INFLUENCED = at_least(2.0, partly=1.2)  # "strongly": by a factor
NONE_AT_ALL = at_most(0.0)
ALWAYS = at_least(1.0, partly=0.9)
SAME = at_most(0.02, partly=0.1)
KEPT = at_most(0.01, partly=0.1)  # of ‖W‖²: what a step of finite size may add to gradient flow
LIKE_RANDOM = within(0.5, 2.0, partly=(0.1, 10.0))  # to a factor of two, or to an order of magnitude


def rises(where: str) -> Statement:
    """The statement that sharpness grows with imbalance."""

    def why(record: Record) -> str:
        of = variant_curves(record).items()
        return f"{range_of_ranks(of)} {falling_steps(of)} {ended_in_words(record)}"

    return says(
        "The sharpness of the learnt solution increases with the largest label proportion α_max (rank correlation, the "
        "median seed).",
        where=where,
        measured=by_reading(rank),
        rule=each(RISES),
        expected=1.0,
        why=why,
    )


def predicts(where: str, why: Callable[[Record], str]) -> Statement:
    """The statement that (14) predicts the sharpness."""
    return says(
        "Equation (14), L α_max^(1 - 1/L), predicts the sharpness of the learnt solution (largest error, relative to "
        "the measured sharpness, the median seed).",
        where=where,
        measured=by_reading(largest_error),
        rule=each(PREDICTED),
        expected=0.0,
        why=why,
    )


def ends_near_the_least_loss(training: str) -> Statement:
    """The statement that training has converged, which the paper's curves presuppose."""
    return says(
        f"{training} ends within a hundredth of the least loss (share of the networks).",
        paper=OURS,
        where="App. C, Training",
        measured=by_reading(lambda curve: float(np.mean(curve["loss"] <= 1.01 * curve["rest"]))),
        rule=each(ALWAYS),
        expected=1.0,
        why=lambda record: distance_of_curves(variant_curves(record).values()),
    )


def robust(where: str) -> Statement:
    """The statement of the abstract about the ablations."""
    return says(
        "The predictions are considerably robust in most cases (share of the networks whose sharpness is within a "
        "quarter of (14)).",
        where=f"Abstract; {where}",
        measured=by_reading(lambda curve: float(np.mean(np.abs(curve["sharpness"] / curve["printed"] - 1) <= 0.25))),
        rule=each(MOST),
        expected="most",
        why=lambda record: f"The sharpness is {ratios(record)} times (14). {ended_in_words(record)}",
    )


def eigenvalues(where: str) -> Statement:
    """The statement that eigenvalues are accurate, on which all others rest; diverged networks have none."""
    return eigenvalue_statement(
        lambda record: largest_finite(dict(zip(titles(record), record.arrays["residual"], strict=True))),
        paper=OURS,
        where=where,
        why=_searches_cut_short,
        when=" at the end of training",
    )


def _searches_cut_short(record: Record) -> str:
    count = int(np.sum(np.isfinite(record.arrays["sharpness"]) & ~record.arrays["converged"]))
    return f"The search for the eigenvalue ended before it had converged in {count} networks."


def ended_in_words(record: Record) -> str:
    """How many trainings of the leading variant have ended, in words."""
    return f"{num_ended(variant_curves(record).values(), record.config['learning_rate'])}."


def ratios(record: Record, prediction: str = "printed") -> str:
    """The range of the ratio of the measured sharpness to a prediction, in words."""
    return interval(curve["sharpness"] / curve[prediction] for curve in variant_curves(record).values())
