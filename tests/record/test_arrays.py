"""Array files come back as they were, and a damaged or foreign one is refused."""

import math
import resource
import zipfile

import numpy as np
import pytest
import torch

from ritz import record
from ritz.arguments import bare
from ritz.errors import ArgumentError, FileError
from ritz.record import read_arrays, write_arrays


@pytest.mark.parametrize("arrays", [{"objects": np.array([None])}, {"header": np.zeros(2)}])
def test_arrays_that_would_need_a_pickle_or_shadow_the_header_are_refused(tmp_path, arrays):
    with pytest.raises(ArgumentError):
        record.write_arrays(tmp_path / "x.npz", arrays)
    assert list(tmp_path.iterdir()) == []


def test_arrays_and_their_header_come_back(tmp_path):
    values = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    path = record.write_arrays(tmp_path / "s.npz", {"values": values}, {"size": 7, "edge": math.inf})
    arrays, header = record.read_arrays(path)
    np.testing.assert_array_equal(arrays["values"], values.detach().numpy(), strict=True)
    assert list(arrays) == ["values"] and header == {"size": 7, "edge": math.inf}


def test_a_pickle_is_never_opened(tmp_path):
    np.savez(tmp_path / "evil.npz", payload=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FileError, match="without pickled objects"):
        record.read_arrays(tmp_path / "evil.npz")


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
def test_arrays_with_any_damaged_byte_are_read_or_refused(tmp_path, savez):
    """A flipped byte may hit what nobody reads; it must never lead to another kind of error."""
    path = tmp_path / "x.npz"
    savez(path, a=np.arange(5), b=np.linspace(0, 1, 3))
    whole, refused = path.read_bytes(), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            record.read_arrays(path)
        except FileError:
            refused += 1
    assert refused > len(whole) // 4


def test_a_file_of_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(FileError, match="cannot be read"):
        record.read_arrays(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not quite", b"0123456789"])
def test_damaged_arrays_are_refused(tmp_path, content):
    if content is not None:
        record.write_bytes(tmp_path / "x.npz", content)
    with pytest.raises(FileError, match=r"x\.npz cannot be read"):
        record.read_arrays(tmp_path / "x.npz")


def entry(header):
    """An .npy file with this header, damaged or not."""
    line = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + len(line).to_bytes(2, "little") + line + bytes(48)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), } (",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "'' '",
    ],
)
def test_an_array_that_was_damaged_before_it_was_packed_is_refused(tmp_path, header):
    """The checksum of the archive is right, so that numpy reads the header, which it does in many ways."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", entry(header))
    with pytest.raises(FileError, match=r"x\.npz cannot be read"):
        record.read_arrays(tmp_path / "x.npz")


@pytest.mark.usefixtures("unchecked")
def test_a_header_that_is_not_a_mapping_is_refused(tmp_path):
    bare(record.write_arrays)(tmp_path / "x.npz", {"a": np.zeros(2)}, [1, 2])
    with pytest.raises(FileError, match="cannot be read"):
        record.read_arrays(tmp_path / "x.npz")


def test_numbers_that_numpy_has_no_type_for_are_kept_exactly_in_a_wider_one(tmp_path):
    values = torch.tensor([1.0, -0.1, 3e38]).bfloat16()
    record.write_arrays(tmp_path / "x.npz", {"a": values})
    values_read = record.read_arrays(tmp_path / "x.npz")[0]["a"]
    assert values_read.dtype == np.float32 and torch.equal(torch.from_numpy(values_read).bfloat16(), values)


def test_names_that_differ_by_their_ending_stay_apart(tmp_path):
    arrays = {"a": np.zeros(1), "a.npy": np.ones(2), "a.npy.npy": np.full(3, 2.0)}
    back, _ = read_arrays(write_arrays(tmp_path / "x.npz", arrays))
    assert {name: array.tolist() for name, array in back.items()} == {n: a.tolist() for n, a in arrays.items()}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["a\0b", "", 5, 70_000 * "x"])
def test_names_that_a_file_would_not_keep_are_refused(tmp_path, name):
    with pytest.raises(ArgumentError, match="Give it another name"):
        write_arrays(tmp_path / "x.npz", {name: np.zeros(1)})
    assert not list(tmp_path.iterdir())


def bomb(path):
    """A few bytes that are said to unpack to a gigabyte."""
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("x.npy", "w") as entry:
            np.lib.format.write_array(entry, np.zeros(2))
        archive.filelist[0].file_size = 2**30


def liar(path, shape=(10**12,)):
    """A header that speaks of more than follows."""
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as entry:
        np.lib.format.write_array_header_1_0(entry, {"descr": "<f8", "fortran_order": False, "shape": shape})
        entry.write(bytes(80))


def twins(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "x"):
            with archive.open(name, "w") as entry:
                np.lib.format.write_array(entry, np.zeros(2))


@pytest.mark.parametrize("hostile", [bomb, liar, twins])
def test_an_archive_is_refused_before_it_takes_memory(tmp_path, hostile):
    hostile(tmp_path / "x.npz")
    before = (tmp_path / "x.npz").read_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileError, match="cannot be read"):
        read_arrays(tmp_path / "x.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 100_000  # kB
    assert (tmp_path / "x.npz").read_bytes() == before


def test_conjugates_are_kept_and_what_numpy_has_no_type_for_is_refused(tmp_path):
    z = torch.tensor([1 + 2j, 3j])
    arrays, _ = read_arrays(write_arrays(tmp_path / "z.npz", {"conjugate": z.conj(), "negative": z.conj().imag}))
    assert arrays["conjugate"].tolist() == [1 - 2j, -3j] and arrays["negative"].tolist() == [-2.0, -3.0]
    for odd in (torch.eye(2).to_sparse(), torch.ones(2).to(torch.float8_e4m3fn)):
        with pytest.raises(ArgumentError, match="tensor 'x'"):
            write_arrays(tmp_path / "odd.npz", {"x": odd})
    with pytest.raises(ArgumentError, match="surrogate"):
        write_arrays(tmp_path / "odd.npz", {"\ud800": z})
