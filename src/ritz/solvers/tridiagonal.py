"""Lanczos decompositions A Q = Q T + β r eₘᵀ: their Ritz values, and the Gauss quadratures that they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, check_finite

SLOWEST = 0.9  # ratio of two corrections beyond which their sum is not extrapolated
SETTLED = 8  # steps from which on the first of these is no longer that of a single step


@dataclass(frozen=True, repr=False)
class Tridiagonal:
    """Lanczos decompositions A Q = Q T + β r eₘᵀ, one for each of p start vectors; float64 on the CPU.

    If a Krylov space is invariant before step m, the off-diagonal is zero from there on and the diagonal repeats its
    first entry, a point inside the spectrum with no weight.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 3.0, 9.0])))
    >>> nodes, weights = ritz.lanczos(A, torch.ones(4, 1), 4, keep_basis=True).quadrature()
    >>> nodes.round(decimals=3)  # n steps: the eigenvalues
    tensor([[1., 2., 3., 9.]], dtype=torch.float64)
    >>> weights.round(decimals=3)  # each with its share of the start vector
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]], dtype=torch.float64)
    """

    diagonal: Float[Tensor, "p m"]
    off_diagonal: Float[Tensor, "p m-1"]
    residual: Float[Tensor, " p"]  # β
    basis: Float[Tensor, "p n m"] | None = None  # on the operator's device; zero columns after an invariant space
    marks: Float[Tensor, "p m d"] | None = None  # S Q for a few linear forms S: what was seen of each vector

    def __repr__(self) -> str:
        with_basis = "" if self.basis is None else ", with its basis"
        return f"Tridiagonal({self.num_probes} × {self.num_steps} steps, β up to {self.residual.max():.2g}{with_basis})"

    @property
    def num_probes(self) -> int:
        """p, the start vectors."""
        return len(self.diagonal)

    @property
    def num_steps(self) -> int:
        """m, the steps of each."""
        return self.diagonal.shape[1]

    def eigh(self) -> tuple[Float[Tensor, "p m"], Float[Tensor, "p m m"]]:
        """Ritz values, ascending, and the eigenvectors of T in columns."""
        scale = torch.cat([self.diagonal, self.off_diagonal], dim=1).abs().amax(1, keepdim=True)
        check_finite(float(scale.max()))
        scale = torch.where(scale > 0, scale, 1.0)
        rows = zip((self.diagonal / scale).numpy(), (self.off_diagonal / scale).numpy(), strict=True)
        values, S = zip(*(_tridiagonal_eigh(*row) for row in rows), strict=True)
        return torch.from_numpy(np.stack(values)) * scale, torch.from_numpy(np.stack(S))

    @cached_property
    def ends(self) -> tuple[Float[Tensor, "p m"], Float[Tensor, "p m"], Float[Tensor, "p m"]]:
        """Ritz values, and the first and last entries of the eigenvectors: all that most results need, found once."""
        return self._seen[:3]

    @property
    def ritz_marks(self) -> Float[Tensor, "p m d"] | None:
        """The marks of the Ritz vectors, each times the first entry of its eigenvector: of what it has of the start."""
        return self._seen[3]

    @cached_property
    def _seen(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        values, S = self.eigh()
        marks = None if self.marks is None else S[:, 0, :, None] * (S.mT @ self.marks)
        return values, S[:, 0].clone(), S[:, -1].clone(), marks

    def integral(self, f: Callable[[Tensor], Tensor]) -> Float[Tensor, " p"]:
        """∫ f by each probe's Gauss rule."""
        nodes, weights = self.quadrature()
        return (weights * f(nodes)).sum(1)

    def truncation_error(self, f: Callable[[Tensor], Tensor]) -> float:
        """How much more steps would change the mean of ∫ f, if each doubling reduced the change as the last one did.

        This is a guess from the rules of m, m/2 and m/4 steps, not a bound; with fewer than eight, little is assumed to
        be gained by a doubling. It is zero where every space is exhausted.
        """
        a, b, m = self.diagonal[:, 0], self.residual, self.diagonal.shape[1]
        if not bool(b.any()):
            return 0.0
        if m == 1:
            return abs(float((f(a + b) + f(a - b) - 2 * f(a)).mean())) / 2  # f'' β²/2
        last, half, quarter = (float(self.after(max(m // part, 1)).integral(f).mean()) for part in (1, 2, 4))
        change, before = abs(half - last), abs(quarter - half)
        ratio = min(change / before, SLOWEST) if before and m >= SETTLED else SLOWEST
        return change * max(1.0, ratio / (1 - ratio))

    def after(self, num_steps: int) -> Tridiagonal:
        """The decompositions after fewer steps, without a basis."""
        if num_steps >= self.diagonal.shape[1]:
            return self
        off, marks = self.off_diagonal, None if self.marks is None else self.marks[:, :num_steps]
        return Tridiagonal(self.diagonal[:, :num_steps], off[:, : num_steps - 1], off[:, num_steps - 1], marks=marks)

    def quadrature(self) -> tuple[Float[Tensor, "p m"], Float[Tensor, "p m"]]:
        """Nodes θ and weights y[1]² of the Gauss rule for Σᵢ (vᵀuᵢ)² δ(λ - λᵢ); exact for degrees below 2m."""
        nodes, first, _ = self.ends
        weights = first**2
        return nodes.clone(), weights / weights.sum(1, keepdim=True)

    def without_basis(self) -> Tridiagonal:
        """The decompositions without their basis."""
        return replace(self, basis=None)

    def padded(self, num_steps: int) -> Tridiagonal:
        """The decompositions without basis, padded to more steps, which change nothing: every space was invariant."""
        if num_steps < self.num_steps:
            raise ArgumentError(
                f"{num_steps} steps were requested.",
                f"{self.num_steps} have been made already.",
                "For fewer, use `after`.",
            )
        if (more := num_steps - self.num_steps) == 0:
            return self.without_basis()
        if bool(self.residual.any()):
            raise ArgumentError(
                f"{num_steps} steps were requested, of which {self.num_steps} were made.",
                "The spaces are not invariant yet: only products can give the coefficients of the next steps.",
                "Make the steps: lanczos(A, starts, num_steps).",
            )
        off = torch.cat([self.off_diagonal, self.residual[:, None]], dim=1)
        zeros = torch.zeros(len(off), more, dtype=torch.float64)
        diagonal = torch.cat([self.diagonal, self.diagonal[:, :1] + zeros], dim=1)
        marks = None if self.marks is None else torch.nn.functional.pad(self.marks, (0, 0, 0, more))
        return Tridiagonal(diagonal, torch.cat([off, zeros[:, 1:]], dim=1), zeros[:, 0], marks=marks)


def joined(runs: list[Tridiagonal]) -> Tridiagonal:
    """The decompositions of several runs as those of one run, as long as the longest."""
    longest = max(run.diagonal.shape[1] for run in runs)
    runs = [run.padded(longest) for run in runs]
    marks = [run.marks for run in runs if run.marks is not None]
    return Tridiagonal(
        torch.cat([run.diagonal for run in runs]),
        torch.cat([run.off_diagonal for run in runs]),
        torch.cat([run.residual for run in runs]),
        marks=torch.cat(marks) if len(marks) == len(runs) else None,
    )


def _tridiagonal_eigh(diagonal: np.ndarray, off_diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and orthonormal eigenvectors of a symmetric tridiagonal matrix, in O(m²) where LAPACK manages."""
    from scipy.linalg.lapack import dstevd  # importing it takes longer than all of ritz

    if len(diagonal) == 1:
        return diagonal, np.ones((1, 1))
    values, S, failures = dstevd(diagonal, off_diagonal)
    if not failures and np.abs((S**2).sum(1) - 1).max() < 1e-8:  # rows of an orthogonal matrix
        return values, S
    # It fails on rare clusters; the dense solver does not.
    return np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
