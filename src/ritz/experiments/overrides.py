"""A preset with some of its fields set anew, as `--set field=value` does, checked against the types of the fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import ArgumentError

_WORDS = {"true": True, "false": False, "none": None}


def overridden(config: Any, settings: Sequence[str]) -> Any:
    """The config with each `field=value` set; numbers, true, false, none, words, and lists such as 1,2,3."""
    return replace(config, **dict(_setting(config, text) for text in settings))


def _setting(config: Any, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    kinds = get_type_hints(type(config))
    known = {entry.name: kinds[entry.name] for entry in fields(config)}
    if not equals:
        raise ArgumentError(
            f"--set {text} sets nothing.", "It has no value.", "Write it as --set field=value.", _fields(config)
        )
    if name not in known:
        guess = get_close_matches(name, known, n=1)
        raise ArgumentError(
            f"--set {text}: there is no field {name}.",
            "Only what the figure's config has can be set.",
            *([f"Did you mean {guess[0]}?"] if guess else []),
            _fields(config),
        )
    try:
        return name, _parsed(value, known[name])
    except ValueError as error:
        raise ArgumentError(
            f"--set {text}: {value!r} is not {_told(known[name])}.",
            f"The field {name} holds that, {getattr(config, name)!r} by default.",
            "Give a value of this type; lists are written as 1,2,3.",
        ) from error


def _parsed(text: str, kind: Any) -> Any:
    """The text as a value of this type; ValueError if it is none."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _first_of(text, inside)
    if origin is Literal:
        return {str(value): value for value in inside}[text] if text in map(str, inside) else _refuse(text)
    if origin in (tuple, list):
        return _several(text, inside)
    if kind in (bool, NoneType):
        value = _WORDS.get(text.lower(), "")
        return value if isinstance(value, kind) else _refuse(text)
    if kind in (int, float, str):
        return kind(text)
    return _refuse(text)


def _first_of(text: str, kinds: Sequence[Any]) -> Any:
    """The text as the first type that takes it, those that take everything last."""
    for kind in sorted(kinds, key=lambda kind: (kind is str, kind is float)):
        try:
            return _parsed(text, kind)
        except ValueError:
            continue
    return _refuse(text)


def _several(text: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = [part.strip() for part in text.strip("()[] ").split(",") if part.strip()]
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = kinds[:1] * len(parts)
    if len(parts) != len(kinds):
        _refuse(text)
    return tuple(_parsed(part, kind) for part, kind in zip(parts, kinds, strict=True))


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _told(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _fields(config: Any) -> str:
    return "Its fields: " + ", ".join(f"{entry.name}={_shown(getattr(config, entry.name))}" for entry in fields(config))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else json.dumps(value) if value is None else str(value)
