"""The exact spectrum of the Gauss-Newton matrix through its Gram matrix, zeros included, without any Lanczos.

G = J̃ᵀJ̃, with a row of J̃ for each output direction of each example, has the non-zero eigenvalues of K = J̃ J̃ᵀ: a
matrix of N(C - 1) rows, however many parameters there are, which is accumulated layer by layer. The parts of G that
belong to classes and cross-classes are J̃ᵀ P J̃ with orthogonal projections P of that small space, so that knocked-out
spectra are exact, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..engine.batching import add_product, quiet
from ..engine.paths import gauss_newton_forward, gauss_newton_map
from ..errors import ArgumentError, DataError, ModelError, NumericalError
from ..layers.capture import Layers, layers
from ..layers.rows import Rows, cotangents, row_bytes, rows_of
from ..risk.batches import Batch
from ..risk.class_terms import Terms, terms
from ..risk.losses import CrossEntropy, complement
from ..risk.risk import Risk
from ..spectrum import Spectrum

Part = Literal["between_class", "cross_class", "own_class", "within"]
PARTS: tuple[Part, ...] = get_args(Part)
ROUNDING = {torch.float64: 1e-9, torch.float32: 0.1}  # of xᵀGx; float32 is also checked in float64, on few examples
FEW = 8


def gram_spectrum(
    risk: Risk, *, subtract: Sequence[Part] = (), project: Sequence[Part] = (), dtype: torch.dtype = torch.float64
) -> Spectrum:
    """The exact spectrum of G, or of what is left of it after parts were subtracted, then others projected out.

    `gram_spectrum(risk, subtract=("between_class", "cross_class", "own_class"))` is that of G_within. For several
    knockouts of one risk, build `Gram.of(risk)` once. In float32, the products between layers run in the risk's
    `tangent_precision`. Papyan (2020), Defs 3.1, 3.2, Sec. 6; for any class balance.
    """
    return Gram.of(risk, dtype=dtype).spectrum(subtract=subtract, project=project)


@dataclass(frozen=True, eq=False, repr=False)
class Gram:
    """K = J̃ J̃ᵀ of a risk: the inner products of all its examples' gradients (its empirical neural tangent kernel)."""

    matrix: Float[Tensor, "m m"]
    size: int  # n, the number of parameters
    classes: Terms | None  # None where the targets are no labels
    error: float  # |xᵀGx - ‖Ky‖²| / ‖Ky‖² for x = J̃ᵀy with a random y: K against a product with G

    @classmethod
    def of(cls, risk: Risk, *, dtype: torch.dtype = torch.float64) -> Gram:
        """The Gram matrix of a risk, computed in the given precision and checked against a product with G."""
        _check_rows(risk)
        risk = risk.to(dtype)
        gram = _captured(layers(risk)) if dtype == torch.float64 or _faithful(risk) else None
        if gram is None or not gram.error <= ROUNDING[dtype]:
            gram = _assembled(Layers(risk, frozenset(risk.shapes)))  # which captures nothing
        if gram.error <= ROUNDING[dtype]:
            return gram
        raise NumericalError(
            f"The Gram matrix and a product with G differ by {gram.error:.1e}, relative to the product.",
            "The gradients of single examples do not add up to those of a batch, or float32 does not resolve them.",
            "Compute in float64: dtype=torch.float64.",
            "Check that the model treats every example by itself, and that it is deterministic.",
        )

    def __repr__(self) -> str:
        return f"Gram({len(self.matrix):,} rows, n = {self.size:,}, checked to {self.error:.1e})"

    def spectrum(self, *, subtract: Sequence[Part] = (), project: Sequence[Part] = ()) -> Spectrum:
        """The n eigenvalues of G without some of its parts: these subtracted, then those projected out."""
        values = self.eigenvalues(subtract=subtract, project=project)
        zeros = values.new_zeros(1)
        multiplicity = torch.cat([torch.ones_like(values), zeros + self.size - len(values)])
        return Spectrum.of_eigenvalues(torch.cat([values, zeros]), multiplicity)

    def eigenvalues(self, *, subtract: Sequence[Part] = (), project: Sequence[Part] = ()) -> Float[Tensor, " k"]:
        """The eigenvalues that need not be zero, largest magnitude first: at most n, at most one for each row of K."""
        K = self.matrix.double()
        if project:
            K = _projected(K, self._columns(project))
        if subtract:
            K = self._compressed(K, subtract)
        values = torch.linalg.eigvalsh(K).cpu()
        order = values.abs().argsort(descending=True)
        return values[order[: self.size]]

    def _columns(self, parts: Sequence[Part]) -> Float[Tensor, "m s"]:
        """B with J̃ᵀ B Bᵀ J̃ the sum of the parts."""
        classes = _checked(parts, self.classes)
        if "within" not in parts:
            return _directions(classes, parts)
        U, lost = _loss_of_root(_directions(classes, [part for part in PARTS if part not in parts]))
        return torch.eye(len(U), dtype=U.dtype, device=U.device) - (U * lost) @ U.T

    def _compressed(self, K: Float[Tensor, "m m"], subtract: Sequence[Part]) -> Float[Tensor, "k k"]:
        """A matrix with the non-zero spectrum of J̃ᵀ M J̃, M = 1 - Σ P over the subtracted parts."""
        classes = _checked(subtract, self.classes)
        if "within" in subtract:
            B = _directions(classes, [part for part in PARTS if part not in subtract])
            return B.T @ K @ B
        U, lost = _loss_of_root(_directions(classes, subtract))
        K = K - (K @ U * lost) @ U.T
        return K - (U * lost) @ (U.T @ K)


