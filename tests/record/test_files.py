"""Files appear whole or not at all, and what cannot be written is refused with a way out."""

import pytest

from ritz import record
from ritz.errors import FileError


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


def test_asking_whether_a_folder_is_writable_creates_nothing(tmp_path):
    assert record.check_writable(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file_is_reported_as_such(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        record.write_bytes(tmp_path / "taken" / "numbers.bin", b"1")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_cannot_name_a_file_is_refused(path):
    with pytest.raises(FileError, match="does not name a file"):
        record.write_bytes(path, b"1")
