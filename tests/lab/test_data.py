"""Data come out of files as they went in, downloads are right or refused, and drawn sets keep their laws."""

import gzip
import hashlib
import inspect
import io
import lzma
import math
import os
import tarfile
import threading
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ritz import theory
from ritz.errors import ArgumentError, DataError, FileError
from ritz.lab import data, models
from ritz.lab.data import archives, sources
from ritz.lab.data.examples import Examples, Split
from tests.seeds import seeded

REAL = os.environ.get("RITZ_DATA")
DOUBLE = {"dtype": torch.float64}


def bytes_of(*shape, high=256, seed=0):
    return np.random.default_rng(seed).integers(high, size=shape, dtype=np.uint8)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No data folder of the user's, a cache of its own, and no network but what a test opens."""
    monkeypatch.delenv("RITZ_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("MNIST", "FASHION_MNIST", "CIFAR10", "CIFAR100", "TINY_SHAKESPEARE"):
        monkeypatch.setattr(sources, name, replace(getattr(sources, name), homes=("http://127.0.0.1:9/",)))


def cached(tmp_path):
    return sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())


# --- files in the original formats -----------------------------------------------------------------------------------


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def idx_files(seed=0):
    """A small MNIST: 7 training and 4 test images."""
    images = {"train": bytes_of(7, 28, 28, seed=seed), "t10k": bytes_of(4, 28, 28, seed=seed + 1)}
    labels = {"train": bytes_of(7, high=10, seed=seed), "t10k": bytes_of(4, high=10, seed=seed + 1)}
    named = {f"{part}-images-idx3-ubyte": idx(images[part]) for part in images}
    return named | {f"{part}-labels-idx1-ubyte": idx(labels[part]) for part in labels}, images, labels


def write(folder, named, pack=lambda content: content, ending=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in named.items():
        (folder / (name + ending)).write_bytes(pack(content))
    return folder


def archive(named, folder="cifar-10-batches-bin", links=()):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, kind, target in links:
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.type, member.linkname = kind, target
            tar.addfile(member)
        for name, content in named.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


CIFAR10 = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def cifar_records(count, num_labels=1, high=10, seed=0):
    records = bytes_of(count, num_labels + 3072, seed=seed)
    records[:, :num_labels] = bytes_of(count, num_labels, high=high, seed=seed)
    return records


def cifar_files():
    """A small CIFAR-10 whose batches have 3 images each, so that their order shows."""
    records = {name: cifar_records(3, seed=seed) for seed, name in enumerate(CIFAR10)}
    return {name: record.tobytes() for name, record in records.items()}, records


def assert_is_cifar(split, records):
    train = np.concatenate([records[name] for name in CIFAR10[:5]])
    for part, rows in ((split.train, train), (split.test, records["test_batch.bin"])):
        assert_close(part.x, torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy()).double() / 255)
        assert part.y.tolist() == rows[:, 0].tolist() and part.y.dtype == torch.int64


READERS = {"mnist": data.mnist, "MNIST/raw": data.mnist, "fashion-mnist": data.fashion_mnist}


@pytest.mark.parametrize("place", READERS)
@pytest.mark.parametrize("pack, ending", [(gzip.compress, ".gz"), (bytes, ""), (lzma.compress, ".xz")])
def test_idx_files_become_pixels_between_zero_and_one_and_their_labels(tmp_path, place, pack, ending):
    named, images, labels = idx_files()
    write(tmp_path / place, named, pack, ending)
    split = READERS[place](folder=tmp_path, **DOUBLE)
    for part, name in ((split.train, "train"), (split.test, "t10k")):
        assert_close(part.x, torch.from_numpy(images[name]).double()[:, None] / 255)
        assert part.y.tolist() == labels[name].tolist() and part.y.dtype == torch.int64


def test_the_folder_given_comes_before_the_variable_and_the_variable_before_the_cache(tmp_path, monkeypatch):
    for seed, place in enumerate(("cache/ritz/data", "named", "given")):
        write(tmp_path / place / "mnist", idx_files(10 * seed)[0], gzip.compress, ".gz")
    expected = [torch.from_numpy(idx_files(10 * seed)[1]["train"])[:, None].float() / 255 for seed in range(3)]
    assert_close(data.mnist().train.x, expected[0])
    monkeypatch.setenv("RITZ_DATA", str(tmp_path / "named"))
    assert_close(data.mnist().train.x, expected[1])
    assert_close(data.mnist(folder=tmp_path / "given").train.x, expected[2])


@pytest.mark.parametrize("pack, ending", [(bytes, ""), (lzma.compress, ".xz"), (gzip.compress, ".gz")])
@pytest.mark.parametrize("place", ["cifar10", "cifar-10-batches-bin"])
def test_cifar_batches_are_read_in_order_packed_or_not(tmp_path, pack, ending, place):
    named, records = cifar_files()
    write(tmp_path / place, named, pack, ending)
    assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)


