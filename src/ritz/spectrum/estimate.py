"""A number with its standard error and its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ArgumentError

BRIEF, EXACT = 5, 5e-6  # digits, and the relative error below which all of them are right


@dataclass(frozen=True, init=False, repr=False)
class Estimate:
    """A number with its standard error and its cost; reading an error that is not known raises.

    >>> estimate = ritz.Estimate(12.3456, 0.05, 100)
    >>> estimate
    12.35 ± 0.05 (100 products)
    >>> float(estimate), estimate.standard_error
    (12.3456, 0.05)
    """

    value: float
    num_products: int
    _error: float | None

    def __init__(self, value: float, standard_error: float | None, num_products: int) -> None:
        object.__setattr__(self, "value", float(value))
        object.__setattr__(self, "num_products", int(num_products))
        object.__setattr__(self, "_error", None if standard_error is None else float(standard_error))

    @property
    def has_error(self) -> bool:
        """Whether `standard_error` is known: it takes two probes, or a few steps of one."""
        return self._error is not None

    @property
    def standard_error(self) -> float:
        """The standard error of `value`; too few probes, or steps of a recursion, have none."""
        if self._error is None:
            raise ArgumentError(
                f"A standard error was requested from an estimate that has none ({self.value:.4g}).",
                "It comes from too few probes or steps: one probe has no scatter, one step no change to measure it by.",
                "Allow more probes, steps or products.",
            )
        return self._error

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        products = f"{self.num_products} product{'s' * (self.num_products != 1)}"
        if self._error is None:
            return f"{value_with_error(self.value, None)} ({products}, error unknown)"
        return f"{value_with_error(self.value, self._error)} ({products})"


def digits_within(value: float, error: float) -> str:
    """The value to the digit that its error reaches, with six digits at least and nine at most.

    >>> digits_within(112.99985504, 6e-6), digits_within(113.0, 1e-7), digits_within(1.115163, 1e-3)
    ('112.999855', '113.000000', '1.11516')
    """
    if not (math.isfinite(value) and 0 < error < 1e-5 * abs(value)):
        return f"{value:.6g}"
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(error)) + 1
    return f"{value:#.{min(digits, 9)}g}".rstrip(".")


def value_with_error(value: float, error: float | None) -> str:
    """The value to the digit that its error reaches, with that error; to four digits where none is known.

    >>> value_with_error(12.3456, 0.05), value_with_error(2.1e-5, 1e-5), value_with_error(12.3456, None)
    ('12.35 ± 0.05', '(2 ± 1)e-05', '12.35')
    """
    if error is None:
        return f"{value:.4g}"
    if not (math.isfinite(value) and math.isfinite(error) and error > 1e-9 * abs(value)):
        return f"{value:.9g} ± {error:.1g}"
    size = max(abs(value), error)
    exponent = math.floor(math.log10(size)) if not 1e-3 <= size < 1e6 else 0
    decimals = max(0, exponent - math.floor(math.log10(float(f"{error:.0e}"))))  # 0.97 is 1, not 1.0
    digits = f"{value / 10**exponent:.{decimals}f} ± {error / 10**exponent:.{decimals}f}"
    return f"({digits})e{exponent:+03d}" if exponent else digits


def end_in_brief(value: float, zero: float) -> str:
    """The end of a spectrum in four digits; one that rounding cannot tell from zero is zero to within that.

    >>> end_in_brief(-0.042111, 3e-6), end_in_brief(-4.651e-10, 3e-6)
    ('-0.04211', '0 ± 3e-06')
    """
    return f"{value:.4g}" if abs(value) > zero or not zero else f"0 ± {zero:.1g}"


def value_in_brief(value: float, error: float | None) -> str:
    """The value with its error, or in five digits without it if these are right.

    >>> value_in_brief(12.345678, 1e-5), value_in_brief(12.3456, 0.05)
    ('12.346', '12.35 ± 0.05')
    """
    right = error is not None and error <= EXACT * abs(value)
    return f"{value:.{BRIEF}g}" if right else value_with_error(value, error)
