"""The names under which the paper's statements stand."""

from functools import partial

from ..frame.statements import OURS, Statement

PAPER = "singh2026"
BEYOND = OURS  # statements of this project about the same figure
says = partial(Statement, paper=PAPER)