@pytest.mark.parametrize("place", ["", "cifar10"])
def test_cifar_is_read_from_its_archive(tmp_path, place):
    named, records = cifar_files()
    write(tmp_path / place, {"cifar-10-binary.tar.gz": archive(named | {"batches.meta.txt": b"cat"})})
    assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)
    assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)  # now from the cache


@pytest.mark.parametrize("coarse", [False, True])
def test_cifar100_has_a_coarse_and_a_fine_label(tmp_path, coarse):
    records = {"train.bin": cifar_records(5, 2, high=20), "test.bin": cifar_records(3, 2, high=20, seed=1)}
    records["train.bin"][0, 1] = 99
    write(tmp_path / "cifar100", {name: rows.tobytes() for name, rows in records.items()})
    split = data.cifar100(folder=tmp_path, coarse=coarse, **DOUBLE)
    for part, rows in ((split.train, records["train.bin"]), (split.test, records["test.bin"])):
        assert_close(part.x, torch.from_numpy(rows[:, 2:].reshape(-1, 3, 32, 32).copy()).double() / 255)
        assert part.y.tolist() == rows[:, 0 if coarse else 1].tolist()


def test_what_takes_seconds_to_unpack_is_unpacked_once_and_again_when_the_file_changes(tmp_path, monkeypatch):
    named, records = cifar_files()
    folder = write(tmp_path / "cifar10", named, lzma.compress, ".xz")
    assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)
    with monkeypatch.context() as patch:
        patch.setattr(archives, "_PACKED", {b"\xfd7zXZ": lambda content: pytest.fail("unpacked again")})
        assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)
    records["test_batch.bin"] = cifar_records(2, seed=77)
    write(folder, {"test_batch.bin": records["test_batch.bin"].tobytes()}, lzma.compress, ".xz")
    assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    named, records = cifar_files()
    write(tmp_path / "cifar10", named, lzma.compress, ".xz")
    assert_is_cifar(data.cifar10(folder=tmp_path, **DOUBLE), records)


def test_shakespeare_is_predicted_one_character_ahead_and_tested_at_its_end(tmp_path):
    text = "To be, or not to be: that is the question.\n" * 3
    write(tmp_path / "tinyshakespeare", {"input.txt": text.encode()})
    corpus = data.tiny_shakespeare(folder=tmp_path, context=10, test_fraction=0.25)
    assert corpus.alphabet == "".join(sorted(set(text)))

    def written(tokens):
        return "".join(corpus.alphabet[token] for token in tokens.tolist())

    cut = len(text) - round(len(text) / 4)
    for part, start in ((corpus.train, 0), (corpus.test, cut)):
        for number, (x, y) in enumerate(zip(*part, strict=True)):
            at = start + 10 * number
            assert (written(x), written(y)) == (text[at : at + 10], text[at + 1 : at + 11])
    assert len(corpus.train.x) == (cut - 1) // 10
    assert len(data.tiny_shakespeare(folder=tmp_path, context=10, stride=1).train.x) == len(text) - 13 - 10


@pytest.mark.parametrize("context, stride", [(9, None), (0, None), (3, 0)])
def test_windows_that_do_not_fit_the_text_are_refused(context, stride):
    with pytest.raises(ArgumentError, match="text of 9"):
        data.windows(torch.arange(9), context, stride=stride)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe" * 500, b"to be" * 100 + bytes(500)])
def test_a_file_that_is_not_text_is_refused(tmp_path, content):
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_bytes(content)
    with pytest.raises(FileError, match="not what they should be"):
        data.tiny_shakespeare(folder=tmp_path)


@pytest.mark.parametrize("fraction", [-0.1, 0.0, 1.0, 1.5, float("nan")])
def test_an_impossible_test_fraction_is_refused(tmp_path, fraction):
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("to be or not to be " * 50)
    with pytest.raises(ArgumentError, match="test_fraction"):
        data.tiny_shakespeare(folder=tmp_path, test_fraction=fraction)
    with pytest.raises(ArgumentError, match="test_fraction"):
        data.digits(generator=seeded(), test_fraction=fraction)


def test_without_a_home_the_refusal_asks_for_a_cache(monkeypatch):
    """As in containers, whose user may be in no list."""

    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sources.Path, "home", home)
    with pytest.raises(FileError, match="XDG_CACHE_HOME"):
        data.mnist()


