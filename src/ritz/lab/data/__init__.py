"""Data sets as tensors: bundled, read from files, or drawn; the same for the same files and the same generator."""

from ...arguments import guard
from .examples import Examples, Split
from .images import cifar10, cifar100, digits, fashion_mnist, mnist
from .synthetic import (
    canonical_classification,
    decorrelated,
    gaussian_mixture,
    gaussian_regression,
    normalized,
    pareto_matrix,
    reversed_sequences,
    spiked_matrix,
    teacher,
    wedge,
)
from .texts import Corpus, tiny_shakespeare, windows
from .transforms import Whitened, flattened, imbalanced, one_hot, padded, standardized, subsample, whiten, whiten_by_qr

__all__ = [
    # what a data set is
    "Corpus", "Examples", "Split",
    # real ones
    "cifar10", "cifar100", "digits", "fashion_mnist", "mnist", "tiny_shakespeare", "windows",
    # drawn ones: regression, classification, sequences
    "canonical_classification", "decorrelated", "gaussian_mixture", "gaussian_regression", "normalized",
    "reversed_sequences", "teacher", "wedge",
    # random matrices: Papyan (2020), Fig. 15
    "pareto_matrix", "spiked_matrix",
    # what is done to them
    "Whitened", "flattened", "imbalanced", "one_hot", "padded", "standardized", "subsample", "whiten", "whiten_by_qr",
]  # fmt: skip

guard(__name__)
