"""Full disks, folders that are gone, clocks set back: messages tell the truth about what is on the disk."""

import errno
import os
import shutil
import time

import numpy as np
import pytest

from ritz.errors import FileError
from ritz.record import Checkpoint, Record, files, read_arrays, write_arrays

TROUBLE = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO]


def record(value):
    return Record("x", "smoke", {}, {"value": value}, {"numbers": np.full(3, value)}, (), {})


class Failing:
    """Writes reach the disk so many times, then no more."""

    def __init__(self, monkeypatch, after, code):
        self.left, self.code, self.fsync = after, code, os.fsync
        monkeypatch.setattr(files.os, "fsync", self)

    def __call__(self, descriptor):
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        self.left -= 1
        self.fsync(descriptor)


@pytest.mark.parametrize("code", TROUBLE, ids=errno.errorcode.get)
@pytest.mark.parametrize("after", [0, 1])
def test_a_record_that_does_not_fit_leaves_the_one_that_was_there(tmp_path, monkeypatch, code, after):
    record(1.0).save(tmp_path)
    with monkeypatch.context() as patch:
        Failing(patch, after, code)
        with pytest.raises(FileError, match="as it was before") as caught:
            record(2.0).save(tmp_path)
    assert os.strerror(code) in caught.value.seen and caught.value.ways_out
    back = Record.load(tmp_path)
    assert back.scalars["value"] == 1.0 and back.arrays["numbers"].tolist() == [1.0] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.npz", "record.json"]
    record(2.0).save(tmp_path)  # the way out: once there is room
    assert Record.load(tmp_path).scalars["value"] == 2.0


@pytest.mark.parametrize("code", TROUBLE, ids=errno.errorcode.get)
def test_a_checkpoint_that_does_not_fit_leaves_the_last_one(tmp_path, monkeypatch, code):
    file = Checkpoint(tmp_path / "run.npz", {"what": "this"}, 0.0)
    file.keep(lambda: ({"x": np.zeros(2)}, {}))
    with monkeypatch.context() as patch:
        Failing(patch, 0, code)
        with pytest.raises(FileError, match="as it was before"):
            file.keep(lambda: ({"x": np.ones(2)}, {}))
    arrays, _ = file.state()
    assert arrays["x"].tolist() == [0.0, 0.0] and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_gone_is_made_again_or_refused(tmp_path):
    path = tmp_path / "gone" / "run.npz"
    file = Checkpoint(path, {}, 0.0)
    file.keep(lambda: ({"x": np.zeros(2)}, {}))
    shutil.rmtree(path.parent)
    assert file.state() is None
    file.keep(lambda: ({"x": np.ones(2)}, {}))
    assert read_arrays(path)[0]["x"].tolist() == [1.0, 1.0]
    shutil.rmtree(path.parent)
    path.parent.write_bytes(b"a file where the folder was")
    with pytest.raises(FileError, match="cannot be written"):
        file.keep(lambda: ({"x": np.ones(2)}, {}))


def test_a_clock_set_back_changes_nothing(tmp_path, monkeypatch):
    file = Checkpoint(tmp_path / "run.npz", {}, 0.01)
    monkeypatch.setattr(time, "time", lambda: -1e9)
    time.sleep(0.02)
    file.keep(lambda: ({"x": np.zeros(2)}, {}))
    assert file.state() is not None


def test_writers_at_once_leave_one_whole_file(tmp_path):
    for value in range(3):
        write_arrays(tmp_path / "x.npz", {"x": np.full(2, value)})
    child = os.fork() if hasattr(os, "fork") else None
    for value in range(30):
        write_arrays(tmp_path / "x.npz", {"x": np.full(2, value)})
    if child == 0:
        os._exit(0)
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read_arrays(tmp_path / "x.npz")[0]["x"].tolist() == [29, 29]
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
