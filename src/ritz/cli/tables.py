"""What the command prints: tables a person can read, from the numbers of a record."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..analysis.spectrum import Forecast, array_of, num_products, title_of
from ..progress import duration
from ..record import Record
from ..spectrum.estimate import digits_within, value_in_brief

_PIPE_WIDTH = 110  # a pipe has no width of its own; the widest table fits


def show(content: RenderableType) -> None:
    """Print to standard output: coloured in a terminal, plain in a pipe. Names such as [bold]x are not markup."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(highlight=False, markup=False, emoji=False, width=width).print(content)


def summary(record: Record) -> RenderableType:
    """Everything worth reading in a record, in the order one asks for it."""
    parts = [_facts(record), _eigenvalues(record), _statistics(record.scalars)]
    if record.scalars["layers"]:
        parts.append(_layers(record.scalars["layers"]))
    cost = f"{num_products(record):,} products, {duration(record.scalars['seconds'])} in all"
    return Group(*(Padding(part, (0, 0, 1, 0), expand=False) for part in parts), Text(cost, style="dim"))


def cost(forecast: Forecast) -> RenderableType:
    """What an analysis would take."""
    table = plain_table()
    products = forecast.num_products * forecast.product_seconds
    each = f"{forecast.product_seconds * 1e3:.3g} ms each in the mean"
    table.add_row("products", f"about {forecast.num_products:,}, {each}: {_seconds(products)}")
    table.add_row("beside them", f"about {_seconds(forecast.other_seconds)}, to set products up and in the solvers")
    table.add_row("time", f"about {_seconds(forecast.seconds)} in all")
    table.add_row("memory", f"about {_bytes(forecast.bytes)} beyond the model and the data")
    table.add_row("disk", f"{_bytes(forecast.file_bytes)} at most while it runs, to go on from")
    table.add_row("products by", forecast.path)
    return table


def _facts(record: Record) -> RenderableType:
    scalars, config = record.scalars, record.config
    table = plain_table()
    table.add_row("matrix", title_of(record))
    table.add_row(
        "parameters", f"n = {scalars['num_parameters']:,}, {config['dtype']} on {record.provenance['device']}"
    )
    table.add_row("terms", f"N = {scalars['num_terms']:,}")
    table.add_row("spectrum", _kind(scalars, config))
    table.add_row("loss", f"{scalars['loss']:.6g}")
    table.add_row("gradient norm", f"{scalars['gradient_norm']:.4g}")
    return table


def _kind(scalars: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Whether all eigenvalues were computed."""
    if scalars["resolution"] is None:
        return f"exact: all {scalars['num_parameters']:,} eigenvalues, to rounding"
    return f"estimated: {config['num_probes']} probes of {config['num_steps']} steps"


def _eigenvalues(record: Record) -> RenderableType:
    values, residuals, converged = (array_of(record, key).tolist() for key in ("eigenvalues", "residuals", "converged"))
    if not values:
        return Text("no eigenpairs were requested", style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), title="Eigenvalues of largest magnitude", title_justify="left")
    for heading in ("rank", "λ", "residual ‖Av - λv‖"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for rank, (value, residual, good) in enumerate(zip(values, residuals, converged, strict=True), start=1):
        table.add_row(str(rank), digits_within(value, residual), f"{residual:.1e}", "" if good else "not converged")
    return table


def _statistics(scalars: Mapping[str, Any]) -> RenderableType:
    table = plain_table()
    low, high = scalars["range"]
    table.add_row("range of λ", f"{low:.4g} to {high:.4g}")
    table.add_row("trace", _with_error(scalars, "trace"))
    table.add_row("effective rank", _with_error(scalars, "effective_rank"), "(tr A)² / tr A²")
    below = f"the part of all eigenvalues below {-scalars['resolved_zero'] or 0:.1e}".replace(" 0.0e+00", " 0")
    table.add_row("negative mass", _with_error(scalars, "negative_mass"), below)
    return table


def _layers(layers: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), title="Layer by layer (diagonal blocks)", title_justify="left")
    table.add_column("layer")
    for heading in ("n", "spectrum", "largest λ", "smallest λ", "trace", "eff. rank", "neg. mass"):
        table.add_column(heading, justify="right")
    for layer, scalars in layers.items():
        low, high = scalars["range"]
        estimates = (_with_error(scalars, name) for name in ("trace", "effective_rank", "negative_mass"))
        kind = "exact" if scalars["resolution"] is None else "estimated"
        table.add_row(layer, f"{scalars['num_parameters']:,}", kind, f"{high:.4g}", f"{low:.4g}", *estimates)
    return table


def plain_table() -> Table:
    """A table of names and what belongs to them, without lines."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    return table


def _with_error(scalars: Mapping[str, Any], name: str) -> str:
    return value_in_brief(scalars[name], scalars[f"{name}_error"])


def _seconds(seconds: float) -> str:
    """A time that may be short, to two digits."""
    return duration(seconds) if seconds >= 10 else f"{seconds:.2g} s"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
