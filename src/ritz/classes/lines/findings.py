"""The findings of an attribution in words, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from ...errors import listed
from ...solvers.vectors import SMALLEST
from ...spectrum import Spectrum

NAMED = 8  # classes that a sentence names
ONE, NEAR_ONE, NEAR_ZERO = 0.95, 0.8, 0.2  # overlaps that are called "lie in", "lie mostly in" and "do not lie in"


def about_outliers(
    C: int, values: Float[Tensor, " k"], num_outliers: int, floor: float, class_overlap: float | None
) -> list[str]:
    """Which of the largest eigenvalues of G stand apart, and where their eigenvectors lie."""
    stand = "stands" if num_outliers == 1 else "stand"
    least = "; the largest is never below it" if num_outliers == 1 else ""  # G_class is not negative
    sentences = [
        f"{num_outliers} of the {C} largest eigenvalues of G {stand} above all that is left without G_class{least}."
    ]
    if len(values) > C and float(values[C]) > floor:
        sentences.append(f"Eigenvalue {C} of G is {float(values[C - 1] / values[C]):.3g} times eigenvalue {C + 1}.")
    if class_overlap is not None:
        where = _graded(class_overlap, "lie in", "lie mostly in", "lie partly in", "do not lie in")
        top = min(C, len(values))
        sentences.append(
            f"The top {top} eigenvectors of G {where} the span of the class means: overlap {class_overlap:.3f}."
        )
    return sentences


def about_absent_classes(weights: Float[Tensor, " C"]) -> list[str]:
    """Which classes no example belongs to, as among the first ones of sorted data; no sentence if there are none."""
    absent = [str(c) for c in (weights <= 0).nonzero()[:, 0].tolist()]
    if not absent:
        return []
    have, are = ("has", "it is") if len(absent) == 1 else ("have", "they are")
    return [
        f"{len(absent):,} of the {len(weights):,} classes {have} no example that counts: {are} "
        f"{listed(absent, NAMED)}. There are as many fewer class means."
    ]


def about_knockouts(spectra: Mapping[str, Spectrum]) -> list[str]:
    """How far the largest eigenvalue of G falls with each of its parts."""
    largest = {name: spectrum.range[1] for name, spectrum in spectra.items()}
    top, left = largest.pop("G"), largest.get("G off G_class")
    if top <= SMALLEST:
        return ["G is zero to rounding: the network is sure of every example."]
    by = {name.removeprefix("G - "): 1 - value / top for name, value in largest.items() if name.startswith("G - ")}
    falls = ", ".join(f"{max(0.0, share):.1%} without {name}" for name, share in by.items())
    sentences = [f"The largest eigenvalue of G falls by {falls}."]
    if left is not None:
        sentences.append(f"Off the span of the class means it falls from {top:.3g} to {left:.3g}.")
    return sentences


def about_the_mini_bulk(C: int, values: Float[Tensor, " r"] | None, edge: float, floor: float) -> list[str]:
    """How many eigenvalues G_cross has, and how many lie above the edge of G_within; no sentence if it has none."""
    if values is None:
        return []
    rank, above = (int((values > bound).sum()) for bound in (floor, max(floor, edge)))
    has = "1 eigenvalue that is" if rank == 1 else f"{rank:,} eigenvalues that are"
    return [
        f"G_cross by itself has {has} not zero, of at most C(C - 2) = {C * (C - 2):,}; above {edge:.3g}, "
        f"the largest eigenvalue of G_within, it has {above}."
    ]


def about_the_hessian(count: int, overlap: float, share: float) -> list[str]:
    """How near the top eigenvectors of H are to those of G, and how much E = H - G adds to their eigenvalues."""
    words = "span nearly the same space as", "share most of their span with", "share a part of their span with"
    how = _graded(overlap, *words, "lie apart from")
    return [
        f"The top {count} eigenvectors of H {how} those of G: overlap {overlap:.3f}.",
        f"On average E = H - G contributes {round(share, 3) + 0.0:.1%} of the top {count} eigenvalues of H.",
    ]


def _graded(overlap: float, whole: str, most: str, part: str, none: str) -> str:
    """The one of four phrases that describes this overlap."""
    if overlap <= NEAR_ZERO:
        return none
    return whole if overlap >= ONE else most if overlap >= NEAR_ONE else part
