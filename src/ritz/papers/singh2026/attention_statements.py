"""Statements about one head of self-attention in Fig. 2, and the numbers that decide them."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...record import Record
from ..frame.accuracy import DISAGREE, LARGE_CLOSED_FORM
from ..frame.readings import ByReading, Reading, words_of
from ..frame.statements import at_least, at_most, each
from ..frame.statistics import median_spearman
from .paper import says

ROUNDING = 1e-9  # relative: by how much a bound may be missed

READINGS = (
    Reading("ranges", 1.0, "norms up to 1", "D.1.1: the one norm that is printed, of the weights that are not varied"),
    Reading("ranges", 3.0, "norms up to 3", "open: Fig. 2a has an axis that the text does not give"),
    Reading("ranges", 10.0, "norms up to 10", "open: Fig. 2a has an axis that the text does not give"),
)

_SAME = at_most(0.1, partly=0.5)  # a tenth cannot be seen in the figure, a half can
GROWS = at_least(1.5, partly=1.1)  # a factor
FOLLOWS = at_least(0.9, partly=0.7)  # a rank correlation


def theorem_error(record: Record) -> float:
    """The largest relative error of an eigenvalue; infinite where the bulk is not d_K - 1 pairs."""
    wrong = record.arrays["measured_copies"] != record.config["key_size"] - 1
    return float("inf") if wrong.any() else float(record.arrays["measured_error"].max())


def bulk_changes(record: Record) -> ByReading:
    """The largest relative change of the bulk up to each end of the range, for the median draw."""
    grid, bulk = record.arrays["grid"], record.arrays["bulk"]
    changes = np.abs(bulk / bulk[:, :1] - 1)

    def median(end: float) -> float:
        return float(np.median(changes[:, grid <= end * (1 + 1e-9)].max(1)))

    return ByReading((words_of(READINGS, "ranges", end), median(end)) for end in record.config["ranges"])


def spread(record: Record, name: str) -> float:
    """Largest over smallest value along the grid, for the median draw."""
    rows = record.arrays[name]
    return float(np.median(rows.max(1) / rows.min(1)))


def share_bounded(record: Record) -> float:
    """The fraction of heads whose condition number is at least its lower bound."""
    kappa, bound = (record.arrays[name] for name in ("condition", "condition_bound"))
    return float(np.mean(kappa >= (1 - ROUNDING) * bound))


def rising_condition(record: Record) -> dict[str, float]:
    """How surely the condition number rises along the grid."""
    kappa = record.arrays["condition"]
    return {
        "draws in which it rises throughout": float(np.mean((np.diff(kappa) >= 0).all(1))),
        "rank correlation": median_spearman(record.arrays["grid"], kappa),
    }


QUERY_AND_KEY = (  # Fig. 2a: the bulk stays, the outliers and the condition number grow
    says(
        "The Hessian has d_K - 1 pairs of bulk eigenvalues ±γ, and three outliers.",
        where="Thm 3.5, Fig. 2a", measured=theorem_error, rule=LARGE_CLOSED_FORM, expected=0.0,
        why={
            "no": "The measured spectrum is not that of the closed form, or its bulk does not repeat so often.",
            "partly": "The measured spectrum is that of the closed form to a few digits only.",
        },
    ),
    says(
        "The change in the norm of the query and key weight vector does not affect the bulk eigenvalues (largest "
        "relative change).",
        where="Sec. 3.3, Fig. 2a", measured=bulk_changes, rule=_SAME, expected=0.0,
        why="γ depends on these norms through the attention, which is not uniform even up to the norm 1.",
    ),
    says(
        "The largest eigenvalue depends on the magnitude of the query and key weights.",
        where="Sec. 3.3, Fig. 2a", measured=partial(spread, name="sharpness"), rule=GROWS, expected="changes",
        why={
            "no": "α, in which these norms do not occur, is the sharpness almost alone over this range.",
            "partly": "It changes by less than half over this range: most of it is α, in which these norms do not "
            "occur.",
        },
    ),
    says(
        "The condition number is at least (2 tr + 3ξ)/(6|γ|) (fraction of heads).",
        where="Remark 3.1", measured=share_bounded, rule=at_least(1.0, partly=0.9), expected=1.0,
        why="The bound was violated.",
    ),
    says(
        "The condition number is monotonic in the magnitude of the key and query weights.",
        where="Sec. 3.3, below Remark 3.1", measured=rising_condition, rule=each(FOLLOWS), expected=1.0,
        why="The bound is monotonic only while α, β, γ, ζ stay; they move with the weights.",
    ),
)  # fmt: skip


def share_monotonic(record: Record) -> float:
    """The fraction of draws in which the condition number only rises or only falls along the grid."""
    steps = np.diff(record.arrays["condition"])
    return float(np.mean((steps >= 0).all(1) | (steps <= 0).all(1)))


def dependence(record: Record) -> dict[str, float]:
    """How surely the bulk and the largest eigenvalue rise with |w_V|: rank correlations, for the median draw."""
    grid = record.arrays["grid"]
    return {name: median_spearman(grid, record.arrays[name]) for name in ("bulk", "sharpness")}


VALUE = (  # Fig. 2b: everything moves with w_V, and the condition number has no direction
    says(
        "The Hessian has d_K - 1 pairs of bulk eigenvalues ±γ, and three outliers, at any w_V.",
        where="Thm 3.5, Fig. 2b", measured=theorem_error, rule=LARGE_CLOSED_FORM, expected=0.0, why=DISAGREE,
    ),
    says(
        "We do not expect such a [monotonic] relationship for the magnitude of w_V (draws in which κ only rises or "
        "only falls).",
        where="Sec. 3.3, Fig. 2b", measured=share_monotonic, rule=at_most(0.5, partly=0.9), expected="not all",
        why="The condition number follows |w_V| in most draws.",
    ),
    says(
        "… as both the bulk and outlier eigenvalues depend on w_V (rank correlations with |w_V|).",
        where="Sec. 3.3, Fig. 2b", measured=dependence, rule=each(FOLLOWS), expected=1.0,
        why="Where the targets outweigh the outputs, γ has a zero on the way, and no direction.",
    ),
)  # fmt: skip


def factor(record: Record, name: str) -> float:
    """The last value on the grid over the first, for the median draw."""
    rows = record.arrays[name]
    return float(np.median(rows[:, -1] / rows[:, 0]))


def moment_factors(record: Record) -> dict[str, float]:
    """The factors by which the moments of attention change in the direction the paper says, for the median draw."""
    m1, m2, m3 = np.median(record.arrays["moments"][:, -1] / record.arrays["moments"][:, 0], axis=0).tolist()
    return {"m₁ rises": m1, "m₂ falls": 1 / m2, "m₃ falls": 1 / m3}


def order_along_the_sink(record: Record) -> dict[str, float]:
    """How surely the bulk falls and the sharpness rises with the bias."""
    grid, bulk, top = (record.arrays[name] for name in ("grid", "bulk", "sharpness"))
    return {"bulk": -median_spearman(grid, bulk), "sharpness": median_spearman(grid, top)}


SINK = (  # Fig. 2c: the bulk shrinks, the largest eigenvalue grows
    says(
        "As the sink grows, m₁ rises, and m₂ and m₃ shrink (factors).",
        where="Sec. 3.3", measured=moment_factors, rule=each(GROWS), expected="above 1",
        why={
            "no": "The first token is no larger than what the others average to.",
            "partly": "The first token is as large as the others: it is no massive activation.",
        },
    ),
    says(
        "As the sink grows, the bulk shrinks towards zero.",
        where="Sec. 3.3, Fig. 2c", measured=partial(factor, name="bulk"), rule=at_most(0.1, partly=0.5), expected=0.0,
        why={
            "no": "The largest sink here leaves the other tokens enough attention to keep m₂.",
            "partly": "It shrinks, and the largest sink here is not large enough for zero.",
        },
    ),
    says(
        "As the sink grows, so does the largest eigenvalue (factor).",
        where="Sec. 3.3, Fig. 2c", measured=partial(factor, name="sharpness"), rule=GROWS, expected="above 1",
        why={
            "no": "It does so for a massive activation: here the first token is as large as the others.",
            "partly": "It hardly grows: here the first token is as large as the others, and no massive activation.",
        },
    ),
    says(
        "The larger the sink, the smaller the bulk and the larger the sharpness (rank correlations).",
        where="Fig. 2c, caption of Fig. 9", measured=order_along_the_sink, rule=each(FOLLOWS), expected=1.0,
        why={
            "no": "Neither follows the bias.",
            "partly": "γ may grow before it falls: this is true in the limit.",
        },
    ),
    says(
        "Sinks make the landscape badly conditioned (factor of the condition number).",
        where="Sec. 3.3", measured=partial(factor, name="condition"), rule=at_least(10, partly=1.5),
        expected="above 1",
        why={
            "no": "The smallest eigenvalue does not fall as the largest grows.",
            "partly": "The condition number grows by less than a factor of ten.",
        },
    ),
)  # fmt: skip
