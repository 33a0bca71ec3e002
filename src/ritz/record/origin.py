"""Where a result comes from: versions, source, device, date and time taken."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_PATIENCE = 10.0  # seconds for git to answer


def provenance(device: torch.device | str = "cpu", *, seconds: float | None = None) -> dict[str, Any]:
    """The versions, platform, device and UTC date behind a result, and how long it took where that is known.

    `commit` is that of the source tree ritz runs from, with "+changes" where its code differs from it, and None where
    there is no such tree. It names no machine, user or folder.
    """
    place = torch.device(device)
    return {
        **{package: version_of(package) for package in ("ritz", "torch", "numpy")},
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else place.type,
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **({} if seconds is None else {"seconds": seconds}),
    }


def version_of(package: str) -> str:
    """The version of a package, by its own statement if it is imported, else as installed."""
    own = getattr(sys.modules.get(package), "__version__", None)
    if own is not None:
        return str(own)
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


@cache  # cached, since the running code is that of the time of import
def _commit() -> str | None:
    """The commit of the source tree, if there is one; changes outside the package, such as results, do not count."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]  # as src/ritz lies in it; an installed package has no .git there
    git = ["git", "--no-optional-locks", f"--git-dir={root / '.git'}", f"--work-tree={root}", "-C", str(root)]
    try:
        commit, changes = (
            subprocess.run([*git, *ask], capture_output=True, text=True, check=True, timeout=_PATIENCE).stdout.strip()
            for ask in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", str(package)])
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return commit + "+changes" * bool(changes)
