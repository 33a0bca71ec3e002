"""Copies of eigenvalues that a search sees once: found, or the doubt is said, at a small price."""

import math
import warnings

import pytest
import torch
from torch.testing import assert_close

import ritz
from ritz.solvers import eigenpairs
from ritz.solvers.missed_pairs import Overlooked

from .spectra import assert_orthonormal, expected, linspace, network_like, rotated, roughened, true_residuals


def multiple(n, *copies):
    """Values with their numbers of copies, above a bulk."""
    outliers = [torch.full((count,), value, dtype=torch.float64) for value, count in copies]
    return torch.cat([*outliers, linspace(-0.5, 1, n - sum(map(len, outliers)))])


@pytest.mark.parametrize("n, count", [(600, 3), (2000, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("which", ["largest", "magnitude"])
def test_copies_of_the_largest_are_found(n, count, dtype, which):
    eigenvalues = multiple(n, (5.0, count), (3.0, 1), (2.0, 1))
    A = rotated(eigenvalues, dtype=dtype)
    for seed in range(3):
        pairs = eigenpairs(A, count + 1, which=which, generator=torch.Generator().manual_seed(seed))
        assert_close(pairs.values.double(), expected(eigenvalues, count + 1, which), atol=1e-4, rtol=0)
        assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-5, rtol=1e-2)
        assert_orthonormal(pairs.vectors, 1e-5)


@pytest.mark.parametrize("which", ["smallest", "both"])
def test_copies_at_the_other_end_are_found(which):
    eigenvalues = torch.cat([multiple(1000, (5.0, 2), (4.0, 1)), -multiple(300, (6.0, 2), (3.0, 1))])
    k = 3 if which == "smallest" else 6
    assert_close(
        eigenpairs(rotated(eigenvalues), k, which=which).values, expected(eigenvalues, k, which), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("k", [2, 3, 5])
def test_copies_are_found_in_mixed_precision(k):
    eigenvalues = multiple(1500, (5.0, 2), (4.0, 2), (3.0, 1))
    A = roughened(rotated(eigenvalues))
    pairs = eigenpairs(A, k, precision="mixed")
    assert_close(pairs.values, expected(eigenvalues, k, "largest"), atol=1e-4, rtol=0)
    assert_close(pairs.residuals, true_residuals(A, pairs), atol=1e-11, rtol=1e-4)


def test_two_equal_halves_of_a_network_have_every_eigenvalue_twice(generator):
    class Halves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            draw = lambda *shape: 0.5 * torch.randn(*shape, generator=generator, dtype=torch.float64)
            first, second = draw(8, 24), draw(24, 1)
            self.first = torch.nn.ParameterList([torch.nn.Parameter(first.clone()) for _ in range(3)])
            self.second = torch.nn.ParameterList([torch.nn.Parameter(second.clone()) for _ in range(3)])

        def forward(self, x):
            return torch.cat([torch.tanh(x @ a) @ b for a, b in zip(self.first, self.second, strict=True)], dim=1)

    x = torch.randn(40, 8, generator=generator, dtype=torch.float64)
    y = torch.randn(40, 1, generator=generator, dtype=torch.float64).expand(-1, 3)
    H = ritz.hessian(ritz.Risk(Halves(), ritz.SquaredError(), [(x[:25], y[:25]), (x[25:], y[25:])]))
    truth = torch.linalg.eigvalsh(H.dense())
    assert H.size > 500 and float(truth[-3]) == pytest.approx(float(truth[-1]))
    pairs = eigenpairs(H, 4)
    assert_close(pairs.values, expected(truth, 4, "largest"), atol=1e-4 * float(truth[-1]), rtol=0)


def test_eigenvalues_that_stand_apart_are_beyond_doubt_and_others_are_not():
    apart = eigenpairs(rotated(network_like()), 10)
    assert float(apart.doubts[:9].max()) <= 0.01 < float(apart.doubts[9]) and "1 of them may" in repr(apart)
    dense = eigenpairs(rotated(linspace(0, 1, 1000)), 5, tolerance=1e-3)
    assert float(dense.doubts.min()) > 0.01 and "5 of them may" in repr(dense)
    exact = eigenpairs(rotated(linspace(0, 1, 300)), 5)
    assert not exact.doubts.any() and "copies" not in repr(exact)
    assert eigenpairs(rotated(network_like()), 1).doubts is None


@pytest.mark.parametrize("gap", [0.5, 0.1, 0.03])
def test_copies_are_found_or_their_doubt_is_said(gap):
    for seed in range(5):
        eigenvalues = multiple(1200, (1 + gap, 2), (1 + gap / 3, 1), (1 + gap / 4, 1))
        pairs = eigenpairs(rotated(eigenvalues, seed=seed), 3, generator=torch.Generator().manual_seed(seed))
        complete = bool((pairs.values - expected(eigenvalues, 3, "largest")).abs().max() < 1e-3 * gap)
        assert complete or float(pairs.doubts[0]) > 0.01


@pytest.mark.parametrize("n, k", [(2000, 3), (2000, 10), (5000, 10)])
def test_looking_for_missed_pairs_takes_at_most_a_tenth_more_products(n, k):
    A = rotated(network_like(n))
    pairs, alone = eigenpairs(A, k), eigenpairs(A, k, copies=False)
    assert 0 < pairs.num_products - alone.num_products <= max(10, alone.num_products // 10)
    assert torch.equal(pairs.vectors, alone.vectors) and pairs.doubts is not None and alone.doubts is None


def test_a_chance_is_a_bound_on_how_often_an_eigenvalue_is_overlooked():
    """Lanczos on a diagonal matrix whose largest entry is tested for, from many starts."""
    n, runs, steps, level = 400, 300, 4, 0.2
    d = torch.cat([linspace(0, 1, n - 1), torch.tensor([1.6]).double()])
    generator, overlooked = torch.Generator().manual_seed(0), 0
    for _ in range(runs):
        q = torch.randn(n, generator=generator, dtype=torch.float64)
        q, last, beta = q / q.norm(), torch.zeros(n).double(), 0.0
        test = Overlooked(d[-1:], n)
        for _ in range(steps):
            w = d * q - beta * last
            alpha = float(w @ q)
            w = w - alpha * q
            last, beta = q, float(w.norm())
            q = w / beta
            test.add(alpha, beta)
        overlooked += float(test.chances) <= level
    assert overlooked / runs <= level + 2 * math.sqrt(level / runs)


@pytest.mark.usefixtures("unchecked")
def test_a_space_that_seems_exhausted_in_float32_rules_nothing_out():
    """Beside an eigenvalue of 1,000, a start that contains little of a copy of 2 is mapped to rounding."""
    bulk = 1e-2 * torch.rand(1496, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    A = rotated(torch.cat([torch.tensor([1000.0, 2.0, 2.0, 1.5]).double(), bulk]), dtype=torch.float32)
    missed = 0
    for seed in range(60):
        pairs = eigenpairs(A, 4, generator=torch.Generator().manual_seed(seed))
        missed += bool(pairs.values[2] < 1.8) and bool(pairs.doubts[1] <= 0.01)
    assert missed <= 2  # 6 where a beta below rounding counted as zero


def test_products_that_run_out_leave_a_doubt_or_a_warning():
    eigenvalues = multiple(2000, (5.0, 2), (3.0, 1), (2.0, 1))
    A = rotated(eigenvalues)
    enough = eigenpairs(A, 3, copies=False).num_products
    for more in range(12):
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            pairs = eigenpairs(A, 3, max_products=enough + more)
        complete = bool((pairs.values - expected(eigenvalues, 3, "largest")).abs().max() < 1e-3)
        doubtful = pairs.doubts is None or float(pairs.doubts[0]) > 0.01
        assert complete or doubtful or any("copies" in str(message.message) for message in messages)
        assert pairs.num_products <= enough + more


def test_doubts_are_remembered(tmp_path):
    for pairs in (eigenpairs(rotated(network_like(600)), 2), eigenpairs(rotated(network_like(600)), 1)):
        loaded = ritz.Eigenpairs.load(pairs.save(tmp_path / "pairs.npz"))
        assert loaded.doubts is pairs.doubts or torch.equal(loaded.doubts, pairs.doubts)


def test_more_steps_are_worth_it_for_what_stands_apart_from_the_bulk_alone():
    """The farther from the bulk, the sooner steps would rule a value out; inside it none do."""
    values, none = torch.tensor([11.0, 12.1, 30.0], dtype=torch.float64), torch.zeros(3, dtype=torch.bool)
    bulk, test = torch.tensor([9.0, 10.0, 11.0, 12.0, 13.0], dtype=torch.float64), Overlooked(values, 1000)
    each = [none.index_fill(0, torch.tensor(i), True) for i in range(3)]
    assert [test.is_worth_more(one, 5, bulk) for one in each] == [False, False, True]
    assert [test.is_worth_more(one, 50, bulk) for one in each] == [False, True, True]


def test_a_search_without_a_product_left_to_look_for_copies_rules_none_out():
    A = rotated(network_like())
    spent = eigenpairs(A, 5, copies=False).num_products
    pairs = eigenpairs(A, 5, max_products=spent)
    assert pairs.num_products == spent and bool(pairs.converged.all())
    assert pairs.doubts is not None and pairs.doubts.tolist() == [1.0] * 5
    assert "5 of them may have further copies" in repr(pairs)
