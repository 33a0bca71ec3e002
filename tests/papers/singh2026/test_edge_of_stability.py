"""One training run in numbers: its fate, its rise, its stay at the edge."""

import math

import numpy as np
import pytest

from ritz.papers.singh2026 import attention_descent, edge_of_stability

from .records import climbing


def test_the_fate_of_a_head_is_measured():
    t = np.arange(400)
    names = ("first_step", "started_above", "diverged", "reached")
    cases = {
        "reached": (climbing(), (190, 0, 0, 1)),
        "never": (climbing(sharpness=np.full(400, 0.5)), (math.nan, 0, 0, 0)),
        "above from the start": (climbing(sharpness=np.full(400, 1.5)), (0, 1, 0, 0)),
        "no number": (climbing(losses=np.where(t > 300, np.nan, 1.0)), (190, 0, 1, 0)),
        "blown up": (climbing(losses=np.where(t > 300, 2000.0, 1.0)), (190, 0, 1, 0)),
    }
    for case, (series, expected) in cases.items():
        found = edge_of_stability.measures(series, 1.0)
        assert [found[name] for name in names] == pytest.approx(list(expected), nan_ok=True), case
        assert math.isnan(found["level"]) == (case != "reached"), case


def test_a_head_that_reaches_the_edge_at_the_end_has_risen_to_it():
    found = edge_of_stability.measures(climbing(sharpness=np.arange(400) / 390), 1.0)
    assert found["reached"] == found["growth_sharpness"] == 1 and math.isnan(found["level"])


def test_the_level_of_a_cycle_of_two_does_not_depend_on_when_one_stops():
    for steps in (400, 401):
        t = np.arange(steps)
        sharpness = np.where(t < 40, t / 40, np.where(t % 2 == 0, 1.2, 0.6))
        series = {name: np.ones(steps) for name in attention_descent.SERIES} | {"sharpness": sharpness}
        assert edge_of_stability.measures(series, 1.0)["level"] == pytest.approx(0.9)


def stayed(amplitude, residual):
    """A head at the edge, with the amplitude and the residual of each step."""
    sign = np.where(np.arange(len(amplitude)) % 2 == 0, 1.0, -1.0)
    return edge_of_stability.Stay({"sharpness": 1 + amplitude * sign, "residual": residual}, 1.0)


def test_an_amplitude_that_rises_with_the_residual_does_not_fall_with_it():
    grows = np.linspace(0.1, 0.2, 200)
    assert stayed(grows, grows).damping() == pytest.approx(-1)
    assert stayed(grows[::-1], grows).damping() == pytest.approx(-1)
    assert stayed(grows[::-1], grows[::-1]).damping() == pytest.approx(1)
    assert stayed(grows, grows).shrinking() > 1.5 and stayed(grows[::-1], grows).shrinking() < 0.6


def test_rounding_on_a_cycle_of_two_is_no_damping():
    random = np.random.default_rng(0)
    fades = 1 + np.concatenate([0.1 * 0.9 ** np.arange(60), np.zeros(940)])
    falls = np.sort(1e-10 * random.random(1000))[::-1]
    assert stayed(0.2 + falls, 1 + falls).damping() == 0
    assert stayed(0.2 * fades + falls, 2 - fades - falls).damping() == pytest.approx(-1)  # while the cycle sets in
