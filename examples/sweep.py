"""A new experiment in thirty lines: does a wider network find a flatter minimum?

    python examples/sweep.py

Stop it at any moment and start it again: only what is missing is computed. Its records stay in out/widths: remove
that folder when the function changes.
"""

from dataclasses import dataclass

import torch
from torch import nn

from ritz import Risk, eigenpairs, hessian
from ritz.lab.data import digits
from ritz.lab.models import mlp
from ritz.lab.sweeps import sweep
from ritz.lab.training import accuracy, train


@dataclass(frozen=True)
class Config:
    """What is varied, and all that a result depends on."""

    width: int
    seed: int
    num_epochs: int = 10


def measurement(config: Config) -> dict[str, object]:
    """Train one network, and measure it."""
    generator, loss = torch.Generator().manual_seed(config.seed), nn.CrossEntropyLoss()
    data = digits(generator=generator)
    model = mlp((64, config.width, 10), activation="tanh", generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"num_epochs": config.num_epochs, "batch_size": 64, "generator": generator}
    for _ in train(model, loss, data.train, optimizer, **options):
        pass
    top = eigenpairs(hessian(Risk(model, loss, data.train)), 3)
    return {"accuracy": accuracy(model, data.test), "sharpness": top.values[0], "eigenvalues": top.values}


if __name__ == "__main__":  # other processes import this file: what starts them must not run there
    configs = [Config(width, seed) for width in (8, 32, 128) for seed in range(3)]
    for record in sweep(measurement, configs, "out/widths", workers="processes"):
        print(record.config, f"{record.scalars['sharpness']:.3g}", f"{record.scalars['accuracy']:.1%}")
