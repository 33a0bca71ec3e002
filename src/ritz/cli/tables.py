"""Tables as the command prints them, among them the cost of an analysis."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from ..analysis.spectrum import Forecast
from ..progress import duration
from ..record.json_values import printable

_PIPE_WIDTH = 110  # a pipe has no width of its own; the widest table fits


def show(content: RenderableType) -> None:
    """Print to standard output: coloured in a terminal, plain in a pipe. Names such as [bold]x are not markup."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(highlight=False, markup=False, emoji=False, width=width).print(_Printable(content))


class _Printable:
    """Content in which names cannot steer the terminal."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def facts_table() -> Table:
    """A table of names and their values."""
    table = _table(show_header=False)
    table.add_column(style="bold")
    return table


def prose_table(*headings: str) -> Table:
    """A table in which long texts are folded."""
    table = _table()
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def columns_table(title: str, columns: Mapping[str, Sequence[str]], *, left: Container[str] = ()) -> Table:
    """A table of columns by their headings: numbers, aligned right, and words, aligned `left`."""
    table = _table(title=title, title_justify="left", min_width=len(title))
    for heading in columns:
        table.add_column(heading, justify="left" if heading in left else "right")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _table(**options: Any) -> Table:
    """A table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), **options)


def cost(forecast: Forecast) -> RenderableType:
    """A table of what an analysis would cost."""
    table = facts_table()
    products = forecast.num_products * forecast.product_seconds
    each = f"{forecast.product_seconds * 1e3:.3g} ms each on average"
    table.add_row("products", f"about {forecast.num_products:,}, {each}: {_seconds(products)}")
    table.add_row("other work", f"about {_seconds(forecast.other_seconds)}, to set up products and in the solvers")
    table.add_row("time", f"about {_seconds(forecast.seconds)} in all")
    table.add_row("memory", f"about {_bytes(forecast.bytes)} beyond the model and the data")
    table.add_row("disk", f"{_bytes(forecast.file_bytes)} at most while it runs, to resume from")
    table.add_row("path", f"{forecast.path}: how products are computed")
    return table


def _seconds(seconds: float) -> str:
    """A time that may be short, to two digits."""
    return duration(seconds) if seconds >= 10 else f"{seconds:.2g} s"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
