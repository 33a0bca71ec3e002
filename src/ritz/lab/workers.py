"""Workers that run the tasks of a sweep: this process, processes of this machine, or a Ray cluster.

No scheduler of our own: a pool of Python's runs one task at a time, Ray runs the rest.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Protocol, runtime_checkable

import torch

from .. import progress
from ..errors import ArgumentError, warn_user
from ..record import Record
from .tasks import Failure, Task, check_importable, not_importable, outcome_of

__all__ = ["Failure", "InProcess", "Processes", "Ray", "SweepWarning", "Workers"]

Outcomes = Generator[tuple[str, "Record | Failure"], None, None]


class SweepWarning(UserWarning):
    """A problem that a sweep recovered from, or will report at its end.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", SweepWarning)
    ...     warn("It is computed again.")
    """


@runtime_checkable
class Workers(Protocol):
    """What runs the tasks of a sweep: yields the outcome of each, in any order, and raises only before the first.

    >>> isinstance(InProcess(), Workers)
    True
    """

    def outcomes(self, task: Task, configs: Mapping[str, Any]) -> Outcomes:
        """The name of each config, with its record or its failure."""


@dataclass(frozen=True)
class InProcess:
    """One task after the other, here.

    >>> [(name, record.scalars) for name, record in InProcess().outcomes(lambda x: {"y": 2 * x}, {"three": 3})]
    [('three', {'y': 6})]
    """

    def outcomes(self, task: Task, configs: Mapping[str, Any]) -> Outcomes:
        """The name of each config with its outcome, in the order of the configs."""
        for name, config in configs.items():
            yield name, outcome_of(task, config)


@dataclass(frozen=True)
class Processes:
    """Tasks over processes of this machine, each with its share of the cores; a process that dies costs only its task.

    A task whose process died (killed, out of memory) is tried again in a fresh one, `retries` times at most.

    >>> Processes(count=4)
    Processes(count=4, retries=2)
    """

    count: int | None = None  # as many as cores, unless given
    retries: int = 2

    def outcomes(self, task: Task, configs: Mapping[str, Any]) -> Outcomes:
        """The name of each config with its outcome, in the order in which they end."""
        count = min(self._count(), len(configs))
        threads = max(1, min(_cores(), torch.get_num_threads()) // count)  # OMP_NUM_THREADS=1 means one
        check_importable(task)
        idle = [_Worker(threads) for _ in range(count)]
        busy = dict[Future[Record | Failure], tuple[str, _Worker]]()
        queue, deaths = deque(configs), Counter[str]()
        try:
            idle[0] = _ready_worker(idle[0], task, self.retries)
            while queue or busy:
                while queue and idle:
                    name, worker = queue.popleft(), idle.pop()
                    busy[worker.submit(_quiet_outcome, task, configs[name])] = name, worker
                for future in wait(busy, return_when=FIRST_COMPLETED).done:
                    name, worker = busy.pop(future)
                    outcome = _result(future)
                    if outcome is None:
                        worker.close()
                        worker = _Worker(threads)
                        deaths[name] += 1
                        outcome = self._failure(configs[name], deaths[name])
                    idle.append(worker)
                    if outcome is None:
                        queue.append(name)
                    else:
                        yield name, outcome
        finally:
            for worker in [*idle, *(worker for _, worker in busy.values())]:
                worker.close()

    def _failure(self, config: Any, deaths: int) -> Failure | None:
        """The failure of a task whose process died too often; None, with a warning, if it is to be tried again."""
        if deaths > self.retries:
            return Failure(f"Its process died {deaths} times: killed, or out of memory.")
        warn(f"The process of {config} died. It is tried again.")
        return None

    def _count(self) -> int:
        if self.count is not None and self.count < 1:
            raise ArgumentError(
                f"A sweep over {self.count} processes was requested.",
                "A sweep needs at least one process.",
                "Ask for 1 or more, or leave `count` out: then there are as many as cores.",
            )
        return self.count or _cores()


class _Worker:
    """A process in a pool of its own, so that no other task is lost with it. It ends when its leash is let go.

    The leash is a pipe that only the sweeping process holds: even if that process is killed, no worker stays behind.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        context = get_context("spawn")  # CUDA and threads do not survive a fork
        self._held, self._leash = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(self._held, threads))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        try:
            return self._pool.submit(function, *arguments)
        except BrokenProcessPool as error:  # it died between two tasks
            failed = Future[Any]()
            failed.set_exception(error)
            return failed

    def close(self) -> None:
        self._leash.close()
        self._held.close()
        self._pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Ray:
    """Tasks over a Ray cluster: the one at `address`, else one that runs here already, else one started for the sweep.

    Ray itself hands out cores and GPUs, and retries a task whose worker or machine was lost.

    >>> Ray(gpus_per_task=0.5)
    Ray(address=None, cpus_per_task=1, gpus_per_task=0.5, retries=2)
    """

    address: str | None = None
    cpus_per_task: float = 1
    gpus_per_task: float = 0
    retries: int = 2

    def outcomes(self, task: Task, configs: Mapping[str, Any]) -> Outcomes:
        """The name of each config with its outcome, in the order in which they end."""
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            ray.init(address=self.address, log_to_driver=False)
        try:
            self._check_resources(ray)
            options = {"num_cpus": self.cpus_per_task, "num_gpus": self.gpus_per_task, "max_retries": self.retries}
            run, threads = ray.remote(**options)(_threaded_outcome), max(1, int(self.cpus_per_task))
            names = {run.remote(task, config, threads): name for name, config in configs.items()}
            while names:
                (done,), _ = ray.wait(list(names), num_returns=1)
                try:
                    outcome = ray.get(done)
                except ray.exceptions.RayError as error:  # tasks catch their own: here a worker or a machine was lost
                    outcome = Failure(f"Ray lost it: {type(error).__name__}: {error}")
                yield names.pop(done), outcome
        finally:
            if ours:
                ray.shutdown()

    def _check_resources(self, ray: Any) -> None:
        """Refuse a GPU that no machine has, for which Ray would wait for ever, unless the cluster can grow."""
        has = ray.cluster_resources().get("GPU", 0)
        if self.address is None and self.gpus_per_task > has:
            raise ArgumentError(
                f"{self.gpus_per_task:g} GPUs per task were requested, and the Ray cluster has {has:g}.",
                "No task could ever start.",
                "Ask for fewer (a fraction shares one), or give the address of a cluster that has them.",
            )


