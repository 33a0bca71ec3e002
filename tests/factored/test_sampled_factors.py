"""KFAC, CFAC and EKFAC from samples: right on average, the same for any batches, and refused without a sample."""

import pytest
import torch
from torch import nn

import ritz
from ritz.errors import ArgumentError
from ritz.factored import cfac, ekfac, kfac
from ritz.operators import gauss_newton, monte_carlo_fisher
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from tests.factored.networks import LABELS, MODELS, OPTIONS, WEIGHT, built, close, risk_of
from tests.seeds import seeded

SEEDS = range(80)


def sequences():
    """Two terms and two ignored ones of three examples: samples of all terms of an example go back together."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
        x, y = torch.randn(6, 4, 3, dtype=torch.float64), torch.randint(3, (6, 4))
    return Risk(model, CrossEntropy(ignore_index=0, class_dim=-1), (x, y))


def regression():
    model, x = built("cnn")
    return Risk(model, nn.MSELoss(), (x, torch.randn(11, 3, generator=seeded(1)).double()))


def far(samples, exact):
    """Root mean square, over entries that vary, of how many standard errors the mean is off."""
    samples = torch.stack(samples)
    error = samples.std(0) / len(samples) ** 0.5
    varies = error > 1e-9 * exact.abs().max()
    return float(((samples.mean(0) - exact) / error)[varies].square().mean().sqrt())


RISKS = {name: (lambda name=name: risk_of(name, weight=WEIGHT)[0]) for name in MODELS}
RISKS |= {"sequences": sequences, "regression": regression}


@pytest.mark.parametrize("name", RISKS)
def test_factors_are_right_on_average(name):
    risk = RISKS[name]()
    for method in (kfac, cfac) if name in MODELS else (kfac,):
        drawn = [method(risk, num_samples=1, generator=seeded(seed)).operator.dense() for seed in SEEDS]
        assert far(drawn, method(risk).operator.dense()) < 1.6, method


@pytest.mark.parametrize("name", RISKS)
def test_the_trace_of_ekfac_is_right_on_average(name):
    risk = RISKS[name]()
    traces = [ekfac(risk, num_samples=2, generator=seeded(seed)).operator.dense().trace() for seed in SEEDS]
    assert far(traces, gauss_newton(risk).dense().trace()) < 3.5


def test_more_samples_are_nearer():
    risk, exact = RISKS["mlp"](), kfac(RISKS["mlp"]()).operator.dense()
    error = lambda count: float((kfac(risk, num_samples=count).operator.dense() - exact).norm() / exact.norm())
    assert error(4000) < 0.03 < error(1)


def test_one_example_with_one_term_has_the_factor_of_its_sampled_matrix():
    model, x = built("mlp", 1)
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.tensor([1])))
    ours = kfac(risk, num_samples=3, generator=seeded(5)).layers["0"].operator.dense()
    close(ours, monte_carlo_fisher(risk.restricted_to("0.*"), num_samples=3, generator=seeded(5)).dense())


def test_the_last_layer_needs_no_sample():
    risk = RISKS["sequences"]()
    close(kfac(risk, num_samples=1).layers["2"].operator.dense(), kfac(risk).layers["2"].operator.dense())


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("method", [kfac, ekfac])
def test_samples_belong_to_examples(method, options):
    model, x = built("mlp")
    loss = nn.CrossEntropyLoss(**options)
    sampled = lambda data: method(Risk(model, loss, data), num_samples=2, generator=seeded(3)).operator.dense()
    close(sampled((x, LABELS)), sampled([(x[:4], LABELS[:4]), (x[4:], LABELS[4:])]))


def test_without_a_generator_they_are_the_same_each_time():
    risk = RISKS["cnn"]()
    first, second = (kfac(risk, num_samples=1).operator.dense() for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("method", [kfac, cfac, ekfac])
def test_no_sample_is_refused(method):
    with pytest.raises(ArgumentError, match="num_samples=0 was given"):
        method(RISKS["mlp"](), num_samples=0)


def test_many_outputs_take_one_pass_a_sample():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, passes = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 50)), 0
    risk = Risk(model, nn.CrossEntropyLoss(), (torch.randn(5, 3), torch.arange(5)))
    original = ritz.layers.capture.Forward.gradients

    def counted(self, cotangents, **options):
        nonlocal passes
        passes += 1
        return original(self, cotangents, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ritz.layers.capture.Forward, "gradients", counted)
        kfac(risk)
        exact, passes = passes, 0
        kfac(risk, num_samples=2)
    assert passes <= exact - 40
