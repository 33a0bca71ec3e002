"""Every figure of both papers at its smallest, and each of their rules on records that agree and that do not."""

from dataclasses import replace

import numpy as np
import pytest

from ritz.papers.frame.figure import Context
from ritz.papers.frame.loans import lent
from ritz.papers.frame.sources import sources
from ritz.papers.papyan2019 import dynamics
from ritz.papers.papyan2020 import components, inheritance, spectra, synthetic, tail, tail_numbers
from ritz.papers.papyan2020.setting import Piece
from ritz.papers.papyan2020.spectra import Measurement
from ritz.record import plain
from tests.papers.singh2026.records import record_of, record_with, verdicts

from .records import (
    FIGURES,
    batch_norm_record,
    component_record,
    deflation_record,
    entry,
    hessian_record,
    inheritance_record,
    pattern_record,
    tail_record,
)

pytestmark = pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")
OWN = [f"papyan2019.fig{n}" for n in (2, 3, 4, 5, 6, 8, 9, 10)] + [
    f"papyan2020.{n}" for n in ("fig1", "fig2", "fig3", "fig4", "fig14", "fig15", "fig16", "fig17", "sec9")
]
RECORDS = {
    "papyan2020.fig3": hessian_record,
    "papyan2020.fig14": hessian_record,
    "papyan2020.fig4": component_record,
    "papyan2020.fig16": tail_record,
    "papyan2020.fig17": deflation_record,
    "papyan2019.fig2": hessian_record,
    "papyan2020.fig1": pattern_record,
    "papyan2020.fig2": inheritance_record,
    "papyan2019.fig3": component_record,
    "papyan2019.fig4": tail_record,
    "papyan2020.sec9": batch_norm_record,
}


@pytest.mark.parametrize("name", OWN)
def test_a_figure_runs_draws_and_judges_at_its_smallest(name, computed):
    figure = FIGURES[name]
    assert set(figure.presets) == {"paper", "laptop", "smoke"}
    record = computed(figure)
    claims = figure.claims(record)
    assert claims and all(claim.why for claim in claims if claim.verdict != "yes")
    assert figure.draw(record).axes


@pytest.mark.parametrize("name", RECORDS)
def test_every_rule_says_yes_to_numbers_that_agree(name):
    found = verdicts(FIGURES[name], RECORDS[name](True))
    assert set(found.values()) == {"yes"}, found


@pytest.mark.parametrize("name", RECORDS)
def test_every_rule_says_no_to_numbers_that_do_not(name):
    found = verdicts(FIGURES[name], RECORDS[name](False))
    assert "yes" not in found.values(), found


LENDERS = {figure.shared: figure for figure in FIGURES.values() if figure.loans(figure.presets["smoke"])}


class NoWorkers:
    """What is lent must do."""

    def outcomes(self, task, configs):
        assert not configs, task
        yield from ()


@pytest.mark.parametrize("name", LENDERS)
def test_a_run_of_which_a_record_has_everything_computes_nothing_and_returns_the_same(name, computed):
    figure = LENDERS[name]
    record, config = computed(figure).detached(), figure.presets["smoke"]
    loans = lent(figure.loans(config), figure.loans(config), record)
    again = record_of(figure, figure.run(config, Context(lent=loans, workers=NoWorkers()))).detached()
    assert again.scalars == record.scalars and again.arrays.keys() == record.arrays.keys()
    for name, values in record.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], values, err_msg=name)


@pytest.mark.parametrize("name", LENDERS)
def test_what_other_figures_lend_is_all_that_a_run_reads(name, computed, shelf):
    """Figures keep different parts of one training: a curve, an error, how the rate was chosen."""
    figure = LENDERS[name]
    config, loans = figure.presets["smoke"], {}
    for other in (own for own in LENDERS.values() if own.shared != figure.shared):
        loans |= lent(figure.loans(config), other.loans(other.presets["smoke"]), computed(other).detached())
    record, again = computed(figure), figure.run(config, Context(lent=loans, shelf=shelf))
    assert set(again) == {*record.scalars, *record.arrays}


@pytest.mark.parametrize("name", LENDERS)
def test_another_network_is_not_lent(name, computed):
    figure = LENDERS[name]
    config = figure.presets["smoke"]
    piece = "network" if hasattr(config, "network") else "piece"
    wider = replace(config, **{piece: replace(getattr(config, piece), width=99)})
    assert not lent(figure.loans(wider), figure.loans(config), computed(figure))


