"""What algorithms and theory return: spectra, eigenpairs and estimates, each with its own error."""

from ..arguments import guard
from .eigenpairs import Eigenpairs
from .estimate import Estimate
from .spectra import Spectrum

__all__ = ["Eigenpairs", "Estimate", "Spectrum"]

guard(__name__)
