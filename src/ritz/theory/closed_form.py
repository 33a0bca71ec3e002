"""A spectrum in closed form: named lines with multiplicities and, if weights were given, eigenvectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ArgumentError, RitzError
from ..spectrum import Spectrum
from ..spectrum.lines_shown import lines_card

NUMBERS_KEPT = 2**17  # of eigenvectors that come together: a megabyte
ROWS_SHOWN = 40  # groups that a table prints before it says how many more there are


class NoEigenvectorsError(RitzError, LookupError):
    """Eigenvectors were requested from a closed form that was computed without weights.

    >>> try:
    ...     ClosedForm([Group("line", 1.0)]).eigenvectors("line")
    ... except NoEigenvectorsError as error:
    ...     print(error.seen)
    The eigenvectors of 'line' are not known.
    """


@dataclass(frozen=True, eq=False)
class Group:
    """One named line of a spectrum: an eigenvalue, how often it occurs, and where its eigenvectors come from.

    >>> ClosedForm([Group("outlier", 9.0), Group("bulk", 0.5, 3)])["bulk"].multiplicity
    3
    """

    name: str
    value: float
    multiplicity: int = 1
    basis: Callable[[int], Float[Tensor, "n k"]] | None = None  # k ↦ k orthonormal eigenvectors; None: unknown


@dataclass(frozen=True, eq=False, repr=False)
class ClosedForm:
    """The eigenvalues {value × multiplicity} of a matrix, group by named group.

    Groups of multiplicity zero are left out. Eigenvectors are built on request, so that a bulk of a million lines costs
    nothing; the bases of all groups together are an orthonormal basis of the whole space.

    >>> ClosedForm([Group("outlier", 9.0), Group("bulk", 0.5, 3)])
    ClosedForm(4 eigenvalues, 2 lines)
      outlier    9  × 1
      bulk     0.5  × 3
    """

    groups: tuple[Group, ...]

    def __init__(self, groups: Iterable[Group]) -> None:
        lines = tuple(groups)
        _check_groups(lines)
        object.__setattr__(self, "groups", tuple(line for line in lines if line.multiplicity))

    @property
    def size(self) -> int:
        """n, the number of eigenvalues."""
        return sum(group.multiplicity for group in self.groups)

    @property
    def scale(self) -> float:
        """max |λ|, the scale for relative errors; one for a zero matrix."""
        return max((abs(group.value) for group in self.groups), default=0.0) or 1.0

    def __getitem__(self, name: str) -> Group:
        for group in self.groups:
            if group.name == name:
                return group
        raise ArgumentError(
            f"There is no group {name!r}.",
            "A group of lines is found by its name.",
            f"Ask for one of {_listed(group.name for group in self.groups)}.",
        )

    def eigenvalues(self) -> Float[Tensor, " n"]:
        """All eigenvalues with their multiplicity, smallest first."""
        values, counts = columns(self.groups)
        return values.repeat_interleave(counts).sort().values

    def eigenvectors(self, group: str | Group, count: int | None = None) -> Float[Tensor, "n k"]:
        """Orthonormal eigenvectors of one group: all of them, or the first `count`."""
        line = self[group] if isinstance(group, str) else group
        if line.basis is None:
            raise NoEigenvectorsError(
                f"The eigenvectors of {line.name!r} are not known.",
                "This closed form was given singular values or data only, and eigenvectors depend on the weights.",
                "Use the function of ritz.theory that takes the weights themselves.",
            )
        number = line.multiplicity if count is None else count
        if not 0 <= number <= line.multiplicity:
            raise ArgumentError(
                f"{number} eigenvectors of {line.name!r} were requested.",
                f"The line has multiplicity {line.multiplicity}.",
                f"Ask for 0 to {line.multiplicity}.",
            )
        return line.basis(number)

    def spectrum(self) -> Spectrum:
        """The lines as a `Spectrum`, to draw it and to compare it with measured ones."""
        return Spectrum.of_eigenvalues(*columns(self.groups))

    def _repr_html_(self) -> str:
        """HTML for a notebook: a row for each line."""
        columns = {
            "line": [group.name for group in self.groups],
            "eigenvalue": [f"{group.value + 0.0:.6g}" for group in self.groups],
            "multiplicity": [f"{group.multiplicity:,}" for group in self.groups],
        }
        return lines_card(f"{self.size:,} eigenvalues in closed form, {len(self.groups)} lines", columns)

    def __repr__(self) -> str:
        rows = [(group.name, f"{group.value + 0.0:.6g}", f"× {group.multiplicity}") for group in self.groups]
        return "\n".join([f"ClosedForm({self.size} eigenvalues, {len(rows)} lines)", *table(rows)])


def shifted(closed_form: ClosedForm, shift: float) -> ClosedForm:
    """The spectrum of A + shift·I, with the same eigenvectors: what weight decay (μ/2)‖θ‖² adds.

    >>> form = ClosedForm([Group("line", 2.0), Group("zero", 0.0, 3)])
    >>> shifted(form, 0.5).eigenvalues().tolist()
    [0.5, 0.5, 0.5, 2.5]
    """
    return ClosedForm(replace(group, value=group.value + shift) for group in closed_form.groups)


def eigenlines(A: Float[Tensor, "r r"], name: str, lift: Callable[[Tensor], Tensor]) -> list[Group]:
    """A line "name i" for each eigenvalue of a small symmetric matrix, largest first, zeros included.

    Eigenvectors (r, k) are computed when one is first requested; `lift` maps them to those of the large matrix, (n, k).
    Short ones are lifted together with their neighbours, which are likely to be requested next: calls cost more than
    numbers.
    """

    @cache
    def vectors() -> Tensor:
        return torch.linalg.eigh(A).eigenvectors.flip(1)

    @cache
    def together() -> int:
        return max(1, NUMBERS_KEPT // len(lift(vectors()[:, :1])))

    @lru_cache(maxsize=1)
    def lifted(first: int, end: int) -> Tensor:
        return lift(vectors()[:, first:end])

    def column(i: int) -> Callable[[int], Tensor]:
        def basis(count: int) -> Tensor:
            first = i - i % together()
            return lifted(first, first + together())[:, i - first : i - first + count].clone()

        return basis

    values = torch.linalg.eigvalsh(A).flip(0).tolist()
    return [Group(f"{name} {i + 1}", value, 1, column(i)) for i, value in enumerate(values)]


def columns(groups: Iterable[Group]) -> tuple[Float[Tensor, " g"], Int[Tensor, " g"]]:
    """The values of all groups and their multiplicities, as two lists."""
    pairs = [(group.value, group.multiplicity) for group in groups]
    return (
        torch.tensor([value for value, _ in pairs], dtype=torch.float64),
        torch.tensor([count for _, count in pairs], dtype=torch.int64),
    )


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines of aligned columns, the first aligned left; after 40 rows, how many more there are."""
    shown = rows[:ROWS_SHOWN]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))] if shown else []
    lines = [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in shown
    ]
    return lines + ([f"  … and {len(rows) - ROWS_SHOWN} more"] if len(rows) > ROWS_SHOWN else [])


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    return ", ".join(map(repr, all_names[:10])) + (", …" if len(all_names) > 10 else "")


def _check_groups(groups: tuple[Group, ...]) -> None:
    wrong = [group for group in groups if group.multiplicity < 0 or not math.isfinite(group.value)]
    twice = [name for name, count in Counter(group.name for group in groups).items() if count > 1]
    if wrong or twice:
        raise ArgumentError(
            f"These groups do not form a spectrum: {_listed([g.name for g in wrong] + twice)}.",
            "Each line needs a finite value, a multiplicity that is not negative, and a name of its own.",
            "Check the input for infinities, and name each line once.",
        )
