"""The libraries that are compared, each in a process of its own that is asked for one measurement at a time.

Nothing that one library sets or caches reaches another: PyTorch keeps the convolution algorithms that cuDNN's search
has found, by shape, and would hand those that ritz looked for to its rivals as well.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from scipy.sparse.linalg import eigsh

from . import peers
from .networks import NETWORKS, load
from .problems import PROBLEMS, Problem
from .timing import clear_memory, memory_now, memory_peak, seconds, timed

LIBRARIES: dict[str, Callable[[Problem], Any]] = {
    "ritz": peers.Ritz,
    "ritz, TF32 tangents": partial(peers.Ritz, tangent_precision="high"),
    "curvlinops": peers.Curvlinops,
    "curvlinops compiled": partial(peers.Curvlinops, compiled=True),
    "curvlinops, cuDNN search": peers.Curvlinops,  # as ritz does it, and PyTorch does not unless asked
    "PyHessian": peers.PyHessian,
}
PATIENCE = 280  # seconds for one answer; the CPU has no limit


class Failure(RuntimeError):
    """What a library could not do: the first line of its error."""


class Contestant:
    """A library at work on a problem in another process."""

    def __init__(self, library: str, problem: str, device: str, *, smoke: bool = False) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, library, problem, device, smoke))
        self._process.start()
        theirs.close()  # so that the end of the process is seen here
        self._patience = PATIENCE if device == "cuda" else None

    def ask(self, measurement: str, *args: Any) -> Any:
        """One measurement by its name in `Measurements`."""
        try:
            self._pipe.send((measurement, args))
            if not self._pipe.poll(self._patience):
                self._process.terminate()
                raise Failure(f"no answer within {self._patience} s")
            failed, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise Failure("its process has ended") from error
        if failed:
            raise Failure(answer)
        return answer

    def leave(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):  # it has ended already
            self._pipe.send(None)
        self._process.join()


def _serve(pipe: Connection, library: str, problem: str, device_name: str, smoke: bool) -> None:
    torch.manual_seed(0)  # initial weights
    device, measurements = torch.device(device_name), None
    if problem in NETWORKS:
        load(problem)  # while others are measured
    with peers.fair(search=library == "curvlinops, cuDNN search"):
        while (request := pipe.recv()) is not None:
            name, args = request
            try:
                if measurements is None:
                    built = NETWORKS[problem](device, smoke) if problem in NETWORKS else PROBLEMS[problem](device)
                    measurements = Measurements(LIBRARIES[library], built, device)
                pipe.send((False, getattr(measurements, name)(*args)))
            except Exception as error:
                traceback.print_exc()
                pipe.send((True, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"))


class Measurements:
    """What a contestant can be asked for: seconds of a piece of work, and facts about it."""

    def __init__(self, library: Callable[[Problem], Any], problem: Problem, device: torch.device) -> None:
        self.problem, self.device, self.contestant = problem, device, library(problem)
        self._operators: dict[str, Any] = {}
        self._products: dict[str, Callable[[], Any]] = {}
        self._plain_gradient()  # loads what any user of PyTorch has loaded
        clear_memory(device)
        self._baseline = 0.0 if device.type == "cuda" else memory_now(device)

    def set_up(self, matrix: str) -> tuple[float, float]:
        """Seconds from construction through the first product, and the peak of memory in bytes."""
        clear_memory(self.device)

        def first() -> None:
            self._operators[matrix] = getattr(self.contestant, matrix)()
            self._products[matrix] = peers.product_with(self._operators[matrix], self.problem)
            self._products[matrix]()

        return seconds(first, self.device), memory_peak(self.device) - self._baseline

    def product(self, matrix: str) -> float:
        """Seconds of one product after set-up."""
        return seconds(self._products[matrix], self.device)

    def peak(self, matrix: str) -> float:
        """The peak of memory in bytes while one product is made: on a GPU with model and data, on a CPU beyond them."""
        clear_memory(self.device)
        self._products[matrix]()
        return memory_peak(self.device) - self._baseline

    def gradient(self, matrix: str) -> float:
        """Seconds of one gradient as ritz computes it."""
        return seconds(self.contestant.last_risk.gradient, self.device)

    def facts(self, matrix: str) -> dict[str, Any]:
        """What the operator says of itself: path, bytes kept, errors."""
        info = self._operators[matrix].info
        names = ("path", "kept_bytes", "disagreement", "tangent_error", "num_batches")
        return {name: getattr(info, name) for name in names} if info is not None else {}

    def forget(self, matrix: str) -> None:
        """Drop an operator, so that the next library has the device's memory."""
        self._operators.pop(matrix, None)
        self._products.pop(matrix, None)
        self.contestant.last_risk = None
        clear_memory(self.device)

    def eigenpairs(self) -> tuple[float, float, int]:
        """Seconds from construction, largest relative residual by fresh products, products used."""
        (_, residual, count), taken = timed(self.contestant.eigenpairs, self.device)
        return taken, float(residual), count

    def density(self, num_steps: int = peers.NUM_STEPS) -> tuple[float, float]:
        """Seconds from construction to the curve, and the peak of memory in bytes."""
        clear_memory(self.device)
        taken = seconds(lambda: self.contestant.density(num_steps), self.device)
        return taken, memory_peak(self.device) - self._baseline

    def range_products(self) -> int:
        """How many products ARPACK takes for the range that curvlinops looks for before a density."""
        counted = peers.Counted(self.contestant.hessian().to_scipy())
        eigsh(counted.operator, k=2, which="BE", tol=1e-2)
        return counted.count

    def _plain_gradient(self) -> None:
        x, y = self.problem.batches[0]
        parameters = [p for p in self.problem.model.parameters() if p.requires_grad]
        torch.autograd.grad(self.problem.loss(self.problem.model(x), y), parameters)
