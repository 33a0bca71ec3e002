"""The sources of a Config's values: the comments beside its fields, read from the code.

A comment begins with what the paper prints, in quotes, or with "open"; the rest says why the value was chosen:

    width: int = 64  # "with width 64"
    seeds: int = 5  # open: the spread of the draws is part of the result
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ...record import plain
from .figure import Figure

_FIELD = re.compile(r"^    (\w+):[^#]*(?:#\s*(.*))?$")
_PRINTED = re.compile(r"^(?:\w[^\"“;]*[:,] )?[\"“].*?[\"”](?:,? (?:and )?[\"“].*?[\"”])*")


@dataclass(frozen=True)
class Source:
    """One row of "printed / ours / why": a field, what the paper prints for it, our value, and the reason."""

    field: str
    printed: str
    ours: str
    why: str


def sources(figure: Figure, config: Mapping[str, Any]) -> list[Source]:
    """The rows for a figure's config, given in the plain values of a record; nested fields are named with a dot."""
    preset = figure.presets["paper"] if "paper" in figure.presets else next(iter(figure.presets.values()))
    return list(_rows(preset, config, dict(figure.printed), {one.field for one in figure.readings}))


def _rows(
    preset: Any, config: Mapping[str, Any], given: Mapping[str, str], readings: set[str], prefix: str = ""
) -> Any:
    comments = _comments(type(preset))
    for entry in fields(preset):
        name, value = prefix + entry.name, config.get(entry.name)
        inner = getattr(preset, entry.name)
        if is_dataclass(inner) and isinstance(value, Mapping):
            yield from _rows(inner, value, given, readings, f"{name}.")
        else:
            comment = given.get(name, comments.get(entry.name, ""))
            printed, why = ("open", "see the readings") if name in readings else _parts(comment)
            differs = (
                "" if plain(inner) == value else f"{why}{'; ' if why else ''}{_text(plain(inner))} at preset paper"
            )
            yield Source(name, printed, _text(value), differs or why)


def _comments(kind: type) -> dict[str, str]:
    """The comment beside each field, of the class and of its base classes."""
    found = dict[str, str]()
    for one in [base for base in reversed(kind.__mro__) if is_dataclass(base)]:
        matches = map(_FIELD.match, inspect.getsource(one).splitlines())
        found |= {match[1]: match[2] or "" for match in matches if match}
    return found


def _parts(comment: str) -> tuple[str, str]:
    """A comment split into what is printed and the reason."""
    if comment.startswith("open"):
        return "open", comment.removeprefix("open").lstrip(":;, ")
    match = _PRINTED.match(comment)
    return (match[0], comment[match.end() :].lstrip(":;,. ")) if match else ("", comment)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "none" if value is None else str(value)