def test_a_folder_that_is_not_there_is_refused_and_says_who_named_it(tmp_path, monkeypatch):
    with pytest.raises(FileError, match="argument folder"):
        data.mnist(folder=tmp_path / "nowhere")
    monkeypatch.setenv("RITZ_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileError, match="variable RITZ_DATA"):
        data.cifar10()


NAMED = idx_files()[0]
BROKEN = {
    "cut short": {"train-images-idx3-ubyte.gz": gzip.compress(NAMED["train-images-idx3-ubyte"])[:-20]},
    "no IDX": {"train-images-idx3-ubyte.gz": gzip.compress(b"hello, world")},
    "empty": {"train-images-idx3-ubyte.gz": b""},
    "numbers missing": {"train-images-idx3-ubyte.gz": gzip.compress(NAMED["train-images-idx3-ubyte"][:-1])},
    "too few labels": {"train-labels-idx1-ubyte.gz": gzip.compress(idx(bytes_of(6, high=10)))},
    "labels beyond the classes": {"train-labels-idx1-ubyte.gz": gzip.compress(idx(np.full(7, 10, np.uint8)))},
    "images for labels": {"train-labels-idx1-ubyte.gz": gzip.compress(NAMED["train-images-idx3-ubyte"])},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_damaged_and_foreign_idx_files_are_refused(tmp_path, broken):
    folder = write(tmp_path / "mnist", NAMED, gzip.compress, ".gz")
    write(folder, broken)
    with pytest.raises(FileError, match="damaged"):
        data.mnist(folder=tmp_path)


BROKEN_CIFAR = {
    "CIFAR-100 in its place": {name: cifar_records(3, 2).tobytes() for name in CIFAR10},
    "labels beyond the classes": {"data_batch_2.bin": cifar_records(3, high=256, seed=5).tobytes()},
    "empty": {"test_batch.bin": b""},
    "one batch empty": {"data_batch_3.bin": b""},
    "one batch cut between two records": {"data_batch_5.bin": cifar_records(2).tobytes()},
    "packed and cut short": {"test_batch.bin": lzma.compress(cifar_records(3).tobytes())[:-30]},
}


@pytest.mark.parametrize("broken", BROKEN_CIFAR.values(), ids=BROKEN_CIFAR.keys())
def test_damaged_and_foreign_cifar_files_are_refused(tmp_path, broken):
    folder = write(tmp_path / "cifar10", cifar_files()[0])
    write(folder, broken)
    with pytest.raises(FileError, match="damaged"):
        data.cifar10(folder=tmp_path)


@pytest.mark.parametrize("content", [b"nonsense", archive(cifar_files()[0])[:-500], archive({"test_batch.bin": b"1"})])
def test_a_damaged_archive_is_refused(tmp_path, content):
    write(tmp_path, {"cifar-10-binary.tar.gz": content})
    with pytest.raises(FileError, match="cannot be unpacked"):
        data.cifar10(folder=tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["/etc/hosts", "nowhere", "test_batch.bin", "cifar-10-batches-bin/test_batch.bin"])
def test_links_of_an_archive_are_not_followed(tmp_path, kind, target):
    named, _ = cifar_files()
    del named["test_batch.bin"]
    write(tmp_path, {"cifar-10-binary.tar.gz": archive(named, links=[("test_batch.bin", kind, target)])})
    with pytest.raises(FileError, match=r"it lacks test_batch\.bin"):
        data.cifar10(folder=tmp_path)


# --- downloads -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    """A home of data sets: what it holds by path, what was asked of it, and what it sends less than it promises."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            home.asked.append(self.path)
            content = home.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - home.withheld])

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as home:
        home.files, home.asked, home.withheld = {}, [], 0
        home.address = f"http://127.0.0.1:{home.server_port}/"
        thread = threading.Thread(target=home.serve_forever, args=(0.01,))
        thread.start()
        yield home
        home.shutdown()
        thread.join()


@pytest.fixture
def published(server, monkeypatch):
    """A small MNIST whose checksums are pinned."""
    packed = {f"{name}.gz": gzip.compress(content) for name, content in NAMED.items()}
    server.files = {f"/{name}": content for name, content in packed.items()}
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()}
    source = replace(sources.MNIST, homes=(server.address,), files=checksums)
    monkeypatch.setattr(sources, "MNIST", source)
    return source


def test_a_data_set_that_is_nowhere_is_downloaded_once(server, published, tmp_path):
    first = data.mnist(**DOUBLE)
    assert_close(first.train.x, torch.from_numpy(idx_files()[1]["train"]).double()[:, None] / 255)
    assert sorted(server.asked) == sorted(server.files)
    assert {path.name for path in cached(tmp_path)} == set(published.files)
    assert_close(data.mnist(**DOUBLE).test.x, first.test.x)
    assert len(server.asked) == 4


def test_a_file_with_another_checksum_is_refused_and_not_kept(server, published, tmp_path):
    server.files["/train-images-idx3-ubyte.gz"] = gzip.compress(NAMED["t10k-images-idx3-ubyte"])
    with pytest.raises(FileError, match="SHA-256"):
        data.mnist()
    assert cached(tmp_path) == []


def test_an_interrupted_download_is_refused_and_not_kept(server, published, tmp_path):
    server.withheld = 100
    with pytest.raises(FileError, match="could not be downloaded"):
        data.mnist()
    assert cached(tmp_path) == []
    server.withheld = 0
    assert len(data.mnist().train.x) == 7


def test_the_next_home_is_asked_where_the_first_fails(server, published, monkeypatch):
    homes = ("http://127.0.0.1:9/", f"{server.address}moved/", server.address)
    monkeypatch.setattr(sources, "MNIST", replace(published, homes=homes))
    assert len(data.mnist().train.x) == 7
    assert "/moved/train-images-idx3-ubyte.gz" in server.asked


