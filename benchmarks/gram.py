"""The time of the exact spectrum of G through its Gram matrix, against that of an approximation by Lanczos.

python -m benchmarks.gram                 MLP 784-512-512-10, 300 examples, against 2,048 steps
python -m benchmarks.gram --gpu           VGG11, 28M parameters, 1,360 examples, in float64 and in TF32
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ritz
from ritz.factored.gram import Gram
from ritz.lab import models

from .timing import device_of, machine, report, seconds, timed

STEPS, MEASURED_STEPS = 2048, 256  # the rest is extrapolated: every step costs the same without a basis


def mlp() -> dict[str, Any]:
    """Times of the Gram matrix and of Lanczos on two cores, three turns of each."""
    risk = _risk(models.mlp([784, 512, 512, 10], generator=_generator()), 300, (784,))
    G, start = ritz.gauss_newton(risk), torch.randn(risk.size, 1, generator=_generator())
    G @ start
    turns = []
    for _ in range(3):
        exact = seconds(lambda: ritz.gram_spectrum(risk), risk.device)
        measured = seconds(lambda: ritz.lanczos(G, start, MEASURED_STEPS, keep_basis=False), risk.device)
        lanczos = measured * STEPS / MEASURED_STEPS
        turns.append((lanczos / exact, exact, lanczos))
    ratio, exact, lanczos = sorted(turns)[1]
    return {
        "problem": "MLP 784-512-512-10, 300 examples", "n": risk.size, "exact_seconds": exact,
        "lanczos_seconds": lanczos, "lanczos_steps": STEPS, "lanczos_steps_measured": MEASURED_STEPS,
        "times_faster": ratio,
    }  # fmt: skip


def vgg11(num_examples: int = 1360) -> dict[str, Any]:
    """Times in float64, and in float32 with TF32 products, whose eigenvalues are held against the exact ones."""
    model = models.vgg11(generator=_generator()).eval().cuda()
    facts: dict[str, Any] = {"problem": f"VGG11, {num_examples} examples"}
    values = {}
    for name, dtype in (("tf32", torch.float32), ("float64", torch.float64)):
        risk = _risk(model, num_examples, (3, 32, 32), tangent_precision="high")
        torch.cuda.reset_peak_memory_stats()
        gram, matrix_seconds = timed(lambda: Gram.of(risk, dtype=dtype), risk.device)  # noqa: B023
        values[name], eigenvalue_seconds = timed(gram.eigenvalues, risk.device)
        total = matrix_seconds + eigenvalue_seconds
        facts |= {f"{name}_matrix_seconds": matrix_seconds, f"{name}_eigenvalue_seconds": eigenvalue_seconds}
        facts |= {f"{name}_seconds": total}
        facts |= {f"{name}_check": gram.error, f"{name}_peak_gb": torch.cuda.max_memory_allocated() / 1e9}
        facts |= {"rows": len(gram.matrix), "n": risk.size}
        del gram
    difference = (values["tf32"] - values["float64"]).abs()
    facts["tf32_largest_error"] = float(difference.max() / values["float64"][0])
    facts["tf32_error_of_top_100"] = float((difference[:100] / values["float64"][:100]).max())
    return facts


def _risk(model: nn.Module, count: int, shape: tuple[int, ...], **options: Any) -> ritz.Risk:
    device = next(model.parameters()).device
    x = torch.randn(count, *shape, generator=_generator()).to(device)
    y = (torch.arange(count) % 10).to(device)
    return ritz.Risk(model, nn.CrossEntropyLoss(), (x, y), **options)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def main() -> None:
    """Print, and with --out write, what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--examples", type=int, default=1360)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    facts = vgg11(arguments.examples) if arguments.gpu else mlp()
    report(machine(device_of(gpu=arguments.gpu)) | facts, arguments.out)


if __name__ == "__main__":
    main()
