"""Random probes, from the generator that draws them to the Estimate that is the mean over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, OutOfMemoryError, check_finite
from ..operators import Operator
from ..risk.memory import free_memory
from ..spectrum import Estimate
from .vectors import check_range, norms, product, room

BLOCK = 8  # probes multiplied at a time
SKEWED = (2 * 1.96**2 + 1) / (6 * 1.96)  # of an interval of 95 %
DRAW = 2**24  # random numbers drawn at a time; a multiple of 16, which PyTorch draws together


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
    """Independent normal rows in the operator's precision and place; a CPU generator serves every device.

    Each row is drawn on its own, so that its numbers do not depend on how many are drawn together.
    """
    rows = torch.empty(count, A.size, dtype=A.dtype, device=A.device)
    for row in rows:
        _fill(row, generator, A.dtype, lambda piece: piece.normal_(generator=generator))
    return rows


def start_rows(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Normal rows to start a search from; as the result does not depend on them, they are drawn on a GPU if A is there.

    A CPU draws a hundred million numbers in a second, which is as long as five products take.
    """
    if A.device.type == generator.device.type:
        return gaussian(A, count, generator)
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
    return gaussian(A, count, torch.Generator(A.device).manual_seed(seed))


def signs(A: Operator, count: int, generator: torch.Generator) -> Float[Tensor, "count n"]:
    """Independent random signs in rows."""
    rows = torch.empty(count, A.size, dtype=A.dtype, device=A.device)
    for row in rows:
        _fill(row, generator, torch.int8, lambda piece: piece.random_(0, 2, generator=generator))
    return rows.mul_(2).sub_(1)


def _fill(row: Tensor, generator: torch.Generator, dtype: torch.dtype, draw: Callable[[Tensor], Tensor]) -> None:
    """Draw a row where the generator lives, DRAW numbers at a time: no second row is ever held."""
    for piece in row.split(DRAW):
        here = piece.dtype == dtype and piece.device == generator.device
        draw(piece) if here else piece.copy_(draw(torch.empty(len(piece), dtype=dtype, device=generator.device)))


def quadratic_forms(
    A: Operator, count: int, generator: torch.Generator, *forms: Callable[[Tensor, Tensor], Tensor]
) -> list[Float[Tensor, " count"]]:
    """Each form of (z, A z), for `count` vectors z of random signs."""
    _check_room(count * len(forms), A.device)
    blocks: list[list[Tensor]] = [[] for _ in forms]
    most = int(min(BLOCK, max(1, room(A) / 4)))
    with progress.bar("Probes", total=count) as bar:
        for first in range(0, count, most):
            Z = signs(A, min(most, count - first), generator)
            AZ = (A @ Z.T).T
            if not first:
                check_range(AZ)
            for values, form in zip(blocks, forms, strict=True):
                values.append(form(Z, AZ))
            bar.advance(len(Z))
    samples = [torch.cat(values) for values in blocks]
    check_finite(float(sum(values.sum() for values in samples)))
    return samples


def _check_room(num_samples: int, device: torch.device) -> None:
    """Refuse more samples than can be kept, before the first product."""
    needed, free = 8.0 * num_samples, free_memory(device)
    if needed > free:
        raise OutOfMemoryError(
            f"{num_samples:,} samples were requested, which take {needed / 2**30:,.0f} GiB.",
            f"One number is kept of each, and {free / 2**30:.3g} GiB are free on {device}.",
            "Ask for fewer products: ten thousand give a standard error of a hundredth of one sample's.",
        )


def unit_products(A: Operator, first: int = 0) -> Iterator[tuple[Int[Tensor, " b"], Float[Tensor, "b n"]]]:
    """The columns of the matrix in order, some at a time: their slice, and the columns as rows."""
    most = int(min(BLOCK, max(1, room(A) / 4)))
    with progress.bar("Columns", total=A.size) as bar:
        bar.advance(first)
        for which in torch.arange(first, A.size, device=A.device).split(most):
            unit = torch.zeros(len(which), A.size, dtype=A.dtype, device=A.device).scatter_(1, which[:, None], 1.0)
            columns = product(A, unit)
            check_finite(float(torch.linalg.vector_norm(columns, math.inf)))  # off the diagonal, too
            yield which, columns
            bar.advance(len(which))


def traces_of_columns(A: Operator) -> tuple[float, float]:
    """tr A and tr A², from a product with every column."""
    first, second, largest = 0.0, 0.0, torch.zeros(1, dtype=torch.float64)
    for which, columns in unit_products(A):
        first += float(columns.gather(1, which[:, None]).double().sum())
        second += float(norms(columns).square().sum())
        largest = torch.maximum(largest, columns.abs().max().double().cpu())
    check_range(largest)
    return first, second


def mean_of(samples: Float[Tensor, " p"], num_products: int) -> Estimate:
    """The mean of independent samples, with std/√p if there are at least two, such that twice the error covers 95 %."""
    p = len(samples)
    error = interval_factor(samples) * float(samples.std()) / math.sqrt(p) if p > 1 else None
    return Estimate(float(samples.mean()), error, num_products)


def is_settled(estimate: Estimate, goal: float) -> bool:
    """Whether the error of an estimate is known, and at most the goal relative to its value."""
    return estimate.has_error and estimate.standard_error <= goal * abs(estimate.value)


def interval_factor(samples: Float[Tensor, " p"]) -> float:
    """`student_factor`, enlarged by 1 + (2z² + 1)/6z · |γ|/√p where the samples have the skewness γ; z = 1.96.

    The scatter of a mean from skewed samples is smallest where the mean errs away from their tail, so that the truth
    lies that much further out there, by Edgeworth's expansion of Student's statistic.
    """
    centred = samples - samples.mean()
    square = float(centred.square().mean())
    skewness = float((centred**3).mean()) / square**1.5 if square else 0.0
    return student_factor(len(samples)) * (1 + SKEWED * abs(skewness) / math.sqrt(len(samples)))


def student_factor(count: int) -> float:
    """The factor by which two standard errors from few samples cover 95 %: Student's quantile / 2, expanded in 1/ν.

    1.21 for eight samples, 1.01 for a hundred.
    """
    nu = count - 1
    return 1 + 1.25 / nu + 1.53125 / nu**2 + 1.4297 / nu**3
