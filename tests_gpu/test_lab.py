"""The laboratory on the device: training, ensembles and analyses give what they give on the CPU."""

import copy
import itertools

import pytest
import torch
from torch import nn

import ritz
from ritz.lab import ensemble, models, training
from tests_gpu.devices import CPU, DEVICE, assert_same, moved, normal, risks, seeded

SQUARED = ritz.SquaredError()


def network(seed, *widths):
    layers = []
    for index, (before, after) in enumerate(itertools.pairwise(widths)):
        layer = nn.Linear(before, after, dtype=torch.float64)
        layer.weight.data = normal(after, before, seed=10 * seed + index) / before**0.5
        layer.bias.data = normal(after, seed=10 * seed + index + 5) / 10
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def regression():
    return normal(30, 4, seed=100), normal(30, 3, seed=101)


def last(run):
    *_, pause = run
    return pause


def test_training_agrees(place):
    def trained(device, data):
        model = network(0, 4, 6, 3).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options = {"num_epochs": 5, "batch_size": 7, "generator": seeded()}
        return last(training.train(model, SQUARED, data, optimizer, **options))

    here, there = trained(CPU, regression()), trained(DEVICE, moved(regression(), place))
    assert there.loss == pytest.approx(here.loss, rel=1e-9)
    assert_same(there.parameters, here.parameters)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="only a GPU captures")
@pytest.mark.filterwarnings("error")  # a step that cannot be captured warns
def test_captured_steps_are_those_of_training_through_all_its_rates():
    """VGG11 with batch norm, momentum and two annealings; a last batch of another size."""
    x, y = torch.randn(100, 1, 32, 32, generator=seeded(), device=CPU).to(DEVICE), (torch.arange(100) % 10).to(DEVICE)

    def trained(**options):
        model = models.vgg11(generator=seeded(), num_channels=1, narrow=16, device=DEVICE).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        settings = {"num_epochs": 6, "batch_size": 16, "generator": seeded(), "schedule": training.Annealing()}
        return last(training.train(model, nn.CrossEntropyLoss(), (x.double(), y), optimizer, **settings, **options))

    plain, captured = trained(), trained(capture=True)
    assert captured.loss == pytest.approx(plain.loss, rel=1e-6)
    assert captured.accuracy == pytest.approx(plain.accuracy)
    for name, value in plain.parameters.items():
        assert torch.allclose(captured.parameters[name], value, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("batch_size", [None, 7])
def test_linear_descent_agrees(batch_size):
    weights, data = [normal(5, 6, 4) / 2, normal(5, 3, 6, seed=1) / 2], regression()

    def descended(device):
        options = {"learning_rate": 0.01, "num_epochs": 20, "batch_size": batch_size, "generator": seeded()}
        return last(training.linear_descent(moved(weights, device), *moved(data, device), **options))

    here, there = descended(CPU), descended(DEVICE)
    assert_same(there.loss, here.loss)
    assert_same(list(there.parameters), list(here.parameters))


def ensembles():
    stack = ensemble.Ensemble.of([network(seed, 4, 6, 3) for seed in range(3)])
    return stack, stack.to(DEVICE)


def test_ensembles_train_alike(place):
    options = {"learning_rate": 0.05, "num_epochs": 4, "batch_size": 7}
    here, there = ensembles()
    first = last(ensemble.train(here, SQUARED, regression(), generator=seeded(), **options))
    second = last(ensemble.train(there, SQUARED, moved(regression(), place), generator=seeded(), **options))
    assert_same(second.loss, first.loss)
    assert_same(second.parameters, first.parameters)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="only a GPU captures")
@pytest.mark.filterwarnings("error")  # a step that cannot be captured warns
@pytest.mark.parametrize(("kind", "num_epochs"), [("linear", 14), ("tanh", 20)])
def test_captured_steps_of_many_networks_follow_the_pace_of_each(kind, num_epochs):
    """Rates fall at epochs of their own, some networks end before others; a last batch of another size."""
    weights = [normal(5, 6, 4) / 2, normal(5, 3, 6, seed=1) / 2]
    options = {"learning_rate": 0.05, "batch_size": 7, "schedule": training.Plateau(2, 0.02, 0.1, 1e-2)}

    def trained(capture):
        settings = {**options, "num_epochs": num_epochs, "generator": seeded(), "capture": capture}
        if kind == "linear":
            return last(training.linear_descent(moved(weights, DEVICE), *moved(regression(), DEVICE), **settings))
        return last(ensemble.train(ensembles()[1], SQUARED, regression(), **settings))

    plain, captured = trained(False), trained(True)
    assert plain.done.any() and not plain.done.all()
    assert captured.epoch == plain.epoch and torch.equal(captured.done, plain.done)
    assert_same(captured.loss, plain.loss)
    assert_same(captured.parameters, plain.parameters)


@pytest.mark.parametrize("measured", ["losses", "spectra", "hessians"])
def test_ensembles_are_measured_alike(measured, place):
    here, there = ensembles()
    work = getattr(ensemble, measured)
    assert_same(work(there, SQUARED, moved(regression(), place)), work(here, SQUARED, regression()))


def test_sharpness_and_traces_of_ensembles_agree():
    here, there = ensembles()
    options = {"k": 2, "tolerance": 1e-8}
    found = ensemble.sharpness(there, SQUARED, regression(), generator=seeded(), **options)
    assert_same(
        found.values, ensemble.spectra(here, SQUARED, regression()).sort(descending=True).values[:, :2], rtol=1e-6
    )
    traces = [ensemble.trace(e, SQUARED, regression(), num_products=6, generator=seeded()) for e in (there, here)]
    assert_same(*traces, rtol=1e-7)


@pytest.mark.parametrize("build", ["mlp", "resnet20"])
def test_networks_of_the_lab_have_the_same_curvature(build):
    model = models.mlp([6, 8, 3], generator=seeded()) if build == "mlp" else models.resnet20(generator=seeded())
    shape = (6,) if build == "mlp" else (3, 32, 32)
    model = model.double().eval()
    x, y = normal(6, *shape), torch.arange(6) % 3
    here = ritz.hessian(ritz.Risk(model, ritz.CrossEntropy(), [(x[:4], y[:4]), (x[4:], y[4:])]))
    there = ritz.hessian(ritz.Risk(copy.deepcopy(model).to(DEVICE), ritz.CrossEntropy(), (x, y)))
    v = normal(here.size)
    assert_same(there @ v.to(DEVICE), here @ v)


@pytest.mark.parametrize("per_layer", [False, True])
def test_analyses_of_spectra_agree(per_layer, place):
    settings = ritz.analysis.spectrum.Settings(num_eigenpairs=2, num_probes=2, num_steps=8, per_layer=per_layer)
    here, there = (ritz.analysis.spectrum.run(risk, settings) for risk in risks("mlp", place))
    assert list(there.arrays) == list(here.arrays)
    for name in [name for name in here.arrays if name.endswith("eigenvalues")]:
        assert_same(there.arrays[name], here.arrays[name], rtol=1e-3)
    for name in ("loss", "gradient_norm", "trace", "effective_rank"):
        assert there.scalars[name] == pytest.approx(here.scalars[name], rel=1e-6)


def test_analyses_of_classes_agree(place):
    here, there = (ritz.analysis.classes.run(risk) for risk in risks("mlp", place))
    assert list(there.arrays) == list(here.arrays)
