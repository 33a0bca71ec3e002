"""Weights and data in the form that closed forms take: float64 on the CPU, finite, with matching shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError, NumericalError, kind_of
from .layer_products import Weights, check_has_layers


def matrix(name: str, A: Tensor) -> Float[Tensor, "a b"]:
    """A in float64 on the CPU; refused unless it is a finite matrix with entries."""
    finite = bool(A.isfinite().all())
    if A.ndim != 2 or not A.numel() or not finite:
        raise ArgumentError(
            f"{name} has shape {tuple(A.shape)}{'' if finite else ' and NaN or infinite entries'}.",
            "A closed form takes finite matrices: weights are out × in, data are rows (N × D, N × K).",
            f"Give {name} two dimensions, for instance {name}[:, None] for a single column.",
        )
    return A.detach().to("cpu", torch.float64)


def vector(name: str, given: Tensor) -> Float[Tensor, " m"]:
    """A vector in float64 on the CPU; refused unless it is finite, one-dimensional and not empty."""
    if given.ndim != 1 or not given.numel() or not bool(given.isfinite().all()):
        raise ArgumentError(
            f"{name} has shape {tuple(given.shape)}"
            + ("." if bool(given.isfinite().all()) else " and NaN or infinite entries."),
            "Here a closed form takes finite vectors: one number per hidden unit, or one per example.",
            f"Flatten it, {name}.flatten(), or look for the overflow that made it infinite.",
        )
    return given.detach().to("cpu", torch.float64)


def check_lengths(**vectors: Tensor) -> None:
    """Refuse vectors or rows whose numbers should agree and do not."""
    (first, reference), *others = vectors.items()
    for name, other in others:
        check_sizes(
            f"{name} of shape {tuple(other.shape)} goes with {first} of shape {tuple(reference.shape)}",
            len(other),
            len(reference),
        )


def layers(weights: Sequence[Tensor]) -> list[Tensor]:
    """W₁ … W_L in float64; refused unless each takes the outputs of the one before."""
    check_has_layers(weights)
    Ws = [matrix(f"W{i}", W) for i, W in enumerate(weights, 1)]
    for i, (W, after) in enumerate(pairwise(Ws), 1):
        check_sizes(f"W{i + 1} {tuple(after.shape)} follows W{i} {tuple(W.shape)}", after.shape[1], len(W))
    return Ws


def check_sizes(seen: str, size: int, other: int) -> None:
    """Refuse two sizes that should agree and do not."""
    if size != other:
        raise ArgumentError(
            f"{seen}: {size} is not {other}.",
            "Weights are out × in (y = W x), data are rows: X is N × D, Y is N × K.",
            "Transpose the one that is the other way round.",
        )


def checked_loss(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss, which is refused if it returns anything but one number as a tensor."""

    def checked(*at: Tensor) -> Tensor:
        value = loss(*at)
        if not isinstance(value, Tensor) or value.ndim:
            raise ArgumentError(
                f"The loss returned {f'shape {tuple(value.shape)}' if isinstance(value, Tensor) else kind_of(value)}.",
                "It is differentiated as a function with one value, computed from its arguments by PyTorch.",
                "Add up what it returns: loss(...).sum().",
            )
        return value

    return checked


def check_in_range(numbers: Tensor, of: str) -> None:
    """Refuse numbers beyond float64."""
    if not bool(numbers.isfinite().all()):
        raise NumericalError(
            f"{of} are beyond {torch.finfo(torch.float64).max:.2g}, the largest number of float64.",
            "They are powers of the weights and inputs given.",
            "Scale these down.",
        )


def regression(weights: Sequence[Tensor], X: Tensor, Y: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """Weights, inputs and targets of one linear regression, in float64 and fitting together."""
    (Ws, X), Y = weights_and_inputs(weights, X), matrix("Y", Y)
    check_sizes(f"The last layer {tuple(Ws[-1].shape)} is compared with Y {tuple(Y.shape)}", Y.shape[1], len(Ws[-1]))
    check_sizes(f"X has {len(X)} rows and Y has {len(Y)}", len(Y), len(X))
    return Ws, X, Y


def weights_and_inputs(weights: Sequence[Tensor], X: Tensor) -> tuple[list[Tensor], Tensor]:
    """Weights and inputs, in float64 and fitting together."""
    Ws, X = layers(weights), matrix("X", X)
    check_sizes(f"W1 {tuple(Ws[0].shape)} is applied to X {tuple(X.shape)}", X.shape[1], Ws[0].shape[1])
    return Ws, X


def stacked(weights: Weights) -> list[Float[Tensor, "*B _ _"]]:
    """W₁ … W_L of one network, as from `layers`; those of a stack in float64 on their own device.

    A stack may have networks with NaN or infinite entries, since training may diverge: results for them are NaN.
    """
    if not len(weights) or all(W.ndim == 2 for W in weights):
        return layers(weights)
    for i, (W, after) in enumerate(pairwise(weights), 1):
        check_sizes(f"W{i + 1} {tuple(after.shape)} follows W{i} {tuple(W.shape)}", after.shape[-1], W.shape[-2])
    return [W.detach().double() for W in weights]


def stacked_on(
    weights: Weights, X: Float[Tensor, "*b N d"] | float
) -> tuple[list[Float[Tensor, "*B _ _"]], Float[Tensor, "*b q d"]]:
    """Weights, and R with RᵀR = XᵀX/N and at most d rows; R = σₓI if the data are given by σₓ."""
    Ws = stacked(weights)
    d = Ws[0].shape[-1]
    if not isinstance(X, Tensor):
        return Ws, X * torch.eye(d).to(Ws[0])
    rows = (matrix("X", X) if X.ndim == 2 else X.detach()).to(Ws[0]) / X.shape[-2] ** 0.5
    check_sizes(f"W1 {tuple(Ws[0].shape)} is applied to X {tuple(X.shape)}", X.shape[-1], d)
    check_stacks([*Ws, X])
    return Ws, rows if rows.shape[-2] <= d else torch.linalg.qr(rows, mode="r").R


def check_stacks(matrices: Sequence[Tensor]) -> None:
    """Refuse stacks of different numbers of networks."""
    try:
        torch.broadcast_shapes(*(matrix.shape[:-2] for matrix in matrices))
    except RuntimeError as error:
        raise ArgumentError(
            f"Stacks have the shapes {', '.join(str(tuple(matrix.shape)) for matrix in matrices)}.",
            "The leading dimensions count networks, each with its own data, and they differ.",
            "Give as many data sets as there are networks, or one for all of them.",
        ) from error
