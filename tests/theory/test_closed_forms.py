"""Every closed form against its dense oracle: on draws of any size and scale, and on the degenerate cases by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritz.checks import deviation, linear2026, linear2026_aligned, papyan2020, singh2026, singh2026_attention
from tests.draws import patient
from tests.seeds import seeded
from tests.shapes import unchecked

MODULES = (linear2026, linear2026_aligned, papyan2020, singh2026, singh2026_attention)
CHECKS = {f"{check.paper}: {check.result}": check for module in MODULES for check in module.CHECKS}


DEGENERATE = [
    pytest.param(check, name, id=f"{result}: {name}")
    for result, check in CHECKS.items()
    for name in check.degenerate(seeded())
]


@pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))
@patient
@given(st.integers(0, 2**32 - 1))
def test_closed_form_is_the_dense_matrix(check, seed):
    with unchecked():
        assert deviation(check, check.draw(seeded(seed))).small


@pytest.mark.parametrize("check, name", DEGENERATE)
def test_closed_form_is_the_dense_matrix_in_a_degenerate_case(check, name):
    assert deviation(check, check.degenerate(seeded())[name]).small
