"""Lanczos quadratures of a spectrum that can be refined by more probes and steps, with no product made twice."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import ArgumentError, ConvergenceWarning, check_positive, check_whole, warn_user
from ..operators import Operator, orthonormal_columns
from ..risk.memory import memory_budget
from ..spectrum import Eigenpairs, Spectrum
from .assembly import spectrum_from
from .eigen import eigenpairs
from .lanczos_recursion import VECTORS, Recursion, in_step
from .probes import source
from .tridiagonal import Tridiagonal, joined
from .vectors import room

MAIN = torch.device("cpu")
KEPT = 2  # vectors of each probe between two steps
FIRST = (2, 16)  # probes and steps before there is a bound to look at
DENSE = 4096  # rows of which all eigenvalues are computed, in seconds
COPIES = 6  # of a dense matrix, in its own precision, while its eigenvalues are computed
MOST = 4096  # products that a tolerance may take unless a limit is given: four times a density's
SMALL = 512  # eigenvalues of which a basis is kept where there is room: any number of steps is then right


class LanczosQuadrature:
    """Lanczos recursions of random probes whose state is kept, so that probes and steps can be added.

    Several calls of `extend` give the same as one: to the bit if the same probes run together, else to the rounding of
    products with fewer columns. As many probes run in step as the operator's `room` holds, four vectors
    each, beside the outliers. Between calls, two vectors a probe are kept. If they do not fit beside new probes, they
    are moved from a GPU to main memory as far as there is room; else they are dropped, and these probes cannot make
    more steps. Probes whose vectors are kept can, if need be fewer at a time. Up to n = 512 a basis is kept if there is
    room for it. With outliers, that many eigenpairs of largest |λ|, or those given, are atoms, and the probes see the
    rest.

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
        self.runs: list[Recursion | Tridiagonal] = []  # the latter if the vectors were dropped
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
        """The number of products in total, including those for the outliers."""
        return self._own + sum(run.num_probes * run.num_steps for run in self.runs)

    def __repr__(self) -> str:
        work = f"{self.num_probes} probes × {self.num_steps} steps, {self.num_products} products"
        return f"LanczosQuadrature(n = {self.A.size:,}, {work})"

    def extend(self, *, num_probes: int | None = None, num_steps: int | None = None) -> None:
        """Go on to this many probes in total, with this many steps each; unless given, the current numbers.

        No more steps are made than there are eigenvalues left to the probes.
        """
        num_probes = self.num_probes if num_probes is None else num_probes
        num_steps = self.num_steps if num_steps is None else num_steps
        self._check_growth(num_probes, num_steps)
        if (steps := min(num_steps, self.size)) > self.num_steps:
            self._go_on(steps)
            self.num_steps = steps
        while self.size and self.num_probes < num_probes:
            self._start(num_probes - self.num_probes)

    def refine(self, tolerance: float, *, rate: float = 0.95, max_products: int | None = None) -> Spectrum:
        """Add steps and probes until the spectrum's `wasserstein_bound` is at most `tolerance` · max|λ|; the spectrum.

        It adds whichever lowers the bound more per product: steps reduce the error of the quadratures, probes the Monte
        Carlo error. If new probes would push out the vectors of others, steps come first. At most `max_products` are
        made in all, 4,096 unless given: if they do not suffice, what was reached is returned, and a ConvergenceWarning
        says what would. A matrix that has no more columns than products would be made, and 4,096 at most, is multiplied
        out instead, if there is room, and its spectrum is exact.
        """
        limit = self._limit(tolerance, max_products)
        probes, steps = max(self.num_probes, FIRST[0]), max(self.num_steps, min(FIRST[1], self.size))
        while not self._is_dear(probes, steps, limit):
            self.extend(**self._within(probes, steps, limit))
            spectrum = self.spectrum()
            parts, goal = spectrum.wasserstein_parts(rate=rate), tolerance * max(map(abs, spectrum.range))
            if sum(parts) <= goal:
                return spectrum
            probes, steps = self._next(*parts, goal)
            same = {"num_probes": self.num_probes, "num_steps": self.num_steps}
            if self._within(probes, steps, limit) == same and not self._is_dear(probes, steps, limit):
                self._warn(*parts, goal, tolerance)
                return spectrum
        return self._exact()

    def spectrum(self) -> Spectrum:
        """The spectrum that the probes have seen so far."""
        if not self.size and self.pairs is not None:
            values = self.pairs.values.double().cpu()
            spectrum = Spectrum.of_eigenvalues(values, precision=torch.finfo(self.A.dtype).eps)
            return replace(spectrum, num_products=self.num_products)
        self._check_growth(self.num_probes, self.num_steps)
        return replace(spectrum_from(self.tridiagonal(), self.pairs, self.A), num_products=self.num_products)

    def tridiagonal(self) -> Tridiagonal:
        """The decompositions of all probes."""
        if not self.runs:
            raise ArgumentError("No probe has run yet.", "There is nothing to decompose.", "Call `extend` first.")
        results = [run if isinstance(run, Tridiagonal) else run.result() for run in self.runs]
        return joined([result.after(self.num_steps) for result in results])  # some are ahead after an interruption

    def _start(self, num_probes: int) -> None:
        """Run as many new probes together as there is room for."""
        count = in_step(num_probes, self._spare)
        self._make_room(count)
        longest = self.size if self.size <= SMALL else self.num_steps
        outside = None if self.pairs is None else self.pairs.vectors.T
        bases = sum(own.num_probes for own in self._kept() if own.basis is not None)
        spare = self._spare - bases * (self.size + VECTORS)
        run = Recursion.of_probes(self.A, count, longest, self.generator, outside, spare)
        run.extend(self.A, self.num_steps)
        self.runs.append(run)

    def _go_on(self, num_steps: int) -> None:
        """Give every probe this many steps, fewer probes at a time if not all fit beside the vectors that are kept."""
        runs, staying = self._kept(), self._here()
        if any(run.num_probes > self._columns(run, staying) for run in runs) and self._have_another_place(staying):
            for run in staying:
                run.to(MAIN)
            staying = []
        runs = [part for run in runs for part in run.parts(self._columns(run, staying))]
        self.runs = [*runs]
        for run in runs:
            place = run.current.device
            run.to(self.A.device)
            run.extend(self.A, num_steps)
            run.to(place)

    def _columns(self, run: Recursion, staying: list[Recursion]) -> int:
        """How many probes of a run can step at a time beside the vectors kept on the device; at least one."""
        free = self._spare - KEPT * sum(one.num_probes for one in staying)
        return int(min(run.num_probes, max(1, free / (VECTORS - KEPT if run in staying else VECTORS))))

    def _make_room(self, num_probes: int) -> None:
        """Move away or drop the vectors of other probes if they do not fit beside those of this many new ones."""
        here = self._here()
        if VECTORS * num_probes + KEPT * sum(run.num_probes for run in here) > self._spare:
            self.runs = [self._put_away(run) if run in here else run for run in self.runs]

    def _put_away(self, run: Recursion) -> Recursion | Tridiagonal:
        if not self._have_another_place([run]):
            return run.result().without_basis()
        run.to(MAIN)
        return run

    def _kept(self) -> list[Recursion]:
        """The runs whose vectors are kept."""
        return [run for run in self.runs if isinstance(run, Recursion)]

    def _here(self) -> list[Recursion]:
        """The runs whose vectors are on the operator's device."""
        return [run for run in self._kept() if run.is_on(self.A.device)]

    def _have_another_place(self, runs: list[Recursion]) -> bool:
        """Whether main memory is a different place, and has room for their vectors."""
        return self.A.device.type != MAIN.type and sum(run.num_bytes for run in runs) <= memory_budget(None, MAIN)

    def _next(self, quadrature: float, random: float, goal: float) -> tuple[int, int]:
        """The next numbers of probes and steps, at most twice the current ones; unchanged if neither would help."""
        probes, steps = self.num_probes, self.num_steps
        can_step = steps < self.size and len(self._kept()) == len(self.runs)
        is_full = 2 * VECTORS * probes > self._spare
        if can_step and quadrature > goal / 3 and (is_full or quadrature > random / 2):  # a/m + b/√p is least at a half
            return probes, min(2 * steps, math.ceil(3 * steps * quadrature / goal), self.size)
        if quadrature >= goal and not can_step:
            return probes, steps
        needed = math.ceil(probes * (random / max(goal - quadrature, goal / 3)) ** 2)
        return min(2 * probes, max(probes + 1, needed)), steps

    def _within(self, probes: int, steps: int, limit: int) -> dict[str, int]:
        """The next numbers, reduced if the limit on products does not allow them."""
        spare = limit - self._own
        if steps > self.num_steps and self.num_probes:
            return {"num_probes": probes, "num_steps": max(self.num_steps, min(steps, spare // probes))}
        return {"num_probes": max(self.num_probes, min(probes, spare // steps)), "num_steps": steps}

    def _is_dear(self, probes: int, steps: int, limit: int) -> bool:
        """Whether multiplying out the matrix costs no more, is allowed, and fits into memory."""
        most = min(self._own + probes * steps, limit - self.num_products, self._spare / COPIES, DENSE)
        return self.A.size <= most

    def _exact(self) -> Spectrum:
        """The eigenvalues of the whole matrix, from a product with each of its columns."""
        matrix, made = self.A.dense(), self.num_products
        return replace(Spectrum.of_matrix((matrix + matrix.T) / 2), num_products=made + self.A.size)

    def _limit(self, tolerance: float, max_products: int | None) -> int:
        check_positive("It is a distance over max|λ|.", tolerance=tolerance)
        check_whole(max_products=max_products)
        least = self._own + max(self.num_probes, FIRST[0]) * max(self.num_steps, min(FIRST[1], self.size))
        limit = max(MOST, least) if max_products is None else max_products
        if limit < least:
            raise ArgumentError(
                f"max_products={limit} were given for {self!r}.",
                f"A run to a tolerance begins with {FIRST[0]} probes of {FIRST[1]} steps, after the outliers.",
                f"Allow max_products={least}, or leave it out.",
            )
        return limit

    def _warn(self, quadrature: float, random: float, goal: float, tolerance: float) -> None:
        reached = tolerance * (quadrature + random) / goal
        steps = self.num_steps * max(1.0, 3 * quadrature / goal)
        products = self._own + 2 * steps * self.num_probes * max(1.0, 1.5 * random / goal) ** 2
        warn_user(
            f"The spectrum is known to a Wasserstein distance of {reached:.2g} max|λ|, not to the requested "
            f"{tolerance:g}, after "
            f"{self.num_products} products: {self.num_probes} probes × {self.num_steps} steps.\n"
            f"  - Pass max_products={math.ceil(products)}, or tolerance={1.05 * reached:.2g}.",
            ConvergenceWarning,
        )

    def _check_growth(self, num_probes: int, num_steps: int) -> None:
        check_whole(num_probes=num_probes, num_steps=num_steps)
        if num_probes < max(1, self.num_probes) or num_steps < max(1, self.num_steps):
            raise ArgumentError(
                f"num_probes={num_probes} and num_steps={num_steps} were requested from {self!r}.",
                "They are totals: at least one of each, and no fewer than have been made already.",
                f"Ask for num_probes={max(1, self.num_probes)} and num_steps={max(1, self.num_steps)}, or more.",
            )
        if num_steps > self.num_steps and len(self._kept()) < len(self.runs):
            raise ArgumentError(
                f"num_steps={num_steps} were requested from {self!r}.",
                "There was no memory to keep the vectors of all its probes, and no step can be made without them.",
                "Add probes instead: extend(num_probes=...).",
                "Give a new LanczosQuadrature all its steps at once.",
            )


def certified(
    A: Operator, outliers: int | Eigenpairs, generator: torch.Generator, checkpoint: Path | None = None
) -> Eigenpairs | None:
    """The outliers given, or this many that are searched for; None for none."""
    if isinstance(outliers, Eigenpairs):
        orthonormal_columns(A, outliers)
        return outliers if len(outliers) else None
    if not outliers:
        return None
    return eigenpairs(A, outliers, which="magnitude", generator=generator, checkpoint=checkpoint)
