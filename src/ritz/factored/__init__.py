"""Ways that only the Gauss-Newton matrix allows: its Gram matrix, and Kronecker products."""

from ..arguments import guard
from .eigenvalue_correction import ekfac
from .gram import Gram, gram_spectrum
from .khatri_rao import khatri_rao_cfac, khatri_rao_kfac
from .kronecker import cfac, kfac

__all__ = ["Gram", "cfac", "ekfac", "gram_spectrum", "kfac", "khatri_rao_cfac", "khatri_rao_kfac"]

guard(__name__)
