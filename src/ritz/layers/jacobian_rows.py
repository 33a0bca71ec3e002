"""Rows of the Jacobian, kept as what layers see rather than formed where they are large, and their inner products.

A row is the gradient of one output direction of one example, uᵀ ∂f(θ, xᵢ)/∂θ. For a linear layer it is Σₜ δₜ φₜᵀ, so
that two rows have the inner product Σₜₛ (δₜ·δ'ₛ)(φₜ·φ'ₛ): small products instead of one of the weight's size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..engine.linearized import ReverseMode, example_vjps
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.losses import Loss
from .capture import Layers
from .uses import Kind, Use

PASSES = 30  # multiplications that cost as much as moving one number through memory: the pairs' products are summed up
NEAR = {torch.float64: 1e-6, torch.float32: 2e-2}  # between two ways to the same gradient, in TF32 too


@dataclass(frozen=True)
class Factor:
    """The rows of one weight in one use: Σₜ δₜ φₜᵀ, or δₜ added to row φₜ for an embedding."""

    kind: Kind
    unfolded: Callable[[], Tensor]  # not the use itself, which holds the graph of the whole model
    errors: Float[Tensor, "N r T o"]
    groups: int = 1
    group: int = 0

    @classmethod
    def of(cls, use: Use, errors: Float[Tensor, "N r T o"]) -> list[Factor]:
        """One for each group of a use."""
        unfolded, groups = partial(use.unfolded, use.inputs), enumerate(errors.chunk(use.groups, -1))
        return [cls(use.kind, unfolded, part, use.groups, group) for group, part in groups]

    @property
    def features(self) -> Shaped[Tensor, "N T ..."]:
        """φ; patches are unfolded anew, which is cheaper than keeping them."""
        features = self.unfolded()
        return features if self.kind == "embedding" else features.chunk(self.groups, -1)[self.group]

    def piece(self, features: Tensor, rows: slice) -> Float[Tensor, "m q"]:
        """Some rows of the weight's gradients, flattened."""
        if self.kind == "embedding":
            indices = torch.arange(rows.start, rows.stop, device=features.device)
            hot = (features[..., None] == indices).to(self.errors)
            gradients = torch.einsum("ntv,nrtd->nrvd", hot, self.errors)
        else:
            gradients = torch.einsum("nrto,ntd->nrod", self.errors[..., rows], features)
        return gradients.flatten(0, 1).flatten(1)


@dataclass(frozen=True)
class Weight:
    """The rows of one weight matrix, over all its uses."""

    factors: tuple[Factor, ...]
    shape: tuple[int, int]

    @property
    def is_small(self) -> bool:
        """Whether forming the gradients pays, because they take less memory than the errors, as on large images."""
        rows, columns = self.shape
        return rows * columns <= sum(factor.errors.shape[2:].numel() for factor in self.factors)

    def gradients(self) -> Float[Tensor, "m q"]:
        """The gradients themselves."""
        return self._piece([factor.features for factor in self.factors], slice(0, self.shape[0]))

    def inner(self, other: Weight, memory: float) -> Float[Tensor, "m other_m"]:
        """All inner products with the rows of another block of examples, the cheaper way."""
        if len(self.factors) == len(other.factors) == 1 and self._pairs_pay(other):
            return _paired(self.factors[0], other.factors[0])
        return self._by_gradients(other, memory)

    def _pairs_pay(self, other: Weight) -> bool:
        (N, r, T, o), (N2, r2, T2, _) = self.factors[0].errors.shape, other.factors[0].errors.shape
        rows, columns = self.shape
        paired = N * r * N2 * r2 * T * T2 * (o + PASSES) + N * N2 * T * T2 * columns
        formed = N * r * N2 * r2 * rows * columns + (N * r * T + N2 * r2 * T2) * rows * columns
        return paired < formed

    def _by_gradients(self, other: Weight, memory: float) -> Tensor:
        """The inner products by the gradients themselves, as many rows of the weight at a time as fit."""
        (rows, columns), same = self.shape, self is other
        ours, theirs = [f.features for f in self.factors], [f.features for f in other.factors]
        count = sum(w.factors[0].errors.shape[:2].numel() for w in (self, other))
        width = max(1, int(memory / max(1, count * columns * ours[0].element_size())))
        total: Tensor | None = None
        for start in range(0, rows, width):
            part = slice(start, min(start + width, rows))
            left = self._piece(ours, part)
            right = left if same else other._piece(theirs, part)
            total = left @ right.T if total is None else total.addmm_(left, right.T)
        assert total is not None  # a weight has at least one row
        return total

    def _piece(self, features: list[Tensor], rows: slice) -> Tensor:
        pieces = [factor.piece(phi, rows) for factor, phi in zip(self.factors, features, strict=True)]
        return torch.stack(pieces).sum(0) if len(pieces) > 1 else pieces[0]


