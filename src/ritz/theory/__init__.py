"""Closed forms of Hessian spectra: weights and data in, named lines with eigenvectors out."""

from .closed_form import ClosedForm, Comparison, Group, GroupError, NoEigenvectorsError, compare

__all__ = [
    "ClosedForm", "Comparison", "Group", "GroupError", "NoEigenvectorsError", "compare",
]  # fmt: skip
