"""The picture of an analysis: axes filled from its record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ... import plot
from ...record import Record, write_picture
from .contents import num_outliers, spectrum_of, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(record: Record) -> Figure:
    """The figure of a record: the density with its outliers, the bulk alone or log |λ|, and a comparison of layers.

    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk, ritz.analysis.spectrum.Settings(num_eigenpairs=1, num_steps=1))
    >>> draw(record).axes[0].get_title(loc="left")
    'Hessian: n = 2, N = 2'
    """
    spectrum, layers, outliers = spectrum_of(record), record.scalars["layers"], num_outliers(record)
    figure, axes = plot.panels(2 + bool(layers))
    plot.density(axes[0], spectrum, outliers=outliers)
    if outliers:
        axes[0].legend(frameon=False, fontsize="small")
    if record.config["log_spectrum"]:
        plot.log_spectrum(axes[1], spectrum)
    else:
        plot.density(axes[1], spectrum.split(outliers)[1])
        axes[1].set_xlabel("eigenvalue λ" + f", without the {outliers} outliers" * bool(outliers))
    if layers:
        plot.comparison(axes[2], {layer: spectrum_of(record, layer) for layer in layers}, log=True)
    sizes = f"n = {record.scalars['num_parameters']:,}, N = {record.scalars['num_terms']:,}"
    axes[0].set_title(f"{title_of(record)}: {sizes}", fontsize="medium", loc="left")
    return figure


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