# Parts of G ---------------------------------------------------------------------------------------------------------


def _directions(classes: Terms, parts: Sequence[Part]) -> Float[Tensor, "m s"]:
    """The columns B of some parts but "within".

    With a row √w g for every would-be label c' of every example, the mean of a group of rows is a projection on the
    vector √w of that group. Groups are the examples of a class c with the same c', whose means are g_cc'; the means
    g_c are those over c' ≠ c of a class. `complement` takes those C rows of an example to the C - 1 that K has.
    """
    count, basis = classes.probabilities.shape[1], complement(classes.probabilities)
    columns = [basis.new_zeros(basis.shape[0] * basis.shape[2], 0)]
    for label in classes.present():
        members = classes.members(label)
        w = classes.weights[members]
        groups = torch.where(w.sum(0) > 0, w / w.sum(0), 0.0).sqrt()  # (members, C): unit vectors, one for each c'
        means = groups[:, None, :] * basis[members].transpose(1, 2)  # (members, C - 1, C)
        within = torch.zeros(*basis.shape[:1], count - 1, count, dtype=w.dtype, device=w.device)
        within[members] = means
        columns.append(within.flatten(0, 1) @ _combinations(w.sum(0), label, parts))
    return torch.cat(columns, 1)


def _combinations(weights: Float[Tensor, " C"], label: int, parts: Sequence[Part]) -> Float[Tensor, "C s"]:
    """Which combinations of the means g_cc' of a class belong to the parts: orthonormal columns."""
    others = torch.arange(len(weights), device=weights.device) != label
    unit = torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    shares = weights[others] / weights[others].sum() if weights[others].sum() > 0 else weights[others]
    columns = {
        "between_class": unit[:, others] @ shares.sqrt()[:, None],
        "cross_class": unit[:, others] @ complement(shares[None])[0],
        "own_class": unit[:, [label]],
    }
    return torch.cat([unit[:, :0], *(column for part, column in columns.items() if part in parts)], 1)


def _loss_of_root(B: Float[Tensor, "m s"]) -> tuple[Float[Tensor, "m r"], Float[Tensor, " r"]]:
    """U and d with (1 - B Bᵀ)^½ = 1 - U diag(d) Uᵀ, for columns that are orthonormal before they are compressed."""
    U, singular, _ = torch.linalg.svd(B, full_matrices=False)
    return U, 1 - (1 - singular.square()).clamp(min=0).sqrt()


def _projected(K: Float[Tensor, "m m"], B: Float[Tensor, "m s"]) -> Float[Tensor, "m m"]:
    """K - K B (Bᵀ K B)⁺ Bᵀ K: the Gram matrix of the rows without their parts along J̃ᵀB."""
    inside = K @ B @ _inverse_root(B.T @ K @ B).T
    return K - inside @ inside.T


