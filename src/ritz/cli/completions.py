"""Completions of the shell besides the names of commands and options, immediate and without PyTorch.

Ids, presets and fields are read from the records, of this folder and those that came with ritz: every figure has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from .folders import RESULTS, SHIPPED

PRESETS = ("paper", "laptop", "smoke")  # that every figure has


def ids(ctx: Any, incomplete: str) -> list[str]:
    """The ids that begin with what was typed, but for those named before; Typer passes its context as `ctx`."""
    names = {file.parents[1].name for file in _headers()} - set(_named(ctx))
    return sorted(name for name in names if name.startswith(incomplete))


def presets(incomplete: str) -> list[str]:
    """The presets that begin with what was typed."""
    return [name for name in PRESETS if name.startswith(incomplete)]


def settings(ctx: Any, incomplete: str) -> list[str]:
    """The fields of the figures that were named, as `--set` takes them."""
    files = [file for file in _headers() if any(fnmatchcase(file.parents[1].name, name) for name in _named(ctx))]
    fields = {name for file in files for name in _fields(_config(file))}
    return sorted(f"{name}=" for name in fields if name.startswith(incomplete))


def _named(ctx: Any) -> list[str]:
    """The ids on the line so far: among what is not sorted yet where an option waits for its value."""
    return [*(ctx.params.get("ids") or ()), *ctx.args]


def _headers() -> Iterator[Path]:
    return chain.from_iterable(folder.glob("*/*/record.json") for folder in (RESULTS, SHIPPED))


def _config(file: Path) -> Mapping[str, Any]:
    """The config of a record; empty if the file cannot be read, since completion cannot show messages."""
    try:
        config = json.loads(file.read_text())["config"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return config if isinstance(config, Mapping) else {}


def _fields(config: Mapping[str, Any]) -> Iterator[str]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _fields(value))
        else:
            yield name
