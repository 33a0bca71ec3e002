"""What is differentiated: the risk of a model on its data, as a function of its parameters."""

from .losses import BinaryCrossEntropy, Classification, CrossEntropy, Loss, SquaredError
from .risk import Risk

__all__ = ["BinaryCrossEntropy", "Classification", "CrossEntropy", "Loss", "Risk", "SquaredError"]
