"""The Gram matrix and Kronecker factors on the device are those on the CPU."""

import pytest
import torch

import ritz
from ritz import factored
from tests_gpu.devices import DEVICE, assert_same, normal, risks

KRONECKER = ["kfac", "cfac", "ekfac", "khatri_rao_kfac", "khatri_rao_cfac"]


def as_operator(factors):
    return factors if isinstance(factors, ritz.Operator) else factors.operator


@pytest.mark.parametrize("knockout", [{}, {"subtract": ["between_class"]}, {"project": ["between_class"]}], ids=str)
@pytest.mark.parametrize("name", ["mlp", "cnn", "residual", "transformer"])
def test_gram_spectra_agree(name, knockout, place):
    here, there = (factored.gram_spectrum(risk, **knockout) for risk in risks(name, place))
    assert_same(there.nodes, here.nodes, rtol=1e-8)
    torch.testing.assert_close(there.weights.cpu(), here.weights)


def test_gram_spectra_are_those_of_dense_matrices(place):
    here, there = risks("cnn", place)
    exact = torch.linalg.eigvalsh(ritz.gauss_newton(here).dense())
    assert float(factored.gram_spectrum(there).nodes.max()) == pytest.approx(float(exact.max()), rel=1e-9)


@pytest.mark.parametrize("kind", KRONECKER)
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_kronecker_factors_agree(kind, name, place):
    make = getattr(factored, kind, None) or getattr(ritz, kind, None)
    if make is None:
        pytest.skip(f"ritz has no {kind}.")
    here, there = (as_operator(make(linear(risk))) for risk in risks(name, place))
    V = normal(here.size, 3)
    assert_same(there @ V.to(DEVICE), here @ V)


@pytest.mark.parametrize("kind", ["kfac", "cfac", "ekfac"])
def test_inverses_agree(kind):
    make = getattr(factored, kind, None) or getattr(ritz, kind, None)
    if make is None:
        pytest.skip(f"ritz has no {kind}.")
    here, there = (as_operator(make(linear(risk))) for risk in risks("mlp"))
    if here.inverse is None:
        pytest.skip(f"The inverse of {kind} is not known.")
    V = normal(here.size, 3)
    assert_same(there.inverse(0.1) @ V.to(DEVICE), here.inverse(0.1) @ V, rtol=1e-7)


def linear(risk):
    """The risk as a function of the linear and convolutional layers alone, whose curvature has Kronecker factors."""
    matrices = {name.rpartition(".")[0] for name, shape in risk.shapes.items() if len(shape) > 1}
    return risk.restricted_to([f"{layer}.*" for layer in sorted(matrices)])
