"""A page of what was measured, which explains itself: one HTML file that needs no network.

record = analysis.spectrum.run(risk)
report.write([record], "report.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..record import Record, write_bytes
from . import page, subjects

__all__ = ["write"]


def write(records: Sequence[Record], path: str | Path) -> Path:
    """Write the page of these records; returns its path. What was measured of one model stands together.

    >>> from tempfile import TemporaryDirectory
    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> with TemporaryDirectory() as folder:
    ...     write([record], f"{folder}/report.html").read_text()[:15]
    '<!doctype html>'
    """
    subjects.check(records)
    parts = subjects.articles(records)
    title = parts[0].title if len(parts) == 1 else f"{len(parts)} analyses"
    return write_bytes(path, page.page(parts, title=f"{title} · ritz").encode())
