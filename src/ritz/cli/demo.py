"""`ritz demo`: the Hessian of a classifier of handwritten digits that is trained here and now."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from ..analysis import spectrum as analysis
from ..analysis.spectrum.settings import MATRICES
from ..lab.data import Split, digits
from ..lab.training import accuracy, train
from ..lab.workers import one_thread
from ..record import Record, check_writable
from ..risk import Risk

EPOCHS, BATCH_SIZE, LEARNING_RATE, MOMENTUM = 8, 64, 0.05, 0.9  # to a test accuracy of 97 % in a second
SETTINGS = analysis.Settings(num_eigenpairs=10, num_steps=80, log_spectrum=True, per_layer=True)
OTHERS = ("gauss-newton", "functional")  # matrices beside H, which go to folders of these names


def run(folder: Path, *, seed: int = 0) -> tuple[Record, float]:
    """Train, analyse and write the results into the folder; returns the record and the test accuracy."""
    check_writable(folder)
    generator = torch.Generator().manual_seed(seed)
    data = digits(generator=generator)
    with one_thread():
        model = classifier(data, generator)
        risk = Risk(model, nn.CrossEntropyLoss(), data.train)
        record = analysis.run(risk, replace(SETTINGS, seed=seed), name="demo")
        analysis.write(record, folder)
        for name in OTHERS:
            settings = replace(SETTINGS, seed=seed, operator=MATRICES[name], num_probes=4, per_layer=False)
            analysis.write(analysis.run(risk, settings, name="demo"), folder / name)
        return record, accuracy(model, data.test)


def classifier(data: Split, generator: torch.Generator) -> nn.Module:
    """A network 64-48-32-10 after a few epochs of gradient descent."""
    with torch.random.fork_rng():
        torch.manual_seed(generator.initial_seed())
        first, second, last = nn.Linear(64, 48), nn.Linear(48, 32), nn.Linear(32, 10)
    model = nn.Sequential(OrderedDict(first=first, tanh1=nn.Tanh(), second=second, tanh2=nn.Tanh(), last=last))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss = nn.CrossEntropyLoss()
    for _ in train(model, loss, data.train, optimizer, num_epochs=EPOCHS, batch_size=BATCH_SIZE, generator=generator):
        pass
    return model
