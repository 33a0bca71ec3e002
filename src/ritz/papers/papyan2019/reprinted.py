"""Figures 1 to 5 and 7 to 9, which papyan2020 prints again: its computations, under the numbers and words of 2019."""

from __future__ import annotations

from ..frame.figure import Figure
from ..papyan2020 import components, deflation, gradient_dynamics, hessians, knockouts, synthetic, tail
from .paper import PAPER, printed

_ON_PART = "VGG11 trained on CIFAR10 with 136 examples per class"
_ON_MANY = printed(network="VGG11 trained on various datasets")
_ELSEWHERE = "open: for this figure; App. C.2 has it for "

_FIGURES = [
    Figure(
        "papyan2019.fig1", knockouts.TITLE, knockouts.PRESETS, knockouts.run, knockouts.draw,
        knockouts.statements(PAPER), knockouts.COMPUTATION, loans=knockouts.loans,
        printed=printed("piece", network=_ON_PART, data=_ON_PART, per_class=_ON_PART),
    ),
    Figure(
        "papyan2019.fig2", hessians.TITLE, hessians.PRESETS, hessians.run, hessians.draw_deflated,
        hessians.deflated_statements(PAPER, "Fig. 2"), hessians.COMPUTATION, loans=hessians.loans,
        printed=_ON_MANY | {"data": '"Each column of panels documents a famous dataset"'},
    ),
    Figure(
        "papyan2019.fig3", components.TITLE, components.PRESETS, components.run, components.draw,
        components.statements(PAPER, "Fig. 3"), components.COMPUTATION,
        printed=printed() | components.PRINTED,
    ),
    Figure(
        "papyan2019.fig4", tail.TITLE, tail.PRESETS, tail.run, tail.draw, tail.statements(PAPER, "Fig. 4"),
        tail.COMPUTATION, loans=tail.loans, printed=printed() | tail.PRINTED,
    ),
    Figure(
        "papyan2019.fig5", deflation.TITLE, deflation.PRESETS, deflation.run, deflation.draw,
        deflation.statements(PAPER, "Fig. 5"), deflation.COMPUTATION, loans=deflation.loans,
        printed=printed() | deflation.PRINTED,
    ),
    Figure(
        "papyan2019.fig7", gradient_dynamics.TITLE, gradient_dynamics.PRESETS, gradient_dynamics.run,
        gradient_dynamics.draw, gradient_dynamics.statements(PAPER), gradient_dynamics.COMPUTATION,
        loans=gradient_dynamics.loans, printed=printed("piece"),
    ),
    Figure(
        "papyan2019.fig8", synthetic.TITLE, synthetic.PRESETS, synthetic.run, synthetic.draw,
        synthetic.statements(PAPER, "Fig. 8", "eq. (7)"), synthetic.COMPUTATION,
        printed={
            "num_steps": f"{_ELSEWHERE}the networks",
            "log_steps": f"{_ELSEWHERE}logarithms: more than rows, without a basis",
        },
    ),
    Figure(
        "papyan2019.fig9", hessians.PLAIN_TITLE, hessians.PRESETS, hessians.run_plain, hessians.draw_plain,
        hessians.plain_statements(PAPER, "Fig. 9"), hessians.PLAIN_COMPUTATION, loans=hessians.plain_loans,
        printed=_ON_MANY | {"data": '"Each panel corresponds to a different famous dataset"'},
    ),
]  # fmt: skip
FIGURES = {figure.id: figure for figure in _FIGURES}
