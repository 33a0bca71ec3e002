"""Where the lines come from: which large eigenvalues of H and G belong to classes, to cross-classes or to the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...errors import ArgumentError
from ...factored.gram import Gram
from ...factored.gram_assembly import pullback
from ...factored.gram_parts import PARTS
from ...operators import Operator, gauss_newton, hessian
from ...record.cards import card
from ...risk import Risk
from ...solvers import eigenpairs
from ...solvers.eigen import SMALL, kept_basis, usual_basis
from ...solvers.stages import Stages, stages_of_risk
from ...spectrum import Eigenpairs, Spectrum
from ..gradients.decomposition import ClassDecomposition, class_decomposition
from .findings import about_absent_classes, about_knockouts, about_outliers, about_the_hessian, about_the_mini_bulk
from .knockout_spectra import spectra_of_gram, spectra_of_products
from .shares import Lines, kept_lines, part_eigenvalues

EXACT_ROWS = 3000  # rows of a matrix that is decomposed five times: a minute on two cores
TOLERANCE = 1e-4  # residual of the eigenpairs, relative to the largest eigenvalue
RESOLVED = {torch.float64: 1e-10, torch.float32: 1e-4}  # λ/λ₁ above which y of K gives v of G to a few digits


@dataclass(frozen=True, repr=False, eq=False)
class Attribution:
    """Which eigenvalues of H and G come from what; `findings` says it in words, `spectra` has those after knockouts.

    >>> data = torch.eye(2).double(), torch.tensor([0, 1])
    >>> risk = Risk(torch.nn.Sequential(torch.nn.Linear(2, 2)).double(), torch.nn.CrossEntropyLoss(), data)
    >>> attribution(risk, num_lines=2).overlaps.shape
    torch.Size([2, 2])
    """

    classes: ClassDecomposition
    hessian: Lines
    gauss_newton: Lines
    spectra: Mapping[str, Spectrum]  # "G", and "G - G_class" ... by part
    part_eigenvalues: Mapping[str, Float[Tensor, " r"]]  # of the low-rank parts and their sum, exact, descending
    within_edge: float  # the largest eigenvalue of G_within
    num_outliers: int  # eigenvalues of G above all of G - G_class, more than there are lines or not

    def __repr__(self) -> str:
        """The kinds of lines, and the findings."""
        counts = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        head = f"Attribution(C = {self.num_classes}, n = {self.classes.risk.size:,}: {counts})"
        return "\n".join([head, *(f"  {sentence}" for sentence in self.findings)])

    def _repr_html_(self) -> str:
        """HTML for a notebook: the findings in words, and how many lines of each kind there are."""
        counts = {name: f"{count:,}" for name, count in self.counts.items()}
        return card(f"Where the lines come from: {self.num_classes} classes", counts, sentences=self.findings)

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
        """The index of the nearest eigenvector of G for each eigenvector of H."""
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
        """How many eigenvalues of G are outliers, in the mini-bulk, in the bulk, or zero for lack of examples.

        Outliers are those above all of G - G_class: at most C, by interlacing. The mini-bulk has those of the means'
        own spectrum that stand above the edge of G_within, the outliers left out: at most C(C - 2); it is
        counted with the bulk where the means are not held.
        """
        n, C, outliers = self.classes.risk.size, self.num_classes, self.num_outliers
        rank = min(n, self.classes.num_weighted * (C - 1))
        means = self.part_eigenvalues.get("together")
        above = outliers if means is None else int((means > max(self.within_edge, self.floor)).sum())
        mini = min(max(0, above - outliers), C * (C - 2), rank - outliers)
        return {"outliers": outliers, "mini-bulk": mini, "bulk": rank - outliers - mini, "zero": n - rank}

    @property
    def floor(self) -> float:
        """The size below which an eigenvalue of G may be a zero: eps λ₁ for each class and cross-class."""
        return _floor(self.classes, self.gauss_newton.pairs)

    @property
    def findings(self) -> tuple[str, ...]:
        """The results in words, one sentence each."""
        C, values, cross = self.num_classes, self.gauss_newton.pairs.values, self.part_eigenvalues.get("cross_class")
        share = float(self.hessian.shares["functional"][: self._count].mean())
        return (
            *about_outliers(C, values, self.counts["outliers"], self.floor, self.class_overlap),
            *about_knockouts(self.spectra),
            *about_the_mini_bulk(C, cross, self.within_edge, self.floor),
            *about_the_hessian(self._count, self.hessian_overlap, share),
            *about_absent_classes(self.classes.cross_weights.sum(1)),
        )

    @property
    def _count(self) -> int:
        return min(self.num_classes, len(self.gauss_newton))


def attribution(
    risk: Risk,
    *,
    num_lines: int | None = None,
    exact_rows: int = EXACT_ROWS,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
) -> Attribution:
    """Which eigenvalues of H and G come from what: lines, parts and knockouts of a classifier. Papyan (2020), Def. 3.3.

    Args:
        num_lines: How many of the largest eigenpairs of H and of G; C + 2 unless given.
        exact_rows: Up to so many rows of the Gram matrix, or parameters, the knocked-out spectra are exact; beyond,
            they are Lanczos quadratures.
        checkpoint: A folder from which a computation that was killed goes on to the same bits. Searches keep 2k + 12
            vectors at most, and write them there every half minute; what is over is read. The class means, which may
            be far more, are computed again. It belongs to this risk and these arguments.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    >>> _ = torch.nn.init.zeros_(model[0].weight)
    >>> risk = Risk(model, torch.nn.CrossEntropyLoss(), (torch.eye(2).double(), torch.tensor([0, 1])))
    >>> result = attribution(risk, num_lines=2)
    >>> result.counts
    {'outliers': 2, 'mini-bulk': 0, 'bulk': 0, 'zero': 2}
    >>> result.findings[1]
    'The top 2 eigenvectors of G lie in the span of the class means: overlap 1.000.'
    """
    classes = class_decomposition(risk)
    count = min(risk.size, num_lines if num_lines is not None else classes.num_classes + 2)
    _check_lines(count, num_lines)
    H, G = hessian(risk), gauss_newton(risk)
    stages = stages_of_risk(checkpoint, risk, num_lines=count, exact_rows=exact_rows, generator=generator)
    gram = _gram(risk, exact_rows, stages)
    search = partial(_search, risk, generator=generator, stages=stages)
    by_gram = lambda: None if gram is None else _eigenpairs_of_gram(risk, G, gram, count)
    of_g = None if gram is None else stages.pairs("pairs-of-gram", by_gram, risk.device)
    if of_g is None or not bool(of_g.converged.all()):  # in float32, products are with a slightly different matrix
        of_g = search("pairs-of-G", G, count, start=None if of_g is None else of_g.vectors)
    of_h = search("pairs-of-H", H, count, start=of_g.vectors)
    lines = [kept_lines(stages, "G", of_g, None, classes), kept_lines(stages, "H", of_h, H, classes)]
    if gram is not None:
        spectra = spectra_of_gram(gram, stages)
    else:
        spectra = spectra_of_products(risk, G, classes, exact_rows, generator, stages)
    values = stages.result(
        "parts", lambda: part_eigenvalues(classes), lambda parts: (parts, {}), lambda parts, _: parts
    )
    edge = _within_edge(classes, gram, search)
    outliers = _num_outliers(classes, of_g, spectra, G, search)
    return Attribution(classes, lines[1], lines[0], spectra, values, edge, outliers)


def _search(
    risk: Risk,
    name: str,
    A: Operator,
    count: int,
    *,
    generator: torch.Generator | None,
    stages: Stages,
    start: Tensor | None = None,
) -> Eigenpairs:
    """The largest eigenpairs; with a folder, resumed from the file of this name."""
    basis, file = _basis_size(risk, count), stages.file(name)
    if basis is not None and file is not None:
        basis = min(basis, kept_basis(count))
    return eigenpairs(A, count, basis_size=basis, start=start, generator=generator, checkpoint=file)


def _gram(risk: Risk, exact_rows: int, stages: Stages) -> Gram | None:
    """The Gram matrix, in float64 for its small eigenvalues, if it can be diagonalised once for each knockout."""
    rows = risk.num_targets * (risk.num_classes - 1)
    fits = rows <= exact_rows and risk.group is None and risk.separable
    return Gram.of(risk, checkpoint=stages.folder) if fits else None


def _eigenpairs_of_gram(risk: Risk, G: Operator, gram: Gram, count: int) -> Eigenpairs | None:
    """The largest eigenpairs of G from those of K: v = J̃ᵀy / √λ, certified by fresh products.

    None where fewer eigenvalues than requested differ from zero, for then y says nothing about v.
    """
    values, Y = torch.linalg.eigh(gram.matrix.double())
    values, Y = values.flip(0)[:count], Y.flip(1)[:, :count]
    if len(values) < count or not float(values[-1]) > RESOLVED[risk.dtype] * float(values[0]):
        return None
    V = pullback(risk, Y.to(risk.dtype)) / values.sqrt().to(risk.dtype)  # rows in the same order in any precision
    V = torch.linalg.qr(V).Q  # rounding has tilted them
    GV = G @ V
    small, turn = torch.linalg.eigh((V.T @ GV).double())
    V, GV, values = V @ turn.flip(1).to(V), GV @ turn.flip(1).to(V), small.flip(0).to(V)
    residuals = (GV - V * values).norm(dim=0)
    return Eigenpairs(values, V, residuals, residuals <= TOLERANCE * values[0], num_products=count)


def _within_edge(classes: ClassDecomposition, gram: Gram | None, search: Callable[..., Eigenpairs]) -> float:
    if gram is not None:
        return float(gram.eigenvalues(subtract=PARTS[:3])[0])
    return float(search("edge-of-within", classes.within, 1).values[0])


def _num_outliers(
    classes: ClassDecomposition,
    of_g: Eigenpairs,
    spectra: Mapping[str, Spectrum],
    G: Operator,
    search: Callable[..., Eigenpairs],
) -> int:
    """How many eigenvalues of G, C at most, lie above all of G - G_class; more are searched for if all lines do."""
    bound = max(spectra["G - G_class"].range[1] * (1 + 1e-9), _floor(classes, of_g))
    most, values = min(classes.num_classes, G.size), of_g.values
    if len(values) < most and bool((values > bound).all()):
        whole = spectra["G"]
        values = whole.nodes.flatten() if whole.is_exact else search("outliers", G, most, start=of_g.vectors).values
    return min(most, int((values > bound).sum()))


def _floor(classes: ClassDecomposition, of_g: Eigenpairs) -> float:
    """C² eps λ₁."""
    return classes.num_classes**2 * torch.finfo(classes.risk.dtype).eps * max(0.0, float(of_g.values[0]))


def _basis_size(risk: Risk, count: int) -> int | None:
    """How many vectors a search may keep: None for its own choice, or what a third of the memory holds if that is less.

    A hundred vectors of 28 million parameters are 11 GB; a search with fewer restarts more often.
    """
    held = int(risk.common_memory() / 3 / (risk.size * risk.theta.element_size()))
    return None if risk.size <= SMALL or held >= usual_basis(count) else max(held, 2 * count + 10)


def _check_lines(count: int, requested: int | None) -> None:
    if count < 1:
        raise ArgumentError(
            f"num_lines={requested} was given.",
            "An attribution needs at least one eigenvalue.",
            "Pass 1 or more, or leave it out: the default is the number of classes plus two.",
        )
