"""Where spectral lines come from: the structure of classes and cross-classes in gradients and layers."""

from .attributions import Attribution, attribution
from .decomposition import ClassDecomposition, class_decomposition
from .knockouts import project, subtract
from .layer_structure import backpropagated_errors, features, weights

__all__ = [
    "Attribution", "ClassDecomposition", "attribution", "backpropagated_errors", "class_decomposition", "features",
    "project", "subtract", "weights",
]  # fmt: skip
