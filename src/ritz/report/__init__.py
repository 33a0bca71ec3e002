"""Reports: one self-contained, self-explaining HTML page of measurements, which needs no network.

record = analysis.spectrum.run(risk)
report.write([record], "report.html")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..analysis.comparison import Entry
from ..arguments import guard
from ..record import Record, write_bytes
from ..theory import ClosedForm
from . import differences, page, subjects

__all__ = ["compare", "write"]


def write(records: Sequence[Record], path: str | Path, *, theory: ClosedForm | None = None) -> Path:
    """Write the page of these records; returns its path. What was measured of one model stands together.

    Where `theory` has the spectrum in closed form, the page holds it against what was measured; for models that theory
    knows, such as two linear layers under squared error, it does so by itself (`analysis.spectrum.theory_of`).

    >>> from tempfile import TemporaryDirectory
    >>> data = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)
    >>> risk = ritz.Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), data)
    >>> record = ritz.analysis.spectrum.run(risk)
    >>> with TemporaryDirectory() as folder:
    ...     write([record], f"{folder}/report.html").read_text()[:15]
    '<!doctype html>'
    """
    subjects.check(records, theory)
    parts = subjects.articles(records, theory)
    title = parts[0].title if len(parts) == 1 else f"{len(parts)} analyses"
    return write_bytes(path, page.page(parts, title=f"{title} · ritz").encode())


def compare(entries: Sequence[Entry], path: str | Path) -> Path:
    """Write the page that holds spectra against the first of them; returns its path.

    >>> from tempfile import TemporaryDirectory
    >>> from ritz.analysis.comparison import Entry
    >>> spectra = {name: ritz.Spectrum.of_eigenvalues(torch.tensor([0.0, x])) for name, x in (("a", 1.0), ("b", 2.0))}
    >>> entries = [Entry.of_spectrum(name, spectrum) for name, spectrum in spectra.items()]
    >>> with TemporaryDirectory() as folder:
    ...     "The spectra differ by W₁ = <a" in compare(entries, f"{folder}/compare.html").read_text()
    True
    """
    part = differences.article(entries)
    return write_bytes(path, page.page([part], title=f"{part.title} · ritz").encode())


guard(__name__)
