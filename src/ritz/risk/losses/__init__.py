"""Losses, with derivatives in closed form where they are known, and by automatic differentiation otherwise."""

from .binary_cross_entropy import BinaryCrossEntropy
from .by_autograd import no_second_derivative
from .classification import Classification, class_indices, complement_of_root, is_label
from .conversion import loss_from
from .cross_entropy import CrossEntropy
from .loss import Loss, not_convex, on_device, own_copy
from .squared_error import SquaredError

__all__ = [
    "BinaryCrossEntropy", "Classification", "CrossEntropy", "Loss", "SquaredError",
    "class_indices", "complement_of_root", "is_label", "loss_from", "no_second_derivative", "not_convex", "on_device",
    "own_copy",
]  # fmt: skip
