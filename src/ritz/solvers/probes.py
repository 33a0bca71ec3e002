"""Random probes, from the generator that draws them to the Estimate that is the mean over them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, check_finite
from ..operators import Operator
from ..spectrum import Estimate
from .vectors import product

BLOCK = 8  # probes multiplied at a time


def source(generator: torch.Generator | None) -> torch.Generator:
    """The generator given, or a new one with seed 0."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    if not isinstance(generator, torch.Generator):
        raise ArgumentError(
            f"generator={generator!r} was given.",
            "It is the source of all randomness and keeps its state between calls.",
            "Pass torch.Generator().manual_seed(0), or leave it out for seed 0.",
        )
    return generator


def gaussian(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Independent normal rows in the operator's precision and place; a CPU generator serves every device."""
    rows = torch.randn(count, A.size, generator=generator, dtype=A.dtype, device=generator.device)
    return rows.to(A.device)


def signs(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Independent random signs in rows."""
    bits = torch.randint(0, 2, (count, A.size), generator=generator, dtype=torch.int8, device=generator.device)
    return (2 * bits - 1).to(A.device, A.dtype)


def quadratic_forms(
    A: Operator, count: int, generator: torch.Generator, *forms: Callable[[Tensor, Tensor], Tensor]
) -> list[Float[Tensor, " count"]]:
    """Each form of (z, A z), for `count` vectors z of random signs."""
    blocks: list[list[Tensor]] = [[] for _ in forms]
    with progress.bar("Probes", total=count) as bar:
        for first in range(0, count, BLOCK):
            Z = signs(A, min(BLOCK, count - first), generator)
            AZ = product(A, Z)
            for values, form in zip(blocks, forms, strict=True):
                values.append(form(Z, AZ))
            bar.advance(len(Z))
    samples = [torch.cat(values) for values in blocks]
    check_finite(float(sum(values.sum() for values in samples)))
    return samples


def mean_of(samples: Float[Tensor, " p"], num_products: int) -> Estimate:
    """The mean of independent samples, with std/√p where there are two."""
    error = float(samples.std()) / math.sqrt(len(samples)) if len(samples) > 1 else None
    return Estimate(float(samples.mean()), error, num_products)
