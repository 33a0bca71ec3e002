"""Products of curvature on the device are those on the CPU, wherever the data lie."""

import copy

import pytest
import torch
from tests.zoo import CASES

import ritz
from ritz.risk import Risk
from ritz.risk.noise import noise
from tests_gpu.devices import CPU, DEVICE, assert_same, classification, moved, normal, risks

OPERATORS = ["hessian", "gauss_newton", "functional_hessian", "empirical_fisher"]


def both(name, make, place=DEVICE, **options):
    here, there = risks(name, place, **options)
    return make(here), make(there)


def products(A, V):
    return (A @ V.to(A.device, A.dtype)).cpu()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", CASES)
def test_products_agree(name, operator, place):
    here, there = both(name, getattr(ritz, operator), place)
    assert there.device.type == DEVICE.type
    V = normal(here.size, 5)
    assert_same(products(there, V), products(here, V))
    assert_same(products(there, V[:, 0]), products(here, V[:, 0]))


def test_a_device_without_a_number_is_the_current_one():
    matrix = torch.diag(torch.arange(1.0, 4.0)).to(DEVICE)
    A = ritz.Operator(lambda V: matrix @ V, 3, torch.float32, torch.device(DEVICE.type))
    assert_same(products(A, torch.eye(3)), matrix.cpu())
    assert float(ritz.eigenpairs(A, 1).values) == pytest.approx(3)


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_agree(name, place):
    here, there = risks(name, place)
    assert there.loss_value() == pytest.approx(here.loss_value(), rel=1e-12)
    assert_same(there.gradient(), here.gradient())


@pytest.mark.parametrize("operator", ["monte_carlo_fisher", "gradient_covariance", "ntk"])
def test_further_operators_agree(operator, place):
    if not hasattr(ritz, operator):
        pytest.skip(f"ritz has no {operator}.")
    here, there = both("cnn", getattr(ritz, operator), place)
    V = normal(here.size, 3)
    assert_same(products(there, V), products(here, V))


@pytest.mark.parametrize("part", ["restricted_to", "first", "to"])
def test_parts_of_a_risk_agree(part, place):
    argument = {"restricted_to": "0.*", "first": 5, "to": torch.float64}[part]
    here, there = both("mlp", lambda risk: ritz.hessian(getattr(risk, part)(argument)), place)
    V = normal(here.size, 2)
    assert_same(products(there, V), products(here, V))


def test_a_risk_at_other_parameters_agrees(place):
    if not hasattr(Risk, "at"):
        pytest.skip("A risk has no at.")
    here, there = both("cnn", lambda risk: ritz.hessian(risk.at(risk.theta * 1.1 + 0.01)), place)
    V = normal(here.size, 2)
    assert_same(products(there, V), products(here, V))


def test_sums_and_projections_agree(place):
    def changed(risk):
        A = ritz.hessian(risk)
        U = normal(A.size, 2, seed=3).to(A.device)
        D = normal(A.size, seed=4).square().to(A.device)
        return 2 * ritz.preconditioned(A, D) + ritz.low_rank(U) - 0.5 * ritz.deflated(A, torch.linalg.qr(U).Q) + 0.1

    here, there = both("cnn", changed, place)
    V = normal(here.size, 3)
    assert_same(products(there, V), products(here, V))


@pytest.mark.parametrize("precision, close", [("highest", 1e-4), ("high", 2e-2)])
@pytest.mark.parametrize("operator", ["hessian", "gauss_newton"])
def test_float32_and_tf32_are_as_close_as_they_say(operator, precision, close):
    model, loss, batches = classification("cnn")
    exact = getattr(ritz, operator)(Risk(model, loss, batches))
    single = copy.deepcopy(model).float().to(DEVICE)
    data = [(moved(x, DEVICE).float(), moved(y, DEVICE)) for x, y in batches]
    A = getattr(ritz, operator)(Risk(single, loss, data, tangent_precision=precision))
    V = normal(exact.size, 3)
    assert_same(products(A, V).double(), products(exact, V), rtol=close)


def test_the_numbers_of_examples_have_the_same_bits():
    keys = torch.tensor([0, 1, 5, 2**40, 2**62])
    for seed in (0, 7, -1, 2**63 - 1):
        assert torch.equal(noise(keys.to(DEVICE), seed, (3, 2)).cpu(), noise(keys, seed, (3, 2)))


