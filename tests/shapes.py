"""How annotations are checked while tests run: every shape and type of ritz, with whole numbers taken as real ones."""

import dataclasses
import functools
import inspect
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any, TypeVar, get_args, get_type_hints

import jaxtyping
import torch
from beartype import BeartypeConf, beartype

CONF = BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError)
SIMPLE = (int, bool, str, type(None), torch.dtype, torch.device)
LASTING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
AXES = jaxtyping.jaxtyped("context")  # within it, one name of an axis is one size


def checked(thing):
    """A function, or the construction of a dataclass, whose annotations bind.

    What `jaxtyping.jaxtyped(typechecker=beartype)` checks, in less than a tenth of its time: that binds every call to
    the function's signature, only to tell of it when something does not fit.
    """
    if not inspect.isclass(thing):
        return _checked_function(thing)
    if dataclasses.is_dataclass(thing) and not hasattr(thing.__init__, "of_annotations"):
        thing.__init__ = _checked_function(thing.__init__)
    return thing


def _checked_function(function):
    checks = _checks(function)
    bound = _bound(function, checks)
    bound.of_annotations = True
    return bound


def _bound(function, checks):
    config = jaxtyping.config
    if checks.arguments is checks.result is None:
        return function
    within_annotations = (_from_outside if _is_inner(function) else _from_inside)(function, checks)

    @functools.wraps(function)
    def within_axes(*args, **kwargs):
        """Shapes that were right once are right again: to look at them anew takes ten times as long as to know them."""
        __tracebackhide__ = True
        if config.jaxtyping_disable:
            return function(*args, **kwargs)
        given = (*map(_likeness, args[checks.is_method :]), *kwargs, *map(_likeness, kwargs.values()))
        if None in given or given not in checks.right:
            with AXES:
                result = within_annotations(*args, **kwargs)
            if None not in given:
                checks.right[given] = {_likeness(result)}
            return result
        result = function(*args, **kwargs)
        likeness = None if checks.result is None else _likeness(result)
        if checks.result is not None and (likeness is None or likeness not in checks.right[given]):
            with AXES:
                checks.arguments is None or checks.arguments(*args, **kwargs)
                checks.result(result)
            checks.right[given].add(likeness)
        return result

    return within_axes if checks.has_axes else within_annotations


def _is_inner(function):
    """Whether it is made anew again and again, or is called long before it ends: its checks are no part of it."""
    return "<locals>" in function.__qualname__ or bool(function.__code__.co_flags & LASTING)


def _from_outside(function, checks):
    """The checks stand before and after every call."""
    config = jaxtyping.config

    @functools.wraps(function)
    def within_annotations(*args, **kwargs):
        __tracebackhide__ = True
        if config.jaxtyping_disable:
            return function(*args, **kwargs)
        if checks.arguments is not None:
            checks.arguments(*args, **kwargs)
        result = function(*args, **kwargs)
        if checks.result is not None:
            checks.result(result)
        return result

    return within_annotations


def _from_inside(function, checks):
    """The checks are in a copy of the function, which spares three calls in four; made when it is first called."""
    config, copy = jaxtyping.config, None

    @functools.wraps(function)
    def within_annotations(*args, **kwargs):
        __tracebackhide__ = True
        nonlocal copy
        if config.jaxtyping_disable:
            return function(*args, **kwargs)
        if copy is None:
            copy = beartype(_copy(function, checks.hints), conf=CONF)
        return copy(*args, **kwargs)

    return within_annotations


def _copy(function, hints):
    parts = (getattr(function, f"__{name}__") for name in ("code", "globals", "name", "defaults", "closure"))
    copy = FunctionType(*parts)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


LOOKS = {}


def _likeness(value):
    """All of a value that decides whether it fits an annotation; None where it may hold more than is looked at."""
    kind = type(value)
    if kind not in LOOKS:
        LOOKS[kind] = _look(kind)
    return LOOKS[kind](value)


