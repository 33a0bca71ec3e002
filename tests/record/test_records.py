"""Records survive the disk bit for bit, and an interrupted one is never taken for a whole one."""

import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, replace

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
    assert loaded.provenance == example.provenance and "commit" in loaded.provenance
    assert loaded.config == {"layers": [64, 10], "dtype": "float64", "seed": 0}
    for name, array in loaded.arrays.items():
        np.testing.assert_array_equal(array, np.asarray(example.arrays[name]), strict=True)
    assert list(loaded.arrays) == list(example.arrays)


def test_a_record_is_named_by_its_folder_or_by_its_json(example, tmp_path):
    folder = example.save(tmp_path / "run")
    assert repr(Record.load(folder / "record.json")) == repr(Record.load(folder))


def test_numbers_json_cannot_write_come_back_from_valid_json(example, tmp_path):
    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    folder = example.save(tmp_path)
    json.loads((folder / "record.json").read_text(), parse_constant=refuse)
    scalars = Record.load(folder).scalars
    assert scalars["trace"] == 0.1 + 0.2
    assert math.isnan(scalars["diverged"])
    assert (scalars["bound"], scalars["nested"]["max"]) == (-math.inf, math.inf)


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


def test_the_claims_of_a_detached_record_are_plain_too(example):
    graph = torch.ones(2, requires_grad=True) * 2
    claim = Claim("All are 2", "Nobody", "Fig. 1", "equal", np.float64(2), graph, 0.0, "yes", beside={"x": graph})
    (plain,) = replace(example, claims=(claim,)).detached().claims
    assert plain.measured == [2.0, 2.0] and plain.beside == {"x": [2.0, 2.0]} and type(plain.expected) is float
    assert pickle.loads(pickle.dumps(plain)) == plain


def test_a_detached_record_says_what_a_saved_one_says(example, tmp_path):
    claim = Claim("It is finite", "Nobody 2000", "Fig. 1", "equal", 1.0, math.nan, math.inf, "no")
    own = replace(example, scalars={"loss": math.nan, "rates": [math.inf]}, claims=(claim,))
    for one in (own.detached(), Record.load(own.save(tmp_path))):
        assert math.isnan(one.scalars["loss"]) and one.scalars["rates"] == [math.inf]
        assert math.isnan(one.claims[0].measured) and one.claims[0].error == math.inf


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


def test_arrays_may_be_those_of_another_record_and_of_no_other_file(example, tmp_path):
    example.save(tmp_path / "one" / "smoke")
    folder = example.save(tmp_path / "two" / "smoke")
    (folder / "arrays.npz").unlink()
    text = (folder / "record.json").read_text()
    for file in ("../../one/smoke/arrays.npz", "../../../arrays.npz", "/dev/zero", "../../one/../arrays.npz", "x.npz"):
        (folder / "record.json").write_text(text.replace('"file": "arrays.npz"', f'"file": "{file}"'))
        if file.startswith("../../one/smoke"):
            assert Record.load(folder).arrays.keys() == example.arrays.keys()
        else:
            with pytest.raises(FileError, match="whose arrays would be in"):
                Record.load(folder)


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


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_folder_that_cannot_be_written_is_refused_with_a_way_out(example, tmp_path, inside):
    file = record.write_bytes(tmp_path / "taken", b"a file, not a folder")
    with pytest.raises(FileError, match="cannot be written") as caught:
        example.save(file / inside)
    assert caught.value.seen and caught.value.why and caught.value.ways_out
    assert file.read_bytes() == b"a file, not a folder"


@pytest.mark.parametrize("value", [{1: 2}, {"model": object()}, {"z": 1j}])
@pytest.mark.usefixtures("unchecked")
def test_what_json_cannot_hold_is_refused_before_anything_is_written(example, tmp_path, value):
    with pytest.raises(ArgumentError):
        replace(example, scalars=value).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


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
        *[("claims", [{**asdict(CLAIM), **wrong}]) for wrong in ({"statement": 5}, {"why": None}, {"error": "a"})],
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


def test_what_would_steer_a_terminal_is_spelled_out(tmp_path):
    evil = "\x1b]0;mine\x07\x1b[31m \u202e \x9b \r"
    claim = replace(CLAIM, statement=evil, why=evil)
    back = Record.load(Record(evil, "smoke", {evil: evil}, {}, {}, (claim,), {}).save(tmp_path))
    for text in (back.id, back.claims[0].statement, back.claims[0].why, *back.config, *back.config.values()):
        assert text.isprintable() and "\\x1b]0;mine" in text


def test_texts_of_all_languages_and_lines_stay(tmp_path):
    texts = "λ₁ ≤ ‖A‖\n\tStraße 中文 é"
    assert Record.load(Record(texts, "smoke", {}, {}, {}, (), {}).save(tmp_path)).id == texts


def endless():
    """A list that holds itself."""
    rows = []
    rows.append(rows)
    return rows


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, endless()])
def test_what_no_file_can_spell_out_is_refused_before_anything_is_written(example, tmp_path, value):
    with pytest.raises(ArgumentError):
        replace(example, scalars={"x": value}).save(tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_a_mapping_that_looks_like_a_number_comes_back_as_it_was(example, tmp_path):
    scalars = {"x": {"float": "abc"}, "y": {"float": 1}, "z": {"float": "16"}}
    assert Record.load(replace(example, scalars=scalars).save(tmp_path)).scalars == scalars
