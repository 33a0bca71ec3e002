"""The curves of error against products for all kinds of work, measured by several processes at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context

import torch

from . import densities, determinants, eigenpairs, traces
from .matrices import MATRICES, Matrix
from .work import Row, measured

WORKS = {module.WORK.name: module.WORK for module in (eigenpairs, densities, traces, determinants)}
Task = tuple[str, str, str, int, int, str, str]  # matrix, work, contestant, seeds, most products, commit, device


def curves(tasks: list[Task], jobs: int) -> Iterator[tuple[Row, str]]:
    """Each as it is ready; of several processes, every one has one thread."""
    if jobs == 1:
        yield from map(_curve, tasks)
        return
    for problem, device in dict.fromkeys((task[0], task[-1]) for task in tasks):
        _matrix(problem, device)  # once, before all processes would: what took long is kept in a file
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        for job in as_completed([pool.submit(_curve, task) for task in tasks]):
            yield job.result()


def _curve(task: Task) -> tuple[Row, str]:
    """A curve, and what is said of it."""
    problem, work, name, seeds, most, commit, device = task
    matrix, started = _matrix(problem, device), time.perf_counter()
    row = measured(problem, matrix, WORKS[work], name, seeds, most, commit)
    return row, f"{problem}, {work}, {name}: {time.perf_counter() - started:.0f} s {row.failure}"


@cache
def _matrix(problem: str, device: str) -> Matrix:
    return MATRICES[problem](torch.device(device))
