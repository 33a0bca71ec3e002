"""Fig. 8 and the poster's: the pair of outliers along training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz import theory
from ritz.papers.singh2026 import evolution

from .records import FIGURES, verdicts


def test_no_legend_lies_on_the_curves_of_training(computed):
    drawn = FIGURES["singh2026.fig8"].draw(computed(FIGURES["singh2026.fig8"]))
    assert not any(ax.get_legend() for ax in drawn.axes)
    assert len(drawn.legends) == 1


def test_the_late_phase_is_judged_on_the_cell_that_has_one(computed):
    figure = FIGURES["singh2026.fig8"]
    record = computed(figure)
    late = np.array([0, 1, 0, 1, 0, 1])
    sign = np.where(late, 1.0, -1.0)
    arrays = {**record.arrays, "relu_late": late, "relu_second": sign, "linear_second": -np.ones(6)}
    names = {"linear: early or divergent", "ReLU, positive cell: late", "ReLU, positive cell: early or divergent"}
    assert evolution.in_phase(replace(record, arrays=arrays)) == dict.fromkeys(names, 1.0)
    arrays["linear_second"] = np.ones(6)
    assert evolution.in_phase(replace(record, arrays=arrays))["linear: early or divergent"] == 0.0
    arrays["relu_late"] = 0 * late
    assert np.isnan(evolution.in_phase(replace(record, arrays=arrays))["ReLU, positive cell: late"])


def test_a_printed_eigenvector_is_one_for_its_own_eigenvalue_alone(generator):
    w, v, x, y = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    closed, delta = theory.linear_network(v, w, x, y), float((((w @ v) * x - y) * x).mean())
    loss = lambda theta: (((theta[:6] @ theta[6:]) * x - y) ** 2).mean() / 2
    H = torch.func.jacfwd(torch.func.grad(loss))(torch.cat([v, w]))
    for name in ("outlier 1", "outlier 2"):
        value = closed[name].value
        assert evolution.printed_residual(H, w, v, delta, value) < 1e-13
        assert evolution.printed_residual(H, w, v, delta, value + 0.1) > 1e-4


def test_claims_about_training_are_refused_where_there_is_no_pair(computed):
    figure = FIGURES["singh2026.fig8"]
    record = computed(figure)
    off = {
        "relu_late": 1 - record.arrays["relu_late"],
        "linear_outside": record.arrays["linear_outside"] + 0.1,
        "linear_printed_residual_1": record.arrays["linear_printed_residual_1"] + 0.1,
        "linear_printed_residual_2": record.arrays["linear_printed_residual_2"] + 0.1,
    }
    for kind in evolution.KINDS:
        off |= {
            f"{kind}_error": record.arrays[f"{kind}_error"] + 0.1,
            f"{kind}_trace": record.arrays[f"{kind}_first"] * 2,
        }
        late = off["relu_late"] if kind == "relu" else record.arrays["linear_late"]
        off[f"{kind}_second"] = record.arrays[f"{kind}_first"] * np.where(late == 1, -0.5, 0.5)
    broken = replace(record, arrays={**record.arrays, **off})
    assert set(verdicts(figure, broken).values()) == {"no"}
    assert set(verdicts(FIGURES["singh2024.evolution"], broken).values()) == {"no"}


def test_the_posters_formula_is_right_for_unit_variance_and_wrong_otherwise(generator):
    w, v, x, y = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    white = x / x.square().mean().sqrt()
    exact = theory.linear_network(v, w, white, y)["outlier 1"].value
    assert evolution.poster_outlier(w, v, white, y) == pytest.approx(exact)
    exact = theory.linear_network(v, w, 2 * white, y)["outlier 1"].value
    assert abs(evolution.poster_outlier(w, v, 2 * white, y) / exact - 1) > 1e-3
