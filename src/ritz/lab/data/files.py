"""Real data sets as tensors: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and tiny Shakespeare, in their own formats."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import math
import tarfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ... import progress, record
from ...errors import ArgumentError, FileError
from . import sources
from .examples import Examples, Split, check_fraction
from .sources import Source

_PACKED: dict[bytes, Callable[[bytes], bytes]] = {b"\x1f\x8b": gzip.decompress, b"\xfd7zXZ": lzma.decompress}
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError)
_PIXELS = 3 * 32 * 32  # of a CIFAR image


def mnist(*, folder: str | Path | None = None, dtype: torch.dtype = torch.float32) -> Split:
    """MNIST: 60,000 and 10,000 handwritten digits of 1 × 28 × 28 pixels in [0, 1], 10 classes.

    From `folder` or $RITZ_DATA (`mnist/*-ubyte.gz`), else the cache, else the network. LeCun, Cortes and Burges (1998).
    """
    return _idx_split(sources.MNIST, folder, dtype)


def fashion_mnist(*, folder: str | Path | None = None, dtype: torch.dtype = torch.float32) -> Split:
    """Fashion-MNIST: 60,000 and 10,000 clothes of 1 × 28 × 28 pixels in [0, 1], 10 classes.

    From `folder` or $RITZ_DATA (`fashion-mnist/*-ubyte.gz`), else the cache, else the network. Xiao et al. (2017).
    """
    return _idx_split(sources.FASHION_MNIST, folder, dtype)


def cifar10(*, folder: str | Path | None = None, dtype: torch.dtype = torch.float32) -> Split:
    """CIFAR-10: 50,000 and 10,000 images of 3 × 32 × 32 pixels in [0, 1], 10 classes.

    From `folder` or $RITZ_DATA (`cifar10/data_batch_1.bin` … `test_batch.bin`, as they are or packed as .xz or .gz, or
    `cifar10/cifar-10-binary.tar.gz`), else the cache, else the network. Krizhevsky (2009).
    """
    batches = [f"data_batch_{index}.bin" for index in range(1, 6)]
    return _cifar_split(sources.CIFAR10, folder, batches, "test_batch.bin", labels=1, chosen=0, classes=10, dtype=dtype)


def cifar100(*, folder: str | Path | None = None, coarse: bool = False, dtype: torch.dtype = torch.float32) -> Split:
    """CIFAR-100: 50,000 and 10,000 images of 3 × 32 × 32 pixels in [0, 1], 100 classes, or 20 with `coarse`.

    From `folder` or $RITZ_DATA (`cifar100/train.bin`, `test.bin`, or `cifar-100-binary.tar.gz`), else the cache, else
    the network. Krizhevsky (2009). This reader follows the format's description: it was tested on a file made for
    the purpose, never on the real one.
    """
    chosen, classes = (0, 20) if coarse else (1, 100)
    return _cifar_split(
        sources.CIFAR100, folder, ["train.bin"], "test.bin", labels=2, chosen=chosen, classes=classes, dtype=dtype
    )


@dataclass(frozen=True)
class Corpus:
    """A text as windows of tokens and the tokens that follow them; token i stands for `alphabet[i]`."""

    train: Examples
    test: Examples
    alphabet: str


def tiny_shakespeare(
    *,
    folder: str | Path | None = None,
    context: int = 128,
    stride: int | None = None,
    test_fraction: float = 0.1,
) -> Corpus:
    """40,000 lines of Shakespeare, character by character: x (N, context), and y the same one character on.

    A window starts every `stride` characters, every `context` by default, so that none overlap. The test part is the
    end of the text. From `folder` or $RITZ_DATA (`tinyshakespeare/input.txt`), else the cache, else the network.
    Karpathy (2015).
    """
    source = sources.TINY_SHAKESPEARE
    check_fraction(test_fraction)
    content = _content(source, "input.txt", folder)
    if content is None:
        content = record.read_bytes(sources.fetched(source, "input.txt"))
    text = _text(source, content)
    alphabet = "".join(sorted(set(text)))
    index = {character: token for token, character in enumerate(alphabet)}
    tokens = torch.tensor([index[character] for character in text])
    cut = len(tokens) - round(test_fraction * len(tokens))
    train, test = (windows(part, context, stride=stride) for part in (tokens[:cut], tokens[cut:]))
    return Corpus(train, test, alphabet)


def windows(tokens: Int[Tensor, " n"], context: int, *, stride: int | None = None) -> Examples:
    """Windows x of `context` tokens, one every `stride`, and the tokens y that follow each of theirs."""
    if len(tokens) <= context or context < 1 or (stride is not None and stride < 1):
        raise ArgumentError(
            f"Windows of {context} tokens, one every {stride}, were to be cut from a text of {len(tokens)}.",
            "A window needs one token more than its length, to be predicted.",
            "Choose a shorter context, and a stride of at least 1.",
        )
    rows = tokens.unfold(0, context + 1, stride or context)
    return Examples(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def _text(source: Source, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise _malformed(source, f"{error.reason} at byte {error.start:,}") from error
    if not text:
        raise _malformed(source, "the text is empty")
    return text


def _idx_split(source: Source, folder: str | Path | None, dtype: torch.dtype) -> Split:
    def part(prefix: str) -> Examples:
        images, labels = (
            _idx(source, f"{prefix}-{name}", folder) for name in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        if images.ndim != 3 or labels.shape != images.shape[:1] or int(labels.max()) > 9:
            raise _malformed(source, f"{prefix}: images {tuple(images.shape)}, labels {tuple(labels.shape)}")
        return Examples(_scaled(images[:, None], dtype), labels.long())

    return Split(part("train"), part("t10k"))


def _idx(source: Source, name: str, folder: str | Path | None) -> UInt8[Tensor, "..."]:
    """The array in a file of the IDX format: 0, 0, the type (8 is bytes), the rank, big-endian sizes, the numbers."""
    content = _content(source, name, folder)
    if content is None:
        content = _unpacked(sources.fetched(source, f"{name}.gz"))
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise _malformed(source, f"{name} begins with {content[:4].hex(' ')}")
    shape = np.frombuffer(content, ">u4", content[3], 4).tolist()
    start = 4 + 4 * content[3]
    if len(content) != start + math.prod(shape) or not math.prod(shape):
        raise _malformed(source, f"{name} has {len(content) - start:,} numbers for an array of shape {tuple(shape)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).reshape(shape)


def _cifar_split(
    source: Source,
    folder: str | Path | None,
    train: Sequence[str],
    test: str,
    *,
    labels: int,
    chosen: int,
    classes: int,
    dtype: torch.dtype,
) -> Split:
    """Records of `labels` bytes, of which the one at `chosen` is wanted, and 3 × 32 × 32 pixels."""
    contents = _batches(source, [*train, test], folder)

    def part(names: Sequence[str]) -> Examples:
        content = b"".join(contents[name] for name in names)
        if not content or len(content) % (labels + _PIXELS):
            raise _malformed(source, f"{', '.join(names)}: {len(content):,} bytes, no records of {labels + _PIXELS}")
        rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, labels + _PIXELS)
        if int(rows[:, chosen].max()) >= classes:
            raise _malformed(source, f"{', '.join(names)}: the label {int(rows[:, chosen].max())} of {classes} classes")
        return Examples(_scaled(rows[:, labels:].reshape(-1, 3, 32, 32), dtype), rows[:, chosen].long())

    return Split(part(train), part([test]))


def _batches(source: Source, names: Sequence[str], folder: str | Path | None) -> dict[str, bytes]:
    """The named files: as they lie in a folder, from an archive in a folder, or from one that is downloaded."""
    with progress.bar(f"Reading {source.title}", total=len(names)) as bar:
        found = {}
        for name in names:
            content = _content(source, name, folder)
            if content is None:
                break
            found[name] = content
            bar.advance()
        else:
            return found
    archive = next(iter(source.files))
    given = sources.user_folder(folder)
    for place in [*([] if given is None else [given]), *sources.places(source, folder)]:
        if (place / archive).is_file():
            return _archived(place / archive, names)
    home = sources.writable_home(source)
    members = _members(sources.downloaded(source, archive), names, archive)
    for name, content in members.items():
        record.write_bytes(home / name, content)
    return members


def _content(source: Source, name: str, folder: str | Path | None) -> bytes | None:
    """A file from the user's folder or the cache, packed or not; None where it is in neither."""
    for place in sources.places(source, folder):
        for path in (place / name, place / f"{name}.gz", place / f"{name}.xz"):
            if path.is_file():
                return _unpacked(path)
    return None