def test_the_refusal_offline_says_how_to_supply_the_files_by_hand(tmp_path):
    with pytest.raises(FileError) as caught:
        data.cifar10()
    message = str(caught.value)
    for part in ("CIFAR-10", "cifar-10-binary.tar.gz", "by hand", "folder=FOLDER", "RITZ_DATA=FOLDER", "refused"):
        assert part in message
    write(tmp_path / "cache/ritz/data/cifar10", {"cifar-10-binary.tar.gz": archive(cifar_files()[0])})
    assert_is_cifar(data.cifar10(**DOUBLE), cifar_files()[1])  # as the message advises


def test_an_unwritable_cache_is_noticed_before_the_download(server, published, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(sources, "CIFAR10", replace(sources.CIFAR10, homes=(server.address,)))
    for read in (data.mnist, data.cifar10):
        with pytest.raises(FileError, match=r"(?s)cannot be written.*XDG_CACHE_HOME"):
            read()
    assert server.asked == []


def test_an_archive_is_downloaded_once_and_kept_unpacked(tmp_path, monkeypatch):
    named, records = cifar_files()
    content = archive(named)
    home = write(tmp_path / "home", {"cifar-10-binary.tar.gz": content})
    checksum = {"cifar-10-binary.tar.gz": hashlib.sha256(content).hexdigest()}
    source = replace(sources.CIFAR10, homes=(f"{home.as_uri()}/",), files=checksum)
    monkeypatch.setattr(sources, "CIFAR10", source)
    assert_is_cifar(data.cifar10(**DOUBLE), records)
    assert {path.name for path in cached(tmp_path)} == set(CIFAR10)
    (home / "cifar-10-binary.tar.gz").unlink()
    assert_is_cifar(data.cifar10(**DOUBLE), records)


@pytest.mark.skipif(REAL is None, reason="RITZ_DATA names no folder of the real files")
def test_the_real_files_are_the_pinned_ones_and_have_the_known_class_counts(monkeypatch):
    mnist = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    for read, counts in ((data.mnist, mnist), (data.fashion_mnist, [6000] * 10), (data.cifar10, [5000] * 10)):
        split = read(folder=REAL)
        assert split.train.y.bincount().tolist() == counts
        assert len(split.test.y) == 10_000 and float(split.test.x.min()) == 0 and float(split.test.x.max()) == 1
    for source in (sources.MNIST, sources.FASHION_MNIST, sources.TINY_SHAKESPEARE):
        for place in sources.places(source, REAL):
            for name, checksum in source.files.items():
                assert hashlib.sha256((place / name).read_bytes()).hexdigest() == checksum
    first = data.flattened(data.mnist(folder=REAL, **DOUBLE).train)
    assert data.whiten(first.x[:1000]).rank == 590
    assert len(data.tiny_shakespeare(folder=REAL).alphabet) == 65


# --- drawn sets ------------------------------------------------------------------------------------------------------

DRAWN = {
    "regression": lambda g: data.gaussian_regression(9, 3, 2, generator=g),
    "teacher": lambda g: data.teacher(lambda x: x**2, 9, 3, generator=g),
    "decorrelated": lambda g: data.decorrelated(9, 3, generator=g),
    "normalized": lambda g: data.normalized(9, 3, generator=g),
    "wedge": lambda g: data.wedge(9, generator=g),
    "reversed": lambda g: data.reversed_sequences(9, 3, generator=g),
    "mixture": lambda g: data.gaussian_mixture(4, 3, per_class=3, separation=2.0, generator=g),
    "canonical": lambda g: data.canonical_classification(4, 3, 2.0, per_class=3, generator=g),
    "spiked": lambda g: [data.spiked_matrix(9, (2.0,), generator=g)],
    "Pareto": lambda g: [data.pareto_matrix(5, 9, generator=g)],
}


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN.keys())
def test_the_same_generator_draws_the_same_data(drawn):
    first, second, other = (drawn(seeded(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], other[0])


def test_regression_data_follow_their_matrix_up_to_the_noise():
    W = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]])
    x, y = data.gaussian_regression(4000, 3, 2, generator=seeded(), W=W, sigma_x=2.0, noise=0.3, **DOUBLE)
    residual = y - x @ W.double().T
    assert float(residual.std()) == pytest.approx(0.3, rel=4 / (2 * 8000) ** 0.5)
    assert float(x.std()) == pytest.approx(2.0, rel=4 / (2 * 12_000) ** 0.5)
    assert_close(torch.linalg.lstsq(x, y).solution.T, W.double(), atol=4 * 0.3 / 2 / 4000**0.5, rtol=0)


