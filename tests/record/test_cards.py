"""What notebooks show: every result has a card, its numbers are the result's, and names are text."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import ritz
from ritz.record import Claim, Record
from ritz.record.cards import card
from ritz.spectrum.estimate import digits_within
from ritz.theory.closed_form import ClosedForm, Group

HOSTILE = "<script>alert(1)</script>&"


class Whole(HTMLParser):
    """Elements that close in turn, and the text in them."""

    def __init__(self, html):
        super().__init__()
        self.open, self.words = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag != "script"
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def results():
    torch.manual_seed(0)
    data = torch.randn(12, 3), torch.arange(12) % 3
    risk = ritz.Risk(nn.Sequential(nn.Linear(3, 3)), nn.CrossEntropyLoss(), data)
    H = ritz.hessian(risk)
    claim = Claim(HOSTILE, "Nobody", "Fig. 1", "equal", 1, 1, None, "yes")
    return {
        "Risk": (risk, f"{risk.loss_value():.6g}"),
        "Operator": (H, "12 × 12"),
        "Eigenpairs": (
            pairs := ritz.eigenpairs(H, 2),
            digits_within(float(pairs.values[1]), float(pairs.residuals[1])),
        ),
        "Spectrum": (spectrum := ritz.spectral_density(H, num_steps=4), f"{spectrum.moment(1):.4g}"),
        "ClosedForm": (ClosedForm([Group(HOSTILE, 9.0), Group("bulk", 0.5, 3)]), HOSTILE),
        "Attribution": (found := ritz.attribution(risk), found.findings[0]),
        "Record": (Record(HOSTILE, "smoke", {}, {"loss": 0.25}, {}, (claim,)), "0.25"),
    }


@pytest.mark.parametrize("name", ["Risk", "Operator", "Eigenpairs", "Spectrum", "ClosedForm", "Attribution", "Record"])
def test_a_result_shows_its_numbers_in_a_notebook(results, name):
    result, expected = results[name]
    assert type(result).__name__ == name
    assert expected in Whole(result._repr_html_()).words


def test_a_card_says_of_copies_what_the_text_does():
    values = torch.cat([torch.ones(3), torch.linspace(0, 0.5, 97)]).double()
    pairs = ritz.eigenpairs(ritz.Operator.from_matrix(torch.diag(values)), 2)
    (said,) = [line.strip() for line in repr(replace(pairs, doubts=torch.ones(2))).splitlines() if "copies" in line]
    assert said in Whole(replace(pairs, doubts=torch.ones(2))._repr_html_()).words


def test_numbers_of_a_record_have_six_digits_in_a_notebook():
    assert "0.333333" in Whole(Record("id", "smoke", {}, {"loss": 1 / 3, "terms": 3}, {})._repr_html_()).words


def test_a_long_table_says_how_much_more_there_is():
    words = Whole(card("title", columns={"rank": range(50), "value": range(50)})).words
    assert "… and 30 more" in words and "19" in words and "20" not in words
