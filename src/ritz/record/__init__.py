"""What a computation leaves behind, on disk and in memory; the only folder below `lab` that touches files."""

from ..arguments import guard
from .arrays import read_arrays, write_arrays
from .checkpoints import SAVE_SECONDS, Checkpoint
from .claims import OURS, Claim, Verdict
from .files import check_writable, discard, read_bytes, write_bytes
from .identities import digest, identity_of, model_identity
from .json_values import canonical, key, plain
from .locks import lock
from .origin import provenance
from .pictures import Picture, write_picture
from .records import Record

__all__ = [
    "OURS", "SAVE_SECONDS", "Checkpoint", "Claim", "Picture", "Record", "Verdict", "canonical", "check_writable",
    "digest", "discard", "identity_of", "key", "lock", "model_identity", "plain", "provenance", "read_arrays",
    "read_bytes", "write_arrays", "write_bytes", "write_picture",
]  # fmt: skip

guard(__name__)
