"""Pictures of error against products, a panel for each matrix."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes

from ritz import plot

from .work import Row, Work

COLUMNS = 3
TICKS = (16, 32, 64, 128, 256, 512)


def draw(work: Work, rows: list[Row], path: Path) -> None:
    """One picture of a kind of work: a block of panels for each of its errors."""
    problems = list(dict.fromkeys(row.problem for row in rows))
    lines = -(-len(problems) // COLUMNS)
    figure, axes = plot.panels(COLUMNS, lines * len(work.floors), width=3.3, height=2.5)
    for ax in axes:
        ax.set_axis_off()
    for block, error in enumerate(work.floors):
        for index, problem in enumerate(problems):
            ax = axes[block * lines * COLUMNS + index]
            _curves(ax, work, [row for row in rows if row.problem == problem], error)
            if index % COLUMNS == 0:
                ax.set_ylabel(work.labels[error])
    handles = {handle.get_label(): handle for ax in axes for handle in ax.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _curves(ax: Axes, work: Work, rows: list[Row], error: str) -> None:
    ax.set_axis_on()
    for row in rows:
        if not row.points:
            continue
        style = list(work.contestants).index(row.contestant)
        colour = plot.figures.COLOURS[style % len(plot.figures.COLOURS)]
        products, middle, low, high = zip(*row.curve(error), strict=True)
        floor = work.floors[error]
        middle, low, high = ([max(value, floor) for value in values] for values in (middle, low, high))
        width, order = (2.2, 3) if row.contestant == "ritz" else (1.1, 2)
        ax.plot(products, middle, ".-", color=colour, lw=width, zorder=order, label=row.contestant)
        ax.fill_between(products, low, high, color=colour, alpha=0.1, lw=0)
    middles = [value for row in rows for _, value, _, _ in row.curve(error)]
    ax.set(xscale="log", yscale="log", title=", ".join(rows[0].title.split(", ")[:3]), xlabel="products")
    ax.set_ylim(max(min(middles), work.floors[error]) / 3, 3 * max(middles))  # a lucky seed's error is no scale
    ax.set_xticks(TICKS, map(str, TICKS), minor=False)
    ax.minorticks_off()
