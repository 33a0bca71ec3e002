"""White problems, plain networks on them, and the figures of the paper."""

from itertools import pairwise

import torch
from torch.func import grad, jacfwd

from ritz.papers.frame.registry import figures
from ritz.papers.linear2026 import data

IDS = ["fig1a", "fig1b", "fig1c", "fig2a", "fig2b", "fig2c", "fig3", "fig4"]


def paper_figures():
    return figures(["linear2026.*"])


def problem(generator, N=40, D=9, K=3, sigma_x=1.5):
    X = data.white_inputs(torch.randn(N, D, generator=generator, dtype=torch.float64), sigma_x, "qr")
    return X, torch.randn(N, K, generator=generator, dtype=torch.float64)


def gaussian_weights(generator, *widths):
    return [torch.randn(b, a, generator=generator, dtype=torch.float64) / a**0.5 for a, b in pairwise(widths)]


def loss_of(shapes, X, Y):
    def loss(theta):
        z = X
        for W, shape in zip(theta.split([a * b for a, b in shapes]), shapes, strict=True):
            z = z @ W.view(shape).T
        return (z - Y).square().sum() / (2 * len(X))

    return loss


def dense_hessian(weights, X, Y):
    theta = torch.cat([W.flatten() for W in weights])
    return jacfwd(grad(loss_of([W.shape for W in weights], X, Y)))(theta)


def verdicts(name, record):
    paper_figures()[f"linear2026.{name}"].draw(record)
    claims = paper_figures()[f"linear2026.{name}"].claims(record)
    assert all(claim.why and "nan" not in claim.why for claim in claims if claim.verdict != "yes")
    return [claim.verdict for claim in claims]
