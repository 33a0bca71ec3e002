"""Statements about single panels of Figures 7 to 10 and 13: a column is a layer, a row a data set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...record import Record
from ..frame.statements import at_least, at_most, each, near, within
from .layer_numbers import CROSS, LAST, linear_error, log_ratios, mini_bulk, outliers, separation, together
from .layer_results import (
    C,
    Measure,
    at_layer,
    by_layer,
    curve,
    data_sets,
    depth,
    has_panels,
    measured_seeds,
    of_panels,
    title_of,
    with_depth,
)
from .paper import BEYOND, says

CLOSE = 0.2  # |ln| of the ratio of two eigenvalues that lie on each other in a scree plot
APART = at_least(1.5, partly=1.1)  # the ratio of two neighbours with a gap between them
ALL = near(C, relative=0.11, partly=0.3)  # C outliers


def panels(data: str, columns: list[int], measure: Measure) -> Callable[[Record], dict[str, float] | None]:
    """A number of some columns of one data set's row: of its layers, the first being what enters the network."""
    return lambda record: of_panels(record, data, columns, measure, name="column {}")


def first_apart(kind: str, data: str) -> Callable[[Record], float | None]:
    """The first layer of which C eigenvalues lie above all that is left without the class part."""

    def measured(record: Record) -> float | None:
        if not has_panels(record, data):
            return None
        counts = by_layer(record, data, outliers(kind, above="off_class"))
        return float(np.argmax(counts >= C) + 1) if (counts >= C).any() else depth(record) + 1.0

    return measured


