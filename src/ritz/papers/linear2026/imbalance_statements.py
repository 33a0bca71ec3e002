"""What the paper says about Fig. 1 right and Fig. 2, as tables of statements.

The rules were fixed before the runs at preset "paper": see docs/decisions.md. A curve "rises" with a rank correlation
of 0.9, which allows two neighbours of nine to change places; a formula "predicts" a curve to ten per cent at every
point, which is what one sees in a plot, and hardly to thirty. Reasons are of what is in the record, so that they are
true of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...record import Record
from ..frame.accuracy import eigenvalue_statement, largest_finite
from ..frame.statements import OURS, Reason, Statement, at_least, at_most, each, within
from .curves import (
    Array,
    Curve,
    Curves,
    by_curve,
    distance_of_curves,
    factor,
    falling_steps,
    interval,
    largest,
    largest_error,
    medians,
    rank,
    variant_curves,
)
from .paper import says
from .setting import TO_A_PERCENT, titles

RISES = at_least(0.9, partly=0.5)
PREDICTED = at_most(0.1, partly=0.3)
SLIGHTLY = at_most(0.25, partly=0.5)  # "slightly different": still nearer to the prediction than to none
BROKEN = at_least(2.0, partly=1 / 0.7)  # a factor: where PREDICTED says no of a larger sharpness, and partly
INCONSISTENT = at_most(0.5, partly=0.9)  # the other side of RISES
INFLUENCED = at_least(2.0, partly=1.2)  # "strongly": by a factor
NONE_AT_ALL = at_most(0.0)
ALWAYS = at_least(1.0, partly=0.9)
SAME = at_most(0.02, partly=0.1)
LIKE_RANDOM = within(0.5, 2.0, partly=(0.1, 10.0))  # to a factor of two, or to an order of magnitude

_OPEN_SCALES = (
    "Whether a network diverges depends on the scale of the raw inputs and of the initial weights, which the paper "
    "leaves open: pixels in [0, 1] and singular values uniform in [0, 1] unless set otherwise."
)


# Statements of several figures ----------------------------------------------------------------------------------------


def rises(where: str, start: str | None = None) -> Statement:
    """That sharpness grows with imbalance."""
    return says(
        "The sharpness of the learnt solution increases with the largest label proportion α_max (rank correlation).",
        where=where,
        measured=by_curve(rank, start=start),
        rule=each(RISES),
        expected=1.0,
        why=lambda record: falling_steps(variant_curves(record, "qr", start).items()),
    )


def predicts(where: str, why: Callable[[Record], str]) -> Statement:
    """That (14) is the sharpness."""
    return says(
        "Equation (14), L α_max^(1 - 1/L), predicts the sharpness of the learnt solution (largest error, relative to "
        "the measured sharpness).",
        where=where,
        measured=by_curve(largest_error),
        rule=each(PREDICTED),
        expected=0.0,
        why=why,
    )


def eigenvalues(where: str) -> Statement:
    """The numerics of all others: networks that diverged have no sharpness."""
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


# Fig. 1 right: balanced networks on white inputs ----------------------------------------------------------------------


def _upper_bound(record: Record) -> str:
    of = variant_curves(record, "qr").values()
    ratio = interval(curve["printed"] / curve["exact"] for curve in of)
    return (
        "The minimum has a loss: of the labels only the part that is linear in the inputs is learnt, "
        f"σ_max(YᵀX)/(√N σₓ) instead of σ_max(Y). (14) is an upper bound then, here {ratio} times the exact value. "
        + distance_of_curves(of)
    )


def _spread(record: Record, key: str = "sharpness") -> float | None:
    """The largest difference between the curves of data sets, relative to their mean."""
    stack = np.stack([curve[key] for curve in variant_curves(record, "qr").values()])
    return largest((stack.max(0) - stack.min(0)) / stack.mean(0)) if len(stack) > 1 else None


def _all_inputs(record: Record) -> Curves:
    kinds = record.config["inputs"]
    return {f"{name}, {kind}": curve for kind in kinds for name, curve in variant_curves(record, kind).items()}


def _share_below(record: Record) -> float:
    below = [curve["sharpness"] <= 1.01 * curve["printed"] for curve in variant_curves(record, "qr").values()]
    return float(np.mean(below))


def _whitenings(record: Record) -> dict[str, tuple[Curve, Curve]]:
    """The curves of each data set on inputs by QR and on rank-revealing ones; none where one of them is missing."""
    both = variant_curves(record, "qr"), variant_curves(record, "rank")
    return {name: (both[0][name], both[1][name]) for name in both[0] if name in both[1]}


def _num_invented(qr: Curve, revealing: Curve) -> Array:
    return np.asarray(qr["num_inputs"] - revealing["num_inputs"])


def _deficient(record: Record) -> dict[str, tuple[Curve, Curve]]:
    """Of data sets for which QR invents columns."""
    return {name: pair for name, pair in _whitenings(record).items() if np.any(_num_invented(*pair) > 0)}


def _largest_change(record: Record, key: str = "sharpness") -> dict[str, float] | None:
    pairs = _deficient(record)
    return {name: largest(np.abs(qr[key] / last[key] - 1)) for name, (qr, last) in pairs.items()} or None


def _decrease_of_loss(record: Record) -> dict[str, float] | None:
    """A random direction of those that the data leave, n - r, has that part of what is left of the labels."""
    shares, n = {}, record.config["num_examples"]
    for name, (qr, last) in _deficient(record).items():
        expected = last["rest"] * _num_invented(qr, last) / (n - last["num_inputs"])
        shares[name] = float(np.sum(last["rest"] - qr["rest"]) / np.sum(expected))
    return shares or None


BALANCED = (
    rises("Fig. 1c; Sec. 4"),
    predicts("Fig. 1c; eq. (14)", why=_upper_bound),
    says(
        "Of the data only α_max matters: data sets with the same label proportions have the same sharpness (largest "
        "difference, relative to the mean).",
        where="Fig. 1c; eq. (14)",
        measured=_spread,
        rule=PREDICTED,
        expected=0.0,
        why=lambda record: (
            "Data sets differ in how much of their labels is linear in the inputs: the exact predictions "
            f"for their minima differ by up to {_spread(record, 'exact'):.2g}."
        ),
    ),
    says(
        "(14) with σ_max(YᵀX)/(√N σₓ) in place of σ_max(Y) is the sharpness of the balanced minimum at any loss "
        "(largest error, relative to the measured sharpness).",
        paper=OURS,
        where="Fig. 1c",
        measured=lambda record: {name: largest_error(c, "exact") for name, c in _all_inputs(record).items()},
        rule=each(TO_A_PERCENT),
        expected=0.0,
        why=lambda record: f"It is of the minimum. {distance_of_curves(_all_inputs(record).values())}",
    ),
    says(
        "(14) as printed bounds the sharpness of the balanced minimum from above (share of the networks, to 1 %).",
        paper=OURS,
        where="Fig. 1c",
        measured=_share_below,
        rule=ALWAYS,
        expected=1.0,
        why=lambda record: f"It is of the minimum. {distance_of_curves(variant_curves(record, 'qr').values())}",
    ),
    says(
        "Every column of Q is a function of the data (how many are not, at most).",
        where="Sec. 2.1; App. C, Data Whitening",
        measured=lambda record: {n: int(_num_invented(*pair).max()) for n, pair in _whitenings(record).items()} or None,
        rule=each(NONE_AT_ALL),
        expected=0,
        why="Where pixels are blank in the whole subset, or depend on each other linearly, Q has as many columns all "
        "the same: it fills up with invented ones, such as the indicator of one image.",
    ),
    says(
        "The columns that the QR decomposition invents do not change the sharpness (largest difference, relative to "
        "that without them; data sets that have such columns).",
        paper=OURS,
        where="Fig. 1c",
        measured=_largest_change,
        rule=each(SAME),
        expected=0.0,
        why=lambda record: (
            "They are fitted, too: the exact prediction changes by "
            f"{max((_largest_change(record, 'exact') or {'': 0.0}).values()):.2g} at most."
        ),
    ),
    says(
        "They do change the least loss, as so many random inputs would (decrease, summed over α_max, in units of that "
        "of random inputs).",
        paper=OURS,
        where="Fig. 1c",
        measured=_decrease_of_loss,
        rule=each(LIKE_RANDOM),
        expected=1.0,
        why="Invented columns are not random: that of a blank pixel is the indicator of a single image, and takes what "
        "is left of its label.",
    ),
    eigenvalues("Fig. 1c"),
)


# Fig. 2 left: raw inputs, and the same networks on white ones ---------------------------------------------------------


def _raw_curves(record: Record) -> Curves:
    """On raw inputs, of data sets on which some network did not diverge."""
    return {name: c for name, c in variant_curves(record, "raw").items() if np.isfinite(c["sharpness"]).any()}


def _on_the_others(reason: Callable[[Record], Mapping[str, str]]) -> Callable[[Record], Reason]:
    """The reason, and for every verdict which data sets it does not rest on."""

    def why(record: Record) -> Reason:
        gone = [name for name, curve in variant_curves(record, "raw").items() if curve["diverged"].all()]
        without = f"This is without {', '.join(gone)}, where all networks diverged." if gone else ""
        return {verdict: f"{text} {without}".strip() for verdict, text in ({"yes": ""} | dict(reason(record))).items()}

    return why


def _whatever(text: str) -> dict[str, str]:
    """The same for each verdict but yes."""
    return {"no": text, "partly": text}


def _factors_of_14(record: Record) -> dict[str, Array]:
    return {name: factor(curve["sharpness"], curve["printed"]) for name, curve in _raw_curves(record).items()}


def _factors_of_peaks(record: Record) -> dict[str, Array]:
    white = variant_curves(record, "qr")
    return {name: factor(curve["peak"], white[name]["peak"]) for name, curve in _raw_curves(record).items()}


def _smallest_rank(record: Record) -> float:
    ranks = [rank(curve) for curve in _raw_curves(record).values()]
    return min((value for value in ranks if np.isfinite(value)), default=float("nan"))


def _where_it_rises(record: Record) -> dict[str, str]:
    of = _raw_curves(record)
    too = "On raw inputs, too, the sharpness rises with the share of the largest class."
    return {
        "no": too if of else _OPEN_SCALES,
        "partly": f"It rises in the main and not at every step. {falling_steps(of.items())}",
    }


def _of_factors(text: str, factors: Callable[[Record], dict[str, Array]]) -> Callable[[Record], dict[str, str]]:
    """The text with the range of the factors put in, or why there are none."""

    def reason(record: Record) -> dict[str, str]:
        of = factors(record)
        return _whatever(text.format(interval(of.values())) if of else _OPEN_SCALES)

    return reason


RAW = (
    says(
        "Without whitened inputs the theory breaks down immediately: (14) is far from the sharpness of the learnt "
        "solution (median factor between the two).",
        where="Fig. 2a; Sec. 5",
        measured=lambda record: medians(_factors_of_14(record)),
        rule=each(BROKEN),
        expected="≫ 1",
        why=_on_the_others(_of_factors("They differ by a factor of {}.", _factors_of_14)),
    ),
    says(
        "On raw inputs the sharpness of the learnt solution varies inconsistently with the largest label proportion "
        "(smallest rank correlation of any data set).",
        where="Fig. 2a; Sec. 5",
        measured=_smallest_rank,
        rule=INCONSISTENT,
        expected="not near 1",
        why=_on_the_others(_where_it_rises),
    ),
    says(
        "Peak-sharpness is strongly influenced by the input-geometry (median factor between the peaks along training "
        "on raw and on white inputs, from the same weights, with the same labels, at the same pauses).",
        where="Sec. 4, last paragraph; Fig. 2a",
        measured=lambda record: medians(_factors_of_peaks(record)) if variant_curves(record, "qr") else None,
        rule=each(INFLUENCED),
        expected="≫ 1",
        why=_on_the_others(_of_factors("The factor between the peaks is {}.", _factors_of_peaks)),
    ),
    says(
        "All models are trained with η_max = 0.01 (share of networks that diverged).",
        where="App. C, Figure 2",
        measured=by_curve(lambda curve: float(curve["diverged"].mean()), "raw"),
        rule=each(NONE_AT_ALL),
        expected=0.0,
        why=_OPEN_SCALES,
    ),
    eigenvalues("Fig. 2a"),
)


# Fig. 2 middle: Kaiming uniform weights -------------------------------------------------------------------------------


def _unbalanced_layers(record: Record) -> str:
    ratio = interval(curve["sharpness"] / curve["exact"] for curve in variant_curves(record, "qr").values())
    return (
        "(14) is of balanced layers, and descent on the loss keeps differences between layers: the measured sharpness "
        f"is {ratio} times that of the balanced minimum."
    )


UNBALANCED = (
    rises("Fig. 2b; Sec. 5"),
    predicts('Fig. 2b; Sec. 5, "predictions stay intact"', why=_unbalanced_layers),
    eigenvalues("Fig. 2b"),
)


# Fig. 2 right: tanh networks, from each kind of initial weights -------------------------------------------------------


def slightly_different(where: str, start: str) -> Statement:
    """That the nonlinearity changes little."""

    def factors(record: Record) -> str:
        ratio = interval(
            curve["sharpness"] / curve["printed"] for curve in variant_curves(record, "qr", start).values()
        )
        return f"It is {ratio} times (14), which is of linear networks at zero loss."

    return says(
        "The results of a tanh network are only slightly different from (14) (largest difference, relative to (14)).",
        where=where,
        measured=by_curve(lambda curve: largest(np.abs(curve["sharpness"] / curve["printed"] - 1)), start=start),
        rule=each(SLIGHTLY),
        expected="small",
        why=factors,
    )


NONLINEAR = (
    rises('Fig. 2c, from unbalanced weights; Sec. 5, "qualitatively similar"', "kaiming"),
    slightly_different("Fig. 2c, from unbalanced weights; Sec. 5", "kaiming"),
    rises('Fig. 2c, from balanced weights; Sec. 5, "qualitatively similar"', "balanced"),
    slightly_different("Fig. 2c, from balanced weights; Sec. 5", "balanced"),
    eigenvalues("Fig. 2c"),
)
