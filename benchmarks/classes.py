"""The cost of the class means of a network, in units of one gradient of the same risk.

python -m benchmarks.classes                  ResNet-20, 512 CIFAR-sized images, 10 classes
python -m benchmarks.classes --gpu resnet vgg
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

import ritz
from ritz.classes import class_decomposition

from .problems import PROBLEMS
from .timing import device_of, machine, report, seconds


def costs(name: str, device: torch.device, repetitions: int, within: bool) -> dict[str, Any]:
    """Times of a gradient and of the decomposition, in turn, so that a busy machine slows both."""
    torch.manual_seed(0)  # initial weights
    problem = PROBLEMS[name](device)
    risk = ritz.Risk(problem.model, problem.loss, problem.batches)
    parts = class_decomposition(risk)
    risk.gradient()
    times: dict[str, list[float]] = {"gradient": [], "decomposition": []}
    for _ in range(repetitions):
        times["gradient"].append(seconds(risk.gradient, device))
        times["decomposition"].append(seconds(lambda: class_decomposition(risk), device))
    medians = {f"{work}_seconds": statistics.median(values) for work, values in times.items()}
    ratios = [d / g for d, g in zip(times["decomposition"], times["gradient"], strict=True)]
    facts = {"problem": problem.name, "n": risk.size, "N": risk.num_terms, "C": parts.num_classes, **medians}
    facts |= {"gradients": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
    facts["sum_error"] = _sum_error(risk, parts)
    if within:
        facts["within_traces_gradients"] = seconds(lambda: parts.within_traces, device) / medians["gradient_seconds"]
    return facts


def _sum_error(risk: ritz.Risk, parts: Any) -> float:
    """How far the sum of the four products is from G v, relative."""
    v = torch.randn(risk.size, generator=torch.Generator().manual_seed(0)).to(risk.device, risk.dtype)
    total = parts.between_class @ v + parts.cross_class @ v + parts.own_class @ v + parts.within @ v
    expected = ritz.gauss_newton(risk) @ v
    return float((total - expected).norm() / expected.norm())


def main() -> None:
    """Measure and print JSON, one object for each problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=["resnet"], help="any of mlp, resnet, vgg")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--within", action="store_true", help="the exact traces of G_within, too")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON to write, besides printing")
    options = parser.parse_args()
    device = device_of(gpu=options.gpu)
    rows = [costs(name, device, options.repetitions, options.within) for name in options.problems]
    report({**machine(device), "rows": rows}, options.out)


if __name__ == "__main__":
    main()