def test_curves_that_are_kept_in_part_are_not_lent_as_whole_ones(computed):
    figure = FIGURES["papyan2020.fig7"]
    config, record = figure.presets["smoke"], computed(figure)
    alone, first, second = figure.loans(config), *(figure.loans(replace(config, seeds=s)) for s in ((0, 1), (1, 0)))
    assert len(lent(first, alone, record)) == len(lent(second, alone, record)) == len(config.sets)
    assert lent(second, second, record) and not lent(alone, second, record)


def test_a_density_that_misses_the_eigenvalues_is_told_from_one_that_does_not(computed):
    figure = FIGURES["papyan2020.fig15"]
    record = computed(figure)
    good = {**record.arrays}
    for name in ("spiked", "pareto"):
        values = record.arrays[f"{name}_eigenvalues"]
        for kind in ("fast", "slow"):
            good |= {
                f"{name}_{kind}_nodes": values[None],
                f"{name}_{kind}_weights": np.full((1, len(values)), 1 / len(values)),
            }
    values = np.random.default_rng(0).pareto(0.5, 5000) + 1
    good |= {"pareto_eigenvalues": values, "pareto_fast_nodes": values[None], "pareto_slow_nodes": values[None]}
    good |= {f"pareto_{kind}_weights": np.full((1, 5000), 1 / 5000) for kind in ("fast", "slow")}
    agree = verdicts(figure, replace(record, arrays=good))
    ghosts = next(text for text in agree if "ghosts" in text)
    assert agree.pop(ghosts) == "no" and verdicts(figure, record)[ghosts] == "yes"  # more steps than eigenvalues
    assert [verdict for text, verdict in agree.items() if "factor 1/θ" not in text] == ["yes"] * 5
    bad = {**good, "spiked_fast_nodes": good["spiked_fast_nodes"] + 3.0, "pareto_fast_nodes": 0 * values[None] + 1.0}
    bad["pareto_eigenvalues"] = np.linspace(1, 2, 5000)
    found = {text: v for text, v in verdicts(figure, replace(record, arrays=bad)).items() if "1/θ" not in text}
    assert "yes" not in found.values()
    ones = {**good, "pareto_fast_nodes": np.ones((1, 5000))}
    assert synthetic.published_mass(replace(record, arrays=ones)) == pytest.approx(1.0)


def moving(top_of_G, E, error):
    """A record of one size and seed with these magnitudes at three epochs."""
    result = {"epochs": np.array([1, 6, 30]), "error_epochs": np.array([0, 1, 3, 6, 30])}
    result |= {f"13/{part}_error": np.array([error]) for part in ("train", "test")}
    for epoch, top, wide in zip((1, 6, 30), top_of_G, E, strict=True):
        values = top * np.linspace(1, 0.5, 10)
        for matrix in "HG":
            name = dynamics.prefix(13, 0, epoch, matrix)
            result |= entry(name, 0.1 * top * np.array([-1.0, 0.0, 1.0]), [1, 1, 1], values=values, outliers=10)
        result |= entry(dynamics.prefix(13, 0, epoch, "E"), wide * np.array([-1.0, 0.0, 1.0]), [1, 1, 1])
    return record_with(dynamics.Config(sizes=(13,), seeds=(0,)), result)


def test_the_dynamics_are_judged_by_where_G_has_its_peak():
    agree = moving([1.0, 5.0, 0.1], [1.0, 1.0, 1.0], [0.9, 0.5, 0.2, 0.02, 0.0])
    against = moving([1.0, 5.0, 50.0], [0.001, 0.001, 0.001], [0.9, 0.9, 0.9, 0.9, 0.0])
    for name in ("papyan2019.fig6", "papyan2019.fig10"):
        assert set(verdicts(FIGURES[name], agree).values()) == {"yes"}
    assert "yes" not in verdicts(FIGURES["papyan2019.fig6"], against).values()
    late = moving([50.0, 5.0, 1.0], [1.0, 1.0, 1.0], [0.9, 0.9, 0.9, 0.9, 0.0])
    assert "yes" not in verdicts(FIGURES["papyan2019.fig10"], late).values()


