"""Losses and matrices that the engine is held against, with their dense derivatives."""

import torch
from torch import nn
from torch.nn import functional as F

import ritz
from ritz.engine import PATHS, CurvatureProduct, curvatures
from tests.zoo import OUTPUTS, dense_hessian, whole


def cubic(z, y):
    return (z - y).abs().pow(3).sum(-1) + z[..., 0] * z[..., 1]


def class_targets(shape):
    return torch.randint(OUTPUTS, shape[:-1], generator=torch.Generator().manual_seed(1))


def real_targets(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


LOSSES = {
    "cross entropy": (
        ritz.CrossEntropy(),
        class_targets,
        lambda z, y: F.cross_entropy(z.flatten(0, -2), y.flatten(), reduction="none"),
    ),
    "squared error": (ritz.SquaredError(), real_targets, lambda z, y: 0.5 * (z - y).square().sum(-1)),
    "binary": (
        nn.BCEWithLogitsLoss(),
        lambda s: real_targets(s).sigmoid(),
        lambda z, y: F.binary_cross_entropy_with_logits(z, y, reduction="none").mean(-1),
    ),
    "custom": (cubic, real_targets, cubic),
}  # as ritz takes it; its targets; one value for each term, all of the same weight


MATRICES = {
    "H": (ritz.hessian, curvatures.HESSIAN),
    "G": (ritz.gauss_newton, curvatures.GAUSS_NEWTON),
    "E": (ritz.functional_hessian, curvatures.FUNCTIONAL),
    "F": (ritz.empirical_fisher, curvatures.FISHER),
}
PATH = {path.name: path for path in PATHS}


def by_paths(risk, kind, *paths):
    """The operator of a matrix with these paths alone."""
    product = CurvatureProduct(risk, kind, paths)
    return ritz.Operator(product, risk.size, risk.dtype, risk.device, inform=lambda: product.info)


RULES = "rules"


def path_name(A):
    """The path on which an operator multiplies."""
    return A.info.path


def dense_matrices(risk, built, y, terms):
    """H, G, E = H - G and the empirical Fisher matrix from dense derivatives of the whole data set."""
    outputs, total = whole(risk, built), lambda z, y: terms(z, y).mean()
    z = outputs(risk.theta).detach()
    H = dense_hessian(lambda t: total(outputs(t), y), risk.theta)
    J = torch.func.jacfwd(lambda t: outputs(t).flatten())(risk.theta)
    B = dense_hessian(lambda u: total(u.view_as(z), y), z.flatten())
    G = J.T @ B @ J
    gradients = torch.func.jacfwd(lambda t: terms(outputs(t), y).flatten())(risk.theta)
    return {"H": H, "G": G, "E": H - G, "F": gradients.T @ gradients / len(gradients)}
