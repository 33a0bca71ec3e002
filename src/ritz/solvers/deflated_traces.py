"""The trace of an operator in resumable steps: exact on a few directions, by random signs on the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import check_finite
from ..operators import Operator
from ..record.checkpoints import State
from ..record.layouts import check_arrays, check_facts, like
from ..spectrum import Estimate
from .probes import BLOCK, gaussian, is_settled, mean_of, signs, unit_products
from .resumption import Resumption
from .vectors import check_orthonormal, check_range, dots, product, room

DIRECTIONS = 12  # vectors in a file at most
SHARE = 4  # one product in this many goes into a direction, and another into its energy


@dataclass(eq=False)
class Course:
    """The results so far: the directions, their energies qᵀAq, and the samples from their complement."""

    rows: Float[Tensor, "m n"]  # A ω of random ω; the orthonormal basis of their span once it is whole
    energies: Float[Tensor, " j"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    samples: Float[Tensor, " s"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    is_whole: bool = False
    count: int = 0  # the final number of directions
    block: int = BLOCK  # vectors multiplied at a time, which is kept: a resumed run may have other room

    @classmethod
    def of(cls, A: Operator, budget: int, generator: torch.Generator, file: Resumption | None) -> Course:
        """The course in the file, or a new one."""
        if file is not None and file.under_way is not None:
            return file.read(partial(cls._of_state, A, budget, generator))
        rows, spare = torch.zeros(0, A.size, dtype=A.dtype, device=A.device), room(A)
        count = int(min(DIRECTIONS, budget // SHARE, spare / 2))
        return cls(rows, count=count, block=int(min(BLOCK, max(1, (spare - count) / 4))))

    @classmethod
    def _of_state(
        cls,
        A: Operator,
        budget: int,
        generator: torch.Generator,
        arrays: Mapping[str, Tensor],
        header: Mapping[str, Any],
    ) -> Course:
        _check_counts(A, budget, header)
        layout = {"rows": like(A.dtype, header["rows"], A.size), "generator": generator.get_state()}
        check_arrays(arrays, layout | {name: like(torch.float64, header[name]) for name in ("energies", "samples")})
        if header["is_whole"]:
            check_orthonormal(arrays["rows"])
        generator.set_state(arrays["generator"])
        made = arrays["rows"].to(A.device, A.dtype), arrays["energies"], arrays["samples"]
        return cls(*made, header["is_whole"], header["count"], header["block"])

    def written(self, generator: torch.Generator) -> State:
        """Its state for a file."""
        arrays = {"rows": self.rows, "energies": self.energies, "samples": self.samples}
        facts = {"is_whole": self.is_whole, "count": self.count, "block": self.block}
        counts = {name: len(values) for name, values in arrays.items()}
        return {**arrays, "generator": generator.get_state()}, {**facts, **counts}

    @property
    def num_products(self) -> int:
        """The number of products made."""
        return len(self.rows) + len(self.energies) + len(self.samples)

    def estimate(self) -> Estimate:
        """Σ qᵀAq and the mean of the samples, with its error."""
        mean = mean_of(self.samples, self.num_products)
        error = mean.standard_error if mean.has_error else None
        return Estimate(float(self.energies.sum()) + mean.value, error, self.num_products)


def deflated_trace(A: Operator, goal: float, budget: int, generator: torch.Generator, file: Resumption) -> Estimate:
    """tr A = tr QᵀAQ + E xᵀAx, x = (1 - QQᵀ)s, s of random signs: Meyer, Musco, Musco and Woodruff (2021).

    It ends when the relative error is below the goal, which is checked each time the samples have doubled, or when the
    products are spent.
    """
    course = Course.of(A, budget, generator, file)
    keep = lambda: file.keep(partial(course.written, generator))
    with progress.bar("Trace", total=budget) as bar:
        bar.advance(course.num_products)
        _find_directions(A, course, generator, keep)
        _find_energies(A, course, keep)
        look = BLOCK
        while (left := budget - course.num_products) > 0:
            if len(course.samples) >= look:
                if is_settled(estimate := course.estimate(), goal):
                    return estimate
                look *= 2
                continue
            keep()
            made = min(course.block, left)
            _add_samples(A, course, made, generator)
            bar.advance(made, products=course.num_products)
    return course.estimate()


def exact_trace(A: Operator, generator: torch.Generator, file: Resumption | None = None) -> Estimate:
    """The sum of all n diagonal entries; with a file, it can be resumed."""
    course = Course.of(A, 0, generator, file)
    for which, columns in unit_products(A, first=len(course.samples)):
        course.samples = torch.cat([course.samples, columns.gather(1, which[:, None])[:, 0].double().cpu()])
        if file is not None:
            file.keep(partial(course.written, generator))
    total = float(course.samples.sum())
    check_finite(total)
    return Estimate(total, 0.0, A.size)


def _find_directions(A: Operator, course: Course, generator: torch.Generator, keep: Any) -> None:
    """Compute A ω for random ω, then an orthonormal basis of their span."""
    while (left := course.count - len(course.rows)) > 0:
        keep()
        omega = gaussian(A, min(course.block, left), generator)
        course.rows = torch.cat([course.rows, product(A, omega)])
        check_range(course.rows[:1])
        check_finite(float(course.rows[-1].abs().max()))
    if not course.is_whole:
        course.rows = torch.linalg.qr(course.rows.T).Q.T.contiguous()
        course.is_whole = True


def _find_energies(A: Operator, course: Course, keep: Any) -> None:
    """Compute qᵀAq of every direction."""
    while (done := len(course.energies)) < len(course.rows):
        keep()
        Q = course.rows[done : done + course.block]
        course.energies = torch.cat([course.energies, dots(Q, product(A, Q)).cpu()])
        check_finite(float(course.energies.sum()))


def _add_samples(A: Operator, course: Course, count: int, generator: torch.Generator) -> None:
    """Sample xᵀAx for random signs, with their components along the directions removed twice against rounding."""
    X = signs(A, count, generator)
    for _ in range(2 if len(course.rows) else 0):
        X = X - (X @ course.rows.T) @ course.rows
    AX = product(A, X)
    if not course.num_products:
        check_range(AX)
    course.samples = torch.cat([course.samples, dots(X, AX).cpu()])
    check_finite(float(course.samples.sum()))


def _check_counts(A: Operator, budget: int, header: Mapping[str, Any]) -> None:
    """Refuse counts that are impossible with this budget, which is zero for an exact trace without directions."""
    most = min(DIRECTIONS, budget // SHARE) + 1
    counts = {"count": range(most), "rows": range(most), "energies": range(most)}
    check_facts(header, is_whole=bool, block=range(1, BLOCK + 1), samples=range((budget or A.size) + 1), **counts)
    rows, energies, samples, count = (header[name] for name in ("rows", "energies", "samples", "count"))
    sampled = not samples or not budget or (header["is_whole"] and energies == rows)
    if not (energies <= rows <= count and sampled and (rows == count if header["is_whole"] else not energies)):
        raise ValueError(f"it has {rows} of {count} directions, {energies} energies and {samples} samples")