def _paired(a: Factor, b: Factor) -> Float[Tensor, "m other_m"]:
    """Σₜₛ (δₜ·δ'ₛ)(φₜ·φ'ₛ), one pair of positions at a time."""
    (N, r, T, _), (N2, r2, S, _) = a.errors.shape, b.errors.shape
    left, right = a.errors.flatten(0, 1), b.errors.flatten(0, 1)  # (m, T, o)
    phi, phi2 = a.features, b.features
    total = left.new_zeros(N, r, N2, r2)
    for t in range(T):
        for s in range(S):
            shared = _likeness(phi[:, t], phi2[:, s], left.dtype)
            total.addcmul_((left[:, t] @ right[:, s].T).view_as(total), shared[:, None, :, None])
    return total.reshape(N * r, N2 * r2)


def _likeness(phi: Tensor, phi2: Tensor, dtype: torch.dtype) -> Tensor:
    """φ·φ' for vectors; for indices, whether they are equal."""
    return phi @ phi2.T if phi.ndim == 2 else (phi[:, None] == phi2[None, :]).to(dtype)


Key = tuple[str, int]  # a parameter and one of its groups; without a name, those that enter in other ways
OTHERS: Key = ("", 0)


@dataclass(frozen=True)
class Rows:
    """The m rows of a block of examples, in the order (example, direction)."""

    outputs: Tensor  # z of the block, without its graph
    small: Float[Tensor, "m q"]  # gradients of everything small: biases, normalisations, convolutions on large images
    columns: Mapping[Key, slice]  # of those, by parameter
    weights: Mapping[Key, Weight]

    def __len__(self) -> int:
        return len(self.small)

    def inner(self, other: Rows, memory: float) -> Float[Tensor, "m other_m"]:
        """J J'ᵀ, the inner products of all rows of this block with all rows of another.

        What is small in one of them may not be in another, as where sentences are shorter.
        """
        alike = self.columns == other.columns
        total = self.small @ other.small.T if alike else self.small.new_zeros(len(self), len(other))
        for key in self.weights if alike else (*self.columns, *self.weights):
            if key in self.weights and key in other.weights:
                total += self.weights[key].inner(other.weights[key], memory)
            else:
                total += self._gradients(key) @ other._gradients(key).T
        return total

    def _gradients(self, key: Key) -> Float[Tensor, "m q"]:
        return self.small[:, self.columns[key]] if key in self.columns else self.weights[key].gradients()


def cotangents(loss: Loss, z: Tensor, S: Float[Tensor, "t K r"]) -> Iterator[Float[Tensor, "r N ..."]]:
    """The r columns of every term's block of S as cotangents of the outputs: one term of each example at a time."""
    dim = -1 if z.ndim == 1 else loss.class_dim % z.ndim
    rows = z[:, None] if z.ndim == 1 else z.movedim(dim, -1)
    S = S.reshape(len(z), -1, *S.shape[1:]).permute(3, 0, 1, 2)  # (r, N, terms, K)
    for term in range(S.shape[2]):
        U = torch.zeros_like(S)
        U[:, :, term] = S[:, :, term]
        U = U.reshape(-1, *rows.shape)
        yield U[..., 0] if z.ndim == 1 else U.movedim(-1, dim + 1)


def rows_of(layers: Layers, batch: Batch, directions: Callable[[Tensor], Float[Tensor, "r N ..."]]) -> Rows:
    """The rows of one block, for r directions u(z) of every example's outputs."""
    risk, forward = layers.risk, layers.forward(batch)
    u = directions(forward.z.detach())
    with risk.numerics(risk.tangent_precision):
        errors = [error.transpose(0, 1) for error in forward.errors(u)]  # (N, r, T, o)
        formed, weights = _sorted(risk, forward.uses, errors)
        if layers.others:
            names = [name for name in risk.shapes if name in layers.others]
            formed[OTHERS] = _one_by_one(risk, names, batch, u)
    flat = [piece.reshape(len(batch) * len(u), -1) for piece in formed.values()]
    joined = torch.cat(flat, 1) if flat else u.new_zeros(len(batch) * len(u), 0)
    ends = list(accumulate((piece.shape[1] for piece in flat), initial=0))
    columns = {key: slice(*place) for key, place in zip(formed, pairwise(ends), strict=True)}
    return Rows(forward.z.detach(), joined, columns, weights)


