"""A spectrum: exact, by quadrature or in closed form, with intervals that contain the true values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .. import record
from ..errors import ArgumentError, check_instance, check_positive
from .estimate import Estimate
from .file_checks import check_count, check_kind, check_numbers, reading
from .intervals import Sample, gaussian_extremes, peaks, values_of
from .lines_shown import density_card
from .matrices import check_symmetric
from .measure import CHUNK, EPS, TENSOR, Measure, check_degree

MOST = 2**63  # the largest count
FACTS = ("size", "resolution", "num_atoms", "precision", "num_products")  # of a spectrum, beside its arrays


@dataclass(frozen=True, repr=False, eq=False)
class Spectrum(Measure):
    """A probability measure Σₖ wₖ δ(λ - λₖ) on the line, averaged over p independent probes.

    Exact eigenvalues (one probe), Lanczos quadratures and closed forms are all of this kind, zeros included, and
    can be drawn and compared alike. `resolution` is the Gaussian width that a quadrature resolves. The first
    `num_atoms` columns are eigenvalues of known mass, the same in all rows; the mass of any other node is random and
    lies within its `reach`. Held in float64 on the CPU.

    >>> spectrum = ritz.Spectrum.of_eigenvalues(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([97, 2, 1]))
    >>> spectrum
    Spectrum(100 eigenvalues, exact: λ from 0 to 5, mean 0.07, root mean square 0.5196, zeros 0.97)
    >>> outliers, bulk = spectrum.split(1)
    >>> outliers, bulk.zero_mass()
    (tensor([5.], dtype=torch.float64), 0.979...)
    """

    @classmethod
    def of_eigenvalues(
        cls,
        values: Float[Tensor, " k"],
        multiplicity: Shaped[Tensor, " k"] | None = None,
        *,
        num_probes: int = 1,
        precision: float | None = None,
    ) -> Spectrum:
        """The exact spectrum with these eigenvalues, each once unless a multiplicity is given; one row for each probe.

        The precision, relative to the largest eigenvalue, decides which are zero. By default it is the rounding of
        their own type: pass `torch.finfo(A.dtype).eps` for values in float64 of a matrix in float32.
        """
        check_positive("As many rows are alike.", num_probes=num_probes)
        counts = _counts(torch.ones(len(values)) if multiplicity is None else multiplicity)
        nodes, weights = (row[None].expand(num_probes, -1) for row in (values, counts / counts.sum()))
        precision = torch.finfo(values.dtype).eps if precision is None else precision
        _check_precision(precision)
        return cls(nodes, weights, round(float(counts.sum())), precision=precision)

    @classmethod
    def of_matrix(cls, matrix: Float[Tensor, "n n"]) -> Spectrum:
        """The exact spectrum of a small symmetric matrix, to the precision of its type."""
        check_instance(Tensor, TENSOR, matrix=matrix)
        matrix = matrix.detach()
        check_symmetric(matrix)
        values = torch.linalg.eigvalsh(matrix.to(torch.float64))
        return cls.of_eigenvalues(values, precision=torch.finfo(matrix.dtype).eps)

    def band(
        self, x: Float[Tensor, " g"], width: float | None = None, *, rate: float = 0.95
    ) -> tuple[Float[Tensor, " g"], Float[Tensor, " g"]]:
        """A band that contains the true density, smoothed by the same width, at each x with this probability."""
        return self._band(x, lambda nodes, reach: (nodes, reach), self.width if width is None else width, rate)

    def log_band(
        self, u: Float[Tensor, " g"], *, width: float | None = None, floor: float | None = None, rate: float = 0.95
    ) -> tuple[Float[Tensor, " g"], Float[Tensor, " g"]]:
        """A band like `band`, for the `log_density`."""
        epsilon = self._log_floor(floor)

        def logarithm(nodes: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
            far, near = reach.abs().amax(0), reach.abs().amin(0).where(reach.sign().prod(0) > 0, 0.0)
            return (nodes.abs() + epsilon).log(), torch.stack([(near + epsilon).log(), (far + epsilon).log()])

        return self._band(u, logarithm, self.log_width(floor) if width is None else width, rate)

    def cdf_band(
        self, x: Float[Tensor, " g"], *, rate: float = 0.95
    ) -> tuple[Float[Tensor, " g"], Float[Tensor, " g"]]:
        """A band that contains the true F(x), at each x with this probability."""
        x = x.to("cpu", torch.float64)
        lower, upper = ((place <= x[:, None, None]).double() for place in (self.ends[1], self.ends[0]))
        low, high = self._interval(lower.flatten(1), upper.flatten(1), rate)
        return low.where(~x.isnan(), math.nan), high.where(~x.isnan(), math.nan)

    def interval(self, f: Callable[[Tensor], Tensor] | int, *, rate: float = 0.95) -> tuple[float, float]:
        """An interval that contains the true ∫ f dμ with this probability, for a smooth f; a degree d stands for λᵈ.

        Values of f half-way between the nodes tell how much it changes from one node to the next. The variance comes
        from the eigenvalues that the probes saw. Where a few large ones dominate it, coverage is slightly too low: an
        interval stated at 0.95 contains the mean of a 1/k² spectrum 0.93 of the time, and with one probe that of an
        odd power 0.85 if there are such eigenvalues on both sides of zero. More probes help.
        """
        degree = f if isinstance(f, int) else None
        if degree is not None:
            check_degree(degree)
        function = partial(values_of, f) if callable(f) else lambda x: x**degree
        values, (first, last) = function(self.nodes), (function(end) for end in self.ends)
        known = torch.arange(values.shape[1]) < self._num_known  # as precisely as their places are
        least, most = (
            torch.where(known, pick(pick(first, last), values), values) for pick in (torch.minimum, torch.maximum)
        )
        lower, upper = self._interval(least.reshape(1, -1), most.reshape(1, -1), rate)
        if degree is not None and degree < 2 * (self.nodes.shape[1] - self.num_atoms):
            return float(lower), float(upper)
        between = (function((self.nodes + self.ends[0]) / 2) + function((self.nodes + self.ends[1]) / 2)) / 2
        doubt = abs(float((self.weights * (values - between)).sum(1).mean()))
        return float(lower) - doubt, float(upper) + doubt

    def mass(self, low: float, high: float) -> Estimate:
        """The fraction of eigenvalues in [low, high], uncertain because of the nodes next to either end.

        A node's mass is spread evenly from its place to the ends of its reach, none of it beyond all nodes. By the
        Chebyshev-Markov-Stieltjes inequalities the true mass is not less than that of the nodes whose reach lies
        inside, nor more than that of those whose reach meets the interval. All values between these bounds are taken as
        equally likely, to the extent that the density differs from one node to the next: where it does not differ,
        spreading mass evenly is right.
        """
        if not low <= high:
            raise ArgumentError(
                f"The mass from {low:g} to {high:g} was requested.",
                "An interval begins at its lower end, and a share of no interval would be zero.",
                "Pass the lower end first; -math.inf and math.inf are ends, too.",
            )
        x, (lower, upper), ends = self.nodes, self.ends, self.range
        below, above = torch.minimum(lower.clamp(min=ends[0]), x), torch.maximum(upper.clamp(max=ends[1]), x)
        inside = (_overlap(below, x, low, high) + _overlap(x, above, low, high)) / 2
        surely, perhaps = (lower >= low) & (upper <= high), (lower <= high) & (upper >= low)
        open_below, open_above = (self._unevenness() * (f.double() - inside).abs() for f in (surely, perhaps))
        value, down, up = (float((self.weights * f).sum(1).mean()) for f in (inside, open_below, open_above))
        doubt = (up**3 + down**3) / (3 * (up + down)) if up + down > 0 else 0.0
        a = self._num_known
        share, random = self._random(a)
        variance = float(random.variance(inside[:, a:].reshape(1, -1))) if share > 0 else 0.0
        return Estimate(value, math.sqrt(share**2 * variance + doubt), 0)

    def wasserstein(self, other: Spectrum) -> float:
        """W₁ = ∫ |F - G| dλ, in the units of the eigenvalues."""
        x = torch.cat([self.nodes.flatten(), other.nodes.flatten()]).sort().values
        return float(((self.cdf(x) - other.cdf(x)).abs()[:-1] * x.diff()).sum())

    def wasserstein_bound(self, *, rate: float = 0.95) -> float:
        """A bound on W₁ to the true spectrum that holds with this probability, in the units of the eigenvalues.

        Mass cannot leave its reach: ∫ max(U - F, F - L), with U and L the distribution functions of all of it at the
        lower and the upper ends. The uncertainty of the probes is sampled from masses distributed like theirs.
        """
        return sum(self.wasserstein_parts(rate=rate))

    def wasserstein_parts(self, *, rate: float = 0.95) -> tuple[float, float]:
        """The two summands of that bound: the one that more steps reduce, and the one that more probes reduce."""
        _check_rate(rate)
        places = torch.stack([self.nodes, *self.ends])
        x, order = places.flatten().sort()
        mass, none = self.weights / self.num_probes, torch.zeros_like(self.weights)
        excess = [torch.stack(w).flatten()[order].cumsum(0) for w in ((-mass, mass, none), (mass, none, -mass))]
        quadrature = float((torch.maximum(*excess)[:-1] * x.diff()).sum())
        a = self._num_known
        share, random = self._random(a)
        return quadrature, share * random.wasserstein(self.nodes[:, a:].flatten(), rate) if share > 0 else 0.0

    def standard_error(self, statistic: Callable[[Spectrum], Tensor | float]) -> Tensor:
        """Monte Carlo error of a statistic of the measure: std over the probes / √p."""
        if self.num_probes < 2:
            raise ArgumentError(
                "A standard error was requested from a spectrum with one probe.",
                "One probe has no scatter; an exact spectrum has no Monte Carlo error at all.",
                "For a quadrature, pass num_probes=2 or more to spectral_density.",
            )
        rows = (self._row(i) for i in range(self.num_probes))
        values = torch.stack([torch.as_tensor(statistic(row), dtype=torch.float64) for row in rows])
        return values.std(0) / self.num_probes**0.5

    def split(self, outliers: int) -> tuple[Float[Tensor, " outliers"], Spectrum]:
        """The eigenvalues of largest magnitude, largest first, and the spectrum of all others.

        Each outlier is an atom of mass 1/n known to every probe, as in exact spectra and those of
        `spectral_density(A, outliers=k)`; a plain quadrature has no such atoms and is refused.
        """
        if not 0 <= outliers < self.size:
            raise ArgumentError(
                f"{outliers} outliers of {self.size} eigenvalues were requested.",
                "A bulk must be left, and the count cannot be negative.",
                f"Ask for 0 to {self.size - 1}.",
            )
        columns = self._num_known
        values, counts = self.nodes[0, :columns], self.weights[0, :columns] * self.size
        order = values.abs().argsort(descending=True, stable=True)
        before = counts[order].cumsum(0) - counts[order]
        taken = torch.minimum(counts[order], (outliers - before).clamp(min=0)).round()
        self._check_atoms(taken, values[order], outliers)
        bulk = self.weights.clone()
        bulk[:, order] = (bulk[:, order] - taken / self.size).clamp(min=0)
        bulk = bulk / bulk.sum(1, keepdim=True)
        return values[order].repeat_interleave(taken.long()), replace(self, weights=bulk, size=self.size - outliers)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Its state as arrays and plain facts; `Spectrum(**arrays, **facts)` restores it.

        Eigenvalues of a quadrature that has found all of them are as sure as their reach; others are their own.
        """
        arrays = {"nodes": self.nodes, "weights": self.weights}
        if not self.is_exact or bool((self.ends != self.nodes).any()):
            arrays["reach"] = self.ends
        return arrays, {name: getattr(self, name) for name in FACTS}

    def save(self, path: str | Path) -> Path:
        """Write to an npz file; `Spectrum.load` reads it back to the same bits."""
        arrays, facts = self.state()
        return record.write_arrays(path, {k: v.numpy() for k, v in arrays.items()}, {"kind": "Spectrum", **facts})

    @classmethod
    def load(cls, path: str | Path) -> Spectrum:
        """Read what `save` wrote."""
        arrays, header = record.read_arrays(path)
        check_kind(path, header, "Spectrum")
        with reading(path):
            tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
            if not header.keys() & {*FACTS[2:]}:  # older files have the first two alone
                tensors, header = _in_full(tensors, header)
            return cls.of_state(tensors, {name: header[name] for name in FACTS})

    @classmethod
    def of_state(cls, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> Spectrum:
        """The spectrum with this state; an exception if no spectrum can have it."""
        check_count(**{name: facts[name] for name in ("size", "num_atoms", "num_products")})
        shape = tuple(tensors["nodes"].shape)
        check_numbers(shape, torch.float64, nodes=tensors["nodes"], weights=tensors["weights"])
        for numbers in [tensors["reach"]] if "reach" in tensors else []:
            check_numbers((2, *shape), torch.float64, reach=numbers)
        precision, resolution = facts["precision"], facts["resolution"]
        atoms = tensors["nodes"][:, : facts["num_atoms"]]
        if not (_is_width(precision, 1) and (resolution is None or (resolution and _is_width(resolution)))):
            raise ValueError(f"its precision is {precision!r:.80}, its resolution {resolution!r:.80}")
        found = not bool((tensors["weights"][:, facts["num_atoms"] :] > 0).any())  # all eigenvalues, as atoms
        if ("reach" not in tensors) if resolution is not None else ("reach" in tensors and not found):
            raise ValueError(f"it has resolution {resolution}, and {'a' if 'reach' in tensors else 'no'} reach")
        if facts["num_atoms"] > shape[1] or not bool((atoms == atoms[:1]).all()):
            raise ValueError(f"it has {facts['num_atoms']} atoms among its {shape[1]} nodes")
        return cls(**tensors, **facts)

    def _repr_html_(self) -> str:
        """HTML for a notebook: its density and its error."""
        x, (low, high) = self.grid(300), self.range
        facts = {"eigenvalues": f"{self.size:,} from {low:.4g} to {high:.4g}", "mean": f"{self.moment(1):.4g}"}
        sure = "all are known" if self.is_exact else f"W₁ to the truth below {self.wasserstein_bound():.2g} (95 %)"
        return density_card("Spectrum", {**facts, "error": sure}, x, self.density(x))

    def __repr__(self) -> str:
        low, high = self.range
        kind = "exact" if self.resolution is None else f"{self.num_probes} probes × {self.nodes.shape[1]} nodes"
        return (
            f"Spectrum({self.size} eigenvalues, {kind}: λ from {low:.4g} to {high:.4g}, "
            f"mean {self.moment(1):.4g}, root mean square {self.moment(2) ** 0.5:.4g}, zeros {self.zero_mass():.3g})"
        )

    @property
    def _num_known(self) -> int:
        """How many columns are eigenvalues of known mass."""
        return self.nodes.shape[1] if self.is_exact else self.num_atoms

    def _unevenness(self) -> Float[Tensor, "p k"]:
        """1 - least/largest density of each node and its neighbours: 0 where they are equal, 1 next to nothing."""
        order, length = self.nodes.argsort(dim=1), (self.ends[1] - self.ends[0]).clamp(min=1e-300)
        ascending = torch.nn.functional.pad((self.weights / length).gather(1, order), (1, 1))
        three = ascending.unfold(1, 3, 1)
        uneven = (1 - three.amin(2) / three.amax(2)).nan_to_num(1.0)
        return torch.empty_like(uneven).scatter_(1, order, uneven)

    def _row(self, index: int) -> Spectrum:
        rows = slice(index, index + 1)
        return replace(self, nodes=self.nodes[rows], weights=self.weights[rows], reach=self.ends[:, rows])

    def _band(
        self, x: Tensor, mapping: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], width: float, rate: float
    ) -> tuple[Tensor, Tensor]:
        """The band of a density over a function of λ: its values at the nodes, and what it spans within their reach."""
        check_positive("A Gaussian needs a positive width.", width=width)
        centres, reach = mapping(self.nodes, self.ends)
        columns = centres.flatten(), reach[0].flatten(), reach[1].flatten()
        a = self._num_known
        rough = torch.cat([torch.ones_like(centres[:, :a]), peaks(centres[:, a:], self.weights[:, a:])], 1).flatten()
        x = x.to("cpu", torch.float64)
        pieces = [
            self._interval(*gaussian_extremes(piece, *columns, width, rough), rate)
            for piece in x.split(max(1, CHUNK // self.nodes.numel()))
        ]
        return torch.cat([x[:0], *(low for low, _ in pieces)]), torch.cat([x[:0], *(high for _, high in pieces)])

    def _interval(self, least: Tensor, most: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """An interval for ∫ f, given the least and the largest value of f wherever the mass of each node may be."""
        _check_rate(rate)
        shape = (len(least), *self.nodes.shape)
        a, fixed = self._num_known, self.weights
        known = [(f.view(shape)[..., :a] * fixed[:, :a]).sum((1, 2)) / self.num_probes for f in (least, most)]
        share, rest = self._random(a)
        if share <= 0:
            return known[0], known[1]
        low, high = (f.view(shape)[..., a:].flatten(1) for f in (least, most))
        lower, upper = rest.interval(low, high, rate)
        return known[0] + share * lower, known[1] + share * upper

    def _random(self, first: int) -> tuple[float, Sample]:
        """The share of all columns from this one on, and what the probes saw of it."""
        weights = self.weights[:, first:].flatten() / self.num_probes
        share = float(weights.sum())
        return share, Sample(weights / (share or 1.0), self.size * share, self.num_probes)

    def _check_atoms(self, taken: Tensor, values: Tensor, outliers: int) -> None:
        """Refuse outliers that are no atoms, or of which a random node may be larger."""
        columns, edge = len(values), float(values[taken > 0].abs().min()) if bool(taken.any()) else math.inf
        rest = self.nodes[:, columns:][self.weights[:, columns:] > 0].abs()
        same = bool((self.nodes[:, :columns] == self.nodes[:1, :columns]).all())
        if int(taken.sum()) != outliers or not same or bool((rest > edge).any()):
            raise ArgumentError(
                f"This quadrature does not hold {outliers} outliers as atoms of mass 1/n.",
                "Its largest nodes carry random masses, and several may stand for one eigenvalue.",
                f"spectral_density(A, outliers={outliers}) finds and certifies them first.",
            )


def _counts(multiplicity: Tensor) -> Float[Tensor, " k"]:
    """How often each eigenvalue is there, in float64 on the CPU."""
    real = not multiplicity.is_complex()
    counts = multiplicity.detach().to("cpu", torch.float64) if real else torch.full(multiplicity.shape, math.nan)
    if not (bool(((counts >= 0) & (counts == counts.round())).all()) and 0 < float(counts.sum()) < MOST):
        raise ArgumentError(
            f"Multiplicities of {multiplicity.dtype} with the sum {float(counts.sum()):.4g} were given.",
            "Each says how often an eigenvalue occurs: whole numbers, none negative, and not all zero.",
            "Pass integers, such as torch.tensor([97, 2, 1]), or leave them out.",
        )
    return counts


def _is_width(fact: Any, most: float = 2.0**63) -> bool:
    return type(fact) in (int, float) and 0 <= fact <= most


def _in_full(tensors: dict[str, Any], header: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An older file as a newer one would be, with as many atoms as columns are the same in all of several rows."""
    nodes = tensors["nodes"]
    alike = (nodes == nodes[:1]).all(0) if len(nodes) > 1 else torch.zeros(1)
    header = {"num_atoms": int(alike.cumprod(0).sum()), "precision": EPS, "num_products": 0, **header}
    facts = {name: header[name] for name in FACTS}
    return Spectrum(nodes.double(), tensors["weights"].double(), **facts).state()[0], header


def _overlap(low: Tensor, high: Tensor, start: float, end: float) -> Tensor:
    """The fraction of each [low, high] that lies in [start, end]; a point is in or out."""
    length = (high - low).clamp(min=0)
    inside = (high.clamp(max=end) - low.clamp(min=start)).clamp(min=0)
    return torch.where(length > 0, inside / length.clamp(min=1e-300), ((low >= start) & (low <= end)).double())


def _check_precision(precision: float) -> None:
    if not 0 <= precision < 1:
        raise ArgumentError(
            f"precision={precision} was given.",
            "It is the error of the eigenvalues relative to the largest, so it must be at least 0 and below 1.",
            "Pass that of the products, such as torch.finfo(torch.float32).eps, or leave it out.",
        )


def _check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise ArgumentError(
            f"rate={rate} was given.", "It is a probability, strictly between 0 and 1.", "Pass a number such as 0.95."
        )