def test_images_of_depthwise_convolutions_stay_in_their_layout():
    if DEVICE.type == "cpu":
        pytest.skip("On a CPU channels last is faster.")
    x, y = normal(6, 4, 5, 5).float().to(DEVICE), (torch.arange(6) % 4).to(DEVICE)
    for groups, contiguous in ((4, True), (1, False)):
        model = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, groups=groups), torch.nn.Flatten(), torch.nn.Linear(36, 4))
        risk = Risk(model.to(DEVICE), ritz.CrossEntropy(), (x, y), tangent_precision="high")
        assert next(iter(risk.batches)).inputs.is_contiguous() == contiguous


def test_nothing_in_the_model_changes():
    model, loss, batches = classification("cnn")
    model = copy.deepcopy(model).to(DEVICE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), torch.cuda.get_rng_state() if DEVICE.type == "cuda" else None
    ritz.hessian(Risk(model, loss, batches)) @ normal(sum(p.numel() for p in model.parameters())).to(DEVICE)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.device.type == DEVICE.type for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert states[1] is None or torch.equal(torch.cuda.get_rng_state(), states[1])


def test_a_vector_on_another_device_is_refused():
    if DEVICE == CPU:
        pytest.skip("There is only one device.")
    A = ritz.hessian(risks()[1])
    with pytest.raises(ritz.RitzError, match="on cpu"):
        A @ normal(A.size)


@pytest.mark.parametrize("operator", OPERATORS)
def test_curvature_offers_rough_products_where_tf32_is_faster(operator):
    single = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10)).to(DEVICE)
    x, y = normal(64, 64).float().to(DEVICE), torch.arange(64, device=DEVICE) % 10
    A = getattr(ritz, operator)(Risk(single, ritz.CrossEntropy(), (x, y)))
    if DEVICE.type != "cuda" or torch.cuda.get_device_capability() < (8, 0):
        assert A.rough is None
        return
    v = normal(A.size, 3).float().to(DEVICE)
    error = float((A.rough @ v - A @ v).norm() / (A @ v).norm())
    assert 1e-6 < error < 1e-2
    plain, mixed = ritz.eigenpairs(A, 5), ritz.eigenpairs(A, 5, precision="mixed")
    assert 0 < mixed.num_rough_products < mixed.num_products and bool(mixed.converged.all())
    assert_same(mixed.values, plain.values, rtol=1e-4)
    residuals = (A @ mixed.vectors - mixed.vectors * mixed.values).norm(dim=0)
    assert_same(residuals, mixed.residuals, rtol=1e-2)


class SmallImages(torch.nn.Sequential):
    """Convolutions of 8 × 8, 4 × 4 and 2 × 2 pixels, smooth, so that rounding turns no ReLU on or off."""

    def __init__(self):
        layers = [
            torch.nn.Conv2d(3, 32, 3, padding=1),
            torch.nn.BatchNorm2d(32),
            torch.nn.Tanh(),
            torch.nn.AvgPool2d(2),
        ]
        layers += [torch.nn.Conv2d(32, 40, 3, padding=1), torch.nn.Tanh(), torch.nn.AvgPool2d(2)]
        layers += [torch.nn.Conv2d(40, 33, (3, 5), padding=(1, 2)), torch.nn.Tanh(), torch.nn.Flatten()]
        super().__init__(*layers, torch.nn.Linear(33 * 4, 5))


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("operator", OPERATORS[:3])
def test_float32_products_over_many_small_images_agree_with_float64(operator, last):
    layout = torch.channels_last if last else torch.contiguous_format
    torch.manual_seed(0)
    model, x, y = SmallImages().eval(), torch.randn(700, 3, 8, 8), torch.randint(5, (700,))
    data = x.to(DEVICE).contiguous(memory_format=layout), y.to(DEVICE)
    make = getattr(ritz, operator)
    there = make(Risk(copy.deepcopy(model).to(DEVICE), ritz.CrossEntropy(), data))
    here = make(Risk(model.double(), ritz.CrossEntropy(), (x.double(), y)))
    V = normal(here.size, 3)
    assert_same(products(there, V).double(), products(here, V), rtol=2e-5)
    if there.rough is not None:
        assert_same(products(there.rough, V).double(), products(here, V), rtol=1e-2)
