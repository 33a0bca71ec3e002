"""Records survive the disk bit for bit, and an interrupted one is never taken for a whole one."""

import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import numpy as np
import pytest
import torch

from ritz import record
from ritz.errors import ArgumentError, FileError
from ritz.record import Claim, Record, origin, provenance

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
    known = {"ritz", "torch", "numpy", "commit", "python", "platform", "device", "threads", "date"}
    assert known == set(told) and set(provenance(seconds=1.5)) == known | {"seconds"}
    assert told["torch"] == torch.__version__ and told["date"].endswith("+00:00")
    assert told["threads"] == torch.get_num_threads()
    for private in (socket.gethostname(), getpass.getuser(), "/"):
        assert private not in " ".join(map(str, told.values()))


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree of its own, with the package where ritz has it; `commit()` asks for its commit."""
    package = tmp_path / "tree/src/ritz"
    package.mkdir(parents=True)
    (package / "record").mkdir()
    (package / "record/origin.py").write_text("1")
    monkeypatch.setattr(origin, "__file__", str(package / "record/origin.py"))
    return tmp_path / "tree"


def git(tree, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", "-C", tree, *who, *arguments], check=True, capture_output=True, text=True).stdout


def commit():
    return origin._commit.__wrapped__()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_source_tree_and_says_whether_the_code_was_changed(tree):
    assert commit() is None  # an installed package
    git(tree, "init")
    assert commit() is None  # no commit yet
    git(tree, "add", ".")
    git(tree, "commit", "-m", "first")
    head = git(tree, "rev-parse", "HEAD").strip()
    assert commit() == head[:12]
    (tree / "results.json").write_text("new results are no changes of the code")
    assert commit() == head[:12]
    (tree / "src/ritz/record/origin.py").write_text("2")
    assert commit() == head[:12] + "+changes"


def test_without_git_there_is_no_commit_and_no_error(tree, monkeypatch):
    (tree / ".git").mkdir()
    assert commit() is None  # a folder that is no repository
    monkeypatch.setenv("PATH", str(tree))
    assert commit() is None


def test_a_record_is_read_without_ritz(example, tmp_path):
    """Only json, hashlib and numpy, in another process: what is promised to those who get a file."""
    example.save(tmp_path)
    code = (
        "import hashlib, json, sys, numpy\n"
        "header = json.load(open('record.json'))\n"
        "arrays = numpy.load('arrays.npz')\n"
        "assert header['scalars']['trace'] == 0.1 + 0.2 and header['scalars']['diverged'] == {'float': 'nan'}\n"
        "assert header['config']['layers'] == [64, 10] and header['claims'][0]['verdict'] == 'partly'\n"
        "assert header['arrays']['sha256'] == hashlib.sha256(open('arrays.npz', 'rb').read()).hexdigest()\n"
        "assert arrays['file'].tolist() == [0, 1, 2] and not {'ritz', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_a_placed_record_appears_whole_and_replaces_what_was_there(example, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "stale").touch()
    assert Record.load(example.place(folder)).id == "demo"
    assert sorted(path.name for path in folder.iterdir()) == ["arrays.npz", "record.json"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_record_that_cannot_be_placed_leaves_the_old_one(example, tmp_path):
    example.place(tmp_path / "one")
    with pytest.raises(ArgumentError):
        replace(example, scalars={"z": 1j}).place(tmp_path / "one")
    assert Record.load(tmp_path / "one").id == "demo" and len(list(tmp_path.iterdir())) == 1


def test_a_detached_record_holds_neither_tensors_nor_graphs(example):
    graph = torch.ones(2, requires_grad=True) * 2
    plain = replace(example, scalars={"loss": graph.sum()}, arrays={"x": graph}).detached()
    assert plain.scalars == {"loss": 4.0} and type(plain.arrays["x"]) is np.ndarray
    assert pickle.loads(pickle.dumps(plain)).config == {"layers": [64, 10], "dtype": "float64", "seed": 0}


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    widths: tuple[int, ...] = (1, 2)


def test_a_dataclass_is_kept_by_its_fields(example, tmp_path):
    kept = replace(example, config={"all": Outer()}).save(tmp_path)
    assert Record.load(kept).config == {"all": {"inner": {"rate": 0.1}, "widths": [1, 2]}}


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
    replace_file = os.replace

    def killed(source, target):
        if target.name == "record.json":
            raise KeyboardInterrupt
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", killed)
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
@pytest.mark.usefixtures("unchecked")
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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 99}', b"\xff", b"[" * 100_000, b'{"format": 1}'])
def test_a_damaged_or_foreign_record_is_refused(tmp_path, content):
    record.write_bytes(tmp_path / "record.json", content)
    with pytest.raises(FileError):
        Record.load(tmp_path)


@pytest.mark.parametrize(
    "name, value",
    [
        *[(name, None) for name in ("id", "preset", "config", "scalars", "provenance", "claims", "arrays")],
        *[("id", 3), ("config", [1]), ("scalars", "none"), ("claims", {}), ("arrays", "arrays.npz"), ("arrays", {})],
        *[("claims", ["all true"]), ("claims", [{"statement": "half a claim"}])],
        ("claims", [{**asdict(CLAIM), "verdict": "perhaps"}]),
    ],
)
def test_a_record_with_a_missing_or_wrong_entry_is_refused_with_a_way_out(example, tmp_path, name, value):
    path = example.save(tmp_path) / "record.json"
    header = json.loads(path.read_text())
    header.pop(name) if value is None else header.update({name: value})
    path.write_text(json.dumps(header))
    with pytest.raises(FileError) as caught:
        Record.load(tmp_path)
    assert caught.value.why and caught.value.ways_out


def test_a_record_cut_short_anywhere_is_refused(example, tmp_path):
    folder = example.save(tmp_path)
    for path in (folder / "record.json", folder / "arrays.npz"):
        whole = path.read_bytes()
        for length in range(0, len(whole) - 2, 7):
            path.write_bytes(whole[:length])
            with pytest.raises(FileError):
                Record.load(folder)
        path.write_bytes(whole)
    assert Record.load(folder).id == "demo"


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


def test_a_single_array_is_no_array_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(FileError, match="cannot be read"):
        record.read_arrays(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not quite", b"0123456789"])
def test_damaged_arrays_are_refused(tmp_path, content):
    if content is not None:
        record.write_bytes(tmp_path / "x.npz", content)
    with pytest.raises(FileError, match=r"x\.npz cannot be read"):
        record.read_arrays(tmp_path / "x.npz")


def test_a_parent_that_is_a_file_is_told_as_such(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        record.write_bytes(tmp_path / "taken" / "numbers.bin", b"1")


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
def test_a_header_that_is_no_mapping_is_refused(tmp_path):
    record.write_arrays(tmp_path / "x.npz", {"a": np.zeros(2)}, [1, 2])
    with pytest.raises(FileError, match="cannot be read"):
        record.read_arrays(tmp_path / "x.npz")


def test_numbers_that_numpy_has_no_type_for_are_kept_exactly_in_a_wider_one(tmp_path):
    values = torch.tensor([1.0, -0.1, 3e38]).bfloat16()
    record.write_arrays(tmp_path / "x.npz", {"a": values})
    found = record.read_arrays(tmp_path / "x.npz")[0]["a"]
    assert found.dtype == np.float32 and torch.equal(torch.from_numpy(found).bfloat16(), values)
