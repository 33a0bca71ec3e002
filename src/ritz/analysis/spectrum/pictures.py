"""The picture of an analysis: axes filled from its record."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from ... import plot
from ...arguments import guard
from ...plot.density_plots import write_names
from ...record import Record, write_picture
from .contents import num_outliers, spectrum_of, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = 3  # of layers, that a panel shows
LONGEST, START = 28, 12  # letters of a name that fit into one, and those before what is left out


def draw(record: Record) -> Figure:
    """The figure of a record: the density with its outliers, the bulk alone or log |λ|, and a comparison of layers.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk, ritz.analysis.spectrum.Settings(num_eigenpairs=1, num_steps=1))
    >>> draw(record).axes[0].get_title(loc="left")
    'Hessian: n = 2, N = 2, exact'
    """
    spectrum, outliers = spectrum_of(record), num_outliers(record)
    largest = "largest |λ|" if outliers == 1 else f"{outliers} largest |λ|"
    layers = _sharpest(record)
    figure, axes = plot.panels(2 + bool(layers))
    plot.density(axes[0], spectrum, outliers=outliers)
    sizes = f"n = {record.scalars['num_parameters']:,}, N = {record.scalars['num_terms']:,}"
    sizes += ", exact" * spectrum.is_exact
    axes[0].set_title(f"{title_of(record)}: {sizes}", fontsize="medium", loc="left")
    if outliers:
        axes[0].legend(labels=[largest], handles=axes[0].lines[-1:], frameon=False, fontsize="small", loc="upper right")
    if record.config["log_spectrum"]:
        plot.log_spectrum(axes[1], spectrum, outliers=outliers)
        axes[1].set_title("Log density; grey: not resolved", fontsize="medium", loc="left")
    else:
        plot.density(axes[1], spectrum.split(outliers)[1])
        axes[1].set_title("All others" if outliers else "The same", fontsize="medium", loc="left")
        axes[1].set_xlabel("eigenvalue λ" + f", without the {largest}" * bool(outliers))
    if layers:
        _draw_layers(axes[2], record, layers)
    return figure


def _sharpest(record: Record) -> list[str]:
    """The layers with the largest eigenvalues, at most three, in the order of the network."""
    layers = record.scalars["layers"]
    top = sorted(layers, key=lambda layer: -layers[layer]["range"][1])[:CURVES]
    return [layer for layer in layers if layer in top]


def _draw_layers(ax: Axes, record: Record, layers: list[str]) -> None:
    names = [f"layer {name}" if name.isdigit() else name for name in _short(layers, list(record.scalars["layers"]))]
    spectra = {name: spectrum_of(record, layer) for name, layer in zip(names, layers, strict=True)}
    plot.comparison(ax, spectra, log=True)
    total = len(record.scalars["layers"])
    title = "Layers" if total == len(layers) else f"The {len(layers)} sharpest of {total} layers"
    legend = ax.get_legend()
    if legend is not None:  # anew, one below the other: names of layers are long
        lines = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.legend_handles, strict=True)}
        write_names(ax, lines, loc="best")
    ax.set_title(title, fontsize="medium", loc="left")


def _short(layers: list[str], every: list[str]) -> list[str]:
    """Names that fit into a panel: without the modules they all share, and without their middle.

    What is left of a name is unique among the layers of the network.
    """
    if max(map(len, layers)) <= LONGEST:
        return layers
    parts = [layer.split(".") for layer in layers]
    shared = takewhile(lambda level: len({*level}) == 1, zip(*parts, strict=False)) if len(layers) > 1 else ()
    common = len(list(shared))
    while common and not _tell_apart([".".join(part[common:]) for part in parts], every):
        common -= 1
    names = ["…" * bool(common) + ".".join(part[common:]) for part in parts]
    cut = [name if len(name) <= LONGEST else f"{name[:START]}…{name[START + 1 - LONGEST :]}" for name in names]
    return cut if len({*cut}) == len(cut) else layers


def _tell_apart(ends: list[str], every: list[str]) -> bool:
    """Whether each end belongs to only one name."""
    return all(sum(f".{name}".endswith(f".{end}") for name in every) == 1 for end in ends)


def write(record: Record, folder: str | Path) -> Path:
    """Write spectrum.png and then the record into the folder, so that no record lacks its picture.

    >>> from tempfile import TemporaryDirectory
    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk, ritz.analysis.spectrum.Settings(num_eigenpairs=1, num_steps=1))
    >>> with TemporaryDirectory() as folder:
    ...     sorted(path.name for path in write(record, folder).iterdir())
    ['arrays.npz', 'record.json', 'spectrum.png']
    """
    folder = Path(folder)
    write_picture(folder / "spectrum.png", draw(record))
    return record.save(folder)


guard(__name__)
