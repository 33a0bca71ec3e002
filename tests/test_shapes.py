"""The checker that all tests run under: it refuses what jaxtyping's own decorator refuses, and nothing else."""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, Int, TypeCheckError
from jaxtyping._decorator import jaxtyped
from torch import Tensor, ones

from ritz.solvers.vectors import inner
from tests.shapes import checked, unchecked
from tests.source import every_path

by_jaxtyping = functools.partial(jaxtyped, typechecker=beartype)


def product(X: Float[Tensor, "a n"], y: "Float[Tensor, ' n']", *more: int, scale: str = "") -> Float[Tensor, " a"]:
    return (X @ y)[: more[0] if more else None]


def squares(x: Float[Tensor, "n n"] | None, take: Callable[[int], int] = int) -> Iterator[Float[Tensor, "n n"]]:
    yield x


def unknown(x: "Nowhere", n: int) -> "Nowhere":  # noqa: F821
    return x


def nothing(x: Int[Tensor, "..."]) -> None:
    return x if x.dim() else None


@dataclass
class Pair:
    left: Float[Tensor, " n"]
    right: Float[Tensor, " n"]
    names: list[str] = field(default_factory=list)


CALLS = [
    (product, (ones(2, 3), ones(3)), {}),
    (product, (ones(2, 3), ones(2)), {}),
    (product, (ones(2, 3), ones(3, 1)), {}),
    (product, (ones(2, 3), ones(3).long()), {}),
    (product, (ones(2, 3), ones(3), 2), {"scale": "a"}),
    (product, (ones(2, 3), ones(3), 1), {}),
    (product, (ones(2, 3), ones(3), 2, "b"), {}),
    (product, (ones(2, 3),), {"y": ones(3), "scale": 1}),
    (product, (ones(2, 3),), {}),
    (product, (ones(2, 3), ones(3)), {"weight": 1}),
    (squares, (None,), {}),
    (squares, (ones(2, 3),), {}),
    (squares, (ones(2, 2), 3), {}),
    (unknown, (1, 2), {}),
    (unknown, (1, "2"), {}),
    (nothing, (torch.tensor(1),), {}),
    (nothing, (torch.tensor([1]),), {}),
    (Pair, (ones(2), ones(2)), {}),
    (Pair, (ones(2), ones(3)), {}),
    (Pair, (ones(2), ones(2)), {"names": [1]}),
]


def refusal(function, args, kwargs):
    try:
        function(*args, **kwargs)
    except TypeError as error:
        return type(error)


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_a_call_is_refused_where_jaxtyping_refuses_it(function, args, kwargs):
    ours, theirs = (decorated(function, by) for by in (checked, by_jaxtyping))
    assert refusal(ours, args, kwargs) is refusal(theirs, args, kwargs)


@pytest.mark.parametrize("function", [product, squares, unknown, nothing, Pair])
def test_calls_that_were_right_make_no_other_call_right(function):
    ours, theirs = (decorated(function, by) for by in (checked, by_jaxtyping))
    for _, args, kwargs in 2 * [call for call in CALLS if call[0] is function]:
        assert refusal(ours, args, kwargs) is refusal(theirs, args, kwargs)


def test_a_result_of_another_shape_is_refused_after_right_ones():
    @checked
    def first(X: Float[Tensor, "a n"], count: float, *, kind: type = Tensor) -> Float[Tensor, " n"]:
        return X[0, : int(count)]

    for _ in range(2):
        assert len(first(ones(2, 3), 3.0)) == 3
    with pytest.raises(TypeCheckError, match="first"):
        first(ones(2, 3), 2.0)  # the same kinds of arguments
    assert len(first(ones(2, 3), 9.0)) == 3


@pytest.mark.parametrize("wrong", [[ones(2), ones(3)], [ones(2), 1], {"a": 1}, (ones(2), ones(2)), Tensor, iter([1])])
def test_what_a_container_holds_is_looked_at_each_time(wrong):
    @checked
    def total(X: list[Float[Tensor, " n"]], axis: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return axis

    for _ in range(2):
        total([ones(2), ones(2)], ones(2))
    for _ in range(20):  # one entry of a list is looked at, drawn at random
        try:
            total(wrong, ones(2))
        except TypeError:
            return
    pytest.fail("never refused")


def decorated(thing, by):
    """A class is changed by its decorator: each gets one of its own."""
    return by(type(thing.__name__, (thing,), {}) if inspect.isclass(thing) else thing)


def test_a_function_within_another_is_checked_each_time_it_is_defined():
    def adder(y):
        @checked
        def add(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
            return x + y

        return add

    assert adder(1.0)(ones(2))[0] == 2 and adder(2.0)(ones(2))[0] == 3
    with pytest.raises(TypeCheckError, match="add"):
        adder(ones(2, 2))(ones(2))


def test_every_function_of_ritz_is_checked():
    for path in every_path():
        module = importlib.import_module(".".join(("ritz", *path)).removesuffix(".__init__"))
        own = [thing for thing in vars(module).values() if getattr(thing, "__module__", "") == module.__name__]
        for thing in filter(inspect.isfunction, own):
            assert hasattr(inspect.unwrap(thing, stop=lambda f: hasattr(f, "of_annotations")), "of_annotations")
    with pytest.raises(TypeCheckError, match="inner"):
        inner(ones(2, 3), ones(2, 4))


def test_a_test_can_turn_the_checks_of_shapes_off():
    with unchecked():
        assert inner(ones(2, 3), ones(2, 4)).shape == (2, 2)
