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
            for alias, other, name in imported_names(parts, node, order):
                modules |= {} if name else {alias: other}
                yield other, name
        elif isinstance(node, ast.Import):
            yield from ((tuple(a.name.split(".")[1:]), "") for a in node.names if a.name.startswith("ritz."))
    yield from private_names(tree, modules)


def imported_names(parts, node, order):
    """(name here, path, name there) of what one import takes from ours; of a module, the name there is empty."""
    start = ("ritz", *parts[:-1])[: len(parts) - node.level + 1] if node.level else ()
    house, *path = (*start, *(node.module.split(".") if node.module else ()))
    for alias in node.names if house == "ritz" else ():
        is_module = alias.name in order.get(".".join(path) or "ritz", ())
        yield (
            alias.asname or alias.name,
            (*path, alias.name) if is_module else (*path,),
            "" if is_module else alias.name,
        )


def private_names(tree, modules):
    """(path, name) of the private names that are read as attributes of these modules."""
    for node in ast.walk(tree):
        is_private = isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if is_private and isinstance(node.value, ast.Name) and node.value.id in modules:
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
