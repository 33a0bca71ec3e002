"""Errors carry their three parts, and the shared refusals name what they refuse."""

import math
import pickle

import pytest

from ritz import errors
from ritz.errors import ArgumentError, NumericalError, RitzError


def refused(check, *arguments, **numbers):
    with pytest.raises(RitzError) as caught:
        check(*arguments, **numbers)
    assert caught.value.seen and caught.value.why and caught.value.ways_out
    return caught.value


def test_an_error_says_what_was_seen_why_and_the_ways_out():
    error = ArgumentError("seen", "why", "one way", "another")
    assert str(error) == "seen\nwhy\n  - one way\n  - another"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("count", [2.0, 2.5, True, "2", math.nan])
def test_counts_are_integers(count):
    assert f"count={count!r}" in refused(errors.check_whole, fine=1, count=count).seen
    errors.check_whole(count=2, none=None, negative=-1)


@pytest.mark.parametrize("number", [0, -1, 0.0, -1e-300, math.nan, math.inf])
def test_positive_numbers_are_finite_and_above_zero(number):
    error = refused(errors.check_positive, "A width is positive.", fine=1, width=number)
    assert f"width={number}" in error.seen and error.why == "A width is positive." and "width > 0" in error.ways_out[0]
    errors.check_positive(width=1e-300, none=None)


@pytest.mark.parametrize("tolerance", [-1e-300, math.nan, math.inf])
def test_a_tolerance_is_finite_and_not_negative(tolerance):
    assert f"tolerance={tolerance}" in refused(errors.check_tolerance, tolerance).seen
    errors.check_tolerance(0.0)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_products_are_finite(number):
    assert isinstance(refused(errors.check_finite, number), NumericalError)
    errors.check_finite(0.0)
