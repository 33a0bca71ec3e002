"""The pictures of a record: what Papyan (2020) shows in Figures 5 and 7 to 13, of any classifier."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ... import plot
from ...arguments import guard
from ...plot.curves import one_per_decade
from ...record import Record, write_picture
from ...spectrum import Spectrum
from .contents import array_of, layer_spectra_of, layers_with, spectra_of
from .kronecker_spectra import KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 2.1  # inches of a panel: eight make a page
LOWEST = {"float32": 1e-6, "float64": 1e-8}  # where an axis begins, relative to the largest eigenvalue
FINENESS, QUADRATURE_FINENESS = 120, 40  # widths in a logarithmic range: as many as the eye distinguishes


def draw(record: Record) -> dict[str, Figure]:
    """Every picture that the record has numbers for, by the name of its file.

    >>> data = torch.eye(2).double(), torch.tensor([0, 1])
    >>> risk = ritz.Risk(torch.nn.LayerNorm(2).double(), torch.nn.CrossEntropyLoss(), data)
    >>> record = ritz.analysis.classes.run(risk)
    >>> list(draw(record))  # the model has no linear layer, of which there would be more
    ['knockouts']
    """
    figures = {"knockouts": knockouts(record)}
    pictures = {"features": features, "errors": errors, "weights": weights, "kronecker": kronecker}
    figures |= {kind: picture(record) for kind, picture in pictures.items() if layers_with(record, kind)}
    if "features" in figures or "errors" in figures:
        figures["scree"] = scree(record)
    return figures


def knockouts(record: Record) -> Figure:
    """The spectrum of G, and under it those after each knockout, on the same axes; Papyan (2020), Fig. 5.

    The C largest eigenvalues of G are marked. Shaded is what lies above everything that G - G_class has.
    """
    spectra = spectra_of(record)
    figure, axes = plot.panels(1, len(spectra), width=5.2, height=1.05, shared=True)
    floor, width = _scale(spectra.values(), record)
    top, edge = spectra["G"].range[1] * math.exp(4 * width), spectra["G - G_class"].range[1]
    heights = []
    for ax, (name, spectrum) in zip(axes, spectra.items(), strict=True):
        plot.counts(ax, spectrum, floor=floor, width=width, color=plot.COLOURS[0 if name == "G" else 2])
        ax.axvspan(edge, top, color=plot.COLOURS[1], alpha=0.1, linewidth=0)
        ax.set_title(name, fontsize="small", loc="left", pad=2)
        heights.append(ax.get_ylim())
        ax.label_outer()
        ax.set_ylabel("")
    figure.supylabel("eigenvalues per decade", fontsize="small")
    axes[0].set(xlim=(floor, top), ylim=(heights[0][0], max(high for _, high in heights)))
    marked = array_of(record, "gauss_newton/values")[: record.scalars["num_classes"]]
    plot.stems(axes[0], marked, one_per_decade(width), heights[0][0])
    legend = f"stems: the {len(marked)} largest; shaded: above all of G - G_class"
    axes[0].set_title(legend, fontsize="x-small", loc="right", pad=2)
    if any(spectrum.resolution is not None for spectrum in spectra.values()):
        axes[-1].set_xlabel("eigenvalue λ, as far down as the quadratures resolve")
    return figure


def features(record: Record) -> Figure:
    """λ(Φ^l) against those off Φ_class, one panel a layer; Papyan (2020), Fig. 7."""
    rows = [("whole", "off_class", record.scalars["num_classes"])]
    return _scatters(record, "features", rows, ["λ(Φ off Φ_class)", "λ(Φ)"])


def weights(record: Record) -> Figure:
    """The singular values of W^l against those off W_class, one panel a layer; Papyan (2020), Fig. 13."""
    rows = [("whole", "off_class", record.scalars["num_classes"])]
    return _scatters(record, "weights", rows, ["σ(W off W_class)", "σ(W)"])


def errors(record: Record) -> Figure:
    """λ(Δ^l) against those off Δ_class, and these against those off Δ_class + Δ_cross; Papyan (2020), Fig. 9.

    The second row is left out where no layer is wider than the span of all its means.
    """
    C = record.scalars["num_classes"]
    array = lambda layer, name: array_of(record, f"errors/{layer}/{name}")
    left = any(
        bool((array(layer, "off_class_and_cross") > _zero(array(layer, "whole"))).any())
        for layer in layers_with(record, "errors")
    )
    rows = [("whole", "off_class", C), ("off_class", "off_class_and_cross", C**2)][: 1 + left]
    labels = ["λ(Δ off Δ_class)", "λ(Δ)", "λ(Δ off both)", "λ(Δ off Δ_class)"]
    return _scatters(record, "errors", rows, labels)


def scree(record: Record) -> Figure:
    """The eigenvalues of Φ^l and Δ^l by rank, beside those of their class parts; Papyan (2020), Figs. 8 and 10.

    In units of the median eigenvalue of the class part (that of their logarithms).
    """
    kinds = [kind for kind in ("features", "errors") if layers_with(record, kind)]
    columns = max(len(layers_with(record, kind)) for kind in kinds)
    figure, axes = plot.panels(columns, len(kinds), width=WIDTH, height=2.1)
    for row, kind in enumerate(kinds):
        panels = axes[row * columns : (row + 1) * columns]
        for ax, layer in _panels(panels, layers_with(record, kind)):
            _scree(ax, record, kind, layer)
        symbol = "Φ" if kind == "features" else "Δ"
        panels[0].set_ylabel(f"λ / median λ({symbol}_class)")
        panels[0].legend(frameon=False, fontsize="x-small", handlelength=1.2)
    return figure


def kronecker(record: Record) -> Figure:
    """The spectrum of G^l against those of KFAC and of CFAC, one column a layer; Papyan (2020), Figs. 11 and 12."""
    layers = layers_with(record, "kronecker")
    spectra = {layer: layer_spectra_of(record, layer) for layer in layers}
    kinds = [kind for kind in KINDS[1:] if any(kind in own for own in spectra.values())]
    figure, axes = plot.panels(len(layers), len(kinds), width=WIDTH, height=1.7)
    for row, (kind, colour) in enumerate(zip(kinds, (plot.COLOURS[1], plot.COLOURS[3]), strict=False)):
        panels = axes[row * len(layers) : (row + 1) * len(layers)]
        for ax, layer in _panels(panels, layers):
            _compare(ax, record, {name: s for name, s in spectra[layer].items() if name in ("G", kind)}, colour)
        panels[0].legend(frameon=False, fontsize="x-small", handlelength=1.2)
        for ax in panels[1:]:
            ax.set_ylabel("")
    return figure


def _compare(ax: Axes, record: Record, spectra: dict[str, Spectrum], colour: str) -> None:
    floor, width = _scale(spectra.values(), record)
    for name, spectrum in spectra.items():
        look = {"color": plot.COLOURS[0]} if name == "G" else {"color": colour}
        plot.counts(ax, spectrum, floor=floor, width=width, label="Gˡ" if name == "G" else name, **look)
    if not any(any(spectrum.range) for spectrum in spectra.values()):
        plot.empty(ax)
    elif len(spectra) < 2:
        ax.text(0.5, 0.9, "left out", ha="center", va="top", color="0.5", transform=ax.transAxes)


def _scatters(record: Record, kind: str, rows: list[tuple[str, str, int]], labels: list[str]) -> Figure:
    """One column a layer, one row a knockout: before, after, and how many of the largest stand apart from the rest."""
    layers = layers_with(record, kind)
    figure, axes = plot.panels(len(layers), len(rows), width=WIDTH, height=WIDTH + 0.4)
    for row, (before, after, top) in enumerate(rows):
        panels = axes[row * len(layers) : (row + 1) * len(layers)]
        for ax, layer in _panels(panels, layers):
            whole, x, y = (array_of(record, f"{kind}/{layer}/{name}") for name in ("whole", before, after))
            plot.knockout(ax, x, y, top=top, zero=_zero(whole))
            ax.set_xlabel(labels[2 * row])
        panels[0].set_ylabel(labels[2 * row + 1])
    legend = f"blue: the {rows[0][2]} largest\nabove the line: made by means"
    figure.suptitle(legend, fontsize="x-small", x=0.02, ha="left")
    return figure


def _scree(ax: Axes, record: Record, kind: str, layer: str) -> None:
    symbol = "Φ" if kind == "features" else "Δ"
    names = {"whole": symbol, "class": f"{symbol}_class", "class_and_cross": f"{symbol}_class + {symbol}_cross"}
    curves = {
        symbols: array_of(record, f"{kind}/{layer}/{name}")
        for name, symbols in names.items()
        if f"{kind}/{layer}/{name}" in record.arrays
    }
    zero = _zero(curves[symbol])
    means = curves[f"{symbol}_class"]
    means = means[means > zero]
    unit = float(means.log().median().exp()) if len(means) else 1.0
    whisker = (float(means[-1]) / unit, float(means[1]) / unit) if len(means) > 2 else None
    plot.screes(ax, {name: values / unit for name, values in curves.items()}, zero=zero / unit, whisker=whisker)


def _zero(whole: Tensor) -> float:
    """The size below which values count as zero, relative to the eigenvalues of the whole."""
    return max(len(whole), 100) * torch.finfo(torch.float64).eps * float(whole.max())


def _panels(axes: list[Axes], layers: list[str]) -> Iterable[tuple[Axes, str]]:
    """The axes with their layers, under the layers' names; axes without a layer vanish."""
    for ax in axes[len(layers) :]:
        ax.set_visible(False)
    for ax, layer in zip(axes, layers, strict=False):
        ax.set_title(f"layer {layer}" if layer.isdigit() else layer, fontsize="small", loc="left", parse_math=False)
        yield ax, layer


