"""Values for a parameter, by its annotation: some that fit, as many as anybody could pass, and some that do not."""

import dataclasses
import functools
import inspect
import itertools
import math
import pathlib
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
import torch
from hypothesis import strategies as st

import ritz
from ritz.arguments import Misfit, accepted, resolved

from . import samples


@dataclasses.dataclass(frozen=True)
class Value:
    """An argument that can be made again and again, and in the form that code is written for."""

    label: str
    make: Callable[[], Any]
    canonical: Callable[[], Any] | None = None

    def __repr__(self):
        return self.label


def same(value):
    return Value(repr(value), lambda: value)


def other(value, canonical):
    return Value(f"{type(value).__module__}.{value!r}", lambda: value, lambda: canonical)


# What fits ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Sizes:
    """The sizes of named axes within one call, and the widths of a chain of layers."""

    draw: Callable
    axes: dict = dataclasses.field(default_factory=dict)

    def __getitem__(self, name):
        if name not in self.axes:
            self.axes[name] = self.draw(st.integers(1, 4), label=name)
        return self.axes[name]


def fitting(draw, hint, name, sizes, default=inspect.Parameter.empty):
    """A value that the annotation allows."""
    if default is not inspect.Parameter.empty and draw(st.integers(0, 2)):
        return same(default)
    known = [maker for maker in samples.BY_NAME.get(name, ()) if _fits(maker(), hint)]
    if known and not (name == "loss" and _is_callable(hint)):
        return sample(draw, name, known)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return fitting(draw, draw(st.sampled_from(inner)), name, sizes)
    if origin is Literal:
        return same(draw(st.sampled_from(inner)))
    if hint in SCALARS:
        return draw(st.sampled_from(SCALARS[hint]))
    if _is_tensor(hint):
        return tensor(draw, hint, sizes)
    if hint is None or hint is type(None):
        return same(None)
    return _instance(draw, hint, name, sizes, origin, inner)


def _fits(value, hint):
    try:
        accepted(value, hint)
        return True
    except Misfit:
        return False


def _instance(draw, hint, name, sizes, origin, inner):
    """A value of a class, or of a container of what fits in turn."""
    kind = origin or hint
    if isinstance(hint, TypeVar) or kind is Any:
        return sample(draw, name, samples.ANYTHING)
    if _is_callable(hint):
        return sample(draw, name, samples.CALLABLES)
    if kind is ritz.Operator:
        return sample(draw, "Operator", [functools.partial(one, sizes["n"]) for one in samples.OPERATORS])
    for known, makers in samples.BY_CLASS.items():
        if kind is known:
            return sample(draw, known.__name__, makers)
    if not inspect.isclass(kind):
        return sample(draw, name, samples.ANYTHING)
    return _container(draw, kind, name, sizes, inner) or _built(draw, kind, sizes)


def _container(draw, kind, name, sizes, inner):
    """A tuple, a mapping or a sequence; None for a class that is none of these."""
    if kind is tuple and inner and inner[-1] is not ...:
        return _gathered([fitting(draw, one, name, sizes) for one in inner], tuple)
    if issubclass(kind, Mapping):
        return _dictionary([fitting(draw, (*inner, Any, Any)[1], "", sizes) for _ in range(2)])
    if issubclass(kind, Iterable) and not dataclasses.is_dataclass(kind):
        return _sequence(draw, (inner or (Any,))[0], name, sizes)
    return None


def _sequence(draw, hint, name, sizes):
    length = draw(st.integers(1, 3))
    if _is_tensor(hint) or hint is torch.Tensor:
        return _chain(draw, hint, sizes, length)
    items = [fitting(draw, hint, "", sizes) for _ in range(length)]
    gathered = _gathered(items, tuple)
    return dataclasses.replace(gathered, make=lambda: list(gathered.make()), canonical=gathered.make)


def _chain(draw, hint, sizes, length):
    """Matrices that can be multiplied in the order of layers, from `d` inputs to `k` outputs."""
    widths = [sizes["d"], *(draw(st.integers(1, 4)) for _ in range(length - 1)), sizes["k"]]
    stack = (2,) if hint is not torch.Tensor and "B" in hint.dim_str else ()
    pieces = [_numbers((*stack, b, a), seed) for seed, (a, b) in enumerate(itertools.pairwise(widths))]
    return Value(f"layers of widths {widths}", lambda: list(pieces), lambda: tuple(pieces))


def _gathered(values, kind):
    canonical = lambda: kind((v.canonical or v.make)() for v in values)
    return Value(f"{kind.__name__}({values})", lambda: kind(v.make() for v in values), canonical)


def _dictionary(values):
    make = lambda: {str(i): v.make() for i, v in enumerate(values)}
    return Value(f"{dict(enumerate(values))}", make)


def _built(draw, kind, sizes):
    """An instance of a class that nobody has told of: by what its constructor takes."""
    inner = inspect.unwrap(kind.__init__)
    hints = {name: resolved(hint, inner) for name, hint in inner.__annotations__.items()}
    parameters = inspect.signature(kind).parameters.values()
    values = {p.name: fitting(draw, hints.get(p.name, Any), p.name, sizes, p.default) for p in parameters}
    return Value(f"{kind.__name__}({values})", lambda: kind(**{name: v.make() for name, v in values.items()}))


def sample(draw, label, makers):
    index = draw(st.integers(0, len(makers) - 1))
    return Value(f"{label} {index}", makers[index])


