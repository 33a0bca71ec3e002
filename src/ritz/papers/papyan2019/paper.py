"""The name under which the statements about the figures stand."""

from functools import partial

from ..frame.statements import Statement

PAPER = "papyan2019"
says = partial(Statement, paper=PAPER)
