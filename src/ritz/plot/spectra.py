"""Pictures: axes in, axes out. They compute nothing heavy and save nothing.

    figure, (left, right) = plot.panels(2)
    plot.density(left, spectrum, outliers=10)
    plot.scree(right, pairs.values, residuals=pairs.residuals)

`**style` goes to the main line or marker, as matplotlib takes it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter
from torch import Tensor

from ..errors import ArgumentError
from ..spectrum import Spectrum

# Blue, vermillion, green, orange, purple, sky, black: tell apart under every colour blindness. Okabe and Ito (2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
_BAND = 2.0  # standard errors on either side: about 95 %
_FINENESS = 300  # widths in the range of a density: finer ones would be narrower than a printed line
_NOTEBOOK_DPI = 120  # of a figure that shows itself
_HEADROOM = 3.0  # of a logarithmic axis above its highest curve


class ShownFigure(Figure):
    """A figure that a notebook shows as it is, without pyplot."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=_NOTEBOOK_DPI)
        return stream.getvalue()


def panels(
    columns: int = 1, rows: int = 1, *, width: float = 3.6, height: float = 2.8, shared: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of rows × columns axes, each so many inches large; it needs no display and leaves no global state.

    `shared` axes have one scale and one range. It is the last line of a notebook's cell that is shown: end it with
    `figure`.
    """
    with matplotlib.rc_context(_RC):
        figure = ShownFigure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, list(axes.flat)


def density(
    ax: Axes, spectrum: Spectrum, *, outliers: int = 0, width: float | None = None, band: bool = True, **style: Any
) -> Axes:
    """The density of eigenvalues on a logarithmic axis, the `outliers` largest in magnitude as stems.

    A stem is as high as one eigenvalue smoothed like the rest: 1/(n σ √2π). The band is two standard errors over
    the probes. The axis ends a decade below one eigenvalue: what lies there is only the tail of a Gaussian. Unless
    given, the width is the spectrum's own, or a 300th of the range where that is larger: what a picture can show.
    """
    width = _visible_width(spectrum) if width is None else width
    values, bulk = spectrum.split(outliers) if outliers else (torch.empty(0), spectrum)
    x = bulk.grid(width=1.5 * width)  # six widths beyond the ends: four are still to be seen below a high peak
    share, one = bulk.size / spectrum.size, _one_eigenvalue(spectrum, width)
    base = _curve(ax, x, bulk, lambda s: share * s.density(x, width), one / 10, band, style)
    _stems(ax, values, one, base)
    ax.set(xlabel="eigenvalue λ", ylabel="density")
    return ax


def log_spectrum(
    ax: Axes,
    spectrum: Spectrum,
    *,
    width: float | None = None,
    floor: float | None = None,
    band: bool = True,
    **style: Any,
) -> Axes:
    """The density of log(|λ| + floor), over |λ| + floor on a logarithmic axis; exact zeros gather at the floor."""
    floor = spectrum.floor if floor is None else floor
    width = spectrum.log_width(floor) if width is None else width
    u = spectrum.log_grid(width=width, floor=floor)
    curve = lambda s: s.log_density(u, width=width, floor=floor)
    base = _curve(ax, u.exp(), spectrum, curve, _one_eigenvalue(spectrum, width) / 10, band, style)
    seen = u[curve(spectrum) > base].exp()
    ax.set_xlim(*_limits(ax, float(seen[0]), float(seen[-1]), axis="x"))
    ax.set(xscale="log", xlabel="|λ|", ylabel="density of log |λ|")
    return ax


def scree(ax: Axes, values: Float[Tensor, " k"], *, residuals: Float[Tensor, " k"] | None = None, **style: Any) -> Axes:
    """|λ| by rank, largest first, on a logarithmic axis; hollow where λ is negative, with residuals as error bars."""
    signed = values.detach().cpu().double().numpy()
    order = np.argsort(-np.abs(signed), kind="stable")
    signed, rank = signed[order], np.arange(1, len(signed) + 1)
    negative = signed < 0
    error = None if residuals is None else residuals.detach().cpu().double().numpy()[order]
    look: dict[str, Any] = {"color": COLOURS[0], "markersize": 4.5, "linewidth": 0.8} | style
    ax.errorbar(rank, np.abs(signed), error, fmt="o-", capsize=2, **look)
    marker = {name: look[name] for name in ("color", "markersize")}
    ax.plot(rank[negative], -signed[negative], "o", markerfacecolor="white", zorder=3, **marker)
    ax.set(yscale="log" if signed.any() else "linear", xlabel="rank")
    ax.set_ylabel("|λ|, hollow: λ < 0" if negative.any() else "eigenvalue λ")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return ax


def comparison(
    ax: Axes, spectra: Mapping[str, Spectrum], *, log: bool = False, width: float | None = None, **style: Any
) -> Axes:
    """The densities of several spectra on the same axes; `log` for those of log |λ|.

    A legend above the axes names them. More than seven are coloured from the first (dark) to the last (light), and
    only these two are named.
    """
    draw, many = log_spectrum if log else density, len(spectra) > len(COLOURS)
    shades, named = matplotlib.colormaps["viridis"], dict[str, Line2D]()
    for index, (name, spectrum) in enumerate(spectra.items()):
        colour = shades(0.95 * index / (len(spectra) - 1)) if many else COLOURS[index]
        before = len(ax.lines)
        draw(ax, spectrum, width=width, band=not many, **{"color": colour, **style})
        if not many or index in (0, len(spectra) - 1):
            named[name] = ax.lines[before]
    above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 3, "borderpad": 0.2}
    blank = [f"{index}" for index in range(len(named))]  # matplotlib would leave out names such as _head
    legend = ax.legend(
        list(named.values()), blank, frameon=False, fontsize="small", handlelength=1.2, columnspacing=1.2, **above
    )
    for text, name in zip(legend.get_texts(), named, strict=True):
        text.set_parse_math(False)  # a $ is part of the name
        text.set_text(name)
    return ax


def eigenvalues(ax: Axes, measured: Float[Tensor, " k"], predicted: Float[Tensor, " m"], **style: Any) -> Axes:
    """Measured eigenvalues against those of a closed form, both sorted; what lies on the diagonal agrees.

    The axes are logarithmic where all are positive and span more than two decades.
    """
    if measured.shape != predicted.shape or measured.ndim != 1:
        raise ArgumentError(
            f"{tuple(measured.shape)} measured and {tuple(predicted.shape)} predicted eigenvalues were to be paired.",
            "Each point needs one of both, and they are paired by their order.",
            "Compare as many as were measured: closed_form.eigenvalues()[:k].",
        )
    x, y = (values.detach().cpu().double().sort().values for values in (predicted, measured))
    both = torch.cat([x, y])
    ends = float(both.min()), float(both.max())
    ax.axline((ends[1], ends[1]), (0.5 * ends[1] or 1.0,) * 2, color="0.6", linewidth=0.8, zorder=0)
    look: dict[str, Any] = {"color": COLOURS[0], "markersize": 4, "alpha": 0.7, "markeredgewidth": 0} | style
    ax.plot(x, y, "o", **look)
    scale = "log" if ends[0] > 0 and ends[1] > 100 * ends[0] else "linear"
    ax.set(xscale=scale, yscale=scale, xlabel="eigenvalue, closed form", ylabel="eigenvalue, measured")
    return ax


def counts(ax: Axes, spectrum: Spectrum, *, floor: float, width: float, **style: Any) -> Axes:
    """How many eigenvalues there are per decade of |λ|, both axes logarithmic; those below the floor are not shown."""
    end = math.log(max(*map(abs, spectrum.range), floor)) + 4 * width
    u = torch.linspace(math.log(floor), end, 2000, dtype=torch.float64)
    y = spectrum.size * math.log(10) * spectrum.log_density(u, width=width, floor=1e-9 * floor)
    one = math.log(10) / (width * math.sqrt(2 * math.pi))  # the height of one eigenvalue
    low, high = _limits(ax, one / 10, _HEADROOM * max(one, float(y.max())))
    right = max(math.exp(end), ax.get_xlim()[1] if ax.lines else 0.0)
    (line,) = ax.plot(u.exp(), y, **{"linewidth": 1.2, "color": COLOURS[0], **style})
    ax.fill_between(u.exp(), low, y.clamp(min=low), color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(xscale="log", yscale="log", ylim=(low, high), xlim=(floor, right))
    ax.set(xlabel="eigenvalue λ", ylabel="per decade")
    ax.yaxis.set_minor_formatter(NullFormatter())  # the axis has a whole decade, which is named
    return ax


def knockout(
    ax: Axes, before: Float[Tensor, " k"], after: Float[Tensor, " l"], *, top: int, zero: float = 0.0, **style: Any
) -> Axes:
    """Log-eigenvalues before a knockout against those after it, both moved to [0, 1] alike; the top in another colour.

    They are paired by rank. What the knockout leaves unchanged lies on the identity line, and what it takes down lies
    above it. Pairs of which one is not above `zero` are not drawn. Papyan (2020), Figs. 7, 9, 13.
    """
    x, y = (values.detach().cpu().double() for values in (after, before))
    seen = (x > zero) & (y > zero)
    x, y = x[seen].log(), y[seen].log()
    ax.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), xticks=(0, 1), yticks=(0, 1), box_aspect=1)
    if len(x) == 0:
        ax.text(0.5, 0.5, "nothing is left", ha="center", va="center", color="0.5", fontsize="small")
        return ax
    low, high = float(torch.cat([x, y]).min()), float(torch.cat([x, y]).max())
    x, y = ((values - low) / max(high - low, 1e-12) for values in (x, y))
    ax.plot((0, 1), (0, 1), color="black", linewidth=0.8, zorder=0)
    look: dict[str, Any] = {"markersize": 3.5, "alpha": 0.7, "markeredgewidth": 0} | style
    ax.plot(x[top:], y[top:], "o", color=COLOURS[3], **look)
    ax.plot(x[:top], y[:top], "o", color=COLOURS[0], **look)
    return ax


def empty(ax: Axes) -> Axes:
    """A panel of eigenvalues that are zero, for which a logarithmic axis has no place."""
    ax.text(0.5, 0.5, "all are zero", ha="center", color="0.5", fontsize="small", transform=ax.transAxes)
    ax.minorticks_off()
    ax.set(xticks=[], yticks=[])
    return ax


def screes(
    ax: Axes,
    curves: Mapping[str, Float[Tensor, " _"]],
    *,
    zero: float = 0.0,
    whisker: tuple[float, float] | None = None,
) -> Axes:
    """Several lists of eigenvalues by rank, both axes logarithmic; the whisker beside them shows a range.

    Values that are not above `zero` are not drawn. Papyan (2020), Figs. 8 and 10.
    """
    for colour, (name, values) in zip((COLOURS[0], COLOURS[3], "0.55"), curves.items(), strict=False):
        values = values[values > zero].detach().cpu()
        ax.plot(range(1, len(values) + 1), values, "o-", color=colour, label=name, markersize=3, linewidth=0.8)
    if not any(len(line.get_xdata()) for line in ax.lines):  # type: ignore[arg-type]
        return empty(ax)
    if whisker is not None:
        low, high = whisker
        ax.errorbar([0.7], [low], [[0.0], [high - low]], color=COLOURS[3], capsize=3, linewidth=1.2)
    ax.set(xscale="log", yscale="log", xlabel="rank")
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 10 ** math.floor(math.log10(high))), high)  # one decade is named at least
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())
    return ax


def _curve(
    ax: Axes,
    x: Tensor,
    spectrum: Spectrum,
    curve: Callable[[Spectrum], Tensor],
    base: float,
    band: bool,
    style: Mapping[str, Any],
) -> float:
    """The curve of a spectrum with its band, on a logarithmic axis from `base` up; returns where the axis begins."""
    y = curve(spectrum)
    low, high = _limits(ax, base, _HEADROOM * float(y.max()))
    (line,) = ax.plot(x, y, **{"linewidth": 1.2, **style})
    if band and spectrum.num_probes > 1:
        error = _BAND * spectrum.standard_error(curve)
        ax.fill_between(x, (y - error).clamp(min=low), y + error, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(yscale="log", ylim=(low, high))
    return low


def _stems(ax: Axes, values: Float[Tensor, " k"], height: float, base: float) -> None:
    """One stem for each eigenvalue, in the colour of the last curve."""
    if len(values):
        colour = ax.lines[-1].get_color()
        ax.vlines(values, base, height, color=colour, linewidth=0.9)
        name = f"{len(values)} outlier" + "s" * (len(values) > 1)
        ax.plot(values, torch.full_like(values, height), "o", color=colour, markersize=3, label=name)


def _one_eigenvalue(spectrum: Spectrum, width: float) -> float:
    """The height of one eigenvalue under a Gaussian of this width: 1/(n σ √2π)."""
    return 1 / (spectrum.size * width * math.sqrt(2 * math.pi))


def _visible_width(spectrum: Spectrum) -> float:
    low, high = spectrum.range
    return max(spectrum.width, (high - low) / _FINENESS)


def _limits(ax: Axes, low: float, high: float, axis: str = "y") -> tuple[float, float]:
    """The limits of a logarithmic axis, widened to what earlier curves on it needed."""
    before = ax.get_ylim() if axis == "y" else ax.get_xlim()
    earlier = len(ax.lines) > (0 if axis == "y" else 1)
    return (min(low, before[0]), max(high, before[1])) if earlier else (low, high)
