"""Training is a generator, so that measuring is a `for` loop.

    for pause in train(model, loss, data, torch.optim.SGD(model.parameters(), lr=0.01), num_epochs=10_000,
                       schedule=HALVING, checkpoint="run.npz"):
        if pause.epoch % 100 == 0:
            pause.note(sharpness=...)

`train` takes any network and any optimiser of PyTorch, `linear_descent` the weights of linear networks, whose training
does not depend on the number of examples. Both pause after every epoch and go on after a kill.
"""

from ...arguments import guard
from .linear_networks import EquivalentExamples, compressed, linear_descent
from .loop import Pause
from .one_network import train
from .optimizers import adamw
from .schedules import HALVING, Annealing, Constant, Cosine, Plateau, Schedule
from .scores import accuracy, mean_loss
from .series import Series

__all__ = [
    "train", "adamw", "accuracy", "mean_loss",
    "linear_descent", "compressed", "EquivalentExamples",
    "Pause", "Series",
    "Schedule", "Constant", "Plateau", "HALVING", "Annealing", "Cosine",
]  # fmt: skip

guard(__name__)
