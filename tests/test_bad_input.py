"""Bad input is answered with what, why and a way out; errors of the user's own code pass through."""

import math

import pytest
import torch
from torch import nn

import ritz
from ritz import lab, plot, solvers, theory
from ritz.errors import NumericalError, RitzError

X, Y = torch.eye(6).repeat(3, 1), torch.arange(18) % 3
MODEL = nn.Linear(6, 3)
MATRIX = torch.eye(5)
NODES, WEIGHTS = torch.tensor([[-1.0, 2.0]]), torch.full((1, 2), 0.5)


def risk(**options):
    return ritz.Risk(MODEL, nn.CrossEntropyLoss(), (X, Y), **options)


def hessian():
    return ritz.hessian(risk())


def spectrum():
    return ritz.Spectrum(NODES, WEIGHTS, 4)


def trained(model=MODEL, loss=None, data=(X, Y), optimizer=None, **options):
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1) if optimizer is None else optimizer
    return lab.training.train(model, loss or nn.CrossEntropyLoss(), data, optimizer, num_epochs=1, **options)


SILENT = {
    "smoothing above one": lambda _: ritz.CrossEntropy(label_smoothing=5),
    "smoothing below zero": lambda _: ritz.CrossEntropy(label_smoothing=-1),
    "smoothing NaN": lambda _: ritz.CrossEntropy(label_smoothing=math.nan),
    "cross-entropy without reduction": lambda _: ritz.CrossEntropy(reduction="none"),
    "squared error without reduction": lambda _: ritz.SquaredError(reduction="none"),
    "binary cross-entropy without reduction": lambda _: ritz.BinaryCrossEntropy(reduction="none"),
    "spectrum of a matrix that is not symmetric": lambda _: ritz.Spectrum.of_matrix(torch.ones(3, 3).triu()),
    "negative margin": lambda _: solvers.spectral_range(hessian(), margin=-5),
    "no eigenvalue": lambda _: ritz.Spectrum(NODES, WEIGHTS, 0),
    "law of a negative size": lambda _: theory.laws.semicircle().spectrum(size=-1),
    "half a moment": lambda _: spectrum().moment(0.5),
    "negative moment": lambda _: spectrum().moment(-1),
    "spike NaN": lambda _: theory.laws.wigner_spike(math.nan),
    "negative deviation": lambda _: theory.whitened(torch.eye(3), sigma_x=-1),
    "layer without units": lambda _: theory.balanced_weights(torch.ones(2, 2), [0]),
    "seconds NaN": lambda folder: trained(save_seconds=math.nan, checkpoint=folder / "run.npz"),
    "product with NaN": lambda _: hessian() @ torch.full((21,), math.nan),
    "no examples": lambda _: risk().first(None),
    "classes along the examples": lambda _: ritz.Risk(MODEL, ritz.CrossEntropy(class_dim=0), (X, Y)),
    "precision None": lambda _: risk().to(None),
}

