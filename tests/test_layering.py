"""Who may import whom, and who may touch the world: the design's house rules."""

import ast
from pathlib import Path

import pytest

import ritz

ROOT = Path(ritz.__file__).parent
RANK = {
    module: rank
    for rank, modules in enumerate(
        [
            {"errors", "attention_rule", "bilinear", "provenance"},
            {"record", "progress"},
            {"losses", "spectrum", "numerics", "rules"},
            {"autodiff", "batches", "selection"},
            {"risk"},
            {"linearizations", "layers", "theory"},
            {"probe", "jacobians", "affine"},
            {"products", "factors"},
            {"operators"},
            {"vectors"},
            {"eigen"},
            {"krylov", "classes", "knockout"},
            {"gram", "kronecker"},
            {"estimates"},
            {"attribution"},
            {"plot", "testing"},
            {"lab", "analysis", "class_analysis", "verify"},
            {"experiments", "integrations"},
            {"cli"},
            {"__main__"},
        ]
    )
    for module in modules
}
DRAWS = {"plot", "experiments"}
TOUCHES_FILES = {"record"}
FILES = {"open", "save", "savez", "savetxt", "tofile", "write_text", "write_bytes", "read_text", "read_bytes"}


def without_type_checking(tree):
    """A module as it runs: what is imported for the type checker alone binds nobody."""

    class Pruned(ast.NodeTransformer):
        def visit_If(self, node):
            guarded = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return node.orelse if guarded else self.generic_visit(node)

    return Pruned().visit(tree)


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if name != "__init__":
            yield pytest.param(name, without_type_checking(ast.parse(path.read_text())), id=str(path.relative_to(ROOT)))


every_module = pytest.mark.parametrize("me, tree", list(modules()))


def below_lab(module):
    return RANK[module] < RANK["lab"]


def imports_of_ours(tree):
    """The top-level modules of ritz that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = (node.module or "").split(".")
            if package[0] == "ritz":
                yield from package[1:2] or [alias.name for alias in node.names]
            elif node.level:
                yield from [package[0]] if package[0] else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ritz."))


def packages(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def calls(tree):
    """Called names as written: `print`, `np.save`, `torch.manual_seed`."""
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@every_module
def test_every_module_has_a_rank(me, tree):
    assert me in RANK


@every_module
def test_modules_import_only_downwards(me, tree):
    for other in imports_of_ours(tree):
        if other in RANK and other != me:
            assert RANK[other] < RANK[me], f"{me} must not import {other}"


@every_module
def test_theory_knows_only_spectra(me, tree):
    if me == "theory":
        assert set(imports_of_ours(tree)) & set(RANK) <= {"theory", "spectrum", "errors"}


@every_module
def test_only_pictures_import_matplotlib(me, tree):
    assert me in DRAWS or "matplotlib" not in set(packages(tree))


@every_module
def test_below_the_lab_only_record_touches_files(me, tree):
    if below_lab(me) and me not in TOUCHES_FILES:
        ours = {"self.save", "record.write_arrays", "record.read_arrays"}
        touched = [call for call in calls(tree) if call.split(".")[-1] in FILES and call not in ours]
        assert not touched


@every_module
def test_below_the_lab_nothing_prints_seeds_or_reads_the_environment(me, tree):
    if below_lab(me):
        forbidden = {"print", "torch.manual_seed", "torch.seed", "torch.set_rng_state", "random.seed", "np.random.seed"}
        assert not forbidden & set(calls(tree))
        text = ast.unparse(tree)
        assert "os.environ" not in text and "os.getenv" not in text


def test_the_rules_can_say_no():
    tree = ast.parse(
        "from .cli import app\nimport matplotlib.pyplot\nprint(1)\ndef f():\n    from ritz.lab import data"
    )
    assert set(imports_of_ours(tree)) == {"cli", "lab"}
    assert set(packages(tree)) == {"matplotlib", "ritz"}
    assert "print" in calls(tree)
