"""Statements about features, errors and weights of all layers: Figures 7 to 10 and 13."""

from __future__ import annotations

from ..frame.statements import Statement, at_least, at_most, each, near
from .layer_numbers import (
    CROSS,
    LAST,
    LEAST,
    SYMBOLS,
    bulks,
    global_alignment,
    inner,
    linear_error,
    mean_cosine,
    mini_bulk,
    outliers,
    relative_fall,
    residual,
    separation,
    singular_gap,
    spread_of_outliers,
    together,
    whisker,
    whiskers,
)
from .layer_results import C, at_layer, by_layer, titled, with_depth
from .paper import BEYOND, says


def structure_statements(kind: str, figure: str, section: str) -> tuple[Statement, ...]:
    """The statements of Secs 7.5 and 7.8 about class means, of features or of errors."""
    symbol = SYMBOLS[kind]
    return (
        says(
            f"The top C eigenvalues of {symbol} are outliers (how many lie above all that is left without "
            f"{symbol}_class; the last layer with more than C dimensions).",
            where=figure, measured=at_layer(outliers(kind, above="off_class"), LAST[kind]), expected=C,
            rule=each(near(C, relative=0.11, partly=0.3)),
            why="Not all class means are longer than the spread around them, or than cross-class means.",
        ),
        says(
            f"The outliers are attributable to {symbol}_class (how far the largest falls when that is projected out, "
            "over how far it stands above the rest; the last layer with more than C dimensions).",
            where=figure, measured=at_layer(relative_fall(kind), LAST[kind]),
            rule=each(at_least(0.8, partly=0.5)), expected=1.0, why="Something else stands apart, too.",
        ),
        says(
            "The bulk is unaffected by the knockout (median |ln| of the ratio of its k-th eigenvalue behind the "
            "outliers and of the k-th that is left; the last layer with more than C dimensions).",
            where=figure, measured=bulks(kind, LAST[kind]),
            rule=each(at_most(0.1, partly=0.3)), expected=0.0,
            why="The class means reach into the bulk, and part of it goes with them.",
        ),
        says(
            f"The outliers emerge from the bulk with increasing depth (Spearman's ρ of ln {LEAST[kind]} of the class "
            "part over the largest of the within part, with the layer).",
            where=section, measured=with_depth(separation(kind)), rule=each(at_least(0.8, partly=0.3)), expected=1.0,
            why="The separation does not grow with every layer.",
        ),
        says(
            "The largest outlier is attributable to the global mean (cos² of its eigenvector and the mean, in the "
            "third column; the caption names that of Fashion-MNIST).",
            where=figure, measured=at_layer(global_alignment(kind), 2), rule=each(at_least(0.9, partly=0.5)),
            expected=1.0, why="The mean is not much longer than the differences of the class means.",
        ),
    )  # fmt: skip


def whitening(kind: str, figure: str, section: str) -> tuple[Statement, ...]:
    """The statements of Secs 7.6 and 7.9 about the eigenvalues of the class part."""
    symbol = SYMBOLS[kind]
    return (
        says(
            f"The ratio λ₂/λ_C of {symbol}_class decreases with depth (Spearman's ρ with the layer).",
            where=section, measured=whiskers(kind), rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0,
            why="The class means do not become more alike with every layer.",
        ),
        says(
            f"… until all eigenvalues of {symbol}_class are of similar magnitude (λ₂/{LEAST[kind]} in the last layer).",
            where=figure, measured=at_layer(whisker(kind)), rule=each(at_most(3.0, partly=10.0)), expected=1.0,
            why="Some class means stay shorter than others.",
        ),
        says(
            f"The C eigenvalues of {symbol}_class separate from the bulk with increasing depth (Spearman's ρ).",
            where=section, measured=with_depth(separation(kind)), rule=each(at_least(0.8, partly=0.3)), expected=1.0,
            why="The separation does not grow with every layer.",
        ),
    )  # fmt: skip


