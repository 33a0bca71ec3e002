"""The settings of an analysis: which spectrum is computed, and how finely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import ArgumentError, check_positive, check_tolerance
from ...operators import Operator, functional_hessian, gauss_newton, hessian
from ...risk import Risk
from ...solvers.eigen import SMALL
from ...solvers.small_matrices import COPIES

DEFAULT_EIGENPAIRS = 10  # or all, where there are fewer
EXACT_ROWS = 4096  # eigenvalues that are computed within half a minute
MATRICES = {"hessian": hessian, "gauss-newton": gauss_newton, "functional": functional_hessian}  # H, G, E, as typed
PER_PAIR = 8  # products of a search: five where the largest eigenvalues are well separated, ten in a bulk


@dataclass(frozen=True)
class Settings:
    """What is measured, and how finely.

    >>> Settings(num_probes=4).for_size(3).num_eigenpairs
    3
    """

    operator: Callable[[Risk], Operator] = hessian
    num_eigenpairs: int | None = None  # of largest magnitude, also the outliers of the density; None: 10, or all
    num_probes: int = 8
    num_steps: int = 64
    tolerance: float = 1e-4  # of the eigenpairs' residuals, relative to the largest |λ|
    seed: int = 0
    vectors: bool = False  # whether the record keeps the eigenvectors
    per_layer: bool = False  # whether every layer is measured too, as a diagonal block
    log_spectrum: bool = False  # whether the picture shows the density of log |λ|
    exact_rows: int = EXACT_ROWS  # the largest matrix that is decomposed, where its columns take no more products

    @property
    def operator_name(self) -> str:
        """The name of the function that makes the matrix, whatever is bound to it."""
        function: Any = self.operator
        while isinstance(function, partial):
            function = function.func
        return str(getattr(function, "__name__", type(function).__name__))

    def check(self) -> None:
        """Refuse settings that no analysis could satisfy."""
        why = "A density needs at least one probe and one step."
        check_positive(why, num_probes=self.num_probes, num_steps=self.num_steps)
        check_tolerance(self.tolerance)
        if self.exact_rows < 0:
            seen, way = f"exact_rows={self.exact_rows} was given.", "Pass 0 to estimate every spectrum, or a size."
            raise ArgumentError(seen, "It is the size of the largest matrix that is decomposed.", way)
        if self.seed < 0:
            raise ArgumentError(f"seed={self.seed} was given.", "A seed cannot be negative.", "Pass 0, 1, 2, ...")

    def matrix(self, risk: Risk) -> Operator:
        """The matrix of a risk; refuses one whose size is not the number of parameters."""
        A = self.operator(risk)
        if isinstance(A, Operator) and A.size == risk.size:
            return A
        seen = f"a matrix of size {A.size}" if isinstance(A, Operator) else f"a {type(A).__name__}"
        raise ArgumentError(
            f"{self.operator_name} gave {seen} for {risk.size} parameters.",
            "An analysis needs a matrix of curvature, which has one row for each parameter.",
            "Pass ritz.hessian, ritz.gauss_newton, or a function of yours that returns such an Operator.",
        )

    def for_size(self, size: int) -> Settings:
        """These settings for this many parameters; refuses more eigenpairs than that if they were requested."""
        if self.num_eigenpairs is not None and not 0 <= self.num_eigenpairs <= size:
            raise ArgumentError(
                f"{self.num_eigenpairs} eigenpairs of a matrix of size {size} were requested.",
                "A symmetric matrix has as many as it has rows.",
                f"Ask for 0 to {size}.",
            )
        return self.for_layer(size)

    def estimate(self, size: int) -> tuple[int, int]:
        """The products that an estimate takes: for the eigenpairs, and for the steps of each probe."""
        pairs = self.num_eigenpairs or 0
        search = size if pairs and size <= SMALL else min(size, PER_PAIR * pairs)
        return search, min(self.num_steps, size - pairs)

    def solves(self, size: int, room: float) -> bool:
        """Whether multiplying out the matrix takes no more products than an estimate, and the matrix fits.

        `room` is how many numbers fit into memory.
        """
        search, steps = self.estimate(size)
        return size <= min(self.exact_rows, search + self.num_probes * steps) and COPIES * size**2 <= room

    def for_layer(self, size: int) -> Settings:
        """These settings for a layer, which may have fewer parameters than eigenpairs were asked for."""
        count = DEFAULT_EIGENPAIRS if self.num_eigenpairs is None else self.num_eigenpairs
        return replace(self, num_eigenpairs=min(count, size))
