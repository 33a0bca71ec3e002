"""The schemas of records: the kind of every entry; one of another kind is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..record import Record

LONGEST = 40  # letters of a value that a refusal shows


@dataclass(frozen=True)
class Kind:
    """A kind of value: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]

    def or_none(self) -> Kind:
        """This kind or null, for what was not measured or not requested."""
        return Kind(f"{self.words} or null", lambda value: value is None or self.fits(value))

    def listed(self, plural: str) -> Kind:
        """A list of values of this kind."""
        return Kind(f"a list of {plural}", lambda value: isinstance(value, list) and all(map(self.fits, value)))


@dataclass(frozen=True)
class Each:
    """Any number of entries by name, all of one kind."""

    entry: Any


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


TEXT = Kind("text", lambda value: isinstance(value, str))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a count", lambda value: _is_whole(value) and value >= 0)
NUMBER = Kind("a number", _is_number)
SHOWN = Kind("text or a number", lambda value: isinstance(value, str) or _is_number(value)).or_none()
ENDS = Kind("two numbers", lambda value: NUMBER.listed("numbers").fits(value) and len(value) == 2)

SOURCE = {
    "seed": COUNT, "dtype": TEXT, "num_examples": COUNT, "parameters": TEXT.listed("texts"),
    "model": TEXT, "loss": TEXT, "factory": TEXT.or_none(),
    "examples": COUNT.or_none(), "layers": TEXT.listed("texts").or_none(),
}  # fmt: skip
WORK = Each(SHOWN)
ESTIMATES = {
    name: kind
    for key in ("trace", "effective_rank", "negative_mass")
    for name, kind in ((key, NUMBER), (f"{key}_error", NUMBER.or_none()))
}
DENSITY = {
    "num_parameters": COUNT, "num_terms": COUNT, "loss": NUMBER, "gradient_norm": NUMBER, "num_products": COUNT,
    "products": {"path": TEXT, "disagreement": NUMBER.or_none(), "kept_bytes": NUMBER.or_none()},
    "resolution": NUMBER.or_none(), "num_atoms": COUNT, "precision": NUMBER, "range": ENDS, "resolved_zero": NUMBER,
    **ESTIMATES,
}  # fmt: skip
WHOLE = {"accuracy": NUMBER.or_none(), "seconds": NUMBER}
SPECTRUM = {
    "config": {
        **SOURCE, "operator": TEXT, "num_eigenpairs": COUNT.or_none(), "num_probes": COUNT, "num_steps": COUNT,
        "exact_rows": COUNT,
        "per_layer": SWITCH, "log_spectrum": SWITCH,
    },
    "scalars": {
        **DENSITY, **WHOLE, "layers": Each(DENSITY),
        "closed_form": {"of": TEXT, "lines": TEXT.listed("texts"), "multiplicities": COUNT.listed("counts")},
    },
    "provenance": WORK,
}  # fmt: skip
CLASSES = {
    "config": {**SOURCE, "num_lines": COUNT.or_none(), "exact_rows": COUNT, "weight_decay": NUMBER.or_none()},
    "scalars": {
        **WHOLE, "num_parameters": COUNT, "num_terms": COUNT, "num_classes": COUNT, "num_lines": COUNT, "loss": NUMBER,
        "gradient_norm": NUMBER, "class_overlap": NUMBER.or_none(), "hessian_overlap": NUMBER.or_none(),
        "within_edge": NUMBER.or_none(), "counts": Each(COUNT), "findings": TEXT.listed("texts"),
        "shares": TEXT.listed("texts"), "notes": TEXT.listed("texts"),
        "spectra": Each({"size": COUNT, "resolution": NUMBER.or_none(), "num_atoms": COUNT, "precision": NUMBER}),
        "layers": Each({
            "class_part_of_features": NUMBER.or_none(), "class_part_of_errors": NUMBER.or_none(),
            "num_parameters": COUNT, "largest": Each(NUMBER.or_none()), "distances": Each(NUMBER.or_none()),
        }),
    },
    "provenance": WORK,
}  # fmt: skip
OF_PRESET = {"analysis": SPECTRUM, "classes": CLASSES}
MAY_LACK = ("products", "closed_form", "largest", "distances")  # and are null then


def check_entries(record: Record) -> None:
    """Refuse the record of an analysis in which an entry is of another kind than ritz writes there.

    What is not there is refused by whoever asks for it; entries that ritz does not know are left alone.
    """
    detached = record.detached()
    for name, kinds in OF_PRESET.get(record.preset, {}).items():
        for place, value, words in _misfits(getattr(detached, name), kinds, name):
            raise ArgumentError(
                f"The record {record.id!r} has {_shown(value)} for {place}.",
                f"That must be {words}: the record was changed by hand, or another version of ritz wrote it.",
                "Make the record again, or name another one.",
            )


def _misfits(value: Any, kind: Any, place: str) -> Iterator[tuple[str, Any, str]]:
    """Where a value does not fit, what was found, and what was expected."""
    if isinstance(kind, Kind):
        if not kind.fits(value):
            yield place, value, kind.words
        return
    if not isinstance(value, Mapping):
        yield place, value, "entries by name"
        return
    known = dict.fromkeys(value, kind.entry) if isinstance(kind, Each) else kind
    for name, inner in known.items():
        if name in value and not (value[name] is None and name in MAY_LACK):
            yield from _misfits(value[name], inner, f"{place}.{name}")


def _shown(value: Any) -> str:
    text = repr(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
