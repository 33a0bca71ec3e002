"""Two measurements side by side: what changed between them, and whether it is more than noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ..arguments import guard
from ..record import Record
from ..spectrum import Spectrum
from . import spectrum as analysis
from .schemas import check_entries
from .spectrum.measurement import statistics

RATE = 0.95  # at which noise alone stays below what is called so
ESTIMATES = {"trace": "trace", "effective_rank": "effective rank", "negative_mass": "negative mass"}
SUMS = {"loss": "loss", "gradient_norm": "gradient norm"}  # over all data
ROUNDING = 1e-5  # of a float32 sum over all data, relative to it
COUNTED = {"accuracy": "accuracy"}  # without rounding


@dataclass(frozen=True)
class Measured:
    """A number with its error: a bound or a standard error, or None if it is unknown."""

    value: float
    error: float | None
    is_bound: bool = False

    @property
    def reach(self) -> float | None:
        """The distance within which the truth lies in 95 of 100 cases."""
        return self.error if self.error is None or self.is_bound else 2 * self.error


@dataclass(frozen=True)
class Entry:
    """One side of a comparison: a spectrum with a name, and the numbers known about it.

    >>> entry = Entry.of_spectrum("ours", Spectrum.of_eigenvalues(torch.tensor([1.0, 3.0])))
    >>> entry.numbers["trace"].value, entry.numbers["λ_max"].value
    (4.0, 3.0)
    """

    name: str
    spectrum: Spectrum
    numbers: Mapping[str, Measured] = field(default_factory=dict)
    outliers: int = 0
    record: Record | None = None

    @classmethod
    def of(cls, record: Record, *, layer: str | None = None, name: str | None = None) -> Entry:
        """A record of `analysis.spectrum`, or one layer of it."""
        check_entries(record)
        largest, residual = analysis.largest_of(record, layer)
        scalars = record.scalars if layer is None else record.scalars["layers"][layer]
        computed = len(analysis.array_of(record, "eigenvalues", layer)) > 0
        numbers = {"λ_max": Measured(largest, residual, True)} if computed else {}
        exact = scalars["resolution"] is None  # then the error is the rounding's, a bound
        numbers |= {label: Measured(scalars[key], scalars[f"{key}_error"], exact) for key, label in ESTIMATES.items()}
        for labels, rounding in ((SUMS, ROUNDING), (COUNTED, 0.0)):
            known = {label: scalars[key] for key, label in labels.items() if scalars.get(key) is not None}
            numbers |= {label: Measured(value, rounding * abs(value), True) for label, value in known.items()}
        outliers = analysis.num_outliers(record) if layer is None else 0
        return cls(name or record.id, analysis.spectrum_of(record, layer), numbers, outliers, record)

    @classmethod
    def of_spectrum(cls, name: str, spectrum: Spectrum) -> Entry:
        """An entry for a spectrum by itself, whichever tool computed it."""
        scalars = statistics(spectrum, torch.float64)
        exact = spectrum.is_exact
        errors = {key: 0.0 if exact else scalars[f"{key}_error"] for key in ESTIMATES}
        numbers = {label: Measured(scalars[key] or 0.0, errors[key], exact) for key, label in ESTIMATES.items()}
        largest = Measured(spectrum.range[1], 0.0 if exact else None, exact)
        return cls(name, spectrum, {"λ_max": largest, **numbers})


@dataclass(frozen=True)
class Change:
    """A number before and after, and how large a difference may be due to noise alone.

    >>> Change("trace", Measured(4.0, 0.1), Measured(4.1, 0.1)).verdict
    'within noise'
    """

    quantity: str
    before: Measured
    after: Measured

    @property
    def difference(self) -> float:
        """After less before."""
        return self.after.value - self.before.value

    @property
    def noise(self) -> float | None:
        """The difference that is possible without any change, in 95 of 100 cases; None if an error is not known."""
        first, second = self.before.reach, self.after.reach
        if first is None or second is None:
            return None
        return first + second if self.before.is_bound else math.hypot(first, second)

    @property
    def verdict(self) -> str:
        """Whether it changed."""
        if self.noise is None:
            return "error unknown"
        return "changed" if abs(self.difference) > self.noise else "within noise"


@dataclass(frozen=True)
class Distance:
    """W₁ of two measured spectra, and the ends between which that of the true ones lies, with 95 % probability.

    The lower end may be nearer than the error: that bounds whole spectra, whose means are known far better, and no two
    spectra are nearer than their means.

    >>> Distance(3.0, 0.5, 2.5).verdict
    'different'
    >>> Distance(3.0, 0.5, 2.5).sentence
    'W₁ = 3; between the true spectra it is from 2.5 to 3.5, with 95 % probability'
    """

    value: float
    error: float
    at_least: float

    @property
    def at_most(self) -> float:
        """An upper bound on the true distance."""
        return self.value + self.error

    @property
    def sentence(self) -> str:
        """What is known of the distance, as a sentence without its full stop."""
        if self.at_least > 0:
            ends = f"from {self.at_least:.3g} to {self.at_most:.3g}, with 95 % probability"
            return f"W₁ = {self.value:.3g}; between the true spectra it is {ends}"
        known = f"between the true spectra it is at most {self.at_most:.2g}"
        return f"W₁ = {self.value:.3g}, which noise could explain: {known}"

    @property
    def verdict(self) -> str:
        """Whether the spectra differ."""
        return "different" if self.at_least > 0 else "within noise"


def changes(before: Entry, after: Entry) -> list[Change]:
    """The changes of every number that both have.

    >>> first, second = (Entry.of_spectrum("", Spectrum.of_eigenvalues(torch.tensor([1.0, x]))) for x in (3.0, 4.0))
    >>> [change.quantity for change in changes(first, second) if change.verdict == "changed"]
    ['λ_max', 'trace', 'effective rank']
    """
    shared = (name for name in before.numbers if name in after.numbers)
    return [Change(name, before.numbers[name], after.numbers[name]) for name in shared]


def distance(before: Entry, after: Entry) -> Distance:
    """W₁ of the measured spectra; by the triangle inequality the true ones are as far apart, but for both bounds.

    They are also at least as far apart as their means, which are known better: the larger of both is the lower end.
    Exact spectra are so but for rounding.

    >>> first, second = (Entry.of_spectrum("", Spectrum.of_eigenvalues(torch.tensor([1.0, x]))) for x in (3.0, 4.0))
    >>> distance(first, second).value, distance(first, second).verdict
    (0.5, 'different')
    """
    each = 1 - (1 - RATE) / 4  # then both bounds, and two standard errors of the means, hold at the stated rate
    spectra = (before.spectrum, after.spectrum)
    bounds = [spectrum.floor if spectrum.is_exact else spectrum.wasserstein_bound(rate=each) for spectrum in spectra]
    value, error = before.spectrum.wasserstein(after.spectrum), sum(bounds)
    return Distance(value, error, max(0.0, value - error, _apart(before, after)))


def _apart(before: Entry, after: Entry) -> float:
    """How far apart the means are, in excess of noise."""
    first, second = before.numbers["trace"], after.numbers["trace"]
    reach = [
        math.inf if trace.reach is None else trace.reach / entry.spectrum.size
        for trace, entry in ((first, before), (second, after))
    ]
    rounding = before.spectrum.floor + after.spectrum.floor
    return abs(first.value / before.spectrum.size - second.value / after.spectrum.size) - math.hypot(*reach) - rounding


guard(__name__)