SCALARS = {
    int: [*map(same, (1, 2, 3, 4)), other(np.int64(2), 2), other(np.int32(3), 3)],
    float: [*map(same, (0.25, 0.5, 1.0, 2.0)), other(1, 1.0), other(np.float64(0.5), 0.5), other(np.float32(0.5), 0.5)],
    bool: [same(True), same(False), other(np.bool_(True), True)],
    str: [same("a"), same("largest"), same("*")],
    bytes: [same(b"abc")],
    pathlib.Path: [Value("a path", lambda: pathlib.Path("made") / "here.npz")],
}


def _is_callable(hint):
    return (get_origin(hint) or hint) is Callable


def _is_tensor(hint):
    return hasattr(hint, "dim_str")


def shape(hint, sizes):
    return tuple(itertools.chain.from_iterable(_axis(axis, sizes) for axis in hint.dim_str.split()))


def _axis(axis, sizes):
    if axis == "..." or axis.startswith("*"):
        return ()
    if axis.isdigit():
        return (int(axis),)
    for sign in "-+":
        if sign in axis:
            name, number = axis.split(sign)
            return (max(0, sizes[name] + int(f"{sign}{number}")),)
    return (sizes[axis if axis != "_" else f"_{len(sizes.axes)}"],)


def tensor(draw, hint, sizes):
    size, seed = shape(hint, sizes), draw(st.integers(0, 9))
    kinds = set(hint.dtypes) if isinstance(hint.dtypes, list | tuple) else {"int64"}  # of any kind, integers
    if "float32" not in kinds:
        return _of_integers(size, seed, kinds)
    exact = _numbers(size, seed, symmetric=len(size) == 2 and hint.dim_str.split()[-1] == hint.dim_str.split()[-2])
    form = draw(st.sampled_from(FORMS))
    return Value(f"{form.__name__} {size} {seed}", lambda: form(exact), lambda: exact.clone())


def _of_integers(size, seed, kinds):
    draws = torch.randint(0, 2, size, generator=torch.Generator().manual_seed(seed))
    value = draws if "int64" in kinds else draws > 0
    return Value(f"{value.dtype} {size} {seed}", lambda: value)


def _numbers(size, seed, symmetric=False):
    """Halves and quarters, which every precision has."""
    draws = torch.randint(-8, 9, size, generator=torch.Generator().manual_seed(seed)).double() / 4 + 0.125
    return (draws + draws.T) / 2 if symmetric else draws


def plain(x):
    return x.clone()


def strided(x):
    return x.repeat_interleave(2, dim=-1)[..., ::2] if x.ndim else x


def single(x):
    return x.float()


def tracked(x):
    return x.clone().requires_grad_()


FORMS = (plain, plain, strided, single, tracked)


# What does not --------------------------------------------------------------------------------------------------------

HOSTILE = [
    *map(same, (None, -1, 0, 1.5, -1.0, 2**70, math.nan, math.inf, -math.inf, 1e308, 5e-324, True, "a", "", "a\0b")),
    *map(same, ((), {}, [], ..., 1j, "é" * 300, [None], {"a": None}, b"a")),
    Value("object()", object),
    Value("numpy.ones(2)", lambda: np.ones(2)),
    Value("tensor()", lambda: torch.tensor(2.0)),
    same(int),
]
NUMBERS = [same(x) for x in (-1, 0, 1.0, -1.0, 2**70, 2**40, math.nan, math.inf, 1e308, 5e-324, "1", None, True)]


def hostile(draw, hint, sizes):
    """A value of the wrong type, shape, sign, size, precision or device, or without a value."""
    parts = [part for part in (hint, *get_args(hint)) if _is_tensor(part)]
    if parts and draw(st.integers(0, 3)):
        return draw(st.sampled_from(_hostile_tensors(shape(parts[0], sizes))))
    if hint in (int, float) and draw(st.booleans()):
        return draw(st.sampled_from(NUMBERS))
    called = any(map(_is_callable, (hint, *get_args(hint))))  # a wrong function fails by itself
    return draw(st.sampled_from(HOSTILE[:-1] if called else HOSTILE))


def _hostile_tensors(size):
    with_entry = lambda entry: torch.ones(size).index_put_((torch.tensor(0),) * len(size), torch.tensor(entry))
    return [
        _of_either_precision("one axis more", lambda: torch.ones(*size, 2)),
        _of_either_precision("other sizes", lambda: torch.ones([n + 1 for n in size])),
        _of_either_precision("no entries", lambda: torch.ones([0] * max(1, len(size)))),
        Value("integers", lambda: torch.ones(size, dtype=torch.int64)),
        Value("complex", lambda: torch.ones(size, dtype=torch.complex64)),
        Value("half", lambda: torch.ones(size, dtype=torch.float16)),
        Value("no numbers", lambda: torch.ones(size, device="meta")),
        Value("sparse", lambda: torch.ones(size).to_sparse()),
        _of_either_precision("a NaN", lambda: with_entry(math.nan)),
        _of_either_precision("an infinity", lambda: with_entry(math.inf)),
        _of_either_precision("zeros", lambda: torch.zeros(size)),
        Value("large", lambda: torch.full(size, 1e200, dtype=torch.float64)),
        Value("numpy", lambda: np.ones(size)),
        Value("a list", lambda: torch.ones(size).tolist()),
    ]


def _of_either_precision(label, single):
    return Value(label, single, lambda: single().double())


NOTHING = inspect.Parameter.empty
