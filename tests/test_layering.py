"""Who may import whom: house.txt has the order, and `python -m tests.house_map` draws it into CONTRIBUTING.md."""

import ast
import re

from tests.house_map import ORDER, house_map
from tests.source import ROOT, SOURCE, code, every_module, imports, syntax


def above(mine, other):
    """Whether a module may import another: where their paths part, its own branch stands later."""
    for depth, (a, b) in enumerate(zip(mine, other, strict=False)):
        if a != b:
            order = ORDER[".".join(mine[:depth]) or "ritz"]
            return a == "__init__" or order.index(a) > order.index(b)
    return True


def test_the_house_is_as_it_is_written():
    folders = {path.parent for path in SOURCE.rglob("__init__.py")}
    for folder in folders:
        name = ".".join(folder.relative_to(SOURCE).parts) or "ritz"
        inside = {p.stem for p in folder.glob("*.py")} | {p.name for p in folder.iterdir() if p in folders}
        assert inside - {"__init__"} == set(ORDER[name]), name
    assert len(folders) == len(ORDER) and len([path for path in SOURCE.iterdir() if path.is_file()]) <= 8


@every_module
def test_imports_go_one_way(parts):
    for other, name in imports(parts, code(parts), ORDER):
        assert other, f"{name} has a home of its own: the names of `ritz` itself are for users"
        assert above(parts, other), f"{'.'.join(parts)} must not import {'.'.join(other)}"
        assert not name.startswith("_") or other[0] == parts[0], f"{name} is private to {'.'.join(other)}"


def test_contributing_shows_this_map():
    assert house_map(ORDER) in (ROOT / "CONTRIBUTING.md").read_text(), "python -m tests.house_map draws it anew"


def test_contributing_names_places_that_exist():
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where things belong")[2].partition("\n## ")[0]
    places = [place for row in table.splitlines() for place in re.findall(r"`([\w/]+(?:/|\.py))`", row)]
    known = [*SOURCE.rglob("*"), *ROOT.glob("*"), *(ROOT / "docs").glob("*")]
    ends = {f"/{path.relative_to(ROOT)}{'/' * path.is_dir()}" for path in known}
    lost = [place for place in places if not any(end.endswith(f"/{place}") for end in ends)]
    assert len(places) > 20 and lost == []


def test_guides_to_folders_name_modules_that_exist():
    guided = 0
    for folder, modules in ORDER.items():
        path = SOURCE.joinpath(*folder.split(".")[folder == "ritz" :], "__init__.py")
        guide = "".join(line for line in path.read_text().splitlines() if line.startswith("# "))
        named = set(re.findall(r"`(\w+)`", guide))
        guided += bool(named)
        assert named <= {*modules}, folder
    assert guided >= 3


def test_test_modules_import_nothing_from_one_another():
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(syntax(path)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            found |= {(path.name, name) for name in names if re.search(r"(^|\.)test_\w+$", name)}
    assert not found, "what they share stands in a module beside them"


def test_the_rules_can_say_no():
    code = "from ..cli import app\nif x:\n    from ritz.lab import data\n    data._private\nimport ritz.engine"
    seen = set(imports(("risk", "precision"), ast.parse(code), ORDER))
    assert seen == {(("cli",), "app"), (("lab", "data"), ""), (("lab", "data"), "_private"), (("engine",), "")}
    assert not any(above(("risk", "precision"), other) for other, _ in seen)
    assert above(("engine", "product"), ("engine", "paths")) and above(("engine", "paths"), ("risk", "risk"))
