"""Fig. 7: lines against the variance of the inputs."""

from dataclasses import replace

import numpy as np

from ritz.papers.singh2026 import scale

from .records import FIGURES, verdicts


def test_the_claim_of_proportion_is_refused_where_lines_grow_otherwise(computed):
    figure = FIGURES["singh2026.fig7"]
    record = computed(figure)
    variances = record.arrays["variances"][:, None]
    lines = variances * np.array([[3.0, 0.2, 0.5, -0.5]])
    values = np.sort(np.repeat(lines, [1, 1, 2, 2], axis=1), axis=1)
    arrays = {"variances": variances[:, 0], "lines": lines, "eigenvalues": values}
    assert set(verdicts(figure, replace(record, arrays=arrays)).values()) == {"yes"}
    bent = replace(record, arrays={**arrays, "eigenvalues": values * np.abs(values)})  # what is measured, not the lines
    assert set(verdicts(figure, bent).values()) == {"no"}


def test_measured_eigenvalues_go_by_the_names_of_the_closed_form(computed):
    record = computed(FIGURES["singh2026.fig7"])
    for name, column in zip(scale.LINES, record.arrays["lines"].T, strict=True):
        measured = scale.by_line(record)[name]
        other = scale.by_line(record)[{"bulk +": "bulk -", "bulk -": "bulk +"}.get(name, name)]
        np.testing.assert_allclose(np.where(column * measured > 0, measured, other), column)
