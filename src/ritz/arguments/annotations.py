"""What a value must be to fit an annotation, and the form in which the code receives it.

NumPy numbers become Python numbers, inside tuples, lists and dicts too; nothing else is converted.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import kind_of

MAKERS = {
    "Risk": "Make one: ritz.Risk(model, loss, data).",
    "Operator": "Make one: ritz.hessian(risk), or ritz.Operator.from_matrix(matrix).",
    "Spectrum": "Make one: ritz.spectral_density(A), or ritz.Spectrum.of_eigenvalues(values).",
    "Eigenpairs": "Make one: ritz.eigenpairs(A, k).",
    "Record": "Make one: ritz.analysis.spectrum.run(risk), or read one: ritz.Record.load(folder).",
    "Generator": "Make one: torch.Generator().manual_seed(0).",
    "Callable": "Pass a function.",
    "Mapping": "Pass a dict.",
    "dtype": "Pass torch.float64 or torch.float32.",
    "device": "Pass torch.device('cpu'), or 'cuda' where there is one.",
    "Module": "Pass a torch.nn.Module, such as the model.",
    "Tensor": "Pass a tensor: torch.as_tensor(...) of an array.",
    "Sequence": "Pass a list or a tuple.",
    "Iterable": "Pass a list or a tuple.",
    "Collection": "Pass a list or a tuple.",
    "Workers": "Pass 'in-process', 'processes' or 'ray', or make one: ritz.lab.sweeps.Processes(count=4).",
    "Axes": "Make one: figure, (ax,) = ritz.plot.panels().",
    "Examples": "Make one: ritz.lab.data.Examples(x, y).",
}
LARGEST = 2**63 - 1  # the largest integer that PyTorch holds
IT_MUST_BE = "It must be "
ITEMS = (Sequence, Iterable, Collection)  # which a string, or a tensor without dimensions, does not count as here
Take = Callable[[Any], Any]  # returns the value in the form the code receives, or raises a Misfit


def axes() -> Any:
    """A context in which every axis of the same name must have the same size."""
    from jaxtyping import jaxtyped

    return jaxtyped("context")


class Misfit(Exception):
    """A value does not fit its annotation: why, and the way out."""


def accepted(value: Any, hint: Any) -> Any:
    """The value in the form the code receives; raises a Misfit where the hint forbids it."""
    return take(hint)(value)


def take(hint: Any) -> Take:
    """`accepted` for one hint, which is analysed once: a function has one signature and many calls."""
    if hint is Any or isinstance(hint, TypeVar | str):
        return _unchanged
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return partial(_accepted_by_one, [(one, take(one)) for one in get_args(hint)])
    if origin is Literal:
        return partial(_literal, get_args(hint))
    if hint in PLAIN:
        return PLAIN[hint]
    if hint is None or hint is type(None):
        return partial(_instance, type(None))
    if _is_array(hint):
        return partial(_tensor, hint)
    return _generic(hint, origin)


def _unchanged(value: Any) -> Any:
    return value


def _accepted_by_one(takes: Sequence[tuple[Any, Take]], value: Any) -> Any:
    hints = [hint for hint, _ in takes]
    if value is None and type(None) in hints:
        return None
    _refuse_device(value, hints)
    misfits = []
    for _, take in takes:
        try:
            return take(value)
        except Misfit as misfit:  # only its words: a traceback would keep the value alive
            misfits.append(misfit.args)
    distances = [_distance(value, hint) for hint in hints]
    nearest = [misfit for misfit, distance in zip(misfits, distances, strict=True) if distance == min(distances)]
    raise Misfit(*(nearest[0] if min(distances) == 0 else _joined(nearest)))


def _distance(value: Any, hint: Any) -> int:
    """How far a value is from fitting: of several refusals, the user gets the one nearest to what was meant."""
    import torch

    if _is_array(hint):
        return 0 if isinstance(value, torch.Tensor) else 2
    kind = get_origin(hint)
    if inspect.isclass(kind) and isinstance(value, kind):  # what it holds does not fit
        return 0
    return 3 if hint is type(None) else 1


def _joined(misfits: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The refusals of several kinds as one that names them all; the first where one is more than the name of a kind."""
    kinds = [why.removeprefix(IT_MUST_BE).removesuffix(".") for why, *_ in misfits]
    if len(misfits) == 1 or not all(why.startswith(IT_MUST_BE) and why.count(".") == 1 for why, *_ in misfits):
        return misfits[0]
    ways = dict.fromkeys(way for _, *ways in misfits for way in ways)
    return f"{IT_MUST_BE}{', '.join(kinds[:-1])} or {kinds[-1]}.", *ways