def _unpacked(path: Path) -> bytes:
    """A file's content, unpacked as its first bytes say; what took xz seconds is kept in the cache."""
    copy = _copy(path, path.stem)
    if copy.is_file():
        return record.read_bytes(copy)
    content = record.read_bytes(path, "a data file")
    unpack = next((unpack for magic, unpack in _PACKED.items() if content.startswith(magic)), None)
    if unpack is None:
        return content
    try:
        unpacked = unpack(content)
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    if unpack is lzma.decompress:
        _keep(copy, unpacked)
    return unpacked


def _archived(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Members of an archive, which the cache keeps: unpacking takes seconds."""
    copies = {name: _copy(path, name) for name in names}
    if all(copy.is_file() for copy in copies.values()):
        return {name: record.read_bytes(copy) for name, copy in copies.items()}
    members = _members(record.read_bytes(path, "a tar.gz archive"), names, path)
    for name, content in members.items():
        _keep(copies[name], content)
    return members


def _members(archive: bytes, names: Sequence[str], path: Path | str) -> dict[str, bytes]:
    """Files of an archive by their last name; nothing is extracted to where the archive says."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as members:
            for member in members:
                name = Path(member.name).name
                if name in names and (stream := members.extractfile(member)) is not None:
                    found[name] = stream.read()
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    if missing := [name for name in names if name not in found]:
        raise _damaged(path, f"it lacks {', '.join(missing)}")
    return found


def _copy(path: Path, name: str) -> Path:
    """Where the cache keeps what a file holds unpacked: another name when the file changes."""
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]
    return sources.cache_folder() / "unpacked" / key / name


def _keep(copy: Path, content: bytes) -> None:
    with suppress(OSError):  # a cache that cannot be written costs seconds, not the result
        record.write_bytes(copy, content)


def _scaled(pixels: UInt8[Tensor, "..."], dtype: torch.dtype) -> Tensor:
    return pixels.to(dtype).div_(255)


def _damaged(path: Path | str, reason: object) -> FileError:
    return FileError(
        f"{path} cannot be unpacked: {reason}.",
        "It is damaged, or was not downloaded to its end.",
        "Delete it and get it anew; without it, ritz downloads what it needs.",
    )


def _malformed(source: Source, seen: str) -> FileError:
    return FileError(
        f"The files of {source.title} are not what they should be: {seen}.",
        "They belong to another data set, or are damaged.",
        f"Put the original files ({', '.join(source.files)}) into the folder {source.folders[0]}, or leave them out: "
        "ritz downloads what it does not find.",
    )
