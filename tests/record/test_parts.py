"""What killed writers leave behind is removed by the next one, and what living ones hold is not."""

import os
import signal

import numpy as np
import pytest

from ritz import Record
from ritz.record import lock, write_arrays, write_bytes
from ritz.record.files import write_whole
from ritz.record.parts import part_of, remove_dead_parts


def die(stream):
    stream.write(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)


def leave_half(path, kind):
    """Half-written files, left by a process that kills itself while it writes."""
    child = os.fork()
    if not child:
        if kind == "file":
            write_whole(path, die)
        with part_of(path, folder=True) as part, (part / "half").open("wb") as stream:
            die(stream)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [part.name.startswith(f".{path.name}.") for part in path.parent.iterdir()] == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "name, kind, write",
    [
        ("run.npz", "file", lambda path: write_arrays(path, {"x": np.zeros(2)})),
        ("record", "folder", lambda path: Record("x", "smoke", {}, {}, {}, (), {}).place(path)),
    ],
)
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, name, kind, write):
    leave_half(tmp_path / name, kind)
    write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_living_writer_keeps_its_part_and_others_keep_theirs(tmp_path):
    with part_of(tmp_path / "x.npz") as part, part_of(tmp_path / "x.npz.old") as other:
        write_bytes(tmp_path / "x.npz", b"whole")
        assert part.exists() and other.exists() and part != other
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_names_are_no_patterns(tmp_path):
    part = tmp_path / f".xy.{'0' * 32}.tmp"
    part.write_bytes(b"somebody else's")
    for name in ("x*", "x?", "[x]y", ".*", "x"):
        remove_dead_parts(tmp_path / name)
    assert part.exists()
    remove_dead_parts(tmp_path / "xy")
    assert not part.exists()


def test_who_locks_a_folder_removes_what_the_dead_left_and_nothing_else(tmp_path):
    dead = tmp_path / f".x.npz.{'0' * 32}.tmp"
    for mine in (".notes.tmp", ".x.npz.old.tmp"):
        (tmp_path / mine).write_bytes(b"the user's")
    dead.write_bytes(b"half")
    with part_of(tmp_path / "x.npz") as living, lock(tmp_path):
        assert living.exists() and not dead.exists()
    write_bytes(tmp_path / "x.npz", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {".lock", ".notes.tmp", ".x.npz.old.tmp", "x.npz"}


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        write_bytes(tmp_path / "x", b"")
        remove_dead_parts(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == before
