"""Each library in a process of its own, asked for one measurement at a time.

Nothing that one library sets or caches reaches another: PyTorch keeps the convolution algorithms that cuDNN's search
has found, by shape, and would hand those that ritz looked for to its rivals as well.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from scipy.sparse.linalg import eigsh

from . import peers
from .problems import PROBLEMS, Problem
from .timing import seconds, timed

LIBRARIES: dict[str, Callable[[Problem], Any]] = {
    "ritz": peers.Ritz,
    "ritz, TF32 tangents": partial(peers.Ritz, tangent_precision="high"),
    "curvlinops": peers.Curvlinops,
    "curvlinops compiled": partial(peers.Curvlinops, compiled=True),
    "curvlinops, cuDNN search": peers.Curvlinops,  # as ritz does it, and PyTorch does not unless asked
    "PyHessian": peers.PyHessian,
}


class Contestant:
    """A library at work on a problem in another process."""

    def __init__(self, library: str, problem: str, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, library, problem, device))
        self._process.start()

    def ask(self, measurement: str, *args: Any) -> Any:
        """One measurement by its name in `Measurements`."""
        self._pipe.send((measurement, args))
        failed, answer = self._pipe.recv()
        if failed:
            raise RuntimeError(answer)
        return answer

    def leave(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):  # it has ended already
            self._pipe.send(None)
        self._process.join()


def _serve(pipe: Connection, library: str, problem: str, device: str) -> None:
    torch.manual_seed(0)  # initial weights
    measurements = Measurements(LIBRARIES[library], PROBLEMS[problem](torch.device(device)), torch.device(device))
    with peers.fair(torch.device(device), search=library == "curvlinops, cuDNN search"):
        while (request := pipe.recv()) is not None:
            name, args = request
            try:
                pipe.send((False, getattr(measurements, name)(*args)))
            except Exception:
                pipe.send((True, traceback.format_exc()))


class Measurements:
    """What a contestant can be asked for: seconds of a piece of work, and facts about it."""

    def __init__(self, library: Callable[[Problem], Any], problem: Problem, device: torch.device) -> None:
        self.problem, self.device, self.contestant = problem, device, library(problem)
        self._operators: dict[str, Any] = {}
        self._products: dict[str, Callable[[], Any]] = {}

    def product(self, matrix: str) -> float:
        """Seconds of one product; the first one of a matrix sets up, and is not counted."""
        if matrix not in self._products:
            self._operators[matrix] = getattr(self.contestant, matrix)()
            self._products[matrix] = peers.product_with(self._operators[matrix], self.problem)
            self._products[matrix]()
        return seconds(self._products[matrix], self.device)

    def gradient(self, matrix: str) -> float:
        """Seconds of one gradient as ritz computes it."""
        return seconds(self._operators[matrix].matmat.risk.gradient, self.device)

    def trial(self, matrix: str) -> tuple[str, float, float]:
        """The path that ritz has chosen, the bytes that it keeps, and the error of its tangents."""
        trial = self._operators[matrix].matmat.trial
        examples = sum(len(y) for _, y in self.problem.batches)
        return trial.path.name, trial.example_bytes * examples, trial.tangent_error

    def eigenpairs(self) -> tuple[float, float, int]:
        """Seconds from construction, largest relative residual by fresh products, products used."""
        (_, residual, count), taken = timed(self.contestant.eigenpairs, self.device)
        return taken, float(residual), count

    def density(self, num_steps: int = peers.NUM_STEPS) -> tuple[float, str]:
        """Seconds from construction to the curve, and the peak of memory."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        taken = seconds(lambda: self.contestant.density(num_steps), self.device)
        if self.device.type == "cuda":
            return taken, f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB"
        return taken, f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB of the process so far"

    def range_products(self) -> int:
        """How many products ARPACK takes for the range that curvlinops looks for before a density."""
        counted = peers.Counted(self.contestant.hessian().to_scipy())
        eigsh(counted.operator, k=2, which="BE", tol=1e-2)
        return counted.count
