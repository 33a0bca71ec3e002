"""The spectrum assembled from Lanczos decompositions of several probes: known eigenvalues, and the mass of the rest."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from ..spectrum import Eigenpairs, Spectrum
from ..spectrum.measure import STEPS, lent_width
from .atoms import GAP, NEGLIGIBLE, Atoms, Row, beyond, common_atoms, rows_of
from .tridiagonal import Tridiagonal

TINY = 1e-300  # below every mass, and not zero
SIGN = 16  # roundings of the largest eigenvalue within which the sign of another is meaningless
NOISIEST = 0.15  # relative Monte Carlo error beyond which a coarser quadrature would be no sharper


def spectrum_from(T: Tridiagonal, pairs: Eigenpairs | None, A: Operator) -> Spectrum:
    """The measure of all rows: certified eigenvalues, then those that all rows have found, then the rest of each."""
    none = torch.zeros(0, dtype=torch.float64)
    values, residuals = (none, none) if pairs is None else (x.double().cpu() for x in (pairs.values, pairs.residuals))
    size, eps = A.size - len(values), torch.finfo(A.dtype).eps
    rows = rows_of(T, size, eps, float(values.abs().amax()) if len(values) else 0.0)
    atoms = common_atoms(rows, size)
    rest = _remainders(rows, atoms, beyond(rows, size, T.diagonal.shape[1]))
    share = (size - int(atoms.multiplicities.sum())) / A.size
    masses = share * rest[1] / rest[1].sum(1, keepdim=True).clamp(min=TINY)
    known = torch.cat([values, atoms.values]).expand(len(rows), -1)
    counts = torch.cat([torch.ones_like(values), atoms.multiplicities.double()]).expand(len(rows), -1)
    radii = torch.cat([_radii(values, residuals, rows, size), atoms.radii])
    nodes, weights = torch.cat([known, rest[0]], dim=1), torch.cat([counts / A.size, masses], dim=1)
    reach = torch.cat([torch.stack([known - radii, known + radii]), rest[2:]], dim=2)
    if A.semidefinite and float(nodes.min()) >= -SIGN * eps * float(nodes.abs().max()):
        reach[0] = torch.minimum(reach[0].clamp(min=0), nodes)
    resolution = _resolution(rows, size) if share > 0 else None
    return Spectrum(nodes, weights, A.size, resolution, known.shape[1], reach, eps)


def _radii(
    values: Float[Tensor, " k"], residuals: Float[Tensor, " k"], rows: list[Row], size: int
) -> Float[Tensor, " k"]:
    """How near an eigenvalue is to each certified value: r, or r²/d where the distance d to the next is far above r."""
    if not len(values):
        return residuals
    seen = [row.nodes[row.weights > NEGLIGIBLE / size] for row in rows]
    distances = (values[:, None] - torch.cat([values, *seen])).abs()
    distances.diagonal().fill_(math.inf)
    nearest = distances.amin(1)
    return torch.where(nearest > GAP * residuals, residuals * (residuals / nearest), residuals)  # both may be zero


def _remainders(rows: list[Row], atoms: Atoms, edge: float) -> Float[Tensor, "4 p k"]:
    """The nodes of all rows that are not atoms, with their weights and both ends of their reach.

    Rows are padded to the same length with nodes of no weight.
    """
    pieces = []
    for row, places in zip(rows, atoms.places, strict=True):
        left = torch.ones(len(row.nodes), dtype=torch.bool)
        left[places[places >= 0]] = False
        pieces.append(torch.stack([row.nodes, row.weights, *row.reach(edge)])[:, left])
    longest = max(piece.shape[1] for piece in pieces)
    missing = [piece[:, -1:].repeat(1, longest - piece.shape[1]) for piece in pieces]
    for piece in missing:
        piece[1] = 0
    return torch.stack([torch.cat(pair, dim=1) for pair in zip(pieces, missing, strict=True)], dim=1)


def _resolution(rows: list[Row], size: int) -> float:
    """The width at which the error of the quadrature is about half of the Monte Carlo error.

    m nodes on an interval of length R are π R/2m apart in its middle: of a comb that fine, a Gaussian of width c R/m
    leaves 2 exp(-8c²). The relative Monte Carlo error is √(2/kp), with 2√π c n/m eigenvalues k under the Gaussian; for
    it, c = 1 and 128 steps are precise enough.
    """
    spacings = [spacing for row in rows if (spacing := row.spacing(size))]
    if not spacings:
        low, high = min(float(row.nodes[0]) for row in rows), max(float(row.nodes[-1]) for row in rows)
        return lent_width(high - low or abs(high) or 1.0)
    noise = math.sqrt(STEPS / (math.sqrt(math.pi) * size * len(rows)))
    return math.sqrt(math.log(4 / min(noise, NOISIEST)) / 8) * sum(spacings) / len(spacings)
