"""What the paper says about Fig. 2: raw inputs, unbalanced weights, tanh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...record import Record
from ..frame.statements import OURS, Reason, at_most, each
from ..frame.statistics import spearman
from .curves import (
    Array,
    Curve,
    Curves,
    by_reading,
    factor,
    falling_steps,
    interval,
    median,
    middle,
    over_seeds,
    range_of_ranks,
    rank,
    variant_curves,
)  # fmt: skip
from .imbalance_rules import (
    BROKEN,
    INCONSISTENT,
    INFLUENCED,
    NO_LOWER,
    NONE_AT_ALL,
    SLIGHTLY,
    eigenvalues,
    ended_in_words,
    ends_near_the_least_loss,
    predicts,
    ratios,
    rises,
    robust,
)  # fmt: skip
from .paper import says

_OPEN_SCALES = (
    "Whether a network diverges depends on the scale of the raw inputs and of the initial weights, which the paper "
    "leaves open: pixels in [0, 1] and singular values uniform in [0, 1] unless set otherwise."
)


def _with_a_network(of: Curves) -> Curves:
    """The curves of data sets on which at least one network did not diverge."""
    return {name: curve for name, curve in of.items() if np.isfinite(curve["sharpness"]).any()}


def _on_the_others(reason: Callable[[Record], Mapping[str, str]]) -> Callable[[Record], Reason]:
    """The reason, extended for every verdict by the data sets left out and by how many trainings have ended."""

    def why(record: Record) -> Reason:
        gone = [name for name, curve in variant_curves(record).items() if curve["diverged"].all()]
        without = f" This is without {', '.join(gone)}, where all networks diverged." if gone else ""
        said = {"yes": ""} | dict(reason(record))
        return {verdict: f"{text} {ended_in_words(record)}{without}".strip() for verdict, text in said.items()}

    return why


def _whatever(text: str) -> dict[str, str]:
    """One reason for both verdicts other than yes."""
    return {"no": text, "partly": text}


def _median_factor(curve: Curve) -> float:
    """The median factor between the sharpness and (14), over the networks that did not diverge."""
    return float(np.nanmedian(factor(curve["sharpness"], curve["printed"])))


def _where_known(value: Callable[[Curve], float]) -> Callable[[Record], Any]:
    """`by_reading`, without data sets on which all networks of the reading diverged."""

    def values(record: Record) -> Any:
        def number(curve: Curve) -> float:
            return value(curve) if np.isfinite(curve["sharpness"]).any() else float("nan")

        readings = by_reading(number)(record)
        for words, numbers in readings.items():
            readings[words] = {name: one for name, one in numbers.items() if not np.isnan(one)}
        return readings

    return values


def _smallest_rank(record: Record) -> Any:
    readings = _where_known(rank)(record)
    for words, numbers in readings.items():
        readings[words] = min(numbers.values(), default=float("nan"))
    return readings


def _factors_of_14(record: Record) -> dict[str, Array]:
    of = _with_a_network(variant_curves(record))
    return {name: factor(curve["sharpness"], curve["printed"]) for name, curve in of.items()}


def _factors_of_peaks(record: Record) -> dict[str, Array]:
    white = variant_curves(record, inputs="qr")
    of = _with_a_network(variant_curves(record))
    return {name: factor(curve["peak"], white[name]["peak"]) for name, curve in of.items()} if white else {}


def _where_it_rises(record: Record) -> dict[str, str]:
    of = _with_a_network(variant_curves(record))
    spread = f"{range_of_ranks(of.items())} {_spread_of_seeds(of)}" if of else _OPEN_SCALES
    too = "On raw inputs, too, the sharpness rises with the share of the largest class."
    return {
        "yes": spread,
        "no": f"{too if of else ''} {spread}".strip(),
        "partly": f"{falling_steps(of.items())} {spread}",
    }


def _spread_of_seeds(of: Curves) -> str:
    """The spread over seeds at one share, against the range of the median over all shares."""
    texts = [
        f"{name} {np.nanmedian(np.ptp(curve['sharpness'], axis=0)[known]):.3g} against "
        f"{np.ptp(middle(curve['sharpness'])[known]):.3g}"
        for name, curve in of.items()
        if (known := np.isfinite(curve["sharpness"]).all(0)).any()
    ]
    return f"Spread of seeds at one share against the range of the median over all shares: {'; '.join(texts)}."


def _of_factors(text: str, factors: Callable[[Record], dict[str, Array]]) -> Callable[[Record], dict[str, str]]:
    """The text with the range of the factors inserted, or why there are none."""

    def reason(record: Record) -> dict[str, str]:
        of = factors(record)
        return _whatever(text.format(interval(of.values())) if of else _OPEN_SCALES)

    return reason


def _peaks_at_the_start(record: Record, **changed: Any) -> str:
    """How many networks are sharpest at the first pause."""
    rows = [
        curve["along"].reshape(-1, curve["along"].shape[-1]) for curve in variant_curves(record, **changed).values()
    ]
    along = np.concatenate(rows)
    along = along[np.isfinite(along).any(-1)]
    count = int(np.sum(np.nanargmax(along, -1) == 0)) if len(along) else 0
    return f"{count} of {len(along)} networks are sharpest at the first pause"


def _origin_of_peaks(record: Record) -> str:
    return (
        f"On white inputs {_peaks_at_the_start(record, inputs='qr')}: the peak is that of the initial weights, which "
        "know nothing of the labels."
    )


def _peaks_on_white(record: Record) -> dict[str, float] | None:
    of = variant_curves(record, inputs="qr")
    return {name: over_seeds(spearman, "peak")(curve) for name, curve in of.items()} or None


RAW = (
    says(
        "Without whitened inputs the theory breaks down immediately: (14) is far from the sharpness of the learnt "
        "solution (median factor between the two).",
        where="Fig. 2a; Sec. 5",
        measured=_where_known(_median_factor),
        rule=each(BROKEN),
        expected="≫ 1",
        why=_on_the_others(_of_factors("They differ by a factor of {}.", _factors_of_14)),
    ),
    says(
        "On raw inputs the sharpness of the learnt solution varies inconsistently with the largest label proportion "
        "(rank correlation of the median seed, the smallest of any data set).",
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
        measured=lambda record: (
            {name: float(np.nanmedian(values)) for name, values in _factors_of_peaks(record).items()}
            if variant_curves(record, inputs="qr")
            else None
        ),
        rule=each(INFLUENCED),
        expected="≫ 1",
        why=_on_the_others(_of_factors("The factor between the peaks is {}.", _factors_of_peaks)),
    ),
    says(
        "Simpler datasets, those with one large class, have no lower peak-sharpness (rank correlation of the peak "
        "along training on white inputs with α_max, the median seed).",
        where="Sec. 4, last paragraph, against Caveat 2 of Cohen et al.",
        measured=_peaks_on_white,
        rule=each(NO_LOWER),
        expected="≥ 0",
        why=lambda record: dict.fromkeys(("yes", "partly", "no"), _origin_of_peaks(record)),
    ),
    says(
        "All networks can be trained with η_max = 0.01 (share of networks that diverged).",
        paper=OURS,
        where="App. C, Figure 2",
        measured=by_reading(lambda curve: float(curve["diverged"].mean())),
        rule=each(NONE_AT_ALL),
        expected=0.0,
        why=_OPEN_SCALES,
    ),
    ends_near_the_least_loss("Training on raw inputs"),
    eigenvalues("Fig. 2a"),
)


# Fig. 2 middle: Kaiming uniform weights


def _unbalanced_layers(record: Record) -> str:
    return (
        "(14) is of balanced layers, and descent on the loss keeps differences between layers: the measured sharpness "
        f"is {ratios(record, 'exact')} times that of the balanced minimum. {ended_in_words(record)}"
    )


UNBALANCED = (
    rises("Fig. 2b; Sec. 5"),
    predicts('Fig. 2b; Sec. 5, "predictions stay intact"', why=_unbalanced_layers),
    robust("Fig. 2b"),
    says(
        "The spectral norm is at most σₓ² Σ_ℓ σ²_max(P_ℓ)σ²_max(S_ℓ), of trained networks (largest measured sharpness "
        "over that bound).",
        where="eq. (6)",
        measured=by_reading(lambda curve: float(np.max(curve["sharpness"] / curve["bound"]))),
        rule=each(at_most(1.001, partly=1.05)),
        expected="≤ 1",
        why="(6) is of the Gauss-Newton matrix, H at a minimum.",
    ),
    eigenvalues("Fig. 2b"),
)


# Fig. 2 right: tanh networks


def _largest_difference(curve: Curve) -> float:
    """The largest relative difference from (14) over all shares, for the median seed."""
    return median(np.abs(curve["sharpness"] / curve["printed"] - 1).max(-1))


NONLINEAR = (
    rises('Fig. 2c; Sec. 5, "qualitatively similar"'),
    says(
        "The results of a tanh network are only slightly different from (14) (largest difference, relative to (14), "
        "the median seed).",
        where="Fig. 2c; Sec. 5",
        measured=by_reading(_largest_difference),
        rule=each(SLIGHTLY),
        expected="small",
        why=lambda record: (
            f"It is {ratios(record)} times (14), which is of linear networks at zero loss. {ended_in_words(record)}"
        ),
    ),
    robust("Fig. 2c"),
    eigenvalues("Fig. 2c"),
)