def test_the_peaks_of_two_sample_sizes_at_one_place_are_both_seen():
    record = moving([1.0, 5.0, 0.1], [1.0, 1.0, 1.0], [0.9, 0.5, 0.2, 0.02, 0.0])
    arrays = {name.replace("13/", "51/", 1): value for name, value in record.arrays.items()} | record.arrays
    scalars = {name.replace("13/", "51/", 1): value for name, value in record.scalars.items()} | record.scalars
    both = replace(record, config=record.config | {"sizes": [13, 51]}, arrays=arrays, scalars=scalars)
    dots = [line for line in FIGURES["papyan2019.fig10"].draw(both).axes[0].lines if line.get_marker() == "o"]
    first, second = (float(line.get_markersize()) for line in dots)
    assert np.ravel(dots[0].get_xdata()) == np.ravel(dots[1].get_xdata()) and first > second


def test_e_is_held_against_all_of_g_and_beside_it_against_its_bulk():
    """Of G with outliers of 100 and nothing else, E is a small part of both, and all of the bulks."""
    result = {"epochs": np.array([1]), "error_epochs": np.array([0, 1])}
    result |= {f"13/{part}_error": np.array([[0.9, 0.1]]) for part in ("train", "test")}
    outliers = {"values": np.full(10, 100.0), "outliers": 10, "size": 10**4}
    for matrix in "HG":
        result |= entry(dynamics.prefix(13, 0, 1, matrix), [0.0, 1e-6], [1, 1], **outliers)
    result |= entry(dynamics.prefix(13, 0, 1, "E"), [-1.0, 1.0], [1, 1], size=10**4)
    claims = FIGURES["papyan2019.fig6"].claims(record_with(dynamics.Config(sizes=(13,), seeds=(0,)), result))
    never = next(claim for claim in claims if "never negligible" in claim.statement)
    assert never.measured["13 a class"] == pytest.approx(1 / 11) and never.verdict == "partly"
    assert [beside["verdict"] for beside in never.beside.values()] == ["yes"]


@pytest.mark.parametrize(("tops", "verdict"), [((2.0, 20.0, 200.0), "yes"), ((200.0, 20.0, 2.0), "no")])
def test_outliers_further_apart_go_with_a_smaller_test_error(tops, verdict):
    sizes, result = (13, 51, 136), {"epochs": np.array([1, 30]), "error_epochs": np.array([0, 1, 30])}
    for size, top, error in zip(sizes, tops, (0.5, 0.3, 0.1), strict=True):
        result |= {f"{size}/{part}_error": np.array([[0.9, 0.6, error]]) for part in ("train", "test")}
        values = top * np.linspace(1, 0.5, 10)
        for epoch in (1, 30):
            for matrix in "HG":
                result |= entry(
                    dynamics.prefix(size, 0, epoch, matrix), [-1.0, 0.0, 1.0], [1, 1, 1], values=values, outliers=10
                )
            result |= entry(dynamics.prefix(size, 0, epoch, "E"), [-1.0, 0.0, 1.0], [1, 1, 1])
    judged = verdicts(FIGURES["papyan2019.fig6"], record_with(dynamics.Config(sizes=sizes, seeds=(0,)), result))
    assert next(v for text, v in judged.items() if "generalisation" in text) == verdict


@pytest.mark.parametrize("name", ["papyan2019.fig6", "papyan2019.fig10", "papyan2020.fig6"])
def test_networks_of_several_seeds_are_judged_together_and_lent_one_by_one(name, shelf, tmp_path):
    figure = FIGURES[name]
    config = replace(figure.presets["smoke"], sizes=(4, 6), seeds=(0, 1))
    record = record_with(config, figure.run(config, Context(folder=tmp_path, shelf=shelf)))
    claims = figure.claims(record)
    assert claims and not any(np.isnan(x) for c in claims for x in np.atleast_1d(list(numbers(c.measured))))
    assert figure.draw(record).axes
    pieces = {piece_of(loan.config) for loan in figure.loans(config)}
    assert {(piece.per_class, piece.seed) for piece in pieces} == {(4, 0), (4, 1), (6, 0), (6, 1)}
    other = figure.loans(replace(config, seeds=(1, 2)))
    second = {loan.filed for loan in other if piece_of(loan.config).seed == 1}
    assert set() < set(lent(other, figure.loans(config), record)) <= second


