"""Which parameters are θ."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ModelError
from tests.risk.problem import CE, check_against_pytorch, check_refusal, network
from tests.zoo import unequal_batches


def test_globs_choose_parameters(x, y):
    names = lambda parameters: list(Risk(network(), ritz.CrossEntropy(), (x, y), parameters=parameters).shapes)
    assert names("*") == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert names("*.weight") == ["0.weight", "2.weight"]
    assert names(["2.*", "0.bias"]) == ["0.bias", "2.weight", "2.bias"]  # in the order of the model
    assert names(("0.*", "*")) == names("*")


class Shared(nn.Module):
    """Two layers of one weight, and one module under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.head = self.tail = nn.Linear(5, 3)

    def forward(self, x):
        return self.tail(torch.tanh(self.second(torch.tanh(self.first(x)))))


@pytest.mark.parametrize(
    "glob, names",
    [
        ("second.*", ["first.weight", "second.bias"]),
        ("second.weight", ["first.weight"]),
        ("tail.*", ["head.weight", "head.bias"]),
        ("*d.weight", ["first.weight", "head.weight"]),
    ],
)
def test_a_shared_parameter_is_found_by_each_of_its_names(glob, names):
    x, y = torch.randn(8, 5), torch.arange(8) % 3
    full = Risk(Shared(), CE, (x, y))
    assert list(full.restricted_to(glob).shapes) == names
    assert list(Risk(Shared(), CE, (x, y), parameters=glob).shapes) == names
    assert full.size == 25 + 5 + 5 + 15 + 3


def test_a_frozen_parameter_is_found_by_none_of_its_names():
    model = Shared()
    model.first.weight.requires_grad_(False)
    x, y = torch.randn(8, 5), torch.arange(8) % 3
    assert list(Risk(model, CE, (x, y), parameters="second.*").shapes) == ["second.bias"]


def test_the_name_of_a_module_leads_to_its_parameters(x, y):
    with pytest.raises(ModelError, match=r"For all of that module, write '2\.\*'") as caught:
        Risk(network(), CE, (x, y), parameters="2")
    check_refusal(caught, ModelError)


@pytest.mark.parametrize("glob", ["0.*", "2.weight", ["0.bias", "2.*"]])
def test_a_restricted_risk_has_the_block_of_the_full_hessian(glob, x, y):
    model, data = network(), unequal_batches(x, y)
    full = Risk(model, ritz.CrossEntropy(), data)
    places = dict(zip(full.shapes, full.unflatten(torch.arange(full.size).double()), strict=True))
    H, gradient = ritz.hessian(full).dense(), full.gradient()
    for block in (full.restricted_to(glob), Risk(model, ritz.CrossEntropy(), data, parameters=glob)):
        index = torch.cat([places[name].flatten() for name in block.shapes]).long()
        assert_close(ritz.hessian(block).dense(), H[index][:, index])
        assert_close(block.gradient(), gradient[index])
        assert block.loss_value() == full.loss_value()


def test_a_restricted_risk_is_restricted_further_and_never_widened(x, y):
    part = Risk(network(), ritz.CrossEntropy(), (x, y), parameters="0.*")
    assert list(part.restricted_to("*").shapes) == ["0.weight", "0.bias"]
    with pytest.raises(ModelError, match=r"2\.\*"):
        part.restricted_to("2.*")


def test_weights_with_a_parametrization_are_analysed_by_their_originals(x, y):
    model = network()
    torch.nn.utils.parametrizations.weight_norm(model[0])
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    assert any("original0" in name for name in risk.shapes)
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


@pytest.mark.parametrize("parameters", ["3.*", ["0.*", "nothing"], [], "WEIGHT", ""])
def test_a_glob_that_matches_nothing_is_refused_and_names_are_offered(parameters, x, y):
    with pytest.raises(ModelError, match="matches none of the 4 trainable") as caught:
        Risk(network(), CE, (x, y), parameters=parameters)
    check_refusal(caught, ModelError)
    assert "0.weight" in caught.value.ways_out[0]


def test_a_name_with_the_characters_of_a_glob_selects_itself():
    model = nn.Sequential()
    model.add_module("[a]", nn.Linear(3, 2))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.randint(2, (6,))))
    assert list(risk.restricted_to("[a].bias").shapes) == ["[a].bias"]


def test_a_misspelled_layer_of_a_large_model_is_found_among_the_choices():
    layers = {f"block{i}": torch.nn.Linear(2, 2) for i in range(9)} | {"classifier": torch.nn.Linear(2, 2)}
    model = torch.nn.Sequential(OrderedDict(layers))
    with pytest.raises(ModelError, match=r"Choose among: classifier\.bias, classifier\.weight"):
        Risk(model, torch.nn.MSELoss(), (torch.ones(3, 2), torch.ones(3, 2)), parameters="clasifier.*")
