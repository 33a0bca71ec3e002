"""Where data files come from: the user's folder, else the cache, else where they are published.

A folder holds one subfolder for each data set, such as `mnist/` or `cifar10/`. Downloads are checked against a pinned
SHA-256, and appear in the cache whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from ... import progress, record
from ...errors import FileError

FOLDER = "RITZ_DATA"  # the environment variable that names the user's folder
TIMEOUT = 30.0  # seconds without an answer
MOST_BYTES = 2**30  # of a download: no data set of ours has so many
_CHUNK = 2**20


@dataclass(frozen=True)
class Source:
    """The files of one data set: what their subfolder may be called, and where they are published."""

    title: str
    folders: tuple[str, ...]  # under the user's folder; the first is its name in the cache
    homes: tuple[str, ...]  # addresses that a file's name is appended to, tried in this order
    files: Mapping[str, str]  # names as published, and their SHA-256


# The checksums of MNIST, Fashion-MNIST and tiny Shakespeare are those of the original files. Those of the two CIFAR
# archives are as several independent projects have them; the authors give the MD5 c32a1d4ab5d03f1284b67883e8d87530
# for CIFAR-10 and 03b5dce01913d631647c71ecec9e9cb8 for CIFAR-100.
MNIST = Source(
    "MNIST",
    ("mnist", "MNIST/raw"),
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)
FASHION_MNIST = Source(
    "Fashion-MNIST",
    ("fashion-mnist", "FashionMNIST/raw"),
    ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)
CIFAR10 = Source(
    "CIFAR-10",
    ("cifar10", "cifar-10-batches-bin"),
    ("https://www.cs.toronto.edu/~kriz/",),
    {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
)
CIFAR100 = Source(
    "CIFAR-100",
    ("cifar100", "cifar-100-binary"),
    ("https://www.cs.toronto.edu/~kriz/",),
    {"cifar-100-binary.tar.gz": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
)
TINY_SHAKESPEARE = Source(
    "Tiny Shakespeare",
    ("tinyshakespeare",),
    ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
    {"input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
)


def cache_folder() -> Path:
    """The folder for downloads: `ritz/data` in XDG_CACHE_HOME, or in the user's default cache folder."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ritz" / "data"
    except RuntimeError as error:  # in a container, whose user may be in no list
        raise FileError(
            f"There is no folder for cached data: {error}",
            "Data are downloaded once and kept in that folder.",
            "Set XDG_CACHE_HOME to a folder that you may write to.",
        ) from error


def writable_home(source: Source) -> Path:
    """The folder of a data set in the cache, checked to be writable before a download, not after it."""
    try:
        return record.check_writable(cache_folder() / source.folders[0])
    except FileError as error:
        raise FileError(
            error.seen,
            f"{source.title} was to be downloaded, and kept there.",
            "Set XDG_CACHE_HOME to a folder that you may write to.",
            f"Or keep the data set in FOLDER/{source.folders[0]}, and pass folder=FOLDER or set {FOLDER}=FOLDER.",
        ) from error


def user_folder(folder: str | Path | None) -> Path | None:
    """The folder that was given, else the one RITZ_DATA names, else none; refused where it does not exist."""
    named = folder if folder is not None else os.environ.get(FOLDER) or None
    if named is not None and not Path(named).is_dir():
        raise FileError(
            f"The data folder {named} is not a folder.",
            f"It was named by {'the argument folder' if folder is not None else f'the variable {FOLDER}'}.",
            "Correct its name, or leave it out: data are downloaded then.",
        )
    return None if named is None else Path(named)


def places(source: Source, folder: str | Path | None) -> Iterator[Path]:
    """The folders that may hold the files, the user's before the cache; only those that exist."""
    own = user_folder(folder)
    named = [] if own is None else [own / name for name in source.folders]
    yield from (place for place in [*named, cache_folder() / source.folders[0]] if place.is_dir())


def download(source: Source, name: str) -> bytes:
    """A published file, from the first address that delivers it intact."""
    failures = []
    for home in source.homes:
        try:
            content = _receive(home + name)
        except (OSError, HTTPException) as error:
            failures.append(f"{home}: {getattr(error, 'reason', None) or error or type(error).__name__}")
            continue
        checksum = hashlib.sha256(content).hexdigest()
        if checksum == source.files[name]:
            return content
        failures.append(f"{home}: {len(content):,} bytes came, with the SHA-256 {checksum} instead of that pinned")
    raise _missing(source, name, failures)


def fetch(source: Source, name: str) -> Path:
    """A published file in the cache, downloaded if it is not there."""
    path = cache_folder() / source.folders[0] / name
    if not path.is_file():
        writable_home(source)
        record.write_bytes(path, download(source, name))
    return path


def _receive(address: str) -> bytes:
    _check_private(address)
    with urlopen(address, timeout=TIMEOUT) as response:
        _check_private(response.url)  # after all that it was sent on to
        length = response.headers.get("Content-Length")
        total = -(-int(length) // _CHUNK) if length else None
        parts = []
        with progress.bar(f"Downloading {address.rsplit('/', 1)[-1]} (MiB)", total=total) as bar:
            while part := response.read(_CHUNK):
                parts.append(part)
                if len(parts) * _CHUNK > MOST_BYTES:
                    raise OSError(f"more than {MOST_BYTES:,} bytes came")
                bar.advance()
    return b"".join(parts)


def _check_private(address: str) -> None:
    """Refuse addresses without encryption, which others could read or change, except those on this very machine."""
    parts = urlsplit(address)
    here = parts.scheme == "file" or parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme != "https" and not here:
        raise OSError(f"{address} is not an https address")


def _missing(source: Source, name: str, failures: list[str]) -> FileError:
    place = cache_folder() / source.folders[0]
    return FileError(
        f"{source.title} is not in a data folder or in the cache, and could not be downloaded: {'; '.join(failures)}.",
        "It does not come with ritz, and a download with a different checksum is not used.",
        "Where there is a network, run again.",
        f"Elsewhere, download {source.homes[0]}{name} by hand into {place} "
        f"(all of {source.title}: {', '.join(source.files)}).",
        f"Or keep it in FOLDER/{source.folders[0]}, and pass folder=FOLDER or set {FOLDER}=FOLDER.",
    )