def numbers(measured):
    """The numbers of a claim, whatever they are of."""
    return measured.values() if isinstance(measured, dict) else [] if measured is None else [measured]


def piece_of(config):
    """The trained network that a measurement is of."""
    return config if isinstance(config, Piece) else piece_of(getattr(config, "piece", None) or config.network)


def test_a_run_that_was_cut_goes_on_with_what_it_has(shelf, tmp_path, monkeypatch):
    config = components.PRESETS["smoke"]
    context = Context(folder=tmp_path, shelf=tmp_path)
    density, made = spectra.spectral_density, []

    def cut(*given, **options):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return density(*given, **options)

    monkeypatch.setattr(spectra, "spectral_density", cut)
    with pytest.raises(KeyboardInterrupt):
        components.run(config, context)
    made.clear()
    monkeypatch.setattr(spectra, "spectral_density", lambda *a, **k: (made.append(1), density(*a, **k))[1])
    whole = components.run(config, context)
    assert len(made) == 4 and {f"{part}/{matrix}/facts" for part in ("train", "test") for matrix in "HGE"} <= set(whole)
    assert len({whole[f"{part}/{matrix}/facts"]["identity"] for part in ("train", "test") for matrix in "HGE"}) == 1


def test_the_outliers_of_a_measurement_are_eigenvalues_of_the_matrix(shelf):
    """Against the dense Hessian of a small network."""
    import torch

    from ritz import hessian
    from ritz.papers.papyan2020.networks import Place
    from ritz.papers.papyan2020.setting import TINY, Piece

    place = Place(torch.device("cpu"), None, shelf)
    piece = Piece("mlp", "digits", 4, training=TINY.training, width=6, depth=3)
    method = spectra.Method(num_steps=40, num_pairs=12, tolerance=1e-6, num_examples=None)
    result = spectra.spectrum(Measurement(piece, 2, "test", "H", 10, method), place=place)
    H = hessian(spectra.risk_of(piece, None, "test", place)[0]).dense().double()
    values = torch.linalg.eigvalsh(H)
    largest = values[values.abs().argsort(descending=True)][:12]
    assert torch.allclose(result["values"].abs(), largest.abs(), rtol=1e-3)
    assert torch.equal(result["nodes"][0, :10], result["values"][:10]) and result["num_steps"] == 40
    assert float(result["weights"].sum()) == pytest.approx(1)


def test_means_of_one_example_a_class_are_products_of_features_and_errors(shelf):
    """Where nothing varies around the means, every gradient is δhᵀ, and the table of angles is a product."""
    import torch

    from ritz.papers.papyan2020.networks import Place
    from ritz.papers.papyan2020.setting import TINY

    config = inheritance.Config(replace(TINY, per_class=1), None)
    result = inheritance.alignments(config, place=Place(torch.device("cpu"), None, shelf))
    assert np.allclose(result["class_cosines"], 1, atol=1e-4) and np.allclose(result["cross_cosines"], 1, atol=1e-4)
    assert np.allclose(result["whole_cosines"], 1, atol=1e-4)
    tables = [np.asarray(result[f"table_{name}"]) for name in ("features", "errors", "gradients")]
    assert np.allclose(tables[0] * tables[1], tables[2], atol=1e-4)


def test_a_bulk_in_bins_says_how_narrow_a_gap_they_show():
    record = pattern_record(True)
    single = next(c for c in FIGURES["papyan2020.fig1"].claims(record) if "without a gap" in c.statement)
    nodes = np.concatenate([record.arrays["0/exact/G/nodes"][:100], np.geomspace(1.0, 0.1, 30)])
    counts = np.concatenate([np.ones(100), np.full(30, 70.0)])
    binned = {**record.arrays, "0/exact/G/nodes": nodes, "0/exact/G/counts": counts}
    (claim,) = (c for c in FIGURES["papyan2020.fig1"].claims(replace(record, arrays=binned)) if "a gap" in c.statement)
    assert single.verdict == claim.verdict == "yes" and single.why == ""
    assert claim.why == f"Below 1 these are bins, {0.1 ** (-1 / 29):.3g} apart."


