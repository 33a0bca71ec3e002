"""Theorems as printed: what they say of random networks, and rules that say no."""

import numpy as np

from tests.papers.both_ways import missing_verdicts

from .records import FIGURES, record_with

FIGURE = FIGURES["singh2026.theorems"]


def test_theorem_3_3_holds_for_positive_residuals_and_fails_for_negative_ones(computed):
    record = computed(FIGURE)
    claims = {claim.where: claim for claim in FIGURE.claims(record)}
    printed = claims.pop("Thm 3.3")
    assert {claim.verdict for claim in claims.values()} == {"yes"}
    assert printed.verdict == "partly" and printed.measured["δx > 0"] < 1e-12 < 0.01 < printed.measured["δx < 0"]


def test_every_rule_on_theorems_says_yes_and_no(computed):
    good = computed(FIGURE).arrays
    good = {name: 0 * array if name == "error_Thm 3.3" else array for name, array in good.items()}
    bad = {name: array + 0.1 for name, array in good.items()}
    bad["residual"] = good["residual"]
    records = [record_with(FIGURE.presets["smoke"], arrays) for arrays in (good, bad)]
    assert (np.sign(good["residual"]) > 0).any() and (np.sign(good["residual"]) < 0).any()
    assert missing_verdicts(FIGURE, records) == []
