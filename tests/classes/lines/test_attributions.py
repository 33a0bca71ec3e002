"""Which eigenvalues come from what: shares, overlaps, knockouts, counts and the sentences that follow from them."""

import pytest
import torch
from torch import nn

import ritz
from ritz.classes import attribution
from ritz.classes.lines import attributions, shares
from ritz.classes.lines.findings import about_knockouts, about_outliers, about_the_hessian, about_the_mini_bulk
from ritz.classes.lines.knockout_spectra import PROJECTED, SUBTRACTED
from ritz.errors import ArgumentError
from ritz.factored.gram_parts import PARTS
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from tests.factored.dense_parts import dense_parts
from tests.zoo import OUTPUTS, case, unequal_batches


def risk_of(name="cnn"):
    found = case(name)
    y = torch.randint(OUTPUTS, found.shape[:-1], generator=torch.Generator().manual_seed(1))
    return found, Risk(found.model, CrossEntropy(), unequal_batches(found.inputs, y))


def separated(scale, *, classes=4, per_class=6, noise=0.05):
    """A linear classifier of classes that lie far apart, and which it knows, or nowhere in particular."""
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(classes).repeat_interleave(per_class)
    x = scale * torch.eye(8, dtype=torch.float64)[y] + noise * torch.randn(len(y), 8, generator=generator).double()
    model = nn.Linear(8, classes, bias=False).double()
    with torch.no_grad():
        model.weight.normal_(generator=generator).mul_(0.1).add_(torch.eye(classes, 8).double())
    return Risk(model, CrossEntropy(), [(x[:15], y[:15]), (x[15:], y[15:])])


@pytest.fixture(scope="module")
def small():
    found, risk = risk_of()
    return found, risk, attribution(risk, generator=torch.Generator().manual_seed(0))


def test_shares_of_every_eigenvalue_sum_to_one(small):
    _, _, found = small
    for lines in (found.hessian, found.gauss_newton):
        total = sum(lines.shares.values())
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-10)
    assert set(found.hessian.shares) == {*PARTS, "functional"}


def test_shares_are_the_energies_of_the_dense_parts(small):
    dense, risk, found = small
    _, parts = dense_parts(dense, risk)
    V, values = found.gauss_newton.pairs.vectors, found.gauss_newton.pairs.values
    for part in PARTS:
        energy = torch.einsum("nk,nm,mk->k", V, parts[part], V) / values
        torch.testing.assert_close(found.gauss_newton.shares[part], energy, rtol=0, atol=1e-9)


def test_overlaps_with_the_means_are_those_of_dense_projections(small):
    dense, risk, found = small
    _, parts = dense_parts(dense, risk)
    for part, inside in ((parts["between_class"], found.gauss_newton.in_class_means),):
        values, vectors = torch.linalg.eigh(part)
        Q = vectors[:, values > 1e-13 * values[-1]]
        expected = (Q.T @ found.gauss_newton.pairs.vectors).square().sum(0)
        torch.testing.assert_close(inside, expected, rtol=0, atol=1e-8)
    assert bool((found.gauss_newton.in_cross_means >= found.gauss_newton.in_class_means - 1e-12).all())


@pytest.mark.parametrize("exact_rows", [3000, 0])
def test_every_way_to_the_knocked_out_spectra_agrees_with_dense_matrices(exact_rows):
    dense, risk = risk_of("mlp" if exact_rows else "cnn")
    G, parts = dense_parts(dense, risk)
    spectra = attribution(risk, exact_rows=exact_rows, generator=torch.Generator().manual_seed(0)).spectra
    assert set(spectra) == {*SUBTRACTED, *PROJECTED}
    for name, removed in SUBTRACTED.items():
        left = G - sum((parts[part] for part in removed), torch.zeros_like(G))
        values = torch.linalg.eigvalsh(left)
        assert spectra[name].range[1] == pytest.approx(float(values[-1]), rel=1e-6)
        assert spectra[name].size == len(G)
        if exact_rows:
            assert spectra[name].wasserstein(ritz.Spectrum.of_eigenvalues(values)) < 1e-12


