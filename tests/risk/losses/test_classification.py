"""A new classification loss is one class: what ritz knows of classes serves it, right against dense autograd."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.classes import attribution, backpropagated_errors, class_decomposition, features
from ritz.errors import DataError
from ritz.factored import cfac, ekfac, gram_spectrum, kfac
from ritz.risk import Classification, Risk
from tests.classes.gradients.dense_parts import PARTS, Dense
from tests.factored.networks import dense_factors, in_order_of_theta
from tests.risk.losses.derivatives import check_derivatives, check_square_root

C, TEMPERATURE = 3, 2.5
LABELS = torch.tensor([0, 1, 0, 2, 7, 1, 0, 2, 0, 1, 0])  # unbalanced; 7 is ignored


class Adjusted(Classification):
    """Cross-entropy of z / T + log π: logits adjusted by the frequencies of the classes, softened by a temperature."""

    reduction = "mean"
    ignore_index = 7

    def __init__(self, priors, temperature):
        self.priors, self.temperature = priors, temperature

    def terms(self, z, y):
        p = self.probabilities(z).log().gather(1, self.labels(y)[:, None])
        return -p[:, 0] * self.weights(z, y)

    def weights(self, z, y):
        return (~self.ignored(y)).to(z)

    def gradient(self, z, y):
        hot = F.one_hot(self.labels(y), z.shape[1]).to(z)
        return (self.probabilities(z) - hot) * self.weights(z, y)[:, None] / self.temperature

    def probabilities(self, z):
        return (z / self.temperature + self.priors.to(z).log()).softmax(-1)

    def masses(self, z, y):
        return self.weights(z, y) / self.temperature**2


LOSS = Adjusted(torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64), TEMPERATURE)


class Softened(nn.Module):
    """The adjustments of `Adjusted` as part of the network, in front of plain cross-entropy."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x) / TEMPERATURE + LOSS.priors.log()


def data():
    x = torch.randn(len(LABELS), 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, [(x[:7], LABELS[:7]), (x[7:], LABELS[7:])]


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, C)).double()


@pytest.fixture(scope="module")
def risk(network):
    return Risk(network, LOSS, data()[1])


def outputs_of(network):
    """z of all data as a function of θ."""
    shapes, (x, _) = {name: value.shape for name, value in network.named_parameters()}, data()

    def outputs(theta):
        pieces = theta.split([shape.numel() for shape in shapes.values()])
        tensors = {name: piece.view(shapes[name]) for name, piece in zip(shapes, pieces, strict=True)}
        return torch.func.functional_call(network, tensors, (x,))

    return outputs


@pytest.fixture(scope="module")
def dense(network, risk):
    """The parts of G by their definitions, from the Jacobian of the network."""
    outputs, kept = outputs_of(network), ~LOSS.ignored(LABELS)
    z, J = outputs(risk.theta).detach(), torch.func.jacrev(outputs)(risk.theta)
    softened = z / TEMPERATURE + LOSS.priors.log()
    return Dense(J[kept], softened[kept], LABELS[kept], torch.ones(int(kept.sum())).double() / TEMPERATURE**2, 10.0)


def test_its_derivatives_follow_from_masses_and_probabilities(normal):
    z, y = normal(4, C), torch.tensor([0, 2, 7, 1])
    kept = (y != LOSS.ignore_index).double()
    plain = lambda t: F.cross_entropy(t / TEMPERATURE + LOSS.priors.log(), y, ignore_index=7, reduction="none")
    check_derivatives(LOSS, z, y, lambda t: (plain(t) * kept).sum())
    check_square_root(LOSS, z, y)


def test_hessian_and_gauss_newton_are_those_of_autograd(risk, network):
    outputs = outputs_of(network)
    value = lambda theta: F.cross_entropy(outputs(theta) / TEMPERATURE + LOSS.priors.log(), LABELS, ignore_index=7)
    assert risk.loss_value() == pytest.approx(float(value(risk.theta)), rel=1e-12)
    assert_close(ritz.hessian(risk).dense(), torch.func.hessian(value)(risk.theta))
    J = torch.func.jacrev(outputs)(risk.theta).flatten(0, 1)
    outer = torch.func.hessian(
        lambda z: F.cross_entropy(z.view(-1, C) / TEMPERATURE + LOSS.priors.log(), LABELS, ignore_index=7)
    )(outputs(risk.theta).flatten())
    assert_close(ritz.gauss_newton(risk).dense(), J.T @ outer @ J)


