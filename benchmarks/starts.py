"""Products that a start saves: those of eigenpairs from a part of the data, or from the last checkpoint, against none.

    python -m benchmarks.starts [mlp] [cnn] [gpt] [--out FILE]
    python -m benchmarks.starts large       # the largest eigenvalue of ten million parameters, to 1e-3

Products are counted in passes over all data: one with an eighth of the data is an eighth. The certificate is
among them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import ritz
from ritz.lab.data import digits
from ritz.lab.models import GPTConfig, gpt

from . import resumable
from .timing import machine, timed

CPU = torch.device("cpu")
TOLERANCES, COUNTS = (1e-3, 1e-4), (1, 3, 10)
SHARES, STEPS = (2, 8, 32), (1, 10, 50)  # parts of the data; steps of training between checkpoints
ROUGHLY = 1e-2  # to which the eigenpairs of a part are computed: they are further apart than that
RATE, BATCH = 0.05, 64
Network = tuple[nn.Module, Tensor, Tensor]


def mlp() -> Network:
    """17,226 parameters on digits."""
    data = digits(generator=_seeded(0)).train
    sizes = [nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Flatten(), *sizes), data.x, data.y


def cnn() -> Network:
    """5,578 parameters on 512 digits as images."""
    data = digits(generator=_seeded(0)).train
    layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1)]
    head = [nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(256, 16), nn.ReLU(), nn.Linear(16, 10)]
    return nn.Sequential(nn.Flatten(), *layers, *head), data.x[:512], data.y[:512]


def small_gpt() -> Network:
    """A GPT of two blocks and width 32, on a random Markov chain of 64 symbols."""
    generator = _seeded(0)
    chances = torch.rand(64, 64, generator=generator) ** 8
    text = torch.randint(64, (128, 1), generator=generator)
    for _ in range(16):
        text = torch.cat([text, torch.multinomial(chances[text[:, -1]], 1, generator=generator)], dim=1)
    config = GPTConfig(vocabulary=64, context=16, width=32, depth=2, num_heads=4)
    return gpt(config, generator=_seeded(0)), text[:, :-1].contiguous(), text[:, 1:].contiguous()


def large() -> Network:
    """9,849,410 parameters on 200 digits."""
    data = digits(generator=_seeded(0)).train
    widths = (64, 2200, 2200, 2200)
    hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(2200, 10)), data.x[:200], data.y[:200]


NETWORKS: dict[str, Callable[[], Network]] = {"mlp": mlp, "cnn": cnn, "gpt": small_gpt}


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _train(model: nn.Module, x: Tensor, y: Tensor, steps: int, seed: int, rate: float = RATE) -> None:
    optimizer, generator = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9), _seeded(seed)
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]).flatten(0, -2), y[rows].flatten()).backward()
        optimizer.step()


def starts(name: str) -> dict[str, Any]:
    """Every start of one network after 100 steps of training."""
    torch.manual_seed(0)
    model, x, y = NETWORKS[name]()
    _train(model, x, y, 100, 1)
    risk = ritz.Risk(model.eval(), ritz.CrossEntropy(), (x, y))
    rows = _from_parts(risk, model, x, y)
    before = ritz.eigenpairs(ritz.hessian(risk), max(COUNTS), tolerance=min(TOLERANCES))
    for steps in STEPS:
        later = copy.deepcopy(model)
        _train(later, x, y, steps, 2)
        H = ritz.hessian(risk.at(later))
        for k in COUNTS:
            rows += _compared(H, k, before.vectors[:, :k], 0.0, f"{steps} steps before")
    return {"n": risk.size, "examples": len(x), "starts": rows}


def _from_parts(risk: ritz.Risk, model: nn.Module, x: Tensor, y: Tensor) -> list[dict[str, Any]]:
    rows, order = [], torch.randperm(len(x), generator=_seeded(3))
    for share in SHARES:
        part = order[: len(x) // share]
        of_part = ritz.hessian(ritz.Risk(model, ritz.CrossEntropy(), (x[part], y[part])))
        for k in COUNTS:
            pairs = ritz.eigenpairs(of_part, k, tolerance=ROUGHLY, fresh_products=1, copies=False)
            rows += _compared(
                ritz.hessian(risk), k, pairs.vectors, pairs.num_products / share, f"1/{share} of the data"
            )
    return rows


def _compared(H: ritz.Operator, k: int, start: Tensor, price: float, what: str) -> list[dict[str, Any]]:
    rows = []
    for tolerance in TOLERANCES:
        cold = ritz.eigenpairs(H, k, tolerance=tolerance, copies=False).num_products
        pairs = ritz.eigenpairs(H, k, tolerance=tolerance, start=start, copies=False)
        counts = {"cold": cold, "warm": pairs.num_products, "price": price}
        overlap = float((start.T @ pairs.vectors).square().sum()) / k  # of the two spaces
        rows.append({"start": what, "k": k, "tolerance": tolerance, **counts, "overlap": round(overlap, 4)})
        print(rows[-1], flush=True)
    return rows


def ten_million() -> dict[str, Any]:
    """The largest eigenvalue before and after a little training, each with its certificate, against a far finer one."""
    torch.manual_seed(0)
    model, x, y = large()
    rows = []
    for steps in (0, 20):
        _train(model, x, y, steps, 1, rate=0.01)
        H = ritz.hessian(ritz.Risk(model.eval(), ritz.CrossEntropy(), (x, y)))
        pairs, taken = timed(lambda H=H: ritz.eigenpairs(H, 1, tolerance=1e-3), CPU)  # type: ignore[misc]
        finer = ritz.eigenpairs(H, 1, tolerance=1e-5, start=pairs)
        error = abs(float(pairs.values[0] / finer.values[0]) - 1)
        rows.append({"steps": steps, "products": pairs.num_products, "seconds": taken, "relative_error": error})
        rows[-1] |= {"value": float(pairs.values[0]), "residual": float(pairs.residuals[0])}
        print(rows[-1], flush=True)
    return {"n": H.size, "examples": len(x), "rows": rows}


def main() -> None:
    """Measure, print and write."""
    parser = resumable.parser(__doc__)
    parser.add_argument("networks", nargs="*", help=f"any of {', '.join(NETWORKS)} and large")
    options = parser.parse_args()
    results = resumable.Results(options.out, machine(CPU))
    for name in options.networks or [*NETWORKS, "large"]:
        if not results.has(name, "starts"):
            facts = ten_million() if name == "large" else starts(name)
            results.add({"model": name, "work": "starts", "commit": options.commit, **facts})


if __name__ == "__main__":
    main()
