"""A risk at other parameters than those it was built with."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ArgumentError, NumericalError
from tests.risk.problem import CE, C, D, check_refusal, network
from tests.risk.unchanged import nothing_changes
from tests.zoo import unequal_batches


def moved_network():
    model = network()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(0.1 * torch.linspace(-1, 1 + number, parameter.numel()).view_as(parameter))
    return model


FORMS = {
    "a vector": lambda model: nn.utils.parameters_to_vector(model.parameters()).detach(),
    "tensors by name": lambda model: dict(model.named_parameters()),
    "a state_dict": lambda model: model.state_dict(),
    "a module": lambda model: model,
    "a compiled module": lambda model: torch.compile(model, backend="eager"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_risk_at_other_parameters_is_that_of_the_other_network(form, x, y):
    model, other, data = network(), moved_network(), unequal_batches(x, y)
    risk = Risk(model, CE, data)
    before, expected, theta = risk.loss_value(), Risk(other, CE, data), FORMS[form](other)
    with nothing_changes(model), nothing_changes(other):
        there = risk.at(theta)
        assert there.loss_value() == pytest.approx(expected.loss_value(), rel=1e-13)
        v = torch.linspace(-1, 1, risk.size, dtype=torch.float64)
        assert_close(there.gradient(), expected.gradient())
        assert_close(ritz.hessian(there) @ v, ritz.hessian(expected) @ v)
        assert_close(ritz.gauss_newton(there) @ v, ritz.gauss_newton(expected) @ v)
    assert risk.loss_value() == before and there.choices is risk.choices
    with torch.no_grad():
        other[0].weight.zero_()
    assert_close(there.gradient(), expected.gradient())


def test_names_that_are_left_out_stay(x, y):
    risk, other = Risk(network(), CE, (x, y)), moved_network()
    there = risk.at({"2.bias": other[2].bias})
    mixed = network()
    mixed[2].bias.data.copy_(other[2].bias.data)
    assert_close(there.gradient(), Risk(mixed, CE, (x, y)).gradient())


def test_along_a_line_the_gradient_is_the_slope_of_the_loss(x, y):
    risk, end = Risk(network(), CE, unequal_batches(x, y)), Risk(moved_network(), CE, unequal_batches(x, y))
    along, step = end.theta - risk.theta, 1e-5
    for t in (0.0, 0.5, 1.0):
        middle = risk.at(risk.theta + t * along)
        values = [risk.at(risk.theta + (t + sign * step) * along).loss_value() for sign in (-1, 1)]
        assert (values[1] - values[0]) / (2 * step) == pytest.approx(float(middle.gradient() @ along), rel=1e-7)


def test_the_risk_at_other_parameters_costs_one_evaluation_of_the_data(x, y):
    calls = []
    model = network()
    model.register_forward_hook(lambda *_: calls.append(1))
    risk = Risk(model, CE, unequal_batches(x, y))
    calls.clear()
    risk.at(risk.theta + 0.1)
    assert len(calls) == len(list(risk.batches))


class Normalised(nn.Module):
    """A batch norm whose means two modules share, between a trained layer and a frozen one."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.twin = nn.Linear(D, 5), nn.BatchNorm1d(5), nn.BatchNorm1d(5)
        self.twin.running_mean, self.twin.bias = self.norm.running_mean, self.norm.bias
        self.last = nn.Linear(5, C).requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.twin(self.norm(self.first(x)))))


def normalised(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Normalised().double()
        for tensor in model.state_dict().values():
            tensor.copy_(tensor + torch.rand(tensor.shape))
        return model.eval()


@pytest.mark.parametrize("form", ["a state_dict", "a module"])
def test_buffers_and_frozen_parameters_come_with_the_network(form, x, y):
    model, other = normalised(0), normalised(1)
    risk, expected = Risk(model, CE, unequal_batches(x, y)), Risk(other, CE, unequal_batches(x, y))
    with nothing_changes(model), nothing_changes(other):
        there = risk.at(FORMS[form](other))
        assert there.loss_value() == pytest.approx(expected.loss_value(), rel=1e-13)
        v = torch.linspace(-1, 1, risk.size, dtype=torch.float64)
        assert_close(ritz.hessian(there) @ v, ritz.hessian(expected) @ v)
    gradient = there.gradient()
    with torch.no_grad():
        other.norm.running_var.mul_(3)
    assert_close(there.gradient(), gradient)
    assert_close(risk.gradient(), Risk(model, CE, unequal_batches(x, y)).gradient())


def test_a_part_of_theta_moves_with_all_that_is_constant(x, y):
    model, other = normalised(0), normalised(1)
    there = Risk(model, CE, (x, y), parameters="norm.*").at(other)
    assert_close(there.gradient(), Risk(other, CE, (x, y), parameters="norm.*").gradient())


WRONG = {
    "too short": (torch.zeros(3), ArgumentError, "shape \\(3,\\)"),
    "integers": (torch.zeros(43, dtype=torch.int64), ArgumentError, "torch.int64"),
    "no name": ({"bias": torch.zeros(3)}, ArgumentError, "1 of the 1 names given belong to no parameter or buffer"),
    "a slip": ({"2.bias": torch.zeros(C), "2.wieght": torch.zeros(C, 5)}, ArgumentError, "1 of the 2 names .*2.wieght"),
    "another shape": ({"2.bias": torch.zeros(5)}, ArgumentError, "2.bias was given with shape"),
    "NaN": ({"2.bias": torch.full((C,), float("nan"))}, NumericalError, "Parameter 2.bias holds NaN"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_theta_that_does_not_fit_is_refused(name, x, y):
    theta, kind, message = WRONG[name]
    with pytest.raises(ritz.RitzError, match=message) as caught:
        Risk(network(), CE, (x, y)).at(theta)
    check_refusal(caught, kind)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_names_with_the_prefix_of_a_wrapper_are_refused_with_the_way_to_take_it_off(prefix, x, y):
    state = {prefix + name: tensor for name, tensor in network().state_dict().items()}
    with pytest.raises(ArgumentError, match=rf"Take '{prefix}' off"):
        Risk(network(), CE, (x, y)).at(state)


def test_names_of_compiled_layers_are_refused_with_the_way_to_take_that_out(x, y):
    state = {name.replace(".", "._orig_mod."): tensor for name, tensor in network().state_dict().items()}
    risk = Risk(network(), CE, (x, y))
    with pytest.raises(ArgumentError, match=r"Take '_orig_mod.' out: {name.replace\('_orig_mod.', ''\): w for"):
        risk.at(state)
    assert risk.at({name.replace("_orig_mod.", ""): w for name, w in state.items()}).size == risk.size


def test_a_vector_of_another_length_is_not_split(x, y):
    risk = Risk(network(), CE, (x, y))
    with pytest.raises(ArgumentError, match="was to be split"):
        risk.unflatten(risk.theta[:-1])
