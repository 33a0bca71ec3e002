"""Records that were changed by hand: a wrong kind anywhere is refused in ritz's words, and no page says None."""

import copy
import itertools
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from ritz import Risk, report
from ritz.analysis import spectrum
from ritz.analysis.comparison import Entry
from ritz.analysis.schemas import check_entries
from ritz.errors import ArgumentError, RitzError
from ritz.record import Claim, Record

PARTS = ("config", "scalars", "provenance")
WRONG = ("text", [], {}, None, True, -1, 1.5, [1], {"a": 1}, {"float": "nan"})


def paths(value, before=()):
    """Where entries stand, two of every list."""
    if before:
        yield before
    for name in value if isinstance(value, dict) else range(min(2, len(value))) if isinstance(value, list) else ():
        yield from paths(value[name], (*before, name))


def changed(record, path, value):
    """The record with another value at one place."""
    parts = {part: copy.deepcopy(getattr(record.detached(), part)) for part in PARTS}
    *outer, last = path
    inner = parts
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return replace(record, **parts)


@pytest.fixture(scope="module")
def linear():
    """A spectrum that theory knows, and one that was measured with one probe."""
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double(), torch.ones(20, 2).double()
    return spectrum.run(Risk(model, nn.MSELoss(), (x, y)), spectrum.Settings(num_eigenpairs=2, num_probes=1))


@pytest.mark.parametrize("kind", ["spectrum", "classes", "theory"])
def test_an_entry_of_another_kind_is_refused_and_never_shown(kind, records, linear, tmp_path):
    record = {"spectrum": records[0], "classes": records[-1], "theory": linear}[kind]
    parts = {part: dict(getattr(record.detached(), part)) for part in PARTS}
    places, accepted = [path for path in paths(parts) if len(path) > 1], []
    for path, value in zip(places, itertools.cycle(WRONG), strict=False):
        other = changed(record, path, value)
        try:
            check_entries(other)
        except ArgumentError as error:
            assert f"for {'.'.join(path[:2])}" in str(error)
        else:
            accepted.append((path, value, other))
    assert len(accepted) < 0.4 * len(places)
    for path, value, other in accepted[:: max(1, len(accepted) // 8)]:
        try:
            page = report.write([other], tmp_path / "page.html").read_text()
        except RitzError:
            continue
        words = re.sub("<[^>]*>", " ", re.sub("<(script|pre).*?</\\1>", "", page, flags=re.S))
        assert not re.search(r"\b(None|nan|True|undefined)\b", words), (path, value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("scalars", "loss"), "0.5", "'0.5' for scalars.loss.*must be a number"),
        (("scalars", "layers"), [], "for scalars.layers.*entries by name"),
        (("scalars", "layers", "head", "range"), [1.0], "scalars.layers.head.range.*two numbers"),
        (("config", "num_probes"), None, "None for config.num_probes.*a count"),
        (("scalars", "trace"), {"float": "nan"}, "scalars.trace.*a number"),
    ],
)
def test_a_refusal_names_the_entry_and_what_it_must_be(path, value, words, records, tmp_path):
    record = changed(records[0], path, value)
    for work in (lambda: report.write([record], tmp_path / "page.html"), lambda: Entry.of(record)):
        with pytest.raises(ArgumentError, match=re.compile(words, re.S)):
            work()


def test_entries_that_do_not_fit_their_arrays_are_refused(linear, records, tmp_path):
    shorter = changed(linear, ("scalars", "closed_form", "lines"), ["one"])
    unknown = changed(records[-1], ("scalars", "shares", 0), "elsewhere")
    for record in (shorter, unknown):
        with pytest.raises(ArgumentError, match="does not fit together"):
            report.write([record], tmp_path / "page.html")


def test_a_setting_that_a_figure_leaves_open_is_a_dash(tmp_path):
    claim = Claim("Lines are straight", "Nobody 2000", "Fig. 1", "equal", 1.0, 1.0, None, "yes")
    record = Record("nobody2000.fig1", "smoke", {"width": None}, {}, {}, (claim,))
    page = report.write([record], tmp_path / "page.html").read_text()
    assert "None" not in page
    assert "Of 1 statement of the paper, 1 holds" in re.sub("<a[^>]*>|</a>", "", page)