def _refuse_device(value: Any, hints: Sequence[Any]) -> None:
    """Refuse a string that names no device, where the hint accepts strings for devices."""
    import torch

    if isinstance(value, str) and torch.device in hints:
        try:
            torch.device(value)
        except RuntimeError:
            raise Misfit("It must name a device.", "Pass 'cpu', or 'cuda' where there is one.") from None


def _literal(values: Sequence[Any], value: Any) -> Any:
    if isinstance(value, str | int | None) and value in values:
        return value
    raise Misfit(f"It must be one of {', '.join(map(repr, values))}.", f"Pass {values[0]!r}.")


def _whole(value: Any) -> int:
    if type(value) is int and -LARGEST <= value <= LARGEST:  # nearly always
        return value
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise Misfit("It is a count, so it must be an integer.", "Pass an int.")
    if not -LARGEST <= int(value) <= LARGEST:
        raise Misfit("It has more than 63 bits.", "Pass a smaller int.")
    return int(value)


def _real(value: Any) -> Any:
    if type(value) is float:
        return value
    try:
        usable = isinstance(value, Real) and not isinstance(value, bool) and float(value) is not None
    except OverflowError:
        usable = False
    if not usable:
        raise Misfit("It must be a real number.", "Pass an int or a float.")
    return value if type(value) is int and abs(value) < LARGEST else float(value)


def _truth(value: Any) -> bool:
    if type(value) is bool:
        return value
    import numpy as np

    if not isinstance(value, bool | np.bool_):
        raise Misfit("It is a switch, so it must be True or False.", "Pass True or False.")
    return bool(value)


def _text(value: Any) -> str:
    return _instance(str, value)


PLAIN: dict[Any, Callable[[Any], Any]] = {int: _whole, float: _real, bool: _truth, str: _text}


def _tensor(hint: Any, value: Any) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        own = isinstance(getattr(value, "values", None), torch.Tensor)  # as of Eigenpairs
        raise Misfit("It must be a tensor.", "Pass its .values." if own else "Pass torch.as_tensor(...) of it.")
    if not isinstance(value, hint):
        _refuse_dtype(value, hint)
        raise Misfit(f"It must have the shape ({', '.join(hint.dim_str.split())}).", "Reshape or transpose it.")
    return value


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


def has_axes(hint: Any) -> bool:
    """Whether a tensor's shape appears anywhere in the hint; the arguments of a callable are not checked."""
    return _is_array(hint) or any(map(has_axes, get_args(hint)))


def _generic(hint: Any, origin: Any) -> Take:
    """The check for a container and its items, or for a class."""
    kind, inner = origin or hint, get_args(hint)
    if not inspect.isclass(kind):
        return _unchanged
    if getattr(kind, "_is_protocol", False):
        return partial(_like, kind)
    if issubclass(kind, Mapping) and inner:
        return partial(_mapping, kind, _taken_within(inner[1]))
    if kind is tuple and inner and inner[-1] is not ...:
        return partial(_tuple_of, [_taken_within(one) for one in inner])
    if issubclass(kind, Iterable) and inner:
        return partial(_collection, kind, _taken_within(inner[0]))
    return partial(_instance, kind)


def _mapping(kind: type, take: Take, value: Any) -> Any:
    _instance(kind, value)
    return _holding(value, value.values(), repeat(take), lambda items: dict(zip(value, items, strict=True)))


