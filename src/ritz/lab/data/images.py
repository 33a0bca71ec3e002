"""Images with their labels: digits, MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ... import record
from . import sources
from .archives import archive_contents, content_error, file_content
from .examples import Examples, Split, check_fraction
from .sources import Source

_DIGITS = Path(__file__).with_name("digits.npz")  # digits.txt has its source and licence
_PIXELS = 3 * 32 * 32  # of a CIFAR image


def digits(*, generator: torch.Generator, test_fraction: float = 0.2, dtype: torch.dtype = torch.float32) -> Split:
    """The 1,797 handwritten digits, 8 × 8 pixels, 10 classes, that come with ritz.

    Standardised by the one mean and deviation of the training pixels: some pixels are blank in every image, so they
    have no deviation of their own. Alpaydin and Kaynak (1998), test set of "Optical Recognition of Handwritten Digits".

    >>> split = digits(generator=torch.Generator().manual_seed(0))
    >>> split.train.x.shape, split.test.y[:5].tolist()
    (torch.Size([1438, 64]), [6, 5, 5, 7, 9])
    """
    check_fraction(test_fraction)
    arrays, _ = record.read_arrays(_DIGITS)
    x, y = torch.from_numpy(arrays["images"]).flatten(1).to(dtype), torch.from_numpy(arrays["labels"]).long()
    order = torch.randperm(len(x), generator=generator, device=generator.device).cpu()
    num_test = round(test_fraction * len(x))
    test, train = order[:num_test], order[num_test:]
    x = (x - x[train].mean()) / x[train].std()
    return Split(Examples(x[train], y[train]), Examples(x[test], y[test]))


def mnist(*, folder: str | Path | None = None, dtype: torch.dtype = torch.float32) -> Split:
    """MNIST: 60,000 and 10,000 handwritten digits of 1 × 28 × 28 pixels in [0, 1], 10 classes.

    From `folder` or $RITZ_DATA (`mnist/*-ubyte.gz`), else the cache, else the network. LeCun, Cortes and Burges (1998).

    >>> mnist(folder="data").train.x.shape  # doctest: +SKIP
    torch.Size([60000, 1, 28, 28])
    """
    return _idx_split(sources.MNIST, folder, dtype)


def fashion_mnist(*, folder: str | Path | None = None, dtype: torch.dtype = torch.float32) -> Split:
    """Fashion-MNIST: 60,000 and 10,000 clothes of 1 × 28 × 28 pixels in [0, 1], 10 classes.

    From `folder` or $RITZ_DATA (`fashion-mnist/*-ubyte.gz`), else the cache, else the network. Xiao et al. (2017).

    >>> fashion_mnist(folder="data").test.x.shape  # doctest: +SKIP
    torch.Size([10000, 1, 28, 28])
    """
    return _idx_split(sources.FASHION_MNIST, folder, dtype)


def cifar10(*, folder: str | Path | None = None, dtype: torch.dtype = torch.float32) -> Split:
    """CIFAR-10: 50,000 and 10,000 images of 3 × 32 × 32 pixels in [0, 1], 10 classes.

    From `folder` or $RITZ_DATA (`cifar10/data_batch_1.bin` … `test_batch.bin`, as they are or packed as .xz or .gz, or
    `cifar10/cifar-10-binary.tar.gz`), else the cache, else the network. Krizhevsky (2009).

    >>> cifar10(folder="data").train.x.shape  # doctest: +SKIP
    torch.Size([50000, 3, 32, 32])
    """
    batches = [f"data_batch_{index}.bin" for index in range(1, 6)]
    return _cifar_split(sources.CIFAR10, folder, batches, "test_batch.bin", labels=1, label=0, classes=10, dtype=dtype)


def cifar100(*, folder: str | Path | None = None, coarse: bool = False, dtype: torch.dtype = torch.float32) -> Split:
    """CIFAR-100: 50,000 and 10,000 images of 3 × 32 × 32 pixels in [0, 1], 100 classes, or 20 with `coarse`.

    From `folder` or $RITZ_DATA (`cifar100/train.bin`, `test.bin`, or `cifar-100-binary.tar.gz`), else the cache, else
    the network. Krizhevsky (2009). This reader follows the format's description: it was tested on a file made for
    the purpose, never on the real one.

    >>> cifar100(folder="data", coarse=True).train.y.max()  # doctest: +SKIP
    tensor(19)
    """
    label, classes = (0, 20) if coarse else (1, 100)
    return _cifar_split(
        sources.CIFAR100, folder, ["train.bin"], "test.bin", labels=2, label=label, classes=classes, dtype=dtype
    )


def _idx_split(source: Source, folder: str | Path | None, dtype: torch.dtype) -> Split:
    def part(prefix: str) -> Examples:
        images, labels = (
            _idx(source, f"{prefix}-{name}", folder) for name in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        if images.ndim != 3 or labels.shape != images.shape[:1] or int(labels.max()) > 9:
            seen = f"images {tuple(images.shape)}, labels {tuple(labels.shape)} up to {int(labels.max())}"
            raise content_error(source, f"{prefix}: {seen}")
        return Examples(_scaled(images[:, None], dtype), labels.long())

    return Split(part("train"), part("t10k"))


def _idx(source: Source, name: str, folder: str | Path | None) -> UInt8[Tensor, "..."]:
    """The array in a file of the IDX format: 0, 0, the type (8 is bytes), the rank, big-endian sizes, the numbers."""
    raw = file_content(source, name, folder)
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise content_error(source, f"{name} begins with {raw[:4].hex(' ')}")
    shape = np.frombuffer(raw, ">u4", raw[3], 4).tolist()
    start = 4 + 4 * raw[3]
    if len(raw) != start + math.prod(shape) or not math.prod(shape):
        raise content_error(source, f"{name} has {len(raw) - start:,} numbers for an array of shape {tuple(shape)}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=start).reshape(shape)


def _cifar_split(
    source: Source,
    folder: str | Path | None,
    train: Sequence[str],
    test: str,
    *,
    labels: int,
    label: int,
    classes: int,
    dtype: torch.dtype,
) -> Split:
    """Records of `labels` bytes, of which the one at `label` counts, and 3 × 32 × 32 pixels."""
    files = archive_contents(source, [*train, test], folder)

    def part(names: Sequence[str]) -> Examples:
        lengths = [len(files[name]) for name in names]
        if not lengths[0] or lengths[0] % (labels + _PIXELS) or len({*lengths}) > 1:  # one may end between two records
            seen = f"{', '.join(names)}: {', '.join(f'{length:,}' for length in lengths)} bytes"
            raise content_error(source, f"{seen}, not equally many records of {labels + _PIXELS}")
        joined = bytearray().join(files[name] for name in names)
        rows = torch.frombuffer(joined, dtype=torch.uint8).view(-1, labels + _PIXELS)
        if int(rows[:, label].max()) >= classes:
            raise content_error(
                source, f"{', '.join(names)}: the label {int(rows[:, label].max())} of {classes} classes"
            )
        return Examples(_scaled(rows[:, labels:].reshape(-1, 3, 32, 32), dtype), rows[:, label].long())

    return Split(part(train), part([test]))


def _scaled(pixels: UInt8[Tensor, "..."], dtype: torch.dtype) -> Tensor:
    return pixels.to(dtype).div_(255)
