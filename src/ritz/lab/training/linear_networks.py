"""Linear networks, whose squared loss depends on the data only through second moments: descent at a cost free of N.

With W = W_L … W_1 and X/√N = QR, the loss ½E‖Wx - y‖² is ½‖RWᵀ - QᵀY/√N‖² plus a constant. Nothing cancels, so that a
loss of 1e-30 has as many digits as one of 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...arguments import bare
from ...errors import DataError
from ...record import SAVE_SECONDS, digest, identity_of
from ...record.checkpoints import Arrays
from ...theory import products_after
from .batches import Division
from .captured import step_of_rows
from .loop import Pause, check_run, pauses
from .rates import factors, learning_rates
from .schedules import Constant, Pace, Schedule

Weights = Sequence[Float[Tensor, "*B _ _"]]
_products_after = bare(products_after)  # of weights that were looked at before the first step


@dataclass(frozen=True)
class RowLoss:
    """½‖RWᵀ - T‖²/count + rest, as a function of the product W; `count` is 1, or the number of plain examples."""

    R: Float[Tensor, "*b q D"]
    T: Float[Tensor, "*c q K"]
    rest: Float[Tensor, "*d"]
    count: int = 1

    def loss_and_slope(self, W: Float[Tensor, "*B K D"]) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B K D"]]:
        """The loss and its derivative (RWᵀ - T)ᵀR/count."""
        E = self.R @ W.mT - self.T
        return E.square().sum((-2, -1)) / (2 * self.count) + self.rest, E.mT @ self.R / self.count


@dataclass(frozen=True)
class DiagonalLoss:
    """`RowLoss` for R = diag(s), where W is in the basis of the data's right singular vectors."""

    s: Float[Tensor, "*b r"]
    T: Float[Tensor, "*c K r"]
    rest: Float[Tensor, "*d"]

    def loss_and_slope(self, W: Float[Tensor, "*B K r"]) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B K r"]]:
        """The loss and its derivative (Ws - T)s."""
        E = W * self.s[..., None, :] - self.T
        return E.square().sum((-2, -1)) / 2 + self.rest, E * self.s[..., None, :]


class EquivalentExamples(NamedTuple):
    """A small data set with the squared loss of a large one: a pair of tensors, as `Risk` and `train` take it.

    >>> x, y = EquivalentExamples(torch.zeros(4, 3), torch.zeros(4, 2))
    >>> x.shape
    torch.Size([4, 3])
    """

    x: Float[Tensor, "*b q D"]
    y: Float[Tensor, "*c q K"]


def compressed(X: Float[Tensor, "*b N D"], Y: Float[Tensor, "*c N K"]) -> EquivalentExamples:
    """At most D + 1 examples on which every linear network without biases has the squared loss that it has on all N.

    So its gradient and Hessian are the same, too, for a fraction of the cost. The last example has the input 0 and
    carries what no linear map can fit. Exact in all derivatives; not for networks that are not linear in x.

    >>> X, Y = torch.randn(100, 3), torch.randn(100, 2)
    >>> [tuple(part.shape) for part in compressed(X, Y)]
    [(4, 3), (4, 2)]
    """
    _check_data(X, Y)
    precision = torch.promote_types(X.dtype, Y.dtype)
    rows = _rows(X.to(precision), Y.to(precision))
    count = rows.R.shape[-2] + 1
    stack = torch.broadcast_shapes(rows.T.shape[:-2], rows.rest.shape)  # inputs may be stacked, targets shared
    T, zero = rows.T.expand(*stack, -1, -1), rows.R.new_zeros(*rows.R.shape[:-2], 1, rows.R.shape[-1])
    last = torch.zeros_like(T[..., :1, :])
    last[..., 0, 0] = (2 * rows.rest).sqrt()
    scale = math.sqrt(count)
    return EquivalentExamples(scale * torch.cat([rows.R, zero], -2), scale * torch.cat([T, last], -2))


