"""What is differentiated: the risk of a model on its data, as a function of its parameters."""

from ..arguments import guard
from .losses import BinaryCrossEntropy, Classification, CrossEntropy, Loss, SquaredError
from .risk import Risk

__all__ = ["BinaryCrossEntropy", "Classification", "CrossEntropy", "Loss", "Risk", "SquaredError"]

# A risk says by itself what a model or a loss must be; the rest is called by the engine, in every product.
_UNGUARDED = ("__init__", "outputs", "leaves", "unflatten", "flatten", "sum_over_ranks", "numerics")
guard(__name__, leaving=[*(name for name in __all__ if name != "Risk"), *(f"Risk.{name}" for name in _UNGUARDED)])
