"""What may be passed to a public function, by its own annotations; all else is refused with what, why and a way out.

A folder ends its face with `guard(__name__)`: every public function and class of it then checks what it is given,
before it computes. Numbers of numpy become Python's, also in tuples, lists and dicts; nothing else is converted.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from itertools import repeat
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import ArgumentError
from .refusals import refusal

MAKERS = {
    "Risk": "Make one: ritz.Risk(model, loss, data).",
    "Operator": "Make one: ritz.hessian(risk), or ritz.Operator.from_matrix(matrix).",
    "Spectrum": "Make one: ritz.spectral_density(A), or ritz.Spectrum.of_eigenvalues(values).",
    "Eigenpairs": "Make one: ritz.eigenpairs(A, k).",
    "Record": "Make one: ritz.analysis.spectrum.run(risk), or read one: ritz.Record.load(folder).",
    "Generator": "Make one: torch.Generator().manual_seed(0).",
    "Callable": "Pass a function.",
    "Sequence": "Pass a list or a tuple.",
    "Iterable": "Pass a list or a tuple.",
    "Collection": "Pass a list or a tuple.",
    "Workers": "Pass 'in-process', 'processes' or 'ray', or make one: ritz.lab.sweeps.Processes(count=4).",
    "Axes": "Make one: figure, (ax,) = ritz.plot.panels().",
    "Examples": "Make one: ritz.lab.data.Examples(x, y).",
}
ANYTHING, NUMBERS, FINITE = range(3)  # what a number or a tensor must be
LARGEST = 2**63 - 1  # what PyTorch can count to


def guard(face: str, *, leaving: Collection[str] = (), finite: bool = False) -> None:
    """Let the public functions and classes of a module check their arguments.

    `leaving` names methods that do not, and classes of which only the construction does; with `finite`, no tensor may
    hold NaN, infinity or half precision, none of which can be drawn. What is constructed may hold NaN everywhere: a
    result says what came out.
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

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        args, kwargs = _fit(function, args, kwargs, numbers)
        try:
            return function(*args, **kwargs)
        except (RuntimeError, MemoryError, OverflowError) as error:
            named = dict(zip(_parameters(function)[0], args, strict=False)) | kwargs
            if (answer := refusal(function.__name__, named, error)) is None:
                raise
            raise answer from error

    checked._guard = True  # type: ignore[attr-defined]
    return checked


def bare(function: Callable) -> Callable:
    """The function without its guard, as its own folder knows it."""
    return function.__wrapped__ if hasattr(function, "_guard") else function  # type: ignore[attr-defined]


def _guard_class(kind: type, leaving: Collection[str], numbers: int) -> None:
    if not issubclass(kind, (BaseException, tuple)) and not getattr(kind, "_is_protocol", False):
        kind._guarded = True  # type: ignore[attr-defined]
        for name, value in list(vars(kind).items()):
            inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            left = {kind.__name__, f"{kind.__name__}.{name}"} & set(leaving) or hasattr(kind, "forward")
            construction = name == "__init__" and f"{kind.__name__}.{name}" not in leaving
            own = construction or not (left or name.startswith("_"))
            if own and inspect.isfunction(inner):
                wrapper = type(value) if inner is not value else lambda function: function
                setattr(kind, name, wrapper(guarded(inner, ANYTHING if name == "__init__" else numbers)))


def _fit(function: Callable, args: tuple, kwargs: dict[str, Any], numbers: int) -> tuple[tuple, dict[str, Any]]:
    """The arguments as the function takes them, or the refusal of the first that does not fit."""
    from jaxtyping import jaxtyped

    names, hints = _parameters(function)
    with jaxtyped("context"):  # within it, one name of an axis is one size
        given = [(names[i] if i < len(names) else "", value) for i, value in enumerate(args)]
        fitting = tuple(_fitted(name, value, hints, numbers) for name, value in given)
        return fitting, {name: _fitted(name, value, hints, numbers) for name, value in kwargs.items()}


def _fitted(name: str, value: Any, hints: Mapping[str, Any], numbers: int) -> Any:
    if name not in hints:
        return value
    try:
        fitting = accepted(value, hints[name])
        if numbers >= NUMBERS:
            _refuse_absent(fitting)
        if numbers >= FINITE:
            _refuse_gaps(fitting)
        return fitting
    except Misfit as misfit:
        raise ArgumentError(f"{name} is {_shown(value)}.", *misfit.args) from None


