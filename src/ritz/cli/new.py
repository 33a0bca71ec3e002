"""`ritz new`: a file to put one's own model into."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from ..errors import ArgumentError, FileError
from ..record import read_bytes, write_bytes

_STARTER = Path(__file__).with_name("starter.py")


def write(path: Path) -> None:
    """Write the starter under this name; a file that is there stays."""
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ArgumentError(
            f"{path} is not a name for a Python file.",
            "ritz imports the file, so its name must be letters, digits and underscores, followed by .py.",
            "For example: ritz new mine.py",
        )
    if path.stem in {*sys.stdlib_module_names, *packages_distributions(), __name__.partition(".")[0]}:
        raise ArgumentError(
            f"{path} would have the name of an installed module, {path.stem}.",
            "In its folder, `import` would find this file instead of the module, for everything that needs it.",
            "For example: ritz new mine.py",
        )
    if path.exists():
        raise FileError(
            f"{path} already exists.",
            "Files that exist are never overwritten.",
            "Choose another name, or remove it first.",
        )
    text = read_bytes(_STARTER).decode()
    write_bytes(path, text.replace("FILE.py", path.name).encode())
