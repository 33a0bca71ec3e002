"""The names under which the statements about the figures stand."""

from functools import partial

from ..frame.statements import OURS, Statement

PAPER = "papyan2020"
BEYOND = OURS  # statements of this project about the same figure
says = partial(Statement, paper=PAPER)