def linear_descent(
    weights: Weights,
    X: Float[Tensor, "*b N D"],
    Y: Float[Tensor, "*c N K"],
    *,
    learning_rate: float | Float[Tensor, "*S"],
    num_epochs: int,
    schedule: Schedule | None = None,
    layer_rates: Sequence[float] | None = None,
    multipliers: Sequence[float] | None = None,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    checkpoint: str | Path | None = None,
    save_seconds: float = SAVE_SECONDS,
    capture: bool = False,
) -> Iterator[Pause[Any, list[Tensor]]]:
    """Gradient descent of ½E‖W_L … W_1x - y‖², the steps of `train` at a cost that does not grow with N.

        for pause in linear_descent(weights, X, Y, learning_rate=0.01, num_epochs=10_000, schedule=HALVING):
            W1, W2 = pause.parameters

    Weights may be stacks of networks, B × out × in, trained in step, each at its own rate and pace; inputs and targets
    are shared, or one set for each network (B × N × D). Full-batch descent rotates W_1 into the singular basis of the
    data, in which a step costs as much as the product of the weights; the trajectory is the same up to rounding. The
    given weights stay as they are: `pause.parameters` are new ones.

    Args:
        layer_rates: Multiplies the learning rate, layer by layer (`Parametrization.learning_rates`).
        multipliers: Of the layers, h ↦ mₗWₗh, as in the neural-tangent parametrisation.
        batch_size: None for all examples at once; else batches, the same for all networks.
        schedule, checkpoint, save_seconds, capture: As in `train`.

    >>> X, Y = torch.ones(1, 1), torch.zeros(1, 1)
    >>> [pause.loss for pause in linear_descent([torch.ones(1, 1)], X, Y, learning_rate=0.5, num_epochs=3)]
    [0.5, 0.125, 0.03125]
    """
    check_run(num_epochs=num_epochs, batch_size=batch_size, generator=generator)
    _check_data(X, Y)
    shape = _stack(weights, X, Y)
    schedule = Constant() if schedule is None else schedule
    rates = factors("layer_rates", layer_rates, len(weights))
    scales = factors("multipliers", multipliers, len(weights), signed=True)
    rate = learning_rates(learning_rate, shape, weights[0].device)
    division = Division(X.shape[-2], batch_size, generator)
    trainee = _Linear(weights, X, Y, rate, rates, scales, division, capture=capture)
    return pauses(
        trainee,
        schedule,
        torch.full_like(rate, torch.inf),
        num_epochs=num_epochs,
        label="Linear descent",
        checkpoint=checkpoint,
        save_seconds=save_seconds,
        settings={"batch_size": batch_size, "layer_rates": rates, "multipliers": scales},
    )


