"""The contribution of one batch to products with a curvature matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, ModelError, check_whole
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.losses import Loss
from ..risk.noise import noise
from .linearized import Linearized, Rows

Map = Callable[[Rows, Rows], Any]  # adds the products with the first argument's rows to the second argument
Product = Callable[[Rows, Rows | None], Rows]  # the same, and returns them where there is nothing to add to
Middle = Callable[[Tensor], Tensor]  # a linear map of outputs


@dataclass
class Contribution:
    """What one batch adds to products, and the linearisation that computes it."""

    linearized: Linearized
    product: Product
    kept: bool = True  # for products to come

    def __call__(self, V: Rows, into: Rows) -> None:
        self.product(V, into)

    def finish(self, V: Rows, into: Rows | None = None) -> Rows:
        """The last product of a pass; if nothing is kept, it frees the graph on its way, which makes room."""
        self.linearized.frees = not self.kept
        return self.product(V, into)


@dataclass(frozen=True)
class Curvature:
    """A curvature matrix, by the contribution of one batch."""

    name: str  # the choice of a path for one matrix of a risk holds for all of this name
    order: int  # highest order of the network's derivatives that it takes
    contribution: Callable[[Linearized], Product]
    of_loss: bool = False  # whether it takes second derivatives of the loss


def _hessian(batch: Linearized) -> Product:
    return batch.hessian


def _functional(batch: Linearized) -> Product:
    return batch.functional


HESSIAN = Curvature("hessian", 2, _hessian, of_loss=True)
FUNCTIONAL = Curvature("functional", 2, _functional)


def through_outputs(batch: Linearized, middle: Middle) -> Product:
    """V ↦ Jᵀ M J V for a linear map M of outputs."""

    def product(V: Rows, into: Rows | None) -> Rows:
        JV = batch.jvp(V)
        return batch.vjp(middle(JV[0])[None] if len(JV) == 1 else torch.func.vmap(middle)(JV), into)

    return product


def _gauss_newton(batch: Linearized) -> Product:
    return through_outputs(batch, batch.risk.loss.curvature(batch.z, batch.batch.targets))


def _fisher(batch: Linearized) -> Product:
    """Σᵢ wᵢ gᵢ gᵢᵀ with gᵢ = Jᵢᵀ ∂ℓᵢ/∂zᵢ, without forming any gᵢ."""
    loss, z, y = batch.risk.loss, batch.z, batch.batch.targets
    weights = loss.weights(z, y)
    _check_terms(batch.risk, z, weights)
    return through_outputs(batch, _second_moment(batch.risk, loss.gradient(z, y), _inverse(weights)))


GAUSS_NEWTON = Curvature("gauss_newton", 1, _gauss_newton, of_loss=True)
FISHER = Curvature("fisher", 1, _fisher)


def _tangent_maps(batch: Linearized) -> Product:
    """V ↦ Jᵀ J V."""
    return lambda V, into: batch.vjp(batch.jvp(V), into)


TANGENT_MAPS = Curvature("tangent_maps", 1, _tangent_maps)


@dataclass(frozen=True)
class Samples:
    """Random uᵢ for every term, whose second moment is the curvature of the loss.

    They belong to the examples, so that every product uses the same ones, on any number of ranks.
    """

    count: int
    seed: int

    @classmethod
    def drawn(cls, count: int, generator: torch.Generator | None) -> Samples:
        """Samples with a seed from a generator, from a new one with seed 0 unless given."""
        check_whole(num_samples=count)
        if count < 1:
            raise ArgumentError(
                f"num_samples={count} was given.", "A mean needs at least one sample.", "Ask for 1 or more."
            )
        source = torch.Generator().manual_seed(0) if generator is None else generator
        return cls(count, int(torch.randint(2**62, (), generator=source, device=source.device)))

    def of(self, loss: Loss, z: Tensor, batch: Batch) -> list[Tensor]:
        """The samples of one batch, each in the shape of its outputs z."""
        numbers = (loss.num_uniforms(z) // len(batch),)
        uniforms = (noise(batch.keys, self.seed + k, numbers) for k in range(self.count))
        return [loss.sampled_gradient(z, batch.targets, uniform) for uniform in uniforms]

    def others(self) -> Samples:
        """As many other samples, independent of these."""
        return Samples(self.count, self.seed + self.count)


def monte_carlo(samples: Samples) -> Curvature:
    """Σᵢ Jᵢᵀ uᵢuᵢᵀ Jᵢ with random uᵢ whose second moment is the curvature of the loss: the same in every product."""
    return Curvature("monte_carlo", 1, partial(_sampled, samples))


def _sampled(samples: Samples, batch: Linearized) -> Product:
    loss, z = batch.risk.loss, batch.z
    rows = z.numel() // (z.shape[loss.class_dim] if z.ndim > 1 else 1)
    mean = z.new_full((rows,), 1 / samples.count)
    moments = [_second_moment(batch.risk, u, mean) for u in samples.of(loss, z, batch.batch)]
    return through_outputs(batch, lambda v: sum((moment(v) for moment in moments), torch.zeros_like(v)))


def _second_moment(risk: Risk, gradient: Tensor, factors: Tensor) -> Middle:
    """Σᵢ factorᵢ uᵢuᵢᵀ for the parts uᵢ of a gradient that belong to single terms."""
    one_per_example = len(factors) == len(gradient)  # else one for every index but the class
    dims = list(range(1, gradient.ndim)) if one_per_example else [risk.loss.class_dim % gradient.ndim]
    shape = [1 if dim in dims else size for dim, size in enumerate(gradient.shape)]
    scaled = gradient * factors.reshape(shape)
    if gradient.ndim == 1:
        return lambda u: scaled * gradient * u
    return lambda u: scaled * (gradient * u).sum(dims, keepdim=True)


def _inverse(weights: Tensor) -> Tensor:
    return torch.where(weights != 0, 1 / weights, 0.0)


def _of_several(risk: Risk) -> str:
    """What a term depends on besides its own row, in words for a refusal."""
    if not risk.separable:
        return ", each of which depends on several examples"
    return "" if risk.loss.by_rows else ", each of which depends on several rows"


def _check_terms(risk: Risk, z: Tensor, weights: Tensor) -> None:
    rows = z.numel() // (1 if z.ndim == 1 else z.shape[risk.loss.class_dim])
    by_rows = risk.loss.by_rows and len(weights) == rows
    if not risk.separable or not (by_rows or len(weights) == len(z)):
        raise ModelError(
            f"The loss has {len(weights)} terms on {len(z)} examples of {rows} rows of outputs{_of_several(risk)}.",
            "The empirical Fisher is made of one gradient for each term, which needs a term for each example or row.",
            "Return one value per example; give ignored tokens the weight zero by ignore_index.",
            "Use gauss_newton(risk), which has no such condition.",
        )
