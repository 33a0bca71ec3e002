"""What a check is: a closed form, the dense matrix it must agree with, and how far the two are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ..theory import ClosedForm, compare
from ..theory.closed_form import eigenlines

VALUE_TOLERANCE = 1e-10  # of eigenvalues, relative to max |λ|
VECTOR_TOLERANCE = 1e-9  # of eigenvectors: ‖A z - λ z‖ relative to max |λ|, and |Zᵀ Z - I|


def _nothing(_: Generator) -> Mapping[str, tuple[Any, ...]]:
    return {}


@dataclass(frozen=True)
class Check:
    """One result of one paper: how to draw its input, its closed form, and the dense matrix it must agree with.

    Both functions take the drawn tuple as positional arguments. A scalar result is a closed form of one line
    against a 1 × 1 matrix.
    """

    result: str
    paper: str
    equation: str
    draw: Callable[[Generator], tuple[Any, ...]]
    closed_form: Callable[..., ClosedForm]
    oracle: Callable[..., Float[Tensor, "n n"]]
    degenerate: Callable[[Generator], Mapping[str, tuple[Any, ...]]] = _nothing  # the inputs of special cases, by name
    most_draws: int | None = None  # a limit, where a draw takes long


@dataclass(frozen=True)
class Deviation:
    """How far a closed form is from its oracle, relative to max |λ|."""

    values: float
    vectors: float | None  # the larger of residual and departure from orthonormality; None: no eigenvectors

    @property
    def small(self) -> bool:
        """Whether both are within tolerance."""
        return self.values <= VALUE_TOLERANCE and (self.vectors is None or self.vectors <= VECTOR_TOLERANCE)


def deviation(check: Check, inputs: tuple[Any, ...]) -> Deviation:
    """How far the closed form of a check is from its oracle on one input."""
    closed_form = _with_bases_kept(check.closed_form(*inputs))
    comparison = compare(closed_form, check.oracle(*inputs))
    if comparison.residual is None:
        return Deviation(comparison.value, None)
    groups = [group for group in closed_form.groups if group.basis is not None]
    Z = torch.cat([closed_form.eigenvectors(group) for group in groups], 1)
    skew = float((Z.T @ Z - torch.eye(Z.shape[1], dtype=Z.dtype)).abs().max())
    return Deviation(comparison.value, max(comparison.residual, skew))


def _with_bases_kept(closed_form: ClosedForm) -> ClosedForm:
    """A closed form that computes the eigenvectors of each line only once."""
    kept = [group if group.basis is None else replace(group, basis=cache(group.basis)) for group in closed_form.groups]
    return ClosedForm(kept)


def lines(matrices: Iterable[Float[Tensor, "_ _"]]) -> ClosedForm:
    """All eigenvalues of symmetric matrices with their eigenvectors, as one block-diagonal matrix.

    Two matrices that agree in both are equal, so that results other than spectra can be checked as matrices too.
    """
    block = torch.block_diag(*matrices).double()
    return ClosedForm(eigenlines((block + block.T) / 2, "line", lambda vectors: vectors))
