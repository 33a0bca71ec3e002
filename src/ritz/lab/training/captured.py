"""A training step captured as one CUDA graph, for steps whose kernels take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ...errors import warn_user

Rows = Int[Tensor, " rows"]
Results = tuple[Shaped[Tensor, "..."], ...]
WARM_UP = 3  # steps before a capture, as PyTorch asks for: libraries choose their kernels, optimisers make their state


class CapturedStep:
    """A step on the rows of a batch, run plainly a few times, then captured, and replayed for batches of this size.

    Every call is a step of training, including the first ones. A batch of another size is run plainly. If the step
    cannot be captured, a warning says so once, and all steps are run plainly.
    """

    def __init__(self, step: Callable[[Rows], Results]) -> None:
        self._step, self._calls, self._usable = step, 0, True
        self._graph: torch.cuda.CUDAGraph | None = None
        self._rows: Tensor | None = None
        self._results: Results = ()

    def forget(self) -> None:
        """Capture anew before the next replay, because a number that is fixed in the graph has changed."""
        self._graph = None

    def __call__(self, rows: Rows) -> Results:
        """Run one step; returns copies of its results."""
        if not self._usable or (self._rows is not None and len(rows) != len(self._rows)):
            return self._step(rows)
        if self._calls < WARM_UP:
            self._calls += 1
            return self._aside(rows)
        if self._graph is None:
            self._capture(rows)
        if self._graph is None or self._rows is None:
            return self._step(rows)
        self._rows.copy_(rows)
        self._graph.replay()
        return tuple(result.clone() for result in self._results)

    def _aside(self, rows: Tensor) -> Results:
        """A step on a stream of its own, as a capture has it."""
        self._rows = rows.clone()
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            results = self._step(rows)
        current.wait_stream(stream)
        return results

    def _capture(self, rows: Tensor) -> None:
        """Capture the step, which computes nothing yet."""
        assert self._rows is not None
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                results = self._step(self._rows)
        except RuntimeError as error:
            self._usable = False
            warn_user(
                f"The training step cannot be captured as a CUDA graph, and runs without one: {error}", UserWarning
            )
        else:
            self._graph, self._results = graph, results


def step_of_rows(
    step: Callable[[Rows], Results], *, capture: bool, tensors: Iterable[Shaped[Tensor, "..."]]
) -> Callable[[Rows], Results]:
    """The step as a graph, if that is requested and all its tensors are on a GPU; else the step itself."""
    return CapturedStep(step) if capture and all(one.is_cuda for one in tensors) else step
