"""Pictures of the gallery: figures of ritz need no pyplot, so that Sphinx-Gallery does not see them by itself."""

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

DPI = 110


def scrape(block: object, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figure that the block made, unless an earlier block has shown it; returns what shows it."""
    figure = block_vars["example_globals"].get("figure")
    if not isinstance(figure, Figure) or getattr(figure, "is_shown", False):
        return ""
    figure.is_shown = True  # type: ignore[attr-defined]
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=DPI)
    return figure_rst([path], gallery_conf["src_dir"])