class Misfit(Exception):
    """A value does not fit its annotation: why, and the way out."""


def accepted(value: Any, hint: Any) -> Any:
    """The value in the form in which code takes it; a Misfit where the hint forbids it."""
    if hint is Any or isinstance(hint, TypeVar | str):
        return value
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        _refuse_device(value, get_args(hint))
        return _accepted_by_one(value, get_args(hint))
    if origin is Literal:
        return _literal(value, get_args(hint))
    if hint in PLAIN:
        return PLAIN[hint](value)
    if hint is None or hint is type(None):
        return _instance(value, type(None))
    if _is_array(hint):
        return _tensor(value, hint)
    return _generic(value, hint, origin)


def _accepted_by_one(value: Any, hints: Sequence[Any]) -> Any:
    misfits: list[tuple[int, int, tuple]] = []
    for hint in hints:
        try:
            return accepted(value, hint)
        except Misfit as misfit:  # its words alone: a traceback would keep the value alive
            misfits.append((_distance(value, hint), len(misfits), misfit.args))
    raise Misfit(*min(misfits)[2])


def _distance(value: Any, hint: Any) -> int:
    """How far from fitting: the refusal that comes nearest to what was meant is the one to tell."""
    import torch

    if _is_array(hint):
        return 0 if isinstance(value, torch.Tensor) else 2
    return 3 if hint is type(None) else 1


def _refuse_device(value: Any, hints: Sequence[Any]) -> None:
    """Where a device may be named by a text, not every text names one."""
    import torch

    if isinstance(value, str) and torch.device in hints:
        try:
            torch.device(value)
        except RuntimeError:
            raise Misfit("It must name a device.", "Pass 'cpu', or 'cuda' where there is one.") from None


def _literal(value: Any, values: Sequence[Any]) -> Any:
    if isinstance(value, str | int | None) and value in values:
        return value
    raise Misfit(f"It must be one of {', '.join(map(repr, values))}.", f"Pass {values[0]!r}.")


