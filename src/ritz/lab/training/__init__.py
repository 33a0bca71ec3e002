"""Training is a generator, so that measuring is a `for` loop.

    for pause in train(model, loss, data, torch.optim.SGD(model.parameters(), lr=0.01), num_epochs=10_000,
                       schedule=HALVING, checkpoint="run.npz"):
        if pause.epoch % 100 == 0:
            pause.note(sharpness=...)

`train` takes any network and any optimiser of PyTorch, `linear_descent` the weights of linear networks, whose training
does not depend on the number of examples. Both pause after every epoch and go on after a kill.
"""

from .linear import Moments, compressed, linear_descent
from .networks import accuracy, adamw, mean_loss, train
from .pauses import Checkpoint, Series
from .schedules import HALVING, Annealing, Constant, Cosine, Plateau, Schedule

__all__ = [
    "train", "adamw", "accuracy", "mean_loss",
    "linear_descent", "compressed", "Moments",
    "Checkpoint", "Series",
    "Schedule", "Constant", "Plateau", "HALVING", "Annealing", "Cosine",
]  # fmt: skip