def test_examples_that_outnumber_the_parameters_are_analysed_through_the_dense_matrix():
    risk = separated(1.0, per_class=10)
    found = attribution(risk, exact_rows=100)  # of 40 · 3 rows, and 32 parameters
    expected = ritz.Spectrum.of_matrix(ritz.gauss_newton(risk).dense())
    assert found.spectra["G"].wasserstein(expected) < 1e-12
    assert found.counts["zero"] == 0


def test_a_gram_matrix_with_more_rows_than_parameters_gives_the_same_spectra():
    risk = separated(1.0, per_class=10)
    through_rows, through_parameters = (attribution(risk, exact_rows=rows).spectra for rows in (120, 119))
    for name, spectrum in through_rows.items():
        assert spectrum.size == 32 and spectrum.resolution is None
        assert spectrum.wasserstein(through_parameters[name]) < 1e-12, name


def test_a_knockout_that_takes_all_of_g_leaves_a_spectrum_of_zeros():
    """The means of twenty classes span all 236 parameters; in float32, rounding is left off them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 20))
    risk = Risk(model, CrossEntropy(), (torch.randn(60, 6), torch.randint(20, (60,))))
    spectra = attribution(risk, exact_rows=400).spectra
    assert max(map(abs, spectra["G off all means"].range)) < 1e-6 * spectra["G"].range[1]


def test_classes_that_lie_far_apart_make_outliers_that_are_attributed_to_their_means():
    found = attribution(separated(2.0, noise=0.02))
    assert found.class_overlap > 0.95
    assert found.counts["outliers"] >= 1
    assert sum(found.counts.values()) == found.classes.risk.size
    assert any("lie in the span of the class means" in sentence for sentence in found.findings)


@pytest.mark.parametrize("exact_rows", [3000, 0])
def test_outliers_are_counted_where_fewer_lines_are_requested(exact_rows):
    risk = separated(2.0, noise=0.3)
    whole = attribution(risk)
    assert whole.counts["outliers"] > 1
    few = attribution(risk, num_lines=1, exact_rows=exact_rows)
    assert len(few.gauss_newton) == 1 and few.counts == whole.counts and few.findings[0] == whole.findings[0]


def test_classes_without_examples_are_named_as_the_first_of_sorted_data_leave_them_out():
    risk = separated(2.0)  # six of each class, sorted
    said = "2 of the 4 classes have no example that counts: they are 2, 3. There are as many fewer class means."
    assert attribution(risk.first(12)).findings[-1] == said
    assert "1 of the 4 classes has no example that counts: it is 3." in attribution(risk.first(18)).findings[-1]
    assert not any("no example" in sentence for sentence in attribution(risk).findings)


def test_classes_that_are_nowhere_in_particular_are_not_said_to_make_outliers():
    found = attribution(separated(0.0, noise=1.0))
    assert found.class_overlap < 0.8
    assert not any("lie in the span of the class means" in sentence for sentence in found.findings)


def test_an_attribution_prints_its_counts_and_findings_alone(small):
    _, risk, found = small
    first, *others = repr(found).splitlines()
    assert first.startswith(f"Attribution(C = {found.num_classes}, n = {risk.size:,}: outliers ")
    assert [line.strip() for line in others] == list(found.findings)


def test_a_linear_classifier_has_no_functional_part_and_the_same_lines_in_h_and_g():
    found = attribution(separated(1.0))
    assert float(found.hessian.shares["functional"].abs().max()) < 1e-10
    assert found.hessian_overlap == pytest.approx(1.0, abs=1e-6)
    assert found.matches.tolist()[:4] == [0, 1, 2, 3]


@pytest.mark.usefixtures("unchecked")  # all that it calls has its annotations checked above
def test_means_that_do_not_fit_into_memory_leave_out_what_needs_them():
    risk = separated(1.0, classes=3)
    risk.budget.total = 2.0 * 8 * risk.size  # one mean
    found = attribution(risk, exact_rows=0)
    assert found.class_overlap is None
    assert "together" not in found.part_eigenvalues
    dense = torch.linalg.eigvalsh(ritz.gauss_newton(risk).dense()).flip(0)
    torch.testing.assert_close(found.gauss_newton.pairs.values, dense[:5], rtol=1e-6, atol=0)
    assert set(found.spectra) == set(SUBTRACTED)
    assert len(found.findings) >= 4


def test_part_eigenvalues_are_those_of_the_dense_parts(small):
    dense, risk, found = small
    _, parts = dense_parts(dense, risk)
    parts["together"] = parts["between_class"] + parts["cross_class"] + parts["own_class"]
    for name, values in found.part_eigenvalues.items():
        expected = torch.linalg.eigvalsh(parts[name]).flip(0)[: len(values)]
        torch.testing.assert_close(values[: len(expected)], expected.clamp(min=0), rtol=0, atol=1e-12)
    edge = float(torch.linalg.eigvalsh(parts["within"])[-1])
    assert found.within_edge == pytest.approx(edge, rel=1e-4)


def test_the_span_of_all_means_is_decomposed_only_when_it_is_requested(monkeypatch):
    widths, inside = [], shares._inside
    monkeypatch.setattr(shares, "_inside", lambda V, *factors: widths.append(len(factors)) or inside(V, *factors))
    found = attribution(separated(1.0))
    assert widths == [1, 1]
    assert bool((found.hessian.in_cross_means <= 1).all()) and widths == [1, 1, 2]


def test_more_means_than_parameters_give_what_their_dense_parts_give():
    """Eight classes have 64 columns of means, and the weights 24 entries: both come from the smaller matrix."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=generator).double(), torch.arange(40) % 8
    x, y = torch.cat([x, x * torch.tensor([1.0, 1.0, -1.0]).double()]), y.repeat(2)  # no mean has a third coordinate
    model = nn.Linear(3, 8, bias=False).double()
    with torch.no_grad():
        model.weight.normal_(generator=generator)[:, 2] = 0.0
    found = attribution(Risk(model, CrossEntropy(), [(x[:50], y[:50]), (x[50:], y[50:])]), num_lines=20)
    parts = {part: getattr(found.classes, part).dense() for part in ("between_class", "cross_class", "own_class")}
    values, vectors = torch.linalg.eigh(parts["between_class"] + parts["cross_class"])
    span = vectors[:, values > 1e-13 * values[-1]]
    assert span.shape[1] == 14
    expected = (span.T @ found.gauss_newton.pairs.vectors).square().sum(0)
    assert float(expected.min()) < 0.1 and float(expected.max()) > 0.9
    torch.testing.assert_close(found.gauss_newton.in_cross_means, expected, rtol=0, atol=1e-9)
    for name, part in (parts | {"together": sum(parts.values())}).items():
        values = torch.linalg.eigvalsh(part).flip(0).clamp(min=0)
        got = found.part_eigenvalues[name]
        assert len(got) <= 24
        torch.testing.assert_close(got, values[: len(got)], rtol=0, atol=1e-13)


