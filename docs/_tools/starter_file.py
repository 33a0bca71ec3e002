"""The file `mine.py` that examples import, as `ritz new mine.py` writes it."""

import subprocess
import sys
from pathlib import Path


def write(folder: Path) -> Path:
    """Write it anew into the folder, by the command itself; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "ritz", "new", str(folder / "mine.py")], check=True, stdout=subprocess.DEVNULL
    )
    return folder
