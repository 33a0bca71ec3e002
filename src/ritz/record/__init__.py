"""What a computation leaves behind, on disk and in memory; the only folder below `lab` that touches files."""

from .arrays import read_arrays, write_arrays
from .claims import OURS, Claim, Verdict
from .files import check_writable, discard, read_bytes, write_bytes
from .json_values import canonical, key, plain
from .locks import lock
from .origin import provenance
from .pictures import Picture, write_picture
from .records import Record

__all__ = [
    "OURS", "Claim", "Picture", "Record", "Verdict", "canonical", "check_writable", "discard", "key", "lock", "plain",
    "provenance", "read_arrays", "read_bytes", "write_arrays", "write_bytes", "write_picture",
]  # fmt: skip
