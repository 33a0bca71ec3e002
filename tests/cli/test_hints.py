"""Every command that ritz prints or the documents show is one that it understands."""

import ast
import re
import shlex

import pytest
import typer

from ritz.cli.commands import app
from ritz.papers.frame.registry import selection
from ritz.papers.frame.results import order as order_of
from ritz.record import Record
from ritz.report.spectra import command
from tests.documents import PAGES
from tests.source import ROOT, SOURCE, syntax

GROUP = typer.main.get_command(app)
COMMAND = re.compile(rf"\britz ({'|'.join(GROUP.commands)})\b([^,;`\n#|]*)")
ORDERS = r"^(?: {4,}|!)(ritz [^#\n]*)|`(ritz [^`\n]*)`"  # in a block of code, or between backticks
MADE_UP = {"1", "author2026.fig5"}  # a place that is filled later; the figure that the how-to writes


def filled(node):
    """The text of a string, with 1 in every place that is filled when it is printed."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "1" for part in node.values)
    return node.value


def strings(tree):
    """All strings of a module but those that are parts of others."""
    nodes = [*ast.walk(tree)]
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in nodes:
        plain = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
        if plain or isinstance(node, ast.JoinedStr):
            yield filled(node)


def printed():
    """What stands behind a colon, between backticks or on a line of its own; bare names of commands are mentions."""
    for path in (path for path in sorted(SOURCE.rglob("*.py")) if "ritz " in path.read_text()):
        for text in strings(syntax(path)):
            for match in COMMAND.finditer(text):
                before, order = text[: match.start()], match.group(0).strip().rstrip(".:")
                if not before.strip() or before.rstrip(" ").endswith((":", "`", "\n", "then")):
                    yield path.relative_to(SOURCE).as_posix(), order


def documented():
    for path in (ROOT / "README.md", *(page for page in PAGES if page.name != "benchmarks.md")):  # times of wrong ones
        for groups in re.findall(ORDERS, path.read_text(), re.MULTILINE):
            for order in "".join(groups).split("&&"):
                yield path.relative_to(ROOT).as_posix(), order.strip()


def understood(order):
    """Parse a command without running it; an option of `ritz` itself is one that it has, and acts at once."""
    name, *arguments = shlex.split(order)[1:]
    if name.startswith("-"):
        assert not arguments and name in {option for one in GROUP.params for option in one.opts}
        return GROUP.make_context("ritz", [], resilient_parsing=True)
    return GROUP.commands[name].make_context(name, arguments, resilient_parsing=not arguments)


PRINTED, DOCUMENTED = sorted({*printed()}), sorted({*documented()})


def test_commands_and_documents_hold_many_hints():
    assert len(PRINTED) > 30 and len(DOCUMENTED) > 15


@pytest.mark.parametrize("place, order", [*PRINTED, *DOCUMENTED])
def test_commands_in_hints_are_understood(place, order):
    options = understood(order).params
    ids = options.get("ids") or []
    if ids and "setting" in options and not MADE_UP & {*ids}:
        for figure in selection(ids):
            assert order_of(figure, options["preset"], options["setting"], "results").config


@pytest.mark.parametrize("order", ["ritz spectrum mine.py:risk --pre-layer", "ritz new mine.py other.py"])
def test_commands_with_unknown_options_are_not_understood(order):
    with pytest.raises(Exception, match=r"No such option|unexpected extra argument"):
        understood(order)


def test_the_commands_of_a_page_name_layers_and_odd_files():
    config = {
        "operator": "hessian",
        "num_eigenpairs": 3,
        "num_probes": 2,
        "num_steps": 5,
        "seed": 0,
        "per_layer": False,
    }
    config |= {"dtype": "float32", "factory": "my net.py:risk", "examples": None, "layers": ["0.*", "body"]}
    order = command(Record("mine", "analysis", config, {}, {}))
    options = understood(order).params
    assert options["target"] == "my net.py:risk" and list(options["layer"]) == ["0.*", "body"]
