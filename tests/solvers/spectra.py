"""Operators with known eigenvalues, and what their solutions are compared with."""

import functools
from dataclasses import replace

import torch
from torch.testing import assert_close

from ritz.operators import Operator
from tests.shapes import unchecked


def linspace(low, high, num):
    return torch.linspace(low, high, num, dtype=torch.float64)


def rotated(eigenvalues, *, dtype=torch.float64, seed=5):
    """An operator with these eigenvalues whose eigenvectors are no unit vectors: a reflected diagonal."""
    d, n = eigenvalues.to(dtype), len(eigenvalues)
    u = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = (u / u.norm()).to(dtype)[:, None]
    reflected = lambda V: V - 2 * u * (u.T @ V)
    return Operator(lambda V: reflected(d[:, None] * reflected(V)), n, dtype, torch.device("cpu"))


def network_like(n=2000, seed=0):
    """Ten outliers, a tail of both signs that decays, and most of the mass near zero."""
    generator = torch.Generator().manual_seed(seed)
    bulk = 0.1 * torch.randn(n - 10, generator=generator, dtype=torch.float64) ** 3
    return torch.cat([linspace(3, 10, 10), bulk.clamp(-2, 2)])


def expected(eigenvalues, k, which):
    ascending = eigenvalues.sort().values
    if which == "magnitude":
        return eigenvalues[eigenvalues.abs().argsort(descending=True)][:k]
    if which == "both":
        return torch.cat([ascending.flip(0)[: (k + 1) // 2], ascending[: k // 2]])
    return (ascending.flip(0) if which == "largest" else ascending)[:k]


def true_residuals(A, pairs):
    return (A @ pairs.vectors - pairs.vectors * pairs.values).norm(dim=0)


def assert_orthonormal(vectors, tolerance=1e-12):
    gram = (vectors.double().T @ vectors.double()).cpu()
    assert_close(gram, torch.eye(gram.shape[0], dtype=torch.float64), atol=tolerance, rtol=0)


def random(*shape, generator, dtype=torch.float64):
    return torch.randn(*shape, generator=generator, dtype=dtype)


def counted(A):
    """The operator, and the list of how many columns each of its products had."""
    calls = []
    return Operator(lambda V: calls.append(V.shape[1]) or A @ V, A.size, A.dtype, A.device), calls


@functools.cache
def rotation(n):
    return torch.linalg.qr(random(n, n, generator=torch.Generator().manual_seed(0))).Q


def with_eigenvalues(eigenvalues, generator=None, dtype=torch.float64):
    """A matrix with these eigenvalues and random eigenvectors; without a generator, those of seed 0."""
    n = len(eigenvalues)
    Q = rotation(n) if generator is None else torch.linalg.qr(random(n, n, generator=generator)).Q
    A = (Q * eigenvalues.double()) @ Q.T
    return Operator.from_matrix(((A + A.T) / 2).to(dtype))


def coverage(estimate, truth, num_runs=60):
    """The share of runs whose truth lies within two standard errors."""
    results = repeated(lambda seed: estimate(torch.Generator().manual_seed(seed)), num_runs)
    return sum(abs(result.value - truth) <= 2 * result.standard_error for result in results) / num_runs


def repeated(run, count):
    """The results of runs 0, 1, …; the first has shown that shapes are right."""
    first = run(0)
    with unchecked():
        return [first, *map(run, range(1, count))]


DECAY = torch.arange(1, 301, dtype=torch.float64) ** -1.5

FLAT = linspace(0.5, 1.5, 300)

INDEFINITE = torch.randn(300, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.5

OUTLIERS = torch.cat([linspace(3, 10, 10), 0.05 * linspace(0, 1, 290)])


def kinds(n):
    """Eight kinds of spectra with n eigenvalues each, by name."""
    k, generator = torch.arange(1, n + 1, dtype=torch.float64), torch.Generator().manual_seed(12345)
    return {
        "uniform": k / n,
        "normal": torch.randn(n, generator=generator, dtype=torch.float64),
        "1/k²": k**-2,
        "gapped": torch.where(k <= n / 20, 10 + k / 10, k / n),
        "clustered": 1 + 2 * (k > n / 2) + 1e-3 * k / n,
        "many zeros": torch.where(k <= n / 5, k / n, 0.0),
        "multiple": (5 * k / n).ceil(),
        "indefinite": torch.where(k <= n / 10, 50 * k / n, -k / n),
    }


KINDS = tuple(kinds(1))


def runs(estimate, num_runs):
    """Values and errors of an estimate with so many seeds."""
    results = repeated(lambda seed: estimate(torch.Generator().manual_seed(seed)), num_runs)
    return torch.tensor([[result.value, result.standard_error] for result in results], dtype=torch.float64).T


def with_bits(t, bits):
    """Numbers rounded to so many bits."""
    mantissa, exponent = torch.frexp(t)
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)


def roughened(A, bits=11):
    """The operator, with a rough one that rounds what enters and what leaves it, as TF32 does."""
    return replace(A, rough=replace(A, matmat=lambda V: with_bits(A @ with_bits(V, bits), bits)))
