"""Inverses of Kronecker-factored curvature: against dense solves."""

import pytest
import torch
from torch import nn

from ritz.errors import ArgumentError
from ritz.factored import cfac, eigenbases, ekfac, kfac, khatri_rao_cfac, khatri_rao_kfac, kronecker
from ritz.risk import Risk
from tests.factored.networks import LABELS, close, idle_risk, risk_of, unequal

BUILDS = [kfac, ekfac, cfac, khatri_rao_kfac, khatri_rao_cfac]


def solve(dense, damping, v):
    return torch.linalg.solve(dense + damping * torch.eye(len(dense), dtype=dense.dtype), v)


def near(found, expected):
    """Equal to 1e-11 of the largest entry: a solve rounds relative to its whole result, not entry by entry."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11 * float(expected.abs().max()))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "tokens"])
def test_inverses_are_dense_solves(name, build, generator):
    risk, _, _ = risk_of(name)
    found, V = build(risk), torch.randn(risk.size, 3, generator=generator, dtype=torch.float64)
    dense, inverse = found.operator.dense(), found.operator.inverse(1e-3)
    near(inverse @ V, solve(dense, 1e-3, V))
    near(found.inverse(0.1) @ V[:, 0], solve(dense, 0.1, V[:, 0]))
    again = inverse.inverse(0.5)
    near(again @ V, solve(inverse.dense(), 0.5, V))
    shifted = (2 * found.operator + 0.01).inverse(0.0)
    near(shifted @ V, solve(2 * dense, 0.01, V))


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("build", [kfac, ekfac, cfac])
def test_layers_have_inverses_of_their_own(build, joint):
    risk, _, _ = risk_of("cnn")
    for layer in build(risk, joint=joint).layers.values():
        v = torch.randn(layer.size, dtype=torch.float64)
        near(layer.inverse(1e-2) @ v, solve(layer.operator.dense(), 1e-2, v))


@pytest.mark.parametrize("build", [kfac, ekfac, cfac])
def test_parameters_without_influence_are_divided_by_the_damping(build):
    risk = idle_risk()
    found, V = build(risk), torch.randn(risk.size, 2, dtype=torch.float64)
    inverse = found.inverse(0.25)
    close(inverse @ V, solve(found.operator.dense(), 0.25, V))
    close(inverse.inverse(1.0) @ V, solve(inverse.dense(), 1.0, V))
    close((inverse @ V)[:6], 4 * V[:6])


def test_a_sum_over_classes_that_is_too_large_has_no_inverse(monkeypatch):
    monkeypatch.setattr(kronecker, "DENSE", 20)
    risk, _, _ = risk_of("cnn")
    found = cfac(risk)
    assert found.inverse is None and found.operator.inverse is None
    assert kfac(risk).inverse is not None


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("damping", [0.0, -1e-20])
def test_singular_matrices_are_refused_and_the_way_out_works(build, damping):
    found = build(risk_of("mlp")[0])
    with pytest.raises(ArgumentError, match="singular") as error:
        found.inverse(damping)
    enough = float(error.value.ways_out[0].split()[-3])
    v = torch.randn(found.risk.size, dtype=torch.float64)
    close(found.inverse(enough) @ v, solve(found.operator.dense(), enough, v))


def test_a_damping_far_below_the_largest_eigenvalue_still_inverts():
    found = kfac(risk_of("mlp")[0])
    dense, damping = found.operator.dense(), 1e-9
    v = torch.randn(found.risk.size, dtype=torch.float64)
    residual = (dense + damping * torch.eye(len(dense))) @ (found.inverse(damping) @ v) - v
    assert float(residual.norm()) < 1e-5 * float(v.norm())


def test_eigenvectors_are_computed_once_and_only_for_inverses(monkeypatch):
    calls = []
    monkeypatch.setattr(eigenbases, "_eigen", lambda M, own=eigenbases._eigen: calls.append(len(M)) or own(M))
    found = kfac(risk_of("mlp")[0])
    found @ torch.ones(found.risk.size, dtype=torch.float64)
    assert not calls
    found.inverse(0.1), found.inverse(0.2), found.layers["0"].inverse(0.3)
    assert len(calls) == 6


def test_eigenvectors_beyond_the_memory_are_refused():
    risk, model, x = risk_of("cnn")
    needed = sum(8 * (layer.errors.numel() + layer.features.numel()) for layer in kfac(risk).layers.values())
    little = kfac(Risk(model, nn.CrossEntropyLoss(), unequal(x, LABELS), memory=needed + risk.batches.held_bytes()))
    with pytest.raises(ArgumentError, match="GiB"):
        little.inverse(0.1)


def test_float32_inverts_to_its_precision():
    risk, model, x = risk_of("cnn")
    single = Risk(model.float(), nn.CrossEntropyLoss(), unequal(x.float(), LABELS))
    v = torch.randn(risk.size, dtype=torch.float64)
    for build in BUILDS:
        ours, exact = build(single).inverse(0.1) @ v.float(), solve(build(risk).operator.dense(), 0.1, v)
        assert ours.dtype == torch.float32 and float((ours - exact).norm()) < 1e-4 * float(exact.norm())