def _scale(spectra: Iterable[Spectrum], record: Record) -> tuple[float, float]:
    """Where a logarithmic axis of several spectra begins, and the width of a Gaussian on it."""
    spectra = list(spectra)
    top = max(max(map(abs, spectrum.range)) for spectrum in spectra) or 1.0
    floor = top * max(_resolved(spectrum, record.config["dtype"]) for spectrum in spectra)
    seen = torch.cat([s.nodes[(s.nodes > floor) & (s.weights > 0)] for s in spectra])
    floor = max(floor, 0.5 * float(seen.min())) if len(seen) else floor
    exact = all(spectrum.resolution is None for spectrum in spectra)
    return floor, math.log(top / floor) / (FINENESS if exact else QUADRATURE_FINENESS)


def _resolved(spectrum: Spectrum, dtype: str) -> float:
    """The smallest eigenvalue that is shown of a spectrum, relative to the largest.

    The nodes of a quadrature are about (π/m)² apart at the ends of its range: below, one node stands for all that is
    there.
    """
    return LOWEST[dtype] if spectrum.resolution is None else (math.pi / spectrum.nodes.shape[1]) ** 2


def write(record: Record, folder: str | Path) -> list[str]:
    """Write the pictures and then the record into the folder; returns the names of all files.

    >>> from tempfile import TemporaryDirectory
    >>> data = torch.eye(2).double(), torch.tensor([0, 1])
    >>> risk = ritz.Risk(torch.nn.LayerNorm(2).double(), torch.nn.CrossEntropyLoss(), data)
    >>> record = ritz.analysis.classes.run(risk)
    >>> with TemporaryDirectory() as folder:
    ...     write(record, folder)
    ['record.json', 'arrays.npz', 'knockouts.png']
    """
    folder, pictures = Path(folder), draw(record)
    for name, figure in pictures.items():
        write_picture(folder / f"{name}.png", figure, dpi=150)
    record.save(folder)
    return ["record.json", "arrays.npz", *(f"{name}.png" for name in pictures)]


guard(__name__)
