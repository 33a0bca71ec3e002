"""`python -m benchmarks.theory`: what closed forms cost as networks grow, against the dense route where that can run.

One thread, float64. "grows" is the exponent of the last step, time ~ size^grows; a dense spectrum grows with 3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ritz import theory
from ritz.verify.check import dense_hessian, normal, squared_error

REPEATS = 3  # the fastest counts: the machine may be shared
DENSE_SIZE = 1500  # parameters up to which the dense route runs


@dataclass(frozen=True)
class Case:
    """One closed form: its input at a given width, and the loss that the dense route differentiates."""

    name: str
    widths: tuple[int, ...]
    inputs: Callable[[int], tuple[Tensor, ...]]
    closed_form: Callable[..., theory.ClosedForm]
    dense: Callable[..., Tensor]


def scalar(m: int) -> tuple[Tensor, ...]:
    """w, v of width m, and as many examples."""
    return tuple(normal(torch.Generator().manual_seed(i), m) for i in range(4))


def pair(m: int) -> tuple[Tensor, ...]:
    """W1, W2 of hidden width m with ten inputs and outputs, and a thousand examples."""
    shapes = ((m, 10), (10, m), (1000, 10), (1000, 10))
    return tuple(normal(torch.Generator().manual_seed(i), *shape) for i, shape in enumerate(shapes))


def head(d: int) -> tuple[Tensor, ...]:
    """w_q, w_k of width d, w_v = 1, and one sequence of a hundred."""
    w_q, w_k, x, y = (normal(torch.Generator().manual_seed(i), size) for i, size in enumerate((d, d, 100, 100)))
    return w_q / d**0.5, w_k / d**0.5, torch.tensor(1.0), x, y


def attention(w_q: Tensor, w_k: Tensor, w_v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The dense Hessian of a head."""

    def loss(w_v: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
        return squared_error(w_v * ((torch.outer(x, x) * (w_q @ w_k) / len(w_q) ** 0.5).softmax(1) @ x), y)

    return dense_hessian(loss, w_v, w_q, w_k)


CASES = (
    Case(
        "linear_network",
        (100, 10**4, 10**5, 10**6),
        scalar,
        theory.linear_network,
        lambda w, v, x, y: dense_hessian(lambda v, w: squared_error((w @ v) * x, y), v, w),
    ),
    Case(
        "relu_network",
        (100, 10**4, 10**5, 10**6),
        scalar,
        theory.relu_network,
        lambda w, v, x, y: dense_hessian(lambda v, w: squared_error(torch.relu(torch.outer(x, v)) @ w, y), v, w),
    ),
    Case(
        "two_layer_linear",
        (50, 10**3, 10**4, 10**5),
        pair,
        theory.two_layer_linear,
        lambda A, B, X, Y: dense_hessian(lambda A, B: squared_error(X @ A.T @ B.T, Y), A, B),
    ),
    Case("self_attention", (100, 10**4, 10**5, 10**6), head, theory.self_attention, attention),
)


def seconds(work: Callable[[], Any]) -> float:
    """The fastest of a few runs."""

    def once() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return min(once() for _ in range(REPEATS))


def rows(case: Case) -> list[tuple[str, ...]]:
    """Name, width, parameters, time, exponent, dense time."""
    found, before = list[tuple[str, ...]](), (0, 0.0)
    for width in case.widths:
        inputs = case.inputs(width)
        size, spent = case.closed_form(*inputs).size, seconds(lambda given=inputs: case.closed_form(*given))
        grows = f"{math.log(spent / before[1]) / math.log(width / before[0]):.2f}" if before[0] else ""
        dense = "-"
        if size <= DENSE_SIZE:
            dense = f"{seconds(lambda given=inputs: torch.linalg.eigvalsh(case.dense(*given))):.3f} s"
        found.append((case.name, f"{width:,}", f"{size:,}", f"{spent:.4f} s", grows, dense))
        before = (width, spent)
    return found


def main() -> None:
    """Measure all cases and print one table."""
    torch.set_num_threads(1)
    table = Table("closed form", "width", "parameters", "time", "grows", "dense", title="Closed forms, one thread")
    for case in CASES:
        for row in rows(case):
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
