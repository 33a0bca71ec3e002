"""Risks, operators and results can be copied, pickled and sent to a worker, and multiply there to the same bits."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from torch import nn

import ritz
from ritz.classes.gradients.part_products import PartProducts
from ritz.errors import RitzError
from ritz.factored import khatri_rao_cfac
from ritz.risk.class_terms import cross_weights
from tests.processes import CONTEXT

X, Y = torch.randn(23, 5, generator=torch.Generator().manual_seed(0)), torch.arange(23) % 3
BATCHES = [(X[:9], Y[:9]), (X[9:], Y[9:])]


def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3))


def risk(loss=None, **options):
    return ritz.Risk(model(), nn.CrossEntropyLoss() if loss is None else loss, BATCHES, **options)


def linear_risk():
    first, activation, _, last = model()
    return ritz.Risk(nn.Sequential(first, activation, last), nn.CrossEntropyLoss(), BATCHES)


def vectors(A):
    return torch.randn(A.size, 3, generator=torch.Generator().manual_seed(1), dtype=A.dtype)


def combination(subject):
    H, G = ritz.hessian(subject), ritz.gauss_newton(subject)
    return ritz.deflated(2 * (H - G) + 0.5, torch.eye(H.size)[:, :2]) + ritz.low_rank(torch.ones(H.size, 1))


OPERATORS = {
    "hessian": ritz.hessian,
    "gauss_newton": ritz.gauss_newton,
    "functional_hessian": ritz.functional_hessian,
    "empirical_fisher": ritz.empirical_fisher,
    "monte_carlo_fisher": ritz.monte_carlo_fisher,
    "gradient_covariance": ritz.gradient_covariance,
    "ntk": ritz.ntk,
    "part of G": lambda subject: PartProducts(subject, cross_weights(subject)).operator("cross_class"),
    "sum": lambda subject: ritz.low_rank(torch.ones(subject.size, 1)) + ritz.hessian(subject),
    "combination": combination,
    "preconditioned": lambda subject: ritz.preconditioned(ritz.hessian(subject), torch.ones(subject.size)),
    "kfac": lambda _: ritz.kfac(linear_risk()).operator,
    "ekfac": lambda _: ritz.ekfac(linear_risk()).operator,
    "cfac": lambda _: ritz.cfac(linear_risk()).operator,
    "khatri-rao": lambda _: khatri_rao_cfac(linear_risk()).operator,
    "kfac's inverse": lambda _: ritz.kfac(linear_risk()).inverse(0.1),
    "cfac's inverse": lambda _: ritz.cfac(linear_risk()).inverse(0.1),
    "khatri-rao's inverse": lambda _: khatri_rao_cfac(linear_risk()).inverse(0.1),
    "matrix": lambda _: ritz.Operator.from_matrix(torch.eye(4)),
}


@pytest.mark.parametrize("way", [copy.deepcopy, lambda A: pickle.loads(pickle.dumps(A))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_multiplies_to_the_same_bits_after_its_journey(name, way):
    A = OPERATORS[name](risk())
    before, expected = way(A), A @ vectors(A)  # before its first product, and after it
    for B in (before, way(A)):
        assert torch.equal(B @ vectors(A), expected)
        assert (B.size, B.dtype, B.device) == (A.size, A.dtype, A.device)
        assert (B.room is None) == (A.room is None) and B.semidefinite == A.semidefinite


@pytest.mark.parametrize("way", [copy.deepcopy, lambda A: pickle.loads(pickle.dumps(A))], ids=["deepcopy", "pickle"])
def test_a_risk_is_the_same_after_its_journey(way):
    one = risk()
    other = way(one)
    assert other.loss_value() == one.loss_value() and torch.equal(other.gradient(), one.gradient())
    assert other.first(5).num_examples == 5 and other.restricted_to("0.*").size == 42
    assert other.at(torch.zeros(one.size)).loss_value() == one.at(torch.zeros(one.size)).loss_value()
    one.theta.zero_()
    assert float(other.theta.abs().max()) > 0


@pytest.mark.parametrize("factorisation", [ritz.kfac, ritz.ekfac, ritz.cfac])
def test_a_factorisation_is_inverted_after_its_journey_as_before(factorisation):
    K = factorisation(linear_risk())
    there = pickle.loads(pickle.dumps(K))
    v = vectors(K.operator)
    assert torch.equal(there.inverse(0.1) @ v, K.inverse(0.1) @ v)
    assert torch.equal(there.spectrum().nodes, K.spectrum().nodes) and repr(there) == repr(K)


def multiplied(A, V):
    return A @ V


def test_an_operator_sent_to_a_worker_multiplies_there_to_the_same_bits():
    H = ritz.hessian(risk())
    pairs, spectrum = ritz.eigenpairs(H, 2), ritz.spectral_density(H, num_steps=5)
    K = ritz.ekfac(linear_risk())
    with ProcessPoolExecutor(1, mp_context=CONTEXT) as pool:
        there = pool.submit(multiplied, H, vectors(H)).result()
        factored = pool.submit(multiplied, K, vectors(K.operator)).result()
        back = [pool.submit(copy.copy, result).result() for result in (pairs, spectrum)]
    assert torch.equal(there, H @ vectors(H)) and torch.equal(factored, K @ vectors(K.operator))
    assert torch.equal(back[0].vectors, pairs.vectors) and torch.equal(back[1].nodes, spectrum.nodes)


class Stream:
    def __iter__(self):
        return iter(BATCHES)


@pytest.mark.parametrize(
    "subject, message",
    [
        (lambda: ritz.Risk(model(), nn.CrossEntropyLoss(), Stream(), memory=0), "read anew"),
        (lambda: risk(lambda z, y: nn.functional.cross_entropy(z, y, reduction="none")), "loss cannot be sent"),
        (lambda: ritz.Risk(local_model(), nn.CrossEntropyLoss(), BATCHES), "model cannot be sent"),
    ],
)
def test_objects_that_another_process_could_not_import_are_refused_with_the_way_out(subject, message):
    for thing in (subject(), ritz.hessian(subject())):
        with pytest.raises(RitzError, match=message) as caught:
            pickle.dumps(thing)
        assert any("Build the risk where it is needed" in way for way in caught.value.ways_out)
    H = ritz.hessian(subject())
    assert torch.equal(copy.deepcopy(H) @ vectors(H), H @ vectors(H))  # a copy stays here


def local_model():
    class Local(nn.Linear):
        pass

    return Local(5, 3)
