"""From `FILE.py:FACTORY` or `package.module:factory` to a risk: the user's code meets ours here, and only here."""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..errors import ArgumentError, DataError, FileError, ModelError, RitzError, first_line, listed, nearest_first
from ..record import Record, check_writable
from ..risk import Risk
from ..risk.devices import unusable, usable_device
from ..risk.model import check_model
from .folders import analysis_folder
from .weights import misfit


@dataclass(frozen=True)
class Target:
    """The place of the user's factory: a file or a module, and a name in it."""

    place: str
    factory: str

    @classmethod
    def of(cls, text: str) -> Target:
        """`mine.py:risk` as a target."""
        place, colon, factory = text.rpartition(":")
        if not colon or not place or not factory.isidentifier():
            raise ArgumentError(
                f"{text!r} does not name a factory.",
                "The command needs a function that returns the model to analyse.",
                *(
                    f"Name one of its functions, {text}:{own[0]}: {listed(own, 12)}."
                    for own in [_functions_in(text)]
                    if own
                ),
                "Write FILE.py:FUNCTION, as in mine.py:risk; `ritz new mine.py` writes such a file.",
                "Write package.module:function for a module that Python can import.",
            )
        return cls(place, factory)

    @property
    def is_file(self) -> bool:
        """Whether the place is a Python file rather than a module."""
        return self.place.endswith(".py") or "/" in self.place or "\\" in self.place

    @property
    def name(self) -> str:
        """A name for results, such as `mine-risk`, or `before-mine-risk` for the file in a folder `before`."""
        path = Path(self.place)
        folders = [] if path.is_absolute() else [part for part in path.parent.parts if part != ".."]
        parts = [*folders, path.stem] if self.is_file else self.place.split(".")
        return "-".join([*parts, self.factory])

    @property
    def label(self) -> str:
        """The target as the user named it, without the folders of an absolute path, which are private."""
        place = Path(self.place).name if self.is_file and Path(self.place).is_absolute() else self.place
        return f"{place}:{self.factory}"


@dataclass(frozen=True)
class Request:
    """What the user requested from the factory; None for everything left open."""

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    seed: int | None = None

    @classmethod
    def of(cls, device: str | None, dtype: str | None, seed: int | None) -> Request:
        """The request as the options of the command name it."""
        return cls(device_of(device), dtype_of(dtype), seed)

    @property
    def precision(self) -> str | None:
        """The precision as it was named."""
        return None if self.dtype is None else str(self.dtype).removeprefix("torch.")

    def arguments(self, signature: inspect.Signature) -> dict[str, Any]:
        """The arguments for the factory; its own defaults apply unless the user said otherwise."""
        fallback = {"device": torch.device("cpu"), "dtype": torch.float32, "seed": 0}
        named = {name: signature.parameters[name] for name in fallback if name in signature.parameters}
        requested = {name: getattr(self, name) for name in named}
        needed = {n: fallback[n] for n, p in named.items() if requested[n] is None and p.default is p.empty}
        return {name: value for name, value in requested.items() if value is not None} | needed


@dataclass(frozen=True)
class Subject:
    """The risk that a command analyses, with its names and folders."""

    name: str
    risk: Risk
    folder: Path  # for the page
    results: Path  # for the record: the same, or one inside for a matrix other than H
    source: dict[str, Any]  # where the risk comes from, for the record

    @property
    def unfinished(self) -> Path:
        """The folder of what a killed analysis goes on from."""
        return self.results / "unfinished"


def _functions_in(text: str) -> list[str]:
    """The public functions of a Python file, which is not run; none where it is no such file."""
    try:
        body = ast.parse(Path(text).read_text(encoding="utf-8")).body if text.endswith(".py") else []
    except (OSError, SyntaxError, ValueError):
        return []
    own = [item.name for item in body if isinstance(item, ast.FunctionDef) and item.name[0] != "_"]
    return nearest_first(["risk"], own)


