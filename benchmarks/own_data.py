"""The cost of giving each of many networks its own data, against one set for all: times of the same epochs.

    python -m benchmarks.own_data [--gpu] [--out FILE]

On the CPU seconds are those of this process, for others work on the machine, too; both ways alternate, and the ratio
of their medians counts. The networks are those of Singh et al. (2026), D.1.3, and of linear2026, App. C.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ritz import SquaredError
from ritz.lab import ensemble
from ritz.lab.training import linear_descent

from .lab import BATCH, DEEP, EXAMPLES, WIDTH, weights
from .timing import commit

NETWORKS, FULL_BATCH = 200, 45  # of singh2026; of linear2026: five seeds and nine shares
DIRECTIONS = DEEP[1] + DEEP[-1]  # of the inputs, that networks of linear2026 use
Way = Callable[[bool], object]


def seconds(run: Callable[[], object], device: torch.device) -> float:
    """The time of this process on the CPU; on a GPU that of the clock."""
    if device.type == "cpu":
        started = time.process_time()
        run()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def last(run: Iterator[Any]) -> object:
    """A run to its end."""
    *_, pause = run
    return pause


def _data(count: int, rows: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, rows, size, generator=generator)
    return x, torch.randn(count, rows, size, generator=generator)


def of_singh2026(kind: str, size: int, num_epochs: int, device: torch.device) -> Way:
    """200 networks of two layers, in batches of 128: linear ones, or with ReLU."""
    generator = torch.Generator().manual_seed(0)
    x, y = (part.to(device) for part in _data(NETWORKS, EXAMPLES, size, generator))
    layers = [W.to(device) for W in weights((size, WIDTH, size), generator, NETWORKS)]
    options: dict[str, Any] = {"learning_rate": 1e-4, "num_epochs": num_epochs, "batch_size": BATCH}

    def relu(index: int) -> nn.Module:
        net = nn.Sequential(nn.Linear(size, WIDTH, bias=False), nn.ReLU(), nn.Linear(WIDTH, size, bias=False))
        net[0].weight.data, net[2].weight.data = layers[0][index], layers[1][index]
        return net

    def trained(own: bool) -> object:
        data = (x, y) if own else (x[0], y[0])
        settings = {**options, "generator": torch.Generator().manual_seed(1), "capture": True}
        if kind == "linear":
            return last(linear_descent(layers, *data, **settings))
        stack = ensemble.Ensemble.of([relu(index) for index in range(NETWORKS)])
        return last(ensemble.train(stack, SquaredError(), data, each=own, **settings))

    return trained


def of_linear2026(num_epochs: int, device: torch.device) -> Way:
    """45 linear networks of four layers on white inputs, all examples at once, in the directions that they use."""
    generator = torch.Generator().manual_seed(0)
    x = torch.eye(DIRECTIONS, dtype=torch.float64, device=device)
    y = torch.randn(FULL_BATCH, DIRECTIONS, DEEP[-1], generator=generator, dtype=torch.float64).to(device)
    widths = (DIRECTIONS, *DEEP[1:])
    layers = [W.double().to(device) for W in weights(widths, generator, FULL_BATCH)]
    return lambda own: last(linear_descent(layers, x, y if own else y[0], learning_rate=1e-4, num_epochs=num_epochs))


def row(work: str, way: Way, device: torch.device, repeats: int) -> dict[str, object]:
    """The medians of both ways, which alternate, after a start of each."""
    way(True), way(False)
    pairs = [(seconds(lambda: way(True), device), seconds(lambda: way(False), device)) for _ in range(repeats)]
    own, shared = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    return {"work": work, "times": own / shared, "range": [ratios[0], ratios[-1]], "own": own, "shared": shared}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="5 on a CPU, 200 on a GPU, unless given")
    parser.add_argument("--out", type=Path, help="JSON to write, besides printing")
    options = parser.parse_args()
    device = torch.device("cuda" if options.gpu else "cpu")
    epochs = options.epochs or (200 if options.gpu else 5)
    ways = {
        f"{NETWORKS} {'ReLU' if kind == 'relu' else kind} networks, width {WIDTH}, D = K = {size}": of_singh2026(
            kind, size, epochs, device
        )
        for kind in ("linear", "relu")
        for size in (1, 10, 40, 100)
    }
    ways[f"{FULL_BATCH} linear networks of four layers, full batch"] = of_linear2026(10 * epochs, device)
    rows = [row(work, way, device, options.repetitions) for work, way in ways.items()]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    report = {"device": name, "torch": torch.__version__, "commit": commit(), "results": rows}
    print(json.dumps(report, indent=2))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
