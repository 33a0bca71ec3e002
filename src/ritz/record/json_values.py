"""Values as JSON: plain types, one canonical spelling, and keys made from it; NaN and infinities included."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import ArgumentError
from .files import unreadable

_NOT_FINITE = ("nan", "inf", "-inf")
_FLOAT = "float"  # {"float": "nan"} stands for what JSON cannot write as a number


def plain(value: Any) -> Any:
    """The value in the types of JSON; a value without a counterpart is refused rather than turned into a string.

    >>> plain({"rate": float("nan"), "widths": (1, 2), "dtype": torch.float64})
    {'rate': {'float': 'nan'}, 'widths': [1, 2], 'dtype': 'float64'}
    """
    try:
        return _plain(value)
    except RecursionError as error:
        raise ArgumentError(
            f"A {type(value).__name__} was to be saved that holds itself, or is nested too deeply.",
            "JSON writes everything out, each value inside the one that holds it.",
            "Make it flat, or save it as an array.",
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return saveable(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor | np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {saveable(name): _plain(item) for name, item in value.items()}
    raise ArgumentError(
        f"A value of type {type(value).__name__} was to be saved: {value!r:.80}.",
        "A record holds numbers, text, lists and mappings with text keys, which every reader understands.",
        "Convert it to one of these, or save it as an array.",
    )


def saveable(text: str) -> str:
    """The text, unless no file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"A text with half of a surrogate pair was to be saved: {text!r:.80}.",
            "It is not valid Unicode, and no file can hold it.",
            "Spell it out: text.encode('unicode_escape').decode().",
        ) from error
    return text


def reread(value: Any) -> Any:
    """The value as it is read back from a file: in the types of JSON, with NaN and infinities as numbers.

    >>> reread({"rate": float("nan"), "widths": (1, 2)})
    {'rate': nan, 'widths': [1, 2]}
    """
    return json.loads(json_text(value), object_hook=_restored)


def _restored(item: dict[str, Any]) -> Any:
    return float(item[_FLOAT]) if item.keys() == {_FLOAT} and item[_FLOAT] in _NOT_FINITE else item


def canonical(value: Any) -> str:
    """The value as JSON in one spelling: equal configs have equal texts in every process and version of Python.

    >>> canonical({"width": 10, "rate": 0.1})
    '{"rate":0.1,"width":10}'
    """
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def key(config: Any) -> str:
    """The name a config is filed under: 32 hexadecimal digits of the SHA-256 of its canonical text.

    >>> key({"width": 10, "rate": 0.1})
    '20b91a337eee9207ce98b873dc173777'
    """
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:32]


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as JSON that people can read; `json_value` gives it back."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def json_value(text: str | bytes, path: Path) -> Any:
    """The value that a text of `json_text` stands for; `path` is where it was read."""

    try:
        return json.loads(text, object_hook=_restored)
    except (ValueError, RecursionError) as error:
        raise unreadable(path, error, "a JSON file that ritz wrote") from error


def printable(value: Any) -> Any:
    r"""The value with every text safe to print: characters that steer a terminal or reverse text are spelled out.

    >>> printable({"title": "red \x1b[31m"})
    {'title': 'red \\x1b[31m'}
    """
    if isinstance(value, str):
        return "".join(letter if _is_plain(letter) else letter.encode("unicode_escape").decode() for letter in value)
    if isinstance(value, dict):
        return {printable(name): printable(entry) for name, entry in value.items()}
    return [printable(entry) for entry in value] if isinstance(value, list) else value


def _is_plain(letter: str) -> bool:
    return letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
