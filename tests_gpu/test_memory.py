"""Memory on the device: nothing stays allocated, running out is survived, and the same seed gives the same bits."""

import gc

import pytest
import torch
from torch import nn

import ritz
from ritz.lab import models
from tests_gpu.devices import DEVICE, assert_same, normal, risks, seeded

needs_cuda = pytest.mark.skipif(DEVICE.type != "cuda", reason="Memory is counted on a GPU.")
OPERATORS, RISKS = 1000, 10


def allocated():
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def small_problem(dtype=torch.float32):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 3))
    x, y = normal(6, 2, 4, 4).to(DEVICE, dtype), (torch.arange(6) % 3).to(DEVICE)
    return model.to(DEVICE, dtype).eval(), (x, y)


@needs_cuda
def test_a_thousand_operators_leave_memory_flat():
    model, data = small_problem()
    kinds = [ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher]
    v = torch.ones(sum(p.numel() for p in model.parameters()), device=DEVICE)
    for index in range(RISKS):
        risk = ritz.Risk(model, ritz.CrossEntropy(), data)
        for number in range(OPERATORS // RISKS):
            kinds[number % len(kinds)](risk) @ v
        del risk
        if index == 1:
            before = allocated()
    assert allocated() <= before


@needs_cuda
def test_solvers_and_classes_leave_nothing_behind():
    model, data = small_problem()

    def work():
        risk = ritz.Risk(model, ritz.CrossEntropy(), data)
        H = ritz.hessian(risk)
        ritz.eigenpairs(H, 2)
        ritz.spectral_density(H, num_steps=8, num_probes=2)
        ritz.class_decomposition(risk).between_class @ risk.theta
        ritz.gram_spectrum(risk)
        ritz.kfac(risk.restricted_to(["0.*", "4.*"]))

    for _ in range(2):
        work()
    before = allocated()
    for _ in range(10):
        work()
    assert allocated() <= before


@pytest.fixture
def little_memory():
    """A function that leaves this process some bytes beyond what it has."""
    total = torch.cuda.get_device_properties(DEVICE).total_memory if DEVICE.type == "cuda" else 0

    def leave(extra):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + extra) / total)

    yield leave
    if DEVICE.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


@needs_cuda
@pytest.mark.parametrize("operator", ["hessian", "gauss_newton"])
def test_products_go_on_when_memory_runs_out(operator, little_memory):
    torch.manual_seed(0)
    model = models.resnet20(generator=seeded()).eval().to(DEVICE)
    x, y = torch.randn(256, 3, 32, 32, generator=seeded()), torch.arange(256) % 10
    v = torch.randn(sum(p.numel() for p in model.parameters()), generator=seeded()).to(DEVICE)

    def product():
        return getattr(ritz, operator)(ritz.Risk(model, ritz.CrossEntropy(), [(x, y)])) @ v

    allocated()
    torch.cuda.reset_peak_memory_stats()
    expected, before = product(), torch.cuda.memory_allocated()
    needed = torch.cuda.max_memory_allocated() - before
    little_memory(needed // 4)
    assert_same(product(), expected, rtol=1e-4)


@needs_cuda
def test_too_little_memory_is_said_with_numbers(little_memory):
    model, data = models.resnet20(generator=seeded()).eval().to(DEVICE), normal(1, 3, 512, 512).float()
    risk = ritz.Risk(model, ritz.CrossEntropy(), (data, torch.zeros(1, dtype=torch.long)))
    little_memory(2**22)
    with pytest.raises(ritz.RitzError, match=r"\d"):
        ritz.hessian(risk) @ risk.theta


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_the_same_seed_gives_the_same_numbers(name):
    def measured():
        _, risk = risks(name)
        H = ritz.hessian(risk)
        pairs = ritz.eigenpairs(H, 3, generator=seeded())
        spectrum = ritz.spectral_density(H, num_steps=10, num_probes=2, generator=seeded())
        trace = ritz.trace(ritz.gauss_newton(risk), generator=seeded())
        return pairs.values, pairs.vectors, spectrum.nodes, spectrum.weights, torch.tensor(trace.value)

    first, second = measured(), measured()
    for one, other in zip(first, second, strict=True):
        assert_same(one, other, rtol=1e-12)
