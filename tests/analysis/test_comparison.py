"""What changed between two spectra, against spectra of which everything is known."""

import pytest
import torch

from ritz import Operator, Risk, spectral_density
from ritz.analysis import spectrum
from ritz.analysis.comparison import Change, Distance, Entry, Measured, changes, distance
from ritz.report.differences import columns_of
from ritz.spectrum import Spectrum


def matrix(values):
    return Operator.from_matrix(torch.diag(values))


def measured(values, seed):
    generator = torch.Generator().manual_seed(seed)
    return spectral_density(matrix(values), num_steps=24, num_probes=4, generator=generator)


VALUES = torch.linspace(0, 1, 400, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_matrix_measured_twice_did_not_change(seed):
    first, second = (Entry.of_spectrum(str(s), measured(VALUES, s)) for s in (2 * seed, 2 * seed + 1))
    assert {change.verdict for change in changes(first, second)} <= {"within noise", "error unknown"}
    gap = distance(first, second)
    assert gap.verdict == "within noise" and 0 < gap.value <= gap.error


def test_a_matrix_that_was_moved_is_as_far_away_as_it_was_moved():
    first, second = (Entry.of_spectrum(name, measured(VALUES + move, 3)) for name, move in (("a", 0.0), ("b", 2.0)))
    gap = distance(first, second)
    assert gap.verdict == "different" and gap.at_least <= 2.0 <= gap.value + gap.error
    assert gap.at_least > 1.5 and gap.at_least <= 2.0 <= gap.at_most
    verdicts = {change.quantity: change.verdict for change in changes(first, second)}
    assert verdicts["trace"] == "changed"


def test_bounds_add_up_and_standard_errors_add_in_squares():
    bounds, errors = (Change("x", Measured(0.0, 3.0, kind), Measured(7.0, 4.0, kind)) for kind in (True, False))
    assert bounds.noise == 7.0 and errors.noise == 10.0
    assert bounds.verdict == errors.verdict == "within noise"


@pytest.mark.parametrize("noise", [0.176, 0.1798, 0.18, 0.1849, 0.19, 26.0, 29.7, 31.0, 0.0])
@pytest.mark.parametrize("difference", [0.18, 0.1801, -29.8, 34.0])
def test_a_verdict_is_that_of_the_numbers_beside_it(noise, difference):
    change = Change("x", Measured(0.0, noise / 2), Measured(difference, 0.0))
    ((shown,), (beside,)) = (columns_of([change])[name] for name in ("difference", "noise"))
    assert (abs(float(shown)) > float(beside)) == (change.verdict == "changed")


def test_without_an_error_there_is_no_verdict():
    one = Entry.of_spectrum("one", Spectrum(VALUES[None, :20], torch.full((1, 20), 0.05), 400, 0.1))
    found = {change.quantity: change.verdict for change in changes(one, one)}
    assert found["trace"] == "error unknown"
    assert distance(one, one).at_least == 0.0


@pytest.mark.parametrize("move", [0.0, 0.02, 0.1, 2.0])
def test_the_true_distance_lies_between_the_ends_and_so_does_the_measured_one(move):
    first, second = (Entry.of_spectrum(str(s), measured(VALUES + s * move, s)) for s in (0, 1))
    gap = distance(first, second)
    assert 0.0 <= gap.at_least <= min(gap.value, move) and max(gap.value, move) <= gap.at_most


def test_one_sentence_says_both_ends_and_nothing_that_contradicts_them():
    means = Distance(0.0029, 0.013, 0.00069).sentence  # the means are known far better than the whole spectra
    assert means == "W₁ = 0.0029; between the true spectra it is from 0.00069 to 0.0159, with 95 % probability"
    noise = Distance(0.0029, 0.013, 0.0).sentence
    assert noise == "W₁ = 0.0029, which noise could explain: between the true spectra it is at most 0.016"


def test_an_accuracy_is_counted_and_has_no_rounding():
    torch.manual_seed(0)
    data = torch.randn(20, 3), torch.randint(2, (20,))
    risk = Risk(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), data)
    numbers = Entry.of(spectrum.run(risk)).numbers
    assert numbers["accuracy"].error == 0 < numbers["loss"].error
