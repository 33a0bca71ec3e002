"""Many threads at once: warnings are filtered afterwards as they were before."""

import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import ritz

THREADS = 4


def test_threads_leave_the_filters_of_warnings_as_they_were():
    x, y, gate = (
        torch.randn(9, 3, generator=torch.Generator().manual_seed(0)),
        torch.arange(9) % 2,
        threading.Barrier(4),
    )
    risk = ritz.Risk(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), nn.CrossEntropyLoss(), (x, y))
    ritz.hessian(risk) @ torch.ones(risk.size, 3)  # what is imported may change them
    before, interval = list(warnings.filters), sys.getswitchinterval()

    def work(_):
        gate.wait()
        for _ in range(3):
            ritz.hessian(risk) @ torch.ones(risk.size, 3)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == before