def misfit(kind: str) -> Measure:
    """The mean |ln| of the ratios of the C largest eigenvalues of the whole and of its class part."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        whole, means = (curve(record, data, seed, kind, layer, name)[:C] for name in ("whole", "class"))
        return float(np.abs(log_ratios(whole, means)).mean())

    return measure


def gap(kind: str, rank: int) -> Measure:
    """λ_k/λ_{k+1} of the whole."""

    def measure(record: Record, data: str, seed: int, layer: int) -> float:
        values = curve(record, data, seed, kind, layer, "whole")
        return float(values[rank - 1] / max(values[rank], 1e-300))

    return measure


def magnitude(kind: str) -> Measure:
    """ln of the trace of the class part: of the mean square length of the class means."""
    return lambda record, data, seed, layer: float(
        np.log(max(curve(record, data, seed, kind, layer, "class").sum(), 1e-30))
    )


def _cross_ratios(record: Record, data: str, seed: int, layer: int) -> np.ndarray:
    """ln of the ratios of the eigenvalues of Δ and of its class and cross-class parts, behind the first C."""
    whole, means = (
        curve(record, data, seed, "errors", layer, name)[C : C + CROSS] for name in ("whole", "class_and_cross")
    )
    return log_ratios(whole, means)


def cross_excess(record: Record, data: str, seed: int, layer: int) -> float:
    """The median of ln of the eigenvalues of Δ over those of its class and cross-class parts, behind the first C."""
    return float(np.median(_cross_ratios(record, data, seed, layer)))


def cross_close(record: Record, data: str, seed: int, layer: int) -> float:
    """The share of the eigenvalues of Δ behind the first C that lie on those of its class and cross-class parts."""
    return float((np.abs(_cross_ratios(record, data, seed, layer)) < CLOSE).mean())


def _widest(record: Record, data: str, seed: int, layer: int) -> tuple[int, float]:
    """Where the widest gap among the first C² eigenvalues of Δ without its class means is, and its ratio."""
    values = curve(record, data, seed, "errors", layer, "off_class")[: C * C]
    falls = -np.diff(np.log(np.maximum(values, 1e-30)))
    return int(np.argmax(falls)) + 1, float(np.exp(falls.max()))


def widest_gap(record: Record, data: str, seed: int, layer: int) -> float:
    """The ratio at the widest gap among the first C² eigenvalues of Δ without its class means."""
    return _widest(record, data, seed, layer)[1]


def gap_by_pairs(record: Record, data: str, seed: int, layer: int) -> float:
    """The rank of the widest gap in Δ without its class means, over C(C - 1)/2, the number of pairs of classes."""
    return _widest(record, data, seed, layer)[0] / (C * (C - 1) / 2)


def hidden_errors(record: Record) -> dict[str, float] | None:
    """The test error of a linear classifier in layers whose class means are too short for C outliers."""
    result: dict[str, float] = {}
    for data in data_sets(record):
        if of := measured_seeds(record, data, linear_error):
            apart, error = (by_layer(record, data, one, of=of) for one in (separation("features"), linear_error))
            name = title_of(record, data, of)
            result |= {f"{name}, l = {layer}": float(error[layer]) for layer in np.flatnonzero(apart < 0)}
    return result or None


def _layer(record: Record, data: str, seed: int, layer: int) -> float:
    return float(layer)


LATER = "C of them stand apart in another layer first: the one that is measured."
FEATURE_PANELS = (
    says(
        "The sixth column of the first row shows C outliers (how many lie above all without H_class; MNIST).",
        where="Fig. 7", measured=panels("mnist", [6], outliers("features", above="off_class")), rule=each(ALL),
        expected=C, why="Not all class means are longer than the spread around them.",
    ),
    says(
        "The fourth and fifth columns of the third row show where the outliers separate (the first layer with C of "
        "them; CIFAR-10).",
        where="Fig. 7", measured=first_apart("features", "cifar10"), rule=within(4, 5, partly=(3, 6)),
        expected="4 or 5", why=LATER,
    ),
)  # fmt: skip
SCREE_PANELS = (
    says(
        "In the first column of the first row the eigenvalues of H_class are too small for C outliers (ln λ_C of them "
        "over the largest of H_within; MNIST).",
        where="Sec. 7.6", measured=panels("mnist", [1], separation("features")), rule=each(at_most(0.0, partly=0.5)),
        expected="below 0", why="The class means of the pixels are longer than the spread.",
    ),
    says(
        "In the last column of the first row the eigenvalues of H_class are close to the C largest of H (mean |ln| of "
        "the ratios; MNIST).",
        where="Sec. 7.6", measured=panels("mnist", [8], misfit("features")), rule=each(at_most(0.1, partly=0.3)),
        expected=0.0, why="The spread within classes raises them.",
    ),
    says(
        "There the C largest of H are dramatically larger than later eigenvalues (λ_C/λ_{C+1}; MNIST).",
        where="Sec. 7.6", measured=panels("mnist", [8], gap("features", C)), rule=each(at_least(10.0, partly=2.0)),
        expected="far above 1", why="The bulk begins not far below them.",
    ),
    says(
        "Underlying this, the class means have larger magnitude with depth (Spearman's ρ of tr H_class with the layer, "
        "of hidden ones).",
        where="Sec. 7.6", measured=with_depth(magnitude("features"), first=2), rule=each(at_least(0.8, partly=0.3)),
        expected=1.0,
        why="Up to the middle of the network they hardly grow: there they separate because the spread shrinks.",
    ),
    says(
        "The features at later layers are more discriminative (Spearman's ρ of the test error of a linear classifier "
        "with the layer).",
        where="Sec. 7.6", measured=together(linear_error, _layer), rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0,
        why="The error no longer falls in the last layers.",
    ),
    says(
        "The third row highlights the top outlier (λ₁/λ₂ in every hidden layer; CIFAR-10).",
        where="Fig. 8", measured=panels("cifar10", [2, 3, 4, 5, 6, 7, 8], gap("features", 1)), rule=each(APART),
        expected="above 1", why="The global mean is not the longest in every layer.",
    ),
    says(
        "Class means that are too short for outliers are present all the same (test error of a linear classifier in "
        "layers where fewer than C stand apart; 0.9 by guessing).",
        where="Sec. 9.2", measured=hidden_errors, rule=each(at_most(0.5, partly=0.8)), expected="below 0.9",
        why="In some of these layers more than half of the test images are misclassified.",
    ),
)  # fmt: skip
ERROR_PANELS = (
    says(
        "The fifth column of the first row shows C outliers (how many lie above all without Δ_class; MNIST).",
        where="Fig. 9a", measured=panels("mnist", [5], outliers("errors", above="off_class")), rule=each(ALL),
        expected=C, why="Not all class means are longer than the spread around them.",
    ),
    says(
        "The fifth and sixth columns of the third row show where the outliers separate (the first layer with C of "
        "them; CIFAR-10).",
        where="Fig. 9a", measured=first_apart("errors", "cifar10"), rule=within(5, 6, partly=(4, 7)),
        expected="5 or 6", why=LATER,
    ),
    says(
        "In Fig. 9b, the fourth column of the third row shows C² outliers (how many lie above the largest of Δ_within, "
        "over C(C - 2); CIFAR-10).",
        where="Fig. 9b",
        measured=panels("cifar10", [4], lambda *where: mini_bulk(*where) / CROSS),
        rule=each(near(1.0, relative=0.2, partly=0.8)), expected=1.0,
        why="The cross-class means are shorter there than the spread within.",
    ),
    says(
        "In Fig. 9b, the seventh column of the second row shows a gap that divides the C² outliers into two groups "
        "(the ratio of its two sides; Fashion-MNIST).",
        where="Sec. 7.8", measured=panels("fashion_mnist", [7], widest_gap), rule=each(APART), expected="above 1",
        why="The two groups pass into each other.",
    ),
    says(
        "That gap comes after one for each pair of classes (its rank over C(C - 1)/2; last layer but one of eight).",
        where="Sec. 7.8", paper=BEYOND, measured=at_layer(gap_by_pairs, -2),
        rule=each(near(1.0, relative=0.1, partly=0.3)), expected=1.0,
        why="Where examples between two classes carry Δ, the two cross-class means of the pair are one direction; "
        "elsewhere the widest gap is another.",
    ),
)  # fmt: skip
ERROR_SCREE_PANELS = (
    says(
        "In the first column of the second row the eigenvalues of Δ_class are too small for C outliers (ln λ_{C-1} of "
        "them over the largest of Δ_within; Fashion-MNIST).",
        where="Sec. 7.9", measured=panels("fashion_mnist", [1], separation("errors")),
        rule=each(at_most(0.0, partly=0.5)), expected="below 0", why="They are longer than the spread already.",
    ),
    says(
        "In the first and fifth columns of the second row the eigenvalues of Δ_cross are too small for C² outliers "
        "(median ln of the eigenvalues of Δ over theirs; Fashion-MNIST).",
        where="Sec. 7.9", measured=panels("fashion_mnist", [1, 5], cross_excess), rule=each(at_least(0.5, partly=0.1)),
        expected="above 0", why="They reach those of Δ already.",
    ),
    says(
        "In the fifth column of the second row the C largest of Δ and of Δ_class are close (mean |ln| of the ratios; "
        "Fashion-MNIST).",
        where="Sec. 7.9", measured=panels("fashion_mnist", [5], misfit("errors")), rule=each(at_most(0.1, partly=0.3)),
        expected=0.0, why="Cross-class means and spread raise them.",
    ),
    says(
        "In the seventh column of the second row some of the C² of Δ and of Δ_cross are close (the share within a "
        "fifth; Fashion-MNIST).",
        where="Sec. 7.9", measured=panels("fashion_mnist", [7], cross_close), rule=each(at_least(0.1, partly=0.01)),
        expected="some", why="The spread raises all of them.",
    ),
    says(
        "The class means have larger magnitude with depth (Spearman's ρ of tr Δ_class with the layer).",
        where="Sec. 7.9", measured=with_depth(magnitude("errors")), rule=each(at_least(0.8, partly=0.3)),
        expected=1.0, why="They are longest in the middle layers: further on, the spread is shorter still.",
    ),
)  # fmt: skip
WEIGHT_PANELS = (
    says(
        "C singular values of W are outliers (how many lie above all without W_class; last layer but one).",
        where="Sec. 7.13", measured=at_layer(outliers("weights", above="off_class"), LAST["weights"]), rule=each(ALL),
        expected=C, why="More directions than those of the class means stand apart, or fewer.",
    ),
    says(
        "The fourth column of the first row shows C outliers of W (how many lie above all without W_class; MNIST).",
        where="Fig. 13", measured=panels("mnist", [4], outliers("weights", above="off_class")), rule=each(ALL),
        expected=C, why="More directions than those of the class means stand apart, or fewer.",
    ),
    says(
        "The second column of the third row shows the biggest outlier of W (σ₁/σ₂; CIFAR-10).",
        where="Fig. 13", measured=panels("cifar10", [2], gap("weights", 1)), rule=each(APART), expected="above 1",
        why="The largest is not far from the second.",
    ),
    says(
        "The third and fourth columns of the third row show where the outliers separate (the first layer with C of "
        "them; CIFAR-10).",
        where="Fig. 13", measured=first_apart("weights", "cifar10"), rule=within(3, 4, partly=(2, 5)),
        expected="3 or 4", why=LATER,
    ),
)  # fmt: skip
