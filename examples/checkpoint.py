"""From a checkpoint file to its spectrum.

    ritz spectrum examples/checkpoint.py:risk
    ritz spectrum examples/checkpoint.py:risk --per-layer --operator gauss-newton --dtype float64

Put your own model, file and data into `risk`. `train_checkpoint.py` made the file that is here.
"""

from pathlib import Path

import torch
from torch import nn

from ritz import Risk
from ritz.lab.data import digits

CHECKPOINT = Path(__file__).with_name("digits.pt")


def classifier() -> nn.Module:
    """The model whose weights the file holds."""
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def risk(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Risk:
    """What `ritz spectrum` calls, with --device and --dtype where they are given."""
    model = classifier()
    model.load_state_dict(torch.load(CHECKPOINT, weights_only=True))  # tensors alone: no code is run
    model = model.to(device, dtype).eval()
    x, y = digits(generator=torch.Generator().manual_seed(0), dtype=dtype).train
    return Risk(model, nn.CrossEntropyLoss(), (x.to(device), y.to(device)))