def risk_of(target: Target, request: Request) -> Risk:
    """Call the factory and take what it returns as a risk, on the device and in the precision the user asked for."""
    factory = _factory(target)
    result = _call(factory, target, request)
    if isinstance(result, Risk):
        return _fitting_risk(result, request)
    if isinstance(result, tuple | list) and len(result) == 3:
        model, loss, data = result
        check_model(model)
        model = _fitting_model(model, request)
        return _users_code(lambda: Risk(model, loss, data), f"What {target.factory} returned cannot be evaluated")
    what = "None" if result is None else f"an object of type {type(result).__name__}"
    if isinstance(result, tuple | list):
        what += f" of {', '.join(type(item).__name__ for item in result) or 'nothing'}"
    raise ArgumentError(
        f"{target.factory} returned {what}.",
        "A factory must return what is to be analysed.",
        *(["Check whether its `return` is missing."] if result is None else []),
        "Return ritz.Risk(model, loss, data), or the three as a tuple (model, loss, data).",
    )


def subject(
    text: str,
    out: Path | None,
    request: Request,
    *,
    examples: int | None = None,
    layers: list[str] | None = None,
    kind: str,
    suffix: str = "",
    inside: str = "",
) -> Subject:
    """What the text names, restricted to the examples and layers; its folders are known to be writable first.

    `kind` is what is analysed: the name of a matrix, or "classes".
    """
    target = Target.of(text)
    asked: dict[str, Any] = {"layers": layers, "examples": examples, "dtype": request.precision, "seed": request.seed}
    page = out or analysis_folder(target.name, **asked, suffix=suffix)
    results = check_writable(page if out else page / inside)
    if out:
        _check_same(results, target.name, kind, layers)
    start = Path.cwd()
    risk = risk_of(target, request)
    if Path.cwd() != start:  # the user's code went to another folder, and may need to be there to read its data
        page, results = start / page, start / results
    risk = _first(risk, examples) if examples is not None else risk
    risk = risk.restricted_to(layers) if layers else risk
    source = {"factory": target.label, "examples": examples, "layers": layers}
    return Subject(target.name, risk, page, results, source)


def _check_same(folder: Path, name: str, kind: str, layers: list[str] | None) -> None:
    """Refuse a folder with the record of another analysis; what cannot be read as a record is no loss."""
    try:
        record = Record.load(folder)
    except RitzError:
        return
    found = "classes" if record.preset == "classes" else record.config.get("operator")
    if (record.id, found, record.config.get("layers")) != (name, kind, layers):
        raise ArgumentError(
            f"{folder} holds another analysis: {_in_words(record.id, found, record.config.get('layers'))}.",
            f"Its record would be lost to this one, and its pictures left beside it: {_in_words(name, kind, layers)}.",
            "Name another folder with --out, or leave --out away: every analysis has a folder of its own then.",
            "If that record is no longer needed, remove the folder first.",
        )


def _in_words(name: str, kind: str | None, layers: list[str] | None) -> str:
    """An analysis in a few words."""
    return ", ".join([name, (kind or "of another kind").replace("_", "-"), *(layers or ())])


def _first(risk: Risk, count: int) -> Risk:
    """The risk on the first examples; refuses more than there are, as the record states their number."""
    if count > risk.num_examples:
        raise ArgumentError(
            f"--examples {count} was given, and the data have {risk.num_examples}.",
            "The record would claim more examples than there are.",
            f"Ask for at most {risk.num_examples}, or leave --examples out to take all of them.",
        )
    return risk.first(count)


def device_of(name: str | None) -> torch.device | None:
    """The device of this name, checked to work; None if none was named."""
    if name is None:
        return None
    given = f"--device {quote(name)}"
    device = usable_device(name, given)
    if device.type == "meta":
        raise unusable(given, "what lies there has a shape but no values")
    return device


def dtype_of(precision: str | None) -> torch.dtype | None:
    """The precision of this name; None if none was named."""
    return None if precision is None else {"float32": torch.float32, "float64": torch.float64}[precision]


