"""The examples of the documentation: they run, and everything public has one."""

import ast
import doctest
import importlib
import inspect
import re

import pytest
import torch

import ritz
from tests.faces import FACES, public
from tests.source import ROOT, SOURCE, syntax


def docstrings(tree, name):
    """(name, docstring) of a module and of everything defined in it, read from its source: decorators hide nothing."""
    if (text := ast.get_docstring(tree, clean=True)) is not None:
        yield name, text
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from docstrings(node, f"{name}.{node.name}")


def examples():
    """Every docstring of ritz with an example, as parameters of a test."""
    for path in (path for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text()):
        module = ".".join(("ritz", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for name, text in docstrings(syntax(path), module):
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


@pytest.mark.parametrize("face", FACES)
def test_everything_public_has_an_example(face):
    names = public(importlib.import_module(f"ritz.{face}".rstrip(".")))
    code = {name: value for name, value in names.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert code and not {name for name, value in code.items() if ">>>" not in (value.__doc__ or "")}


WITHOUT_FILES = {"mnist", "fashion_mnist", "cifar10", "cifar100", "tiny_shakespeare", "gpt2"}  # shown, and not run


def test_only_examples_that_need_a_file_are_not_run():
    shown = {param.id.split(".")[-1] for param in examples() if "+SKIP" in param.values[1]}
    assert shown == WITHOUT_FILES


def test_the_python_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "products" in capsys.readouterr().out


def test_the_training_loop_of_the_examples_follows_the_sharpness(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import train

    with torch.random.fork_rng():
        sharpness = train.main(num_epochs=3)
    assert len(sharpness) == 3 and min(sharpness) > 0 and "epoch  3" in capsys.readouterr().out