def test_targets_may_be_noise_alone_and_inputs_may_be_their_only_cause():
    x, y = data.gaussian_regression(5000, 1, generator=seeded(), W=torch.zeros(1, 1), noise=1.0, **DOUBLE)
    assert abs(float((x * y).mean())) < 4 / 5000**0.5 and float(y.std()) == pytest.approx(1, rel=0.05)
    x, y = data.gaussian_regression(20, 3, 2, generator=seeded(), noise=0.0, **DOUBLE)
    assert int(torch.linalg.matrix_rank(torch.cat([x, y], 1))) == 3
    with pytest.raises(ArgumentError, match="W has shape"):
        data.gaussian_regression(20, 3, 2, generator=seeded(), W=torch.zeros(3, 2))


def test_a_student_sees_its_teacher_through_the_noise():
    network = models.mlp((3, 8, 2), generator=seeded(), **DOUBLE)
    x, y = data.teacher(network, 50, 3, generator=seeded(1), noise=0.0, **DOUBLE)
    assert_close(y, network(x).detach())
    x, y = data.teacher(network, 5000, 3, generator=seeded(1), **DOUBLE)
    assert not y.requires_grad
    assert float((y - network(x).detach()).var()) == pytest.approx(0.01, rel=4 * (2 / 10_000) ** 0.5)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 1000))
def test_decorrelated_data_have_no_mean_and_no_correlation(num_inputs, more, seed):
    num_examples = num_inputs + 2 + more
    x, y = data.decorrelated(num_examples, num_inputs, generator=seeded(seed), **DOUBLE)
    columns = torch.cat([torch.ones(num_examples, 1, dtype=torch.float64), x, y], 1)
    assert y.shape == (num_examples, 1)
    assert_close(columns.T @ columns / num_examples, torch.eye(num_inputs + 2, dtype=torch.float64))


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_data_of_no_finite_size_are_refused(number):
    options = {"generator": seeded(0)}
    for draw in (
        lambda: data.gaussian_regression(3, 2, sigma_x=number, **options),
        lambda: data.gaussian_regression(3, 2, noise=number, **options),
        lambda: data.teacher(torch.relu, 3, 2, noise=number, **options),
        lambda: data.gaussian_mixture(2, 3, separation=number, per_class=2, **options),
        lambda: data.canonical_classification(3, 2, snr=number, per_class=2, **options),
        lambda: data.spiked_matrix(4, spikes=(1.0, number), **options),
    ):
        with pytest.raises(ArgumentError, match="finite number"):
            draw()


def test_more_decorrelated_inputs_than_directions_are_refused():
    with pytest.raises(ArgumentError, match="at least 152"):
        data.decorrelated(151, 150, generator=seeded())


def test_normalized_data_have_unit_variance_and_the_correlations_of_chance():
    x, y = data.normalized(102, 10, generator=seeded(), **DOUBLE)
    columns = torch.cat([x, y], 1)
    moments = columns.T @ columns / 102
    assert_close(columns.mean(0), torch.zeros(11, **DOUBLE))
    assert_close(moments.diagonal(), torch.ones(11, **DOUBLE))
    assert 0.05 < float((moments - torch.eye(11)).square().mean().sqrt()) < 0.15  # about 1/√102
    with pytest.raises(ArgumentError, match="variance"):
        data.normalized(1, 3, generator=seeded())


def test_the_wedge_is_the_absolute_value_on_both_sides_of_zero():
    for x, y in (data.wedge(101, **DOUBLE), data.wedge(101, generator=seeded(), **DOUBLE)):
        assert x.shape == y.shape == (101, 1)
        assert_close(y, x.abs())
        assert -1 <= float(x.min()) < -0.9 and 0.9 < float(x.max()) <= 1
    assert_close(data.wedge(5).x.flatten(), torch.tensor([-1, -0.5, 0, 0.5, 1]))


def test_reversed_sequences_end_where_they_began():
    x, y = data.reversed_sequences(4, 3, generator=seeded())
    assert y.shape == (4, 3, 1) and torch.equal(y[..., 0], x[:, [2, 1, 0]])


def test_class_means_are_where_the_mixture_puts_them():
    x, y = data.canonical_classification(5, 3, 4.0, per_class=[2000, 1000, 3000], generator=seeded(), **DOUBLE)
    assert Counter(y.tolist()) == {0: 2000, 1: 1000, 2: 3000} and y.dtype == torch.int64
    for c, count in enumerate((2000, 1000, 3000)):
        mean = 4.0 * torch.eye(5, **DOUBLE)[c]
        assert_close(x[y == c].mean(0), mean, atol=4.5 / count**0.5, rtol=0)
        assert_close(x[y == c].var(0), torch.ones(5, **DOUBLE), atol=4.5 * (2 / count) ** 0.5, rtol=0)
    x, y = data.gaussian_mixture(500, 4, per_class=200, separation=7.0, generator=seeded(), **DOUBLE)
    means = torch.stack([x[y == c].mean(0) for c in range(4)])
    assert_close(means.norm(dim=1), torch.full((4,), (49 + 500 / 200) ** 0.5, **DOUBLE), rtol=0.15, atol=0)


