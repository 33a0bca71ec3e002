"""The Gauss-Newton matrix in ways of its own: through its Gram matrix, and as Kronecker products."""

from .gram import Gram, gram_spectrum
from .kronecker import cfac, kfac, khatri_rao_cfac, khatri_rao_kfac

__all__ = ["Gram", "cfac", "gram_spectrum", "kfac", "khatri_rao_cfac", "khatri_rao_kfac"]
