"""Figures 1 and 7: the log spectrum of G with its parts knocked out, and along training; as in papyan2020."""

from ..frame.figure import Figure
from ..papyan2020 import gradient_dynamics, knockouts
from .paper import PAPER

FIGURES = {
    id: Figure(id, own.TITLE, own.PRESETS, own.run, own.draw, own.statements(PAPER), own.COMPUTATION, loans=own.loans)
    for id, own in (("papyan2019.fig1", knockouts), ("papyan2019.fig7", gradient_dynamics))
}