def test_the_curvature_of_logistic_regression_on_the_canonical_model_is_that_of_its_closed_form():
    D, C, t, alpha = 5, 3, 2.0, 0.3
    x, y = data.canonical_classification(D, C, t, per_class=40_000, generator=seeded(), **DOUBLE)
    p = torch.full((C, C), alpha / (C - 1), **DOUBLE).fill_diagonal_(1 - alpha)
    U = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    moments = torch.stack([x[y == c].T @ x[y == c] for c in range(C)]) / len(x)
    G = torch.einsum("cij,cde->idje", U, moments).reshape(C * D, C * D)
    expected = theory.logistic_ccm(D, C, t, alpha).eigenvalues()
    assert_close(torch.linalg.eigvalsh(G).flip(0), expected.sort(descending=True).values, atol=0.01, rtol=0)


@pytest.mark.parametrize("per_class", [[1, 2], -1, 0, [0, 0, 0]])
def test_classes_of_no_examples_are_refused(per_class):
    with pytest.raises(ArgumentError, match="classes"):
        data.canonical_classification(5, 3, 1.0, per_class=per_class, generator=seeded())


def test_more_canonical_classes_than_dimensions_are_refused():
    with pytest.raises(ArgumentError, match="axis of its own"):
        data.canonical_classification(2, 3, 1.0, per_class=1, generator=seeded())


def test_spikes_stand_on_the_diagonal_of_a_wishart_matrix():
    spiked, plain = (data.spiked_matrix(200, spikes, generator=seeded()) for spikes in ((5.0, 4.0, 3.0), ()))
    assert_close((spiked - plain).diagonal()[:4], torch.tensor([5.0, 4.0, 3.0, 0.0], **DOUBLE))
    assert_close(plain, plain.T)
    eigenvalues = torch.linalg.eigvalsh(plain)
    assert float(eigenvalues.min()) > -1e-12 and float(eigenvalues.max()) == pytest.approx(
        4, abs=0.4
    )  # Marchenko-Pastur
    assert float(eigenvalues.mean()) == pytest.approx(1, abs=4 * 2**0.5 / 200)
    with pytest.raises(ArgumentError, match="spikes"):
        data.spiked_matrix(2, generator=seeded())


@pytest.mark.parametrize("index", [1.0, 2.5])
def test_entries_have_the_tail_of_pareto(index):
    z = data.pareto_matrix(4000, 1, index=index, generator=seeded()).diagonal().sqrt()
    assert float(z.min()) >= 1
    for s in (1.5, 2.0, 4.0):
        share = s**-index
        assert float((z > s).double().mean()) == pytest.approx(share, abs=4 * (share * (1 - share) / 4000) ** 0.5)


def test_the_pareto_matrix_has_as_many_rows_as_its_factor():
    Y = data.pareto_matrix(generator=seeded())
    assert Y.shape == (500, 500) and int(torch.linalg.matrix_rank(Y, hermitian=True)) > 0
    with pytest.raises(ArgumentError, match="index"):
        data.pareto_matrix(3, 4, index=0.0, generator=seeded())


@pytest.mark.parametrize("count", [0, -3, 2.0])
@pytest.mark.usefixtures("unchecked")
def test_counts_that_count_nothing_are_refused(count):
    with pytest.raises(ArgumentError, match="num_examples"):
        data.wedge(count)


# --- what is done to data --------------------------------------------------------------------------------------------


def deficient(num_examples, num_inputs, rank, seed=0):
    g = seeded(seed)
    A, B = (torch.randn(n, rank, generator=g, dtype=torch.float64) for n in (num_examples, num_inputs))
    return A @ B.T


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 20), st.integers(0, 1000))
def test_whitened_data_are_white_and_say_their_rank(rank, more_inputs, more, seed):
    num_inputs = rank + more_inputs - 1
    X = deficient(num_inputs + more, num_inputs, rank, seed)
    white, found = data.whiten(X, 3.0)
    assert found == rank and white.shape == (len(X), rank)
    assert_close(white.T @ white / len(X), 9 * torch.eye(rank, **DOUBLE))
    assert int(torch.linalg.matrix_rank(torch.cat([X, white], 1), rtol=1e-9)) == rank  # functions of the data, all
    kept, found = data.whiten(X, 3.0, keep_inputs=True)
    assert found == rank and kept.shape == X.shape
    moment = kept.T @ kept / len(X) / 9
    assert_close(moment @ moment, moment)
    assert_close(X @ moment, X)


def test_whitening_by_qr_invents_inputs_where_the_rank_is_deficient():
    X = deficient(20, 6, 4)
    X[:, 0] = 0  # a blank pixel
    Q = data.whiten_by_qr(X, 2.0)
    assert_close(Q.T @ Q / 20, 4 * torch.eye(6, **DOUBLE))
    assert int(torch.linalg.matrix_rank(torch.cat([X, Q], 1), rtol=1e-9)) == 6
    indicator = Q[:, 0].abs() > 1e-9
    assert indicator.tolist() == [True, *[False] * 19]  # of the first example
    full = deficient(20, 6, 6)
    assert_close(
        torch.linalg.svdvals(data.whiten(full).x.T @ data.whiten_by_qr(full)), torch.full((6,), 20.0, **DOUBLE)
    )


