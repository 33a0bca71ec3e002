"""Results of sweeps that one record lends to the run of another config, which then need not be computed again.

If a record holds four of the five sizes that a figure needs, only the fifth is computed; more seeds are added to those
that exist. For this, a figure says for any config where each result stands in its record:

    def loans(config):
        return [Loan(spectrum, measurement, below(prefix)) for prefix, measurement in measurements(config).items()]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...lab.tasks import name_of
from ...record import Record, key, plain

Filed = tuple[str, str]  # the name of a sweep, and the key of one of its configs
FACTS = "facts"  # the name under which a record groups scalars


@dataclass(frozen=True)
class Loan:
    """One result of a sweep, and how to read it from a figure's record.

    `kept` names the part of the result that is there, unless all of it is; figures that read other parts cannot use it.
    """

    task: Callable[..., Any]
    config: Any
    read: Callable[[Record], Mapping[str, Any]]
    kept: str = ""

    @property
    def filed(self) -> Filed:
        """The name and key under which a sweep looks for the result."""
        return name_of(self.task), key(plain(self.config))


def below(prefix: str, *, but: Collection[str] = ()) -> Callable[[Record], dict[str, Any]]:
    """A function that reads everything a record has below a prefix, except below the names in `but`."""

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
    """The requested results that a record can lend, in the form in which sweeps return them."""
    asked = {loan.filed: loan.kept for loan in requested}
    found: dict[Filed, Record] = {}
    for loan in offered:
        fits = loan.filed in asked and loan.kept in ("", asked[loan.filed])  # a whole result can stand in for a part
        if fits and (result := loan.read(lender)):
            arrays = {name: value for name, value in result.items() if getattr(value, "ndim", 0)}
            scalars = {name: value for name, value in result.items() if name not in arrays}
            config, origin = plain(loan.config), lender.provenance
            found[loan.filed] = Record(loan.filed[0], "sweep", config, scalars, arrays, (), origin)
    return found
