"""Densities of eigenvalues, on axes that are linear or logarithmic in λ.

`**style` goes to the main line, as matplotlib takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter
from torch import Tensor

from ..errors import ArgumentError, check_positive
from ..spectrum import Spectrum
from .curves import (
    Curve,
    common_log_options,
    density_curve,
    log_curve,
    log_width,
    one_eigenvalue,
    one_per_decade,
    per_decade,
    visible_width,
)
from .figures import COLOURS, limits

_LARGEST = 700.0  # of a logarithm, whose number is still a float
_HEADROOM = 3.0  # of a logarithmic axis above its highest curve
_APART = 0.06  # of an axis: names of outliers that are nearer than this would cover each other
_UNRESOLVED = "not resolved"  # the name of a grey range, which the measurement leaves open


def density(
    ax: Axes, spectrum: Spectrum, *, outliers: int = 0, width: float | None = None, band: bool = True, **style: Any
) -> Axes:
    """The density of eigenvalues on a logarithmic axis, the `outliers` largest in magnitude as stems.

    A stem is as high as one eigenvalue smoothed like the rest: 1/(n σ √2π). The band holds the true density, smoothed
    by the same width, at 95 % of the points. The axis ends a decade below one eigenvalue: what lies there is only the
    tail of a Gaussian. Unless given, the width is the spectrum's own, or a 300th of the range where that is larger:
    what a picture can show.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> spectrum = ritz.Spectrum.of_eigenvalues(torch.tensor([0.1, 0.2, 0.3, 5.0]))
    >>> density(ax, spectrum, outliers=1).get_legend_handles_labels()[1]
    ['1 outlier']
    """
    width = visible_width(spectrum) if width is None else width
    curve = density_curve(spectrum, outliers=outliers, width=width, band=band)
    base = _curve(ax, curve, style)
    if outliers:
        stems(ax, spectrum.split(outliers)[0], one_eigenvalue(spectrum.size, width), base, beside=curve.x[curve.seen])
    ax.set(xlabel="eigenvalue λ", ylabel="density")
    return ax


def log_spectrum(
    ax: Axes,
    spectrum: Spectrum,
    *,
    outliers: int = 0,
    width: float | None = None,
    floor: float | None = None,
    band: bool = True,
    **style: Any,
) -> Axes:
    """The density of log(|λ| + floor), over |λ| + floor on a logarithmic axis; exact zeros gather at the floor.

    The `outliers` largest in magnitude are stems as high as one eigenvalue, as in `density`. Where the band spans more
    than a factor of ten the probes leave everything open: that range is grey, and the curve pale in it.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> spectrum = ritz.Spectrum.of_eigenvalues(torch.tensor([0.1, 0.2, 0.3, 5.0]))
    >>> log_spectrum(ax, spectrum).get_xscale()
    'log'
    """
    width = log_width(spectrum, floor) if width is None else width
    curve = log_curve(spectrum, outliers=outliers, width=width, floor=floor, band=band)
    shown = curve.x[curve.seen]
    start = float(shown[0]) if curve.resolved_from is None else 0.5 * min(curve.resolved_from, curve.highest)
    values = spectrum.split(outliers)[0].abs() if outliers else shown[:0]
    last = float(torch.cat([shown[-1:], 1.5 * values]).max())
    ends = limits(ax, start, last, axis="x")
    base = _curve(ax, curve, style)
    ax.set_xscale("log")
    _grey(ax, curve.resolved_from)
    if outliers:
        stems(ax, values, one_eigenvalue(spectrum.size, width), base, beside=shown)
    ax.set(xscale="log", xlabel="|λ|", ylabel="density of log |λ|", xlim=ends)
    return ax


def comparison(
    ax: Axes, spectra: Mapping[str, Spectrum], *, log: bool = False, width: float | None = None, **style: Any
) -> Axes:
    """The densities of several spectra on the same axes and of one width; `log` for those of log |λ|, on one floor.

    Unless given, the width is the widest of theirs: then no curve is smoother than another for its width alone.
    A legend above the axes names them. More than seven are coloured from the first (dark) to the last (light), and
    only these two are named.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> spectrum = ritz.Spectrum.of_eigenvalues(torch.tensor([0.1, 0.2, 0.3, 5.0]))
    >>> [text.get_text() for text in comparison(ax, {"before": spectrum, "after": spectrum}).get_legend().get_texts()]
    ['before', 'after']
    """
    if not spectra:
        raise ArgumentError("No spectra were given.", "A comparison shows at least one.", "Pass {name: spectrum}.")
    many, options = len(spectra) > len(COLOURS), _common(list(spectra.values()), log, width)
    draw: Callable[..., Axes] = log_spectrum if log else density
    shades, named = matplotlib.colormaps["viridis"], dict[str, Line2D]()
    for index, (name, spectrum) in enumerate(spectra.items()):
        colour = shades(0.95 * index / (len(spectra) - 1)) if many else COLOURS[index]
        before = len(ax.lines)
        draw(ax, spectrum, **options, band=not many, **{"color": colour, **style})
        if not many or index in (0, len(spectra) - 1):
            named[name] = ax.lines[before]
    write_names(ax, named, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderpad=0.2)
    return ax


def write_names(ax: Axes, named: Mapping[str, Any], **look: Any) -> None:
    """A legend of names that are written as they are."""
    blank = [f"{index}" for index in range(len(named))]  # matplotlib would leave out names such as _head
    common: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 1.2, "columnspacing": 1.2}
    legend = ax.legend(list(named.values()), blank, **common, **look)
    for text, name in zip(legend.get_texts(), named, strict=True):
        text.set_parse_math(False)  # a $ is part of the name
        text.set_text(name)


def counts(ax: Axes, spectrum: Spectrum, *, floor: float, width: float, **style: Any) -> Axes:
    """How many eigenvalues there are per decade of |λ|, both axes logarithmic; those below the floor are not shown.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> spectrum = ritz.Spectrum.of_eigenvalues(torch.tensor([0.1, 0.2, 0.3, 5.0]))
    >>> counts(ax, spectrum, floor=1e-3, width=0.1).get_ylabel()
    'per decade'
    """
    check_positive(floor=floor, width=width)
    end = math.log(max(*map(abs, spectrum.range), floor)) + 4 * width
    if end > _LARGEST or not math.isfinite(spectrum.size / width):
        raise ArgumentError(
            f"width={width:.3g} and floor={floor:.3g} were given.",
            "An axis would end beyond the largest float.",
            "Pass a width of a fraction of a decade, such as 0.1.",
        )
    u = torch.linspace(math.log(floor), end, 2000, dtype=torch.float64)
    y, one = per_decade(spectrum, u, width=width, floor=1e-9 * floor), one_per_decade(width)
    low, high = limits(ax, one / 10, _HEADROOM * max(one, float(y.max())))
    right = max(math.exp(end), ax.get_xlim()[1] if ax.lines else 0.0)
    (line,) = ax.plot(u.exp(), y, **{"linewidth": 1.2, "color": COLOURS[0], **style})
    ax.fill_between(u.exp(), low, y.clamp(min=low), color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(xscale="log", yscale="log", ylim=(low, high), xlim=(floor, right))
    ax.set(xlabel="eigenvalue λ", ylabel="per decade")
    ax.yaxis.set_minor_formatter(NullFormatter())  # the axis has a whole decade, which is named
    return ax


def stems(
    ax: Axes, values: Float[Tensor, " k"], height: float, base: float, *, beside: Float[Tensor, " g"] | None = None
) -> Axes:
    """One stem from the base for each eigenvalue, largest first, with its rank above it where there is room.

    They have the colour of the last line. There is no room next to what the axis shows `beside` them.

    >>> figure, (ax,) = ritz.plot.panels()
    >>> stems(ax, torch.tensor([5.0, 2.0]), 1.0, 0.1).get_legend_handles_labels()[1]
    ['2 outliers']
    """
    values = values.detach().cpu()
    look: dict[str, Any] = {"color": ax.lines[-1].get_color() if ax.lines else COLOURS[0]}
    ax.vlines(values, base, height, linewidth=0.9, **look)
    name = f"{len(values)} outlier" + "s" * (len(values) > 1)
    ax.plot(values, torch.full_like(values, height), "o", markersize=3, label=name, **look)
    place = torch.log10 if ax.get_xscale() == "log" else torch.as_tensor
    ends = place(torch.as_tensor(ax.dataLim.intervalx))
    named = [] if beside is None else place(beside[[0, -1]]).tolist()
    place_of_name: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": "x-small"}
    for rank, (value, at) in enumerate(zip(values.tolist(), place(values).tolist(), strict=True), start=1):
        if all(abs(at - other) > _APART * float(ends[1] - ends[0]) for other in named):
            ax.annotate(f"$\\lambda_{{{rank}}}$", (value, height), (0, 4), **place_of_name)
            named.append(at)
    return ax


def _curve(ax: Axes, curve: Curve, style: Mapping[str, Any]) -> float:
    """A curve with its band, on a logarithmic axis from its base up; returns where the axis begins."""
    low, high = limits(ax, curve.base, _HEADROOM * float(curve.y.max()))
    if not (low > 0 and math.isfinite(high)):
        raise ArgumentError(
            f"The curve would have the heights {low:.3g} to {high:.3g}.",
            "A logarithmic axis has no place for zero or infinity.",
            "Leave out width and floor, or pass some that can be told apart from zero and from the largest float.",
        )
    (line,) = ax.plot(curve.x, curve.y, **{"linewidth": 1.2, **style})
    if curve.resolved_from is not None:
        doubtful = torch.stack([curve.x, curve.y], 1)[curve.x < curve.resolved_from].numpy()
        ax.add_collection(LineCollection([doubtful], colors="white", alpha=0.75, linewidths=2.0, zorder=2.1))
    if curve.band is not None:
        lower, upper = (end.clamp(min=low) for end in curve.band)
        ax.fill_between(curve.x, lower, upper, where=curve.seen, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(yscale="log", ylim=(low, high))
    return low


def _grey(ax: Axes, end: float | None) -> None:
    """Shade what no curve so far resolves: everything below the least of their ends, or nothing if one has none."""
    earlier = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_gid() == _UNRESOLVED]
    ends = [*([] if end is None else [end]), *(patch.get_width() for patch in earlier)]
    for patch in earlier:
        patch.remove()
    if end is not None and (earlier or len(ax.lines) == 1):
        look: dict[str, Any] = {"color": "0.88", "linewidth": 0, "zorder": 0, "gid": _UNRESOLVED}
        ax.add_patch(Rectangle((0.0, 0.0), min(ends), 1.0, transform=ax.get_xaxis_transform(), **look))


def _common(spectra: list[Spectrum], log: bool, width: float | None) -> dict[str, float]:
    """The width, and the floor of logarithms, that all spectra are drawn with."""
    options = common_log_options(spectra) if log else {"width": max(map(visible_width, spectra))}
    return options if width is None else options | {"width": width}
