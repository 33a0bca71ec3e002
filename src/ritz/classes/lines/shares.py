"""What the largest eigenvalues are made of: the share of every part of H in each of them.

A unit eigenvector v of H has λ = vᵀHv = vᵀG_class v + vᵀG_cross v + vᵀG_own v + vᵀG_within v + vᵀE v: the split is
exact, whatever the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...factored.gram_parts import PARTS
from ...operators import Operator
from ...record.arrays import under
from ...record.checkpoints import State
from ...record.layouts import check_arrays, like
from ...solvers.stages import Stages
from ...spectrum import Eigenpairs
from ..gradients.decomposition import ClassDecomposition

INSIDE = ("in_class_means", "in_cross_means")  # overlaps in files, where the means are held; the latter in old ones
CHUNK = 2**20  # rows of a factor that are converted to float64 at a time


@dataclass(frozen=True, eq=False)
class Lines:
    """The largest eigenpairs of one matrix, and what each is made of."""

    pairs: Eigenpairs
    shares: Mapping[str, Float[Tensor, " k"]]  # vᵀ part v / λ, which sum to one
    in_class_means: Float[Tensor, " k"] | None  # ‖P v‖², P the projection on the span of the class means
    _means: tuple[Float[Tensor, "n _"] | None, ...]  # the factors of G_class and G_cross

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def in_cross_means(self) -> Float[Tensor, " k"] | None:
        """‖P v‖² for the span of all means; C² columns are decomposed for it, when it is first requested."""
        return _inside(self.pairs.vectors, *self._means)


def lines_of(pairs: Eigenpairs, H: Operator | None, classes: ClassDecomposition) -> Lines:
    """What the eigenpairs of G are made of; with H given, those of H, which have a share of E = H - G too."""
    V = pairs.vectors
    energy = lambda A: (V * (A @ V)).sum(0).double()
    parts: dict[str, Tensor] = {part: energy(getattr(classes, part)) for part in PARTS}
    whole = sum(parts.values(), torch.zeros_like(parts["within"]))
    if H is not None:
        total = energy(H)
        parts["functional"], whole = total - whole, total
    positive = whole.abs() > torch.finfo(V.dtype).eps ** 0.75 * whole.abs().max()  # an eigenvalue of zero has no parts
    shares = {name: torch.where(positive, value / whole, 0.0) for name, value in parts.items()}
    return Lines(pairs, shares, _inside(V, classes.between_class.factor), _means(classes))


def _means(classes: ClassDecomposition) -> tuple[Float[Tensor, "n _"] | None, ...]:
    return classes.between_class.factor, classes.cross_class.factor


def kept_lines(stages: Stages, name: str, pairs: Eigenpairs, H: Operator | None, classes: ClassDecomposition) -> Lines:
    """`lines_of`, kept as a stage of its own beside that of the eigenpairs."""

    def written(lines: Lines) -> State:
        arrays = {f"share/{part}": values for part, values in lines.shares.items()}
        inside = {} if lines.in_class_means is None else {INSIDE[0]: lines.in_class_means}
        return arrays | inside, {"inside": list(inside)}

    def read(arrays: dict[str, Tensor], facts: Mapping[str, Any]) -> Lines:
        _check_shares(arrays, len(pairs), [*PARTS, *(() if H is None else ("functional",))], facts["inside"])
        arrays = {name: array.to(pairs.vectors.device) for name, array in arrays.items()}
        return Lines(pairs, under("share/", arrays), arrays.get(INSIDE[0]), _means(classes))

    return stages.result(f"lines-of-{name}", lambda: lines_of(pairs, H, classes), written, read)


def _check_shares(arrays: Mapping[str, Tensor], count: int, parts: Sequence[str], inside: Sequence[str]) -> None:
    """Refuse shares of another number of lines, or that do not sum to one (for an eigenvalue of zero, to zero)."""
    check_arrays(arrays, {name: like(torch.float64, count) for name in [f"share/{part}" for part in parts] + [*inside]})
    shares = torch.stack([arrays[f"share/{part}"] for part in parts])
    largest = shares.abs().amax(0)
    if not bool(((shares.sum(0) - 1).abs() <= 1e-6 * largest.clamp(min=1)).logical_or(largest == 0).all()):
        raise ValueError("its shares do not sum to one")
    if not {*inside} <= {*INSIDE} or any(bool(((arrays[name] < 0) | (arrays[name] > 1)).any()) for name in inside):
        raise ValueError(f"it has the overlaps {inside!r:.80}, which are between 0 and 1")


def _inside(V: Float[Tensor, "n k"], *factors: Float[Tensor, "n _"] | None) -> Float[Tensor, " k"] | None:
    """‖P v‖² of every column v, P the projection on the range of all factors; None where a factor is not known.

    Columns are scaled to length one: the range does not change, and small ones are not lost in the Gram matrix.
    """
    blocks = [factor for factor in factors if factor is not None]
    if len(blocks) < len(factors):
        return None
    scales = torch.cat([factor.norm(dim=0) for factor in blocks]).double()
    scales = torch.where(scales > 0, 1 / scales, 0.0)
    if len(scales) > len(V):  # the matrix of all coordinates is the smaller one
        values, basis = torch.linalg.eigh(_outer(blocks, scales))
        shares = (basis.T @ V.double()).square()
    else:
        values, vectors = torch.linalg.eigh(scales[:, None] * _inner(blocks, blocks) * scales)
        coordinates = vectors.T @ (scales[:, None] * _inner(blocks, [V]))
        shares = coordinates.square() / values[:, None]
    used = values > len(scales) * torch.finfo(V.dtype).eps * values[-1]
    return shares[used].sum(0).clamp(max=1.0)


def _inner(left: Sequence[Tensor], right: Sequence[Tensor]) -> Float[Tensor, "r s"]:
    """AᵀB of matrices given as blocks of columns, summed in float64, some rows at a time."""
    rows = range(0, len(left[0]), CHUNK)
    pieces = lambda blocks, i: torch.cat([block[i : i + CHUNK].double() for block in blocks], 1)
    if left is right:
        return torch.stack([(A := pieces(left, i)).T @ A for i in rows]).sum(0)
    return torch.stack([pieces(left, i).T @ pieces(right, i) for i in rows]).sum(0)


def _outer(blocks: Sequence[Tensor], scales: Float[Tensor, " r"]) -> Float[Tensor, "n n"]:
    """A Aᵀ of a matrix given as blocks of columns, each times its scale, summed in float64, n columns at a time."""
    n = len(blocks[0])
    total, first = scales.new_zeros(n, n), 0
    for columns in (part for block in blocks for part in block.split(n, 1)):
        A = columns.double() * scales[first : first + columns.shape[1]]
        total, first = total.addmm_(A, A.T), first + columns.shape[1]
    return total


def part_eigenvalues(classes: ClassDecomposition) -> dict[str, Float[Tensor, " r"]]:
    """The eigenvalues of the low-rank parts, zeros beyond the rank or not; none where their factors are not held."""
    factors = {part: getattr(classes, part).factor for part in PARTS[:3]}
    groups = {part: [factor] for part, factor in factors.items()} | {"together": list(factors.values())}
    return {name: _eigenvalues(group) for name, group in groups.items() if all(f is not None for f in group)}


def _eigenvalues(blocks: Sequence[Tensor]) -> Float[Tensor, " r"]:
    """The eigenvalues of A Aᵀ, descending, from it or from AᵀA, whichever is smaller."""
    columns, rows = sum(block.shape[1] for block in blocks), len(blocks[0])
    ones = blocks[0].new_ones(columns, dtype=torch.float64)
    matrix = _inner(blocks, blocks) if columns <= rows else _outer(blocks, ones)
    return torch.linalg.eigvalsh(matrix).flip(0).clamp(min=0)