def computed_bytes(layers: Layers, num_directions: int) -> float:
    """About how many bytes the rows of one example take while they are computed: errors twice, and the graph."""
    entries = sum(use.shape.numel() for use in layers.uses) / layers.num_watched
    return _bytes(layers, entries * (2 * num_directions + 4) + 2 * num_directions * _num_others(layers))


def held_bytes(layers: Layers, num_directions: int) -> float:
    """About how many bytes the rows of one example take from then on: gradients, or errors and features."""
    numbers = float(num_directions * _num_others(layers))
    for use in layers.uses:
        entries, inputs = (count / layers.num_watched for count in (use.shape.numel(), use.inputs.numel()))
        gradients = sum(layers.risk.shapes[name].numel() for name in use.names)
        numbers += min(num_directions * entries + inputs, num_directions * gradients)
    return _bytes(layers, numbers)


def _num_others(layers: Layers) -> int:
    """How many parameters have gradients that are formed one by one."""
    return sum(layers.risk.shapes[name].numel() for name in layers.others)


def _bytes(layers: Layers, numbers: float) -> float:
    return max(1.0, numbers * layers.risk.theta.element_size())


def _sorted(risk: Risk, uses: Iterable[Use], errors: list[Tensor]) -> tuple[dict[Key, Tensor], dict[Key, Weight]]:
    """The gradients that are smaller than their factors, and the factors of all others."""
    formed: dict[Key, Tensor] = {}
    factors: dict[Key, list[Factor]] = defaultdict(list)
    for use, error in zip(uses, errors, strict=True):
        if use.bias is not None:
            formed[use.bias, 0] = formed.get((use.bias, 0), 0.0) + error.sum(2)
        if use.weight is not None and use.kind == "scale":
            formed[use.weight, 0] = formed.get((use.weight, 0), 0.0) + (error * use.features()[:, None]).sum(2)
        elif use.weight is not None:
            for factor in Factor.of(use, error):
                factors[use.weight, factor.group].append(factor)
    weights = {key: Weight(tuple(own), _matrix(risk, key[0], own[0].groups)) for key, own in factors.items()}
    small = [key for key, weight in weights.items() if weight.is_small]
    return {**formed, **{key: weights.pop(key).gradients() for key in small}}, weights


def _matrix(risk: Risk, name: str, groups: int) -> tuple[int, int]:
    """The shape of the weight as a matrix, of one of its groups."""
    shape = risk.shapes[name]
    return shape[0] // groups, shape[1:].numel()


def _one_by_one(risk: Risk, names: list[str], batch: Batch, directions: Tensor) -> Float[Tensor, "N r q"]:
    """Gradients of parameters that enter in any way at all: all examples at once, or one by one where that fails.

    The last example is computed in both ways, because some of PyTorch's batching rules are silently wrong.
    """
    alone = lambda i: _single(risk, names, batch.rows(slice(i, i + 1)), directions[:, i : i + 1])
    last = alone(len(batch) - 1)
    try:
        rows = _mapped(risk, names, batch, directions)
        if rows.shape[1:] == last.shape and (rows[-1] - last).norm() <= NEAR[last.dtype] * last.norm():
            return rows
    except RuntimeError:  # an operation that cannot be mapped over examples
        pass
    return torch.stack([*map(alone, range(len(batch) - 1)), last])


def _mapped(risk: Risk, names: list[str], batch: Batch, directions: Tensor) -> Tensor:
    """The gradients of all examples at once, by `vmap`."""
    return torch.cat(example_vjps(risk, batch, directions.transpose(0, 1), names), -1)


def _single(risk: Risk, names: list[str], alone: Batch, directions: Tensor) -> Tensor:
    """The gradients of one example, one direction after the other."""
    linearized = ReverseMode(risk.restricted_to(names), alone, 1)
    return torch.cat([linearized.vjp(u) for u in directions.split(1)])
