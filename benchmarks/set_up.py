"""The time of a set-up, part by part: `python -m benchmarks.set_up resnet50 --precision high`.

From construction through the first product, after one plain gradient, by the functions of ritz that take most of it and
by what PyTorch does inside. On a GPU with every kernel waited for, so that each is charged to the line that calls it.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
from typing import Any

os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")  # read when CUDA starts

import torch

import ritz

from .networks import NETWORKS
from .peers import product_with
from .timing import device_of, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--matrix", choices=("hessian", "gauss_newton"), default="hessian")
    parser.add_argument("--precision", choices=("highest", "high"), default="highest")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="at a tiny size")
    parser.add_argument("--lines", type=int, default=45)
    options = parser.parse_args()
    device = device_of(gpu=options.gpu)
    problem: Any = NETWORKS[options.network](device, options.smoke)
    x, y = problem.batches[0]
    torch.autograd.grad(problem.loss(problem.model(x), y), list(problem.model.parameters()))

    profile = cProfile.Profile()
    profile.enable()
    risk = ritz.Risk(problem.model, ritz.CrossEntropy(), problem.batches, tangent_precision=options.precision)
    product = product_with(getattr(ritz, options.matrix)(risk), problem)
    taken = seconds(product, device)
    profile.disable()

    later = min(seconds(product, device) for _ in range(3))
    statistics: Any = pstats.Stats(profile).strip_dirs().sort_stats("cumulative")
    total = statistics.total_tt
    print(f"{options.network}, {options.matrix}, {options.precision}: {total:.2f} s in all, the first product "
          f"{taken:.2f} s, a later one {later:.3f} s: {total / later:.0f} products")  # fmt: skip
    statistics.print_stats(options.lines)


if __name__ == "__main__":
    main()