def _tuple_of(takes: Sequence[Take], value: Any) -> Any:
    _instance(tuple, value)
    if len(value) != len(takes):
        raise Misfit(f"It holds {len(value)} instead of {len(takes)}.", f"Pass a tuple of {len(takes)}.")
    return _holding(value, value, takes, tuple)


def _collection(kind: type, take: Take, value: Any) -> Any:
    """The collection with its items checked; an iterator is left alone, since looking at its items would use it up."""
    _instance(kind, value)
    return _holding(value, value, repeat(take), type(value)) if isinstance(value, Collection) else value


def _like(kind: type, value: Any) -> Any:
    """The value, if it has every attribute that the protocol names."""
    names = [name for name in vars(kind) if name[0] != "_"]
    if isinstance(value, type) or not all(hasattr(value, name) for name in names):
        why = f"It must be {_named(kind)}, which has {', '.join(names)}."
        raise Misfit(why, _way_to(kind))
    return value


def _holding(value: Any, items: Iterable[Any], takes: Iterable[Take], new: Callable[[list[Any]], Any]) -> Any:
    """The container as given, or a new one if it is a tuple, list or dict with items that had to be converted."""
    pairs = [(item, take(item)) for item, take in zip(items, takes, strict=False)]
    if type(value) not in (tuple, list, dict) or all(item is fitting for item, fitting in pairs):
        return value
    return new([fitting for _, fitting in pairs])


def _taken_within(hint: Any) -> Take:
    """The check for an item inside a container."""
    return partial(_accepted_within, take(hint), has_axes(hint))


def _accepted_within(take: Take, has_axes: bool, item: Any) -> Any:
    try:
        if not has_axes:
            return take(item)
        with axes():  # items of one container may differ in size
            return take(item)
    except Misfit as misfit:
        raise Misfit(f"It holds {shown(item)}. {misfit.args[0]}", *misfit.args[1:]) from None


def _instance(kind: type, value: Any) -> Any:
    no_items = kind in ITEMS and (isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0)
    if no_items or not isinstance(value, kind):
        namesake = type(value).__name__ == kind.__name__  # as the Generators of numpy and torch
        must = f"one of {kind.__module__.partition('.')[0]}" if namesake else _named(kind)
        raise Misfit(f"{IT_MUST_BE}{must}.", *_ways_to(kind, value))
    return value


def _ways_to(kind: type, value: Any) -> list[str]:
    """How to get an object of this class; a module has a name, and what can be multiplied an operator."""
    if kind is str and not isinstance(value, type) and hasattr(value, "named_modules"):
        return ["Pass its name in the model: 'head.*' are the parameters of model.head."]
    if kind in ITEMS and not isinstance(value, type) and hasattr(value, "named_modules"):
        return ["Pass a list, as of its weights: [layer.weight for layer in model]."]
    if isinstance(value, type) and issubclass(value, kind):
        return [f"Make an instance: {value.__name__}(...)."]
    if kind.__name__ == "Tensor" and isinstance(value, Mapping):
        return ["Pass the dict of tensors inside, as of a checkpoint: file['model']."]
    has_one = kind.__name__ == "Operator" and not isinstance(value, type) and hasattr(value, "operator")
    return ["Pass its operator: kfac(risk).operator.", _way_to(kind)] if has_one else [_way_to(kind)]


def _way_to(kind: type) -> str:
    """How to get an object of this class."""
    return MAKERS.get(kind.__name__, f"Pass {_named(kind)}.")


def _named(kind: type) -> str:
    return "None" if kind is type(None) else f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def shown(value: Any) -> str:
    """The value in a few words."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype} on {value.device}"
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return kind_of(value)


def resolved(annotation: Any, function: Callable) -> Any:
    """The annotation evaluated; one with names that only the type checker knows is not enforced."""

    def one() -> None: ...

    one.__annotations__ = {"value": annotation}
    try:
        return get_type_hints(one, function.__globals__, include_extras=True)["value"]
    except Exception:  # a missing name may fail in any way
        return Any
