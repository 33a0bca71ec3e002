"""Lanczos recursions from random probes, as many at once as there is room for, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..operators import Operator
from ..record.checkpoints import State
from ..record.layouts import check_arrays, check_facts, like
from .lanczos_recursion import MARKS, Recursion, in_step
from .resumption import Resumption
from .tridiagonal import Tridiagonal, joined
from .vectors import SKEW, norms, room

WRITTEN = 12  # vectors of a run that writes them to a file now and then, two a probe
COEFFICIENTS = ("diagonal", "off_diagonal", "residual", "marks")  # of a run that is over
RUNNING = ("previous", "current", "alpha", "beta", "scale", "marks")  # of one that is not


def random_recursions(
    A: Operator,
    num_probes: int,
    num_steps: int,
    generator: torch.Generator,
    *,
    outside: Float[Tensor, "k n"] | None = None,
    file: Resumption | None = None,
) -> Tridiagonal:
    """`recursion` from normal probes, as many in step as there is room for."""
    most = in_step(num_probes if file is None else min(num_probes, WRITTEN // 2), room(A))
    runs, run = _runs_so_far(A, num_probes, num_steps, generator, outside, file)
    while left := num_probes - sum(one.num_probes for one in runs):  # a resumed run may have begun with other room
        if run is None:
            run = Recursion.of_probes(A, min(most, left), num_steps, generator, outside, room(A))
        written = partial(_state, runs, run, generator)
        keep = None if file is None or run.basis is not None else partial(file.keep, written)
        run.extend(A, num_steps, keep)
        runs.append(run.result())
        run = None
    return joined(runs)


def _state(runs: list[Tridiagonal], run: Recursion, generator: torch.Generator) -> State:
    """The finished runs, and the one under way before a step, for a file."""
    arrays = {f"{i}/{name}": getattr(one, name) for i, one in enumerate(runs) for name in COEFFICIENTS}
    arrays |= {name: getattr(run, name) for name in RUNNING}
    over = [[one.num_probes, one.num_steps] for one in runs]
    return {**arrays, "generator": generator.get_state()}, {"runs": over, "probes": run.num_probes, "count": run.count}


def _runs_so_far(
    A: Operator,
    num_probes: int,
    num_steps: int,
    generator: torch.Generator,
    outside: Tensor | None,
    file: Resumption | None,
) -> tuple[list[Tridiagonal], Recursion | None]:
    """The finished runs and the one under way from a file; none without a file."""
    if file is None or file.under_way is None:
        return [], None

    def runs_of_state(arrays: Mapping[str, Tensor], header: Mapping[str, Any]) -> tuple[list[Tridiagonal], Recursion]:
        check_arrays(arrays, _layout(A, num_probes, num_steps, header) | {"generator": generator.get_state()})
        parts_of = lambda i: {name: arrays[f"{i}/{name}"] for name in COEFFICIENTS}
        runs = [Tridiagonal(**parts_of(i)) for i in range(len(header["runs"]))]
        parts = {name: arrays[name].to(A.device) for name in RUNNING}
        run = Recursion(**parts, basis=None, outside=outside, count=header["count"])
        _check_recursion(run)
        if not all(bool((one.off_diagonal >= 0).all() & (one.residual >= 0).all()) for one in runs):
            raise ValueError("a length among its coefficients is negative")
        generator.set_state(arrays["generator"])
        return runs, run

    return file.read(runs_of_state)


def _layout(A: Operator, num_probes: int, num_steps: int, header: Mapping[str, Any]) -> dict[str, Tensor]:
    """The layout of the arrays, when runs of these sizes are finished and another one is under way."""
    check_facts(header, runs=list, probes=range(1, num_probes + 1), count=range(num_steps))
    layout, left = dict[str, Tensor](), num_probes - header["probes"]
    for i, (probes, steps) in enumerate(header["runs"]):
        check_facts({"probes": probes, "steps": steps}, probes=range(1, left + 1), steps=range(1, num_steps + 1))
        shapes = ((probes, steps), (probes, steps - 1), (probes,), (probes, steps, MARKS))
        layout |= {f"{i}/{name}": like(torch.float64, *shape) for name, shape in zip(COEFFICIENTS, shapes, strict=True)}
        left -= probes
    p = header["probes"]
    layout |= {name: like(A.dtype, p, A.size) for name in ("previous", "current")} | {"scale": like(torch.float64, p)}
    layout |= {name: like(torch.float64, num_steps, p) for name in ("alpha", "beta")}
    return layout | {"marks": like(torch.float64, num_steps, p, MARKS)}


def _check_recursion(run: Recursion) -> None:
    """Refuse vectors that are neither of length one nor zero, and coefficients that no recursion has.

    Wrong coefficients of earlier steps cannot be detected: the vectors that they come from are gone.
    """
    lengths = torch.stack([norms(run.previous), norms(run.current)])
    if bool(((lengths - 1).abs() > SKEW).logical_and(lengths > 0).any()):
        raise ValueError("its vectors are not of length one")
    made, rest = (torch.stack([run.alpha[part], run.beta[part]]) for part in (slice(run.count), slice(run.count, None)))
    if bool((made.abs() > (1 + SKEW) * run.scale).any() | rest.any() | (run.beta < 0).any()):
        raise ValueError(f"its coefficients are not those of {run.count} steps")
