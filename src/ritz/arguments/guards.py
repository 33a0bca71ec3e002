"""Argument checks for every public function and class of a folder whose `__init__.py` ends with `guard(__name__)`."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache, wraps
from typing import Any, NamedTuple

from ..errors import ArgumentError
from ..foreign_errors import refusal
from .annotations import Misfit, Take, axes, has_axes, resolved, shown, take
from .calls import called, named

ANYTHING, NUMBERS, FINITE = range(3)  # what numbers may be: anything, not NaN, or finite


def guard(face: str, *, leaving: Collection[str] = (), finite: bool = False) -> None:
    """Make the public functions and classes of a module check their arguments.

    `leaving` names methods to leave unchecked (of a constructor, all but the names of its arguments), and classes of
    which only the constructor is checked. With `finite`, no
    tensor may hold NaN, infinity or half precision, none of which can be drawn. Constructors always accept NaN, since
    a result has to hold whatever came out.
    """
    module, numbers = sys.modules[face], FINITE if finite else NUMBERS
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == face and name[0] != "_"]
    for name in vars(module).get("__all__", own):
        thing = vars(module).get(name)
        if inspect.isfunction(thing):
            vars(module)[name] = vars(sys.modules[thing.__module__])[name] = guarded(thing, numbers)
        elif inspect.isclass(thing) and thing.__module__.startswith("ritz.") and "_guarded" not in vars(thing):
            _guard_class(thing, leaving, numbers)


def guarded(function: Callable, numbers: int = NUMBERS) -> Callable:
    """The function, with its arguments checked before every call."""
    if hasattr(function, "_guard"):
        return function
    call = named(function)

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        args, kwargs = _fit(function, args, kwargs, numbers)
        try:
            return call(*args, **kwargs)
        except (RuntimeError, MemoryError, OverflowError) as error:
            named = dict(zip(_parameters(function).positional, args, strict=False)) | kwargs
            if (answer := refusal(called(function), named, error)) is None:
                raise
            raise answer from error

    checked._guard = True  # type: ignore[attr-defined]
    return checked


def bare(function: Callable) -> Callable:
    """The function without its guard."""
    return function.__wrapped__ if hasattr(function, "_guard") else function  # type: ignore[attr-defined]


def _guard_class(kind: type, leaving: Collection[str], numbers: int) -> None:
    """Guard the constructor and the public methods of a class, except for errors, named tuples and protocols."""
    if issubclass(kind, (BaseException, tuple)) or getattr(kind, "_is_protocol", False):
        return
    kind._guarded = True  # type: ignore[attr-defined]
    only_constructor = kind.__name__ in leaving or hasattr(kind, "forward")
    for name, value in list(vars(kind).items()):
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        public = name == "__init__" or not (only_constructor or name.startswith("_"))
        if public and inspect.isfunction(inner) and f"{kind.__name__}.{name}" not in leaving:
            checked = guarded(inner, ANYTHING if name == "__init__" else numbers)
            setattr(kind, name, checked if inner is value else type(value)(checked))
        elif name == "__init__" and inspect.isfunction(value):  # which refuses by itself what it is given
            setattr(kind, name, named(value))


def _fit(function: Callable, args: tuple, kwargs: dict[str, Any], numbers: int) -> tuple[tuple, dict[str, Any]]:
    """The arguments in the form the function receives them; refuses the first that does not fit."""
    parameters = _parameters(function)
    if not parameters.has_axes:
        return _fitting(parameters, args, kwargs, numbers)
    with axes():
        return _fitting(parameters, args, kwargs, numbers)


def _fitting(
    parameters: _Parameters, args: tuple, kwargs: dict[str, Any], numbers: int
) -> tuple[tuple, dict[str, Any]]:
    names, takes = parameters.positional, parameters.takes
    fitting = [_fitted(name, value, takes, numbers) for name, value in zip(names, args, strict=False)]
    named = {name: _fitted(name, value, takes, numbers) for name, value in kwargs.items()}
    return (*fitting, *args[len(names) :]), named


def _fitted(name: str, value: Any, takes: Mapping[str, Take], numbers: int) -> Any:
    if name not in takes:
        return value
    try:
        fitting = takes[name](value)
        if numbers >= NUMBERS:
            _refuse_absent(fitting)
        if numbers >= FINITE:
            _refuse_gaps(fitting)
        return fitting
    except Misfit as misfit:
        raise ArgumentError(f"{name} is {shown(value)}.", *misfit.args) from None


def _refuse_absent(value: Any) -> None:
    """Refuse NaN, and tensors without dense values."""
    import torch

    if isinstance(value, float) and math.isnan(value):
        raise Misfit("Nothing can be computed with NaN.", "Find out where the NaN comes from.")
    if isinstance(value, torch.Tensor) and (value.is_sparse or value.is_nested or value.is_meta):
        raise Misfit(
            "Such a tensor does not store all of its numbers.", "Pass a dense tensor, on a device such as cpu."
        )


def _refuse_gaps(value: Any) -> None:
    """Refuse values that would leave a hole in a picture."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return
    if value.dtype in (torch.float16, torch.bfloat16):
        raise Misfit("Half precision cannot be drawn.", "Pass it as .float() or .double().")
    if not bool(value.isfinite().all()):
        raise Misfit("It holds NaN or infinity, which cannot be drawn.", "Find out where they come from.")


class _Parameters(NamedTuple):
    """The positional parameters of a function by name, and the check of every annotated one."""

    positional: list[str]
    takes: dict[str, Take]
    has_axes: bool


@cache
def _parameters(function: Callable) -> _Parameters:
    """The parameters of a function, with every annotation that can be evaluated at run time."""
    inner = inspect.unwrap(function)
    parameters = inspect.signature(inner).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    single = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    hints = {p.name: resolved(p.annotation, inner) for p in single if p.annotation is not p.empty}
    takes = {name: take(hint) for name, hint in hints.items() if hint is not Any}
    return _Parameters(positional, takes, any(map(has_axes, hints.values())))