def _whole(value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise Misfit("It counts, so it is an integer.", "Pass an int.")
    if not -LARGEST <= int(value) <= LARGEST:
        raise Misfit("It has more than 63 bits.", "Pass a smaller int.")
    return int(value)


def _real(value: Any) -> Any:
    try:
        usable = isinstance(value, Real) and not isinstance(value, bool) and float(value) is not None
    except OverflowError:
        usable = False
    if not usable:
        raise Misfit("It must be a real number.", "Pass an int or a float.")
    return value if type(value) is float or (type(value) is int and abs(value) < LARGEST) else float(value)


def _truth(value: Any) -> bool:
    import numpy as np

    if not isinstance(value, bool | np.bool_):
        raise Misfit("It is switched on or off.", "Pass True or False.")
    return bool(value)


def _text(value: Any) -> str:
    return _instance(value, str)


PLAIN: dict[Any, Callable[[Any], Any]] = {int: _whole, float: _real, bool: _truth, str: _text}


def _tensor(value: Any, hint: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        raise Misfit("It must be a tensor.", "Pass torch.as_tensor(...) of it.")
    if not isinstance(value, hint):
        _refuse_dtype(value, hint)
        raise Misfit(f"It must have the shape ({', '.join(hint.dim_str.split())}).", "Bring it into that shape.")
    return value


def _refuse_absent(value: Any) -> None:
    """NaN, and numbers that are not all there to compute with."""
    import torch

    if isinstance(value, float) and math.isnan(value):
        raise Misfit("Nothing can be computed with NaN.", "Look where it comes from.")
    if isinstance(value, torch.Tensor) and (value.is_sparse or value.is_nested or value.is_meta):
        raise Misfit("Its numbers are not all there to compute with.", "Pass a dense tensor, on a device such as cpu.")


def _refuse_gaps(value: Any) -> None:
    """What would leave a hole in a picture."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return
    if value.dtype in (torch.float16, torch.bfloat16):
        raise Misfit("Half precision cannot be drawn.", "Pass it as .float() or .double().")
    if not bool(value.isfinite().all()):
        raise Misfit("It holds NaN or infinity, which cannot be drawn.", "Look where they come from.")


def _refuse_dtype(value: Any, hint: Any) -> None:
    kinds = hint.dtypes
    if isinstance(kinds, list | tuple) and str(value.dtype).removeprefix("torch.") not in kinds:
        raise Misfit(f"It must hold {_kinds(hint)}.", f"Pass it {_kinds(hint, 'as ')}.")


def _kinds(hint: Any, before: str = "") -> str:
    kinds = set(hint.dtypes)
    if "float32" in kinds:
        return f"{before}.float() or .double()" if before else "real numbers, of float32 or float64"
    if "int64" in kinds:
        return f"{before}.long()" if before else "integers"
    return f"{before}.bool()" if before else "truth values"


def _is_array(hint: Any) -> bool:
    return hasattr(hint, "dim_str") and hasattr(hint, "dtypes")


def _generic(value: Any, hint: Any, origin: Any) -> Any:
    """Containers with what they hold, and classes."""
    kind = origin or hint
    if not inspect.isclass(kind):
        return value
    if getattr(kind, "_is_protocol", False):
        return _like(value, kind)
    _instance(value, kind)
    inner = get_args(hint)
    if issubclass(kind, Mapping) and inner:
        return _holding(value, value.values(), repeat(inner[1]), lambda items: dict(zip(value, items, strict=True)))
    if kind is tuple and inner and inner[-1] is not ...:
        _refuse_length(value, len(inner))
        return _holding(value, value, inner, tuple)
    if issubclass(kind, Iterable) and isinstance(value, Collection) and inner:
        return _holding(value, value, repeat(inner[0]), type(value))
    return value


def _refuse_length(value: tuple, length: int) -> None:
    if len(value) != length:
        raise Misfit(f"It holds {len(value)} instead of {length}.", f"Pass a tuple of {length}.")


def _like(value: Any, kind: type) -> Any:
    """Whether it has what the protocol names."""
    names = [name for name in vars(kind) if name[0] != "_"]
    if isinstance(value, type) or not all(hasattr(value, name) for name in names):
        why = f"It must be {_named(kind)}, which has {', '.join(names)}."
        raise Misfit(why, _way_to(kind))
    return value


def _holding(value: Any, items: Iterable[Any], hints: Iterable[Any], new: Callable[[list[Any]], Any]) -> Any:
    """What was given itself, unless it is one of Python's own and holds what had to be converted."""
    pairs = [(item, _accepted_within(item, hint)) for item, hint in zip(items, hints, strict=False)]
    if type(value) not in (tuple, list, dict) or all(item is fitting for item, fitting in pairs):
        return value
    return new([fitting for _, fitting in pairs])


def _accepted_within(item: Any, hint: Any) -> Any:
    from jaxtyping import jaxtyped

    try:
        with jaxtyped("context"):  # what is held together need not be of one size
            return accepted(item, hint)
    except Misfit as misfit:
        raise Misfit(f"It holds {_shown(item)}. {misfit.args[0]}", *misfit.args[1:]) from None


def _instance(value: Any, kind: type) -> Any:
    no_items = isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0
    if (kind in (Sequence, Iterable, Collection) and no_items) or not isinstance(value, kind):
        raise Misfit(f"It must be {_named(kind)}.", _way_to(kind))
    return value


def _way_to(kind: type) -> str:
    """How to come by one."""
    return MAKERS.get(kind.__name__, f"Pass {_named(kind)}.")


def _named(kind: type) -> str:
    return "None" if kind is type(None) else f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _shown(value: Any) -> str:
    """What was given, in a few words."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype} on {value.device}"
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


@cache
def _parameters(function: Callable) -> tuple[list[str], dict[str, Any]]:
    """The names of positional parameters, and every annotation that can be looked up while code runs."""
    inner = inspect.unwrap(function)
    parameters = inspect.signature(inner).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    single = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    hints = {p.name: resolved(p.annotation, inner) for p in single if p.annotation is not p.empty}
    return positional, {name: hint for name, hint in hints.items() if hint is not Any}


def resolved(annotation: Any, function: Callable) -> Any:
    """As it is written; a name that only the type checker knows binds nobody."""

    def one() -> None: ...

    one.__annotations__ = {"value": annotation}
    try:
        return get_type_hints(one, function.__globals__, include_extras=True)["value"]
    except Exception:  # as many kinds as there are ways to write a name that does not exist
        return Any
