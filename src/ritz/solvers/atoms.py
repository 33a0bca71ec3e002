"""Which Ritz values are eigenvalues, with which multiplicity, and how far the mass of all others may lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .tridiagonal import Tridiagonal

GAP = 30.0  # residuals between an eigenvalue and its neighbour: its place is right to 1/900 of their distance
GHOSTS = 64.0  # eps·‖A‖ within which copies of one eigenvalue lie
NEGLIGIBLE = 1e-3  # of an eigenvalue's mass 1/n: a node with less is no neighbour
NOTHING = 1e-20  # share of its mass that a node may lose
TINY = 1e-300  # of a distance, where all eigenvalues are zero
MOST = 8  # copies of an eigenvalue that masses can count
SURE = 0.5, 0.99  # posterior probability from which one eigenvalue, or several, are taken for certain
SIMPLE = 0.99  # of eigenvalues, before any mass was seen
STRENGTH = 5.0  # eigenvalues' worth of that belief
LEARNT = 6.0  # log-likelihood by which other shares must explain the masses better
ROUNDS = 200  # of expectation and maximisation
BLUR = 0.01  # of a Ritz vector's marks that may be rounding
SHOWN = 10.0  # times as much as is blurred: less of an eigenvector in its marks says nothing of it
NEVER = -1e300  # log-likelihood of what cannot be: not -∞, whose differences are NaN
RARE = 0.01  # the probability that a spectrum reaches further than is said


@dataclass(frozen=True)
class Row:
    """One probe's Gauss rule, ascending, with the copies of a converged eigenvalue merged, and nothing else.

    A bulk far from all else is isolated, too, where a copy of a large eigenvalue is on its way at the last step: all
    residuals are large then. Its nodes stay apart.
    """

    nodes: Float[Tensor, " k"]
    weights: Float[Tensor, " k"]
    residuals: Float[Tensor, " k"]
    radii: Float[Tensor, " k"]  # an eigenvalue lies within them
    converged: Bool[Tensor, " k"]
    isolated: Bool[Tensor, " k"]  # in a group that stands apart, of one eigenvalue or of many
    rounding: float  # copies of one eigenvalue are no further apart
    marks: Float[Tensor, "k d"]  # of the unit vector along what the probe has in each eigenspace
    blurs: Float[Tensor, " k"]  # how far that vector may be off

    @classmethod
    def of(
        cls,
        nodes: np.ndarray,
        weights: np.ndarray,
        residuals: np.ndarray,
        size: int,
        rounding: float,
        marks: np.ndarray | None = None,
    ) -> Row:
        """The row for these nodes, ascending, with their weights and residuals, and marks if any were taken.

        A residual r that is small beside the distance d to all others says that one eigenvalue is within r²/d, and that
        its eigenvector is within r/d.
        """
        kept = weights > NOTHING
        marks = np.zeros((len(nodes), 0)) if marks is None else marks
        nodes, weights, residuals, marks = nodes[kept], weights[kept], residuals[kept], marks[kept]
        heavy = weights > NEGLIGIBLE / size
        apart = np.diff(nodes) > np.minimum(residuals[1:], residuals[:-1]) + rounding
        starts = np.flatnonzero(np.concatenate([[True], apart]))
        smallest, largest = np.minimum.reduceat(residuals, starts), np.maximum.reduceat(residuals * heavy, starts)
        gaps, counts = _gaps(nodes, heavy, starts, GAP * rounding), np.diff(starts, append=len(nodes))
        lowest, highest = np.where(heavy, nodes, np.inf), np.where(heavy, nodes, -np.inf)
        spreads = np.maximum.reduceat(highest, starts) - np.minimum.reduceat(lowest, starts)  # of those that matter
        alike = spreads <= 2 * rounding
        largest = np.maximum(smallest, largest)  # of those that matter, or of a copy on its way
        narrow = spreads <= 2 * (largest + rounding)  # each within its residual of one eigenvalue
        isolated = narrow & (GAP * np.maximum(largest, rounding) <= gaps)
        few = np.add.reduceat(weights, starts) <= 2 * MOST / size  # more may be a narrow bulk, anywhere within r
        converged = isolated & (few | alike)
        close = np.where(few, largest * (largest / gaps), largest)
        radii = np.where(converged.repeat(counts), close.repeat(counts), residuals) + rounding / 8
        blurs = (np.maximum(largest, rounding) / gaps).repeat(counts)
        starts = np.flatnonzero(np.concatenate([[True], apart]) | ~converged.repeat(counts))
        ends = np.append(starts[1:], len(nodes))
        heaviest = [first + int(weights[first:end].argmax()) for first, end in zip(starts, ends, strict=True)]
        masses, both = torch.from_numpy(np.add.reduceat(weights, starts)), np.stack([converged, isolated])
        places, r, radius = (torch.from_numpy(x[heaviest]) for x in (nodes, residuals, radii))
        sure, alone = torch.from_numpy(both.repeat(counts, axis=1)[:, heaviest])
        units = torch.from_numpy(np.add.reduceat(marks, starts)) / masses.sqrt()[:, None]
        return cls(places, masses, r, radius, sure, alone, rounding, units, torch.from_numpy(blurs[heaviest]))

    def reach(self, edge: float) -> Float[Tensor, "2 k"]:
        """The lower and upper ends between which each node's mass lies, by the Chebyshev-Markov-Stieltjes inequalities.

        The mass of a node lies between its neighbours, that of an isolated one within four residuals: it may stand for
        a narrow cluster, whose standard deviation is the residual. Beyond the outermost nodes, mass lies within `edge`,
        or within four residuals if that is less.
        """
        near = 4 * self.residuals + self.rounding / 8
        outer = torch.cat(
            [self.nodes[:1] - near[:1].clamp(max=edge), self.nodes, self.nodes[-1:] + near[-1:].clamp(max=edge)]
        )
        lower = torch.where(self.isolated, torch.maximum(self.nodes - near, outer[:-2]), outer[:-2])
        upper = torch.where(self.isolated, torch.minimum(self.nodes + near, outer[2:]), outer[2:])
        return torch.stack([lower, upper])

    def spacing(self, size: int) -> float:
        """The mean distance of the nodes that stand for more than one eigenvalue; zero where there are none."""
        nodes = self.nodes[~self.converged & (self.weights > NEGLIGIBLE / size)]
        return float(nodes[-1] - nodes[0]) / (len(nodes) - 1) if len(nodes) > 1 else 0.0


@dataclass(frozen=True)
class Atoms:
    """Eigenvalues to which most probes have converged, and whose multiplicity is certain."""

    values: Float[Tensor, " a"]
    radii: Float[Tensor, " a"]
    multiplicities: Int[Tensor, " a"]
    places: Int[Tensor, "p a"]  # of each in each row; -1 where it has no mass


def rows_of(T: Tridiagonal, size: int, eps: float, scale: float = 0.0) -> list[Row]:
    """The rule of each probe, for products that round to eps times the largest eigenvalue, which is `scale` or more."""
    nodes, weights = T.quadrature()
    residuals = T.residual[:, None] * T.ends[2].abs()
    rounding = GHOSTS * eps * max(scale, float(nodes.abs().max()))
    rules = zip(nodes.numpy(), weights.numpy(), residuals.numpy(), strict=True)
    marks = [None] * len(nodes) if T.ritz_marks is None else [*T.ritz_marks.numpy()]
    return [Row.of(*rule, size, rounding, own) for rule, own in zip(rules, marks, strict=True)]


def common_atoms(rows: list[Row], size: int) -> Atoms:
    """The values to which most rows have converged, if their masses tell how many eigenvalues each one is."""
    places, values, radii = _matches(rows)
    pairs = list(zip(rows, places, strict=True))
    masses = torch.stack([torch.where(place < 0, 0.0, row.weights[place]) for row, place in pairs])
    everything = all(len(row.nodes) == int((place >= 0).sum()) for row, place in pairs)
    several = everything and len(values) < size and bool(_is_light(masses, size).all())  # are multiple: all are known
    least, most = _dimensions(rows, places)
    counts = multiplicities(masses, size, simple=not several, least=least, most=most)
    counts = torch.ones_like(counts) if len(values) == size else counts
    left = size - int(counts.sum())
    if everything and not several and int((counts == 0).sum()) == 1 and left > 0:
        counts[counts == 0] = left
    taken = (places[:, counts > 0] >= 0).sum(1).tolist()
    nothing_left = any(len(row.nodes) == k for row, k in zip(rows, taken, strict=True))
    if ((nothing_left or several) and int(counts.sum()) < size) or int(counts.sum()) > size - (not everything):
        counts = torch.zeros_like(counts)
    sure = counts > 0
    return Atoms(values[sure], radii[sure], counts[sure], places[:, sure])


def _dimensions(rows: list[Row], places: Int[Tensor, "p a"]) -> tuple[Int[Tensor, " a"], Int[Tensor, " a"]]:
    """How many dimensions the eigenspace of each value has at least and at most, by the probes' parts in it.

    In one dimension all of these lie along one line, in several no two do: the rank of their marks is that dimension,
    or less than it where there are no more probes than that.
    """
    least, most = torch.ones(places.shape[1], dtype=torch.long), torch.full((places.shape[1],), MOST)
    for a, column in enumerate(places.T.tolist()):
        seen = [(row, place) for row, place in zip(rows, column, strict=True) if place >= 0 and row.converged[place]]
        if len(seen) < 2 or not seen[0][0].marks.shape[1]:
            continue
        marks = torch.stack([row.marks[place] for row, place in seen])
        blur = max(BLUR, *(GAP / SHOWN * float(row.blurs[place]) for row, place in seen)) * math.sqrt(len(seen))
        sizes = torch.linalg.svdvals(marks)
        rank = int((sizes > blur).sum())
        if float(sizes[0]) > SHOWN * blur and rank <= MOST:
            least[a], most[a] = rank, rank if rank < len(seen) else MOST
    return least, most


def multiplicities(
    masses: Float[Tensor, "p a"],
    size: int,
    *,
    simple: bool = True,
    least: Int[Tensor, " a"] | None = None,
    most: Int[Tensor, " a"] | None = None,
) -> Int[Tensor, " a"]:
    """How many eigenvalues the mass in each column belongs to; 0 where that is not certain.

    The mass that a random direction has in an eigenspace of dimension r follows Beta(r/2, (n - r)/2). How often each r
    occurs is learnt from all columns together, starting from the belief that eigenvalues are simple, unless they are
    known not to be: a symmetry makes many of them double at once. Where `least` and `most` are given, r lies between.
    """
    top = min(MOST, size - 1)
    if not masses.numel() or top < 1:
        return torch.zeros(masses.shape[1], dtype=torch.long)
    r = torch.arange(1, top + 1, dtype=torch.float64)[:, None, None] / 2
    w = masses.clamp(min=1e-2 / size, max=1 - 1e-16)
    log_norm = torch.lgamma(r) + torch.lgamma(size / 2 - r) - math.lgamma(size / 2)
    evidence = ((r - 1) * w.log() + (size / 2 - r - 1) * torch.log1p(-w) - log_norm).sum(1)
    if least is not None and most is not None:
        evidence = evidence.where((2 * r[:, 0] >= least.clamp(max=top)) & (2 * r[:, 0] <= most), NEVER)
    belief = SIMPLE if simple and top > 1 else 1 / top
    prior = torch.full((top, 1), (1 - belief) / max(top - 1, 1), dtype=torch.float64)
    prior[0] = belief
    share = prior
    for _ in range(ROUNDS):
        posterior = (evidence + share.log()).softmax(0)
        others = posterior.sum(1, keepdim=True) - posterior + STRENGTH * prior
        before, share = share, others / others.sum(0)
        if torch.equal(share, before):  # else the estimate would stay zero for ever
            break
    plain, learnt = ((evidence + shares.log()).logsumexp(0).sum() for shares in (prior, share))
    best, count = (evidence + (share if learnt > plain + LEARNT else prior).log()).softmax(0).max(0)
    enough = torch.where((count == 0) & simple, best >= SURE[0], best >= SURE[1])
    return torch.where(enough & _is_light(masses, size), count + 1, 0)


def _is_light(masses: Float[Tensor, "p a"], size: int) -> Bool[Tensor, " a"]:
    """Whether the mass in each column may be that of one of the multiplicities considered."""
    return size * masses.mean(0) < 2 * MOST


def beyond(rows: list[Row], size: int, steps: int) -> float:
    """How far the spectrum reaches beyond the Ritz values of a random start, except in one case of a hundred.

    Kuczyński and Woźniakowski (1992): more than ε of its width with probability 1.648 √n exp(-(2m - 1) √ε) at most.
    """
    width = max(float(row.nodes[-1]) for row in rows) - min(float(row.nodes[0]) for row in rows)
    epsilon = (math.log(1.648 * math.sqrt(size) / RARE) / (2 * steps - 1)) ** 2
    return width * (epsilon / (1 - 2 * epsilon) if epsilon < 1 / 3 else 1.0)


def _gaps(nodes: np.ndarray, counted: np.ndarray, starts: np.ndarray, alone: float) -> np.ndarray:
    """The distance from each group of nodes to the nearest relevant node of another; `alone` where there is none."""
    last = np.append(starts[1:], len(nodes)) - 1
    below = np.maximum.accumulate(np.where(counted, nodes, -np.inf))[starts - 1]
    above = np.minimum.accumulate(np.where(counted, nodes, np.inf)[::-1])[::-1][(last + 1) % len(nodes)]
    below[0], above[-1] = -np.inf, np.inf
    gaps = np.minimum(nodes[starts] - below, above - nodes[last])
    return np.maximum(np.where(np.isinf(gaps), alone, gaps), TINY)


def _matches(rows: list[Row]) -> tuple[Tensor, Tensor, Tensor]:
    """The places, in every row, of the values to which most rows have converged, with these values and their radii.

    Not all rows are required: one in which an eigenvalue has little mass converges late, and requiring it would select
    for large masses. Where a row has no node nearby, the place is -1 and the mass is negligible.
    """
    reference = max(rows, key=lambda row: int(row.converged.sum()))
    values, radii, places, count = reference.nodes, reference.radii, [], torch.zeros_like(reference.nodes)
    apart = torch.cat([values.new_full((1,), math.inf), values.diff(), values.new_full((1,), math.inf)])
    gaps = torch.minimum(apart[:-1], apart[1:])
    for row in rows:
        place = _nearest(row.nodes, reference.nodes)
        distance = (row.nodes[place] - reference.nodes).abs()
        mutual = _nearest(reference.nodes, row.nodes)[place] == torch.arange(len(place))  # one of several copies
        same = mutual & row.converged[place] & (distance <= row.radii[place] + reference.radii + row.rounding)
        better = same & (row.radii[place] < radii)
        values, radii = torch.where(better, row.nodes[place], values), torch.where(better, row.radii[place], radii)
        places.append(torch.where(same | (mutual & (distance <= gaps / 4)), place, -1))
        count += same | bool(row.converged.all())
    most = reference.converged & (2 * count > len(rows))
    return torch.stack(places)[:, most], values[most], radii[most]


def _nearest(ascending: Tensor, x: Tensor) -> Tensor:
    """The place of what lies nearest to each x."""
    right = torch.searchsorted(ascending, x).clamp(max=len(ascending) - 1)
    left = (right - 1).clamp(min=0)
    return torch.where((ascending[left] - x).abs() < (ascending[right] - x).abs(), left, right)
