"""Curves of a spectrum for drawing, with where they exceed the tail of a Gaussian and where they are resolved."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from ..spectrum import Spectrum

FINENESS = 300  # widths in the range of a density: finer ones would be narrower than a printed line
KNOWN = 10.0  # a log-density is resolved where its band spans less than this factor
BELOW_ONE = 10.0  # the axis ends so far below the height of one eigenvalue


@dataclass(frozen=True)
class Curve:
    """A density at some points, with the band that contains the true density of the same width."""

    x: Float[Tensor, " g"]
    y: Float[Tensor, " g"]
    band: tuple[Float[Tensor, " g"], Float[Tensor, " g"]] | None
    base: float  # a tenth of the height of one eigenvalue: below lies only the tail of a Gaussian
    resolved_from: float | None = None  # of a log-density: the |λ| below which its band leaves everything open

    @property
    def seen(self) -> Bool[Tensor, " g"]:
        """Where the curve is visible: above the base, and in the resolved range."""
        above = self.y >= self.base
        return above if self.resolved_from is None else above & (self.x >= self.resolved_from)

    @property
    def highest(self) -> float:
        """Where the curve is highest."""
        return float(self.x[self.y.argmax()])


def one_eigenvalue(size: int, width: float) -> float:
    """The height of one of n eigenvalues under a Gaussian: 1/(n σ √2π)."""
    return 1 / (size * width * math.sqrt(2 * math.pi))


def per_decade(spectrum: Spectrum, u: Float[Tensor, " g"], *, width: float, floor: float) -> Float[Tensor, " g"]:
    """Eigenvalues per decade of |λ| at u = log |λ|, smoothed in u; `floor` is far below all that is drawn."""
    return spectrum.size * math.log(10) * spectrum.log_density(u, width=width, floor=floor)


def one_per_decade(width: float) -> float:
    """The height of one eigenvalue in eigenvalues per decade, under a Gaussian in log |λ|: log 10/(σ √2π)."""
    return math.log(10) / (width * math.sqrt(2 * math.pi))


def visible_width(spectrum: Spectrum) -> float:
    """The spectrum's own width, or a 300th of its range where that is larger: what a picture can show."""
    low, high = spectrum.range
    return max(spectrum.width, (high - low) / FINENESS)


def density_curve(
    spectrum: Spectrum, *, outliers: int = 0, width: float | None = None, points: int = 2000, band: bool = True
) -> Curve:
    """The density of all eigenvalues except the outliers, with the mass of the former alone."""
    width = visible_width(spectrum) if width is None else width
    bulk = spectrum.split(outliers)[1] if outliers else spectrum
    x = bulk.grid(points, width=1.5 * width)  # six widths beyond the ends: four are still to be seen below a high peak
    share = bulk.size / spectrum.size
    ends = bulk.band(x, width) if band and not bulk.is_exact else None
    scaled = None if ends is None else (share * ends[0], share * ends[1])
    return Curve(x, share * bulk.density(x, width), scaled, one_eigenvalue(spectrum.size, width) / BELOW_ONE)


def log_curve(
    spectrum: Spectrum,
    *,
    outliers: int = 0,
    width: float | None = None,
    floor: float | None = None,
    points: int = 2000,
    band: bool = True,
) -> Curve:
    """The density of log(|λ| + floor) over |λ| + floor without the outliers, and from where on it is resolved."""
    floor = spectrum.floor if floor is None else floor
    width = log_width(spectrum, floor) if width is None else width
    bulk = spectrum.split(outliers)[1] if outliers else spectrum
    share = bulk.size / spectrum.size
    u = bulk.log_grid(points, width=width, floor=floor)
    y = share * bulk.log_density(u, width=width, floor=floor)
    band_ends = None if bulk.is_exact else bulk.log_band(u, width=width, floor=floor)
    ends = None if band_ends is None else (share * band_ends[0], share * band_ends[1])
    base = one_eigenvalue(spectrum.size, width) / BELOW_ONE
    return Curve(u.exp(), y, ends if band else None, base, None if ends is None else _resolved_from(u, y, ends, base))


def log_width(spectrum: Spectrum, floor: float | None = None) -> float:
    """The width of a log-density: the spectrum's own, but never wider than what few eigenvalues are apart.

    The own one comes from how many nodes share the range. A layer of 16 parameters has few, and over twelve decades
    they would be smeared over all of them, although every one of its eigenvalues is known.
    """
    own = spectrum.log_width(floor)
    return min(own, math.log(10) / 8) if spectrum.is_exact else own


def common_log_options(spectra: Iterable[Spectrum]) -> dict[str, float]:
    """The floor and the width that several log-densities are drawn with: the highest, and the widest."""
    spectra = list(spectra)
    floor = max(spectrum.floor for spectrum in spectra)
    return {"floor": floor, "width": max(log_width(spectrum, floor) for spectrum in spectra)}


def _resolved_from(u: Tensor, y: Tensor, band: tuple[Tensor, Tensor], base: float) -> float | None:
    """The |λ| from which on the band is narrow wherever there is a curve; None where that is all of it, or none."""
    lower, upper = band
    last = int((y >= base).nonzero().max())
    doubtful = ((upper > KNOWN * lower) & (upper >= base))[: last + 1].nonzero()
    first = int(doubtful.max()) + 1 if len(doubtful) else 0
    return float(u[first].exp()) if 0 < first <= last else None
