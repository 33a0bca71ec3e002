"""Train a small classifier of digits and save it as people do.

    python examples/train_checkpoint.py [FILE.pt]

The file holds a state dict, from which `checkpoint.py` starts.
"""

import sys
from pathlib import Path

import torch
from checkpoint import CHECKPOINT, classifier
from torch import nn

from ritz.lab.data import digits
from ritz.lab.training import accuracy, train


def main(path: Path = CHECKPOINT) -> None:
    """Train for ten epochs, print how it goes, save."""
    torch.manual_seed(0)  # the weights are drawn from torch's own generator
    generator = torch.Generator().manual_seed(0)
    data = digits(generator=generator)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {"num_epochs": 10, "batch_size": 64, "generator": generator}
    for pause in train(model, nn.CrossEntropyLoss(), data.train, optimizer, **options):
        print(f"epoch {pause.epoch:2d}   loss {pause.loss:.4f}   test accuracy {accuracy(model, data.test):.3f}")
    torch.save(model.state_dict(), path)
    print(f"saved {path}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