GENERALISATION = (
    says(
        "The ratio of outliers to bulk predicts layer-wise linear separability (Spearman's ρ over the layers of ln λ_C "
        "of the class part over the largest of the within part, with the test error of a linear classifier there).",
        where="Sec. 1.13", measured=together(separation("features"), linear_error),
        rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0,
        why="Where the class means separate further, a linear classifier does not gain from it.",
    ),
    says(
        "Class means gradually become orthogonal with depth (Spearman's ρ of their mean |cos| with the layer).",
        where="Sec. 1.13", measured=together(mean_cosine, lambda record, data, seed, layer: float(layer)),
        rule=each(at_most(-0.8, partly=-0.3)), expected=-1.0, why="Their angles do not grow with every layer.",
    ),
    says(
        "The standard deviation of the outliers represents the orthogonality of the classes (Spearman's ρ over the "
        "layers of that of ln λ with their mean |cos|).",
        where="Sec. 1.13", measured=together(spread_of_outliers, mean_cosine), rule=each(at_least(0.8, partly=0.3)),
        expected=1.0, why="The eigenvalues differ by the lengths of the class means, too.",
    ),
)  # fmt: skip
ERROR_CROSS = (
    says(
        "Without the class means, C² outliers are left (how many lie above the largest of Δ_within, over C(C - 2); "
        "last layer but one).",
        where="Fig. 9b",
        measured=lambda record: {
            name: value / CROSS for name, value in at_layer(mini_bulk, -2)(record).items()
        },
        rule=each(near(1.0, relative=0.2, partly=0.8)), expected=1.0,
        why="Few cross-class means, or none, are longer than the spread: in the paper's figure, too, some are not.",
    ),
    says(
        "The outliers that are left are attributable to Δ_cross (how far the largest falls when that is projected out, "
        "too, over how far it stands above the rest).",
        where="Fig. 9b",
        measured=at_layer(relative_fall("errors", CROSS, "off_class", "off_class_and_cross"), -2),
        rule=each(at_least(0.8, partly=0.5)), expected=1.0, why="Something else stands apart, too.",
    ),
    says(
        "The bulk is unaffected when Δ_cross is projected out, too (median |ln| of the ratio of its k-th eigenvalue "
        "behind C(C - 2) outliers and of the k-th that is left; last layer but one).",
        where="Fig. 9b",
        measured=bulks("errors", -2, before="off_class", after="off_class_and_cross", taken=CROSS),
        rule=each(at_most(0.1, partly=0.5)), expected=0.0,
        why="Cross-class means that are no outliers lie in the bulk, and part of it goes with them.",
    ),
)  # fmt: skip


WEIGHTS = (
    says(
        "The outliers of W are attributable to W_class (how far the largest singular value falls when that is "
        "projected out, over how far it stands above the rest; last layer but one).",
        where="Fig. 13", measured=at_layer(relative_fall("weights"), -2), rule=each(at_least(0.8, partly=0.5)),
        expected=1.0, why="W is not made of class means alone where training has not come to rest.",
    ),
    says(
        "The bulk is unaffected by the knockout (median |ln| of the ratio of its k-th singular value behind the "
        "outliers and of the k-th that is left; last layer but one).",
        where="Fig. 13", measured=bulks("weights", -2), rule=each(at_most(0.1, partly=0.3)),
        expected=0.0, why="W_class reaches into the bulk, and part of it goes with it.",
    ),
    says(
        "The outliers emerge from the bulk with increasing depth (Spearman's ρ of ln σ_{C-1}/σ_{C+1} with the layer).",
        where="Sec. 7.13",
        measured=with_depth(inner(singular_gap)),
        rule=each(at_least(0.8, partly=0.3)), expected=1.0, why="The gap does not grow with every layer.",
    ),
    says(
        "Setting the gradient to zero is a good account of the weights (largest ‖W + ∇R/η‖/‖W‖ of a layer).",
        where="Sec. 7.13", paper=BEYOND,
        measured=lambda record: titled(record, lambda d: float(by_layer(record, d, residual).max())),
        rule=each(at_most(0.1, partly=0.5)), expected=0.0,
        why="At a small rate, or where batch normalisation lets weights grow freely, training has not come to rest.",
    ),
)  # fmt: skip