def _inverse_root(A: Float[Tensor, "s s"]) -> Float[Tensor, "s s"]:
    """R with Rᵀ R = A⁺; eigenvalues that rounding cannot tell from zero are zero."""
    values, vectors = torch.linalg.eigh(A)
    known = values > len(A) * torch.finfo(A.dtype).eps * values.abs().max() if len(A) else values > 0
    return torch.where(known, values.clamp(min=torch.finfo(A.dtype).tiny).rsqrt(), 0.0)[:, None] * vectors.T


# The matrix ---------------------------------------------------------------------------------------------------------


def _faithful(risk: Risk) -> bool:
    """Whether the layers' part in the gradients is seen rightly: a question that float32 rounding must not answer."""
    gram = _captured(layers(risk.first(FEW).to(torch.float64)))
    return gram is not None and gram.error <= ROUNDING[torch.float64]


def _captured(known: Layers) -> Gram | None:
    """K from what layers saw; None where that could not be told apart by example."""
    try:
        return _assembled(known)
    except ModelError:
        return None


def _assembled(known: Layers) -> Gram:
    """K, block by block of examples, so many at a time that two blocks and what comes of them fit into memory."""
    risk, blocks = known.risk, _blocks(known)
    pieces: list[list[Tensor]] = []
    labelled: list[Terms] = []
    with quiet(), progress.bar("Gram matrix", total=len(blocks) * (len(blocks) + 1) // 2) as bar:
        for i, block in enumerate(blocks):
            left = _rows(known, block)
            pieces.append([])
            for j in range(i + 1):
                right = left if i == j else _rows(known, blocks[j])
                with risk.numerics(risk.tangent_precision, search=False), torch.no_grad():
                    pieces[i].append(left.inner(right, risk.memory / 4))
                bar.advance()
            labelled += [terms(risk, left.outputs, block.targets)] if _has_labels(risk) else []
    K = _symmetric(pieces)
    return Gram(K, risk.size, _all_terms(labelled), _error(risk, K, blocks))


def _symmetric(pieces: list[list[Tensor]]) -> Float[Tensor, "m m"]:
    """The whole matrix from its lower blocks; they are given up one by one, for they are as large as the matrix."""
    ends = torch.tensor([0, *(len(row[0]) for row in pieces)]).cumsum(0).tolist()
    K = pieces[0][0].new_empty(ends[-1], ends[-1])
    for i, row in enumerate(pieces):
        for j in range(i + 1):
            rows, columns = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            piece = (row[j] + row[j].T) / 2 if i == j else row[j]
            K[rows, columns], K[columns, rows] = piece, piece.T
        row.clear()
    return K


def _rows(known: Layers, block: Batch) -> Rows:
    return rows_of(known, block, lambda z: _directions_of_outputs(known.risk, z, block.targets))


def _directions_of_outputs(risk: Risk, z: Tensor, targets: Tensor) -> Float[Tensor, "r N ..."]:
    """u with Σ u uᵀ = ∂²ℓ/∂z² / Σ w: the directions of every example, r for each of its terms, as cotangents of z."""
    return torch.cat(list(cotangents(risk.loss, z, _root(risk, z, targets))))


def _root(risk: Risk, z: Tensor, targets: Tensor) -> Float[Tensor, "t K r"]:
    """The loss's square root; that of labels from the same numbers as the parts of G, in the same basis."""
    if not _has_labels(risk):
        return risk.loss.square_root(z, targets) / risk.total_weight**0.5
    found = terms(risk, z, targets)
    return (found.weights.sqrt()[:, :, None] * complement(found.probabilities)).to(z.dtype)


def _has_labels(risk: Risk) -> bool:
    return isinstance(risk.loss, CrossEntropy) and not next(iter(risk.batches)).targets.is_floating_point()


def _all_terms(found: list[Terms]) -> Terms | None:
    if not found:
        return None
    return Terms(*(torch.cat([getattr(t, name) for t in found]) for name in ("labels", "masses", "probabilities")))


def _blocks(known: Layers) -> list[Batch]:
    """The data in blocks of as many examples as a third of the memory holds."""
    risk = known.risk
    first = next(iter(risk.batches))
    with torch.no_grad():
        z = risk.outputs(risk.leaves(), first.first(1))
    size = max(1, int(risk.memory / 3 / row_bytes(known, len(_directions_of_outputs(risk, z, first.first(1).targets)))))
    batches = risk.batches.joined(max(1, size // len(first)))
    return [batch.rows(slice(i, i + size)) for batch in batches for i in range(0, len(batch), size)]


def pulled_back(risk: Risk, Y: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    """J̃ᵀ Y by plain backward passes: the vectors of parameter space that belong to columns of K's."""
    X, start = Y.new_zeros(Y.shape[1], risk.size), 0
    for batch in risk.batches:
        leaves = risk.leaves()
        with risk.numerics(search=False):
            z = risk.outputs(leaves, batch)
            U = _directions_of_outputs(risk, z.detach(), batch.targets)
            part = Y[start : start + len(U) * len(batch)].view(len(batch), len(U), -1)
            start += len(batch) * len(U)
            for x, u in zip(X, torch.einsum("nrk,rn...->kn...", part, U), strict=True):
                if z.requires_grad:
                    x += risk.flatten(torch.autograd.grad(z, leaves, u, allow_unused=True, retain_graph=True))
    return X.T


def _error(risk: Risk, K: Float[Tensor, "m m"], blocks: list[Batch]) -> float:
    """How far xᵀx is from yᵀKy and xᵀGx from ‖Ky‖², for x = J̃ᵀy with a random y."""
    y = torch.randn(len(K), generator=torch.Generator().manual_seed(0), dtype=K.dtype).to(K.device)
    x, y, K = pulled_back(risk, y[:, None])[:, 0].double(), y.double(), K.double()  # float32 cannot hold their squares
    scale, Ky = x.norm().clamp(min=torch.finfo(x.dtype).tiny), K @ y
    Gx = _gauss_newton_product(risk, (x / scale).to(risk.dtype), blocks).double() * scale
    pairs = [(x @ x, y @ Ky), (x @ Gx, Ky @ Ky)]
    return max(float((a - b).abs() / b.abs()) if float(b) else float(a.abs()) for a, b in pairs)


def _gauss_newton_product(risk: Risk, x: Float[Tensor, " n"], blocks: list[Batch]) -> Float[Tensor, " n"]:
    """G x by the plainest path: one product does not pay for a choice among several."""
    total = torch.zeros_like(x)[None]
    for block in blocks:
        with risk.numerics(search=False):
            try:
                product = gauss_newton_map(risk, block, rules=False)
                add_product(risk, total, product, x[None])
            except RuntimeError:  # an operation without a double backward, before anything was added
                add_product(risk, total, gauss_newton_forward(risk, block), x[None])
    return total[0] / risk.total_weight


# What is refused ----------------------------------------------------------------------------------------------------


def _checked(parts: Sequence[Part], classes: Terms | None) -> Terms:
    unknown = [part for part in parts if part not in PARTS]
    if unknown or isinstance(parts, str):
        raise ArgumentError(
            f"The parts {parts!r} were named.",
            f"The parts of G are {', '.join(PARTS)}.",
            'Pass them as a tuple: subtract=("between_class",).',
        )
    if classes is None:
        raise DataError(
            "The targets are no class indices.",
            "Only the Gauss-Newton matrix of a classifier has parts that belong to classes.",
            "Use a cross-entropy risk with integer targets, or ask for the spectrum without knockouts.",
        )
    return classes


def _check_rows(risk: Risk) -> None:
    if risk.group is not None:
        raise ArgumentError(
            "The risk is distributed over a group.",
            "The Gram matrix joins every example with every other.",
            "Build the risk without a group, on a part of the data: Risk(...).first(1000).",
        )
    width = risk.num_classes - 1 if isinstance(risk.loss, CrossEntropy) else risk.num_classes
    rows = risk.num_terms * width
    wanted = 3 * 8 * rows**2  # the matrix, a copy that is decomposed, and room for either
    if wanted > risk.memory:
        raise ArgumentError(
            f"The Gram matrix of {risk.num_terms:,} terms has {rows:,} rows and takes {wanted / 1e9:.3g} GB.",
            f"The risk may use {risk.memory / 1e9:.3g} GB.",
            f"Take fewer examples: risk.first({max(1, int(risk.num_examples * (risk.memory / wanted) ** 0.5))}).",
            "Raise Risk(..., memory=...), if the machine has it.",
            "Use spectral_density(gauss_newton(risk)), which needs no such matrix.",
        )
