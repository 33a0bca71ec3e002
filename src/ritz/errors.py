"""The errors and warnings of ritz, and the checks that all parts share.

Every message says what was seen, why it is a problem, and the ways out.
"""

import math
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Integral
from typing import Any

__all__ = [  # what users may meet; the rest is for the parts of ritz
    "RitzError", "DataError", "ModelError", "ArgumentError", "NumericalError", "OperatorError", "OutOfMemoryError",
    "FileError", "MissingFactError",
    "PrecisionWarning", "PaddingWarning", "OutputsWarning", "VersionWarning", "ResumptionWarning",
    "ConvergenceWarning",
]  # fmt: skip

BETWEEN = ("ritz", "torch", "contextlib", "functools")  # whose frames may lie between a warning and its user


class RitzError(Exception):
    """An error with its remedy. `except ritz.RitzError` catches everything this library raises on purpose.

    >>> print(RitzError("k=0 was given.", "A search looks for something.", "Ask for one or more."))
    k=0 was given.
    A search looks for something.
      - Ask for one or more.
    """

    def __init__(self, seen: str, why: str, *ways_out: str) -> None:
        self.seen, self.why, self.ways_out = seen, why, ways_out
        super().__init__(seen, why, *ways_out)  # as given, so that an error survives pickling between processes

    def __str__(self) -> str:
        return "\n".join([self.seen, self.why, *(f"  - {way}" for way in self.ways_out)])


def first_line(error: BaseException) -> str:
    """The first line of another library's error message; the error's class name if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def kind_of(value: object) -> str:
    """What a value is, with its article: a class by its name, any other value by its class.

    >>> kind_of(1.0), kind_of(1), kind_of(str)
    ('a float', 'an int', 'the class str')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeio' or name == 'ndarray' else 'a'} {name}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def nearest_first(sought: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names, those first that are spelled like one that was sought: there may be too many to be read.

    >>> nearest_first(["rsik"], ["triple", "none", "risk"])
    ['risk', 'triple', 'none']
    """
    near = [name for one in sought for name in get_close_matches(one, names, n=3, cutoff=0.5)]
    return [*dict.fromkeys([*near, *names])]


class DataError(RitzError):
    """The data cannot define a risk: empty, out of range, different at every pass, on another device."""


class ModelError(RitzError):
    """The model has no well-defined curvature here: random, half precision, in train mode, not differentiable twice."""


class ArgumentError(RitzError, ValueError):
    """An argument that no computation could satisfy, such as more eigenpairs than parameters."""


class NumericalError(RitzError, ArithmeticError):
    """The numbers themselves forbid the result: NaN, infinity, or a matrix that is not positive definite."""


class OperatorError(RitzError, AssertionError):
    """An operator is not what solvers take it for: linear, symmetric, of its own precision."""


class OutOfMemoryError(RitzError, MemoryError):
    """Memory does not suffice, even for the smallest pieces the work can be cut into."""


class FileError(RitzError, OSError):
    """A file or folder that cannot be read or written."""


class MissingFactError(FileError, KeyError):
    """A record without an entry that was asked for."""


class PrecisionWarning(UserWarning):
    """The model computes internally in lower precision than its parameters have, which limits all results."""


class PaddingWarning(UserWarning):
    """Terms that stand for padding are counted in the loss, so that its mean over all terms is too small."""


class OutputsWarning(UserWarning):
    """The outputs look like probabilities where the loss expects logits or log-probabilities, or do not follow θ."""


class VersionWarning(UserWarning):
    """A computation resumes from a file written by other versions of the software."""


class ResumptionWarning(UserWarning):
    """A computation keeps something that its file does not hold, so that going on from it may give other bits."""


class ConvergenceWarning(UserWarning):
    """A result is less accurate than requested; its own residuals or errors say how accurate it is."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called ritz, past all frames of its own: guards, solvers inside solvers."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_whole(**counts: int | None) -> None:
    """Refuse counts that are not integers: 2.0 is whole only by luck, and 2.5 would be cut."""
    for name, count in counts.items():
        if count is not None and (not isinstance(count, Integral) or isinstance(count, bool)):
            raise ArgumentError(
                f"{name}={count!r} was given.", "It is a count, so it must be an integer.", "Pass an int."
            )


def check_instance(kind: type, way_out: str, /, **values: Any) -> None:
    """Refuse values that are not instances of this class; the way out says how to make one."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} is {kind_of(value)}.", f"It must be a {kind.__name__}.", way_out)


def check_positive(why: str = "It must be finite and positive.", /, **numbers: float | int | None) -> None:
    """Refuse NaN, infinity, zero and less; `why` says what the numbers are for."""
    for name, number in numbers.items():
        if number is not None and not (_is_finite(number) and number > 0):
            way_out = f"Pass {name} > 0, or leave it out where it has a default."
            raise ArgumentError(f"{name}={number!r} was given.", why, way_out)


def check_number(**numbers: float) -> None:
    """Refuse NaN and infinity, and what cannot be made a float."""
    for name, number in numbers.items():
        if not _is_finite(number):
            raise ArgumentError(
                f"{name}={number!r} was given.", "It must be a finite number.", "Pass an int or a float."
            )


def check_tolerance(tolerance: float) -> None:
    """Refuse NaN, infinity and less than zero."""
    if not (_is_finite(tolerance) and tolerance >= 0):
        raise ArgumentError(
            f"tolerance={tolerance!r} was given.",
            "It must be finite and not negative.",
            "Pass 0 or more, or leave it out.",
        )


def check_finite(number: float) -> None:
    """Refuse to go on with a product that holds NaN or infinity, as seen by a number computed from it."""
    if not math.isfinite(number):
        raise NumericalError(
            "A product with the operator is NaN or infinite.",
            "Every number computed from it would be NaN or infinite too.",
            "Check the loss and the weights for NaN, or compute in float64.",
        )


def _is_finite(value: Any) -> bool:
    """Whether a value is a number, and finite."""
    try:
        return math.isfinite(value)
    except TypeError:
        return False
