"""The exact spectrum of the Gauss-Newton matrix through its Gram matrix, zeros included, without any Lanczos.

G = J̃ᵀJ̃, with a row of J̃ for each output direction of each example, has the non-zero eigenvalues of K = J̃ J̃ᵀ: a
matrix of N(C - 1) rows, however many parameters there are, which is accumulated layer by layer. The parts of G that
belong to classes and cross-classes are J̃ᵀ P J̃ with orthogonal projections P in that small space, so that spectra
after knockouts are exact too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, ModelError, NumericalError
from ..layers.capture import Layers
from ..risk import Risk
from ..risk.class_terms import ClassTerms
from ..risk.losses import Classification
from ..solvers.resumption import Resumption
from ..solvers.stages import stages_of_risk
from ..spectrum import Spectrum
from .gram_assembly import assembly
from .gram_blocks import Assembly
from .gram_parts import PARTS, Part, check_parts, directions, loss_of_root, projected

ROUNDING = {torch.float64: 1e-9, torch.float32: 0.1}  # of xᵀGx; float32 is also checked in float64, on few examples
FEW = 8


def gram_spectrum(
    risk: Risk,
    *,
    subtract: Sequence[Part] = (),
    project: Sequence[Part] = (),
    dtype: torch.dtype = torch.float64,
    checkpoint: str | Path | None = None,
) -> Spectrum:
    """The exact spectrum of G, or of what is left of it after some parts were subtracted and others projected out.

    `gram_spectrum(risk, subtract=("between_class", "cross_class", "own_class"))` is that of G_within. For several
    knockouts of one risk, build `Gram.of(risk)` once. In float32, the products between layers run in the risk's
    `tangent_precision`. Papyan (2020), Defs 3.1, 3.2, Sec. 6; for any class balance.

    With a checkpoint, a folder, a computation that was killed goes on to the same bits from what it left there, the
    blocks of the Gram matrix, and one that is over is read. It belongs to this risk and these arguments. The matrix is
    decomposed in one go, which a kill would have to repeat.

    Args:
        risk: Of a loss that is convex in the outputs.
        subtract: Parts of G that are subtracted.
        project: Parts whose directions are then projected out.
        dtype: Of the Gram matrix.
        checkpoint: A folder to go on from.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> gram_spectrum(risk)
    Spectrum(4 eigenvalues, exact: λ from 0 to 0.25, mean 0.125, root mean square 0.1768, zeros 0.5)
    >>> gram_spectrum(risk, subtract=("between_class",)).range
    (0.0, 0.125)
    """
    stages = stages_of_risk(checkpoint, risk, subtract=list(subtract), project=list(project), dtype=dtype)

    def compute() -> Spectrum:
        return Gram.of(risk, dtype=dtype, checkpoint=checkpoint).spectrum(subtract=subtract, project=project)

    return stages.spectrum("spectrum", compute)


@dataclass(frozen=True, eq=False, repr=False)
class Gram:
    """K = J̃ J̃ᵀ of a risk: the inner products of all its examples' gradients (its empirical neural tangent kernel).

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> Gram.of(risk)
    Gram(2 rows, n = 4, checked to ...)
    """

    matrix: Float[Tensor, "m m"]
    size: int  # n, the number of parameters
    classes: ClassTerms | None  # None if targets are not labels
    error: float  # |xᵀGx - ‖Ky‖²| / ‖Ky‖² for x = J̃ᵀy with a random y: K against a product with G

    @classmethod
    def of(cls, risk: Risk, *, dtype: torch.dtype = torch.float64, checkpoint: str | Path | None = None) -> Gram:
        """The Gram matrix of a risk, computed in the given precision and checked against a product with G.

        With a checkpoint, a folder, it goes on from the blocks that are there.
        """
        _check_rows(risk)
        stages = stages_of_risk(checkpoint, risk, dtype=dtype)
        risk = risk.to(dtype)
        whole = dtype == torch.float64 or _faithful(risk)
        result = _from_layers(risk, stages.resumption("gram")) if whole else None
        if result is None or not result.error <= ROUNDING[dtype]:
            captures_nothing = Layers(risk, frozenset(risk.shapes))
            result = assembly(captures_nothing, stages.resumption("gram-by-examples"))
        if result.error <= ROUNDING[dtype]:
            return cls(result.matrix, risk.size, result.classes, result.error)
        raise NumericalError(
            f"The Gram matrix and a product with G differ by {result.error:.1e}, relative to the product.",
            "The gradients of single examples do not add up to those of a batch, or float32 does not resolve them.",
            "Compute in float64: dtype=torch.float64.",
            "Check that the model treats every example by itself, and that it is deterministic.",
        )

    def __repr__(self) -> str:
        return f"Gram({len(self.matrix):,} rows, n = {self.size:,}, checked to {self.error:.1e})"

    def spectrum(self, *, subtract: Sequence[Part] = (), project: Sequence[Part] = ()) -> Spectrum:
        """The n eigenvalues of G after some of its parts were subtracted and then others projected out."""
        values = self.eigenvalues(subtract=subtract, project=project)
        zeros = values.new_zeros(1)
        multiplicity = torch.cat([torch.ones_like(values), zeros + self.size - len(values)])
        precision = torch.finfo(self.matrix.dtype).eps
        return Spectrum.of_eigenvalues(torch.cat([values, zeros]), multiplicity, precision=precision)

    def eigenvalues(self, *, subtract: Sequence[Part] = (), project: Sequence[Part] = ()) -> Float[Tensor, " k"]:
        """The eigenvalues that need not be zero, largest magnitude first: at most n, and one for each row of K."""
        K = self.matrix.double()
        if project:
            K = projected(K, self._columns(project), torch.finfo(self.matrix.dtype).eps)
        if subtract:
            K = self._compressed(K, subtract)
        values = torch.linalg.eigvalsh(K).cpu()
        order = values.abs().argsort(descending=True)
        return values[order[: self.size]]

    def _columns(self, parts: Sequence[Part]) -> Float[Tensor, "m s"]:
        """B such that J̃ᵀ B Bᵀ J̃ is the sum of the parts."""
        classes = check_parts(parts, self.classes)
        if "within" not in parts:
            return directions(classes, parts)
        U, lost = loss_of_root(directions(classes, [part for part in PARTS if part not in parts]))
        return torch.eye(len(U), dtype=U.dtype, device=U.device) - (U * lost) @ U.T

    def _compressed(self, K: Float[Tensor, "m m"], subtract: Sequence[Part]) -> Float[Tensor, "k k"]:
        """A matrix with the non-zero spectrum of J̃ᵀ M J̃, M = 1 - Σ P over the subtracted parts."""
        classes = check_parts(subtract, self.classes)
        if "within" in subtract:
            B = directions(classes, [part for part in PARTS if part not in subtract])
            return B.T @ K @ B
        U, lost = loss_of_root(directions(classes, subtract))
        K = K - (K @ U * lost) @ U.T
        return K - (U * lost) @ (U.T @ K)


def _faithful(risk: Risk) -> bool:
    """Whether gradients are made of features and errors as assumed, tested in float64 to be clear of rounding."""
    few = risk.first(FEW)
    with contextlib.suppress(ModelError):  # of a model with a precision of its own
        few = few.to(torch.float64)
    result = _from_layers(few)
    return result is not None and result.error <= ROUNDING[few.dtype]


def _from_layers(risk: Risk, file: Resumption | None = None) -> Assembly | None:
    """K from what layers saw; None if that cannot be assigned to examples."""
    layers = Layers.of(risk)
    try:
        return assembly(layers, file)
    except ModelError:
        return None


def _check_rows(risk: Risk) -> None:
    if risk.group is not None:
        raise ArgumentError(
            "The risk is distributed over a group.",
            "The Gram matrix pairs every example with every other, so one process needs all of them.",
            "Build the risk without a group, on a part of the data: Risk(...).first(1000).",
        )
    width = risk.num_classes - 1 if isinstance(risk.loss, Classification) else risk.num_classes
    rows = risk.num_targets * width
    needed = 3 * 8 * rows**2  # the matrix, a copy to decompose, and working memory for both
    if needed > risk.memory:
        raise ArgumentError(
            f"The Gram matrix of {risk.num_targets:,} targets has {rows:,} rows and takes {needed / 1e9:.3g} GB.",
            f"The risk may use {risk.memory / 1e9:.3g} GB.",
            f"Take fewer examples: risk.first({max(1, int(risk.num_examples * (risk.memory / needed) ** 0.5))}).",
            "Raise Risk(..., memory=...), if the machine has that much.",
            "Use spectral_density(gauss_newton(risk)), which needs no such matrix.",
        )
