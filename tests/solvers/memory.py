"""The peak memory of a piece of work in vectors of n numbers, and operators that have little room."""

import warnings
from dataclasses import replace

import torch
from torch.profiler import ProfilerActivity, profile

from ritz.operators import Operator


def peak_vectors(work, n, dtype=torch.float32):
    """The most bytes on the CPU that `work` held at a time beyond what was there before, in vectors of n numbers.

    Every allocation counts, those inside PyTorch's own functions too.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # of earlier cycles, which there are none
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
            result = work()
    events = [e for e in run.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = torch.tensor([0, *(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns()))]).cumsum(0)
    del result
    return float(held.max()) / (n * torch.finfo(dtype).bits // 8)


def diagonal(eigenvalues, dtype=torch.float32):
    """The diagonal matrix, whose product allocates its result alone."""
    d = eigenvalues.to(dtype)[:, None]
    return Operator(lambda V: d * V, len(d), dtype, torch.device("cpu"))


def with_room(A, vectors):
    """The operator with room for so many vectors beside its products."""
    return replace(A, room=lambda: vectors * A.size * torch.finfo(A.dtype).bits / 8)
