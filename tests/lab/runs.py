"""Small networks and data to train, from seeds, and a run of training with a file."""

import itertools

import torch
from torch import nn

from ritz.lab import training as lab
from tests.seeds import normal, seeded

F64 = torch.float64


def network(*widths, seed=0, activation=nn.Tanh):
    """A small network with weights from a seed."""
    layers = []
    for index, (before, after) in enumerate(itertools.pairwise(widths)):
        layer = nn.Linear(before, after, dtype=F64)
        layer.weight.data = normal(after, before, seed=100 * seed + index) / before**0.5
        layer.bias.data = torch.zeros(after, dtype=F64)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def linear(weights):
    """The linear network with these weights."""
    model = nn.Sequential(*(nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=F64) for W in weights))
    for layer, W in zip(model, weights, strict=True):
        layer.weight.data = W.clone()
    return model


def classes():
    """Two batches of different size of a linearly separable problem."""
    x = normal(50, 3)
    return x, (x[:, 0] > 0).long()


def sgd(model, rate=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=rate, **options)


def run_with_file(
    path, *, num_epochs=6, until=None, seed=0, rate=0.1, loss=nn.CrossEntropyLoss(), data=None, change=None
):
    """The losses of a run with a file, abandoned after `until` epochs."""
    model, data, found = network(3, 5, 2, seed=seed), data or classes(), []
    model = model if change is None else change(model)
    options = {"num_epochs": num_epochs, "batch_size": 32, "generator": seeded(), "save_seconds": 0.0}
    optimizer = sgd(model, rate, momentum=0.9)
    for pause in lab.train(model, loss, data, optimizer, checkpoint=path, **options):
        found.append((pause.epoch, pause.loss))
        if pause.epoch == until:
            break
    return found
