"""What Kronecker factors cannot take is refused with the globs of all that they can, which work as they are given."""

import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz.errors import ModelError
from ritz.risk import Risk


class Tied(nn.Module):
    """An embedding that is the output layer, too, with a layer between."""

    def __init__(self):
        super().__init__()
        self.table, self.middle, self.head = nn.Embedding(4, 3), nn.Linear(3, 3), nn.Linear(3, 4)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.middle(self.table(x)).mean(1).tanh())


class Recurrent(nn.Module):
    """A recurrent layer, a norm and a convolution in groups: each is refused for a reason of its own."""

    def __init__(self):
        super().__init__()
        self.cell, self.norm, self.head = nn.GRU(3, 4, batch_first=True), nn.LayerNorm(4), nn.Linear(4, 4)
        self.mix = nn.Conv1d(4, 4, 1, groups=2)

    def forward(self, x):
        return self.head(self.mix(self.norm(self.cell(x)[0]).mT).mean(2))


def normed():
    blocks = [nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Tanh()) for _ in range(2)]
    return nn.Sequential(*blocks, nn.Linear(3, 4))


def grouped():
    return nn.Sequential(nn.Conv1d(4, 4, 2, groups=2), nn.Tanh(), nn.Conv1d(4, 2, 1), nn.Flatten(), nn.Linear(4, 4))


CASES = {
    "tied": (Tied, lambda: torch.randint(4, (9, 5)), ["middle.*", "head.bias"]),
    "recurrent": (Recurrent, lambda: torch.randn(9, 5, 3), ["head.*"]),
    "norms": (normed, lambda: torch.randn(9, 3), ["*.0.*", "2.*"]),
    "groups": (grouped, lambda: torch.randn(9, 4, 3), ["2.*", "4.*"]),
}


@pytest.mark.parametrize("factored", [ritz.kfac, ritz.ekfac])
@pytest.mark.parametrize("name", CASES)
def test_a_refusal_names_the_globs_of_all_that_can_be_factored(name, factored):
    torch.manual_seed(0)
    model, inputs, expected = CASES[name]
    x, y = inputs(), torch.arange(9) % 4
    risk = Risk(model(), nn.CrossEntropyLoss(), [(x[:5], y[:5]), (x[5:], y[5:])])
    with pytest.raises(ModelError) as caught:
        factored(risk)
    if name == "recurrent":  # what has no layer comes first, and all else that the globs leave out is named with it
        assert "It does not take these either: mix.bias, mix.weight, norm.bias, norm.weight." in caught.value.why
    shown = re.fullmatch(r"Leave them out: risk\.restricted_to\((.*)\)\.", caught.value.ways_out[0])
    globs = eval(shown.group(1))
    assert ([globs] if isinstance(globs, str) else globs) == expected
    assert factored(risk.restricted_to(globs)).layers


def test_a_refusal_of_all_parameters_names_no_globs():
    model, x, y = nn.Sequential(nn.ConvTranspose1d(1, 1, 1), nn.Flatten()), torch.randn(9, 1, 3), torch.arange(9) % 3
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    with pytest.raises(ModelError, match="none of θ is left"):
        ritz.kfac(risk)
    assert risk.globs_without(["0.weight"]) == ["0.bias"] and risk.globs_without(risk.shapes) == []


class OfTokens(nn.Module):
    """Outputs for the tokens of all examples, as one list or example by example."""

    def __init__(self, *, flat):
        super().__init__()
        self.inner, self.head, self.flat = nn.Linear(3, 4), nn.Linear(4, 2), flat
        self.double()

    def forward(self, x):
        z = self.head(torch.cumsum(torch.tanh(self.inner(x)), 1))
        return z.flatten(0, 1) if self.flat else z


def of_rows(z, y):
    return (z.reshape(-1, 2) - y.reshape(-1, 2)).pow(4).sum(1)


def test_rows_of_outputs_without_their_examples_are_refused_and_the_way_out_works():
    draw = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(n, 3, 3, generator=draw).double(), torch.randn(n, 3, 2, generator=draw).double()) for n in (7, 4)
    ]
    model, twin = OfTokens(flat=True), OfTokens(flat=False)
    twin.load_state_dict(model.state_dict())
    flat, risk = Risk(model, of_rows, batches), Risk(twin, of_rows, batches)
    for compute in (ritz.gram_spectrum, ritz.kfac, ritz.ekfac):
        with pytest.raises(ModelError, match="rows of outputs for"):
            compute(flat)
        compute(risk)
    for A in (ritz.hessian, ritz.gauss_newton, ritz.empirical_fisher):
        assert_close(A(flat).dense(), A(risk).dense())
    assert_close(flat.at(flat.theta / 2).gradient(), risk.at(risk.theta / 2).gradient())
    seeds = lambda: torch.Generator().manual_seed(1)
    sampled = [ritz.monte_carlo_fisher(own, num_samples=3, generator=seeds()).dense() for own in (flat, risk)]
    assert_close(*sampled)


def of_sentences(z, y):
    return (z - y[:, None, None]).square().sum((1, 2)).exp()


def test_terms_that_join_the_rows_of_an_example_are_refused_and_the_way_out_works():
    torch.manual_seed(0)
    model, x = OfTokens(flat=False), torch.randn(9, 3, 3).double()
    y = torch.linspace(-1, 1, 9).double()
    batches = [(x[:5], y[:5]), (x[5:], y[5:])]
    risk = Risk(model, of_sentences, batches)
    for refused in (ritz.gram_spectrum, ritz.kfac):
        with pytest.raises(ModelError) as caught:
            refused(risk)
        assert any("z.flatten(1)" in way for way in caught.value.ways_out)
    joined = nn.Sequential(model, nn.Flatten(1))
    risk, G = Risk(joined, lambda z, y: of_sentences(z.unflatten(1, (3, 2)), y), batches), ritz.gauss_newton(risk)
    assert_close(ritz.gauss_newton(risk).dense(), G.dense())
    assert_close(ritz.gram_spectrum(risk).nodes[0].sort().values[-6:], torch.linalg.eigvalsh(G.dense())[-6:])
    assert ritz.kfac(risk).layers
