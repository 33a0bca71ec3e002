"""Classes in gradients and layers, knockouts and attribution on the device are those on the CPU."""

import pytest
import torch

import ritz
from ritz import classes
from tests_gpu.devices import DEVICE, assert_same, normal, risks, seeded

PARTS = ["between_class", "cross_class", "own_class", "within"]
NETWORKS = ["mlp", "cnn", "transformer"]


@pytest.fixture(scope="module", params=NETWORKS)
def decompositions(request):
    return [classes.class_decomposition(risk) for risk in risks(request.param)]


@pytest.mark.parametrize("part", PARTS)
def test_parts_agree(decompositions, part):
    here, there = (getattr(found, part) for found in decompositions)
    V = normal(here.size, 3)
    assert_same(there @ V.to(DEVICE), here @ V)


def test_ranks_traces_and_weights_agree(decompositions):
    here, there = decompositions
    assert there.ranks == here.ranks and there.num_classes == here.num_classes
    for name in ("traces", "within_traces", "own_weights", "class_weights", "labels"):
        assert_same(getattr(there, name), getattr(here, name))


@pytest.mark.parametrize("name", NETWORKS)
def test_data_on_the_cpu_serve(name, place):
    here, there = (classes.class_decomposition(risk).between_class for risk in risks(name, place))
    V = normal(here.size, 2)
    assert_same(there @ V.to(DEVICE), here @ V)


@pytest.mark.parametrize("knockout", ["subtract", "project"])
def test_knockouts_agree(decompositions, knockout):
    def knocked_out(found):
        G = found.between_class + found.cross_class + found.own_class + found.within
        return getattr(classes, knockout)(G, found.between_class)

    here, there = (knocked_out(found) for found in decompositions)
    V = normal(here.size, 2)
    assert_same(there @ V.to(DEVICE), here @ V, rtol=1e-7)


@pytest.mark.parametrize("structure", ["features", "backpropagated_errors"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_structure_of_layers_agrees(structure, name, place):
    here, there = (getattr(classes, structure)(risk) for risk in risks(name, place))
    assert_same(there, here, rtol=1e-7, skip={"vectors"})


def test_structure_of_weights_agrees(place):
    here, there = (classes.weights(risk, 5e-4) for risk in risks("mlp", place))
    assert_same(there, here, rtol=1e-7, skip={"vectors"})


@pytest.mark.parametrize("exact_rows", [3000, 0], ids=["through the Gram matrix", "through products"])
def test_attributions_agree(exact_rows, place):
    def of(risk):
        return ritz.attribution(risk, num_lines=3, exact_rows=exact_rows, generator=seeded())

    here, there = (of(risk) for risk in risks("cnn", place))
    for matrix in ("hessian", "gauss_newton"):
        one, other = getattr(there, matrix), getattr(here, matrix)
        assert_same(one.pairs.values, other.pairs.values, rtol=1e-3)
        assert_same(dict(one.shares), dict(other.shares), rtol=1e-2)
    assert_same(dict(there.part_eigenvalues), dict(here.part_eigenvalues), rtol=1e-7)
    assert there.within_edge == pytest.approx(here.within_edge, rel=1e-3)
    assert there.counts == here.counts
    torch.testing.assert_close(there.overlaps.cpu(), here.overlaps, rtol=0, atol=1e-2)
