"""The refusal of a file that holds something else."""

from __future__ import annotations

from pathlib import Path

from ..errors import ArgumentError


def check_kind(path: str | Path, header: dict, kind: str) -> None:
    """Refuse the arrays of another kind."""
    if header.get("kind") != kind:
        raise ArgumentError(
            f"{path} holds {header.get('kind', 'something else')}, not {kind}.",
            "Its arrays mean something else.",
            f"Load a file that {kind}.save wrote.",
        )
