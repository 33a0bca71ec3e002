"""How to read each section of a page, in a few sentences for readers who see a spectrum for the first time."""

from __future__ import annotations

from collections.abc import Collection

BENDS = (
    "Every eigenvalue is the curvature of the loss along one direction in the space of parameters. Far to the right of "
    "zero are the steep directions, near zero those along which the loss hardly bends, left of zero those along which "
    "it bends downwards. Stems show the largest in magnitude, one by one; the curve shows all others."
)
OTHER = "Every eigenvalue belongs to one direction in the space of parameters: how large the matrix is along it."
SUM = "H = G + E: G is the curvature if the network were linear in its parameters, E is what its own curvature adds."
SIZES = "The same eigenvalues by their size, without their signs: a linear axis puts most of them into one peak."
STEP = "A short step ε along the eigenvector of λ changes the loss by ½ λ ε², in addition to what the slope does."
PARTS = (
    "G is a mean over examples and over the labels that each might have had. Gradients are averaged by class and by "
    "such label, and G falls into four parts: G_class is made by the mean of each class, G_cross by how the means with "
    "wrong labels differ, G_own by those with the right label, G_within by how examples differ within these groups."
)
SHARES = "The shares of a row sum up to its eigenvalue. A negative share takes away from it."
BLOCKS = (
    "Each layer by itself, while all others stay as they are. How layers act together is not included, so the largest "
    "λ of the whole matrix is at least that of every layer, and often more."
)
TRUST = (
    "Every number above links to this table. A residual is measured by one more product, and is a bound: the matrix, "
    "as products give it, has an eigenvalue within that distance, however it was found. Two standard errors hold the "
    "truth in 95 of 100 runs. Both are about these examples: they do not say how far others would move the numbers."
)


def of_density(matrices: Collection[str]) -> str:
    """How to read the densities of these matrices.

    >>> of_density(["gauss_newton"]) == OTHER
    True
    """
    first = BENDS if "hessian" in matrices else OTHER
    return f"{first} {SUM}" if {"hessian", "gauss_newton", "functional_hessian"} <= {*matrices} else first