def test_lines_from_the_gram_matrix_are_certified_eigenpairs_of_g(small):
    _, risk, found = small
    pairs, G = found.gauss_newton.pairs, ritz.gauss_newton(risk).dense()
    assert pairs.num_products == len(pairs)  # nothing was searched for
    torch.testing.assert_close(pairs.values, torch.linalg.eigvalsh(G).flip(0)[:5], rtol=0, atol=1e-12)
    torch.testing.assert_close(pairs.residuals, (G @ pairs.vectors - pairs.vectors * pairs.values).norm(dim=0))
    assert bool(pairs.converged.all())


def test_lines_that_the_products_do_not_confirm_are_searched_for(monkeypatch, small):
    """Where float32 products are those of a slightly other matrix, its own eigenpairs are searched for."""
    _, risk, expected = small
    tilted = lambda risk, Y: torch.randn(risk.size, Y.shape[1], generator=torch.Generator().manual_seed(0)).double()
    monkeypatch.setattr(attributions, "pullback", tilted)
    pairs = attribution(risk).gauss_newton.pairs
    assert bool(pairs.converged.all())
    torch.testing.assert_close(pairs.values, expected.gauss_newton.pairs.values, rtol=1e-6, atol=0)


def test_lines_beyond_the_rank_of_g_are_searched_for():
    found = attribution(separated(1.0), num_lines=14)  # G has rank 12
    assert len(found.gauss_newton) == 14
    assert bool(found.gauss_newton.pairs.converged.all())


