"""What a file says of its arrays must agree with them, and both with what its reader knows that they must be."""

import numpy as np
import pytest
import torch

from ritz.errors import FileError
from ritz.record import Checkpoint, read_arrays, write_arrays
from ritz.record.layouts import check_arrays, check_facts, layout_of, like

ARRAYS = {"a": torch.tensor([1.0, torch.nan, torch.inf]), "n": torch.arange(4), "half": torch.ones(2).bfloat16()}
CHANGES = {
    "gone": lambda arrays: arrays.pop("a"),
    "more": lambda arrays: arrays.update(b=np.zeros(2)),
    "cut": lambda arrays: arrays.update(a=arrays["a"][:-1]),
    "of another type": lambda arrays: arrays.update(n=arrays["n"].astype(np.int32)),
    "not finite": lambda arrays: arrays.update(a=np.array([np.nan, np.nan, np.inf], dtype=np.float32)),
    "finite": lambda arrays: arrays.update(a=np.zeros(3, dtype=np.float32)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_arrays_that_are_not_those_which_the_file_speaks_of_are_refused(tmp_path, change):
    file = Checkpoint(tmp_path / "x.npz", {"of": "this"})
    file.keep(lambda: (ARRAYS, {}), last=True)
    assert file.state()[0].keys() == ARRAYS.keys()
    arrays, header = read_arrays(file.path)
    change(arrays)
    write_arrays(file.path, arrays, header)
    before = file.path.read_bytes()
    with pytest.raises(FileError, match="is damaged") as caught:
        file.state()
    assert caught.value.ways_out and file.path.read_bytes() == before
    write_arrays(file.path, arrays, {**header, "layout": layout_of(arrays)})  # who knows the format can write any file
    assert file.state()[0].keys() == arrays.keys()


@pytest.mark.parametrize("layout", [None, "text", [], {}, {"a": 3}, {"a": ["<f4", [3], 2, 1]}])
def test_a_file_without_a_layout_is_refused(tmp_path, layout):
    file = Checkpoint(tmp_path / "x.npz", {"of": "this"})
    file.keep(lambda: (ARRAYS, {}), last=True)
    arrays, header = read_arrays(file.path)
    write_arrays(file.path, arrays, {**header, "layout": layout})
    with pytest.raises(FileError, match="is damaged"):
        file.state()


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a": torch.zeros(2, 3)},
        {"a": torch.zeros(3, 2, dtype=torch.float64)},
        {"a": torch.full((3, 2), torch.nan)},
        {"a": torch.zeros(3, 2, dtype=torch.complex64)},
        {"a": torch.zeros(3, 2), "b": torch.zeros(1)},
    ],
)
def test_arrays_that_a_reader_does_not_expect_are_refused(arrays):
    expected = {"a": like(torch.float32, 3, 2)}
    check_arrays({"a": np.ones((3, 2), np.float32)}, expected)
    check_arrays({"a": torch.full((3, 2), torch.inf)}, expected, finite=False)
    check_arrays({"a": torch.ones(3, 2)}, {"a": like(torch.bfloat16, 3, 2)})  # which no file has a type for
    with pytest.raises(ValueError, match=r"a is|a holds|there is"):
        check_arrays(arrays, expected)


@pytest.mark.parametrize("value", [-1, 5, 2.0, True, "2", None, [], 10**30])
def test_counts_of_a_file_are_whole_and_in_their_range(value):
    check_facts({"count": 2}, count=range(5))
    with pytest.raises(ValueError, match="count"):
        check_facts({"count": value}, count=range(5))


@pytest.mark.parametrize("value", [-0.5, 3, True, float("nan"), float("inf"), None, "text"])
def test_lengths_of_a_file_are_numbers_that_are_not_negative(value):
    check_facts({"length": 0.5, "over": False}, length=float, over=bool)
    with pytest.raises(ValueError, match="length"):
        check_facts({"length": value}, length=float)
    with pytest.raises(ValueError, match="no over"):
        check_facts({}, over=bool)
