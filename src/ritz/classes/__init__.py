"""Where spectral lines come from: the structure of classes and cross-classes in gradients and layers."""

from .decomposition import ClassDecomposition, class_decomposition
from .structure import backpropagated_errors, features, weights

__all__ = ["ClassDecomposition", "backpropagated_errors", "class_decomposition", "features", "weights"]
