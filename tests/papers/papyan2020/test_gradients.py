"""The figures of G by class: computed at the smallest size, and their rules fed with what should pass or not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz.checks.oracles import dense_hessian
from ritz.factored import Gram
from ritz.papers.frame.figure import Context
from ritz.papers.papyan2020 import (
    dynamics_numbers,
    gradient_dynamics,
    gradients,
    knockout_numbers,
    knockouts,
    logistic,
)
from ritz.papers.papyan2020.networks import Place
from ritz.papers.papyan2020.setting import NUM_CLASSES as C
from ritz.record import Record, plain
from ritz.risk import Risk
from ritz.spectrum import Spectrum

FIGURES = {**knockouts.FIGURES, **gradient_dynamics.FIGURES, **logistic.FIGURES}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
def test_a_figure_is_computed_judged_and_drawn(figure, computed):
    record = computed(figure)
    claims = figure.claims(record)
    trends = [s for s in figure.statements if s.statement.startswith("Increasing the")]  # they take three points
    assert len(claims) == len(figure.statements) - len(trends)
    assert {claim.verdict for claim in claims} <= {"yes", "partly", "no"}
    assert figure.draw(record).axes


def test_all_measurements_of_a_figure_are_of_one_network(computed):
    scalars = computed(knockouts.FIGURES["papyan2020.fig5"]).scalars
    assert len({scalars[f"0/{part}/facts"]["identity"] for part in ("exact", "lanczos", "origins")}) == 1


def test_the_parts_of_g_are_the_same_from_its_gram_matrix_and_from_means(computed, shelf):
    piece = gradient_dynamics.PRESETS["smoke"].piece
    place = Place(torch.device("cpu"), None, shelf)
    network = gradients.Network(piece, piece.num_epochs)
    exact = gradients.exact(gradients.Exact(network, ("G", "within")), place=place)
    means = gradients.parts(network, place=place)
    count = C * (C - 1)
    torch.testing.assert_close(
        exact["within/nodes"][:count], means["together/nodes"][:count].double(), rtol=1e-3, atol=1e-7
    )
    torch.testing.assert_close(exact["within_traces"], means["within_traces"] * 50 / 51, rtol=1e-3, atol=1e-9)


def test_traces_within_classes_add_up_to_what_the_means_leave():
    x, y = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).double(), torch.arange(12) % 3
    risk = Risk(torch.nn.Sequential(torch.nn.Linear(5, 3)).double(), torch.nn.CrossEntropyLoss(), (x, y))
    gram = Gram.of(risk)
    whole, means = (gram.eigenvalues(subtract=parts).sum() for parts in ((), ("within",)))
    assert float(gradients.within_traces(gram).sum()) == pytest.approx(float(whole - means))


def test_gathered_eigenvalues_keep_their_number_and_their_sum():
    values = torch.logspace(-12, 2, 5000, dtype=torch.float64)
    nodes, counts = gradients.gathered(values)
    assert len(nodes) <= gradients.TOP + gradients.BINS
    assert float(counts.sum()) == 5000 and float((nodes * counts).sum()) == pytest.approx(float(values.sum()))


def spectra(structured):
    """Three bulks where each part is one of them, or the same numbers with no part of G anywhere in particular."""
    spread, cross, means = np.geomspace(0.5, 2, 3000), np.geomspace(1e-4, 1e-3, C * (C - 2)), np.full(C, 100.0)
    if not structured:
        spread, cross, means = np.geomspace(1e-4, 30, 3000), np.geomspace(0.3, 3, C * (C - 2)), np.full(C, 0.5)
    own = np.zeros(0) if structured else np.concatenate([np.full(1000, 40.0), np.geomspace(1e-4, 30, 6000)])
    parts = {"class": means, "cross": cross, "within": spread, "own": own}
    lists = {"G": np.concatenate(list(parts.values()))}
    lists |= {name: np.concatenate([v for other, v in parts.items() if other != name]) for name in parts}
    return lists | {f"only_{name}": values for name, values in parts.items() if name != "own"}


def knockout_record(structured):
    arrays = {}
    for name, values in spectra(structured).items():
        arrays |= {f"0/exact/{name}/nodes": values, f"0/exact/{name}/counts": np.ones(len(values))}
    G = arrays["0/exact/G/nodes"]
    arrays["0/exact/within_traces"] = np.full(C, arrays["0/exact/only_within/nodes"].mean() * 4)  # four a class
    arrays |= {"0/lanczos/G/nodes": G if structured else G[:50], "0/lanczos/G/counts": np.ones(len(G))[: len(G)]}
    if not structured:
        arrays["0/lanczos/G/counts"] = np.full(50, len(G) / 50)
    share = 1.0 if structured else 0.0
    for name in ("G", "H"):
        arrays[f"0/origins/{name}/in_class"] = np.full(2 * C, share)
    arrays["0/origins/layer_inside"] = np.full((3, C), share)
    arrays["0/origins/H/shares/functional"] = np.full(2 * C, 1 - share)
    for part in gradients.OTHERS:
        arrays[f"0/origins/H/shares/{part}"] = np.full(2 * C, share / 3)
    facts = {"0/exact/facts": {"size": 10**6}, "0/lanczos/facts": {"resolution": 0.1}}
    return Record("papyan2020.fig5", "smoke", plain(knockouts.PRESETS["smoke"]), facts, arrays)


@pytest.mark.parametrize("paper", ["papyan2020", "papyan2019"])
def test_statements_on_knockouts_can_say_yes_and_no(paper):
    for statement in knockouts.statements(paper):
        verdicts = [statement.claim(knockout_record(structured)).verdict for structured in (True, False)]
        assert verdicts[0] == "yes" and verdicts[1] != "yes", (statement.statement, verdicts)


def matrix_record(cross_size):
    """The spectra of a real sum of class means, of cross-class means across them, and of a spread."""
    Q = torch.linalg.qr(torch.randn(400, 400, generator=torch.Generator().manual_seed(0)).double()).Q
    spread = torch.randn(400, 600, generator=torch.Generator().manual_seed(1)).double() / 40
    across = Q[:, C : 2 * C]
    matrices = {
        "class": 100 * Q[:, :C] @ Q[:, :C].T,
        "cross": cross_size * across @ across.T,
        "within": spread @ spread.T,
        "own": 1e-3 * Q[:, :C] @ Q[:, :C].T,
    }
    G = torch.stack(list(matrices.values())).sum(0)
    lists = {"G": G} | {name: G - A for name, A in matrices.items()}
    lists |= {f"only_{name}": A for name, A in matrices.items()}
    arrays = {}
    for name, A in lists.items():
        values = torch.linalg.eigvalsh(A).flip(0).clamp(min=0).numpy()
        arrays |= {f"0/exact/{name}/nodes": values, f"0/exact/{name}/counts": np.ones(len(values))}
    return Record("papyan2020.fig5", "smoke", plain(knockouts.PRESETS["smoke"]), {}, arrays)


@pytest.mark.parametrize(("cross_size", "verdict"), [(0.01, "yes"), (200.0, "no")])
def test_outliers_that_are_class_means_disappear_with_them_and_others_do_not(cross_size, verdict):
    said = next(s for s in knockouts.statements("papyan2020") if "the C outliers disappear" in s.statement)
    assert said.claim(matrix_record(cross_size)).verdict == verdict


def test_what_hangs_on_the_place_of_one_outlier_is_told_beside(monkeypatch):
    G = np.append(np.linspace(20.0, 18.0, C - 1), [2.0, 1.0])  # the C-th lies far below the others
    lists = {"G": G, "class": np.append(np.linspace(9.0, 3.0, 6), np.full(5, 1.5))}
    monkeypatch.setattr(knockout_numbers, "values_of", lambda record, seed, name: lists[name])
    left = knockout_numbers.left_of_outliers(matrix_record(1.0))
    assert [list(seeds.values()) for seeds in left.values()] == [[6.0], [0.0], [11.0]]


def test_the_count_of_outliers_is_explained_by_what_raises_or_hides_them():
    said = next(s for s in knockouts.statements("papyan2020") if s.statement.startswith("C eigenvalues of G"))
    assert said.claim(matrix_record(0.01)).verdict == "yes"
    record = knockout_record(True)
    for count, words in ((C + 3, "raise the first of the bulk"), (C - 3, "no longer than the spread")):
        values = np.concatenate([np.full(count, 100.0), np.ones(100)])
        arrays = {**record.arrays, "0/exact/G/nodes": values, "0/exact/G/counts": np.ones(len(values))}
        claim = said.claim(replace(record, arrays=arrays))
        assert claim.verdict == "partly" and words in claim.why


def dynamics_record(structured):
    """Bulks that part with epochs and meet with sizes, or the other way round; class means as they should or not."""
    arrays, facts = {}, {}
    for i, epoch in enumerate((1, 6, 30)):
        for j, size in enumerate((13, 51, 136)):
            name, step = f"0/{size}/{epoch}", (i - j) if structured else (j - i)
            spread, lift = 1e-1, 1.0 if structured else 10.0 ** (i + j)
            cross = np.full(C * (C - 2), spread * 10.0 ** -(2.4 + 0.7 * step))
            means = np.concatenate([np.full(C, 10.0 * lift), cross, np.full(C, 0.0 if structured else 0.5)])
            top = np.full(C, 10.0 * lift if structured else 1e4 * lift)
            rest = [cross, np.full(500, spread)] if structured else [np.full(500, 30 * spread)]
            G = np.concatenate([top, *rest])
            for part, values in {"G": G, "within": means, "only_within": np.full(500, spread)}.items():
                arrays |= {f"{name}/{part}/nodes": values, f"{name}/{part}/counts": np.ones(len(values))}
            arrays[f"{name}/within_traces"] = np.full(C, spread * size)
            facts[f"{name}/facts"] = {"size": 10**5}
            arrays[f"{name}/origins/G/in_class"] = np.full(2 * C, 0.95 if structured else 0.1)
    last = "0/136/30"
    G = arrays[f"{last}/G/nodes"]
    arrays |= {f"{last}/lanczos/G/nodes": G if structured else 50 * G, f"{last}/lanczos/G/counts": np.ones(len(G))}
    facts[f"{last}/lanczos/facts"] = {"resolution": 0.1}
    return Record("papyan2020.fig6", "smoke", {}, facts, arrays)


def test_statements_on_dynamics_can_say_yes_and_no():
    for statement in gradient_dynamics.statements("papyan2020"):
        verdicts = [statement.claim(dynamics_record(structured)).verdict for structured in (True, False)]
        assert verdicts[0] == "yes" and verdicts[1] != "yes", (statement.statement, verdicts)
    *both, varies = gradient_dynamics.statements("papyan2019")
    for statement in both:
        verdicts = [statement.claim(dynamics_record(structured)).verdict for structured in (True, False)]
        assert verdicts[0] == "yes" and verdicts[1] != "yes", (statement.statement, verdicts)
    assert [varies.claim(dynamics_record(structured)).verdict for structured in (False, True)] == ["yes", "no"]


def test_a_gap_that_one_seed_does_not_fill_is_a_gap():
    record = dynamics_record(True)
    arrays = dict(record.arrays)
    for seed, inside in ((0, 3), (1, 0)):
        arrays |= {f"{seed}/13/30/G/nodes": np.geomspace(2e-5, 9e-5, 3), f"{seed}/13/30/G/counts": np.full(3, 1.0)}
        arrays[f"{seed}/13/30/G/nodes"] = arrays[f"{seed}/13/30/G/nodes"] * (1.0 if inside else 100.0)
    assert dynamics_numbers.in_the_gap(replace(record, arrays=arrays)) == 0.0


def logistic_record(structured):
    seeds, signals, D = 2, np.array([1.0, 2.0, 3.0, 4.0]), 4 * C
    arrays = {"signals": signals, "sizes": np.array([10, 100])}
    arrays["deviations"] = np.array([[1.0, 10**-0.5]] * seeds) if structured else np.ones((seeds, 2))
    lines = np.array([[8.0 * (i + 1) ** 2, 2.0 * (i + 1), 1.0] for i in range(4)])
    if not structured:
        lines = lines[::-1].copy()
    counts = [C, C * (C - 2), D * (C - 1) - C * (C - 1)]
    values = np.stack([np.concatenate([np.full(n, v) for n, v in zip(counts, row, strict=True)]) for row in lines])
    if not structured:  # gaps elsewhere
        values[:, : C + 3] = 10 * values.max()
    for name in logistic.CLASSIFIERS:
        arrays[f"{name}/eigenvalues"] = np.stack([values] * seeds)
        arrays[f"{name}/theorem"] = np.stack([lines if structured else 2 * lines] * seeds)
        arrays[f"{name}/error"] = np.stack([np.array([0.5, 0.3, 0.2, 0.1])] * seeds)
        means = np.stack([values[:, :C].mean(1), lines[:, 1], lines[:, 2]], 1)
        alpha = 1 - (means[:, 0] - means[:, 2]) / (C * (means[:, 1] - means[:, 2]))
        arrays[f"{name}/alpha"] = np.stack([alpha if structured else alpha + 1] * seeds)
    return Record("papyan2020.sec8", "smoke", {"num_classes": C, "num_inputs": D}, {}, arrays)


def test_statements_on_logistic_regression_can_say_yes_and_no():
    for statement in logistic.STATEMENTS:
        verdicts = [statement.claim(logistic_record(structured)).verdict for structured in (True, False)]
        assert verdicts[0] == "yes" and verdicts[1] != "yes", (statement.statement, verdicts)


def test_gauss_newton_of_logistic_regression_is_its_hessian():
    x, y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(20) % 3
    W = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    H = dense_hessian(lambda W: torch.nn.functional.cross_entropy(x @ W.T, y), W)
    torch.testing.assert_close(logistic.gauss_newton(x, (x @ W.T).softmax(1)), H)


def test_cheap_products_find_outliers_that_the_matrix_itself_certifies(shelf, monkeypatch):
    piece = gradient_dynamics.PRESETS["smoke"].piece
    place, network = Place(torch.device("cpu"), None, shelf), gradients.Network(piece, piece.num_epochs)
    exact = gradients.exact(gradients.Exact(network, ("G",)), place=place)["G/nodes"]
    own = gradients.gauss_newton
    monkeypatch.setattr(gradients, "gauss_newton", lambda risk: replace(G := own(risk), rough=1.01 * G))
    cheap = gradients.quadrature(gradients.Quadrature(network, 60, precision="high"), place=place)
    torch.testing.assert_close(cheap["outliers"], exact[:C], rtol=2e-3, atol=1e-9)
    rest = float((cheap["G/counts"] * cheap["G/nodes"])[cheap["G/nodes"] < cheap["outliers"][-1]].sum())
    assert rest > 0


def test_at_one_size_both_ways_stand_side_by_side_also_beyond_where_all_is_exact(shelf, tmp_path):
    config = replace(gradient_dynamics.PRESETS["smoke"], exact=4, compared=6)
    result = gradient_dynamics.run(config, Context(folder=tmp_path, shelf=shelf))
    last = config.piece.num_epochs
    assert {f"0/6/{last}/G/nodes", f"0/6/{last}/lanczos/G/nodes", "0/6/1/lanczos/G/nodes"} <= set(result)
    assert "0/6/1/G/nodes" not in result and f"0/6/{last}/parts/together/nodes" not in result
    record = Record("papyan2020.fig6", "", plain(config), *split(result))
    assert dynamics_numbers.beside(record) and dynamics_numbers.panel(record, 0, 6, last).exact
    assert not dynamics_numbers.panel(record, 0, 6, 1).exact


def test_the_lanczos_curve_has_no_bulk_of_zeros_on_either_side():
    record = knockout_record(True)
    values = record.arrays["0/lanczos/G/nodes"]
    noise, many = 1e-6 * values.max() * np.array([1.0, -1.0]), np.full(2, 1e5)  # zeros, as rounding leaves them
    seen = {"0/lanczos/G/nodes": np.append(values, noise), "0/lanczos/G/counts": np.append(np.ones(len(values)), many)}
    noisy = replace(record, arrays={**record.arrays, **seen})
    assert knockout_numbers.lanczos_error(noisy, 0) < 1e-6 and knockout_numbers.right_from(noisy, 0) < -7
    half = {"0/lanczos/G/nodes": values[values > 1.0]}  # of eigenvalues from 0.5 to 2, and 100
    half["0/lanczos/G/counts"] = np.ones(len(half["0/lanczos/G/nodes"]))
    cut = replace(record, arrays={**record.arrays, **half})
    assert -2.2 < knockout_numbers.right_from(cut, 0) < -1.8 and 0 < knockout_numbers.lanczos_error(cut, 0) <= 2


def test_zeros_that_lanczos_sees_at_the_size_of_rounding_are_no_bulk():
    seen = Spectrum(torch.tensor([[1e-4, 5.0, 2.0]]), torch.tensor([[0.97, 0.01, 0.02]]), 100)
    ours = gradients.with_zeros(seen, 3)
    assert ours.nodes.tolist() == [[5.0, 2.0, 0.0]] and ours.size == 100
    torch.testing.assert_close(ours.weights, torch.tensor([[0.01, 0.02, 0.97]]).double())


def split(result):
    """Scalars and arrays of what a figure's run returns."""
    arrays = {name: np.asarray(value) for name, value in result.items() if getattr(value, "ndim", 0)}
    return {name: value for name, value in result.items() if name not in arrays}, arrays


def test_a_matrix_of_zeros_is_gathered_too():
    nodes, counts = gradients.gathered(torch.zeros(5000, dtype=torch.float64))
    assert float(nodes.abs().max()) == 0 and float(counts.sum()) == 5000
