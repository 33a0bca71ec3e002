"""Losses: those whose derivatives are known in closed form, and every other one by automatic differentiation."""

from .closed_form import BinaryCrossEntropy, CrossEntropy, SquaredError, complement_of_root
from .conversion import loss_from
from .loss import Loss, not_convex, on_device

__all__ = [
    "BinaryCrossEntropy", "CrossEntropy", "Loss", "SquaredError",
    "complement_of_root", "loss_from", "not_convex", "on_device",
]  # fmt: skip
