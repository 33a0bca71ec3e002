"""The names under which the statements about the figures stand."""

from functools import partial

from ..frame.statements import Statement

PAPER = "linear2026"
BEYOND = "ritz.theory, beyond linear2026"  # statements of this project about the same figure
says = partial(Statement, paper=PAPER)
