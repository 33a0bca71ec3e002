"""The article of a comparison: spectra on common axes and widths, how far apart they are, what changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from shlex import quote

from ..analysis.comparison import Change, Distance, Entry, Measured, changes, distance
from ..errors import ArgumentError
from ..spectrum.estimate import value_with_error
from . import guides
from .articles import Article, Number, Section, Table
from .spectra import bounds, lines_of, matrix_of
from .spectral_charts import Lines, density, log_density

DIGITS = 6  # of a number, at most
NOISE = (
    "Noise is the error of the computation alone. Where the two sides saw different examples, the chance of drawing "
    "these matters too, and is not included: measure several samples, and see how far they differ among themselves."
)
ENDS = (
    "The true distance differs from the measured one by no more than the bounds of both spectra together. It is at "
    "least the distance of their means, which are known better than whole spectra, so the lower end often comes from "
    "these. Both ends hold together with 95 % probability."
)


def _title(names: Sequence[str]) -> str:
    """All names, or the first and how many others."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) < 4 else f"{names[0]} and {len(names) - 1} others"


def article(entries: Sequence[Entry]) -> Article:
    """All entries against the first."""
    check(entries)
    first, *others = entries
    found = [(other, changes(first, other), distance(first, other)) for other in others]
    return Article(
        _title([entry.name for entry in entries]),
        _finding(first, *found[0]) if len(found) == 1 else _findings(first, found),
        "What changed by more than its noise, and the distance of the spectra; both tables are below.",
        _analysed(entries),
        [_number(first, other, gap, len(others) > 1) for other, _, gap in found],
        [_spectra(entries), _log_spectra(entries), _changes(first, found), _distances(entries)],
        Section("How to reproduce it", code=f"ritz compare {' '.join(quote(entry.name) for entry in entries)}"),
        guides.TRUST,
    )


def check(entries: Sequence[Entry]) -> None:
    """Refuse less than two, and two of one name."""
    names = [entry.name for entry in entries]
    if len(entries) < 2 or len({*names}) < len(names):
        raise ArgumentError(
            f"These were to be compared: {', '.join(names) or 'nothing'}.",
            "A comparison needs two or more, each with a name of its own.",
            "Name two records: ritz compare out/before out/after",
        )


def _finding(first: Entry, other: Entry, found: Sequence[Change], gap: Distance) -> str:
    real = [_sentence(change) for change in found if change.verdict == "changed"]
    moved = f"these change: {', '.join(real)}" if real else "no number changes by more than noise"
    return f"From {first.name} to {other.name} {moved}. The spectra differ by {gap.sentence}."


def _findings(first: Entry, found: Sequence[tuple[Entry, list[Change], Distance]]) -> str:
    """The findings on several entries: distances and what changed; the tables have the numbers."""
    parts = []
    for other, own, gap in found:
        noise = "" if gap.at_least > 0 else ", which noise could explain"
        real = ", ".join(change.quantity for change in own if change.verdict == "changed")
        parts.append(f"{other.name} is W₁ = {gap.value:.3g} away{noise} ({real or 'no number'} changed beyond noise)")
    return f"Against {first.name}: {'; '.join(parts)}."


def _sentence(change: Change) -> str:
    return f"{change.quantity} from {_text(change.before, 4)} to {_text(change.after, 4)}"


def _number(first: Entry, other: Entry, gap: Distance, several: bool) -> Number:
    text = f"{gap.value:.3g} ({gap.at_least:.3g} to {gap.at_most:.3g})"
    proof = f"The distance of the measured spectra, and in brackets the ends between which the true one lies. {ENDS}"
    return Number(f"W₁ to {other.name}" if several else "W₁", text, proof, "W₁", "how far eigenvalues move on average")


def _analysed(entries: Sequence[Entry]) -> Section:
    facts, proof = {entry.name: _fact(entry) for entry in entries}, "Read from the records, or from the files named."
    return Section("What was analysed", facts=facts, certificate=proof, own_names=True)


def _fact(entry: Entry) -> str:
    size = f"{entry.spectrum.size:,} eigenvalues"
    if entry.record is None:
        return size
    config = entry.record.config
    return f"{size} of the {matrix_of(entry.record)}, {config['num_examples']:,} examples"


