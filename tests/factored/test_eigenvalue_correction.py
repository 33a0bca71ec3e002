"""EKFAC: against the dense G in the eigenvectors of KFAC's factors, and curvlinops."""

import pytest
import torch
from curvlinops import EKFACLinearOperator
from torch import nn

import ritz
from ritz.errors import ArgumentError
from ritz.factored import ekfac, kfac
from ritz.operators import gauss_newton
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from tests.factored.networks import LABELS, MODELS, OPTIONS, built, close, risk_of, unequal


def blocks(risk, joint=True):
    """Each layer's G, KFAC and EKFAC, dense."""
    ours, theirs = ekfac(risk, joint=joint), kfac(risk, joint=joint)
    assert list(ours.layers) == list(theirs.layers)
    for name, layer in ours.layers.items():
        own = [parameter for parameter in risk.shapes if parameter.rpartition(".")[0] == name]
        G = gauss_newton(risk.restricted_to(own)).dense()
        yield G, theirs.layers[name].operator.dense(), layer.operator.dense()


@pytest.mark.parametrize("joint, options", [(False, {}), *((True, options) for options in OPTIONS)])
@pytest.mark.parametrize("name", MODELS)
def test_the_trace_is_that_of_the_block_and_no_diagonal_comes_nearer(name, joint, options):
    risk, _, _ = risk_of(name, **options)
    gains = []
    for G, K, E in blocks(risk, joint):
        assert float(E.trace()) == pytest.approx(float(G.trace()), rel=1e-12)
        corrected, plain = float((G - E).norm()), float((G - K).norm())
        assert corrected <= plain * (1 + 1e-12)
        gains.append(plain - corrected)
    assert max(gains) > 0


@pytest.mark.parametrize(
    "loss", [nn.MSELoss(), nn.BCEWithLogitsLoss(reduction="sum"), lambda z, y: ((z - y) ** 4).sum(-1)]
)
@pytest.mark.parametrize("name", ["mlp", "cnn", "tokens"])
def test_eigenvalues_are_the_diagonal_of_the_block_in_the_eigenvectors_of_kfac(name, loss):
    model, x = built(name)
    targets = torch.rand(11, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    risk = Risk(model, loss, unequal(x, targets))
    factors = kfac(risk).layers
    for layer in ekfac(risk).layers.values():
        ((D, Phi),) = factors[layer.name].factors
        left, right = (torch.linalg.eigh(factor).eigenvectors for factor in (D, Phi))
        G = gauss_newton(risk.restricted_to(f"{layer.name}.*")).dense()
        order = torch.cat([torch.arange(layer.size).view(len(D), -1)[:, :-1].flatten(),
                           torch.arange(layer.size).view(len(D), -1)[:, -1]])  # fmt: skip
        U = torch.kron(left, right)[order]  # rows in the order of θ
        close(layer.operator.dense(), U @ torch.diag((U.T @ G @ U).diagonal()) @ U.T)
        close(layer.spectrum().nodes[0].sort().values, (U.T @ G @ U).diagonal().sort().values)


def test_several_terms_of_an_example_do_not_mix():
    model = nn.Sequential(nn.Linear(4, 15), nn.Unflatten(1, (5, 3))).double()
    risk = Risk(model, CrossEntropy(ignore_index=0), (torch.randn(4, 4).double(), torch.randint(3, (4, 5))))
    G, K, E = gauss_newton(risk).dense(), kfac(risk).operator.dense(), ekfac(risk).operator.dense()
    assert float(E.trace()) == pytest.approx(float(G.trace()), rel=1e-12)
    assert float((G - E).norm()) < float((G - K).norm())


def test_ekfac_is_that_of_curvlinops_at_one_position():
    risk, model, x = risk_of("mlp")
    options = {"fisher_type": "type-2", "separate_weight_and_bias": False}
    K = EKFACLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), unequal(x, LABELS), **options)
    close(ekfac(risk).operator.dense(), K @ torch.eye(K.shape[0], dtype=torch.float64))


def test_kfac_of_one_example_is_its_own_correction():
    model, x = built("mlp", 1)
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.tensor([1])))
    close(ekfac(risk).operator.dense(), kfac(risk).operator.dense())


def test_a_bias_that_is_apart_stays_so_where_eigenvalues_are_equal():
    model = nn.Sequential(nn.Linear(2, 3)).double()
    risk = Risk(model, nn.MSELoss(), (torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double(), torch.zeros(2, 3).double()))
    E = ekfac(risk, joint=False).operator.dense()  # E[φφᵀ] = diag(1, 0), and one for the bias
    close(E, gauss_newton(risk).dense() * (E != 0))
    assert not bool(E[:6, 6:].any())


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_it_multiplies_and_has_a_spectrum_as_an_operator_does(name):
    risk, _, _ = risk_of(name)
    found, V = ritz.ekfac(risk), torch.randn(risk_of(name)[0].size, 2, dtype=torch.float64)
    dense = found.operator.dense()
    close(found @ V, dense @ V)
    close(dense, torch.block_diag(*[layer.operator.dense() for layer in found.layers.values()]))
    spectrum, exact = found.spectrum(), torch.linalg.eigvalsh(dense)
    torch.testing.assert_close(spectrum.nodes[0].sort().values, exact, rtol=1e-9, atol=1e-13 * float(exact[-1]))
    top = ritz.eigenpairs(found.operator, 3)
    close(top.values.sort().values, exact[-3:])


def test_memory_for_one_example_at_a_time_gives_the_same():
    risk, model, x = risk_of("cnn")
    sizes = [layer.basis.values.shape for layer in ekfac(risk).layers.values()]
    needed = sum(8 * (2 * (o * o + d * d) + o * d) for o, d in sizes)
    little = Risk(model, nn.CrossEntropyLoss(), unequal(x, LABELS), memory=needed + risk.batches.held_bytes())
    close(ekfac(little).operator.dense(), ekfac(risk).operator.dense())
    with pytest.raises(ArgumentError, match="GiB"):
        ekfac(Risk(model, nn.CrossEntropyLoss(), unequal(x, LABELS), memory=needed + risk.batches.held_bytes() - 1))


def test_float32_gives_the_same_to_its_precision():
    risk, model, x = risk_of("cnn")
    ours = ekfac(Risk(model.float(), nn.CrossEntropyLoss(), unequal(x.float(), LABELS))).operator.dense()
    exact = ekfac(risk).operator.dense()
    assert ours.dtype == torch.float32 and float((ours.double() - exact).norm()) < 1e-4 * float(exact.norm())
