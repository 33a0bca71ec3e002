"""The name under which the poster's statements stand."""

from functools import partial

from ..frame.claims import Statement

PAPER = "singh2024"
says = partial(Statement, paper=PAPER, name_against=True)
