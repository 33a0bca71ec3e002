"""What the poster says alone; tests/papers/singh2026 holds its figures to what both say."""

from dataclasses import replace

import numpy as np

from ritz.papers.singh2024.poster import FIGURES
from tests.papers.singh2026.records import verdicts


def test_the_posters_eigenvectors_are_both_asked(computed):
    figure = FIGURES["singh2024.evolution"]
    record = computed(figure)
    statement = next(one.statement for one in figure.claims(record) if "eigenvectors" in one.statement)
    assert verdicts(figure, record)[statement] == "yes"
    assert not np.isnan(record.arrays["linear_printed_residual_2"]).all()
    wrong = record.arrays["linear_printed_residual_2"] + 0.1
    found = replace(record, arrays={**record.arrays, "linear_printed_residual_2": wrong})
    assert verdicts(figure, found)[statement] == "partly"
    never = replace(record, arrays={**record.arrays, "linear_printed_residual_2": np.nan * wrong})
    assert verdicts(figure, never)[statement] == "partly"
