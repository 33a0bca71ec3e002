"""Multinomial logistic regression on the canonical classification model: outliers, mini-bulk and bulk in closed form.

Papyan (2020), Sec. 8 and App. B: inputs x = t e_c + z with z ~ N(0, I), and a classifier W (C × D) that gives every
example of class c the probability 1 - α of c and α/(C - 1) of each other class. The model is linear: the Hessian is G.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, check_number
from .bases import complement
from .closed_form import ClosedForm, Group


def logistic_ccm(
    num_inputs: int,
    num_classes: int,
    snr: float,
    error_rate: float | Sequence[float] | Tensor,
    *,
    proportions: Sequence[float] | Tensor | None = None,
) -> ClosedForm:
    """λ = α/(C-1)·(t²(1-α) + β) × C, α/(C-1)·(t²/C + β) × C(C-2), α/(C-1)·β × (D-C)(C-1), 0 × D, β = 2 - αC/(C-1).

    The expected G: t is `snr`, α is `error_rate`. Where α is one for each class, or the classes have unequal
    `proportions` π_c, the lines are those of π_c t²U_c + Ū for each class, and of Ū with multiplicity D - C.
    Eigenvectors are in the coordinates of W, row by row. Papyan (2020), Def. 8.2, Lemma 8.1 and Thm 8.1; unequal
    classes are not in the paper.

    >>> logistic_ccm(10, 3, 5.0, 0.1)
    ClosedForm(30 eigenvalues, 4 lines)
      outliers     1.2175   × 3
      mini-bulk  0.509167   × 3
      bulk         0.0925  × 14
      zero              0  × 10
    """
    alpha, pi = _checked(num_inputs, num_classes, error_rate, proportions)
    if proportions is None and isinstance(error_rate, int | float):
        return _symmetric(num_inputs, num_classes, snr**2, float(error_rate))
    U = class_curvatures(num_classes, alpha)
    mean = torch.einsum("c,cij->ij", pi, U)
    B = complement(U.new_ones(num_classes, 1), num_classes - 1)  # U_c 𝟙 = 0: contrasts between classes are all there is
    groups = []
    for c in range(num_classes):
        values, vectors = torch.linalg.eigh(B.T @ (pi[c] * snr**2 * U[c] + mean) @ B)
        names = [f"class {c + 1}, outlier", *(f"class {c + 1}, mini-bulk {i}" for i in range(1, num_classes - 1))]
        groups += [
            Group(name, float(value), 1, _basis(num_inputs, (B @ v)[:, None], [c]))
            for name, value, v in zip(names, values.flip(0), vectors.flip(1).T, strict=True)
        ]
    values, vectors = torch.linalg.eigh(B.T @ mean @ B)
    beyond = range(num_classes, num_inputs)
    groups += [
        Group(f"bulk {i + 1}", float(value), len(beyond), _basis(num_inputs, (B @ v)[:, None], beyond))
        for i, (value, v) in enumerate(zip(values.flip(0), vectors.flip(1).T, strict=True))
    ]
    return ClosedForm([*groups, _zeros(num_inputs, num_classes)])


def class_curvatures(num_classes: int, error_rate: Float[Tensor, " c"]) -> Float[Tensor, "c c c"]:
    """U_c = diag(p_c) - p_c p_cᵀ, of rank C - 1 at most as U_c 𝟙 = 0. Papyan (2020), Lemma 8.1, which says "rank C"."""
    eye = torch.eye(num_classes, dtype=torch.float64)
    p = (1 - error_rate)[:, None] * eye + (error_rate / (num_classes - 1))[:, None] * (1 - eye)
    others = p[:, :, None] * p[:, None, :] * (1 - eye)
    return torch.diag_embed(others.sum(2)) - others  # p - p² would cancel where p is nearly one


@dataclass(frozen=True)
class Gaps:
    """Ratios between the parts of the spectrum; one where they touch.

    >>> ccm_gaps(4, 2.0, 0.0)
    Gaps(outliers_to_mini_bulk=2.0, outliers_to_bulk=3.0, mini_bulk_to_bulk=1.5)
    """

    outliers_to_mini_bulk: float
    outliers_to_bulk: float
    mini_bulk_to_bulk: float


def ccm_gaps(num_classes: int, snr: float, error_rate: float) -> Gaps:
    """(t²(1-α) + β)/(t²/C + β), (t²(1-α) + β)/β and (t²/C + β)/β: the ratios between the lines of `logistic_ccm`.

    From these Papyan (2020), Sec. 8.2 reads misclassification. With α fixed all three grow with t. With t fixed a
    larger α brings the outliers down but takes the mini-bulk further from the bulk, so that ratio follows the
    misclassification through t alone. Two classes have no mini-bulk.

    >>> round(ccm_gaps(3, 5.0, 0.1).outliers_to_bulk, 6)
    13.162162
    """
    _checked(num_classes, num_classes, error_rate, None)
    check_number(snr=snr)
    beta = 2 - error_rate * num_classes / (num_classes - 1)
    outliers, mini_bulk = snr**2 * (1 - error_rate) + beta, snr**2 / num_classes + beta
    return Gaps(outliers / mini_bulk, outliers / beta, mini_bulk / beta)


def ccm_error_rate(outliers: float, mini_bulk: float, bulk: float, num_classes: int) -> float:
    """α = 1 - (λ_outliers - λ_bulk)/(C(λ_mini-bulk - λ_bulk)): misclassification from three eigenvalues, exactly.

    Papyan (2020), Sec. 8.2 has that the gaps are predictive; Thm 8.1 solved for α has how.

    >>> lines = {group.name: group.value for group in logistic_ccm(10, 3, 5.0, 0.1).groups}
    >>> round(ccm_error_rate(lines["outliers"], lines["mini-bulk"], lines["bulk"], 3), 9)
    0.1
    """
    _check_classes(num_classes, num_classes)
    check_number(outliers=outliers)
    if not outliers >= mini_bulk > bulk >= 0:
        raise ArgumentError(
            f"Outliers at {outliers:.4g}, mini-bulk at {mini_bulk:.4g} and bulk at {bulk:.4g} were given.",
            "Their order is outliers ≥ mini-bulk > bulk ≥ 0; with no signal (t = 0) or no error (α = 0) they coincide.",
            "Pass the values of three lines that do not coincide.",
        )
    return 1 - (outliers - bulk) / (num_classes * (mini_bulk - bulk))


def _symmetric(D: int, C: int, s: float, alpha: float) -> ClosedForm:
    """Thm 8.1 as printed; its eigenvectors dW = v e_cᵀ, v a contrast of class c with the others or among the others."""
    beta, factor = 2 - alpha * C / (C - 1), alpha / (C - 1)
    eye, ones = torch.eye(C, dtype=torch.float64), torch.ones(C, 1, dtype=torch.float64)
    against = [(C * eye[:, c : c + 1] - ones) / (C * (C - 1)) ** 0.5 for c in range(C)]
    among = [complement(torch.cat([eye[:, c : c + 1], ones], 1), C - 2) for c in range(C)]
    contrasts = complement(ones, C - 1)
    return ClosedForm(
        [
            Group("outliers", factor * (s * (1 - alpha) + beta), C, _each(D, against)),
            Group("mini-bulk", factor * (s / C + beta), C * (C - 2), _each(D, among)),
            Group("bulk", factor * beta, (D - C) * (C - 1), _basis(D, contrasts, range(C, D))),
            _zeros(D, C),
        ]
    )


def _zeros(D: int, C: int) -> Group:
    return Group("zero", 0.0, D, _basis(D, torch.full((C, 1), C**-0.5, dtype=torch.float64), range(D)))


def _each(D: int, frames: Sequence[Tensor]) -> Callable[[int], Tensor]:
    """The vectors v e_cᵀ for the columns v of the c-th frame, class after class."""
    pieces = [_basis(D, frame, [c]) for c, frame in enumerate(frames)]
    return lambda count: torch.cat([piece(f.shape[1]) for piece, f in zip(pieces, frames, strict=True)], 1)[:, :count]


def _basis(D: int, frame: Float[Tensor, "c q"], inputs: Sequence[int]) -> Callable[[int], Tensor]:
    """The vectors v e_dᵀ (C × D, flat) for the given inputs d and the columns v of the frame, input after input."""

    def vectors(count: int) -> Tensor:
        q = max(frame.shape[1], 1)
        V = frame.new_zeros(len(frame), D, count)
        for n in range(count):
            V[:, inputs[n // q], n] = frame[:, n % q]
        return V.flatten(0, 1)

    return vectors


def _check_classes(D: int, C: int) -> None:
    if not 2 <= C <= D:
        raise ArgumentError(
            f"{C} classes in {D} dimensions were given.",
            "The model has at least two classes, each with its own coordinate axis (Papyan 2020, Def. 8.1).",
            "Take num_inputs ≥ num_classes ≥ 2.",
        )


def _checked(
    D: int, C: int, error_rate: float | Sequence[float] | Tensor, proportions: Sequence[float] | Tensor | None
) -> tuple[Tensor, Tensor]:
    _check_classes(D, C)
    alpha = torch.as_tensor(error_rate, dtype=torch.float64)
    if alpha.shape not in ((), (1,), (C,)):
        raise ArgumentError(
            f"Error rates of shape {tuple(alpha.shape)} were given for {C} classes.",
            "There must be one for all classes, or one for each.",
            f"Pass a number, or {C} of them.",
        )
    alpha = alpha.expand(C)
    pi = torch.full((C,), 1 / C, dtype=torch.float64)
    pi = pi if proportions is None else torch.as_tensor(proportions, dtype=torch.float64)
    if not bool(((alpha >= 0) & (alpha <= 1 - 1 / C + 1e-12)).all()):
        raise ArgumentError(
            f"Error rates from {float(alpha.min()):.4g} to {float(alpha.max()):.4g} were given for {C} classes.",
            "α lies between 0 and 1 - 1/C, the rate of guessing (Papyan 2020, Def. 8.2).",
            "Give the misclassification rate as a fraction, not in percent.",
        )
    if pi.shape != (C,) or bool((pi < 0).any()) or abs(float(pi.sum()) - 1) > 1e-9:
        raise ArgumentError(
            f"Class proportions of shape {tuple(pi.shape)} and sum {float(pi.sum()):.6g} were given for {C} classes.",
            "There is one for each class, none negative, with sum one.",
            "Divide the class counts by their sum.",
        )
    return alpha, pi