def test_its_sampled_gradients_have_the_hessian_as_second_moment(normal):
    z, y, levels = normal(1, C), torch.tensor([1]), 2000
    uniform = (torch.arange(levels).double() + 0.5) / levels  # every share of the labels that may be drawn
    samples = LOSS.sampled_gradient(z.expand(levels, C), y.expand(levels), uniform)
    S = LOSS.square_root(z, y)[0]
    assert_close(samples.T @ samples / levels, S @ S.T, rtol=0, atol=1e-3)


def test_every_part_of_its_decomposition_is_the_dense_one(risk, dense):
    classes = class_decomposition(risk)
    assert_close(classes.cross_weights, dense.cross_weights)
    for part in PARTS:
        assert_close(getattr(classes, part).dense(), dense.parts[part])
    assert_close(classes.within_traces, dense.traces["within"])


@pytest.mark.parametrize("removed", [(), ("between_class",), PARTS[:3]])
def test_its_gram_spectrum_is_that_of_the_dense_matrix(risk, dense, removed):
    left = sum(dense.parts.values()) - sum((dense.parts[part] for part in removed), torch.zeros(1).double())
    spectrum = gram_spectrum(risk, subtract=removed)
    counts = (spectrum.weights[0] * spectrum.size).round().long()
    values = spectrum.nodes[0].repeat_interleave(counts).sort().values
    assert_close(values, torch.linalg.eigvalsh(left), rtol=0, atol=1e-12)


def test_its_attribution_splits_eigenvalues_among_the_dense_parts(risk, dense):
    result = attribution(risk, num_lines=3, generator=torch.Generator().manual_seed(0))
    V, values = result.gauss_newton.pairs.vectors, result.gauss_newton.pairs.values
    assert_close(values, torch.linalg.eigvalsh(sum(dense.parts.values())).flip(0)[:3])
    for part in PARTS:
        energy = torch.einsum("nk,nm,mk->k", V, dense.parts[part], V) / values
        assert_close(result.gauss_newton.shares[part], energy, rtol=0, atol=1e-9)
    assert result.counts["zero"] == risk.size - 10 * (C - 1)


def test_its_kronecker_factors_are_those_of_hooks_and_autograd(risk, network):
    softened, kept = Softened(network), ~LOSS.ignored(LABELS)
    x, labels = data()[0][kept], LABELS[kept]
    for layer in ("0", "2"):
        count, Phi, D = dense_factors(softened, f"network.{layer}", x, labels, torch.ones(10).double(), 10.0)
        assert_close(kfac(risk).layers[layer].operator.dense(), in_order_of_theta(D.sum(0), Phi.sum(0) / count.sum()))
        parts = [in_order_of_theta(D[c], Phi[c] / count[c]) for c in range(C)]
        assert_close(cfac(risk).layers[layer].operator.dense(), torch.stack(parts).sum(0))
    assert_close(ekfac(risk).operator.dense().trace(), ritz.gauss_newton(risk).dense().trace())


def test_structure_of_its_layers_is_that_of_the_softened_network(risk, network):
    plain = Risk(Softened(network), nn.CrossEntropyLoss(ignore_index=7), data()[1])
    for name, layer in features(risk).items():
        assert_close(layer.class_means, features(plain)[f"network.{name}"].class_means)
        errors, expected = backpropagated_errors(risk)[name], backpropagated_errors(plain)[f"network.{name}"]
        for part in PARTS:
            assert_close(getattr(errors, part).dense(), getattr(expected, part).dense())


@pytest.mark.parametrize("targets", [torch.rand(4, C).double(), torch.rand(4).double(), torch.tensor([0, 1, 2, 3])])
def test_targets_that_are_not_labels_are_refused(network, targets):
    with pytest.raises(DataError):
        _ = Risk(network, LOSS, (data()[0][:4], targets)).loss_value()


@pytest.mark.parametrize("targets", [torch.zeros(8).long(), torch.ones(8, 1)])
def test_a_single_logit_is_refused_because_its_cross_entropy_is_always_zero(targets):
    with pytest.raises(DataError, match=r"of one class in dimension 1\.[\s\S]*BinaryCrossEntropy"):
        Risk(nn.Linear(4, 1), nn.CrossEntropyLoss(), (torch.randn(8, 4), targets))
