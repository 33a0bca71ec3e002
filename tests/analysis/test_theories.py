"""Theory stands beside measurement by itself, where the model is one that theory knows."""

import pytest
import torch
from torch import nn

from ritz import Risk, SquaredError, gauss_newton, hessian, report
from ritz.analysis import spectrum
from ritz.lab.models import bias_network, linear_network, scalar_network, self_attention
from ritz.theory import balanced_weights, whitened


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(count, *sizes):
    return torch.randn(count, *sizes, generator=generator(count)).double()


def sequential(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layer() for layer in layers)).double()


def drawn(network, **options):
    return network(4, generator=generator(), dtype=torch.float64, **options)


def first(bias):
    return lambda: nn.Linear(3, 7, bias=bias)


def last(size, bias=False):
    return lambda: nn.Linear(7, size, bias=bias)


MODELS = {
    "linear": (lambda: sequential(first(False), last(2)), rows(9, 3), rows(9, 2)),
    "bias": (lambda: sequential(first(True), last(2)), rows(9, 3), rows(9, 2)),
    "relu": (lambda: sequential(first(False), nn.ReLU, last(2)), rows(9, 3), rows(9, 2)),
    "leaky": (lambda: sequential(first(True), nn.LeakyReLU, last(2)), rows(9, 3), rows(9, 2)),
    "deep": (lambda: sequential(first(False), lambda: nn.Linear(7, 7, bias=False), last(1)), rows(9, 3), rows(9, 1)),
    "scalar": (lambda: drawn(scalar_network), rows(9), rows(10)[:9]),
    "scalar relu": (lambda: drawn(scalar_network, activation="relu"), rows(9, 1), rows(10, 1)[:9]),
    "with bias": (lambda: drawn(bias_network), rows(9), rows(10)[:9]),
    "attention": (lambda: drawn(self_attention, causal=True, sink=1.5, deviation=0.7), rows(5, 6), rows(7, 6, 1)[:5]),
}  # fmt: skip


CASES = [
    ("linear", SquaredError()),
    ("linear", nn.MSELoss(reduction="sum")),
    *((name, nn.MSELoss()) for name in MODELS),
]


@pytest.mark.parametrize("name, loss", CASES)
def test_the_closed_form_is_that_of_the_hessian(name, loss):
    model, x, y = MODELS[name]
    risk = Risk(model(), loss, [(x[:4], y[:4]), (x[4:], y[4:])])
    for operator in (hessian, gauss_newton) if name != "deep" else (hessian,):
        record = spectrum.run(risk, spectrum.Settings(operator, num_probes=1, num_steps=2))
        exact = torch.linalg.eigvalsh(operator(risk).dense())
        theory = spectrum.theory_of(record).eigenvalues()
        assert torch.allclose(theory, exact, atol=1e-9 * float(exact.abs().max()), rtol=0)


def test_aligned_layers_of_several_outputs_are_known():
    x = whitened(rows(20, 3), keep_inputs=True)
    weights = balanced_weights(rows(2, 3), [4, 4], generator=generator())
    model = linear_network((3, 4, 4, 2), generator=generator(), parametrization=weights, dtype=torch.float64)
    risk = Risk(model, SquaredError(), (x, model(x).detach()))
    theory = spectrum.theory_of(spectrum.run(risk, spectrum.Settings(num_probes=1, num_steps=2)))
    assert torch.allclose(theory.eigenvalues(), torch.linalg.eigvalsh(hessian(risk).dense()), atol=1e-9)


def hooked():
    model = sequential(first(False), last(2))
    model[0].register_forward_hook(lambda *given: 2 * given[2])
    return model


UNKNOWN = {
    "a bias of the last layer": lambda: sequential(first(False), last(2, bias=True)),
    "another activation": lambda: sequential(first(False), nn.Tanh, last(2)),
    "one layer": lambda: sequential(lambda: nn.Linear(3, 2, bias=False)),
    "a hook": hooked,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_networks_without_a_closed_form_have_none_in_their_record(name):
    risk = Risk(UNKNOWN[name](), nn.MSELoss(), (rows(9, 3), rows(9, 2)))
    record = spectrum.run(risk, spectrum.Settings(num_probes=1, num_steps=2))
    assert spectrum.theory_of(record) is None and "closed_form" not in record.scalars


def test_some_parameters_or_another_loss_have_none():
    model, x, y = MODELS["linear"]
    for risk in (
        Risk(model(), nn.MSELoss(), (x, y), parameters="0.*"),
        Risk(model(), nn.L1Loss(), (x, y)),
    ):
        assert spectrum.theory_of(spectrum.run(risk, spectrum.Settings(num_probes=1, num_steps=2))) is None


def test_the_page_holds_it_against_the_measurement(tmp_path):
    model, x, y = MODELS["linear"]
    risk = Risk(model(), nn.MSELoss(), (x, y))
    records = [spectrum.run(risk, spectrum.Settings(operator)) for operator in (hessian, gauss_newton)]
    page = report.write(records, tmp_path / "page.html").read_text()
    assert page.count("There is a closed form for the spectrum of this model: two linear layers.") == 2
    assert "within the error of the measurement" in page
    records[0].save(tmp_path / "record")
    assert spectrum.theory_of(type(records[0]).load(tmp_path / "record")).size == 35
