"""The examples of the documentation: they run, and everything public has one."""

import ast
import doctest
import importlib
import inspect
import re

import pytest
import torch

import ritz
from tests.source import ROOT, SOURCE


def docstrings(tree, name):
    """(name, docstring) of a module and of everything defined in it, read from its source: decorators hide nothing."""
    if (text := ast.get_docstring(tree, clean=True)) is not None:
        yield name, text
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from docstrings(node, f"{name}.{node.name}")


def examples():
    """Every docstring of ritz with an example, as parameters of a test."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("ritz", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for name, text in docstrings(ast.parse(path.read_text()), module):
            if ">>>" in text:
                yield pytest.param(module, text, id=name.removeprefix("ritz."))


@pytest.mark.parametrize("module, text", list(examples()))
def test_the_example_of_a_docstring_runs(module, text, request):
    names = dict(vars(importlib.import_module(module)), torch=torch, ritz=ritz)
    test = doctest.DocTestParser().get_doctest(text, names, request.node.name, None, 0)
    said = []
    with torch.random.fork_rng():
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert test.examples and not result.failed, "".join(said)


def test_everything_public_has_an_example():
    public = {name: getattr(ritz, name) for name in ritz.__all__}
    code = {name for name, value in public.items() if not inspect.ismodule(value)}
    assert not {name for name in code if ">>>" not in (inspect.getdoc(public[name]) or "")}


LAB = ("data", "models", "ensemble", "training", "init", "sweeps", "workers")
WITHOUT_FILES = {"mnist", "fashion_mnist", "cifar10", "cifar100", "tiny_shakespeare", "gpt2"}  # shown, and not run


@pytest.mark.parametrize("name", LAB)
def test_everything_public_of_the_lab_has_an_example(name):
    module = importlib.import_module(f"ritz.lab.{name}")
    public = {name: getattr(module, name) for name in module.__all__}
    code = {name for name, value in public.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert code and not {name for name in code if ">>>" not in (inspect.getdoc(public[name]) or "")}


def test_only_examples_that_need_a_file_are_not_run():
    shown = {param.id.split(".")[-1] for param in examples() if "+SKIP" in param.values[1]}
    assert shown == WITHOUT_FILES


def test_the_python_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "products" in capsys.readouterr().out
