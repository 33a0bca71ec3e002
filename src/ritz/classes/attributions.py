"""Where the lines come from: the large eigenvalues of H and G split into what classes, cross-classes and the rest give.

A unit eigenvector v of H has λ = vᵀHv = vᵀG_class v + vᵀG_cross v + vᵀG_own v + vᵀG_within v + vᵀE v: the split is
exact, whatever the network. Knockouts say the same of the whole spectrum: what disappears with a part belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import ArgumentError
from ..factored.gram import PARTS, Gram, Part, pulled_back
from ..operators import Operator, gauss_newton, hessian, low_rank
from ..risk.losses import CrossEntropy
from ..risk.risk import Risk
from ..solvers import eigenpairs, spectral_density
from ..solvers.eigen import SMALL, usual_basis
from ..spectrum import Eigenpairs, Spectrum
from . import knockouts as knockout
from .decomposition import ClassDecomposition, class_decomposition

EXACT_ROWS = 3000  # of a matrix that is decomposed five times: a minute on two cores
TOLERANCE = 1e-4  # of eigenpairs, relative to the largest
KNOWN = {torch.float64: 1e-10, torch.float32: 1e-4}  # λ/λ₁ from which y of K gives v of G to a few digits
CHUNK = 2**20  # rows of a factor that are converted to float64 at a time
STEPS, PROBES = 128, 4  # of the quadratures that stand in for larger ones
NEAR_ONE, NEAR_ZERO = 0.8, 0.2  # overlaps that the findings call "lie in" and "do not lie in"


@dataclass(frozen=True, eq=False)
class Lines:
    """The largest eigenpairs of one matrix, and what each is made of."""

    pairs: Eigenpairs
    shares: Mapping[str, Float[Tensor, " k"]]  # vᵀ part v / λ, which sum to one
    in_class_means: Float[Tensor, " k"] | None  # ‖P v‖², P the projection on the span of the class means
    in_cross_means: Float[Tensor, " k"] | None  # the same for the span of all means

    def __len__(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True, eq=False)
class Attribution:
    """Which eigenvalues of H and G come from what. `findings` says it in words; `spectra` are those after knockouts."""

    classes: ClassDecomposition
    hessian: Lines
    gauss_newton: Lines
    spectra: Mapping[str, Spectrum]  # "G", and "G - G_class" ... by part
    part_eigenvalues: Mapping[str, Float[Tensor, " r"]]  # of the low-rank parts and their sum, exact, descending
    within_edge: float  # the largest eigenvalue of G_within

    @property
    def num_classes(self) -> int:
        """C."""
        return self.classes.num_classes

    @cached_property
    def overlaps(self) -> Float[Tensor, "k k"]:
        """|⟨v, u⟩|² of every eigenvector v of H with every one u of G."""
        return (self.hessian.pairs.vectors.T @ self.gauss_newton.pairs.vectors).square()

    @property
    def matches(self) -> Int[Tensor, " k"]:
        """For each eigenvector of H, the one of G that is nearest to it."""
        return self.overlaps.argmax(1)

    @property
    def hessian_overlap(self) -> float:
        """‖V_HᵀV_G‖² / C of the top C eigenvectors: one where both span the same space."""
        return float(self.overlaps[: self._count, : self._count].sum() / self._count)

    @property
    def class_overlap(self) -> float | None:
        """How much of the top C eigenvectors of G lies in the span of the class means; None if these are not held."""
        inside = self.gauss_newton.in_class_means
        return None if inside is None else float(inside[: self._count].mean())

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many eigenvalues of G are outliers, of the mini-bulk, of the bulk, and zero for want of examples.

        Outliers are those above all of G - G_class: at most C, by interlacing. The mini-bulk has those of the means'
        own spectrum that stand above the edge of G_within, the outliers left out: at most C(C - 2); it is not told
        from the bulk where the means are not held.
        """
        n, C, values = self.classes.risk.size, self.num_classes, self.gauss_newton.pairs.values
        rank = min(n, _num_weighted(self.classes.risk) * (C - 1))
        edge, floor = self.spectra["G - G_class"].range[1], self.floor
        outliers = int((values > max(edge * (1 + 1e-9), floor)).sum())
        means = self.part_eigenvalues.get("together", values[:outliers])
        mini = int((means > max(self.within_edge, floor)).sum()) - outliers
        mini = min(max(0, mini), C * (C - 2), rank - outliers)
        return {"outliers": outliers, "mini-bulk": mini, "bulk": rank - outliers - mini, "zero": n - rank}

    @property
    def floor(self) -> float:
        """What rounding cannot tell from a zero eigenvalue of G: eps λ₁ for each class and cross-class."""
        eps = torch.finfo(self.classes.risk.dtype).eps
        return self.num_classes**2 * eps * max(0.0, float(self.gauss_newton.pairs.values[0]))

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, one sentence each."""
        return (*_outliers(self), *_knockouts(self), *_mini_bulk(self), *_hessian(self))

    @property
    def _count(self) -> int:
        return min(self.num_classes, len(self.gauss_newton))


def attribution(
    risk: Risk,
    *,
    num_lines: int | None = None,
    exact_rows: int = EXACT_ROWS,
    generator: torch.Generator | None = None,
) -> Attribution:
    """Which eigenvalues of H and G come from what: lines, parts and knockouts of a classifier.

    Args:
        num_lines: How many of the largest eigenpairs of H and of G; C + 2 unless given.
        exact_rows: Up to so many rows of the Gram matrix, or parameters, the knocked-out spectra are exact; beyond,
            they are Lanczos quadratures.
    """
    classes = class_decomposition(risk)
    count = min(risk.size, num_lines if num_lines is not None else classes.num_classes + 2)
    _check_lines(count, num_lines)
    H, G, gram = hessian(risk), gauss_newton(risk), _gram(risk, exact_rows)
    of_g = None if gram is None else _eigenpairs_of_gram(risk, G, gram, count)
    if of_g is None or not bool(of_g.converged.all()):  # then float32 products are those of a slightly other matrix
        start = None if of_g is None else of_g.vectors
        of_g = eigenpairs(G, count, basis_size=_basis_size(risk, count), start=start, generator=generator)
    of_h = eigenpairs(H, count, basis_size=_basis_size(risk, count), start=of_g.vectors, generator=generator)
    return Attribution(
        classes,
        _lines(of_h, H, classes),
        _lines(of_g, None, classes),
        _spectra_of_gram(gram) if gram is not None else _spectra(risk, G, classes, exact_rows, generator),
        _part_eigenvalues(classes),
        _within_edge(risk, classes, gram, generator),
    )


def _gram(risk: Risk, exact_rows: int) -> Gram | None:
    """The Gram matrix, where it is small enough to be diagonalised once for each knockout."""
    rows = risk.num_terms * (risk.num_classes - 1)
    wanted = rows <= exact_rows and risk.group is None and risk.separable
    return Gram.of(risk) if wanted else None  # in float64: it is small, and its small eigenvalues are wanted


def _eigenpairs_of_gram(risk: Risk, G: Operator, gram: Gram, count: int) -> Eigenpairs | None:
    """The largest eigenpairs of G from those of K: v = J̃ᵀy / √λ, certified by fresh products.

    None where fewer eigenvalues than wanted can be told from zero, for then y says nothing about v.
    """
    values, Y = torch.linalg.eigh(gram.matrix.double())
    values, Y = values.flip(0)[:count], Y.flip(1)[:, :count]
    if len(values) < count or not float(values[-1]) > KNOWN[risk.dtype] * float(values[0]):
        return None
    V = pulled_back(risk, Y.to(risk.dtype)) / values.sqrt().to(risk.dtype)  # rows in the same order in any precision
    V = torch.linalg.qr(V).Q  # rounding has tilted them
    GV = G @ V
    small, turn = torch.linalg.eigh((V.T @ GV).double())
    V, GV, values = V @ turn.flip(1).to(V), GV @ turn.flip(1).to(V), small.flip(0).to(V)
    residuals = (GV - V * values).norm(dim=0)
    return Eigenpairs(values, V, residuals, residuals <= TOLERANCE * values[0], num_products=count)


def _within_edge(
    risk: Risk, classes: ClassDecomposition, gram: Gram | None, generator: torch.Generator | None
) -> float:
    if gram is not None:
        return float(gram.eigenvalues(subtract=PARTS[:3])[0])
    return float(eigenpairs(classes.within, 1, basis_size=_basis_size(risk, 1), generator=generator).values[0])


def _basis_size(risk: Risk, count: int) -> int | None:
    """How many vectors a search may keep: as many as it likes, or what a third of the memory holds if that is less.

    A hundred vectors of 28 million parameters are 11 GB; a search with fewer restarts more often.
    """
    held = int(risk.memory / 3 / (risk.size * risk.theta.element_size()))
    return None if risk.size <= SMALL or held >= usual_basis(count) else max(held, 2 * count + 10)


def _lines(pairs: Eigenpairs, H: Operator | None, classes: ClassDecomposition) -> Lines:
    V = pairs.vectors
    energy = lambda A: (V * (A @ V)).sum(0).double()
    parts: dict[str, Tensor] = {part: energy(getattr(classes, part)) for part in PARTS}
    whole = sum(parts.values(), torch.zeros_like(parts["within"]))
    if H is not None:
        total = energy(H)
        parts["functional"], whole = total - whole, total
    known = whole.abs() > torch.finfo(V.dtype).eps ** 0.75 * whole.abs().max()  # an eigenvalue of zero has no parts
    shares = {name: torch.where(known, value / whole, 0.0) for name, value in parts.items()}
    means, cross = classes.between_class.factor, classes.cross_class.factor
    return Lines(pairs, shares, _inside(V, means), _inside(V, means, cross))


def _inside(V: Float[Tensor, "n k"], *factors: Float[Tensor, "n _"] | None) -> Float[Tensor, " k"] | None:
    """‖P v‖² of every column v, P the projection on the range of all factors; None where one is not known.

    Columns are scaled to length one: the range does not change, and small ones are not lost in the Gram matrix.
    """
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return None
    scales = torch.cat([factor.norm(dim=0) for factor in known]).double()
    scales = torch.where(scales > 0, 1 / scales, 0.0)
    values, vectors = torch.linalg.eigh(scales[:, None] * _inner(known, known) * scales)
    used = values > len(values) * torch.finfo(V.dtype).eps * values[-1]
    coordinates = vectors[:, used].T @ (scales[:, None] * _inner(known, [V]))
    return (coordinates.square() / values[used, None]).sum(0).clamp(max=1.0)


def _inner(left: Sequence[Tensor], right: Sequence[Tensor]) -> Float[Tensor, "r s"]:
    """AᵀB of matrices given by blocks of columns, summed up in float64, some rows at a time."""
    rows = range(0, len(left[0]), CHUNK)
    pieces = lambda blocks, i: torch.cat([block[i : i + CHUNK].double() for block in blocks], 1)
    if left is right:
        return torch.stack([(A := pieces(left, i)).T @ A for i in rows]).sum(0)
    return torch.stack([pieces(left, i).T @ pieces(right, i) for i in rows]).sum(0)


def _part_eigenvalues(classes: ClassDecomposition) -> dict[str, Float[Tensor, " r"]]:
    """The eigenvalues of the low-rank parts, from the Gram matrix of their factors; none where these are not held."""
    factors = {part: getattr(classes, part).factor for part in PARTS[:3]}
    groups = {part: [factor] for part, factor in factors.items()} | {"together": list(factors.values())}
    return {
        name: torch.linalg.eigvalsh(_inner(group, group)).flip(0).clamp(min=0)
        for name, group in groups.items()
        if all(factor is not None for factor in group)
    }


# Knockouts ----------------------------------------------------------------------------------------------------------

NAMES: dict[Part, str] = {
    "between_class": "G_class", "cross_class": "G_cross", "own_class": "G_own", "within": "G_within",
}  # fmt: skip
SUBTRACTED: dict[str, list[Part]] = {"G": []} | {f"G - {name}": [part] for part, name in NAMES.items()}
PROJECTED: dict[str, list[Part]] = {
    "G off G_class": ["between_class"],
    "G off all means": ["between_class", "cross_class"],
}


def _spectra_of_gram(gram: Gram) -> dict[str, Spectrum]:
    subtracted = {name: gram.spectrum(subtract=parts) for name, parts in SUBTRACTED.items()}
    return subtracted | {name: gram.spectrum(project=parts) for name, parts in PROJECTED.items()}


def _spectra(
    risk: Risk, G: Operator, classes: ClassDecomposition, exact_rows: int, generator: torch.Generator | None
) -> dict[str, Spectrum]:
    """The spectrum of G, and those after each of its parts was subtracted, or the span of its means projected out."""
    exact = risk.size <= exact_rows
    G = Operator.from_matrix(G.dense()) if exact else G  # each knockout would multiply all of it again
    return {name: _spectrum(A, exact=exact, generator=generator) for name, A in _knocked_out(G, classes).items()}


def _knocked_out(G: Operator, classes: ClassDecomposition) -> dict[str, Operator]:
    """G without its parts; without G_within it is the sum of the others, which needs no product with G."""
    found = dict.fromkeys(SUBTRACTED, G)
    for name, parts in SUBTRACTED.items():
        for part in parts:
            found[name] = knockout.subtract(found[name], getattr(classes, part))
    found["G - G_within"] = classes.between_class + classes.cross_class + classes.own_class
    for name, parts in PROJECTED.items():
        factors = [getattr(classes, part).factor for part in parts]
        if all(factor is not None for factor in factors):
            found[name] = knockout.project(G, low_rank(torch.cat(factors, 1)))
    return found


def _spectrum(A: Operator, *, exact: bool, generator: torch.Generator | None) -> Spectrum:
    if exact:
        return Spectrum.of_matrix(A.dense())
    return spectral_density(A, num_steps=min(STEPS, A.size), num_probes=PROBES, generator=generator)


# In words -----------------------------------------------------------------------------------------------------------


def _outliers(found: Attribution) -> list[str]:
    C, values, inside = found.num_classes, found.gauss_newton.pairs.values, found.class_overlap
    counted = found.counts["outliers"]
    stand = "stands" if counted == 1 else "stand"
    sentences = [f"{counted} of the {C} largest eigenvalues of G {stand} above all that is left without G_class."]
    if len(values) > C and float(values[C]) > found.floor:
        sentences.append(f"Eigenvalue {C} of G is {float(values[C - 1] / values[C]):.3g} times eigenvalue {C + 1}.")
    if inside is not None:
        where = "lie in" if inside >= NEAR_ONE else "lie partly in" if inside > NEAR_ZERO else "do not lie in"
        sentences.append(
            f"The top {found._count} eigenvectors of G {where} the span of the class means: overlap {inside:.3f}."
        )
    return sentences


def _knockouts(found: Attribution) -> list[str]:
    largest = {name: spectrum.range[1] for name, spectrum in found.spectra.items()}
    top, left = largest.pop("G"), largest.get("G off G_class")
    if top <= 0:
        return ["G is zero to rounding: the network is sure of every example."]
    by = {name.removeprefix("G - "): 1 - value / top for name, value in largest.items() if name.startswith("G - ")}
    told = ", ".join(f"{max(0.0, share):.1%} without {name}" for name, share in by.items())
    sentences = [f"The largest eigenvalue of G falls by {told}."]
    if left is not None:
        sentences.append(f"On the complement of the class means it falls from {top:.3g} to {left:.3g}.")
    return sentences


def _mini_bulk(found: Attribution) -> list[str]:
    C, values, floor = found.num_classes, found.part_eigenvalues.get("cross_class"), found.floor
    if values is None:
        return []
    rank, above = (int((values > bound).sum()) for bound in (floor, max(floor, found.within_edge)))
    has = "one eigenvalue that is" if rank == 1 else f"{rank} eigenvalues that are"
    return [
        f"G_cross has {has} not zero, of at most C(C - 2) = {C * (C - 2)}; above the edge of the bulk, "
        f"{found.within_edge:.3g}, the largest eigenvalue of G_within, there {'is' if above == 1 else 'are'} {above}."
    ]


def _hessian(found: Attribution) -> list[str]:
    overlap, C = found.hessian_overlap, found._count
    share = float(found.hessian.shares["functional"][:C].mean())
    near, far = overlap >= NEAR_ONE, overlap <= NEAR_ZERO
    how = "span the same space as" if near else "lie apart from" if far else "share a part of their span with"
    return [
        f"The top {C} eigenvectors of H {how} those of G: overlap {overlap:.3f}.",
        f"On average E = H - G gives {share:.1%} of the top {C} eigenvalues of H.",
    ]


def _num_weighted(risk: Risk) -> int:
    """How many terms have a weight: those that are neither ignored nor of a class of weight zero."""
    loss = cast(CrossEntropy, risk.loss)
    z = risk.theta.new_zeros(risk.num_classes, risk.num_classes)
    masses = loss.masses(z, torch.arange(risk.num_classes, device=z.device))
    kept = risk.labels[risk.labels != loss.ignore_index]
    return int((masses[kept] > 0).sum())


def _check_lines(count: int, asked: int | None) -> None:
    if count < 1:
        raise ArgumentError(
            f"num_lines={asked} was given.",
            "An attribution is one of at least one eigenvalue.",
            "Leave it out: it is the number of classes and two more.",
        )
