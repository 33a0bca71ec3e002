"""Figure 8: the density of two random matrices, by Lanczos and by their eigenvalues; Figure 15 of papyan2020."""

from ..frame.figure import Figure
from ..papyan2020 import synthetic
from .paper import PAPER

FIGURES = {
    "papyan2019.fig8": Figure(
        "papyan2019.fig8",
        synthetic.TITLE,
        synthetic.PRESETS,
        synthetic.run,
        synthetic.draw,
        synthetic.statements(PAPER, "Fig. 8", "eq. (7)"),
        synthetic.COMPUTATION,
    )
}
