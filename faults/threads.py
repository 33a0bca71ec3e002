"""Computations in twelve threads at once: they give the bits of one thread, and leave PyTorch's settings alone."""

from __future__ import annotations

import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import ritz

from .computations import checksum, large, risk

THREADS = 12


def settings() -> dict[str, Any]:
    """What a product might leave changed."""
    backends = torch.backends
    return {
        "tf32": (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32),
        "precision": torch.get_float32_matmul_precision(),
        "attention": (
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
            backends.mha.get_fastpath_enabled(),
        ),
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "filters": [str(entry) for entry in warnings.filters],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _work(shared: ritz.Risk, own: ritz.Risk, number: int) -> str:
    generator = torch.Generator().manual_seed(number)
    H, v = ritz.hessian(own), torch.randn(own.size, generator=generator, dtype=torch.float64)
    G, w = ritz.gauss_newton(shared), torch.randn(shared.size, generator=generator, dtype=torch.float64)
    pairs = ritz.eigenpairs(large(), 2, generator=generator)
    return checksum(H @ v, G @ w, own.gradient(), pairs.values, pairs.vectors)


def threads(rounds: int, draw: random.Random, place: Path) -> dict[str, Any]:
    """So many rounds of twelve threads."""
    shared, faults, first = risk(), list[str](), draw.randrange(10**6)
    own = [risk(5 + number % 3) for number in range(THREADS)]  # drawn here: PyTorch has one source for all threads
    alone = [_work(shared, own[number], first + number) for number in range(THREADS)]
    before = settings()  # when all is imported
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(rounds):
            together = list(pool.map(lambda i: _work(shared, own[i], first + i), range(THREADS)))
            faults += [f"round {number}: thread {i} has other bits" for i in range(THREADS) if together[i] != alone[i]]
            after = settings()
            changed = [name for name in before if before[name] != after[name]]
            faults += [f"round {number}: {name} was {before[name]}, is {after[name]}" for name in changed]
    print(f"  {rounds} rounds of {THREADS} threads, {len(faults)} faults", *faults, sep="\n  FAULT ", flush=True)
    return {"threads": THREADS, "rounds": rounds, "faults": faults}
