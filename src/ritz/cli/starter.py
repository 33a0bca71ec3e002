"""My network, for ritz. It runs as it is: put your own model, data and loss in the three places.

ritz spectrum FILE.py:risk                 # the spectrum of the Hessian
ritz spectrum FILE.py:risk --per-layer     # layer by layer
ritz classes FILE.py:risk                  # where the large eigenvalues come from
ritz spectrum FILE.py:risk --dry-run       # only say how long it would take
"""

import torch
from torch import nn

import ritz
from ritz.lab.data import digits


def risk(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> ritz.Risk:
    """What ritz calls, with --device and --dtype where they are given."""
    # 1. The data: (inputs, targets) tensors, a Dataset, or a DataLoader with shuffle=False and no random augmentation.
    #    Here: 1,438 handwritten digits of 8 x 8 pixels. A thousand examples are often enough.
    x, y = digits(generator=torch.Generator().manual_seed(0), dtype=dtype).train
    x, y = x.to(device), y.to(device)

    # 2. The model, with its trained weights. Here it is trained in a second; yours comes from a file:
    #    model.load_state_dict(torch.load("checkpoint.pt", weights_only=True))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).to(device, dtype)
    train(model, x, y)

    # 3. The loss, as in training: a torch.nn loss, or a function of (outputs, targets) with one value per example.
    loss = nn.CrossEntropyLoss()

    return ritz.Risk(model.eval(), loss, (x, y))  # eval: dropout and batch norm must not draw or change anything


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """A plain training loop, in place of your own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
