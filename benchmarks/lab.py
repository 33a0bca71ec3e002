"""The time saved by training many networks at once, and linear networks by their moments, against plain PyTorch.

    python -m benchmarks.lab [--gpu] [--out FILE]

Absolute times mean little on a shared machine: both ways alternate, and the ratio of their medians counts. Plain
PyTorch trains 10 of the 200 networks, and its time for 200 is 20 times that: the extrapolation is linear.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from ritz import SquaredError
from ritz.lab import ensemble
from ritz.lab.training import Plateau, linear_descent
from ritz.lab.workers import one_thread

NETWORKS, MEASURED = 200, 10
WIDTH, SIZE, EXAMPLES, BATCH = 100, 10, 1024, 128  # Singh et al. (2026), D.1.3
RATE, TO_FLOOR = 1e-2, Plateau(window=10, improvement=1e-2, factor=0.1, floor=1e-3)  # from 10⁻² down to 10⁻⁵
DEEP, DEEP_EXAMPLES, DEEP_RATE = (784, 64, 64, 64, 10), 5000, 0.01  # linear2026, App. C


def seconds(run: Callable[[], object], device: torch.device) -> tuple[float, object]:
    """The time of a run, and what it returned."""
    synchronize(device)
    started = time.perf_counter()
    found = run()
    synchronize(device)
    return time.perf_counter() - started, found


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def weights(widths: tuple[int, ...], generator: torch.Generator, count: int | None = None) -> list[Tensor]:
    """W ~ N(0, 1/fan-in), of one network or of many."""
    stack = () if count is None else (count,)
    return [torch.randn(*stack, b, a, generator=generator) / a**0.5 for a, b in pairwise(widths)]


def regression(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """y = Wx + ε, as Singh et al. (2026), D.1.3."""
    x = torch.randn(EXAMPLES, SIZE, generator=generator)
    noise = 0.1 * torch.randn(EXAMPLES, SIZE, generator=generator)
    return x, x @ (torch.randn(SIZE, SIZE, generator=generator) / SIZE**0.5) + noise


def plain(
    model: nn.Module, x: Tensor, y: Tensor, rate: float, num_epochs: int, batch: int, rule: Plateau | None
) -> list:
    """One network in plain PyTorch: the loop that everybody writes, with the same rule; the loss of every epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    generator, losses, reference = torch.Generator().manual_seed(1), [], float("inf")
    for epoch in range(num_epochs):
        order = torch.randperm(len(x), generator=generator).to(x.device) if batch < len(x) else None
        total = x.new_zeros(())
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch) if order is None else order[start : start + batch]
            optimizer.zero_grad()
            loss = (model(x[rows]) - y[rows]).square().sum(-1).mean() / 2
            loss.backward()
            optimizer.step()
            total += loss.detach() * (min(batch, len(x) - start) / len(x))
        losses.append(float(total))
        if rule is not None and epoch % rule.window == 0:
            if losses[-1] > (1 - rule.improvement) * reference:
                optimizer.param_groups[0]["lr"] *= rule.factor
                if optimizer.param_groups[0]["lr"] < 0.999 * rule.floor * rate:
                    break
            reference = losses[-1]
    return losses


def linear_model(layers: list[Tensor]) -> nn.Module:
    model = nn.Sequential(*(nn.Linear(W.shape[1], W.shape[0], bias=False) for W in layers)).to(layers[0])
    for layer, W in zip(model, layers, strict=True):
        layer.weight.data = W.clone()
    return model


def last(run: Iterator) -> object:
    """A run to its end; returns its last pause."""
    *_, pause = run
    return pause


def together(device: torch.device, repeats: int) -> dict[str, object]:
    """200 two-layer linear networks, all at once by `linear_descent`, against one after another."""
    generator = torch.Generator().manual_seed(0)
    x, y = (part.to(device) for part in regression(generator))
    layers = [W.to(device) for W in weights((SIZE, WIDTH, SIZE), generator, NETWORKS)]
    slow, fast = [], []

    def at_once() -> object:
        options = {"num_epochs": 5000, "batch_size": BATCH, "generator": torch.Generator().manual_seed(1)}
        return last(linear_descent(layers, x, y, learning_rate=RATE, schedule=TO_FLOOR, **options))

    for _ in range(repeats):
        models = [linear_model([W[index] for W in layers]) for index in range(MEASURED)]
        with one_thread():
            taken, losses = seconds(
                lambda m=models: [plain(one, x, y, RATE, 5000, BATCH, TO_FLOOR) for one in m], device
            )
        slow.append(taken * NETWORKS / MEASURED)
        taken, pause = seconds(at_once, device)
        fast.append(taken)
    ends = torch.tensor([found[-1] for found in losses])
    difference = ((pause.loss[:MEASURED].cpu() - ends) / ends).abs().max()
    note = f"{pause.epoch} epochs to the floor, {int(pause.diverged.sum())} diverged"
    return row("200 linear networks, width 100, D = K = 10", slow, fast, note) | {
        "extrapolated": f"plain PyTorch from {MEASURED} networks, linearly",
        "largest relative difference of the final losses, float32": float(difference),
    }


