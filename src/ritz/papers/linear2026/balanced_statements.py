"""Statements about Fig. 1 right: balanced networks on white inputs."""

from __future__ import annotations

import numpy as np

from ...record import Record
from ..frame.statements import OURS, at_most, each
from ..frame.statistics import spearman
from .curves import (
    Array,
    Curve,
    Curves,
    by_reading,
    distance_of_curves,
    interval,
    largest_error,
    median,
    over_seeds,
    range_of_ranks,
    variant_curves,
)  # fmt: skip
from .imbalance_rules import (
    ALWAYS,
    FALLS,
    KEPT,
    LIKE_RANDOM,
    NONE_AT_ALL,
    PREDICTED,
    SAME,
    eigenvalues,
    ends_near_the_least_loss,
    predicts,
    rises,
)  # fmt: skip
from .paper import says
from .setting import TO_A_PERCENT, titles


def _upper_bound(record: Record) -> str:
    of = variant_curves(record).values()
    ratio = interval(curve["printed"] / curve["exact"] for curve in of)
    return (
        "The minimum has a loss: of the labels only the part that is linear in the inputs is learnt, "
        f"σ_max(YᵀX)/(√N σₓ) instead of σ_max(Y). (14) is an upper bound then, here {ratio} times the exact value. "
        + distance_of_curves(of)
    )


def _spread(record: Record, key: str = "sharpness") -> float | None:
    """The largest difference between the median curves of data sets, relative to their mean."""
    rows = [np.median(curve[key], 0) for curve in variant_curves(record).values()]
    stack = np.stack(rows)
    return float(np.max((stack.max(0) - stack.min(0)) / stack.mean(0))) if len(stack) > 1 else None


def _all_inputs(record: Record) -> Curves:
    kinds = record.config["inputs"]
    return {f"{name}, {kind}": curve for kind in kinds for name, curve in variant_curves(record, inputs=kind).items()}


def _share_below(record: Record) -> float:
    below = [curve["sharpness"] <= 1.01 * curve["printed"] for curve in variant_curves(record).values()]
    return float(np.mean(below))


def _whitenings(record: Record) -> dict[str, tuple[Curve, Curve]]:
    """The curves of each data set on inputs whitened by QR and by rank, for data sets that have both."""
    both = variant_curves(record), variant_curves(record, inputs="rank")
    return {name: (both[0][name], both[1][name]) for name in both[0] if name in both[1]}


def _num_invented(qr: Curve, by_rank: Curve) -> Array:
    return np.asarray(qr["num_inputs"] - by_rank["num_inputs"])


def _deficient(record: Record) -> dict[str, tuple[Curve, Curve]]:
    """`_whitenings` of the data sets for which QR invents columns."""
    return {name: pair for name, pair in _whitenings(record).items() if np.any(_num_invented(*pair) > 0)}


def _largest_change(record: Record, key: str = "sharpness") -> dict[str, float] | None:
    pairs = _deficient(record)
    return {name: float(np.max(np.abs(qr[key] / by_rank[key] - 1))) for name, (qr, by_rank) in pairs.items()} or None


def _decrease_of_loss(record: Record) -> dict[str, float] | None:
    """How much the invented columns lower the loss, over what random directions would be expected to.

    Each of the n - r directions that the data leave open carries on average 1/(n - r) of the loss that is left.
    """
    shares, n = {}, record.config["num_examples"]
    for name, (qr, by_rank) in _deficient(record).items():
        expected = by_rank["rest"] * _num_invented(qr, by_rank) / (n - by_rank["num_inputs"])
        shares[name] = float(np.sum(by_rank["rest"] - qr["rest"]) / np.sum(expected))
    return shares or None


def _spread_over_sizes(record: Record) -> dict[str, float] | None:
    """The range of the sharpness of the balanced minimum over sizes of the data, relative to its mean."""
    rows = zip(titles(record), np.asarray(record.arrays["by_size"]), strict=True)
    known = {name: row[np.isfinite(row)] for name, row in rows}
    return {name: float(np.ptp(row) / row.mean()) for name, row in known.items() if len(row) > 1} or None


def _sizes_in_words(record: Record) -> str:
    rows = zip(titles(record), np.asarray(record.arrays["by_size"]), strict=True)
    texts = [f"{name} {', '.join(f'{value:.4g}' for value in row if np.isfinite(value))}" for name, row in rows]
    sizes = ", ".join(f"{size:,}" for size in record.config["sizes"])
    return (
        f"At n = {sizes} (as far as n is not less than the inputs): {'; '.join(texts)}. More images leave less of the "
        "labels that is linear in the inputs, and (14) takes all of them for it."
    )


def _what_training_leaves(record: Record) -> str:
    of = variant_curves(record)
    least = {name: median([spearman(curve["shares"], row) for row in curve["rest"]]) for name, curve in of.items()}
    ranks = ", ".join(f"{name} {value:.2f}" for name, value in least.items())
    return (
        f"{range_of_ranks(of.items(), 'loss')} Of the least loss it is: {ranks}; what so many epochs leave above it "
        f"differs from network to network. {distance_of_curves(of.values())}"
    )


BALANCED = (
    rises("Fig. 1c; Sec. 4"),
    predicts("Fig. 1c; eq. (14)", why=_upper_bound),
    says(
        "Of the data only α_max matters: data sets with the same label proportions have the same sharpness (largest "
        "difference of the median seeds, relative to the mean).",
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
        "The sharpness at a balanced solution is independent of the dataset size n (that of the exact balanced minimum "
        "on images: largest less least, relative to the mean).",
        where="Sec. 4, after eq. (14)",
        measured=_spread_over_sizes,
        rule=each(SAME),
        expected=0.0,
        why=_sizes_in_words,
    ),
    says(
        "Datasets with one large class are simpler to learn (rank correlation of the loss at the end with α_max, the "
        "median seed).",
        where="Sec. 4, last paragraph",
        measured=by_reading(over_seeds(spearman, "loss")),
        rule=each(FALLS),
        expected=-1.0,
        why=_what_training_leaves,
    ),
    says(
        "Initially balanced layers remain balanced in training (largest ‖W_ℓW_ℓᵀ - W_{ℓ+1}ᵀW_{ℓ+1}‖/‖W‖² at the end).",
        where="Sec. 3, after Assumption 3",
        measured=by_reading(lambda curve: float(np.max(curve["balance"]))),
        rule=each(KEPT),
        expected=0.0,
        why="It is of gradient flow; steps of finite size drift from it.",
    ),
    says(
        "The loss gets nearer to zero with training, as Assumption 1 has it (largest loss at the end over that at the "
        "start).",
        where="Sec. 2, after Assumption 1",
        measured=by_reading(lambda curve: float(np.max(curve["loss"] / curve["first_loss"]))),
        rule=each(at_most(1.0)),
        expected="< 1",
        why="A loss has grown.",
    ),
    says(
        "(14) with σ_max(YᵀX)/(√N σₓ) in place of σ_max(Y) is the sharpness of the balanced minimum at any loss "
        "(largest error, relative to the measured sharpness, the median seed).",
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
        why=lambda record: f"It is of the minimum. {distance_of_curves(variant_curves(record).values())}",
    ),
    ends_near_the_least_loss("Training with the printed halving of the rate"),
    says(
        "Every column of Q is a function of the data (how many are not, at most).",
        paper=OURS,
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