def _factory(target: Target) -> Callable[..., Any]:
    module = _from_file(Path(target.place)) if target.is_file else _from_module(target.place)
    factory = getattr(module, target.factory, None)
    if factory is None or not callable(factory):
        own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise ArgumentError(
            f"{target.place} has no function {target.factory!r}"
            + ("." if factory is None else ", but a value of that name."),
            "The factory is called to make what is analysed.",
            f"Its functions are: {listed(nearest_first([target.factory], own), 12) or 'none'}.",
        )
    return factory


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileError(
            f"There is no file {path}.",
            "The factory is read from it.",
            "Check the path, which is relative to the folder you are in.",
            "Write one to begin with: ritz new mine.py",
        )
    _make_importable(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loader = spec.loader if spec is not None else None
    if spec is None or loader is None:
        raise FileError(
            f"{path} is not a Python file.", "The factory is read from it.", "Name a file that ends in .py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # data loaders' workers look their classes up there
    _users_code(lambda: loader.exec_module(module), f"{path} could not be loaded")
    return module


def _from_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    return _users_code(lambda: _imported(name), f"The module {name} could not be imported")


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # one that the module itself imports
        is_file = Path(name).is_file()
        raise FileError(
            f"{name} is not a Python file." if is_file else f"There is no module {name}.",
            "The factory is read from it.",
            "Name a file that ends in .py, as in mine.py:risk; `ritz new mine.py` writes such a file.",
            "Modules are found in the folder you are in, and where Python has installed them.",
        ) from error


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _call(factory: Callable[..., Any], target: Target, request: Request) -> Any:
    signature = _signature(factory)
    arguments = request.arguments(signature)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ArgumentError(
            f"{target.factory}{signature} cannot be called: {error}.",
            "A factory is called with whichever of device, dtype and seed it names, and nothing else.",
            "Give its other arguments defaults, or wrap it in a function without them.",
        ) from error
    with torch.random.fork_rng():
        torch.manual_seed(request.seed or 0)  # so that a factory which draws its weights draws the same ones again
        return _users_code(lambda: factory(**arguments), f"{target.factory} failed")


def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    """The parameters of the factory; some built-ins have no signature, and are called without arguments."""
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):
        return inspect.Signature()


def _users_code(run: Callable[[], Any], what: str) -> Any:
    """Run code that is not ours; whatever it raises is the user's to see, without our frames around it."""
    try:
        return run()
    except RitzError:
        raise
    except (Exception, SystemExit) as error:
        if "in loading state_dict" in str(error):
            raise misfit(what, str(error)) from error
        raise ArgumentError(
            f"{what}: {type(error).__name__}: {error}",
            "The error comes from your own code, or from what it imports.",
            *_file_hint(error),
            "Run it by itself, or add --debug to see where it comes from.",
        ) from error


def _file_hint(error: BaseException) -> list[str]:
    """A hint where relative paths begin, which need not be the folder of the factory's file."""
    if not isinstance(error, FileNotFoundError):
        return []
    return [
        f"Paths in your code begin in the folder you are in, {Path.cwd()}: change to the folder of the file, or give "
        "its full path."
    ]


def _fitting_model(model: nn.Module, request: Request) -> nn.Module:
    """The model itself if it is as requested, else a converted copy: the user's own stays as it is."""
    tensors = [t for t in model.state_dict().values() if isinstance(t, torch.Tensor)]
    fits = all(
        (request.device is None or t.device == request.device)
        and (request.dtype is None or not t.is_floating_point() or t.dtype == request.dtype)
        for t in tensors
    )
    if fits:
        return model
    try:
        return copy.deepcopy(model).to(device=request.device, dtype=request.dtype)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"The model cannot be converted: {first_line(error)}",
            f"It was to be moved to {request.device or 'its device'} in {request.dtype or 'its dtype'}.",
            "Let the factory do it: name `device` and `dtype` among its arguments.",
        ) from error


def _fitting_risk(risk: Risk, request: Request) -> Risk:
    """The risk itself if it is as requested, else the same one converted."""
    device, dtype = request.device or risk.device, request.dtype or risk.dtype
    if (device, dtype) != (risk.device, risk.dtype) and risk.group is not None:
        raise DataError(
            "The factory returned a distributed risk on another device or in another dtype than was requested.",
            "Its data lie on several machines, so ritz cannot move or convert it.",
            "Let the factory place it: name `device` and `dtype` among its arguments.",
        )
    return risk.to(dtype, device=device)
