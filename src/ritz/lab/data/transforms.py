"""Transformations of data sets: whitening, subsets, class imbalance, other shapes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from ...errors import ArgumentError, DataError
from ...theory import whitened
from .examples import Examples, Split


class Whitened(NamedTuple):
    """White data, and the rank of the data before.

    >>> Whitened(torch.ones(2, 1), rank=1).rank
    1
    """

    x: Float[Tensor, "N r"]
    rank: int


def whiten(X: Float[Tensor, "N d"], sigma_x: float = 1.0, *, keep_inputs: bool = False) -> Whitened:
    """√N σₓ U_r from the thin SVD X = U_r S V_rᵀ, and r = rank X: inputs with XᵀX/N = σₓ²I.

    Each is a linear function of the data; the inputs become as many as the rank. `keep_inputs` keeps all d of them:
    √N σₓ U_rV_rᵀ, whose second moment is σₓ² times the projector on the row space. linear2026, App. C, with the SVD in
    place of the QR decomposition (`whiten_by_qr`). This is `theory.whitened` in the data's own precision.

    >>> white = whiten(torch.tensor([[1.0, 2.0], [2.0, 4.0]]))
    >>> white.x.shape, white.rank
    (torch.Size([2, 1]), 1)
    """
    finite = bool(X.isfinite().all())
    if X.ndim != 2 or not X.numel() or not finite or not X.is_floating_point():
        raise ArgumentError(
            f"{X.dtype} data of shape {tuple(X.shape)}{'' if finite else ' with NaN or infinite entries'} were to be "
            "whitened.",
            "A singular value decomposition takes a matrix of finite real numbers, one row for each example.",
            "Flatten images first: flattened(data).x.",
        )
    white = whitened(X, keep_inputs=keep_inputs)
    rank = round(float(white.square().sum()) / len(X))  # the trace of the projector on the row space
    return Whitened((sigma_x * white).to(X.dtype), rank)


def whiten_by_qr(X: Float[Tensor, "N d"], sigma_x: float = 1.0) -> Float[Tensor, "N d"]:
    """√N σₓ Q from X = QR: always d white inputs, though X may have a lower rank.

    linear2026, App. C, as printed. If X is rank deficient, Q has columns that are not functions of the data: a pixel
    that is blank in the first images becomes the indicator of one of them. `whiten` is right; this is here for
    comparison.

    >>> white = whiten_by_qr(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> bool(torch.allclose(white.T @ white / 2, torch.eye(2), atol=1e-6))
    True
    """
    if X.ndim != 2 or len(X) < X.shape[1] or not bool(X.isfinite().all()):
        raise ArgumentError(
            f"Data of shape {tuple(X.shape)} were to be whitened by a QR decomposition.",
            "It gives one orthogonal column for each input if there are at least as many examples as inputs, all "
            "finite.",
            "Take more examples, or whiten(X).",
        )
    return (len(X) ** 0.5 * sigma_x * torch.linalg.qr(X.double()).Q).to(X)


def one_hot(y: Int[Tensor, " N"], num_classes: int | None = None, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Labels as rows of zeros with a one: (N, C), C being one more than the largest label unless given.

    >>> one_hot(torch.tensor([2, 0])).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    _check_labels(y)
    least = int(y.max()) + 1
    if num_classes is not None and num_classes < least:
        raise DataError(
            f"The labels go up to {least - 1}, for {num_classes} classes.",
            "A label is the index of its class, counted from 0.",
            f"Give num_classes={least} or more.",
        )
    return F.one_hot(y.long(), num_classes or least).to(dtype)


def flattened(data: Examples) -> Examples:
    """The examples with each input as one row, as fully connected networks take it; a number is a row of one.

    >>> flattened(Examples(torch.zeros(2, 1, 8, 8), torch.zeros(2))).x.shape
    torch.Size([2, 64])
    """
    return Examples(data.x[:, None] if data.x.ndim == 1 else data.x.flatten(1), data.y)


def padded(data: Examples, size: int = 32) -> Examples:
    """Images with a black frame that makes them size × size, such as 28 × 28 images for networks of 32 × 32.

    >>> padded(Examples(torch.zeros(2, 1, 28, 28), torch.zeros(2))).x.shape
    torch.Size([2, 1, 32, 32])
    """
    if data.x.ndim != 4 or max(data.x.shape[2:]) > size:
        raise ArgumentError(
            f"Inputs of shape {tuple(data.x.shape)} were to be padded to {size} × {size} pixels.",
            "Images are (N, channels, height, width), and padding only makes them larger.",
            "Choose a larger size.",
        )
    height, width = data.x.shape[2:]
    left, top = (size - width) // 2, (size - height) // 2
    return Examples(F.pad(data.x, (left, size - width - left, top, size - height - top)), data.y)


def standardized(data: Split) -> Split:
    """Each channel shifted and scaled by its mean and deviation over all training pixels.

    >>> train, test = (Examples(torch.tensor(x), torch.zeros(len(x))) for x in ([[1.0], [3.0]], [[2.0]]))
    >>> standardized(Split(train, test)).test.x.item()
    0.0
    """
    x = data.train.x
    if not x.is_floating_point():
        raise DataError(
            f"The training inputs are {x.dtype}.",
            "A mean and a deviation are no whole numbers.",
            "Convert both parts: Examples(x.float(), y).",
        )
    axes = [axis for axis in range(x.ndim) if axis != 1] if x.ndim > 2 else list(range(x.ndim))
    mean, deviation = x.mean(axes, keepdim=True), x.std(axes, keepdim=True)
    if not bool((deviation > 0).all()):
        raise DataError(
            "A channel has the same value in every training example.",
            "Its standard deviation is zero, and cannot be divided by.",
            "Leave the channel out, or use the data without this step.",
        )
    train, test = (Examples((part.x - mean) / deviation, part.y) for part in (data.train, data.test))
    return Split(train, test)


def subsample(
    data: Examples,
    *,
    per_class: int | Sequence[int] | None = None,
    total: int | None = None,
    generator: torch.Generator | None = None,
) -> Examples:
    """A number of examples of each class, or in total: random ones with a generator, the first ones without.

    They keep their order. `per_class` may differ between classes: one number for each.

    >>> data = Examples(torch.arange(5.0)[:, None], torch.tensor([0, 1, 0, 1, 0]))
    >>> subsample(data, per_class=1).x.flatten().tolist()
    [0.0, 1.0]
    """
    if (per_class is None) == (total is None):
        raise ArgumentError(
            f"per_class={per_class} and total={total} were given.",
            "Exactly one of them must say how many examples to keep.",
            "Give per_class or total.",
        )
    if len(data.x) != len(data.y):
        raise DataError(
            f"There are {len(data.x)} inputs and {len(data.y)} targets.",
            "An example that is kept has one of each.",
            "Check how the data were cut.",
        )
    if per_class is None:
        return _selection(data, [_some(torch.arange(len(data.x)), int(total or 0), "in all", generator)])
    _check_labels(data.y)
    num_classes = int(data.y.max()) + 1
    counts = [per_class] * num_classes if isinstance(per_class, int) else list(per_class)
    if len(counts) != num_classes:
        raise ArgumentError(
            f"{len(counts)} numbers of examples were given.",
            f"The data have {num_classes} classes.",
            "Give one number for all classes, or one for each.",
        )
    members = [(data.y == c).nonzero().flatten().cpu() for c in range(num_classes)]
    pairs = enumerate(zip(members, counts, strict=True))
    return _selection(data, [_some(rows, count, f"of class {c}", generator) for c, (rows, count) in pairs])


def imbalanced(data: Examples, *, alpha_max: float, total: int, generator: torch.Generator | None = None) -> Examples:
    """⌊(1 - α_max)n/(C - 1)⌋ examples of each class but 0, and the rest of the n of class 0: its share is α_max.

    Random ones with a generator, the first ones without. linear2026, App. C, which prints ⌊(1 - α_max)n⌋: nine
    times too many.

    >>> data = Examples(torch.zeros(8, 1), torch.arange(8) % 2)
    >>> imbalanced(data, alpha_max=0.75, total=4).y.tolist()
    [0, 1, 0, 0]
    """
    _check_labels(data.y)
    num_classes = int(data.y.max()) + 1
    if num_classes < 2 or not 1 / num_classes <= alpha_max <= 1:
        raise ArgumentError(
            f"Class 0 was to have a share of {alpha_max} of the examples.",
            f"With {num_classes} classes the largest has a share between 1/{num_classes} and 1.",
            "Choose alpha_max in between; 1/C leaves the classes balanced.",
        )
    share = Fraction(alpha_max).limit_denominator(10**6)  # (1 - 0.1)·5000 is 4500, whatever binary makes of it
    each = int((1 - share) * total / (num_classes - 1))
    counts = [total - (num_classes - 1) * each, *[each] * (num_classes - 1)]
    return subsample(data, per_class=counts, generator=generator)


def _some(rows: Int[Tensor, " m"], count: int, where: str, generator: torch.Generator | None) -> Int[Tensor, " k"]:
    if not 0 <= count <= len(rows):
        raise DataError(
            f"{count} examples {where} were requested, and there are {len(rows)}.",
            "No example is taken twice.",
            "Ask for fewer, or take the data set's larger part.",
        )
    if generator is None:
        return rows[:count]
    return rows[torch.randperm(len(rows), generator=generator, device=generator.device).cpu()[:count]]


def _selection(data: Examples, rows: Sequence[Int[Tensor, " _"]]) -> Examples:
    order = torch.cat(list(rows)).sort().values
    if not len(order):
        raise DataError("No example was kept.", "Data must not be empty.", "Ask for at least one.")
    order = order.to(data.x.device)
    return Examples(data.x[order], data.y[order.to(data.y.device)])


def _check_labels(y: Shaped[Tensor, "..."]) -> None:
    if y.ndim != 1 or not len(y) or y.is_floating_point() or int(y.min()) < 0:
        raise DataError(
            f"The labels have shape {tuple(y.shape)} and dtype {y.dtype}.",
            "Classes are whole numbers from 0 on, one for each example.",
            "Pass integer labels; one_hot rows become labels again by argmax(1).",
        )
