"""Checks of Papyan (2020), Sec. 8: logistic regression on the canonical classification model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from .. import theory
from .check import Check
from .draws import scale, whole

PAPER = "Papyan 2020"
Inputs = tuple[Any, ...]


def expected_fisher(num_inputs: int, num_classes: int, snr: float, error_rate: Any, proportions: Any = None) -> Tensor:
    """E G = Σ_c π_c U_c ⊗ (t² e_c e_cᵀ + I), from its definition, with the rows of W one after another (Lemma 8.1)."""
    C, D = num_classes, num_inputs
    alpha = torch.as_tensor(error_rate, dtype=torch.float64).expand(C)
    pi = torch.ones(C).double() / C if proportions is None else torch.as_tensor(proportions, dtype=torch.float64)
    G = torch.zeros(C * D, C * D, dtype=torch.float64)
    for c in range(C):
        p = alpha[c] / (C - 1) * torch.ones(C).double()
        p[c] = 1 - alpha[c]
        second_moment = torch.eye(D, dtype=torch.float64)
        second_moment[c, c] += snr**2
        G += pi[c] * torch.kron(p.diag() - torch.outer(p, p), second_moment)
    return G


def symmetric(generator: Generator, most: int = 7) -> Inputs:
    """D, C, t, α."""
    C = whole(generator, 2, most)
    alpha = float(torch.rand((), generator=generator, dtype=torch.float64)) * (1 - 1 / C)
    return C + whole(generator, 0, 30), C, scale(generator), alpha


def unequal(generator: Generator) -> Inputs:
    """D, C, t, α_c, π_c."""
    D, C, snr, _ = symmetric(generator)
    alpha = torch.rand(C, generator=generator, dtype=torch.float64) * (1 - 1 / C)
    pi = torch.rand(C, generator=generator, dtype=torch.float64)
    return D, C, snr, alpha, pi / pi.sum()


def _symmetric_degenerate(_: Generator) -> Mapping[str, Inputs]:
    return {
        "two classes": (5, 2, 2.0, 0.3),
        "three classes": (5, 3, 2.0, 0.3),
        "D = C": (4, 4, 2.0, 0.3),
        "D = C = 2": (2, 2, 2.0, 0.3),
        "no error": (6, 4, 2.0, 0.0),
        "guessing": (6, 4, 2.0, 0.75),
        "no signal": (6, 4, 0.0, 0.3),
    }


def _unequal_degenerate(_: Generator) -> Mapping[str, Inputs]:
    third = torch.ones(3).double() / 3
    return {
        "equal after all": (5, 3, 2.0, [0.3, 0.3, 0.3], third),
        "an empty class": (5, 3, 2.0, 0.3, [0.5, 0.5, 0.0]),
        "one class": (5, 3, 2.0, 0.3, [1.0, 0.0, 0.0]),
        "a class without error": (5, 3, 2.0, [0.3, 0.0, 0.2], third),
        "two classes": (2, 2, 2.0, [0.3, 0.1], [0.4, 0.6]),
    }


def _unequal(D: int, C: int, snr: float, error_rate: Any, proportions: Any) -> theory.ClosedForm:
    return theory.logistic_ccm(D, C, snr, error_rate, proportions=proportions)


CHECKS = (
    Check("CCM", PAPER, "Lemma 8.1, Thm 8.1", symmetric, theory.logistic_ccm, expected_fisher, _symmetric_degenerate),
    Check("CCM, unequal classes", PAPER, "Thm 8.1, new", unequal, _unequal, expected_fisher, _unequal_degenerate),
)
