"""The comparison of a closed form with a measurement: the largest errors of eigenvalues and eigenvectors by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, kind_of
from ..spectrum import Spectrum
from ..spectrum.matrices import check_symmetric
from .closed_form import ClosedForm, Group, columns, table

DENSE_SIZE = 2000  # up to this size `compare` diagonalises: a second or two in float64
COLUMNS = 16  # eigenvectors per group that `compare` multiplies with beyond it


@dataclass(frozen=True)
class GroupError:
    """The error of one line against the measurement, in the units of the eigenvalues.

    >>> compare(ClosedForm([Group("line", 1.0)]), torch.tensor([[1.5]])).groups[0]
    GroupError(name='line', multiplicity=1, value=0.5, residual=None)
    """

    name: str
    multiplicity: int
    value: float  # largest |λ - measured λ|
    residual: float | None  # largest ‖A z - λ z‖ over unit eigenvectors z; None: no eigenvectors, or no operator


@dataclass(frozen=True, repr=False)
class Comparison:
    """The largest errors of a closed form: group by group, and overall relative to max |λ|.

    >>> form = ClosedForm([Group("line", 2.0, 1, lambda count: torch.ones(1, 1).double()[:, :count])])
    >>> compare(form, torch.tensor([[1.5]]))
    Comparison(max |λ| = 2; columns: line, multiplicity, error of λ, residual of z)
      line  × 1  5.0e-01  5.0e-01
    """

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
        return "\n".join([head, *table(rows)])


def compare(closed_form: ClosedForm, measured: Any) -> Comparison:
    """The largest errors |λ - λ'| and ‖A z - λ z‖ of each group against an operator, a matrix or an exact Spectrum.

    Up to 2000 parameters the operator is diagonalised and every eigenvector is multiplied; beyond, the first 16
    eigenvectors of each group are, and the error of λ is that of their Ritz values.

    >>> compare(ClosedForm([Group("a", 1.0), Group("b", 3.0)]), torch.diag(torch.tensor([3.0, 1.0]))).value
    0.0
    """
    if isinstance(measured, Spectrum):
        _check_exact(measured)
        return _sorted_comparison(closed_form, _eigenvalues_of(measured))
    size = _size_of(measured)
    _check_size(closed_form, size)
    if size > DENSE_SIZE and not isinstance(measured, Tensor):
        return _ritz_comparison(closed_form, measured)
    if isinstance(measured, Tensor):
        check_symmetric(measured)
    A = (measured if isinstance(measured, Tensor) else measured.dense()).to(torch.float64)
    return _sorted_comparison(closed_form, torch.linalg.eigvalsh(A), A)


def _size_of(measured: Any) -> int:
    """The size of a square matrix or an operator; refuses anything else."""
    square = isinstance(measured, Tensor) and measured.ndim == 2 and measured.shape[0] == measured.shape[1]
    if square and bool(measured.isfinite().all()):
        return len(measured)
    is_array = hasattr(measured, "__array__")  # a tensor or an array of numpy, which have a size, too
    if is_array or not (isinstance(getattr(measured, "size", None), int) and measured.size > 0):
        raise ArgumentError(
            f"measured is {kind_of(measured)}, not a square matrix of finite numbers.",
            "A closed form can be compared with a matrix, an operator or an exact Spectrum.",
            "Pass ritz.hessian(risk), its dense(), or Spectrum.of_eigenvalues(...).",
        )
    return int(measured.size)


def _sorted_comparison(closed_form: ClosedForm, measured: Tensor, A: Tensor | None = None) -> Comparison:
    _check_size(closed_form, len(measured))
    values, counts = columns(closed_form.groups)
    labels = torch.arange(len(values)).repeat_interleave(counts)
    expected, order = values.repeat_interleave(counts).sort(stable=True)
    gaps = (expected - measured.to(expected).sort().values).abs()
    worst = torch.zeros(len(values), dtype=torch.float64).scatter_reduce(0, labels[order], gaps, "amax")
    residuals = {} if A is None else _residuals(closed_form, A)
    errors = [
        GroupError(group.name, group.multiplicity, error, residuals.get(group.name))
        for group, error in zip(closed_form.groups, worst.tolist(), strict=True)
    ]
    return Comparison(tuple(errors), closed_form.scale)


def _residuals(closed_form: ClosedForm, A: Tensor) -> dict[str, float]:
    """The largest ‖A z - λ z‖ of each group that knows its eigenvectors, from one product with them all."""
    known: list[Group] = [group for group in closed_form.groups if group.basis is not None]
    if not known:
        return {}
    values, counts = columns(known)
    Z = torch.cat([closed_form.eigenvectors(group) for group in known], dim=1).to(A)
    lengths = (A @ Z - Z * values.repeat_interleave(counts).to(A)).norm(dim=0)
    return {group.name: float(part.max()) for group, part in zip(known, lengths.split(counts.tolist()), strict=True)}


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


def _eigenvalues_of(spectrum: Spectrum) -> Tensor:
    counts = (spectrum.weights[0] * spectrum.size).round().long()
    return spectrum.nodes[0].repeat_interleave(counts)


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
