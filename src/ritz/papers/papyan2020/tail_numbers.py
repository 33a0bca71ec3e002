"""Measures of the tails of E: power laws through densities of λ and of log |λ|, symmetry, and other laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch

from ...record import Record, Verdict
from ...spectrum import Spectrum
from ..frame.readings import ByReading
from .pictures import resolved_from
from .spectra import printed_width, spectrum_of

LINEAR, LOGARITHM = "density of λ", "density of log |λ|"
EXPONENTS = {LINEAR: -2.7, LOGARITHM: -2.2}  # as printed, of φ in |λ|
PREFACTORS = {LINEAR: 1.2e-4, LOGARITHM: 2.6e-4}
WIDTH = 0.15  # of a Gaussian in log |λ|, as in Fig. 5
POINTS = 200  # of a fit, even in log |λ|


@dataclass(frozen=True)
class PowerLaw:
    """φ = prefactor · |λ|^exponent, by least squares in logarithms, with the share of the variance that it explains."""

    exponent: float
    prefactor: float
    explained: float

    @classmethod
    def through(cls, x: np.ndarray, y: np.ndarray) -> PowerLaw:
        """The line through log y over log x, where there is a density."""
        seen = y > 0
        if seen.sum() < 3:
            return cls(np.nan, np.nan, np.nan)
        u, v = np.log(x[seen]), np.log(y[seen])
        slope, start = np.polyfit(u, v, 1)
        rest = np.var(v - start - slope * u)
        return cls(float(slope), float(np.exp(start)), float(1 - rest / np.var(v)))

    def __str__(self) -> str:
        digits, power = f"{self.prefactor:.1e}".split("e")
        law = rf"${digits} \cdot 10^{{{int(power)}}}\,|λ|^{{{self.exponent:.2f}}}$"
        return f"{law}, $R^2$ = {self.explained:.2f}"


def rows(spectrum: Spectrum) -> list[Spectrum]:
    """Each probe's measure by itself."""
    pairs = zip(spectrum.nodes, spectrum.weights, strict=True)
    return [Spectrum(nodes[None], weights[None], spectrum.size, spectrum.resolution) for nodes, weights in pairs]


def seeds(record: Record) -> list[str]:
    """The prefixes of the networks."""
    return [f"seed {seed}" for seed in record.config["seeds"]]


def part_of_axis(spectrum: Spectrum, part: Sequence[float]) -> np.ndarray:
    """Points from one share of max |λ| to another, even in log |λ|."""
    top = max(map(abs, spectrum.range))
    return np.geomspace(part[0] * top, part[1] * top, POINTS)


def linear_laws(
    record: Record, name: str, row: Spectrum | None = None, part: Sequence[float] | None = None
) -> dict[str, PowerLaw]:
    """The laws of the density of λ on both sides of zero, of some part: of a network, or of one of its probes."""
    spectrum = spectrum_of(record, name) if row is None else row
    x, width = part_of_axis(spectrum, part or record.config["linear_part"]), printed_width(record, name)
    side = lambda sign: PowerLaw.through(x, spectrum.density(torch.from_numpy(sign * x), width).numpy())
    return {"positive": side(1.0), "negative": side(-1.0)}


def log_law(record: Record, part: Sequence[float] | None = None) -> PowerLaw:
    """The law of the density of |λ| from that of its logarithm, q(log |λ|)/|λ|, of the long recursion."""
    spectrum = spectrum_of(record, "long")
    x = fitted_part(spectrum, part or record.config["log_part"])
    return PowerLaw.through(x, log_density(spectrum, x))


def fitted_part(spectrum: Spectrum, part: Sequence[float]) -> np.ndarray:
    """The range in which the law of logarithms is fitted, open in the paper: as far down as nodes are close enough."""
    whole = part_of_axis(spectrum, part)
    return np.geomspace(min(max(whole[0], resolved_from(spectrum, WIDTH)), 0.9 * whole[-1]), whole[-1], POINTS)


def log_density(spectrum: Spectrum, x: np.ndarray) -> np.ndarray:
    """ρ(|λ|) = q(log |λ|)/|λ|, the logarithm's floor far below what is drawn."""
    floor = 1e-8 * max(map(abs, spectrum.range))
    return spectrum.log_density(torch.from_numpy(np.log(x + floor)), width=WIDTH, floor=floor).numpy() / x


