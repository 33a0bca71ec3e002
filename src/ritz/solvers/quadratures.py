"""Lanczos quadratures of a spectrum that can go on: more probes, more steps, and no product made twice."""

from __future__ import annotations

import torch

from ..errors import ArgumentError, check_whole
from ..operators import Operator, orthonormal_columns
from ..risk.memory import memory_budget
from ..spectrum import Eigenpairs
from .eigen import eigenpairs
from .lanczos_recursion import VECTORS, Recursion, Tridiagonal, joined
from .probes import gaussian, source
from .vectors import room

KEPT = 2  # vectors of each probe between two steps
SMALL = 512  # eigenvalues of which a basis is kept where there is room: any number of steps is then right


class LanczosQuadrature:
    """Lanczos recursions of random probes whose state is kept, so that probes and steps can be added.

    What several calls of `extend` have made is what one makes: to the bit where the same probes run in step, else to
    the rounding of products with fewer columns. As many probes run in step as the operator's `room` holds, four vectors
    each, beside the outliers. Between two calls there are two vectors a probe. If they do not fit beside those that
    run, they go from a GPU to main memory, as far as that has room; else they are dropped, and these probes can be
    given no more steps. Up to n = 512 a basis is kept, where there is room for it.

    With outliers, that many eigenpairs of largest |λ|, or those given, are atoms, and the probes see the rest.

    >>> A = ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 1001.0)))
    >>> quadrature = ritz.solvers.LanczosQuadrature(A)
    >>> quadrature.extend(num_probes=2, num_steps=20)
    >>> quadrature.extend(num_probes=4, num_steps=40)
    >>> quadrature
    LanczosQuadrature(n = 1,000, 4 probes × 40 steps, 160 products)
    """

    def __init__(
        self, A: Operator, *, outliers: int | Eigenpairs = 0, generator: torch.Generator | None = None
    ) -> None:
        self.A, self.generator, self.num_steps = A, source(generator), 0
        self.runs: list[Recursion | Tridiagonal] = []  # the latter where the vectors were dropped
        self.pairs = certified(A, outliers, self.generator)
        self._own = self.pairs.num_products if self.pairs is not None and not isinstance(outliers, Eigenpairs) else 0
        self._spare = room(A) - (A.size - self.size)

    @property
    def size(self) -> int:
        """How many eigenvalues are left to the probes."""
        return self.A.size - (0 if self.pairs is None else len(self.pairs))

    @property
    def num_probes(self) -> int:
        """How many probes there are."""
        return sum(run.num_probes for run in self.runs)

    @property
    def num_products(self) -> int:
        """What was multiplied in all, for the outliers too."""
        return self._own + sum(run.num_probes * run.num_steps for run in self.runs)

    def __repr__(self) -> str:
        work = f"{self.num_probes} probes × {self.num_steps} steps, {self.num_products} products"
        return f"LanczosQuadrature(n = {self.A.size:,}, {work})"

    def extend(self, *, num_probes: int | None = None, num_steps: int | None = None) -> None:
        """Go on to so many probes with so many steps each, in all; unless given, as many as there are.

        No more steps are made than there are eigenvalues left to the probes.
        """
        num_probes = self.num_probes if num_probes is None else num_probes
        num_steps = self.num_steps if num_steps is None else num_steps
        self._check_growth(num_probes, num_steps)
        steps = min(num_steps, self.size)
        for run in self.runs if steps > self.num_steps else []:
            assert isinstance(run, Recursion)  # or it was refused
            self._make_room(run.num_probes, besides=run)
            run.to(self.A.device)
            run.extend(self.A, steps)
        self.num_steps = max(steps, self.num_steps)
        while self.size and self.num_probes < num_probes:
            self._start(num_probes - self.num_probes)

    def tridiagonal(self) -> Tridiagonal:
        """The decompositions of all probes."""
        return joined([run if isinstance(run, Tridiagonal) else run.result() for run in self.runs])

    def _start(self, num_probes: int) -> None:
        """Run as many new probes in step as there is room for."""
        count = int(min(num_probes, max(1, self._spare / VECTORS)))
        self._make_room(count)
        longest = self.size if self.size <= SMALL else self.num_steps
        keep_basis = longest == self.size and count * (longest + VECTORS) <= self._spare
        outside = None if self.pairs is None else self.pairs.vectors.T
        run = Recursion.from_starts(gaussian(self.A, count, self.generator), keep_basis=keep_basis, outside=outside)
        run.extend(self.A, self.num_steps)
        self.runs.append(run)

    def _make_room(self, num_probes: int, besides: Recursion | None = None) -> None:
        """Put away the vectors of other probes, where they do not fit beside those of so many that run."""
        here = [
            run for run in self.runs if isinstance(run, Recursion) and run is not besides and run.is_on(self.A.device)
        ]
        if VECTORS * num_probes + KEPT * sum(run.num_probes for run in here) > self._spare:
            self.runs = [self._put_away(run) if run in here else run for run in self.runs]

    def _put_away(self, run: Recursion) -> Recursion | Tridiagonal:
        main = torch.device("cpu")
        if self.A.device == main or run.num_bytes > memory_budget(None, main):
            return run.result().without_basis()
        run.to(main)
        return run

    def _check_growth(self, num_probes: int, num_steps: int) -> None:
        check_whole(num_probes=num_probes, num_steps=num_steps)
        if num_probes < max(1, self.num_probes) or num_steps < max(1, self.num_steps):
            raise ArgumentError(
                f"num_probes={num_probes} and num_steps={num_steps} were asked of {self!r}.",
                "They are totals, of one at least, and what has been made is not taken back.",
                f"Ask for num_probes={max(1, self.num_probes)} and num_steps={max(1, self.num_steps)}, or more.",
            )
        if num_steps > self.num_steps and any(isinstance(run, Tridiagonal) for run in self.runs):
            raise ArgumentError(
                f"num_steps={num_steps} were asked of {self!r}.",
                "There was no room to keep the vectors of all its probes, and without them no step can be made.",
                "Add probes instead: extend(num_probes=...).",
                "Give a new LanczosQuadrature all its steps at once.",
            )


def certified(A: Operator, outliers: int | Eigenpairs, generator: torch.Generator) -> Eigenpairs | None:
    """The outliers given, or so many that are found; None for none."""
    if isinstance(outliers, Eigenpairs):
        orthonormal_columns(A, outliers)
        return outliers if len(outliers) else None
    return eigenpairs(A, outliers, which="magnitude", generator=generator) if outliers else None
