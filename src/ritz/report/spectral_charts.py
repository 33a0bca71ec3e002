"""Charts of spectra: densities on one width with their bands, the outliers as stems, densities of log |λ|."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..plot.curves import Curve, common_log_options, density_curve, log_curve, one_eigenvalue, visible_width
from ..spectrum import Spectrum
from .charts import Axis, Chart, Series

POINTS = 1024  # of a curve: more than a screen shows
SHOWN = 3  # curves at first; the others are a click away
NEAR_FLOOR = 2.0  # times the floor of a logarithm: what is drawn below that stands for all that is smaller
DECADES = 1e4  # of the largest eigenvalue: where a symmetric logarithm turns linear


@dataclass(frozen=True)
class Lines:
    """A spectrum, how many of its eigenvalues stand apart, and those that were computed, each with a note."""

    spectrum: Spectrum
    outliers: int = 0
    eigenvalues: Sequence[tuple[float, str]] = ()


def density(title: str, spectra: Mapping[str, Lines]) -> Chart:
    """Densities on one width, their bands, and eigenvalues as stems as high as one eigenvalue."""
    width = max(visible_width(lines.spectrum) for lines in spectra.values())
    series = [part for index, (name, lines) in enumerate(spectra.items()) for part in _parts(name, lines, width, index)]
    scale = max(max(map(abs, lines.spectrum.range)) for lines in spectra.values()) or 1.0
    summary = (
        f"Smoothed by a Gaussian of width {width:.2g}. A stem is one eigenvalue, a band holds the true density "
        "at 95 % of the points."
    )
    across = Axis("eigenvalue λ", ("linear", "symlog"), linear_below=scale / DECADES)
    return Chart(title, summary, across, Axis("density", ("log", "linear")), tuple(series))


def _parts(name: str, lines: Lines, width: float, index: int) -> list[Series]:
    """The curve of all eigenvalues but the outliers, and the stems of these, in one colour."""
    curve = density_curve(lines.spectrum, outliers=lines.outliers, width=width, points=POINTS)
    return [_line(name, curve, index), *_stems(name, lines, lines.eigenvalues, width, index)]


def _stems(name: str, lines: Lines, known: Sequence[tuple[float, str]], width: float, index: int) -> list[Series]:
    """The known eigenvalues, in the colour of their curve, each as high as one that is smoothed like it."""
    if not known:
        return []
    values, notes = zip(*known, strict=True)
    heights = [one_eigenvalue(lines.spectrum.size, width)] * len(values)
    return [Series(f"{name}: eigenvalues", "stems", values, heights, notes=notes, shown=index < SHOWN, colour=index)]


def log_density(title: str, spectra: Mapping[str, Lines], *, points: int = POINTS) -> Chart:
    """Densities of log |λ| on one width and floor, eigenvalues as stems; what no curve resolves is left open."""
    curves, width, floor = _log_curves(spectra, points)
    series: list[Series] = []
    for index, (name, lines) in enumerate(spectra.items()):
        sizes = [(abs(value), note) for value, note in lines.eigenvalues if value]
        series += [_line(name, curves[name], index), *_stems(name, lines, sizes, width, index)]
    return _log_chart(title, "density of log |λ|", spectra, curves, floor, series)


def counts_per_decade(title: str, spectra: Mapping[str, Spectrum]) -> Chart:
    """Densities of log |λ| in eigenvalues per decade, as curves without stems."""
    lines = {name: Lines(spectrum) for name, spectrum in spectra.items()}
    curves, _, floor = _log_curves(lines, POINTS)
    curves = {name: _counted(curve, spectra[name].size) for name, curve in curves.items()}
    series = [_line(name, curve, index) for index, (name, curve) in enumerate(curves.items())]
    return _log_chart(title, "eigenvalues per decade", lines, curves, floor, series)


def _log_curves(spectra: Mapping[str, Lines], points: int) -> tuple[dict[str, Curve], float, float]:
    """A curve for each spectrum without its outliers, with the width and floor that all of them have."""
    scale = common_log_options(lines.spectrum for lines in spectra.values())
    width, floor = scale["width"], scale["floor"]
    curve_of = lambda own: log_curve(own.spectrum, outliers=own.outliers, points=points, width=width, floor=floor)
    return {name: curve_of(own) for name, own in spectra.items()}, width, floor


def _log_chart(
    title: str,
    label: str,
    spectra: Mapping[str, Lines],
    curves: Mapping[str, Curve],
    floor: float,
    series: list[Series],
) -> Chart:
    """The chart, with what its curves leave open."""
    ends = [curve.resolved_from for curve in curves.values()]
    least = min((end for end in ends if end is not None), default=None)
    unknown = ((0.0, least),) if least is not None and None not in ends else ()
    summary = "Each curve is drawn where its band spans less than a factor of ten; below that, the probes say little."
    if all(lines.spectrum.is_exact for lines in spectra.values()):
        summary = "All eigenvalues are known."
    if unknown and least is not None:
        summary += f" All that is below {float(f'{least:.1g}'):g} is open, down to zero."
    if any(bool((curve.seen & (curve.x < NEAR_FLOOR * floor)).any()) for curve in curves.values()):
        summary += f" All that is below {floor:.1g}, zeros too, is drawn there: products cannot tell them apart."
    if any(lines.eigenvalues for lines in spectra.values()):
        summary += " A stem is one eigenvalue."
    return Chart(title, summary, Axis("|λ|", ("log",)), Axis(label, ("log", "linear")), tuple(series), unknown)


def _counted(curve: Curve, size: int) -> Curve:
    """The curve of a density of log |λ| as eigenvalues per decade."""
    factor = size * math.log(10)
    band = None if curve.band is None else (factor * curve.band[0], factor * curve.band[1])
    return replace(curve, y=factor * curve.y, band=band, base=factor * curve.base)


def _line(name: str, curve: Curve, index: int) -> Series:
    """A curve where there is something to see, with gaps between."""
    inside = curve.seen.nonzero()
    ends = slice(int(inside.min()), int(inside.max()) + 1) if len(inside) else slice(0)
    gap = torch.tensor(math.nan, dtype=curve.y.dtype)
    masked = lambda values: torch.where(curve.seen, values, gap)[ends].tolist()
    lower, upper = (None, None) if curve.band is None else map(masked, curve.band)
    return Series(
        name, "line", curve.x[ends].tolist(), masked(curve.y), lower, upper, shown=index < SHOWN, colour=index
    )
