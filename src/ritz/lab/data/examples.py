"""Data sets as pairs of tensors, in two parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Shaped
from torch import Tensor

from ...errors import ArgumentError


class Examples(NamedTuple):
    """Inputs and their labels or targets: a pair of tensors, as `Risk` and `train` take it.

    >>> Examples(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    Examples(x: 3 × 2, float32, y: 3, int64)
    >>> x, y = Examples(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    >>> len(x), y.tolist()
    (3, [0, 1, 1])
    """

    x: Shaped[Tensor, "N ..."]
    y: Shaped[Tensor, "N ..."]

    def __repr__(self) -> str:
        return f"Examples(x: {_shape(self.x)}, y: {_shape(self.y)})"


@dataclass(frozen=True)
class Split:
    """One data set in two parts, for training and for testing.

    >>> data = Examples(torch.zeros(3, 2), torch.zeros(3))
    >>> len(Split(train=data, test=data).test.x)
    3
    """

    train: Examples
    test: Examples


def _shape(tensor: Tensor) -> str:
    return f"{' × '.join(map(str, tensor.shape))}, {str(tensor.dtype).removeprefix('torch.')}"


def check_fraction(test_fraction: float) -> None:
    """Refuse a part that leaves nothing for the other one."""
    if not 0 < test_fraction < 1:
        raise ArgumentError(
            f"test_fraction={test_fraction} was given.",
            "Both parts need examples: a model is trained on one and tested on the other.",
            "Give a number between 0 and 1.",
        )
