"""The verdict on a call: a right result, a refusal with its three parts, or a fault."""

import dataclasses
import inspect
import math
import signal
import traceback
import types
import typing
import warnings
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import jaxtyped

from ritz.errors import RitzError

SECONDS = 60
MAY_BE_NAN = {
    "Estimate.standard_error": "unknown after one probe",
}


class Endless(BaseException):
    """A call did not end."""


@contextmanager
def limited(seconds=SECONDS):
    def stop(number, frame):
        raise Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(call):
    """("result", value), ("refused", error) or ("fault", words)."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "result", _used(call())
    except RitzError as error:
        whole = error.seen and error.why and error.ways_out
        return ("refused", error) if whole else ("fault", f"a refusal without its three parts: {error!r}")
    except Endless:
        return "fault", f"no end after {SECONDS} s"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/ritz/" in frame.filename]
        place = f"{ours[-1].filename.split('/ritz/')[-1]}:{ours[-1].lineno}" if ours else where.filename
        return "fault", f"{type(error).__name__} at {place}: {str(error)[:150]}"


def _used(result):
    """A generator computes only when it is asked, a context only when it is entered."""
    if isinstance(result, types.GeneratorType):
        return [item for _, item in zip(range(3), result, strict=False)]
    if hasattr(result, "__enter__") and hasattr(result, "__exit__"):
        with result as inner:
            return inner
    return result


# A right result -------------------------------------------------------------------------------------------------------


def wrong_shape(result, hint, arguments, hints):
    """Words where the result is not what its annotation says, given the sizes of the arguments."""
    if isinstance(result, list) and typing.get_origin(hint) is not list:
        return None  # of a generator
    with jaxtyped("context"):
        for name, value in arguments.items():
            for part in (hints.get(name), *typing.get_args(hints.get(name))):
                if hasattr(part, "dim_str") and isinstance(value, torch.Tensor) and isinstance(value, part):
                    break
        return None if _fits(result, hint) else f"{_described(result)} is not {hint}"


def _fits(result, hint):
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(result, one) for one in inner)
    if hint is typing.Any:
        return True
    if hint in (None, type(None)):
        return result is None
    if hint is float:
        return isinstance(result, float | int)
    if hint is int:
        return isinstance(result, int) and not isinstance(result, bool)
    if origin is tuple and inner and inner[-1] is not ...:
        return isinstance(result, tuple) and len(result) == len(inner) and all(map(_fits, result, inner))
    if hasattr(hint, "dim_str") or (inspect.isclass(hint) and origin is None and not getattr(hint, "_is_protocol", 0)):
        return isinstance(result, hint)
    return True


def _described(result):
    if isinstance(result, torch.Tensor):
        return f"a tensor {tuple(result.shape)} of {result.dtype}"
    return f"a {type(result).__name__}"


def not_a_number(result, name="", depth=0):
    """The name of the first part of a result that is NaN."""
    if name in MAY_BE_NAN or depth > 4:
        return None
    if isinstance(result, torch.Tensor) and result.is_meta:
        return name or "the result"
    if isinstance(result, torch.Tensor):
        result = result.to_dense() if result.is_sparse else result
        return name or "the result" if result.is_floating_point() and bool(result.isnan().any()) else None
    if isinstance(result, float | np.floating):
        return name or "the result" if math.isnan(result) else None
    parts = _parts(result)
    found = (not_a_number(part, f"{type(result).__name__}.{key}", depth + 1) for key, part in parts)
    return next(filter(None, found), None)


def _parts(result):
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return [(field.name, getattr(result, field.name, None)) for field in dataclasses.fields(result)]
    if isinstance(result, dict):
        return list(result.items())
    return list(enumerate(result)) if isinstance(result, list | tuple) else []


def differs(one, two, rtol=1e-3, depth=0):
    """Words where two results are not the same within the rounding of float32."""
    if depth > 4:
        return None
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return _far(one, two, rtol)
    if isinstance(one, float | int | np.number) and isinstance(two, float | int | np.number):
        close = one == two or abs(one - two) <= rtol * max(abs(one), abs(two), 1e-3) or (one != one and two != two)
        return None if close else f"{one} against {two}"
    if isinstance(one, torch.nn.Module | torch.Generator) or callable(one):
        return None
    first, second = dict(_parts(one)), dict(_parts(two))
    if first.keys() != second.keys():
        return f"{list(first)} against {list(second)}"
    found = (differs(first[key], second[key], rtol, depth + 1) for key in first)
    return next(filter(None, found), None)


def _far(one, two, rtol):
    if one.shape != two.shape:
        return f"shape {tuple(one.shape)} against {tuple(two.shape)}"
    if not one.is_floating_point() or not one.numel() or one.is_meta or one.is_sparse:
        return None
    one, two = one.detach().double(), two.detach().double()
    off, scale = float((one - two).abs().max()), float(two.abs().max())
    return None if not off > rtol * max(scale, 1e-3) else f"off by {off:.1e} of {scale:.1e}"
