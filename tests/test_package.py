"""What a user meets first: the names of the package, and the files its documents point to."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest
import torch

import ritz
from tests.source import ROOT, SOURCE

FOLDERS = sorted(path.parent.relative_to(SOURCE).parts for path in SOURCE.rglob("__init__.py"))


def test_every_public_name_is_there():
    assert all(hasattr(ritz, name) for name in ritz.__all__) and {*ritz.__all__} <= {*dir(ritz)}
    assert len(ritz.__all__) == len({*ritz.__all__}) <= 45


def test_every_submodule_is_there():
    inside = {module.name for module in pkgutil.iter_modules(ritz.__path__)} - {"__main__"}
    assert inside <= {*dir(ritz)} and all(inspect.ismodule(getattr(ritz, name)) for name in inside)


def test_the_type_checker_and_python_find_the_public_names_in_the_same_places():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (guard,) = [node for node in tree.body if isinstance(node, ast.If)]
    homes = {node.module: {alias.name for alias in node.names} for node in guard.body}
    modules = homes.pop(None)
    assert homes == {home: {*names.split()} for home, names in ritz._HOMES.items()}
    assert modules.union(*homes.values()) == {*ritz.__all__}


@pytest.mark.parametrize("parts", FOLDERS, ids=".".join)
def test_no_function_shadows_a_module(parts):
    name = ".".join(("ritz", *parts))
    package = importlib.import_module(name)
    inside = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name != "__main__"]
    modules = {inner: importlib.import_module(f"{name}.{inner}") for inner in inside}
    assert all(getattr(package, inner) is module for inner, module in modules.items())


@pytest.mark.parametrize("parts", FOLDERS, ids=".".join)
def test_every_name_that_a_folder_offers_is_there(parts):
    package = importlib.import_module(".".join(("ritz", *parts)))
    assert all(hasattr(package, name) for name in getattr(package, "__all__", ()))


def test_parts_come_on_demand_and_unknown_names_are_refused():
    """In a process of its own: here, other tests have imported them."""
    code = (
        "import sys, ritz\n"
        "def absent(*names): assert not [name for name in names if name in sys.modules], names\n"
        "absent('torch', 'numpy', 'scipy', 'matplotlib', 'rich', 'typer', 'ritz.lab')\n"
        "ritz.Risk, ritz.hessian, ritz.eigenpairs, ritz.spectral_density, ritz.attribution, ritz.kfac, ritz.Record\n"
        "ritz.theory, ritz.solvers, ritz.classes\n"
        "absent('matplotlib', 'rich', 'typer', 'ritz.lab', 'ritz.papers', 'ritz.cli')\n"
        "assert 'lab' in dir(ritz) and 'data' in dir(ritz.lab)\n"
        "assert ritz.lab.data.digits and ritz.lab.training.HALVING and ritz.analysis.classes.run\n"
        "assert not hasattr(ritz, 'labs') and not hasattr(ritz.lab, 'dates')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


RESULTS = {
    "risk": lambda risk: risk,
    "its batches": lambda risk: [risk.batches, *risk.batches],
    "operator": ritz.hessian,
    "eigenpairs": lambda risk: ritz.eigenpairs(ritz.hessian(risk), 3),
    "spectrum": lambda risk: ritz.spectral_density(ritz.hessian(risk), num_steps=4, num_probes=2),
    "Lanczos": lambda risk: ritz.lanczos(ritz.hessian(risk), torch.ones(risk.size, 2), 3, keep_basis=True),
    "trace": lambda risk: ritz.trace(ritz.hessian(risk), num_products=10),
    "diagonal": lambda risk: ritz.diagonal(ritz.hessian(risk), num_products=10),
    "solution": lambda risk: ritz.solve(ritz.gauss_newton(risk), risk.theta, damping=1.0),
    "Kronecker factors": lambda risk: [ritz.kfac(risk), *ritz.kfac(risk).layers.values()],
    "decomposition": ritz.class_decomposition,
    "attribution": ritz.attribution,
    "features": ritz.classes.features,
    "errors": ritz.classes.backpropagated_errors,
    "weights": lambda risk: ritz.classes.weights(risk, weight_decay=0.1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_prints_what_it_is_and_not_its_tensors(name):
    x, model = torch.arange(36.0).view(12, 3).sin(), torch.nn.Sequential(torch.nn.Linear(3, 3))
    text = repr(RESULTS[name](ritz.Risk(model, torch.nn.CrossEntropyLoss(), (x, torch.arange(12) % 3))))
    assert "tensor(" not in text and len(text) < 1200


def test_the_readme_is_one_screen():
    text = (ROOT / "README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| **")]
    assert len(text.encode()) <= 6_000 and text.count("![") == 1 and 5 <= len(rows) <= 10
