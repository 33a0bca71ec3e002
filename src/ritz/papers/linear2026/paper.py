"""The name under which the statements about the figures stand."""

from functools import partial

from ..frame.statements import Statement

PAPER = "linear2026"
says = partial(Statement, paper=PAPER)
