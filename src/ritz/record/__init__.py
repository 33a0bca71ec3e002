"""What a computation leaves behind, on disk and in memory; the only folder below `lab` that touches files."""

from .origin import provenance
from .records import (
    Claim,
    Picture,
    Record,
    Verdict,
    canonical,
    check_writable,
    discard,
    key,
    plain,
    read_arrays,
    read_bytes,
    write_arrays,
    write_bytes,
    write_picture,
)

__all__ = [
    "Claim", "Picture", "Record", "Verdict", "canonical", "check_writable", "discard", "key", "plain", "provenance",
    "read_arrays", "read_bytes", "write_arrays", "write_bytes", "write_picture",
]  # fmt: skip