def test_a_fit_finds_the_exponent_and_says_how_well_it_fits():
    x = np.geomspace(0.1, 1, 50)
    law = tail_numbers.PowerLaw.through(x, 3 * x**-2.5)
    assert (law.exponent, law.prefactor, law.explained) == pytest.approx((-2.5, 3.0, 1.0))
    assert tail_numbers.PowerLaw.through(x, np.exp(-20 * x)).explained < 0.95
    assert np.isnan(tail_numbers.PowerLaw.through(x, 0 * x).exponent)


def test_an_exponent_stands_beside_that_of_the_part_which_both_lines_have():
    """A density that bends at 0.3 of its end: what is fitted beyond is steeper."""
    x = np.geomspace(0.02, 1.0, 3000)
    density = np.where(x < 0.3, x**-2.0, 0.3**4.0 * x**-6.0)
    nodes, weights = np.concatenate([-x, x]), np.tile(1e-4 * density * x, 2)
    record = record_with(tail.Config(), {"test_errors": np.zeros(1), **entry("seed 0", nodes, weights, steps=401)})
    record = replace(
        record, arrays={**record.arrays, **{f"long/{k}": record.arrays[f"seed 0/{k}"] for k in spectra.ARRAYS}}
    )
    record = replace(record, scalars={**record.scalars, "long/facts": record.scalars["seed 0/facts"]})
    claim = next(c for c in FIGURES["papyan2020.fig16"].claims(record) if "-2.7" in c.statement)
    (beside,) = claim.beside.values()
    assert claim.reading == "from 0.05 to 0.5 of the largest" and list(claim.beside) == [
        "from 0.05 to 0.3 of the largest"
    ]
    assert claim.measured < beside["measured"] - 0.2 and beside["measured"] == pytest.approx(-2.0, abs=0.3)


def test_each_network_is_smoothed_by_the_width_of_its_own_spectrum():
    rng, result = np.random.default_rng(0), {"test_errors": np.zeros(2)}
    nodes, weights = np.linspace(-1.0, 1.0, 128), rng.uniform(0.1, 1.0, 128)
    for seed, scale in enumerate((1.0, 20.0)):  # the same tail on another scale has the same exponent
        result |= entry(f"seed {seed}", scale * nodes, weights)
    record = record_with(tail.Config(seeds=(0, 1)), {**result, **entry("long", nodes, weights)})
    first, second = (tail_numbers.linear_laws(record, name)["positive"] for name in tail_numbers.seeds(record))
    assert np.isclose(first.exponent, second.exponent) and np.isclose(first.explained, second.explained)
    assert np.isclose(second.prefactor, first.prefactor * 20.0 ** -(first.exponent + 1))
    both = tail_numbers.explained(record), tail_numbers.prefactors(record)
    assert [len(numbers) for numbers in both] == [3, 3]  # one of each network, and of the logarithm


def test_a_figure_of_another_paper_borrows_what_was_computed_for_the_first(tmp_path, capsys):
    from ritz.cli import papers

    assert papers.run(["papyan2019.fig8", "papyan2020.fig15"], "smoke", [], tmp_path, Context())
    said = capsys.readouterr().out
    assert (
        "papyan2020.fig15 smoke: computed in" in said
        and "papyan2019.fig8 smoke: computed with papyan2020.fig15" in said
    )


def test_a_hessian_need_not_be_measured_in_two_precisions():
    record, figure = hessian_record(True), FIGURES["papyan2020.fig3"]
    without = replace(record, config={**record.config, "checked": None})
    texts = {claim.statement for claim in figure.claims(without)}
    assert len(texts) == len(figure.claims(record)) - 1 and not any("TF32" in text for text in texts)


@pytest.mark.parametrize("name", [name for name in FIGURES if name.startswith("papyan2019")])
def test_what_2019_prints_is_quoted_from_2019(name):
    rows = {row.field: row for row in sources(FIGURES[name], plain(FIGURES[name].presets["paper"]))}
    assert set(FIGURES[name].printed) - {"method.num_steps"} <= set(rows)
    of_2020 = ("M ∈ {128, 256}", "Each row of panels", "D.2", "25 for MLPs", "multilayer")
    assert not [row for row in rows.values() if any(words in row.printed + row.why for words in of_2020)]