def _spectra(entries: Sequence[Entry]) -> Section:
    lines = {entry.name: _lines(entry) for entry in entries}
    words = ["All curves share one width and one axis, so none is smoother than another merely because of its width."]
    proof = bounds({name: own.spectrum for name, own in lines.items()})
    charts = [density("Spectra on common axes", lines)]
    return Section("Density", words, charts=charts, certificate=proof, own_names=True)


def _lines(entry: Entry) -> Lines:
    """The spectrum of an entry, with its eigenvalues if a whole record is compared."""
    whole = entry.record is not None and entry.record.scalars["num_parameters"] == entry.spectrum.size
    return lines_of(entry.record) if whole and entry.record is not None else Lines(entry.spectrum)


def _log_spectra(entries: Sequence[Entry]) -> Section:
    charts = [log_density("Log spectra on common axes", {entry.name: _lines(entry) for entry in entries})]
    proof = bounds({entry.name: entry.spectrum for entry in entries})
    return Section("Log spectrum", charts=charts, certificate=proof, own_names=True)


def _changes(first: Entry, found: Sequence[tuple[Entry, list[Change], Distance]]) -> Section:
    tables = [Table(f"From {first.name} to {other.name}", columns_of(own)) for other, own, _ in found]
    proof = (
        "Noise: for eigenvalues the sum of both residuals; for estimates twice the root of the sum of both squared "
        "standard errors."
    )
    return Section("What changed", [NOISE], tables=tables, certificate=proof)


def columns_of(found: Sequence[Change]) -> dict[str, list[str]]:
    """The changes as columns of text, for a page or a terminal."""
    return {
        "number": [change.quantity for change in found],
        "before": [_text(change.before) for change in found],
        "after": [_text(change.after) for change in found],
        "difference": [_with_noise(change)[0] for change in found],
        "noise": [_with_noise(change)[1] for change in found],
        "verdict": [change.verdict for change in found],
    }


def _with_noise(change: Change) -> tuple[str, str]:
    """The difference and its noise, in as few digits as agree with the verdict."""
    if change.noise is None:
        return _difference(change), "unknown"
    pairs = [
        (_difference(change, more), f"{change.noise:.{digits}g}")
        for more in range(DIGITS)
        for digits in range(1, DIGITS + 1)
    ]
    fitting = ((d, n) for d, n in pairs if (abs(float(d)) > float(n)) == (change.verdict == "changed"))
    difference, noise = next(fitting, pairs[0])
    return difference, f"{float(noise):.0f}" if "e+0" in noise and float(noise) < 1e6 else noise  # 60, not 6e+01


def _difference(change: Change, more: int = 0) -> str:
    """The difference with its sign, to one digit more than its noise reaches, and `more` than that."""
    if not change.noise:
        return f"{change.difference:+.4g}"
    place = 1 + more - math.floor(math.log10(change.noise))
    rounded = round(change.difference, place)
    if not rounded:
        return "0"
    digits = math.floor(math.log10(abs(rounded))) + place + 1
    text = f"{rounded:+.{min(max(digits, 1), DIGITS)}g}"
    return f"{rounded:+.0f}" if "e+0" in text else text


def _text(measured: Measured, digits: int = DIGITS) -> str:
    """A number to the digit that its standard error reaches; or with its bound, unless that is rounding alone."""
    if measured.error and not measured.is_bound:
        return value_with_error(measured.value, measured.error)
    rounding = measured.error is None or measured.error <= 2e-5 * abs(measured.value)
    value = f"{measured.value:.{digits}g}"
    return value if rounding else f"{value} ± {measured.error:.1g}"


def _distances(entries: Sequence[Entry]) -> Section:
    pairs = [(a, b) for i, a in enumerate(entries) for b in entries[i + 1 :]]
    gaps = [distance(a, b) for a, b in pairs]
    columns = {
        "pair": [f"{a.name}, {b.name}" for a, b in pairs],
        "W₁": [f"{gap.value:.4g}" for gap in gaps],
        "at least": [f"{gap.at_least:.3g}" for gap in gaps],
        "at most": [f"{gap.at_most:.3g}" for gap in gaps],
        "verdict": [gap.verdict for gap in gaps],
    }
    return Section("Distances", tables=[Table("How far eigenvalues move on average", columns)], certificate=ENDS)
