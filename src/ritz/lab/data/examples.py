"""What a data set is here: pairs of tensors, in two parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor

from ...errors import ArgumentError


class Examples(NamedTuple):
    """Inputs and their labels or targets: a pair of tensors, as `Risk` and `train` take it."""

    x: Shaped[Tensor, "N ..."]
    y: Shaped[Tensor, "N ..."]


@dataclass(frozen=True)
class Split:
    """One data set in two parts: what a model is trained on, and what it is tested on."""

    train: Examples
    test: Examples


def digits(*, generator: torch.Generator, test_fraction: float = 0.2, dtype: torch.dtype = torch.float32) -> Split:
    """The 1,797 handwritten digits, 8 × 8 pixels, 10 classes, that come with scikit-learn.

    Standardised by the one mean and deviation of the training pixels: some pixels are blank in every image, so they
    have no deviation of their own. Alpaydin and Kaynak (1998), test set of "Optical Recognition of Handwritten Digits".
    """
    check_fraction(test_fraction)
    from sklearn.datasets import load_digits  # takes a second to import

    images, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels).long()
    order = torch.randperm(len(x), generator=generator, device=generator.device).cpu()
    num_test = round(test_fraction * len(x))
    test, train = order[:num_test], order[num_test:]
    x = (x - x[train].mean()) / x[train].std()
    return Split(Examples(x[train], y[train]), Examples(x[test], y[test]))


def check_fraction(test_fraction: float) -> None:
    """Refuse a part that leaves nothing for the other one."""
    if not 0 < test_fraction < 1:
        raise ArgumentError(
            f"test_fraction={test_fraction} was given.",
            "Both parts have examples: a model is trained on the one and tested on the other.",
            "Give a number between 0 and 1.",
        )
