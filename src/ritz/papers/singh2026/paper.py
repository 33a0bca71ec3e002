"""The names under which the paper's statements stand."""

from functools import partial

from ..frame.statements import Statement

PAPER = "singh2026"
BEYOND = "beyond singh2026"  # statements of this project about the same figure
says = partial(Statement, paper=PAPER, name_against=True)
