"""Where spectral lines come from: the structure of classes and cross-classes in gradients and layers."""

from ..arguments import guard
from .gradients.decomposition import ClassDecomposition, class_decomposition
from .knockouts import project, subtract
from .layers.error_structure import backpropagated_errors
from .layers.feature_structure import features
from .layers.weight_structure import weights
from .lines.attributions import Attribution, attribution

__all__ = [
    "Attribution", "ClassDecomposition", "attribution", "backpropagated_errors", "class_decomposition", "features",
    "project", "subtract", "weights",
]  # fmt: skip

guard(__name__)
