"""The figures of singh2026 on linear and ReLU networks, and of its poster: right numbers, and rules that can say no."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz import theory
from ritz.experiments import Context, figures
from ritz.experiments.singh2024 import poster
from ritz.experiments.singh2026 import correlations, deep, evolution, pairs, ranges, regression, relu, scale
from ritz.lab import data, ensemble, models
from ritz.losses import SquaredError
from ritz.record import Record, plain

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
    return {claim.statement: claim.verdict for claim in figure.claims(record)}


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
    claims = figure.claims(record)
    assert claims and all(claim.verdict in ("yes", "partly", "no") for claim in claims)
    assert all(claim.why for claim in claims if claim.verdict == "no")
    assert figure.draw(record).axes


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_figure_has_the_papers_setting_one_for_a_laptop_and_one_for_tests(name):
    assert set(FIGURES[name].presets) == {"paper", "laptop", "smoke"}


# ------------------------------------------------------------------------------------------------------ exact ranges


@pytest.mark.parametrize("widths", [(1, 5, 1), (4, 5, 1), (3, 4, 4, 4, 1), (5, 5, 5, 1), (6, 2, 3, 1)])
def test_the_range_of_a_linear_hessian_has_all_its_eigenvalues(widths, generator):
    stack, (X, y) = networks(widths, "linear", generator), own_data(widths, generator)
    found = ranges.linear_spectra(stack.matrices, X, y)
    whole = torch.cat([found.values, torch.zeros(3, found.zeros, dtype=torch.float64)], 1).sort(1).values
    torch.testing.assert_close(whole, ensemble.spectra(stack, SquaredError(), (X, y), each=True))


@pytest.mark.parametrize("widths", [(1, 5, 1), (4, 6, 1), (9, 3, 1)])
def test_the_range_of_a_relu_hessian_has_all_its_eigenvalues(widths, generator):
    stack, (X, y) = networks(widths, "relu", generator), own_data(widths, generator, examples=7)
    found = ranges.relu_spectra(*stack.matrices, X, y)
    whole = torch.cat([found.values, torch.zeros(3, found.zeros, dtype=torch.float64)], 1).sort(1).values
    torch.testing.assert_close(whole, ensemble.spectra(stack, SquaredError(), (X, y), each=True))


def test_the_range_is_exact_where_the_network_fits_its_data(generator):
    stack, (X, _) = networks((3, 4, 4, 1), "linear", generator), own_data((3, 4, 4, 1), generator)
    y = stack.outputs(X, each=True)
    found = ranges.linear_spectra(stack.matrices, X, y)
    expected = ensemble.spectra(stack, SquaredError(), (X, y), each=True)
    torch.testing.assert_close(found.values.amax(1), expected[:, -1])
    torch.testing.assert_close(found.values.sum(1), expected.sum(1))


def test_orthogonal_weights_and_decorrelated_data_have_the_pair_of_theory(generator):
    examples = data.decorrelated(20, 4, generator=generator, dtype=torch.float64)
    V, w = pairs._weights("orthogonal", (4, 7, 1), generator)
    closed = theory.paired_outliers(w[0], V, examples.x, examples.y[:, 0])
    spectra = ranges.linear_spectra([V[None], w[None]], examples.x[None], examples.y[None])
    found = pairs.gaps(spectra, 4, torch.ones(1, dtype=torch.float64))
    assert float(found["best"]) < 1e-12 * float(found["fraction"])
    pair = closed["pair 1"].value + closed["pair 2"].value
    assert float(found["fraction"]) == pytest.approx(pair)


def test_gaps_are_those_of_all_pairs_whatever_the_number_of_zeros():
    values, zeros = torch.tensor([[-1.0, 0.3, 0.5, 4.0]], dtype=torch.float64), 9
    found = pairs.gaps(ranges.Spectra(values, zeros), 2, torch.tensor([2.0]))
    whole = [*values[0].tolist(), *[0.0] * zeros]
    sums = [a + b for i, a in enumerate(whole) for b in whole[i + 1 :]]
    gaps = sorted(abs(total - 3.8 / 2) for total in sums)
    assert [float(found["best"]), float(found["second"])] == pytest.approx(gaps[:2])
    assert float(found["control"]) == pytest.approx(min(abs(total - 3.8) for total in sums))
    assert float(found["mean"]) == pytest.approx(3.8 / 13)


# ------------------------------------------------------------------------------------------------ trained networks


@pytest.fixture
def point():
    return regression.Point("NTP", (2, 5, 2), "linear", 4, 30, 0.1, 1e-2, 16, 2, 1e-2, 3, 0)


@pytest.mark.parametrize("name", regression.NAMES)
def test_traces_of_linear_networks_are_those_that_are_measured(name, point, generator):
    point = replace(point, parametrization=name, widths=(2, 4, 4, 3))
    examples = regression.task(point, generator)
    recipe = regression.RECIPES[name](point.widths, generator=generator)
    stack = ensemble.Ensemble.of([regression._network(point, generator) for _ in range(3)]).to(torch.float64)
    x, y = examples.x.double(), examples.y.double()
    found = regression.linear_traces(stack.matrices, recipe.multipliers, x.T @ x / len(x))
    torch.testing.assert_close(found, ensemble.trace(stack, SquaredError(), (x, y)).values)


@pytest.mark.parametrize("activation", ["linear", "relu"])
@pytest.mark.parametrize("name", regression.NAMES)
def test_training_lowers_the_loss_of_every_network(activation, name, point):
    point = replace(point, activation=activation, parametrization=name, epochs=60, window=30)
    found = regression.measured(point, torch.device("cpu"))
    assert (found["losses"][1] < found["losses"][0]).all()
    assert found["sharpness"].shape == (2, 4) and found["norms"].shape == (2, 2, 3, 4)
    assert found["converged"].all()


def test_sharpness_is_measured_on_all_examples_though_linear_networks_see_few(point, generator):
    found = regression.measured(point, torch.device("cpu"))
    generator = torch.Generator().manual_seed(point.seed)
    examples = regression.task(point, generator)
    regression.RECIPES[point.parametrization](point.widths, generator=generator)
    stack = ensemble.Ensemble.of([regression._network(point, generator) for _ in range(4)]).to(torch.float64)
    expected = ensemble.spectra(stack, SquaredError(), (examples.x.double(), examples.y.double()))
    torch.testing.assert_close(found["sharpness"][0], expected[:, -1])


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


def test_a_pair_that_stands_out_is_no_unclear_one():
    for number in ("3b", "13"):
        figure = FIGURES[f"singh2026.fig{number}"]
        found = verdicts(figure, pair_record(figure, 1e-9, 1e-3, 1e-2, 1e-2))
        assert found["There is no clear best pair: the second best is also close."] == "no"


def sweep_record(figure, **changes):
    """Correlations as the paper has them, unless changed: norms are parametrisation × size × stage × layer × norm."""
    config = figure.presets["smoke"]
    norms = np.empty((3, len(config.sizes), 2, 2, 3))
    norms[:, :, 0] = np.array([[0.45, 0.1, 0.1], [0.05, 0.05, 0.05]])
    norms[:, :, 1] = np.array([[0.9, 0.5, 0.4], [0.3, 0.2, 0.1]])
    norms[[0, 2], :, 1] = norms[[0, 2], :, 1, ::-1].copy()  # in SP and μP the second matrix leads
    norms[1, :, 1, :, 0] = 0.9  # in NTP both correlate
    trace = np.zeros_like(norms) + np.array([0.8, 0.95, 0.8])
    arrays = {
        "norms": norms,
        "trace_norms": trace,
        "alignments": np.full((3, len(config.sizes), 2, 3), 0.8),
        "above": np.ones((3, len(config.sizes), 2)),
        "trace_ratio": np.broadcast_to(np.array(config.sizes, dtype=float)[None, :, None], (3, len(config.sizes), 2)),
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
    norms[:, :, 1] = np.array([[0.1, 0.3, 0.2], [0.1, 0.3, 0.2]])
    changes = {
        "norms": norms,
        "trace_norms": good["trace_norms"][..., [1, 0, 2]] - 0.8,
        "alignments": 0 * good["alignments"],
        "above": 0.5 * good["above"],
        "trace_ratio": 2 * good["trace_ratio"],
    }
    claims = figure.claims(sweep_record(figure, **changes))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_claims_about_relu_correlations_can_hold_and_be_refused():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    assert set(verdicts(figure, record_of(figure, {"norms": norms})).values()) == {"yes"}
    assert set(verdicts(figure, record_of(figure, {"norms": norms[..., [1, 0, 2]] + 0.15})).values()) == {"no"}


def test_numbers_that_are_none_are_no_support():
    figure = FIGURES["singh2026.fig4"]
    lost = sweep_record(figure, norms=np.full((3, 3, 2, 2, 3), np.nan))
    found = verdicts(figure, lost)
    assert found.pop("The largest eigenvalue is at least the largest squared spectral norm, for white inputs.") == "yes"
    assert set(found.values()) == {"no"}


def deep_record(figure, last, other, weights, frobenius=0.0):
    """Networks of two and three layers: what Ŵ_B has after training, and what the others have."""
    products = np.full((3, 2, 2, 3, 3), np.nan)
    products[:, 0, :, :2], products[:, 1] = other, other
    products[:, 0, 1, 1], products[:, 1, 1, 2] = last, last
    single = np.full((3, 2, 2, 3, 3), np.nan)
    single[:, 0, :, :2], single[:, 1] = weights, weights
    single[..., 1] = np.where(np.isnan(single[..., 1]), np.nan, frobenius)
    return record_of(figure, {"products": products, "weights": single})


@pytest.mark.parametrize("number", range(17, 23))
def test_claims_about_deep_networks_hold_where_the_product_without_the_last_matrix_leads(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, deep_record(figure, 0.9, 0.3, 0.2, frobenius=0.8)).values()) == {"yes"}


@pytest.mark.parametrize("number", range(17, 23))
def test_claims_about_deep_networks_are_refused_where_it_does_not(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    claims = figure.claims(deep_record(figure, 0.0, 0.3, 0.3, frobenius=0.1))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_claims_about_cells_are_refused_where_the_closed_form_is_off(computed):
    figure = FIGURES["singh2026.fig1"]
    record = computed(figure)
    assert set(verdicts(figure, record).values()) == {"yes"}
    off = {name: record.arrays[name] + 0.1 for name in ("coupling", "errors", "top")}
    off["thinned"] = record.arrays["thinned"] * np.array([[1.0], [1.5]])
    broken = replace(record, arrays={**record.arrays, **off})
    assert set(verdicts(figure, broken).values()) == {"no"}
    assert set(verdicts(FIGURES["singh2024.relu"], broken).values()) == {"no"}


def test_claims_about_training_are_refused_where_there_is_no_pair(computed):
    figure = FIGURES["singh2026.fig8"]
    record = computed(figure)
    off = {
        "relu_late": 1 - record.arrays["relu_late"],
        "linear_outside": record.arrays["linear_outside"] + 0.1,
        "linear_printed_residual": record.arrays["linear_printed_residual"] + 0.1,
    }
    for kind in evolution.KINDS:
        off |= {
            f"{kind}_error": record.arrays[f"{kind}_error"] + 0.1,
            f"{kind}_trace": record.arrays[f"{kind}_first"] * 2,
        }
        off[f"{kind}_second"] = record.arrays[f"{kind}_first"] * np.where(off["relu_late"] == 1, -0.5, 0.5)
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
    lines = variances * np.array([[3.0, 1.0, 0.5, -0.5]])
    values = np.sort(np.repeat(lines, [1, 1, 2, 2], axis=1), axis=1)
    assert set(
        verdicts(
            figure, replace(record, arrays={"variances": variances[:, 0], "lines": lines, "eigenvalues": values})
        ).values()
    ) == {"yes"}
    bent = replace(record, arrays={"variances": variances[:, 0], "lines": lines**2, "eigenvalues": values})
    assert set(verdicts(figure, bent).values()) == {"no"}
