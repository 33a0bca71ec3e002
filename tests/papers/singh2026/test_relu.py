"""Fig. 1 and the poster's: cells of a ReLU network."""

from dataclasses import replace

import numpy as np
import pytest

from .records import FIGURES, verdicts


def test_claims_about_cells_are_refused_where_the_closed_form_is_off(computed):
    figure = FIGURES["singh2026.fig1"]
    record = computed(figure)
    assert set(verdicts(figure, record).values()) == {"yes"}
    off = {name: record.arrays[name] + 0.1 for name in ("coupling", "errors", "top")}
    off["thinned"] = record.arrays["thinned"] * np.array([[1.0], [1.5]])
    broken = replace(record, arrays={**record.arrays, **off})
    assert set(verdicts(figure, broken).values()) == {"no"}
    assert set(verdicts(FIGURES["singh2024.relu"], broken).values()) == {"no"}


@pytest.mark.parametrize("name", ["singh2026.fig1", "singh2024.relu"])
def test_statements_that_hold_to_some_digits_are_partly_right(name, computed):
    figure = FIGURES[name]
    record = computed(figure)
    off = {part: record.arrays[part] + 1e-7 for part in ("coupling", "errors", "top")}
    off["thinned"] = record.arrays["thinned"] * np.array([[1.0], [1 + 1e-7]])
    claims = figure.claims(replace(record, arrays={**record.arrays, **off}))
    assert {claim.verdict for claim in claims} == {"partly"}
    assert all(claim.why for claim in claims)


@pytest.mark.parametrize("name", ["singh2026.fig1", "singh2024.relu"])
def test_ticks_near_zero_do_not_overprint(name, computed):
    figure = FIGURES[name]
    record = computed(figure)
    lines = np.linspace(-0.1, 0.75, len(record.arrays["lines"]))  # 10⁻³ is inside of the linear part
    (ax,) = figure.draw(replace(record, arrays={**record.arrays, "lines": lines})).axes
    ticks, (low, high) = ax.get_yticks(), ax.get_ylim()
    assert set(ticks) == {-0.1, -0.01, 0.0, 0.01, 0.1, 1.0}
    assert low < ticks.min() and ticks.max() < high
