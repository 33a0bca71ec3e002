"""Calls with names that a function does not have, or without some that it needs: refused with those it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..errors import ArgumentError, nearest_first

HABITS = {  # what other libraries call an argument, and its name here
    "seed": "generator", "random_state": "generator", "rng": "generator",
    "maxiter": "max_products", "max_iter": "max_products", "n_iter": "num_steps", "n_vec": "num_probes",
    "n_samples": "num_products", "num_samples": "num_products",
}  # fmt: skip
ELSEWHERE = {
    "dtype": "Convert the model, model.double(), or the risk, risk.to(torch.float64).",
    "device": "Move the model and the data, or the risk: risk.to('cuda').",
}


class CallError(ArgumentError, TypeError):
    """The arguments of a call do not fit the names of the function; a TypeError, as Python's own."""


def _miscalled(function: Callable, args: tuple, kwargs: dict[str, Any]) -> CallError | None:
    """The refusal of arguments that a function does not have, or lacks; None if they are its own."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        what = str(error)
    else:
        return None
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    others = [p.name for p in parameters if p.name not in by_name]
    takes = [f"{', '.join(others)}" if others else "", f"by name {', '.join(by_name)}" if by_name else ""]
    why = f"It takes {'; '.join(filter(None, takes)) or 'nothing'}."
    known = [p.name for p in parameters]
    ways = [_way_to_name(name, known) for name in kwargs if name not in known]
    other = "Pass what is missing." if what.startswith("missing") else "Pass these alone, and options by name."
    return CallError(f"{called(function)}: {what}.", why, *ways or [other])


def _way_to_name(unknown: str, known: Sequence[str]) -> str:
    """The argument that was probably meant by an unknown name."""
    meant = HABITS.get(unknown, "")
    near = meant if meant in known else next(iter(nearest_first([unknown], ["", *known])), "")
    if not near:
        return ELSEWHERE.get(unknown, f"Leave out {unknown}.")
    return f"For {unknown}, pass {near}{'=torch.Generator().manual_seed(0)' if near == 'generator' else ''}."


def called(function: Callable) -> str:
    """The name by which a function is called: with its class if it is a method, the class alone if it makes one."""
    return function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")


def named(function: Callable) -> Callable:
    """The function, with calls that do not fit its names refused in our words."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except TypeError:
            if (answer := _miscalled(function, args, kwargs)) is None:
                raise
            raise answer from None

    return checked