def test_whitening_keeps_the_precision_it_was_given():
    for rank in (2, 3, 20):
        single = data.whiten(deficient(50, 20, rank).float())
        assert (single.rank, single.x.dtype) == (rank, torch.float32)


def test_whitening_agrees_with_that_of_the_theory():
    X = deficient(20, 6, 4)
    for keep_inputs in (False, True):
        assert_close(data.whiten(X, 2.0, keep_inputs=keep_inputs).x, theory.whitened(X, 2.0, keep_inputs=keep_inputs))
    assert data.whiten(0 * X).rank == 0


@pytest.mark.parametrize("X", [torch.zeros(3, 4), torch.zeros(5), torch.full((5, 2), torch.nan)])
@pytest.mark.usefixtures("unchecked")
def test_data_that_qr_cannot_whiten_are_refused(X):
    with pytest.raises(ArgumentError, match=r"QR|shape \(N, d\)"):
        data.whiten_by_qr(X)


@pytest.mark.parametrize(
    "X",
    [
        *(torch.zeros(0, 4), torch.zeros(5), torch.zeros(2, 3, 3), torch.full((5, 2), torch.inf)),
        torch.arange(12, dtype=torch.uint8).view(4, 3),  # pixels as they lie in files
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_data_that_are_not_a_matrix_are_not_whitened(X):
    with pytest.raises(ArgumentError, match=r"flattened|shape \(N, d\)|real numbers"):
        data.whiten(X)


def labelled(counts, seed=0):
    """Shuffled labels with the given class counts; the inputs are the row numbers."""
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=seeded(seed))]
    return Examples(torch.arange(len(y), **DOUBLE)[:, None], y)


@settings(deadline=None)
@given(st.lists(st.integers(2, 9), min_size=2, max_size=5), st.integers(0, 1000))
def test_a_subsample_has_so_many_of_each_class_in_their_old_order(counts, seed):
    examples = labelled(counts, seed)
    for generator in (None, seeded(seed)):
        kept = data.subsample(examples, per_class=2, generator=generator)
        assert kept.y.bincount().tolist() == [2] * len(counts)
        rows = kept.x.flatten().long()
        assert bool((rows.diff() > 0).all()) and torch.equal(kept.y, examples.y[rows])
    first = data.subsample(examples, per_class=[1] * len(counts)).x.flatten().long()
    assert sorted(first.tolist()) == sorted(examples.y.tolist().index(c) for c in range(len(counts)))


def test_a_generator_decides_which_examples_are_kept():
    examples = labelled([50, 50])
    first, again, other = (data.subsample(examples, per_class=5, generator=seeded(s)).x for s in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    chosen = Counter()
    for seed in range(200):
        chosen.update(data.subsample(examples, total=10, generator=seeded(seed)).x.flatten().tolist())
    assert len(chosen) == 100 and max(chosen.values()) < 20 + 6 * 20**0.5  # every one may be
    assert data.subsample(examples, total=10).x.flatten().tolist() == list(range(10))


BAD_SUBSAMPLES = [{"per_class": 8}, {"total": 13}, {"per_class": [1, -1]}, {"total": 0}, {"total": -1}]


@pytest.mark.parametrize("options", BAD_SUBSAMPLES)
def test_more_examples_than_there_are_or_none_at_all_are_refused(options):
    with pytest.raises(DataError):
        data.subsample(labelled([7, 5]), **options)


@pytest.mark.parametrize("num_inputs, num_labels", [(5, 2), (2, 5)])
@pytest.mark.parametrize("options", [{"total": 5}, {"per_class": 1}, {"total": 2}])
def test_a_subsample_of_inputs_and_labels_that_do_not_pair_is_refused(num_inputs, num_labels, options):
    unequal = Examples(torch.zeros(num_inputs, 1), torch.arange(num_labels) % 2)
    with pytest.raises(DataError, match=f"{num_inputs} inputs and {num_labels} targets"):
        data.subsample(unequal, **options)


@pytest.mark.parametrize("options", [{}, {"per_class": 1, "total": 1}, {"per_class": [1, 1, 1]}])
def test_a_subsample_that_is_not_described_is_refused(options):
    with pytest.raises(ArgumentError):
        data.subsample(labelled([7, 5]), **options)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(1, 60), st.integers(0, 100))
def test_the_largest_class_has_the_share_that_was_asked_for_and_all_others_are_equal(num_classes, total, percent):
    alpha = max(1 / num_classes, percent / 100)
    kept = data.imbalanced(labelled([total] * num_classes), alpha_max=alpha, total=total)
    counts = kept.y.bincount(minlength=num_classes).tolist()
    assert sum(counts) == total and len(set(counts[1:])) == 1
    assert alpha * total - 1e-9 <= counts[0] < alpha * total + num_classes - 1 + 1e-9


