"""Fig. 1 left and middle."""

import numpy as np

from ritz.papers.frame.figure import Context
from ritz.papers.linear2026 import closed_form, networks
from ritz.record import Record, plain
from tests.papers.linear2026.problems import verdicts

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


def test_unequal_widths_leave_more_eigenvalues_than_the_paper_counts_and_the_figures_own_do_not():
    found = closed_form.run_random(closed_form.RandomConfig(counted=(3, 2, 4)), Context())
    assert closed_form.num_nonzero(found["measured"].numpy()) == 20**2  # the least of them is 3e-14 of the largest
    assert closed_form.num_nonzero(found["unequal"].numpy()) == 10  # not 4
    zeros = found["measured"].abs().sort().values[:-400] / found["measured"].max()
    assert zeros.max() < closed_form.NOT_ZERO / 4


def test_figure_1a_can_be_refuted_in_every_point():
    config = closed_form.RandomConfig(depth=2, width=3)
    good = {"measured": np.r_[np.zeros(9), np.arange(1.0, 10)], "predicted": np.r_[np.zeros(9), np.arange(1.0, 10)]}
    good |= {"unequal": np.r_[np.zeros(10), np.ones(4)]}
    assert verdicts("fig1a", Record("", "", plain(config), {}, good)) == ["yes", "yes"]
    true = good | {"unequal": np.r_[np.zeros(4), np.ones(10)]}
    assert verdicts("fig1a", Record("", "", plain(config), {}, true)) == ["yes", "partly"]
    bad = true | {"measured": np.arange(1.0, 19)}
    assert verdicts("fig1a", Record("", "", plain(config), {}, bad)) == ["no", "no"]


def contour(**changed):
    config = closed_form.ContourConfig(alphas=ALPHAS, depths=(2, 4, 8), sizes=(10, 20), grid=5)
    sharpness = np.array([[networks.printed_sharpness(a, depth, 1.0) for a in ALPHAS] for depth in config.depths])
    norms = np.linspace(0.1, 1.2, 5)
    formula = np.array([[networks.printed_sharpness(s**2, depth, 1.0) for s in norms] for depth in config.depths])
    arrays = {"norms": norms, "formula": formula, "shares": np.array(ALPHAS), "sharpness": sharpness}
    arrays |= {"by_size": np.array([2.0, 2.0])}
    return Record("", "", plain(config), {}, arrays | changed)


def test_figure_1b_can_be_refuted_in_every_point():
    assert verdicts("fig1b", contour()) == ["yes"] * 4
    flat = np.array([[5.0, 4, 3, 2, 9], [5, 4, 3, 2, 8], [5, 4, 3, 2, 6]])
    assert verdicts("fig1b", contour(sharpness=flat, by_size=np.array([2.0, 2.5]))) == ["no"] * 4