class _Linear:
    """A stack of linear networks as the loop of `pauses` sees it; of networks alone, where the stack has no shape."""

    def __init__(
        self,
        weights: Weights,
        X: Tensor,
        Y: Tensor,
        learning_rate: Float[Tensor, "*S"],
        layer_rates: Sequence[float],
        multipliers: Sequence[float],
        division: Division,
        *,
        capture: bool,
    ) -> None:
        like = weights[0].detach()
        self.X, self.Y = X.detach().to(like), Y.detach().to(like)
        self.learning_rate, self.layer_rates, self.multipliers = learning_rate, layer_rates, multipliers
        self.division, self.generator, self.steps_per_epoch = division, division.generator, division.num_batches
        self.initial = [W.detach().expand(*learning_rate.shape, -1, -1).clone() for W in weights]  # none of the user's
        self.weights = [W.clone() for W in self.initial]
        if division.batch_size is None:
            self.directions, self.full = _diagonal(self.X, self.Y)
            self.weights[0] = self.weights[0] @ self.directions
            self.first = self.weights[0].clone()
        self.current = torch.zeros_like(learning_rate, dtype=like.dtype)[..., None, None]  # where a graph reads it
        self.step_of_rows = step_of_rows(self._step_of_rows, capture=capture, tensors=[self.X, *self.weights])

    def epoch(self, pace: Pace) -> tuple[Tensor, None]:
        self.current.copy_(torch.where(pace.done, 0.0, self.learning_rate * pace.factor)[..., None, None])
        if self.division.batch_size is None:
            return self._step(self.full, self.current).double(), None
        return self.division.mean(lambda rows: self.step_of_rows(rows)[0], torch.zeros_like(pace.factor)), None

    def _step_of_rows(self, rows: Tensor) -> tuple[Tensor]:
        return (self._step(self._batch(rows), self.current),)

    def _batch(self, rows: Tensor) -> RowLoss:
        """The loss on a batch, with its few examples as they are: decomposing them would cost more."""
        none = self.X.new_zeros(self.X.shape[:-2])
        return RowLoss(self.X.index_select(-2, rows), self.Y.index_select(-2, rows), none, len(rows))

    def _step(self, data: RowLoss | DiagonalLoss, rate: Float[Tensor, "*S 1 1"]) -> Tensor:
        """W_ℓ -= η S_ℓᵀ(∂R/∂W P_ℓᵀ) with S_ℓ = W_L … W_{ℓ+1} and P_ℓ = W_{ℓ-1} … W_1; returns the loss before it."""
        mapped = [m * W if m != 1 else W for m, W in zip(self.multipliers, self.weights, strict=True)]
        after = _products_after(mapped)  # as thin as the output
        loss, slope = data.loss_and_slope(after[0] @ mapped[0] if len(mapped) > 1 else mapped[0])
        for layer, W in enumerate(mapped):
            last = layer + 1 == len(mapped)
            gradient = slope if last else after[layer].mT @ slope
            slope = slope if last else slope @ W.mT
            step = rate * (self.layer_rates[layer] * self.multipliers[layer]) * gradient
            own = self.weights[layer]
            torch.where(rate == 0, own, own - step, out=own)  # in place, as a graph has it
        return loss

    def rate(self, pace: Pace) -> Tensor:
        return self.learning_rate * self.layer_rates[0] * pace.factor

    def parameters(self) -> list[Tensor]:
        """The weights in their original basis; directions that the data do not reach have not moved."""
        if self.division.batch_size is not None:
            return [W.clone() for W in self.weights]
        moved = self.initial[0] + (self.weights[0] - self.first) @ self.directions.mT
        return [moved, *(W.clone() for W in self.weights[1:])]

    def state(self) -> tuple[Arrays, Mapping[str, Any]]:
        arrays: Arrays = {f"weights/{layer}": W for layer, W in enumerate(self.weights)}
        return arrays, {}

    def restore(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
        saved = [torch.from_numpy(arrays[f"weights/{layer}"]) for layer in range(len(self.weights))]
        for W, tensor in zip(self.weights, saved, strict=True):
            W.copy_(tensor)

    def identity(self) -> dict[str, str]:
        """The settings that identify this run, before it starts."""
        return {
            "initial weights": digest(*self.initial),
            "data": digest(self.X, self.Y),
            "learning_rate": digest(self.learning_rate),
            **identity_of("generator", self.generator),
        }


def _rows(X: Tensor, Y: Tensor) -> RowLoss:
    """The loss on all examples, through X/√N = QR where R is smaller than X."""
    count = X.shape[-2]
    X, Y = X / math.sqrt(count), Y / math.sqrt(count)
    if count <= X.shape[-1]:
        return RowLoss(X, Y, X.new_zeros(X.shape[:-2]))
    several = X.ndim > 2 and X.is_cuda  # a GPU takes them one by one, far slower than the CPU
    Q, R = (part.to(X.device) for part in torch.linalg.qr(X.cpu() if several else X))
    T = Q.mT @ Y
    return RowLoss(R, T, (Y - Q @ T).square().sum((-2, -1)) / 2)


def _diagonal(X: Tensor, Y: Tensor) -> tuple[Float[Tensor, "*b D r"], DiagonalLoss]:
    """X/√N = U diag(s) Vᵀ: returns V, and the loss in its basis."""
    rows = _rows(X, Y)
    if _is_diagonal(rows.R):
        s = rows.R.diagonal(dim1=-2, dim2=-1)
        identity = torch.eye(s.shape[-1]).to(s).expand(*s.shape, -1)
        return identity, DiagonalLoss(s, rows.T.mT, rows.rest)
    factors = torch.linalg.svd(rows.R.double().cpu(), full_matrices=False)  # once; on a GPU it would take far longer
    U, s, Vh = (factor.to(rows.R.device) for factor in factors)
    T = (U.mT @ rows.T.double()).mT
    inside = rows.T.double() - U @ T.mT  # nothing, unless there are fewer inputs than examples kept
    rest = rows.rest.double() + inside.square().sum((-2, -1)) / 2
    return Vh.mT.to(X), DiagonalLoss(s.to(X), T.to(X), rest.to(X))


def _is_diagonal(R: Tensor) -> bool:
    return R.shape[-2] == R.shape[-1] and int(R.count_nonzero()) == int(R.diagonal(dim1=-2, dim2=-1).count_nonzero())


def _stack(weights: Sequence[Tensor], X: Tensor, Y: Tensor) -> torch.Size:
    """The shape of the stack that networks and data form together, once all are known to fit."""
    tensors = [*weights, X, Y]
    if weights and min(part.ndim for part in tensors) >= 2:
        sent = [X.shape[-1], *(W.shape[-2] for W in weights)]
        taken = [*(W.shape[-1] for W in weights), Y.shape[-1]]
        with suppress(RuntimeError):  # stacks of different sizes
            shape = torch.broadcast_shapes(*(part.shape[:-2] for part in tensors))
            if sent == taken:
                return shape
    raise DataError(
        f"Layers {[tuple(W.shape) for W in weights]} were given data {tuple(X.shape)} and {tuple(Y.shape)}.",
        "Layers are out × in, from the input to the output, data are rows, and W_L … W_1x is compared with y.",
        "Check the order of the layers, and that stacks have as many networks as sets of data.",
    )


def _check_data(X: Tensor, Y: Tensor) -> None:
    if min(X.ndim, Y.ndim) < 2 or X.shape[-2] != Y.shape[-2] or not X.shape[-2]:
        raise DataError(
            f"The data have shapes {tuple(X.shape)} and {tuple(Y.shape)}.",
            "Inputs and targets are rows, and there must be as many of one as of the other.",
            "Check the order of the layers and of the data, and how the data were cut.",
        )
    if not bool(X.isfinite().all() and Y.isfinite().all()):
        raise DataError(
            "The data have NaN or infinite entries.",
            "Their second moments, from which linear networks learn, are NaN or infinite, too.",
            "Leave these examples out.",
        )
