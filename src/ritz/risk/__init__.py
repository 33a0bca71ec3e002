"""What is differentiated: the risk of a model on its data, as a function of its parameters."""

# Where to begin reading: `risk`, whose constructor uses the others in this order.
# - The model: `model` refuses unsuitable ones, `original` is a snapshot of the user's, `parameters` says what θ is,
#   `network` is the model as a function of named tensors, and `point` holds θ with the network as a function of it.
# - The data: `data` makes `batches` of every form of data, and `fingerprints` compare one pass with the next.
# - Before the first product: `first_evaluation` with `separability` and `caches`, then `own_gradient`.
# - Besides: `losses`, with `class_terms` and `data_by_class` for those with classes; `memory`, `precision`,
#   `devices` and `distributed` ranks; `randomness` and `undo`, which leave the process as it was.

from ..arguments import guard
from .losses import BinaryCrossEntropy, Classification, CrossEntropy, Loss, SquaredError
from .risk import Risk

__all__ = ["BinaryCrossEntropy", "Classification", "CrossEntropy", "Loss", "Risk", "SquaredError"]

# A risk says by itself what a model or a loss must be; the rest is called by the engine, in every product.
_OF_PASSES = "outputs", "leaves", "has_terms", "check_terms", "in_double"
_OF_THE_ENGINE = *_OF_PASSES, "unflatten", "flatten", "sum_over_ranks", "numerics"
_UNGUARDED = ("__init__", *_OF_THE_ENGINE)
guard(__name__, leaving=[*(name for name in __all__ if name != "Risk"), *(f"Risk.{name}" for name in _UNGUARDED)])
