"""The data of the figures: subsets of real data sets, and the little of them that matters to a linear network.

On white inputs the loss ‖WX - Y‖²/2N of a linear map is ½‖σₓW - T‖² plus a constant, with T = YᵀX/(Nσₓ): of five
thousand images, only a matrix with a row for each class matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ArgumentError
from ...lab import data
from ...lab.data import Examples
from ...lab.training import EquivalentExamples

Name = Literal["mnist", "fashion_mnist", "cifar10", "digits"]
Whitening = Literal["qr", "rank"]
Inputs = Whitening | Literal["raw"]
TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits 8 × 8"}
NUM_CLASSES = 10
FULL_RANK = 100 * torch.finfo(torch.float64).eps  # σ²_min/‖X‖²_F of data that need no SVD: above a Cholesky's rounding
PRINCIPAL = 1e-14  # of the largest eigenvalue of XᵀX: smaller ones are rounding
WHITE = 1e-8  # of σₓ²: far above what float64 leaves, far below one input of thousands that is not white


@dataclass(frozen=True, eq=False)
class White:
    """½‖σₓW - T‖² + rest: the squared loss of a linear map W on white inputs, as a function of W."""

    T: Float[Tensor, "K D"]
    rest: float
    sigma_x: float

    @classmethod
    def of(cls, X: Float[Tensor, "N D"], Y: Float[Tensor, "N K"], sigma_x: float) -> White:
        """The loss on these inputs, which are checked to be white, and targets."""
        _check_white(X, sigma_x)
        T = Y.T @ X / (len(X) * sigma_x)
        rest = (Y - X @ T.T / sigma_x).square().sum() / (2 * len(X))
        return cls(T, float(rest), sigma_x)

    def loss(self, weights: Sequence[Float[Tensor, "_ _"]]) -> float:
        """The loss of a linear network, W being the product of its weights."""
        *others, W = weights[::-1]
        W = W if not others else reduce(torch.matmul, others) @ W
        return float((self.sigma_x * W - self.T).square().sum()) / 2 + self.rest

    def examples(self) -> EquivalentExamples:
        """D + 1 examples with the same loss: the coordinate axes, and one that carries what no linear map can fit."""
        K, D = self.T.shape
        x, y = self.T.new_zeros(D + 1, D), self.T.new_zeros(D + 1, K)
        x[:D], y[:D], y[D, 0] = self.sigma_x * torch.eye(D).to(x), self.T.T, math.sqrt(2 * self.rest)
        return EquivalentExamples(math.sqrt(D + 1) * x, math.sqrt(D + 1) * y)


def training_set(name: Name, folder: Path | None) -> Examples:
    """All training examples of a data set, flattened; pixels in [0, 1], except that the digits are standardised."""
    if name == "digits":
        return data.digits(generator=torch.Generator().manual_seed(0)).train
    read = {"mnist": data.mnist, "fashion_mnist": data.fashion_mnist, "cifar10": data.cifar10}[name]
    return data.flattened(read(folder=folder).train)


def subset(examples: Examples, total: int, *, alpha_max: float | None, seed: int) -> Examples:
    """`total` random examples, a share α_max of them of class 0; None keeps the shares of the data set.

    A seed fixes the order of each class, so that a smaller subset of a class is contained in a larger one.
    """
    generator = torch.Generator().manual_seed(seed)
    if alpha_max is None:
        return data.subsample(examples, total=total, generator=generator)
    return data.imbalanced(examples, alpha_max=alpha_max, total=total, generator=generator)


def regression(examples: Examples, device: torch.device) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N K"]]:
    """Inputs and one-hot targets in float64."""
    Y = data.one_hot(examples.y, NUM_CLASSES, dtype=torch.float64)
    return examples.x.to(device, torch.float64), Y.to(device)


def principal_examples(moments: EquivalentExamples) -> tuple[Float[Tensor, "D D"], EquivalentExamples]:
    """V with XᵀX = V diag(s²) Vᵀ, and examples on the coordinate axes on which W V has the loss of W on the data.

    Directions with less than 1e-7 of the largest s count as impossible to fit: descent never reaches them.
    """
    x, y = moments
    values, V = torch.linalg.eigh(x.T @ x)
    s = torch.where(values > PRINCIPAL * values.max(), values, 0.0).sqrt()
    T = (x @ V / torch.where(s > 0, s, 1.0)).T @ y * (s > 0)[:, None]
    rest = y.new_zeros(1, y.shape[1])
    rest[0, 0] = (y.square().sum() - T.square().sum()).clamp_min(0).sqrt()
    scale = math.sqrt((len(s) + 1) / len(x))
    inputs = torch.cat([torch.diag(s), s.new_zeros(1, len(s))])
    return V, EquivalentExamples(scale * inputs, scale * torch.cat([T, rest]))


def largest_share(examples: Examples) -> float:
    """α_max = σ²_max(Y)/N, the share of the most frequent class."""
    return int(examples.y.bincount().max()) / len(examples.y)


def white_inputs(X: Float[Tensor, "N D"], sigma_x: float, inputs: Whitening) -> Float[Tensor, "N r"]:
    """White inputs √N σₓQ as in the paper ("qr"), or as many inputs as the rank of the data ("rank").

    For data of full rank, both span the same space, and the former is returned, which takes a tenth of the time.
    """
    return _whitened(X, sigma_x, "qr" if inputs == "qr" or has_full_rank(X) else "rank")


def whitenings(
    X: Float[Tensor, "N D"], Y: Float[Tensor, "N K"], sigma_x: float, kinds: Sequence[Whitening]
) -> dict[str, White]:
    """The data by each whitening; the same object for all of them if the data have full rank."""
    if "rank" in kinds and not has_full_rank(X):
        return {kind: White.of(_whitened(X, sigma_x, kind), Y, sigma_x) for kind in kinds}
    return dict.fromkeys(kinds, White.of(_whitened(X, sigma_x, "qr"), Y, sigma_x))


def _whitened(X: Tensor, sigma_x: float, kind: Whitening) -> Float[Tensor, "N r"]:
    return data.whiten_by_qr(X, sigma_x) if kind == "qr" else data.whiten(X, sigma_x).x


def has_full_rank(X: Float[Tensor, "N D"]) -> bool:
    """Whether XᵀX - δ‖X‖²I has a Cholesky factor, which proves σ²_min(X) > δ‖X‖²; never for a rank deficient X."""
    G = X.T @ X
    shift = FULL_RANK * G.diagonal().sum()
    return int(torch.linalg.cholesky_ex(G - shift * torch.eye(len(G)).to(G)).info) == 0


def _check_white(X: Float[Tensor, "N D"], sigma_x: float) -> None:
    """Refuse inputs with large ‖(XᵀX/N - σₓ²I)Z‖/σₓ²‖Z‖ for random Z: far cheaper than `theory.whiteness`."""
    Z = torch.randn(X.shape[1], 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(X)
    deviation = float((X.T @ (X @ Z) / len(X) - sigma_x**2 * Z).norm() / (sigma_x**2 * Z.norm()))
    if not deviation < WHITE:
        raise ArgumentError(
            f"The inputs are not white: ‖XᵀX/N - σₓ²I‖ is some {deviation:.2g} of σₓ² = {sigma_x**2:g}.",
            "Their loss is ½‖σₓW - T‖² only if every direction has the variance σₓ² (linear2026, Assumption 2).",
            "Pass white_inputs(X, sigma_x, ...).",
        )