def test_a_network_that_is_sure_of_everything_is_said_to_be():
    risk = separated(1.0)
    risk = Risk(_scaled(risk.model, 1e4), CrossEntropy(), [(b.inputs, b.targets) for b in risk.batches])
    found = attribution(risk)
    assert found.counts["outliers"] == 0
    assert all(bool(share.isfinite().all()) for share in found.gauss_newton.shares.values())
    assert any("sure of every example" in sentence for sentence in found.findings)


def test_counts_are_possible_for_one_example_of_each_of_two_classes():
    model = nn.Linear(3, 2).double()
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).double()
    found = attribution(Risk(model, CrossEntropy(), (x, torch.tensor([0, 1]))))
    assert found.counts["mini-bulk"] == 0
    assert all(count >= 0 for count in found.counts.values())
    assert sum(found.counts.values()) == 8


def test_ignored_terms_do_not_count_towards_the_rank(monkeypatch):
    model = nn.Linear(12, 3).double()
    x = torch.randn(6, 12, generator=torch.Generator().manual_seed(0)).double()
    y = torch.tensor([0, 1, 2, -100, -100, 0])
    found = attribution(Risk(model, CrossEntropy(), (x, y)))
    monkeypatch.delattr(Risk, "outputs")  # they were counted with the rest
    assert found.counts["zero"] == 39 - 4 * 2


def _scaled(model, factor):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    return model


def test_no_lines_are_refused():
    with pytest.raises(ArgumentError, match="num_lines=0"):
        attribution(risk_of()[1], num_lines=0)


def test_a_share_that_rounds_to_zero_has_no_sign_and_a_spectrum_of_nothing_no_fall():
    assert "contributes 0.0% of" in about_the_hessian(3, 1.0, -1e-5)[1]
    spectra = {name: ritz.Spectrum.of_eigenvalues(torch.tensor([1e-130, 0.0]).double()) for name in SUBTRACTED}
    assert about_knockouts(spectra) == ["G is zero to rounding: the network is sure of every example."]


@pytest.mark.parametrize("number, words", [(0, "0 eigenvalues that are"), (1, "1 eigenvalue that is"), (2, "2 eigen")])
def test_eigenvalues_of_the_mini_bulk_are_counted_in_words(number, words):
    values = torch.tensor([5.0] * number + [1e-20] * 3, dtype=torch.float64)
    (sentence,) = about_the_mini_bulk(3, values, edge=10.0, floor=1e-12)
    assert words in sentence and "at most C(C - 2) = 3" in sentence and sentence.endswith("it has 0.")
    (sentence,) = about_the_mini_bulk(3, values, edge=1.0, floor=1e-12)
    assert sentence.endswith(f"it has {number}.")
    assert about_the_mini_bulk(3, None, edge=1.0, floor=1e-12) == []


@pytest.mark.parametrize(
    "count, end", [(1, "without G_class; the largest is never below it."), (2, "without G_class.")]
)
def test_one_outlier_is_said_to_be_no_finding(count, end):
    """λ₁(G) ≥ λ₁(G - G_class) for every network, as G_class has no negative eigenvalue."""
    values = torch.tensor([5.0, 4.0, 1.0], dtype=torch.float64)
    assert about_outliers(3, values, count, 1e-12, None)[0].endswith(end)


def test_spaces_are_said_to_be_the_same_only_where_they_nearly_are():
    same, most, part, apart = (about_the_hessian(3, overlap, 0.1)[0] for overlap in (0.999, 0.9, 0.4, 0.1))
    assert "span nearly the same space" in same and "lie apart from" in apart
    assert "share most of their span" in most and "share a part of their span" in part
