"""The source of ritz as a syntax tree: which modules there are, what they import, what they call."""

import ast
import functools
from pathlib import Path

import pytest

import ritz

SOURCE = Path(ritz.__file__).parent
ROOT = SOURCE.parents[1]


def modules(folders=None):
    """Every module as its path in the house, the parameter of a test that asks for its `code`."""
    for parts in every_path():
        if folders is None or parts[0] in folders:
            yield pytest.param(parts, id="/".join(parts))


def every_path():
    return [path.relative_to(SOURCE).with_suffix("").parts for path in sorted(SOURCE.rglob("*.py"))]


@functools.cache
def syntax(path):
    """All of a file, parsed once; nobody may change it."""
    return ast.parse(path.read_text())


@functools.cache
def code(parts):
    return running(ast.parse(SOURCE.joinpath(*parts).with_suffix(".py").read_text()))


def running(tree):
    """The code without what is imported for the type checker alone, which binds nobody."""

    class Pruned(ast.NodeTransformer):
        def visit_If(self, node):
            guarded = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return node.orelse if guarded else self.generic_visit(node)

    return Pruned().visit(tree)


def imports(parts, tree, order):
    """(path, name) of everything of ours that a module imports, anywhere in it: ("risk", "batches"), "Batch".

    A name with an underscore that it reaches for through an imported module counts, too.
    """
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            start = ("ritz", *parts[:-1])[: len(parts) - node.level + 1] if node.level else ()
            path = (*start, *(node.module.split(".") if node.module else ()))
            for alias in node.names if path[0] == "ritz" else ():
                is_module = alias.name in order.get(".".join(path[1:]) or "ritz", ())
                other = (*path[1:], alias.name) if is_module else path[1:]
                modules |= {alias.asname or alias.name: other} if is_module else {}
                yield other, "" if is_module else alias.name
        elif isinstance(node, ast.Import):
            yield from ((tuple(a.name.split(".")[1:]), "") for a in node.names if a.name.startswith("ritz."))
    for node in ast.walk(tree):
        reached = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
        if reached and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield modules[node.value.id], node.attr


def packages(tree):
    """The packages of others that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def calls(tree):
    """Called names as written: `print`, `np.save`, `torch.manual_seed`."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def subject(*parts):
    """The first sentence of the docstring of a module or a folder."""
    path = SOURCE.joinpath(*parts)
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    return (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ")


every_module = pytest.mark.parametrize("parts", list(modules()))