def _look(kind):
    if issubclass(kind, torch.Tensor):
        return lambda value: (kind, value.dtype, value.shape)
    if kind in SIMPLE:
        return lambda value: (kind, value)
    if kind in (tuple, list):
        return _likeness_of_items
    holds_more = issubclass(kind, type) or hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")
    return lambda value: None if holds_more else kind


def _likeness_of_items(items):
    """One entry is looked at, drawn at random."""
    parts = {_likeness(part) for part in items}
    return None if None in parts or len(parts) > 1 else (type(items), len(items), *parts)


def as_the_hook_asks(kind=None, *, typechecker=None):
    """In place of `jaxtyping.jaxtyped`, which the hook writes above every definition: the checker is all of it."""
    return AXES if kind == "context" else typechecker


CHECKS = {}


def _checks(function):
    """Once for all definitions of an inner function."""
    key = (function.__code__, *function.__annotations__.items())
    if key not in CHECKS:
        CHECKS[key] = _Checks(function)
    return CHECKS[key]


class _Checks:
    """The checks of the arguments and of the result, None where anything goes, and whether they name axes.

    Each is made when it is first called: to make one takes longer than a hundred calls.
    """

    def __init__(self, function):
        hints = {name: _hint(hint, function.__globals__) for name, hint in function.__annotations__.items()}
        self.hints = dict(hints)
        self.has_axes = any(map(_has_axes, hints.values()))
        self.is_method = inspect.unwrap(function).__code__.co_varnames[:1] in (("self",), ("cls",))
        self.right = {}  # likenesses of arguments that fit, with those of the results
        result = {"result": hints.pop("return", Any)}
        self.arguments = self._made_at_first("arguments", _Bare(function, function), hints)
        self.result = self._made_at_first("result", _Bare(lambda result: None, function), result)

    def _made_at_first(self, name, bare, hints):
        if all(hint is Any for hint in hints.values()):
            return None

        def first(*args, **kwargs):
            __tracebackhide__ = True
            setattr(self, name, beartype(bare.function(hints), conf=CONF))
            getattr(self, name)(*args, **kwargs)

        return first


class _Bare:
    """A function of the same arguments that does nothing, and holds nothing of the first but its defaults."""

    def __init__(self, function, named):
        function = inspect.unwrap(function)
        self.code, self.defaults = function.__code__, (function.__defaults__, function.__kwdefaults__)
        self.names = named.__module__, named.__qualname__

    def function(self, hints):
        alike = FunctionType(self.code, {}, closure=tuple(CellType() for _ in self.code.co_freevars))
        alike.__defaults__, alike.__kwdefaults__ = self.defaults
        parameters = inspect.signature(alike).parameters.values()
        bare = [p.replace(default=p.empty if p.default is p.empty else None) for p in parameters]
        names = {}
        exec(f"def check{inspect.Signature(bare)}: pass", names)
        check = names["check"]
        check.__defaults__, check.__kwdefaults__ = self.defaults
        check.__module__, check.__qualname__ = self.names
        check.__annotations__ = hints
        return check


HINTS = {}


def _hint(annotation, names):
    """As it is written; one that only the type checker can look up binds nobody.

    A module writes most of its annotations many times: one that was looked up is known.
    """

    def one(value: annotation): ...

    _, known = HINTS.setdefault(id(names), (names, {}))  # which are held, so that nothing else has their number
    if not isinstance(annotation, str) or annotation not in known:
        try:
            hint = get_type_hints(one, names, include_extras=True)["value"]
        except Exception:  # as many kinds as there are ways to write a name that does not exist
            return Any
        if not isinstance(annotation, str):
            return hint
        known[annotation] = hint
    return known[annotation]


def _has_axes(hint):
    parts = hint if isinstance(hint, list) else get_args(hint)  # the arguments of a callable are a list
    own = isinstance(hint, TypeVar) or (inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray))
    return own or any(map(_has_axes, parts))


@contextmanager
def unchecked():
    """As users run it: for hundreds of draws whose shapes a single one has shown to be right."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.jaxtyping_disable = True
    try:
        yield
    finally:
        jaxtyping.config.jaxtyping_disable = before
