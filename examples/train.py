"""Sharpness along a plain training loop: three lines in it, and nothing else changes.

python examples/train.py
"""

import torch
from torch import nn

from ritz import Risk, eigenpairs, hessian
from ritz.lab.data import digits


def main(num_epochs: int = 20, rate: float = 0.2) -> list[float]:
    """Train a small classifier, and print its sharpness after every epoch; returns these."""
    torch.manual_seed(0)
    x, y = digits(generator=torch.Generator().manual_seed(0)).train
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=rate)
    risk = Risk(model.eval(), loss, (x[:500], y[:500]))  # before training: the sharpness is that of these examples
    sharpness, top = list[float](), None
    for epoch in range(num_epochs):
        model.train()
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
        risk = risk.at(model)  # the weights of now, and the same 500 examples
        top = eigenpairs(hessian(risk), 1, start=top, tolerance=1e-3)  # from where the last search ended
        sharpness.append(float(top.values[0]))
        print(f"epoch {epoch + 1:2d}   loss {risk.loss_value():.4f}   λ_max {sharpness[-1]:6.2f}   2/η {2 / rate:.1f}")
    return sharpness


if __name__ == "__main__":
    main()
