"""Solvers give on the device what they give on the CPU, from the same seed."""

from dataclasses import replace

import pytest
import torch

import ritz
from ritz import solvers
from tests_gpu.devices import DEVICE, assert_same, normal, risks, seeded

WORK = {
    "trace": lambda A: solvers.trace(A, generator=seeded()),
    "hutchinson": lambda A: solvers.hutchinson(A, num_products=20, generator=seeded()),
    "effective rank": lambda A: solvers.effective_rank(A, num_products=20, generator=seeded()),
    "negative mass": lambda A: solvers.negative_mass(A, num_steps=20, num_probes=3, generator=seeded()),
    "log-determinant": lambda A: solvers.log_determinant(A, damping=10.0, num_steps=20, num_probes=3),
    "condition number": lambda A: solvers.condition_number(A, damping=10.0, generator=seeded()),
    "Frobenius norm": lambda A: solvers.norm(A, num_products=20, generator=seeded()),
    "nuclear norm": lambda A: solvers.norm(A, "nuc", num_products=80, generator=seeded()),
    "range": lambda A: solvers.spectral_range(A, num_steps=5, generator=seeded()),
}


@pytest.fixture(scope="module", params=["mlp", "cnn"])
def operators(request):
    here, there = risks(request.param)
    return ritz.hessian(here), ritz.hessian(there)


@pytest.mark.parametrize("work", WORK)
def test_estimates_agree(operators, work):
    here, there = operators
    assert_same(WORK[work](there), WORK[work](here), rtol=1e-6)


@pytest.mark.parametrize("damping", [10.0, 0.01])
def test_solutions_agree(operators, damping):
    """Conjugate gradients, and MINRES where the Hessian is indefinite."""
    products = []
    for A in operators[::-1]:
        b = (A + damping) @ normal(A.size, 2).to(A.device)
        solution = solvers.solve(A, b, damping=damping, tolerance=1e-7)
        assert bool(solution.converged.all()) and solution.x.device.type == A.device.type
        products.append((A + damping) @ solution.x)
    assert_same(*products, rtol=1e-5)


def test_diagonals_agree(operators):
    there, here = (solvers.diagonal(A, num_products=20, generator=seeded()) for A in operators[::-1])
    assert there.values.device.type == DEVICE.type
    assert_same(there.values, here.values, rtol=1e-6)
    assert_same(there.standard_errors, here.standard_errors, rtol=1e-5)


def test_functions_agree(operators):
    results = []
    for A in operators[::-1]:
        results.append(solvers.function(A, lambda t: torch.exp(-t), normal(A.size, 2).to(A.device), tolerance=1e-8).x)
    assert_same(*results, rtol=1e-6)


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
def test_eigenpairs_agree_with_the_dense_matrix(operators, which):
    here, there = operators
    pairs = solvers.eigenpairs(there, 4, which=which, tolerance=1e-8, generator=seeded())
    exact = torch.linalg.eigvalsh(here.dense())
    order = {"largest": -exact, "smallest": exact, "magnitude": -exact.abs()}[which].argsort()
    assert bool(pairs.converged.all()) and pairs.vectors.device.type == DEVICE.type
    assert_same(pairs.values, exact[order[:4]], rtol=1e-6)
    residuals = (there @ pairs.vectors - pairs.vectors * pairs.values.to(pairs.vectors)).norm(dim=0)
    torch.testing.assert_close(residuals.cpu(), pairs.residuals.cpu(), rtol=0.1, atol=1e-11)


def test_subspace_iteration_agrees(operators):
    here, there = operators
    found = [solvers.subspace_iteration(A, 3, 40, generator=seeded()).values for A in (there, here)]
    assert_same(*found, rtol=1e-6)


@pytest.mark.parametrize("outliers", [0, 2])
def test_densities_agree(operators, outliers):
    """By their moments zᵀAᵏz: the nodes themselves magnify rounding step by step."""

    def moments(A):
        options = {"num_steps": 10, "num_probes": 3, "outliers": outliers, "generator": seeded()}
        spectrum = solvers.spectral_density(A, **options)
        return [(spectrum.weights * spectrum.nodes**degree).sum(1) for degree in range(5)]

    here, there = operators
    assert_same(moments(there), moments(here), rtol=1e-5)


def test_quadratures_go_on_where_their_vectors_are_put_away_between_steps():
    values = torch.linspace(0, 1, 2000, device=DEVICE)[:, None]
    size = 2000 * 4
    roomy = ritz.Operator(lambda V: values * V, 2000, torch.float32, DEVICE)
    narrow = replace(roomy, room=lambda: 9.0 * size)  # for two probes at a time
    results = []
    for A, stages in ((narrow, [(5, 6), (5, 12)]), (narrow, [(5, 12)]), (roomy, [(5, 12)])):
        quadrature = solvers.LanczosQuadrature(A, generator=seeded())
        for num_probes, num_steps in stages if DEVICE.type == "cuda" else stages[-1:]:  # a CPU drops them
            quadrature.extend(num_probes=num_probes, num_steps=num_steps)
        results.append(quadrature.tridiagonal().diagonal)
    assert torch.equal(results[0], results[1])
    torch.testing.assert_close(results[0], results[2], atol=1e-4, rtol=1e-3)


def test_a_checkpoint_is_known_by_its_operator(operators, tmp_path):
    """Whatever the order in which the device has summed, and with its sign."""
    _, there = operators
    search = lambda A: solvers.eigenpairs(A, 2, checkpoint=tmp_path / "x.npz", generator=seeded())
    first = search(there)
    assert all(torch.equal(search(there).vectors, first.vectors) for _ in range(5))
    for other in (-there, 1.01 * there):
        with pytest.raises(ritz.errors.FileError, match="different operator"):
            search(other)


def test_lanczos_agrees(operators):
    here, there = operators
    starts = normal(here.size, 2)
    found = [solvers.lanczos(A, starts.to(A.device), 10, keep_basis=True).eigh()[0] for A in (there, here)]
    assert_same(*found, rtol=1e-8)


def test_a_generator_of_the_device_serves(operators):
    _, there = operators
    generator = torch.Generator(DEVICE).manual_seed(0)
    pairs = solvers.eigenpairs(there, 2, generator=generator)
    assert bool(pairs.converged.all())
    exact = torch.linalg.eigvalsh(operators[0].dense()).sum()
    assert solvers.trace(there, generator=generator).value == pytest.approx(float(exact), rel=0.3)


def test_scipy_and_matrices_of_the_device_serve(operators):
    here, there = operators
    v = normal(here.size)
    assert_same(torch.from_numpy(there.to_scipy() @ v.numpy()), here @ v)
    A = ritz.Operator.from_matrix(here.dense().to(DEVICE))
    assert_same(A @ v.to(DEVICE), here @ v)
