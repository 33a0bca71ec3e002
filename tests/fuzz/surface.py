"""Every public function of ritz: those of its folders, its classes, and the methods of these."""

import inspect
import types
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from ritz.arguments import resolved

FACES = ("", "operators", "risk", "spectrum", "record", "factored", "testing")
NOT_CALLED = {
    "Spectrum.of_state": "what `load` calls, which says what is wrong with a file",
    "Eigenpairs.of_state": "what `load` calls, which says what is wrong with a file",
    "ritz.errors": "the refusals themselves",
    "ritz.lab.workers": "protocols that a sweep calls; it is called itself",
    "ritz.lab.data.cifar10": "fetches a file",
    "ritz.lab.data.cifar100": "fetches a file",
    "ritz.lab.data.fashion_mnist": "fetches a file",
    "ritz.lab.data.mnist": "fetches a file",
    "ritz.lab.data.tiny_shakespeare": "fetches a file",
    "ritz.lab.sweeps.InProcess": "a protocol that a sweep calls",
    "ritz.lab.sweeps.Processes": "a protocol that a sweep calls, in processes of its own",
    "ritz.lab.sweeps.Ray": "a protocol that a sweep calls, on a cluster",
    "ritz.lab.training.mean_loss": "calls the user's loss with what it is given",
    "ritz.lab.training.Pause": "is made by training alone",
    "ritz.plot.ShownFigure": "a class of matplotlib",
}
NO_METHODS = (nn.Module,)
PROTOCOLS = (  # what training and the engine call, with tensors of their own
    *("Loss", "Classification", "CrossEntropy", "SquaredError", "BinaryCrossEntropy"),
    *("Schedule", "Constant", "Plateau", "Annealing", "Cosine"),
)
OF_THE_ENGINE = {
    "Risk": (
        "outputs",
        "leaves",
        "unflatten",
        "flatten",
        "sum_over_ranks",
        "numerics",
        "has_terms",
        "check_terms",
        "in_double",
    ),
}


@dataclass(frozen=True)
class Public:
    """A function with the hints of its parameters; of a method, the class whose instance comes first."""

    name: str
    function: Any
    hints: dict
    defaults: dict
    returns: Any
    owner: Any = None

    def __str__(self):
        return self.name


def surface():
    """Every public function by its name, in a fixed order."""
    every = {}
    for face in FACES:
        module = import_module(f"ritz.{face}".rstrip("."))
        _walk(module.__name__, module, every, seen=set())
    unique = {}
    for name in sorted(every, key=lambda name: (name.count("."), name)):
        unique.setdefault(every[name].function, every[name])
    return sorted(unique.values(), key=str)


def _walk(name, thing, every, seen):
    if name in NOT_CALLED or id(thing) in seen:
        return
    if isinstance(thing, types.ModuleType):
        seen.add(id(thing))
        own = [n for n, v in vars(thing).items() if getattr(v, "__module__", "") == thing.__name__ and n[0] != "_"]
        for inner in getattr(thing, "__all__", own):
            _walk(f"{name}.{inner}", getattr(thing, inner), every, seen)
    elif inspect.isfunction(thing):
        every[name] = _public(name, thing)
    elif inspect.isclass(thing) and not issubclass(thing, (BaseException, tuple)) and not _is_abstract(thing):
        every[name] = _public(name, thing)
        _methods(name, thing, every)


def _is_abstract(kind):
    return inspect.isabstract(kind) or getattr(kind, "_is_protocol", False) or hasattr(kind, "__members__")


def _methods(name, kind, every):
    if issubclass(kind, NO_METHODS) or kind.__name__ in PROTOCOLS:
        return
    for method, value in vars(kind).items():
        left_out = f"{kind.__name__}.{method}" in NOT_CALLED or method in OF_THE_ENGINE.get(kind.__name__, ())
        if method.startswith("_") or left_out:
            continue
        if isinstance(value, classmethod | staticmethod):
            every[f"{name}.{method}"] = _public(f"{name}.{method}", getattr(kind, method))
        elif inspect.isfunction(value):
            every[f"{name}.{method}"] = _public(f"{name}.{method}", value, owner=kind)


def _public(name, function, owner=None):
    inner = inspect.unwrap(function.__init__ if inspect.isclass(function) else getattr(function, "__func__", function))
    hints = {name: resolved(hint, inner) for name, hint in inner.__annotations__.items()}
    returns = function if inspect.isclass(function) else hints.get("return", Any)
    skipped = 1 if inspect.isclass(function) or owner is not None or inspect.ismethod(function) else 0
    parameters = list(inspect.signature(inner).parameters.values())[skipped:]
    single = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name[0] != "_"]
    defaults = {p.name: p.default for p in single if p.default is not p.empty}
    return Public(name, function, {p.name: hints.get(p.name, Any) for p in single}, defaults, returns, owner)
