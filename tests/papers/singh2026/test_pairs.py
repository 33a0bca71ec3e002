"""Figs. 3 and 10-13: gaps of all pairs, and rules that say no where there is no pair."""

import numpy as np
import pytest
import torch

from ritz import theory
from ritz.lab import data
from ritz.papers.singh2026 import pairs

from .records import FIGURES, record_of, verdicts


def test_orthogonal_weights_and_decorrelated_data_have_the_pair_of_theory(generator):
    examples = data.decorrelated(20, 4, generator=generator, dtype=torch.float64)
    V, w = pairs.initial_weights("orthogonal", (4, 7, 1), generator)
    closed = theory.paired_outliers(V, w[0], examples.x, examples.y[:, 0])
    spectra = theory.linear_spectra([V[None], w[None]], examples.x[None], examples.y[None])
    found = pairs.gaps(spectra, 4, torch.ones(1, dtype=torch.float64))
    assert float(found["best"]) < 1e-12 * float(found["fraction"])
    pair = closed["pair 1"].value + closed["pair 2"].value
    assert float(found["fraction"]) == pytest.approx(pair)


def test_gaps_are_those_of_all_pairs_whatever_the_number_of_zeros():
    values, zeros = torch.tensor([[-1.0, 0.3, 0.5, 4.0]], dtype=torch.float64), 9
    found = pairs.gaps(theory.Spectra(values, zeros), 2, torch.tensor([2.0]))
    whole = [*values[0].tolist(), *[0.0] * zeros]
    sums = [a + b for i, a in enumerate(whole) for b in whole[i + 1 :]]
    gaps = sorted(abs(total - 3.8 / 2) for total in sums)
    assert [float(found["best"]), float(found["second"])] == pytest.approx(gaps[:2])
    assert float(found["control"]) == pytest.approx(min(abs(total - 3.8) for total in sums))
    assert float(found["mean"]) == pytest.approx(3.8 / 13)


def pair_record(figure, best, second, mean, control):
    """A record whose medians are these numbers, of a trace fraction of one."""
    config, found = figure.presets["smoke"], {}
    for width in config.widths:
        inputs = [D for D in config.inputs if width >= D]
        shape = (2, 2, len(inputs), 3)
        numbers = {"best": best, "second": second, "mean": mean, "control": control, "fraction": 1.0}
        found |= {f"{name}_{width}": np.full(shape, number) for name, number in numbers.items()}
        found[f"inputs_{width}"] = np.array(inputs)
    return record_of(figure, found)


PAIRED = ("3a", "3b", "10", "11", "12", "13")


@pytest.mark.parametrize("number", PAIRED)
def test_claims_about_pairs_are_refused_where_no_pair_is_near(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, pair_record(figure, 0.5, 0.6, 0.1, 0.4)).values()) <= {"no", "yes"}
    no_pair = verdicts(figure, pair_record(figure, 0.5, 0.6, 0.1, 0.4))
    assert [verdict for statement, verdict in no_pair.items() if "no clear best" not in statement].count("yes") == 0


@pytest.mark.parametrize("number", PAIRED)
def test_claims_about_pairs_hold_where_a_pair_is_near_and_chance_far(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    second = 1e-3 if number == "3a" else 2e-9
    assert set(verdicts(figure, pair_record(figure, 1e-9, second, 1e-2, 1e-2)).values()) == {"yes"}


@pytest.mark.parametrize("number", PAIRED)
def test_one_input_is_left_out_only_where_two_linear_layers_have_its_pair_exactly(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    record = pair_record(figure, 1e-9, 2e-9, 1e-2, 1e-2)
    for width in record.config["widths"]:
        record.arrays[f"best_{width}"][:, :, record.arrays[f"inputs_{width}"] == 1] = 0.5
    words = "close to the considered fraction" if number == "3a" else "very close to the trace fraction"
    (found,) = (verdict for statement, verdict in verdicts(figure, record).items() if words in statement)
    assert found == ("yes" if number in ("3b", "10") else "no" if number == "3a" else "partly")


def test_what_theory_has_exactly_does_not_set_the_scale_of_the_rest():
    figure = FIGURES["singh2026.fig3b"]
    record = pair_record(figure, 1e-3, 2e-3, 1e-2, 1e-2)
    for width in record.config["widths"]:
        record.arrays[f"best_{width}"][:, :, record.arrays[f"inputs_{width}"] == 1] = 1e-16
    for ax in figure.draw(record).axes:
        assert ax.get_ylim()[0] > 1e-6 and "D = 1: exact" in ax.get_title(loc="left")


def test_labels_of_a_logarithmic_axis_keep_their_distance():
    assert pairs.axis_labels(np.array([1, 2, 4])) == ["1", "2", "4"]
    assert pairs.axis_labels(np.array([1, 2, 3, 4, 6, 8, 10, 20, 50, 100, 150])) == [
        "1", "", "3", "", "6", "", "10", "20", "50", "", "150",
    ]  # fmt: skip
    assert pairs.axis_labels(np.array([3])) == ["3"]


def test_a_pair_that_stands_out_is_no_unclear_one():
    for number in ("3b", "13"):
        figure = FIGURES[f"singh2026.fig{number}"]
        found = verdicts(figure, pair_record(figure, 1e-9, 1e-3, 1e-2, 1e-2))
        assert [verdict for statement, verdict in found.items() if "no clear best" in statement] == ["no"]
