"""The names under which the statements about the figures stand."""

from functools import partial

from ..frame.statements import Statement

PAPER = "papyan2020"
BEYOND = "ritz, beyond papyan2020"  # statements of this project about the same figure
says = partial(Statement, paper=PAPER, name_against=True)
