"""Rules on attention and GPT, on data that agree with the paper and on data that contradict it in everything."""

import numpy as np
import pytest

from .records import (
    ATTENTION,
    DOWN,
    FIGURES,
    FLAT,
    MOMENTS,
    STEPS,
    UP,
    edge_record,
    errors,
    heads,
    norms,
    pretrained,
    sinking,
    sunk,
    trained_heads,
    vectors,
)

GROWTH = np.linspace(0.01, 1, 9)

AGREE = {
    "fig2a": norms(FLAT, UP, UP, 0.5 * UP),
    "fig2b": heads("value", bulk=UP, sharpness=UP, condition=[3, 1, 2, 1, 3]),
    "fig2c": sunk(DOWN, UP, UP, MOMENTS),
    "fig9": vectors(DOWN, UP),
    "fig27": edge_record(trained_heads(True)),
    "fig5": pretrained(errors([0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2])),
    "fig23": pretrained(errors([0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2])),
    "fig24": pretrained(errors([0.1, *STEPS], [0.2, *STEPS / 2])),
    "fig25": pretrained(errors([0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2]), difference=GROWTH[::-1]),
    "fig6": sinking([[[4, 3, -1, -0.5], [8, 6, -2, -1]]], 0.99),
}
CONTRADICT = {
    "fig2a": norms(UP, FLAT, DOWN, 2 * DOWN, copies=5),
    "fig2b": heads("value", bulk=DOWN, sharpness=DOWN, condition=UP, copies=5),
    "fig2c": sunk(UP, DOWN, DOWN, 1 / MOMENTS),
    "fig9": vectors(UP, DOWN),
    "fig27": edge_record(trained_heads(False)),
    "fig5": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS]), missed=0.02, difference=GROWTH),
    "fig23": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS])),
    "fig24": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS])),
    "fig25": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS]), difference=GROWTH),
    "fig6": sinking([[[8, 6, -2, -1], [4, 3, -1, -0.5]]], 0.2, first=0.7, missed=0.5),
}


def rules(records, verdict):
    for name, record in records.items():
        for number, claim in enumerate(FIGURES[f"singh2026.{name}"].claims(record)):
            if (name, number, verdict) == ("fig27", 0, "no"):
                continue  # a head that never gets to the edge can contradict nothing else: it has its own test
            yield pytest.param(claim, verdict, id=f"{name}-{number}")


@pytest.mark.parametrize("claim, verdict", [*rules(AGREE, "yes"), *rules(CONTRADICT, "no")])
def test_a_rule_says_what_the_data_say(claim, verdict):
    assert claim.verdict == verdict, f"{claim.statement}: {claim.measured}"
    assert claim.why if verdict == "no" else not claim.why


def test_contradiction_is_tried_on_every_figure():
    assert {f"singh2026.{name}" for name in CONTRADICT} == set(ATTENTION) == {f"singh2026.{name}" for name in AGREE}