def _scatter(record: Record, number: Callable[[str, Spectrum], float]) -> tuple[float, float]:
    """The mean of a number over all networks and probes, and its standard error over the networks."""
    means = [np.mean([number(name, row) for row in rows(spectrum_of(record, name))]) for name in seeds(record)]
    error = np.std(means, ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan
    return float(np.mean(means)), float(error)


def by_part(name: str, number: Callable[[Record, Sequence[float]], float]) -> Callable[[Record], ByReading]:
    """A number of a line through the part that is its own here, and through the part that both lines have."""

    def measured(record: Record) -> ByReading:
        own, *others = (record.config[key] for key in (name, "linear_part", "log_part"))
        both = max(part[0] for part in others), min(part[1] for part in others)
        words = {f"from {part[0]:g} to {part[1]:g} of the largest": part for part in (own, both)}
        return ByReading((key, number(record, part)) for key, part in words.items())

    return measured


def linear_exponent(record: Record, part: Sequence[float]) -> tuple[float, float]:
    """The exponent of the density of λ, the mean over both sides, all networks and probes, with its error."""
    both = lambda name, row: float(np.mean([law.exponent for law in linear_laws(record, name, row, part).values()]))
    return _scatter(record, both)


def explained(record: Record) -> dict[str, float]:
    """R² of the line through the density of λ of every network, the worse side, and through that of log |λ|."""
    worse = {name: min(law.explained for law in linear_laws(record, name).values()) for name in seeds(record)}
    return {f"density of λ, {name}": one for name, one in worse.items()} | {LOGARITHM: log_law(record).explained}


def prefactors(record: Record) -> dict[str, float]:
    """log₁₀ of the fitted prefactor over the printed one: of every network, the mean of both sides."""
    log = lambda law, name: float(np.log10(law.prefactor / PREFACTORS[name]))
    sides = {seed: linear_laws(record, seed).values() for seed in seeds(record)}
    own = {f"density of λ, {seed}": float(np.mean([log(law, LINEAR) for law in both])) for seed, both in sides.items()}
    return own | {LOGARITHM: log(log_law(record), LOGARITHM)}


def asymmetries(record: Record) -> dict[str, float]:
    """|∫λ³|/∫|λ|³ of every network: 0 where it is symmetric, 1 where all of the tail is on one side."""
    return {name: abs(_asymmetry(spectrum_of(record, name))) for name in seeds(record)}


def _asymmetry(spectrum: Spectrum) -> float:
    third = float((spectrum.weights * spectrum.nodes.abs() ** 3).sum(1).mean())
    return spectrum.moment(3) / third if third else float("nan")


def skewness_in_words(record: Record) -> str:
    """The skewness with its error, over the networks."""
    skewness = lambda _, row: row.moment(3) / row.moment(2) ** 1.5 if row.moment(2) else float("nan")
    mean, error = _scatter(record, skewness)
    scatter = "" if np.isnan(error) else f" ± {error:.2g} over the networks"
    return f"One tail is the heavier one: the skewness is {mean:.3g}{scatter}."


def flatness(record: Record) -> float:
    """The fourth moment over the squared second, the least of all networks: 2 for a semicircle."""
    whole = [spectrum_of(record, name) for name in seeds(record)]
    return min(spectrum.moment(4) / spectrum.moment(2) ** 2 for spectrum in whole)


def exponent_in_words(record: Record) -> str:
    """The exponent with its error."""
    mean, error = linear_exponent(record, record.config["linear_part"])
    scatter = "" if np.isnan(error) else f" ± {error:.2g}"
    return f"Over networks and sides it is {mean:.3g}{scatter}; print does not say which part was fitted."


def log_exponent_in_words(record: Record) -> dict[str, str]:
    """The exponents of both halves of what is fitted: one network has no standard error, but a line that bends."""
    spectrum = spectrum_of(record, "long")
    x = fitted_part(spectrum, record.config["log_part"])
    halves = [PowerLaw.through(half, log_density(spectrum, half)).exponent for half in np.split(x, 2)]
    words = f"Of the lower half of the part that is fitted it is {halves[0]:.3g}, of the upper {halves[1]:.3g}"
    return dict.fromkeys(get_args(Verdict), f"{words}; print does not say which part was fitted.")


def imprecision(record: Record) -> float:
    """1 - R² of the line through the density of log |λ|, over that of the density of λ, the worse side; one network."""
    worse = min(law.explained for law in linear_laws(record, seeds(record)[0]).values())
    return float((1 - log_law(record).explained) / max(1 - worse, 1e-12))


def lesser_side(record: Record) -> dict[str, float]:
    """The share of ∫λ² on the side of zero that has less of it: a Marchenko-Pastur law has none there."""

    def share(spectrum: Spectrum) -> float:
        squares = spectrum.weights * spectrum.nodes.square()
        return float(squares[spectrum.nodes < 0].sum() / squares.sum())

    shares = {name: share(spectrum_of(record, name)) for name in seeds(record)}
    return {name: min(one, 1 - one) for name, one in shares.items()}