WORKERS: dict[str, Callable[[], Workers]] = {"in-process": InProcess, "processes": Processes, "ray": Ray}


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: on small matrices several gain nothing, and wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quiet_outcome(task: Task, config: Any) -> Record | Failure:
    """The outcome of a task without progress bars, as those of several processes would overwrite each other."""
    with progress.show_bars(False):
        return outcome_of(task, config)


def _threaded_outcome(task: Task, config: Any, threads: int) -> Record | Failure:
    torch.set_num_threads(threads)
    return _quiet_outcome(task, config)


def _result(future: Future[Record | Failure]) -> Record | Failure | None:
    """The outcome of a task in another process; None if that process died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:  # on the way: the config could not be pickled
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _start(held: Connection, threads: int) -> None:
    """The initialisation of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the sweeping process alone decides
    torch.set_num_threads(threads)
    Thread(target=_end_with, args=(held,), daemon=True).start()


def _end_with(held: Connection) -> None:
    try:
        held.recv()
    except (EOFError, OSError):
        os._exit(1)  # in the middle of whatever it is at: only the sweeping process writes


def _ready(_: Task) -> bool:
    return True


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ready_worker(worker: _Worker, task: Task, retries: int) -> _Worker:
    """Start a worker once before the work, since one that cannot import the task would look like one that was killed.

    A worker that dies while starting is followed by another; if all of them die, the script itself is to blame.
    """
    for died in range(retries + 1):
        try:
            worker.submit(_ready, task).result()
        except BrokenProcessPool as error:
            if died == retries:
                raise not_importable(task, error) from error
            worker.close()
            worker = _Worker(worker.threads)
        except Exception as error:
            raise not_importable(task, error) from error
        else:
            if died:
                warn("A process died while it started. Another one was started.")
            return worker
    raise AssertionError("a worker starts or is given up")


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise ArgumentError(
            "The workers 'ray' were requested, and ray is not installed.",
            "It is an optional dependency, needed for nothing else.",
            "Install it: pip install 'ritz[ray]'",
            "Or use the processes of this machine: workers='processes'.",
        ) from error


def warn(message: str) -> None:
    """Warn at once of a problem that does not end the sweep."""
    warn_user(message, SweepWarning)
