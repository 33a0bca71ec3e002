"""The figures of singh2026 on linear and ReLU networks, and of its poster: right numbers, and rules that can say no."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz import theory
from ritz.lab import data, ensemble, models
from ritz.papers.frame.figure import Context
from ritz.papers.frame.registry import figures
from ritz.papers.singh2024 import poster
from ritz.papers.singh2026 import correlations, deep, evolution, pairs, regression, relu, scale
from ritz.record import Record, plain
from ritz.risk.losses import SquaredError

MODULES = (relu, evolution, scale, pairs, correlations, deep, poster)
FIGURES = {name: figure for module in MODULES for name, figure in module.FIGURES.items()}
NUMBERS = ("1", "3a", "3b", "4", "7", "8", *map(str, range(10, 23)), "26")


def record_of(figure, result, preset="smoke", **settings):
    config = replace(figure.presets[preset], **settings)
    arrays = {name: np.asarray(value) for name, value in result.items() if getattr(value, "ndim", 0)}
    scalars = {name: value for name, value in result.items() if name not in arrays}
    return Record(figure.id, preset, plain(config), scalars, arrays)


@pytest.fixture(scope="module")
def computed():
    """Each computation of the smoke presets once."""
    kept = {}

    def of(figure):
        if figure.shared not in kept:
            kept[figure.shared] = figure.run(figure.presets["smoke"], Context())
        return record_of(figure, kept[figure.shared])

    return of


def verdicts(figure, record):
    return {claim.statement: claim.verdict for claim in figure.judged(record)}


def networks(widths, activation, generator, count=3):
    drawn = [
        models.mlp(widths, generator=generator, activation=activation, bias=False, dtype=torch.float64)
        for _ in range(count)
    ]
    return ensemble.Ensemble.of(drawn)


def own_data(widths, generator, count=3, examples=11):
    sets = [data.normalized(examples, widths[0], generator=generator, dtype=torch.float64) for _ in range(count)]
    return torch.stack([one.x for one in sets]), torch.stack([one.y for one in sets])


def test_every_figure_on_linear_and_relu_networks_is_listed():
    wanted = {f"singh2026.fig{number}" for number in NUMBERS} | {"singh2024.evolution", "singh2024.relu"}
    assert wanted == set(FIGURES)
    assert wanted <= set(figures())


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_figure_runs_draws_and_judges_at_its_smallest(name, computed):
    figure = FIGURES[name]
    record = computed(figure)
    claims = figure.judged(record)
    assert claims and all(claim.verdict in ("yes", "partly", "no") for claim in claims)
    assert all(claim.why for claim in claims if claim.verdict != "yes")
    assert figure.draw(record).axes


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_figure_has_the_papers_setting_one_for_a_laptop_and_one_for_tests(name):
    assert set(FIGURES[name].presets) == {"paper", "laptop", "smoke"}


def test_orthogonal_weights_and_decorrelated_data_have_the_pair_of_theory(generator):
    examples = data.decorrelated(20, 4, generator=generator, dtype=torch.float64)
    V, w = pairs._weights("orthogonal", (4, 7, 1), generator)
    closed = theory.paired_outliers(w[0], V, examples.x, examples.y[:, 0])
    spectra = theory.linear_spectra([V[None], w[None]], examples.x[None], examples.y[None])
    found = pairs.gaps(spectra, 4, torch.ones(1, dtype=torch.float64))
    assert float(found["best"]) < 1e-12 * float(found["fraction"])
    pair = closed["pair 1"].value + closed["pair 2"].value
    assert float(found["fraction"]) == pytest.approx(pair)


def test_gaps_are_those_of_all_pairs_whatever_the_number_of_zeros():
    values, zeros = torch.tensor([[-1.0, 0.3, 0.5, 4.0]], dtype=torch.float64), 9
    found = pairs.gaps(theory.Spectra(values, zeros), 2, torch.tensor([2.0]))
    whole = [*values[0].tolist(), *[0.0] * zeros]
    sums = [a + b for i, a in enumerate(whole) for b in whole[i + 1 :]]
    gaps = sorted(abs(total - 3.8 / 2) for total in sums)
    assert [float(found["best"]), float(found["second"])] == pytest.approx(gaps[:2])
    assert float(found["control"]) == pytest.approx(min(abs(total - 3.8) for total in sums))
    assert float(found["mean"]) == pytest.approx(3.8 / 13)


# ------------------------------------------------------------------------------------------------ trained networks


@pytest.fixture
def point():
    few = regression.Training(networks=4, examples=30, batch_size=16, window=2, improvement=1e-2, epochs=3)
    return regression.Point("NTP", (2, 5, 2), "linear", few)


def trained_as(point, **settings):
    return replace(point, training=replace(point.training, **settings))


@pytest.mark.parametrize("name", regression.NAMES)
def test_traces_of_linear_networks_are_those_that_are_measured(name, point, generator):
    point = replace(point, parametrization=name, widths=(2, 4, 4, 3))
    examples = regression.task(point, generator)
    stack, recipe = regression.drawn(point, generator)
    stack, x, y = stack.to(torch.float64), examples.x.double(), examples.y.double()
    found = theory.linear_trace(stack.matrices, x, multipliers=recipe.multipliers)
    torch.testing.assert_close(found, ensemble.trace(stack, SquaredError(), (x, y)).values)


def diagonal_blocks(W, V, multipliers, x, y):
    """The blocks of the Hessian for one layer each, whole, by automatic differentiation."""

    def loss(W, V):
        return ((x @ (multipliers[0] * W).T @ (multipliers[1] * V).T - y) ** 2).sum() / (2 * len(x))

    for layer, weight in enumerate((W, V)):
        H = torch.func.jacfwd(torch.func.grad(loss, argnums=layer), argnums=layer)(W, V)
        yield H.reshape(weight.numel(), weight.numel())


@pytest.mark.parametrize("name", regression.NAMES)
@pytest.mark.parametrize("widths", [(3, 5, 4), (4, 3, 2)])
def test_the_bound_is_the_largest_eigenvalue_of_the_diagonal_blocks(name, widths, point, generator):
    point = replace(point, parametrization=name, widths=widths)
    examples = regression.task(point, generator)
    stack, recipe = regression.drawn(point, generator)
    stack, x, y = stack.to(torch.float64), examples.x.double() * torch.linspace(1, 2, widths[0]), examples.y.double()
    found = theory.sharpness_bound(stack.matrices, x, multipliers=recipe.multipliers)
    for W, V, bound, top in zip(*stack.matrices, found, ensemble.spectra(stack, SquaredError(), (x, y))[:, -1]):
        blocks = diagonal_blocks(W, V, recipe.multipliers, x, y)
        assert float(bound) == pytest.approx(max(float(torch.linalg.eigvalsh(H)[-1]) for H in blocks))
        assert top >= bound * (1 - 1e-12)


def test_the_bound_for_white_inputs_is_the_one_of_the_paper(generator):
    W, V = torch.randn(3, 5, 4, generator=generator).double(), torch.randn(3, 2, 5, generator=generator).double()
    white = data.decorrelated(30, 4, generator=generator, dtype=torch.float64).x
    found = theory.sharpness_bound([W, V], white)
    expected = torch.maximum(ensemble.norms(W).spectral, ensemble.norms(V).spectral) ** 2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("activation", ["linear", "relu"])
@pytest.mark.parametrize("name", regression.NAMES)
def test_training_lowers_the_loss_of_every_network(activation, name, point):
    point = trained_as(replace(point, activation=activation, parametrization=name), epochs=60, window=30)
    found = regression.measured(point, torch.device("cpu"))
    assert (found["losses"][1] < found["losses"][0]).all()
    assert found["sharpness"].shape == (2, 4) and found["norms"].shape == (2, 2, 3, 4)
    assert found["sharpness"].isfinite().all()


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_the_three_ends_of_training_are_told_apart(activation, point):
    point = replace(point, activation=activation)
    ended = regression.measured(trained_as(point, window=1, improvement=0.99, epochs=50), torch.device("cpu"))
    assert ended["finished"].all() and not ended["diverged"].any() and ended["epochs"] < 50
    cut = regression.measured(trained_as(point, window=50), torch.device("cpu"))
    assert not cut["finished"].any() and not cut["diverged"].any() and cut["epochs"] == 3
    lost = regression.measured(trained_as(point, learning_rate=1e3, epochs=40, window=50), torch.device("cpu"))
    assert lost["diverged"].all() and not lost["finished"].any()
    assert lost["sharpness"][0].isfinite().all() and lost["sharpness"][1].isnan().all()
    assert lost["losses"][1].isnan().all()


def test_an_eigenvalue_that_was_not_found_is_none(point, monkeypatch):
    def one_missed(networks, *_, **__):
        values = torch.arange(1.0, 5.0, dtype=torch.float64)[:, None]
        return ensemble.Top(values, values, torch.tensor([True, False, True, True]), 1)

    monkeypatch.setattr(regression.ensemble, "sharpness", one_missed)
    found = regression.measured(point, torch.device("cpu"))
    assert found["sharpness"].isnan().tolist() == [[False, True, False, False]] * 2
    ending = regression._ending(found)
    assert ending["used"].tolist() == [3, 3] and ending["lost"].tolist() == [0.25, 0.25]


def test_products_of_two_layers_are_the_layers(point):
    found = regression.measured(point, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    regression.task(point, generator)
    weights = regression.drawn(point, generator)[0].to(torch.float64).matrices
    expected = [regression.norms(theory.product_without(weights, left)) for left in range(2)]
    torch.testing.assert_close(found["products"][0], torch.stack(expected))


def test_sharpness_is_measured_on_all_examples_though_linear_networks_see_few(point):
    found = regression.measured(point, torch.device("cpu"))
    generator = torch.Generator().manual_seed(point.training.seed)
    examples = regression.task(point, generator)
    stack = regression.drawn(point, generator)[0].to(torch.float64)
    expected = ensemble.spectra(stack, SquaredError(), (examples.x.double(), examples.y.double()))
    torch.testing.assert_close(found["sharpness"][0], expected[:, -1])


def deepest(preset, name):
    return deep._point(preset, name, max(preset.depths))


@pytest.mark.parametrize("name", regression.NAMES)
@pytest.mark.parametrize("number", [17, 21])
def test_the_papers_stop_rule_does_not_fire_on_the_plateau_that_deep_networks_start_from(number, name):
    point = deepest(FIGURES[f"singh2026.fig{number}"].presets["paper"], name)
    few = replace(point, training=replace(point.training, networks=3, epochs=point.training.window + 1))
    generator = torch.Generator().manual_seed(1)
    examples = regression.task(few, generator)
    stack, recipe = regression.drawn(few, generator)
    start = ensemble.losses(stack, SquaredError(), examples)
    end = regression._train(few, stack, examples, recipe, generator)
    assert (end.loss <= (1 - 10 * point.training.improvement) * start).all()  # far from firing
    assert not end.done.any() and not end.diverged.any()


def test_the_slow_rate_is_that_of_deep_linear_networks_with_one_input_alone():
    papers = {number: FIGURES[f"singh2026.fig{number}"].presets["paper"] for number in (17, 18, 21)}
    rates = {
        (number, name): deepest(papers[number], name).training.learning_rate
        for number in papers
        for name in ("SP", "NTP")
    }
    assert rates.pop((17, "SP")) == 1e-3
    assert set(rates.values()) == {1e-2}
    assert deep._point(papers[17], "SP", 2).training.learning_rate == 1e-2


def test_standard_weights_are_those_that_pytorch_draws(generator):
    drawn = regression.pytorch_default((400, 300, 1), generator=generator).weights[0]
    layer = torch.nn.Linear(400, 300, bias=False)
    assert float(drawn.abs().max()) <= 400**-0.5
    assert float(drawn.std()) == pytest.approx(float(layer.weight.detach().std()), rel=0.02)


def test_correlations_are_taken_over_the_networks_stage_by_stage():
    x = torch.tensor([[1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 3.0, 5.0]])
    quantities = torch.stack([torch.stack([2 * x[0], -x[0]]), torch.stack([x[0] ** 0, x[0].flip(0)])])
    found = regression.correlations(x, quantities)
    assert found.shape == (2, 2)
    assert found[0].tolist() == pytest.approx([1.0, -1.0])
    assert found[1, 1] == pytest.approx(np.corrcoef([1, 2, 3, 5], [5, 3, 2, 1])[0, 1])


# ------------------------------------------------------------------------------------- every rule says yes and says no


def pair_record(figure, best, second, mean, control):
    """A record whose medians are these numbers, of a trace fraction of one."""
    config, found = figure.presets["smoke"], {}
    for width in config.widths:
        inputs = [D for D in config.inputs if width >= D]
        shape = (2, 2, len(inputs), 3)
        numbers = {"best": best, "second": second, "mean": mean, "control": control, "fraction": 1.0}
        found |= {f"{name}_{width}": np.full(shape, number) for name, number in numbers.items()}
        found[f"inputs_{width}"] = np.array(inputs)
    return record_of(figure, found)


PAIRED = ("3a", "3b", "10", "11", "12", "13")


@pytest.mark.parametrize("number", PAIRED)
def test_claims_about_pairs_are_refused_where_no_pair_is_near(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, pair_record(figure, 0.5, 0.6, 0.1, 0.4)).values()) <= {"no", "yes"}
    no_pair = verdicts(figure, pair_record(figure, 0.5, 0.6, 0.1, 0.4))
    assert [verdict for statement, verdict in no_pair.items() if "no clear best" not in statement].count("yes") == 0


@pytest.mark.parametrize("number", PAIRED)
def test_claims_about_pairs_hold_where_a_pair_is_near_and_chance_far(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    second = 1e-3 if number == "3a" else 2e-9
    assert set(verdicts(figure, pair_record(figure, 1e-9, second, 1e-2, 1e-2)).values()) == {"yes"}


@pytest.mark.parametrize("number", PAIRED)
def test_one_input_is_left_out_only_where_two_linear_layers_have_its_pair_exactly(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    record = pair_record(figure, 1e-9, 2e-9, 1e-2, 1e-2)
    for width in record.config["widths"]:
        record.arrays[f"best_{width}"][:, :, record.arrays[f"inputs_{width}"] == 1] = 0.5
    found = [verdict for statement, verdict in verdicts(figure, record).items() if "close to tr H/D" in statement]
    assert found == (["yes"] if number in ("3b", "10") else ["no"])


def test_labels_of_a_logarithmic_axis_keep_their_distance():
    assert pairs._spaced(np.array([1, 2, 4])) == ["1", "2", "4"]
    assert pairs._spaced(np.array([1, 2, 3, 4, 6, 8, 10, 20, 50, 100, 150])) == [
        "1", "", "3", "", "6", "", "10", "20", "50", "", "150",
    ]  # fmt: skip
    assert pairs._spaced(np.array([3])) == ["3"]


def test_a_pair_that_stands_out_is_no_unclear_one():
    for number in ("3b", "13"):
        figure = FIGURES[f"singh2026.fig{number}"]
        found = verdicts(figure, pair_record(figure, 1e-9, 1e-3, 1e-2, 1e-2))
        assert found["There is no clear best pair: the second best is also close."] == "no"


def ended(names, points, finished=1.0):
    """How training ended, at every point alike."""
    return {"finished": np.full((names, points), finished), "used": np.full((names, points, 2), 8)}


def sweep_record(figure, **changes):
    """Correlations as the paper has them, unless changed: norms are parametrisation × size × stage × layer × norm."""
    config = figure.presets["smoke"]
    norms = np.empty((3, len(config.sizes), 2, 2, 3))
    norms[:, :, 0] = np.array([[0.45, 0.1, 0.1], [0.05, 0.05, 0.05]])
    norms[:, :, 1] = np.array([[0.9, 0.5, 0.4], [0.3, 0.2, 0.1]])
    norms[[0, 2], :, 1] = norms[[0, 2], :, 1, ::-1].copy()  # in SP and μP the second matrix leads
    norms[1, :, 1, :, 0] = 0.9  # in NTP both correlate
    norms[1, :, 1, 1, 0] = 0.78  # the first somewhat more
    trace = np.zeros_like(norms) + np.array([0.8, 0.95, 0.8])
    arrays = ended(3, len(config.sizes)) | {
        "norms": norms,
        "trace_norms": trace,
        "alignments": np.full((3, len(config.sizes), 2, 3), 0.8),
        "above": np.ones((3, len(config.sizes), 2)),
        "trace_error": np.zeros((3, len(config.sizes), 2)),
    }
    return record_of(figure, arrays | changes)


LINEAR = ("4", "14", "15", "26")


@pytest.mark.parametrize("number", LINEAR)
def test_claims_about_correlations_hold_where_they_are_as_the_paper_says(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, sweep_record(figure)).values()) == {"yes"}


@pytest.mark.parametrize("number", LINEAR)
def test_claims_about_correlations_are_refused_where_they_are_the_opposite(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    good = sweep_record(figure).arrays
    norms = np.empty_like(good["norms"])
    norms[:, :, 0] = np.array([[0.1, 0.1, 0.1], [0.9, 0.9, 0.9]])
    norms[:, :, 1] = np.array([[0.1, 0.3, 0.2], [0.05, 0.3, 0.2]])
    changes = {
        "norms": norms,
        "trace_norms": good["trace_norms"][..., [1, 0, 2]] - 0.8,
        "alignments": 0 * good["alignments"],
        "above": 0.5 * good["above"],
        "trace_error": 1 + good["trace_error"],
    }
    claims = figure.judged(sweep_record(figure, **changes))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_claims_about_relu_correlations_can_hold_and_be_refused():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    assert set(verdicts(figure, record_of(figure, ended(3, 3) | {"norms": norms})).values()) == {"yes"}
    other = norms[..., [1, 0, 2]] + 0.15
    assert set(verdicts(figure, record_of(figure, ended(3, 3) | {"norms": other})).values()) == {"no"}


def test_an_interval_is_judged_by_all_sizes_and_not_by_the_middle_one():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    norms[:, 0, 1, 0, 0], norms[:, 2, 1, 0, 0] = 0.1, 0.95
    found = verdicts(figure, record_of(figure, ended(3, 3) | {"norms": norms}))
    assert found["The squared spectral norm of the first matrix correlates between 0.25 and 0.75."] == "no"


def test_a_strong_correlation_is_judged_where_it_is_weakest():
    figure = FIGURES["singh2026.fig4"]
    norms = sweep_record(figure).arrays["norms"].copy()
    norms[:, -1, 1] = 0.3
    found = verdicts(figure, sweep_record(figure, norms=norms))
    assert found["Sharpness and the squared spectral norm correlate strongly."] == "no"


@pytest.mark.parametrize("leader", [0, 1])
def test_a_matrix_that_leads_in_all_parametrisations_does_not_depend_on_them(leader):
    figure = FIGURES["singh2026.fig4"]
    norms = sweep_record(figure).arrays["norms"].copy()
    norms[:, :, 1, leader, 0], norms[:, :, 1, 1 - leader, 0] = 0.9, np.array([0.1, 0.8, 0.5])[:, None]
    found = verdicts(figure, sweep_record(figure, norms=norms))
    assert found["Which matrix drives the correlation after training depends on the parametrisation."] == "no"


def test_one_wrong_trace_of_many_is_not_hidden():
    point = regression.Point("SP", (2, 5, 2), "linear")
    norms = torch.ones(2, 2, 3, 9, dtype=torch.float64)
    trace = torch.full((2, 9), 4.0, dtype=torch.float64)
    assert correlations._trace_error(point, trace, norms).tolist() == [0, 0]
    trace[1, 3], trace[1, 4] = 8.0, torch.nan
    assert correlations._trace_error(point, trace, norms).tolist() == [0, 1]
    assert correlations._trace_error(point, trace * torch.nan, norms).isnan().all()
    assert correlations._trace_error(replace(point, parametrization="NTP"), trace, norms).isnan().all()


def test_networks_without_an_eigenvalue_are_neither_above_nor_below_the_bound():
    sharpness = torch.tensor([[1.0, 3.0, torch.nan], [torch.nan] * 3])
    found = correlations._above(sharpness, torch.full((2, 3), 2.0))
    assert found[0] == 0.5 and found[1].isnan()


@pytest.mark.parametrize("number", [4, 17])
def test_points_that_were_cut_off_are_marked_and_told(number, computed):
    figure = FIGURES[f"singh2026.fig{number}"]
    record = computed(figure)
    for finished, told in ((1.0, False), (0.5, True)):
        arrays = record.arrays | {"finished": np.full_like(record.arrays["finished"], finished)}
        changed = replace(record, arrays=arrays)
        titles = [ax.get_title(loc="left") for ax in figure.draw(changed).axes]
        assert any("not finished in 3 epochs" in title for title in titles) == told
        claims = [claim for claim in figure.judged(changed) if "initialisation" not in claim.statement]
        assert all(("Not finished after 3 epochs" in claim.why) == told for claim in claims)


def test_hollow_points_are_those_that_were_cut_off(computed):
    figure = FIGURES["singh2026.fig14"]
    record = computed(figure)
    finished = np.ones_like(record.arrays["finished"])
    finished[1, 2] = 0.5
    before, after = figure.draw(replace(record, arrays=record.arrays | {"finished": finished})).axes
    assert not any(len(line.get_xdata()) for line in before.lines if line.get_markerfacecolor() == "w")
    hollow = [line.get_xdata().tolist() for line in after.lines if line.get_markerfacecolor() == "w"]
    assert hollow == [[record.config["sizes"][2]]] * 6


def test_numbers_that_are_none_are_no_support():
    figure = FIGURES["singh2026.fig4"]
    lost = sweep_record(figure, norms=np.full((3, 3, 2, 2, 3), np.nan))
    found = verdicts(figure, lost)
    assert [verdict for statement, verdict in found.items() if "largest eigenvalue" in statement] == ["yes"]
    assert list(found.values()).count("no") == len(found) - 1


def deep_record(figure, last, other, weights, frobenius=0.0):
    """Networks of two and three layers: what Ŵ_B has after training, and what the others have."""
    products = np.full((3, 2, 2, 3, 3), np.nan)
    products[:, 0, :, :2], products[:, 1] = other, other
    products[:, 0, 1, 1], products[:, 1, 1, 2] = last, last
    single = np.full((3, 2, 2, 3, 3), np.nan)
    single[:, 0, :, :2], single[:, 1] = weights, weights
    single[..., 1] = np.where(np.isnan(single[..., 1]), np.nan, frobenius)
    return record_of(figure, ended(3, 2) | {"products": products, "weights": single})


@pytest.mark.parametrize("number", range(17, 23))
def test_claims_about_deep_networks_hold_where_the_product_without_the_last_matrix_leads(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, deep_record(figure, 0.9, 0.3, 0.2, frobenius=0.8)).values()) == {"yes"}


@pytest.mark.parametrize("number", range(17, 23))
def test_claims_about_deep_networks_are_refused_where_it_does_not(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    claims = figure.judged(deep_record(figure, 0.0, 0.3, 0.3, frobenius=0.1))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_one_parametrisation_in_which_the_product_does_not_correlate_is_enough_for_a_no():
    for number in (17, 18):
        figure = FIGURES[f"singh2026.fig{number}"]
        record = deep_record(figure, 0.9, 0.3, 0.2)
        record.arrays["products"][0, 1, 1, 2] = 0.1
        found = verdicts(figure, record)
        assert [verdict for statement, verdict in found.items() if "all parametrisations" in statement] == ["no"]


def test_a_coefficient_that_stays_is_not_higher_near_convergence():
    figure = FIGURES["singh2026.fig17"]
    record = deep_record(figure, 0.9, 0.3, 0.2)
    record.arrays["products"][:, :, 0] = record.arrays["products"][:, :, 1] + 0.01
    assert verdicts(figure, record)["It does so especially near convergence."] == "no"


def test_norms_are_compared_for_each_hidden_matrix_and_not_between_the_largest():
    figure = FIGURES["singh2026.fig22"]
    record = deep_record(figure, 0.9, 0.3, 0.5, frobenius=0.2)
    record.arrays["weights"][:, :, :, 0] = 0.9  # vectors, whose norms are one, correlate most
    assert set(verdicts(figure, record).values()) == {"no"}
    record.arrays["weights"][:, 1, 1, 1, 1] = 0.8
    assert set(verdicts(figure, record).values()) == {"yes"}


def test_claims_about_cells_are_refused_where_the_closed_form_is_off(computed):
    figure = FIGURES["singh2026.fig1"]
    record = computed(figure)
    assert set(verdicts(figure, record).values()) == {"yes"}
    off = {name: record.arrays[name] + 0.1 for name in ("coupling", "errors", "top")}
    off["thinned"] = record.arrays["thinned"] * np.array([[1.0], [1.5]])
    broken = replace(record, arrays={**record.arrays, **off})
    assert set(verdicts(figure, broken).values()) == {"no"}
    assert set(verdicts(FIGURES["singh2024.relu"], broken).values()) == {"no"}


@pytest.mark.parametrize("name", ["singh2026.fig1", "singh2024.relu"])
def test_what_holds_to_some_digits_is_told_to_do_so(name, computed):
    figure = FIGURES[name]
    record = computed(figure)
    off = {part: record.arrays[part] + 1e-7 for part in ("coupling", "errors", "top")}
    off["thinned"] = record.arrays["thinned"] * np.array([[1.0], [1 + 1e-7]])
    claims = figure.judged(replace(record, arrays={**record.arrays, **off}))
    assert {claim.verdict for claim in claims} == {"partly"}
    assert all(claim.why for claim in claims)


@pytest.mark.parametrize("name", ["singh2026.fig1", "singh2024.relu"])
def test_ticks_near_zero_do_not_overprint(name, computed):
    figure = FIGURES[name]
    record = computed(figure)
    lines = np.linspace(-0.1, 0.75, len(record.arrays["lines"]))  # 10⁻³ is inside of the linear part
    (ax,) = figure.draw(replace(record, arrays={**record.arrays, "lines": lines})).axes
    ticks, (low, high) = ax.get_yticks(), ax.get_ylim()
    assert set(ticks) == {-0.1, -0.01, 0.0, 0.01, 0.1, 1.0}
    assert low < ticks.min() and ticks.max() < high


def test_no_legend_lies_on_the_curves_of_training(computed):
    drawn = FIGURES["singh2026.fig8"].draw(computed(FIGURES["singh2026.fig8"]))
    assert not any(ax.get_legend() for ax in drawn.axes)
    assert len(drawn.legends) == 1


def test_the_late_phase_is_judged_on_the_cell_that_has_one(computed):
    figure = FIGURES["singh2026.fig8"]
    record = computed(figure)
    late = np.array([0, 1, 0, 1, 0, 1])
    sign = np.where(late, 1.0, -1.0)
    arrays = {**record.arrays, "relu_late": late, "relu_second": sign, "linear_second": -np.ones(6)}
    names = {"linear: early or divergent", "ReLU, positive cell: late", "ReLU, positive cell: early or divergent"}
    assert evolution.in_phase(replace(record, arrays=arrays)) == dict.fromkeys(names, 1.0)
    arrays["linear_second"] = np.ones(6)
    assert evolution.in_phase(replace(record, arrays=arrays))["linear: early or divergent"] == 0.0
    arrays["relu_late"] = 0 * late
    assert np.isnan(evolution.in_phase(replace(record, arrays=arrays))["ReLU, positive cell: late"])


def test_the_posters_eigenvectors_are_both_asked(computed):
    figure = FIGURES["singh2024.evolution"]
    record = computed(figure)
    statement = next(one.statement for one in figure.judged(record) if "eigenvectors" in one.statement)
    assert verdicts(figure, record)[statement] == "yes"
    assert not np.isnan(record.arrays["linear_printed_residual_2"]).all()
    wrong = record.arrays["linear_printed_residual_2"] + 0.1
    found = replace(record, arrays={**record.arrays, "linear_printed_residual_2": wrong})
    assert verdicts(figure, found)[statement] == "partly"
    never = replace(record, arrays={**record.arrays, "linear_printed_residual_2": np.nan * wrong})
    assert verdicts(figure, never)[statement] == "partly"


def test_a_printed_eigenvector_is_one_for_its_own_eigenvalue_alone(generator):
    w, v, x, y = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    closed, delta = theory.linear_network(w, v, x, y), float((((w @ v) * x - y) * x).mean())
    loss = lambda theta: (((theta[:6] @ theta[6:]) * x - y) ** 2).mean() / 2
    H = torch.func.jacfwd(torch.func.grad(loss))(torch.cat([v, w]))
    for name in ("outlier 1", "outlier 2"):
        value = closed[name].value
        assert evolution.printed_residual(H, w, v, delta, value) < 1e-13
        assert evolution.printed_residual(H, w, v, delta, value + 0.1) > 1e-4


def test_claims_about_training_are_refused_where_there_is_no_pair(computed):
    figure = FIGURES["singh2026.fig8"]
    record = computed(figure)
    off = {
        "relu_late": 1 - record.arrays["relu_late"],
        "linear_outside": record.arrays["linear_outside"] + 0.1,
        "linear_printed_residual_1": record.arrays["linear_printed_residual_1"] + 0.1,
        "linear_printed_residual_2": record.arrays["linear_printed_residual_2"] + 0.1,
    }
    for kind in evolution.KINDS:
        off |= {
            f"{kind}_error": record.arrays[f"{kind}_error"] + 0.1,
            f"{kind}_trace": record.arrays[f"{kind}_first"] * 2,
        }
        late = off["relu_late"] if kind == "relu" else record.arrays["linear_late"]
        off[f"{kind}_second"] = record.arrays[f"{kind}_first"] * np.where(late == 1, -0.5, 0.5)
    broken = replace(record, arrays={**record.arrays, **off})
    assert set(verdicts(figure, broken).values()) == {"no"}
    assert set(verdicts(FIGURES["singh2024.evolution"], broken).values()) == {"no"}


def test_the_posters_formula_is_right_for_unit_variance_and_wrong_otherwise(generator):
    w, v, x, y = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    white = x / x.square().mean().sqrt()
    exact = theory.linear_network(w, v, white, y)["outlier 1"].value
    assert evolution.poster_outlier(w, v, white, y) == pytest.approx(exact)
    exact = theory.linear_network(w, v, 2 * white, y)["outlier 1"].value
    assert abs(evolution.poster_outlier(w, v, 2 * white, y) / exact - 1) > 1e-3


def test_the_claim_of_proportion_is_refused_where_lines_grow_otherwise(computed):
    figure = FIGURES["singh2026.fig7"]
    record = computed(figure)
    variances = record.arrays["variances"][:, None]
    lines = variances * np.array([[3.0, 0.2, 0.5, -0.5]])
    values = np.sort(np.repeat(lines, [1, 1, 2, 2], axis=1), axis=1)
    arrays = {"variances": variances[:, 0], "lines": lines, "eigenvalues": values}
    assert set(verdicts(figure, replace(record, arrays=arrays)).values()) == {"yes"}
    bent = replace(record, arrays={**arrays, "eigenvalues": values * np.abs(values)})  # what is measured, not the lines
    assert set(verdicts(figure, bent).values()) == {"no"}


def test_measured_eigenvalues_go_by_the_names_of_the_closed_form(computed):
    record = computed(FIGURES["singh2026.fig7"])
    for name, column in zip(scale.LINES, record.arrays["lines"].T, strict=True):
        measured = scale.by_line(record)[name]
        other = scale.by_line(record)[{"bulk +": "bulk -", "bulk -": "bulk +"}.get(name, name)]
        np.testing.assert_allclose(np.where(column * measured > 0, measured, other), column)
