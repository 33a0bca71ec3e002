"""Who may import whom, and who may touch the world: the design's house rules."""

import ast
from pathlib import Path

import pytest

import ritz

SOURCE = Path(ritz.__file__).parent
ROOT = SOURCE.parents[1]

# Every folder with its files, low to high: what stands later imports what stands earlier, never the other way round.
HOUSE = """
ritz: errors progress record spectrum risk engine operators solvers layers factored classes theory plot testing checks
      analysis lab papers integrations cli __main__
record: origin records
risk: losses parameters precision batches risk class_terms
risk.losses: closed_form by_autograd
engine: rules paths trial product
engine.rules: bilinear attention mode
solvers: basis eigen krylov estimates
layers: capture linear rows
factored: moments gram kronecker
classes: moments columns means spread output_space decomposition layer_structure knockouts attributions
theory: closed_form matrices pairs laws linear aligned compression two_layer multi attention ccm
plot: spectra
checks: check linear2026 papyan2020 singh2026 singh2026_attention
analysis: spectrum classes
analysis.classes: layers lines structure factors pictures
lab: data init models train ensemble workers sweep
lab.data: examples sources files transforms synthetic
lab.models: build mlp attention convolutional gpt pretrained
lab.train: schedules rates pauses networks linear
lab.ensemble: weights stack lanczos curvature training
papers: frame linear2026 singh2026 singh2024
papers.frame: statistics pictures claims figure certified overrides results registry
papers.linear2026: data networks setting judged pictures closed_form along_training imbalance
papers.singh2026: ranges regression correlations scale deep pairs relu evolution edge readings stability attention
      attention_sinks pretraining gpt gpt_sinks
papers.singh2024: poster
integrations: curvlinops
cli: tables target digits classes papers verification
"""
ORDER = {line.split(":")[0]: line.split(":")[1].split() for line in HOUSE.replace("\n      ", " ").strip().splitlines()}
DRAWS = {"plot", "papers"}
FILES = {"open", "save", "savez", "savetxt", "tofile", "write_text", "write_bytes", "read_text", "read_bytes"}
OURS = {"self.save", "record.save", "record.write_arrays", "record.read_arrays"}
GLOBAL = {"print", "torch.manual_seed", "torch.seed", "torch.set_rng_state", "random.seed", "np.random.seed"}


def modules():
    """Every module as its path in the house, with its code; what is imported for the type checker binds nobody."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield pytest.param(parts, running(ast.parse(path.read_text())), id="/".join(parts))


def running(tree):
    class Pruned(ast.NodeTransformer):
        def visit_If(self, node):
            guarded = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return node.orelse if guarded else self.generic_visit(node)

    return Pruned().visit(tree)


def imports(parts, tree):
    """(path, name) of everything of ours that a module imports, anywhere in it: ("risk", "batches"), "Batch"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            start = ("ritz", *parts[:-1])[: len(parts) - node.level + 1] if node.level else ()
            path = (*start, *(node.module.split(".") if node.module else ()))
            if path[0] == "ritz":
                yield from (place(path[1:], alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (place(tuple(a.name.split(".")[1:]), "") for a in node.names if a.name.startswith("ritz."))


def place(path, name):
    """A name that is a module belongs to the path."""
    inside = ORDER.get(".".join(path) or "ritz", ())
    return ((*path, name), "") if name in inside else (path, name)


def above(mine, other):
    """Whether a module may import another: where their paths part, its own branch stands later."""
    for depth, (a, b) in enumerate(zip(mine, other, strict=False)):
        if a != b:
            order = ORDER[".".join(mine[:depth]) or "ritz"]
            return a == "__init__" or order.index(a) > order.index(b)
    return True


every_module = pytest.mark.parametrize("parts, tree", list(modules()))
below_lab = ORDER["ritz"][: ORDER["ritz"].index("lab")]
every_module_below_lab = pytest.mark.parametrize("parts, tree", [p for p in modules() if p.values[0][0] in below_lab])


def test_the_house_is_as_it_is_written_here():
    folders = {path.parent for path in SOURCE.rglob("__init__.py")}
    for folder in folders:
        name = ".".join(folder.relative_to(SOURCE).parts) or "ritz"
        inside = {p.stem for p in folder.glob("*.py")} | {p.name for p in folder.iterdir() if p in folders}
        assert inside - {"__init__"} == set(ORDER[name]), name
    assert len(folders) == len(ORDER)
    assert len([path for path in SOURCE.iterdir() if path.is_file()]) <= 8


@every_module
def test_imports_go_one_way(parts, tree):
    for other, name in imports(parts, tree):
        assert other, f"{name} has a home of its own: the names of `ritz` itself are for users"
        assert above(parts, other), f"{'.'.join(parts)} must not import {'.'.join(other)}"


@every_module
def test_private_names_stay_in_their_folder(parts, tree):
    for other, name in imports(parts, tree):
        assert not name.startswith("_") or other[0] == parts[0], f"{name} is private to {'.'.join(other)}"


@every_module
def test_theory_knows_only_spectra(parts, tree):
    if parts[0] == "theory":
        assert {other[0] for other, _ in imports(parts, tree)} <= {"theory", "spectrum", "errors"}


def packages(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


@every_module
def test_only_pictures_import_matplotlib(parts, tree):
    assert parts[0] in DRAWS or "matplotlib" not in set(packages(tree))


def calls(tree):
    """Called names as written: `print`, `np.save`, `torch.manual_seed`."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@every_module_below_lab
def test_below_the_lab_only_record_touches_files(parts, tree):
    assert parts[0] == "record" or not {c for c in calls(tree) if c.split(".")[-1] in FILES} - OURS


@every_module_below_lab
def test_below_the_lab_nothing_prints_seeds_or_reads_the_environment(parts, tree):
    assert not GLOBAL & calls(tree)
    assert "os.environ" not in ast.unparse(tree) and "os.getenv" not in ast.unparse(tree)


def test_the_rules_can_say_no():
    tree = ast.parse(
        "from ..cli import app\nimport matplotlib.pyplot\nprint(1)\ndef f():\n    from ritz.lab import data\n"
        "from .risk import _private\nfrom ..engine.paths import Path"
    )
    seen = set(imports(("risk", "precision"), tree))
    assert seen == {
        (("cli",), "app"),
        (("lab", "data"), ""),
        (("risk", "risk"), "_private"),
        (("engine", "paths"), "Path"),
    }
    assert not any(above(("risk", "precision"), other) for other, _ in seen)
    assert above(("engine", "trial"), ("engine", "paths")) and above(("engine", "paths"), ("risk", "risk"))
    assert "matplotlib" in set(packages(tree)) and "print" in calls(tree)