def test_round_shares_are_met_exactly():
    counts = data.imbalanced(labelled([500] * 10), alpha_max=0.1, total=100).y.bincount().tolist()
    assert counts == [10] * 10
    counts = data.imbalanced(labelled([500] * 10), alpha_max=0.91, total=500).y.bincount().tolist()
    assert counts == [455, *[5] * 9]
    counts = data.imbalanced(labelled([500] * 11), alpha_max=1 / 11, total=110).y.bincount().tolist()
    assert counts == [10] * 11
    counts = data.imbalanced(labelled([500] * 8), alpha_max=0.1 + 0.2, total=280).y.bincount().tolist()
    assert counts == [84, *[28] * 7]


@pytest.mark.parametrize("alpha", [0.4, 1.1, float("nan")])
def test_a_share_that_cannot_be_the_largest_is_refused(alpha):
    with pytest.raises(ArgumentError, match=r"share|alpha_max is nan"):
        data.imbalanced(labelled([9, 9]), alpha_max=alpha, total=8)


def test_imbalance_takes_no_example_twice():
    with pytest.raises(DataError, match="of class 0"):
        data.imbalanced(labelled([9, 9]), alpha_max=0.9, total=12)


def test_one_hot_rows_are_labels_again_by_argmax():
    y = torch.tensor([2, 0, 1, 2])
    rows = data.one_hot(y, 4, **DOUBLE)
    assert rows.shape == (4, 4) and rows.dtype == torch.float64
    assert torch.equal(rows.argmax(1), y) and torch.equal(rows.sum(1), torch.ones(4, **DOUBLE))
    assert data.one_hot(y).shape == (4, 3)
    with pytest.raises(DataError, match="num_classes=3"):
        data.one_hot(y, 2)


@pytest.mark.parametrize("y", [torch.zeros(3), torch.tensor([-1, 0]), torch.zeros(0).long(), torch.zeros(2, 2).long()])
@pytest.mark.usefixtures("unchecked")
def test_labels_that_are_not_class_indices_are_refused(y):
    for action in (lambda: data.one_hot(y), lambda: data.subsample(Examples(y, y), per_class=1)):
        with pytest.raises((DataError, ArgumentError), match=r"whole numbers from 0|integers|shape \(N\)"):
            action()


def test_padding_puts_a_frame_around_images():
    images = Examples(torch.rand(2, 1, 28, 27, generator=seeded()), torch.zeros(2).long())
    framed = data.padded(images).x
    assert framed.shape == (2, 1, 32, 32) and torch.equal(framed[:, :, 2:30, 2:29], images.x)
    assert float(framed.sum()) == pytest.approx(float(images.x.sum()))
    for wrong, size in ((images.x, 20), (torch.zeros(5), 32), (torch.zeros(5, 784), 1000)):
        with pytest.raises(ArgumentError, match="larger"):
            data.padded(Examples(wrong, torch.zeros(len(wrong))), size)


def test_channels_are_standardised_by_the_training_part():
    def part(count, seed):
        x = torch.randn(count, 3, 4, 4, generator=seeded(seed), dtype=torch.float64)
        return Examples(x * torch.tensor([1.0, 2, 3]).view(3, 1, 1) + 5, torch.zeros(count).long())

    split = Split(part(6, 0), part(3, 1))
    found = data.standardized(split)
    assert_close(found.train.x.mean((0, 2, 3)), torch.zeros(3, **DOUBLE))
    assert_close(found.train.x.std((0, 2, 3)), torch.ones(3, **DOUBLE))
    slope = found.test.x.flatten(2).diff() / split.test.x.flatten(2).diff()
    assert_close(slope, (1 / split.train.x.std((0, 2, 3)))[None, :, None].expand_as(slope))
    blank = Split(Examples(torch.zeros(3, 2), torch.zeros(3)), split.test)
    with pytest.raises(DataError, match="deviation"):
        data.standardized(blank)
    pixels = Examples(torch.arange(6).view(3, 2), torch.zeros(3))
    with pytest.raises(DataError, match="float"):
        data.standardized(Split(pixels, pixels))
    assert data.flattened(split.train).x.shape == (6, 48)
    assert data.flattened(Examples(torch.zeros(3), torch.zeros(3))).x.shape == (3, 1)


def test_data_come_by_https_alone_and_not_without_end(monkeypatch, server):
    written = inspect.getsource(sources)
    assert "https://" in written and "http://" not in written
    with pytest.raises(OSError, match="not an https address"):
        sources._receive("http://example.org/x")
    server.files = {"/x": bytes(10)}
    monkeypatch.setattr(sources, "MOST_BYTES", 9)
    with pytest.raises(OSError, match="bytes came"):
        sources._receive(f"{server.address}x")


def test_what_unpacks_to_more_than_any_file_of_ours_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(1000)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert archives._unpack(path) == bytes(1000)
    monkeypatch.setattr(archives, "MOST_BYTES", 999)
    with pytest.raises(FileError, match="more than 999 bytes"):
        archives._unpack(path)
