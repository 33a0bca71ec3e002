"""Linear networks, reduced to the few directions that matter: how they start, descend and are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...errors import NumericalError
from ...lab import init
from ...lab.training import HALVING, EquivalentExamples, Pause, Schedule, linear_descent
from ...operators import hessian
from ...risk import Risk, SquaredError
from ...solvers import eigenpairs
from ...spectrum import Eigenpairs
from ...theory.bases import span
from .data import White

Start = Literal["balanced", "kaiming"]
Pauses = Iterator[Pause[Any, list[Tensor]]]


class Chain(nn.Module):
    """f(x) = (W_L ⋯ W₁)x, multiplied from the left, which is cheap where there are few outputs.

    It is the same function of the same parameters as layers applied one by one, and so has the same Hessian.
    """

    def __init__(self, weights: Sequence[Float[Tensor, "_ _"]]) -> None:
        super().__init__()
        self.layers = nn.ParameterList([nn.Parameter(W) for W in weights])

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        first, *others = list(self.layers)[::-1]
        for W in others:
            first = first @ W
        return x @ first.T


def initial_weights(
    start: Start, widths: Sequence[int], *, singular_values: tuple[float, float], generator: torch.Generator
) -> list[Tensor]:
    """Strongly balanced layers with singular values uniform in an interval, or PyTorch's default.

    The paper says how to make balanced weights from singular values (App. C), but not which values it starts from.
    """
    if start == "kaiming":
        return [init.kaiming_uniform(after, before, generator=generator) for before, after in pairwise(widths)]
    low, high = singular_values
    draws = torch.rand(min(widths), generator=generator, dtype=torch.float64)
    return init.balanced(widths, low + (high - low) * draws, generator=generator)


class HiddenUnits:
    """The hidden directions that the layers of several networks use; descent never leaves them.

    The gradient of a layer maps the outputs of the layer before it to the inputs of the one after it, so that weights
    stay in the span of both. Strongly balanced layers use as many directions as they have singular values: 10 of 64.
    """

    def __init__(self, starts: Sequence[Sequence[Tensor]]) -> None:
        pairs = [list(pairwise(weights)) for weights in starts]
        self.bases = [_stacked([span(torch.cat([W, V.T], 1)) for W, V in level]) for level in zip(*pairs, strict=True)]

    def compressed(self, stacks: Sequence[Float[Tensor, "b _ _"]]) -> list[Tensor]:
        """The layers of all networks, restricted to these directions."""
        ends = zip([None, *self.bases], stacks, [*self.bases, None], strict=True)
        return [_turned(after, W, before).contiguous() for before, W, after in ends]

    def whole(self, stacks: Sequence[Float[Tensor, "b _ _"]], index: int) -> list[Tensor]:
        """The layers of one network in their full size."""
        bases = [None, *(B[index].mT for B in self.bases), None]
        return [_turned(after, W[index], before) for before, W, after in zip(bases, stacks, bases[1:], strict=False)]


def _turned(after: Tensor | None, W: Tensor, before: Tensor | None) -> Tensor:
    """BᵀWC, for bases B of the outputs and C of the inputs; None leaves that side as it is."""
    W = W if after is None else after.mT @ W
    return W if before is None else W @ before


def _stacked(bases: Sequence[Float[Tensor, "d _"]]) -> Float[Tensor, "b d r"]:
    """Bases in one stack, filled with zero columns to the size of the largest."""
    most = max(B.shape[1] for B in bases)
    return torch.stack([nn.functional.pad(B, (0, most - B.shape[1])) for B in bases])


class Descent:
    """Descent of several linear networks in step, each on the coordinates of its inputs in a basis of its own."""

    def __init__(
        self, starts: Sequence[Sequence[Tensor]], bases: Sequence[Float[Tensor, "D q"]], x: Tensor, y: Tensor
    ) -> None:
        self.bases, self.x, self.y = bases, x, y
        self.hidden = HiddenUnits(starts)
        firsts = [weights[0] @ B for weights, B in zip(starts, bases, strict=True)]
        others = [torch.stack(layer) for layer in zip(*(weights[1:] for weights in starts), strict=True)]
        self.start = self.hidden.compressed([torch.stack(firsts), *others])

    def pauses(
        self, *, learning_rate: float, num_epochs: int, checkpoint: Path | None, schedule: Schedule = HALVING
    ) -> Pauses:
        """The pauses of all networks; by default the rate is halved as in the paper (App. C)."""
        return linear_descent(
            self.start,
            self.x,
            self.y,
            learning_rate=learning_rate,
            num_epochs=num_epochs,
            schedule=schedule,
            checkpoint=checkpoint,
        )

    def weights(self, parameters: Sequence[Tensor], index: int) -> list[Tensor]:
        """The weights of one network, for all of its inputs as they are."""
        first, *others = self.hidden.whole(parameters, index)
        return [first @ self.bases[index].T, *others]


class WhiteDescent(Descent):
    """Descent of several linear networks on white inputs, each restricted to inputs that its weights and labels use.

    The gradient of W₁ is S₁ᵀ(σₓW - T)σₓ, which stays in the span of the rows of W₁ and T: as many as there are hidden
    units and classes. In all other directions of the input the weights are zero and remain so. Networks on different
    data sets thus have the same shapes, and descend in step.
    """

    def __init__(self, starts: Sequence[Sequence[Tensor]], problems: Sequence[White]) -> None:
        self.problems = problems
        bases = [_basis_of_used_inputs(weights[0], white.T) for weights, white in zip(starts, problems, strict=True)]
        pairs = zip(problems, bases, strict=True)
        small = [White(white.T @ B, white.rest, white.sigma_x).examples() for white, B in pairs]
        super().__init__(starts, bases, small[0].x, torch.stack([examples.y for examples in small]))

    def reduction(self, parameters: Sequence[Tensor], index: int, k: int = 1) -> tuple[list[Tensor], White]:
        """A smaller network and problem with the same top k eigenvalues of H: only the inputs in use, and k others.

        Inputs that neither W₁ nor T uses decouple from the rest of the Hessian: each contributes the same block
        σₓ²S₁ᵀS₁. Of these equal blocks, k are enough for the k largest eigenvalues.
        """
        white, B = self.problems[index], self.bases[index]
        D, q = B.shape
        used, spare = min(D, q), min(D, q + k) - min(D, q)
        first, *others = self.hidden.whole(parameters, index)
        first, T = (nn.functional.pad(W[:, :used], (0, spare)) for W in (first, white.T @ B))
        return [first, *others], White(T, white.rest, white.sigma_x)


class RawDescent(Descent):
    """Descent of several linear networks on inputs as they are, each in the principal axes V of its own inputs."""

    def __init__(
        self,
        starts: Sequence[Sequence[Tensor]],
        principal: Sequence[tuple[Float[Tensor, "D D"], EquivalentExamples]],
    ) -> None:
        axes, examples = zip(*principal, strict=True)
        x, y = torch.stack([one.x for one in examples]), torch.stack([one.y for one in examples])
        super().__init__(starts, axes, x, y)


def _basis_of_used_inputs(W1: Float[Tensor, "m D"], T: Float[Tensor, "K D"]) -> Float[Tensor, "D q"]:
    """An orthonormal basis of a space that contains the rows of W₁ and T, in q = m + K columns; zero beyond D."""
    rows = torch.cat([W1, T])
    Q = torch.linalg.qr(rows.T).Q
    return torch.cat([Q, Q.new_zeros(len(Q), len(rows) - Q.shape[1])], 1)


def risk_of(model: nn.Module, examples: tuple[Tensor, Tensor]) -> Risk:
    """The squared loss of a model on all examples at once.

    They are passed as one batch: a `Risk` that cuts data into batches first tests whether the loss of an example
    depends on the others, and a loss that is zero up to rounding looks as if it did.
    """
    return Risk(model, SquaredError(), [tuple(examples)])


def top_eigenpairs(
    model: nn.Module, examples: tuple[Tensor, Tensor], k: int = 1, *, tolerance: float = 1e-5
) -> Eigenpairs | None:
    """The k largest eigenpairs of the Hessian; None for a network that diverged to infinity.

    They are returned even if they have not converged: callers record the residuals and judge them.
    """
    try:
        return eigenpairs(hessian(risk_of(model, examples)), k, tolerance=tolerance)
    except NumericalError:  # the loss or a product is NaN
        return None


def printed_sharpness(alpha_max: float, depth: int, sigma_x: float) -> float:
    """λ_max = Lσₓ^(2/L) α_max^(1-1/L): linear2026, eq. (14) for one-hot labels, α_max = σ²_max(Y)/N."""
    return depth * sigma_x ** (2 / depth) * alpha_max ** (1 - 1 / depth)


def exact_sharpness(white: White, depth: int) -> float:
    """λ_max of the balanced minimum, whatever its loss: eq. (14) with σ_max(YᵀX)/(√N σₓ) in place of σ_max(Y).

    That is Lσₓ²s^(2(1-1/L)), s = σ_max(T)/σₓ being the largest singular value of the best linear map.
    """
    s = float(torch.linalg.matrix_norm(white.T, 2)) / white.sigma_x
    return depth * white.sigma_x**2 * s ** (2 * (1 - 1 / depth))


def printed_pairs(W1: Tensor, W2: Tensor, sigma_x: float, k: int) -> Float[Tensor, " k"]:
    """The k largest of σₓ²(σᵢ²(W₁) + σⱼ²(W₂)): linear2026, eq. (15)."""
    first, second = (torch.linalg.svdvals(W).square() for W in (W1, W2))
    return sigma_x**2 * (first[:, None] + second).flatten().sort(descending=True).values[:k]
