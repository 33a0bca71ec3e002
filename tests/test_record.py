"""Records survive the disk bit for bit, and an interrupted one is never taken for a whole one."""

import json
import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from ritz import record
from ritz.errors import ArgumentError, FileError
from ritz.record import Claim, Record

CLAIM = Claim("outliers: C", "Papyan 2020", "Fig. 2", "as many as classes", 10, 9, 0.1, "partly", "one is in the bulk")


@pytest.fixture
def example():
    return Record(
        id="demo",
        preset="smoke",
        config={"layers": [64, 10], "dtype": torch.float64, "seed": 0},
        scalars={"trace": 0.1 + 0.2, "diverged": math.nan, "bound": -math.inf, "nested": {"max": math.inf}},
        arrays={"file": torch.arange(3), "0.weight/values": np.linspace(0, 1, 5, dtype=np.float32)},
        claims=(CLAIM,),
    )


def test_a_record_comes_back_as_it_was(example, tmp_path):
    loaded = Record.load(example.save(tmp_path / "new" / "folder"))
    assert (loaded.id, loaded.preset, loaded.claims) == ("demo", "smoke", (CLAIM,))
    assert loaded.provenance == example.provenance
    assert loaded.config == {"layers": [64, 10], "dtype": "float64", "seed": 0}
    for name, array in loaded.arrays.items():
        np.testing.assert_array_equal(array, np.asarray(example.arrays[name]), strict=True)
    assert list(loaded.arrays) == list(example.arrays)


def test_numbers_json_cannot_write_come_back_from_valid_json(example, tmp_path):
    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    folder = example.save(tmp_path)
    json.loads((folder / "record.json").read_text(), parse_constant=refuse)
    scalars = Record.load(folder).scalars
    assert scalars["trace"] == 0.1 + 0.2
    assert math.isnan(scalars["diverged"])
    assert (scalars["bound"], scalars["nested"]["max"]) == (-math.inf, math.inf)


def test_provenance_names_versions_and_no_machine(example):
    import getpass
    import socket

    told = example.provenance
    assert {"ritz", "torch", "numpy", "python", "platform", "device", "date"} == set(told)
    assert told["torch"] == torch.__version__ and told["date"].endswith("+00:00")
    for private in (socket.gethostname(), getpass.getuser(), "/"):
        assert private not in " ".join(told.values())


def test_a_record_cannot_be_changed(example):
    with pytest.raises(FrozenInstanceError):
        example.id = "other"


def test_saving_again_replaces_and_leaves_no_other_file(example, tmp_path):
    example.save(tmp_path)
    replace(example, id="second").save(tmp_path)
    assert Record.load(tmp_path).id == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.npz", "record.json"]


def test_a_run_killed_between_its_two_files_is_found_out(example, tmp_path, monkeypatch):
    example.save(tmp_path)
    newer = replace(example, arrays={"file": torch.zeros(3)})
    replace_file = record.os.replace

    def killed(source, target):
        if target.name == "record.json":
            raise KeyboardInterrupt
        replace_file(source, target)

    monkeypatch.setattr(record.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        newer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.npz", "record.json"]
    with pytest.raises(FileError, match="different runs"):
        Record.load(tmp_path)


def test_a_run_killed_while_it_writes_leaves_the_old_file(tmp_path):
    class Interrupted:
        def savefig(self, stream, **options):
            stream.write(b"half a pict")
            raise KeyboardInterrupt

    path = record.write_bytes(tmp_path / "figure.png", b"whole")
    with pytest.raises(KeyboardInterrupt):
        record.write_picture(path, Interrupted())
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_folder_that_cannot_be_written_is_refused_with_a_way_out(example, tmp_path, inside):
    file = record.write_bytes(tmp_path / "taken", b"a file, not a folder")
    with pytest.raises(FileError, match="cannot be written") as caught:
        example.save(file / inside)
    assert caught.value.seen and caught.value.why and caught.value.ways_out
    assert file.read_bytes() == b"a file, not a folder"


def test_asking_whether_a_folder_is_writable_creates_nothing(tmp_path):
    assert record.check_writable(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [{1: 2}, {"model": object()}, {"z": 1j}])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(example, tmp_path, value):
    with pytest.raises(ArgumentError):
        replace(example, scalars=value).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 99}', b"\xff"])
def test_a_damaged_or_foreign_record_is_refused(tmp_path, content):
    record.write_bytes(tmp_path / "record.json", content)
    with pytest.raises(FileError):
        Record.load(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not quite", b"0123456789"])
def test_damaged_arrays_are_refused(tmp_path, content):
    if content is not None:
        record.write_bytes(tmp_path / "x.npz", content)
    with pytest.raises(FileError, match=r"x\.npz cannot be read"):
        record.read_arrays(tmp_path / "x.npz")