def stacked(device: torch.device, repeats: int, num_epochs: int = 20) -> dict[str, object]:
    """The training of many ReLU networks at once by `ensemble.train`, for a fixed number of epochs."""
    generator = torch.Generator().manual_seed(0)
    x, y = (part.to(device) for part in regression(generator))

    def model() -> nn.Module:
        net = nn.Sequential(nn.Linear(SIZE, WIDTH, bias=False), nn.ReLU(), nn.Linear(WIDTH, SIZE, bias=False))
        for layer, W in zip((net[0], net[2]), weights((SIZE, WIDTH, SIZE), generator), strict=True):
            layer.weight.data = W
        return net.to(device)

    models, slow, fast = [model() for _ in range(NETWORKS)], [], []
    for _ in range(repeats):
        networks = ensemble.Ensemble.of(models)
        options = {"num_epochs": num_epochs, "batch_size": BATCH, "generator": torch.Generator().manual_seed(1)}
        run = ensemble.train(networks, SquaredError(), (x, y), learning_rate=RATE, **options)
        fast.append(seconds(lambda r=run: last(r), device)[0])
        copies = copy.deepcopy(models[:MEASURED])
        with one_thread():
            taken, _ = seconds(lambda m=copies: [plain(one, x, y, RATE, num_epochs, BATCH, None) for one in m], device)
        slow.append(taken * NETWORKS / MEASURED)
    found = row("200 ReLU networks, width 100, D = K = 10", slow, fast, f"{num_epochs} epochs")
    return found | {"extrapolated": f"plain PyTorch from {MEASURED} networks, linearly"}


def moments(device: torch.device, repeats: int, num_epochs: int) -> dict[str, object]:
    """Full-batch descent of a 784-64-64-64-10 linear network on 5,000 examples, an epoch at a time, in float64."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(0, 3, DEEP[0]).exp().reciprocal()  # a spectrum that falls, as that of images
    x = (torch.randn(DEEP_EXAMPLES, DEEP[0], generator=generator) * spread).double().to(device)
    labels = torch.randint(0, DEEP[-1], (DEEP_EXAMPLES,), generator=generator)
    y = nn.functional.one_hot(labels, DEEP[-1]).double().to(device)
    layers = [W.double().to(device) for W in weights(DEEP, generator)]
    model, slow, fast = linear_model(layers), [], []
    setup, run = seconds(lambda: linear_descent(layers, x, y, learning_rate=DEEP_RATE, num_epochs=num_epochs), device)
    step, losses, found = max(num_epochs // repeats, 1), [], []
    for _ in range(num_epochs // step):
        taken, part = seconds(lambda: plain(model, x, y, DEEP_RATE, step, DEEP_EXAMPLES, None), device)
        slow.append(taken / step)
        losses += part
        taken, pauses = seconds(lambda: [next(run) for _ in range(step)], device)
        fast.append(taken / step)
        found += [pause.loss for pause in pauses]
    ends = zip(pauses[-1].parameters, model.parameters(), strict=True)
    note = f"{len(found)} epochs at a fixed rate, loss {found[0]:.3f} to {found[-1]:.3f}, set-up {setup:.2f} s once"
    return row("an epoch of 784-64-64-64-10, 5,000 examples", slow, fast, note) | {
        "largest difference of the losses": max(abs(a - b) for a, b in zip(found, losses, strict=True)),
        "largest difference of the weights": max(float((W - p.detach()).abs().max()) for W, p in ends),
    }


def row(work: str, slow: list[float], fast: list[float], note: str) -> dict[str, object]:
    ratios = sorted(a / b for a, b in zip(slow, fast, strict=True))
    return {
        "work": work,
        "times faster": statistics.median(slow) / statistics.median(fast),
        "range": [ratios[0], ratios[-1]],
        "plain seconds": statistics.median(slow),
        "ritz seconds": statistics.median(fast),
        "note": note,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1000, help="of the trajectory that is compared")
    parser.add_argument("--out", type=Path, help="JSON to write, besides printing")
    options = parser.parse_args()
    device = torch.device("cuda" if options.gpu else "cpu")
    found = {
        "together": together(device, options.repetitions),
        "stacked": stacked(device, options.repetitions),
        "moments": moments(device, options.repetitions, options.epochs),
    }
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    report = {"device": name, "torch": torch.__version__, "results": found}
    print(json.dumps(report, indent=2))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