RAW = {
    "hessian of a model": lambda _: ritz.hessian(MODEL),
    "gauss_newton of a model": lambda _: ritz.gauss_newton(MODEL),
    "kernel of a model": lambda _: ritz.ntk(MODEL),
    **{
        f"{solver.__name__} of a tensor": lambda _, solver=solver: solver(MATRIX)
        for solver in (ritz.trace, ritz.spectral_density, ritz.diagonal, ritz.log_determinant, ritz.effective_rank)
    },
    "eigenpairs of a tensor": lambda _: ritz.eigenpairs(MATRIX, 1),
    "negative_mass of a tensor": lambda _: ritz.negative_mass(MATRIX),
    "lanczos of a tensor": lambda _: ritz.lanczos(MATRIX, torch.ones(5, 1), 2),
    "solve with a tensor": lambda _: ritz.solve(MATRIX, torch.ones(5)),
    "deflated tensor": lambda _: ritz.deflated(MATRIX, MATRIX[:, :1]),
    **{
        f"{function.__name__} of an operator": lambda _, function=function: function(hessian())
        for function in (
            *(ritz.kfac, ritz.ekfac, ritz.cfac, ritz.gram_spectrum, ritz.attribution, ritz.class_decomposition),
            *(ritz.classes.features, ritz.classes.backpropagated_errors, ritz.analysis.spectrum.run),
        )
    },
    "eigenpairs, k None": lambda _: ritz.eigenpairs(hessian(), None),
    "tolerance None": lambda _: ritz.eigenpairs(hessian(), 1, tolerance=None),
    "tolerance of text": lambda _: ritz.eigenpairs(hessian(), 1, tolerance="a"),
    "start 5": lambda _: ritz.eigenpairs(hessian(), 1, start=5),
    "first of text": lambda _: risk().first("a"),
    "first half": lambda _: risk().first(2.5),
    "to a precision in words": lambda _: risk().to("float64"),
    "to two devices": lambda _: risk().to("cpu", device="cpu"),
    "to a device that is none": lambda _: risk().to(torch.float64, device="nowhere"),
    "memory in a list": lambda _: risk(memory=[]),
    "group 5": lambda _: risk(group=5),
    "at 5": lambda _: risk().at(5),
    "at a text": lambda _: risk().at("a"),
    "classes in dimension 9": lambda _: ritz.Risk(MODEL, ritz.CrossEntropy(class_dim=9), (X, Y)),
    "classes in a dimension of text": lambda _: ritz.CrossEntropy(class_dim="a"),
    "smoothing of text": lambda _: ritz.CrossEntropy(label_smoothing="a"),
    "weights in a list": lambda _: ritz.CrossEntropy(weight=[1, 2, 3]),
    "density at a list": lambda _: spectrum().density([1.0, 2.0]),
    "cdf at a list": lambda _: spectrum().cdf([1.0]),
    "spectrum of lists": lambda _: ritz.Spectrum([1.0], [1.0], 3),
    "spectrum of a rectangle": lambda _: ritz.Spectrum.of_matrix(torch.ones(3, 2)),
    "moment of text": lambda _: spectrum().moment("a"),
    "no panels": lambda _: plot.panels(0),
    "panels of text": lambda _: plot.panels("a"),
    "record at None": lambda _: ritz.Record.load(None),
    "record at 5": lambda _: ritz.Record.load(5),
    "record at a name with a zero": lambda _: ritz.Record.load("a\0b"),
    "training without data": lambda _: trained(data=None),
    "training on a number": lambda _: trained(data=5),
    "training of nothing": lambda _: trained(model=None),
    "training without an optimiser": lambda _: trained(optimizer="a"),
    "training with a class for a loss": lambda _: trained(loss=nn.CrossEntropyLoss),
    "sweep over None": lambda folder: lab.sweeps.sweep(print, None, folder),
    "sweep over one config": lambda folder: lab.sweeps.sweep(print, {"x": 1}, folder),
    "sweep of nothing": lambda folder: lab.sweeps.sweep(None, [{"x": 1}], folder),
    "low rank of a number": lambda _: ritz.low_rank(5),
    "operator of a list": lambda _: ritz.Operator.from_matrix([[1.0]]),
    "operator of None": lambda _: ritz.Operator.from_scipy(5),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", [*SILENT, *RAW])
def test_bad_input_gets_what_why_and_a_way_out(name, tmp_path):
    with pytest.raises(RitzError) as caught:
        {**SILENT, **RAW}[name](tmp_path)
    assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_memory_may_be_written_as_text_and_a_device_by_its_name():
    assert risk(memory="1G").memory == pytest.approx(2**30, rel=1e-3)
    assert risk().to(torch.float64, device="cpu").dtype == torch.float64


def test_the_remedies_that_refusals_offer_work():
    loss = ritz.CrossEntropy(class_dim=-1, label_smoothing=1, reduction="sum", weight=torch.ones(3))
    assert ritz.Risk(MODEL, loss, (X, Y)).first(17).num_examples == 17
    assert ritz.eigenpairs(ritz.Operator.from_matrix(MATRIX), 1).values.shape == (1,)
    assert isinstance(ritz.hessian(risk()) @ torch.ones(21), torch.Tensor)


class Loader:
    """Batches, the second of which cannot be read."""

    def __init__(self, error):
        self.error = error

    def __iter__(self):
        yield X[:9], Y[:9]
        raise self.error


@pytest.mark.parametrize("kind", [KeyError, AssertionError, OSError, ValueError, RuntimeError])
def test_an_error_of_the_users_loader_passes_with_the_number_of_the_batch(kind):
    error = kind("mine")
    with pytest.raises(kind) as caught:
        ritz.Risk(MODEL, nn.CrossEntropyLoss(), Loader(error))
    assert caught.value is error and "reading batch 1 of the data" in error.__notes__[0]


@pytest.mark.parametrize("kind", [KeyError, AssertionError, OSError])
def test_an_error_of_the_users_loss_passes_with_the_examples(kind):
    error = kind("mine")

    def loss(z, y):
        if 2 in y[:1]:
            raise error
        return nn.functional.cross_entropy(z, y, reduction="none")

    with pytest.raises(kind) as caught:
        ritz.Risk(MODEL, loss, [(X[:8], Y[:8]), (X[8:], Y[8:])])
    assert caught.value is error and "a batch of 10: examples 8 to 17 of the data" in error.__notes__[0]


ERRORS = []


class Moody(nn.Linear):
    """Fails once there is an error to raise, on a batch of ten."""

    def __init__(self):
        super().__init__(6, 3)

    def forward(self, x):
        if ERRORS and len(x) == 10:
            raise ERRORS[0]
        return super().forward(x)


@pytest.mark.parametrize("kind", [KeyError, RuntimeError])
def test_an_error_of_the_users_model_in_a_later_product_passes_with_the_examples(kind):
    model, errors = Moody(), ERRORS
    errors.clear()
    subject = ritz.Risk(model, nn.CrossEntropyLoss(), [(X[:8], Y[:8]), (X[8:], Y[8:])], memory=0)
    A = ritz.hessian(subject)
    A @ torch.ones(A.size)
    errors.append(kind("mine"))
    with pytest.raises(kind) as caught:
        A @ torch.ones(A.size)
    assert caught.value is errors[0] and "examples 8 to 17" in errors[0].__notes__[0]


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_product_is_said_to_be_one_and_not_the_vector():
    A = ritz.Operator(lambda V: V * math.nan, 600, torch.float32, torch.device("cpu"))
    with pytest.raises(NumericalError, match="product with the operator"):
        ritz.eigenpairs(A, 1)
