"""The pages of the reference, one for every module that offers names, from their docstrings."""

import importlib
import inspect
import pkgutil
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import ritz

LEFT_OUT = (
    "ritz.cli",
    "ritz.papers",
    "ritz.checks",
    "ritz.__main__",
    "ritz.engine",
    "ritz.progress",
    "ritz.arguments",
    "ritz.foreign_errors",
)  # commands and what they run, and what functions do on their own
SECTIONS = re.compile(r"(Args|Returns|Raises|Yields):$")
CODE = re.compile(r"(`[^`]*`)")


def faces() -> dict[str, list[str]]:
    """Every module that offers names, with these: `ritz` first, then by name."""
    modules = {name: importlib.import_module(name) for name in ["ritz", *_module_names()]}
    inside = [getattr(module, name) for module in modules.values() for name in _offer(module)]
    modules |= {value.__name__: value for value in inside if inspect.ismodule(value)}
    offers = {name: _offer(module) for name, module in modules.items()}
    return {name: names for name, names in offers.items() if names}


@cache
def pages() -> dict[str, str]:
    """The text of every page by its name; a name that several modules offer is described on the first of them."""
    homes = dict[int, str]()  # by the identity of what is described, under which name
    texts = {}
    for module, names in faces().items():
        texts[module] = _page(module, names, homes)
    texts["index"] = _index(sorted(texts))
    return texts


def write(folder: Path) -> None:
    """Write all pages anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in pages().items():
        (folder / f"{name}.md").write_text(text)


def as_text(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make a docstring readable by Sphinx: it is plain text, in which only `code` is marked."""
    lines[:] = list(_readable(lines))
    if what in ("attribute", "property"):  # napoleon takes what stands before a colon in the first line for a type
        lines[:0] = ["..", ""]


def _module_names() -> list[str]:
    found = pkgutil.walk_packages(ritz.__path__, "ritz.")
    names = [module.name for module in found if module.ispkg or module.name.count(".") == 1]
    names += [f"ritz.lab.{name}" for name in ("init", "sweeps", "workers")]
    names += ["ritz.theory.laws", "ritz.integrations.curvlinops"]
    return sorted({n for n in names if not n.startswith(LEFT_OUT) and not any(p.startswith("_") for p in n.split("."))})


def _offer(module: Any) -> list[str]:
    """`__all__`, or what is defined in the module."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [*getattr(module, "__all__", [name for name in own if not name.startswith("_")])]


def _page(module: str, names: list[str], homes: dict[int, str]) -> str:
    """What the module is, a table of its names, and those described that no page before has."""
    rows, texts = [], []
    for name in names:
        value = getattr(importlib.import_module(module), name)
        home = homes.setdefault(id(value), f"{module}.{name}")
        rows.append((_link(home, name, value), summary(value)))
        if home == f"{module}.{name}" and not inspect.ismodule(value):
            texts += ["```{eval-rst}", *_directive(module, name, value), "```", ""]
    first = summary(importlib.import_module(module))
    current = f"```{{eval-rst}}\n.. currentmodule:: {module}\n```"
    return "\n".join([f"# {module}", "", first, "", *_table(rows), "", current, "", *texts])


def _link(home: str, name: str, value: object) -> str:
    if not inspect.ismodule(value):
        return f"{{py:obj}}`{name} <{home}>`"
    return f"[{name}]({value.__name__}.md)" if _offer(value) else name


def summary(value: object) -> str:
    """The first sentence of a docstring, as Markdown; nothing of a constant, whose docstring is that of its type."""
    if not (inspect.ismodule(value) or inspect.isroutine(value) or inspect.isclass(value) or callable(value)):
        return ""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[.?!])\s(?=[A-Z])", paragraph)[0]  # what follows "eq." is no new sentence
    return "".join(p if i % 2 else re.sub(r"([\\*_|<>\[\]])", r"\\\1", p) for i, p in enumerate(CODE.split(first)))


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return ["| name | what it is |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows)]


def _directive(module: str, name: str, value: object) -> list[str]:
    if inspect.isclass(value):
        fields = getattr(value, "_fields", ())  # of a named tuple, whose signature has them
        hidden = ", ".join(["set", *fields])  # `set` is what matplotlib adds
        return [f".. autoclass:: {module}.{name}", "   :members:", f"   :exclude-members: {hidden}"]
    if inspect.isroutine(value) or (callable(value) and hasattr(value, "__wrapped__")):
        return [f".. autofunction:: {module}.{name}"]
    return [f".. py:data:: {module}.{name}", "", f"   ``{str(value)[:200]}``"]


FIRST = """Every public name, from its docstring. The names that most people need are in [ritz](ritz.md).

Some arguments mean the same wherever they occur:

- `num_x`, such as `num_products`: so many x are made. `max_x`: at most so many, as a tolerance may be met before.
- `generator`: the source of random numbers, a `torch.Generator`. Without it, a new one with seed 0 is used: two such
  calls give the same.
- `tolerance`: relative, to the largest |λ| or to the number itself.
- `checkpoint`: a file or folder from which a computation that was killed goes on, to the same bits.
- `dtype`, `device`: as in PyTorch. `gauss_newton=True`: the closed form of G in place of that of H.
- `V`: vectors in columns, n × k, which are multiplied together."""


def _index(modules: list[str]) -> str:
    rows = [(f"[{name}]({name}.md)", summary(importlib.import_module(name))) for name in modules]
    tree = ["```{toctree}", ":maxdepth: 1", ":hidden:", "", *modules, "```", ""]
    return "\n".join(["# Reference", "", FIRST, "", *_table(rows), "", *tree])


def _readable(lines: list[str]):
    in_doctest = in_section = in_block = False
    for i, line in enumerate(lines):
        blank, indented = not line.strip(), line.startswith("    ")
        if blank:
            in_doctest = False
        elif line.lstrip().startswith(">>>"):
            in_doctest = True
        if SECTIONS.match(line):
            in_section = True
        elif not blank and not indented:
            in_section = in_block = False
        if indented and not in_section and not in_doctest and not in_block and i and not lines[i - 1].strip():
            in_block = True
            yield from ("::", "")
        yield line if in_doctest or in_block else _escaped(line)


def _escaped(line: str) -> str:
    parts = CODE.split(line)
    return "".join(p if i % 2 else re.sub(r"([\\*|]|_(?=\W|$))", r"\\\1", p) for i, p in enumerate(parts))
