"""Presets with fields overridden, as by `--set field=value`, checked against the types of the fields.

A field of a nested config is named by its path: `--set training.networks=20`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...errors import ArgumentError
from ...record import plain

_WORDS = {"true": True, "false": False, "none": None}


def with_settings(config: Any, settings: Sequence[str]) -> Any:
    """The config with each `field=value` set; values are numbers, true, false, none, words, or lists such as 1,2,3."""
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError(
                f"--set {text} sets nothing.", "It has no value.", "Write it as --set field=value.", _fields(config)
            )
        config = _with_field(config, name, value, text)
    return config


def with_values(config: Any, values: Mapping[str, Any]) -> Any:
    """The config with all values taken from a record; KeyError for a field that the record lacks."""
    return replace(
        config, **{field.name: _of_record(getattr(config, field.name), values[field.name]) for field in fields(config)}
    )


def _of_record(old: Any, value: Any) -> Any:
    """A value converted from JSON, which has lists for tuples and mappings for nested configs."""
    if is_dataclass(old) and isinstance(value, Mapping):
        return with_values(old, value)
    return tuple(value) if isinstance(value, list) else value


def differences(config: Mapping[str, Any], preset: Any) -> list[str]:
    """The `field=value` settings that turn a preset into this config, given in the plain values of a record."""
    values = dict(flat(config))
    return [f"{name}={_text(values.get(name))}" for name, value in flat(plain(preset)) if values.get(name) != value]


def flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a config in the plain values of a record, those of a nested config under their paths."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", item) for inner, item in flat(value))
        else:
            yield name, value


def _with_field(config: Any, name: str, value: str, text: str) -> Any:
    """The config with one field set; `text` is what the user wrote."""
    outer, _, inner = name.partition(".")
    hints = get_type_hints(type(config))
    kinds = {entry.name: hints[entry.name] for entry in fields(config)}
    if outer not in kinds or (inner and not is_dataclass(getattr(config, outer))):
        guess = get_close_matches(outer, kinds, n=1)
        raise ArgumentError(
            f"--set {text}: there is no field {name}.",
            "Only fields of the figure's config can be set.",
            *([f"Did you mean {guess[0]}?"] if guess and not inner else []),
            _fields(config),
        )
    if inner:
        return replace(config, **{outer: _with_field(getattr(config, outer), inner, value, text)})
    try:
        new, old = _value(value, kinds[outer]), getattr(config, outer)
        _check_counts(new, old, name, text)
        return replace(config, **{outer: new})
    except ArgumentError:  # the config's own refusal of the value
        raise
    except ValueError as error:
        raise ArgumentError(
            f"--set {text}: {value!r} is not {_type_in_words(kinds[outer])}.",
            f"That is what the field {name} takes; its default is {_text(getattr(config, outer))}.",
            "Give a value of this type; lists are written as 1,2,3, fields of a field as field.inner=value.",
        ) from error


def _check_counts(new: Any, old: Any, name: str, text: str) -> None:
    """Refuse to make whole numbers negative that are not so in the preset: they are counts, sizes or seeds."""
    if min(_whole_numbers(new), default=0) < 0 <= min(_whole_numbers(old), default=0):
        raise ArgumentError(
            f"--set {text}: that is negative.",
            f"The field {name} counts something, or is a seed; its default is {_text(old)}.",
            "Give 0 or more.",
        )


def _whole_numbers(value: Any) -> list[int]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [one for one in values if isinstance(one, int)]


def _value(text: str, kind: Any) -> Any:
    """The text as a value of this type; ValueError if it is not one."""
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
    if kind is float and not math.isfinite(float(text)):
        _refuse(text)
    return kind(text) if kind in (int, float, str) else _refuse(text)


def _first_of(text: str, kinds: Sequence[Any]) -> Any:
    """The text as the first of the types that accepts it; str, which accepts everything, comes last."""
    for kind in sorted(kinds, key=lambda kind: (kind is str, kind is float)):
        try:
            return _value(text, kind)
        except ValueError:
            continue
    return _refuse(text)


def _several(text: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = [part.strip() for part in text.strip("()[] ").removesuffix(",").split(",")]
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = kinds[:1] * len(parts)
    if len(parts) != len(kinds) or not all(parts):
        _refuse(text)
    return tuple(_value(part, kind) for part, kind in zip(parts, kinds, strict=True))


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _type_in_words(kind: Any) -> str:
    """A type in words, for messages."""
    origin, inside = get_origin(kind), [part for part in get_args(kind) if part is not Ellipsis]
    if origin is Literal:
        return "one of " + ", ".join(map(str, inside))
    if origin in (Union, UnionType):
        return " or ".join(map(_type_in_words, inside))
    if origin in (tuple, list):
        several = len(inside) < len(get_args(kind)) or origin is list
        return (
            f"a list of {_type_in_words(inside[0])}" if several else f"a list: {', '.join(map(_type_in_words, inside))}"
        )
    return "none" if kind is NoneType else getattr(kind, "__name__", str(kind))


def _fields(config: Any) -> str:
    return "Its fields: " + ", ".join(f"{name}={_text(value)}" for name, value in flat(plain(config)))


def _text(value: Any) -> str:
    """A value as it is written after `--set field=`."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
