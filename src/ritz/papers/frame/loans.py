"""What a record lends to a run of another config: the results of sweeps that it holds, which need no computing again.

A figure of five sizes whose record has four computes the fifth; seeds are added to those that are there. For this a
figure says of any config what stands where in its record:

    def loans(config):
        return [Loan(spectrum, measurement, below(prefix)) for prefix, measurement in measurements(config).items()]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...lab.workers import name_of
from ...record import Record, key, plain

Filed = tuple[str, str]  # the name of a sweep, and the key of one of its configs
FACTS = "facts"  # numbers that stand together under one name


@dataclass(frozen=True)
class Loan:
    """One result of a sweep, and how it is read from a figure's record.

    `kept` names what part of it is there, unless it is all: figures that read other parts cannot do with it.
    """

    task: Callable[..., Any]
    config: Any
    read: Callable[[Record], Mapping[str, Any]]
    kept: str = ""

    @property
    def filed(self) -> Filed:
        """Where a sweep looks for it."""
        return name_of(self.task), key(plain(self.config))


def below(prefix: str, *, but: Collection[str] = ()) -> Callable[[Record], dict[str, Any]]:
    """All that a record has below a prefix, except below the names in `but`."""

    def read(record: Record) -> dict[str, Any]:
        inside = f"{prefix}/"
        named = {
            name.removeprefix(inside): value
            for name, value in (*record.scalars.items(), *record.arrays.items())
            if name.startswith(inside) and name.removeprefix(inside).partition("/")[0] not in but
        }
        return {**named.pop(FACTS, {}), **named}

    return read


def lent(requested: Iterable[Loan], offered: Iterable[Loan], lender: Record) -> dict[Filed, Record]:
    """What a run wants and a record has, as its sweeps would have returned it."""
    asked = {loan.filed: loan.kept for loan in requested}
    found: dict[Filed, Record] = {}
    for loan in offered:
        fits = loan.filed in asked and loan.kept in ("", asked[loan.filed])  # a whole result serves for a part
        if fits and (result := loan.read(lender)):
            arrays = {name: value for name, value in result.items() if getattr(value, "ndim", 0)}
            scalars = {name: value for name, value in result.items() if name not in arrays}
            config, origin = plain(loan.config), lender.provenance
            found[loan.filed] = Record(loan.filed[0], "sweep", config, scalars, arrays, (), origin)
    return found
