"""A spectrum known in closed form: named lines with multiplicities and, where weights were given, eigenvectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, RitzError
from ..spectrum import Spectrum

DENSE_SIZE = 2000  # up to this size `compare` diagonalises: a second or two in float64
COLUMNS = 16  # eigenvectors per group that `compare` multiplies with beyond it
ROWS_SHOWN = 40  # groups that a table prints before it says how many more there are


class NoEigenvectorsError(RitzError, LookupError):
    """Eigenvectors were asked of a closed form that was given no weights."""


@dataclass(frozen=True, eq=False)
class Group:
    """One named line of a spectrum: an eigenvalue, how often it occurs, and where its eigenvectors come from."""

    name: str
    value: float
    multiplicity: int = 1
    basis: Callable[[int], Float[Tensor, "n k"]] | None = (
        None  # k -> the first k of an orthonormal basis; None: unknown
    )


@dataclass(frozen=True, eq=False, repr=False)
class ClosedForm:
    """The eigenvalues {value × multiplicity} of a matrix, group by named group.

    Groups of multiplicity zero are left out. Eigenvectors are built when asked for, so that a bulk of a million
    lines costs nothing; all groups' bases together are one orthonormal basis of the whole space.
    """

    groups: tuple[Group, ...]

    def __init__(self, groups: Iterable[Group]) -> None:
        found = tuple(groups)
        _check_groups(found)
        object.__setattr__(self, "groups", tuple(group for group in found if group.multiplicity))

    @property
    def size(self) -> int:
        """n, the number of eigenvalues."""
        return sum(group.multiplicity for group in self.groups)

    @property
    def scale(self) -> float:
        """max |λ|, what errors are relative to; one for a zero matrix."""
        return max((abs(group.value) for group in self.groups), default=0.0) or 1.0

    def __getitem__(self, name: str) -> Group:
        for group in self.groups:
            if group.name == name:
                return group
        raise ArgumentError(
            f"There is no group {name!r}.",
            "A closed form knows its lines by name.",
            f"Ask for one of {_listed(group.name for group in self.groups)}.",
        )

    def eigenvalues(self) -> Float[Tensor, " n"]:
        """All eigenvalues with their multiplicity, smallest first."""
        values, counts = _columns(self.groups)
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
        wanted = line.multiplicity if count is None else count
        if not 0 <= wanted <= line.multiplicity:
            raise ArgumentError(
                f"{wanted} eigenvectors of {line.name!r} were asked for.",
                f"The line has multiplicity {line.multiplicity}.",
                f"Ask for 0 to {line.multiplicity}.",
            )
        return line.basis(wanted)

    def spectrum(self) -> Spectrum:
        """The same as a measure, to draw and to compare with what was measured."""
        return Spectrum.of_eigenvalues(*_columns(self.groups))

    def __repr__(self) -> str:
        rows = [(group.name, f"{group.value + 0.0:.6g}", f"× {group.multiplicity}") for group in self.groups]
        return "\n".join([f"ClosedForm({self.size} eigenvalues, {len(rows)} lines)", *_table(rows)])


@dataclass(frozen=True)
class GroupError:
    """How far one line is from what was measured, in the units of the eigenvalues."""

    name: str
    multiplicity: int
    value: float  # largest |λ - measured λ|
    residual: float | None  # largest ‖A z - λ z‖ over unit eigenvectors z; None: no eigenvectors, or no operator


@dataclass(frozen=True, repr=False)
class Comparison:
    """The largest errors of a closed form, group by group; as a whole, relative to max |λ|."""

    groups: tuple[GroupError, ...]
    scale: float

    @property
    def value(self) -> float:
        """Largest error of an eigenvalue, relative to max |λ|."""
        return max((group.value for group in self.groups), default=0.0) / self.scale

    @property
    def residual(self) -> float | None:
        """Largest residual of an eigenvector, relative to max |λ|; None where no eigenvector could be compared."""
        known = [group.residual for group in self.groups if group.residual is not None]
        return max(known) / self.scale if known else None

    def __repr__(self) -> str:
        rows = [
            (g.name, f"× {g.multiplicity}", f"{g.value:.1e}", "" if g.residual is None else f"{g.residual:.1e}")
            for g in self.groups
        ]
        head = f"Comparison(max |λ| = {self.scale:.6g}; columns: line, multiplicity, error of λ, residual of z)"
        return "\n".join([head, *_table(rows)])


def compare(closed_form: ClosedForm, measured: Any) -> Comparison:
    """The largest errors |λ - λ'| and ‖A z - λ z‖ of each group against an operator, a matrix or an exact Spectrum.

    Up to 2000 parameters the operator is diagonalised and every eigenvector is multiplied; beyond, the first 16
    eigenvectors of each group are, and the error of λ is that of their Ritz values.
    """
    if isinstance(measured, Spectrum):
        _check_exact(measured)
        return _sorted_comparison(closed_form, _eigenvalues_of(measured))
    size = len(measured) if isinstance(measured, Tensor) else measured.size
    _check_size(closed_form, size)
    if size > DENSE_SIZE and not isinstance(measured, Tensor):
        return _ritz_comparison(closed_form, measured)
    A = (measured if isinstance(measured, Tensor) else measured.dense()).to(torch.float64)
    return _sorted_comparison(closed_form, torch.linalg.eigvalsh(A), A)


def complement(U: Float[Tensor, "n r"], count: int) -> Float[Tensor, "n k"]:
    """The first `count` columns of an orthonormal basis of the complement of span(U), U of full column rank.

    By Householder reflections: O(n r k), however large n is.
    """
    return from_complement(U, torch.eye(len(U) - U.shape[1], count, dtype=U.dtype, device=U.device))


def from_complement(U: Float[Tensor, "n r"], Z: Float[Tensor, "s k"]) -> Float[Tensor, "n k"]:
    """B Z, with B the orthonormal basis (n × n - r) of the complement of span(U) that `complement` begins."""
    padded = torch.cat([Z.new_zeros(U.shape[1], Z.shape[1]), Z])
    return torch.ormqr(*torch.geqrf(U), padded) if U.shape[1] and Z.shape[1] else padded


def in_complement(U: Float[Tensor, "n r"], A: Float[Tensor, "n k"]) -> Float[Tensor, "s k"]:
    """Bᵀ A: the coordinates of A in the same basis."""
    turned = torch.ormqr(*torch.geqrf(U), A, transpose=True) if U.shape[1] and A.shape[1] else A
    return turned[U.shape[1] :]


def unit(u: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """u/‖u‖; the first coordinate vector where u = 0, so that there always is a direction."""
    largest = u.abs().max()
    if not float(largest):
        return torch.eye(1, len(u), dtype=u.dtype, device=u.device)[0]
    scaled = u / largest  # so that the square of a tiny number does not vanish
    return scaled / scaled.norm()


def _sorted_comparison(closed_form: ClosedForm, found: Tensor, A: Tensor | None = None) -> Comparison:
    _check_size(closed_form, len(found))
    values, counts = _columns(closed_form.groups)
    labels = torch.arange(len(values)).repeat_interleave(counts)
    expected, order = values.repeat_interleave(counts).sort(stable=True)
    gaps = (expected - found.to(expected).sort().values).abs()
    worst = torch.zeros(len(values), dtype=torch.float64).scatter_reduce(0, labels[order], gaps, "amax")
    errors = [
        GroupError(
            group.name, group.multiplicity, float(error), None if A is None else _residual(closed_form, group, A)
        )
        for group, error in zip(closed_form.groups, worst, strict=True)
    ]
    return Comparison(tuple(errors), closed_form.scale)


def _residual(closed_form: ClosedForm, group: Group, A: Tensor) -> float | None:
    if group.basis is None:
        return None
    V = closed_form.eigenvectors(group).to(A)
    return float((A @ V - group.value * V).norm(dim=0).max())


def _ritz_comparison(closed_form: ClosedForm, A: Any) -> Comparison:
    errors = []
    for group in closed_form.groups:
        V = closed_form.eigenvectors(group, min(COLUMNS, group.multiplicity)).to(A.device, A.dtype)
        AV = A @ V
        ritz = torch.linalg.eigvalsh((V.T @ AV).to(torch.float64))
        residual = (AV - group.value * V).norm(dim=0).max()
        errors.append(
            GroupError(group.name, group.multiplicity, float((ritz - group.value).abs().max()), float(residual))
        )
    return Comparison(tuple(errors), closed_form.scale)


def _columns(groups: Iterable[Group]) -> tuple[Tensor, Tensor]:
    pairs = [(group.value, group.multiplicity) for group in groups]
    return (
        torch.tensor([value for value, _ in pairs], dtype=torch.float64),
        torch.tensor([count for _, count in pairs], dtype=torch.int64),
    )


def _eigenvalues_of(spectrum: Spectrum) -> Tensor:
    counts = (spectrum.weights[0] * spectrum.size).round().long()
    return spectrum.nodes[0].repeat_interleave(counts)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    shown = rows[:ROWS_SHOWN]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))] if shown else []
    lines = [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in shown
    ]
    return lines + ([f"  … and {len(rows) - ROWS_SHOWN} more"] if len(rows) > ROWS_SHOWN else [])


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(map(repr, found[:10])) + (", …" if len(found) > 10 else "")


def _check_groups(groups: tuple[Group, ...]) -> None:
    wrong = [group for group in groups if group.multiplicity < 0 or not torch.isfinite(torch.tensor(group.value))]
    twice = [name for name, count in Counter(group.name for group in groups).items() if count > 1]
    if wrong or twice:
        raise ArgumentError(
            f"These groups make no spectrum: {_listed([g.name for g in wrong] + twice)}.",
            "A line has a finite value, a multiplicity that is not negative, and a name of its own.",
            "Check the input for infinities, and name each line once.",
        )


def _check_size(closed_form: ClosedForm, size: int) -> None:
    if size != closed_form.size:
        raise ArgumentError(
            f"A closed form of {closed_form.size} eigenvalues was compared with {size}.",
            "Both must be of the same parameters.",
            "Restrict the Risk to the parameters that the closed form describes, or give it the same weights.",
        )


def _check_exact(spectrum: Spectrum) -> None:
    counts = spectrum.weights * spectrum.size
    if spectrum.num_probes > 1 or spectrum.resolution is not None or (counts - counts.round()).abs().max() > 1e-6:
        raise ArgumentError(
            "A closed form was compared line by line with an estimated spectrum.",
            "A quadrature has no eigenvalues to pair the lines with.",
            "Compare measures: closed_form.spectrum().wasserstein(spectrum).",
            "Compare with the operator itself.",
        )
