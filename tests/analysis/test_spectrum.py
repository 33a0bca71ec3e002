"""The analysis of a model against the dense matrix it stands for."""

import copy
import functools
import itertools
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.testing import assert_close

from ritz.analysis import spectrum as analysis
from ritz.analysis.comparison import Entry, changes
from ritz.analysis.spectrum import Settings, measurement, pictures
from ritz.errors import ArgumentError
from ritz.operators import Operator, functional_hessian, gauss_newton, hessian, monte_carlo_fisher, ntk
from ritz.record import Record, write_picture
from ritz.report.spectra import gap, numbers
from ritz.risk import Risk
from tests.processes import run_alone
from tests.shapes import unchecked


@pytest.fixture(scope="module")
def risk():
    """A small classifier in float64, its data in two batches of different size."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.randn(30, 5, generator=generator, dtype=torch.float64), torch.arange(30) % 3
    return Risk(model, nn.CrossEntropyLoss(), [(x[:21], y[:21]), (x[21:], y[21:])])


@pytest.fixture(scope="module")
def dense(risk):
    return hessian(risk).dense()


@pytest.fixture(scope="module")
def record(risk):
    """Estimated, though all eigenvalues would take fewer products."""
    numbers = {"num_eigenpairs": 4, "num_probes": 20, "num_steps": 20}
    return analysis.run(risk, Settings(**numbers, per_layer=True, exact_rows=0), name="tiny")


@pytest.fixture(scope="module")
def exact(risk):
    """The record of an analysis whose spectrum is exact by the default rule."""
    numbers = {"num_eigenpairs": 4, "num_probes": 20, "num_steps": 20}
    return analysis.run(risk, Settings(**numbers, per_layer=True), name="tiny")


def largest(matrix, k):
    values = torch.linalg.eigvalsh(matrix)
    return values[values.abs().argsort(descending=True)][:k]


def test_eigenvalues_are_those_of_the_dense_matrix(record, dense):
    assert_close(analysis.array_of(record, "eigenvalues"), largest(dense, 4), atol=1e-8, rtol=1e-6)
    assert bool(analysis.array_of(record, "converged").all())


def test_statistics_are_within_their_errors(record, dense):
    truth = {
        "trace": dense.trace(),
        "effective_rank": dense.trace() ** 2 / dense.square().sum(),
        "negative_mass": (torch.linalg.eigvalsh(dense) < -record.scalars["resolved_zero"]).double().mean(),
    }
    for name, value in truth.items():
        assert abs(record.scalars[name] - float(value)) < 4 * record.scalars[f"{name}_error"] + 1e-9


@functools.cache
def small_risk(seed, dtype):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net, x = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double(), torch.randn(30, 5)
    x, y = x.to(dtype), torch.arange(30) % 3
    return Risk(net.to(dtype), nn.CrossEntropyLoss(), [(x[:21], y[:21]), (x[21:], y[21:])])


@functools.cache
def small_hessian(seed):
    return hessian(small_risk(seed, torch.float64)).dense()


@pytest.mark.parametrize("exact_rows", [0, 4096])
@pytest.mark.parametrize("dtype, steps, k", [(torch.float64, 12, 4), (torch.float32, 12, 4), (torch.float32, 60, 0)])
def test_errors_cover_what_they_say_over_seeds(dtype, steps, k, exact_rows):
    off = {name: [] for name in ("trace", "effective_rank", "negative_mass")}
    for seed in range(24):
        numbers = {"num_eigenpairs": k, "num_probes": 8, "num_steps": steps, "exact_rows": exact_rows}
        settings = Settings(**numbers, seed=2000 + seed)
        with unchecked() if seed else nullcontext():
            found = analysis.run(small_risk(seed, dtype), settings).scalars
        exact = small_hessian(seed)
        truth = {
            "trace": exact.trace(),
            "effective_rank": exact.trace() ** 2 / exact.square().sum(),
            "negative_mass": (torch.linalg.eigvalsh(exact) < -found["resolved_zero"]).double().mean(),
        }
        for name, value in truth.items():
            off[name].append(abs(found[name] - float(value)) / (found[f"{name}_error"] + 1e-12))
    for name, values in off.items():
        ratios = torch.tensor(values)
        assert (ratios < 2).double().mean() > 0.8 and ratios.max() < 6, (name, ratios)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_of_a_semidefinite_matrix_are_not_negative(risk, dtype):
    net = copy.deepcopy(risk.model).to(dtype)
    batches = [(batch.inputs.to(dtype), batch.targets) for batch in risk.batches]
    for steps in (20, 70):
        found = analysis.run(
            Risk(net, nn.CrossEntropyLoss(), batches),
            Settings(operator=gauss_newton, num_probes=4, num_steps=steps, per_layer=True),
        ).scalars
        for scalars in (found, *found["layers"].values()):
            assert scalars["negative_mass"] == scalars["negative_mass_error"] == 0
            assert scalars["resolved_zero"] >= 16 * torch.finfo(dtype).eps * max(map(abs, scalars["range"]))


def test_a_zero_matrix_has_no_mass_below_zero(risk):
    net = nn.Linear(5, 3).double()
    flat = analysis.run(
        Risk(net, nn.MSELoss(), (torch.zeros(4, 5).double(), net(torch.zeros(4, 5).double()).detach())),
        Settings(operator=functional_hessian, num_probes=2),
    )
    assert flat.scalars["resolved_zero"] == flat.scalars["negative_mass"] == flat.scalars["trace"] == 0
    analysis.draw(flat).draw_without_rendering()


def test_the_error_of_float32_products_is_no_smaller_than_their_rounding(risk):
    single = Risk(
        copy.deepcopy(risk.model).float(), nn.CrossEntropyLoss(), [(b.inputs.float(), b.targets) for b in risk.batches]
    )
    found = analysis.run(single, Settings(num_eigenpairs=57, num_probes=2)).scalars
    assert 1e-7 < found["trace_error"] / abs(found["trace"]) < 1e-3


def test_a_small_matrix_is_solved_with_a_product_for_each_column(risk, exact, record, dense):
    assert analysis.num_products(exact) == 57 + 36 + 21 < analysis.num_products(record) / 10
    for layer, block in {None: dense, "0": dense[:36, :36], "2": dense[36:, 36:]}.items():
        spectrum, truth = analysis.spectrum_of(exact, layer), torch.linalg.eigvalsh(block)
        assert spectrum.is_exact
        assert_close(spectrum.nodes[0].sort().values, truth, atol=1e-12, rtol=1e-9)
        assert_close(analysis.array_of(exact, "eigenvalues", layer), largest(block, 4), atol=1e-12, rtol=1e-9)
    assert abs(exact.scalars["trace"] - dense.trace()) <= exact.scalars["trace_error"] < 1e-13
    assert analysis.forecast(risk, Settings(num_eigenpairs=4, per_layer=True)).num_products == 57 + 36 + 21


@pytest.mark.parametrize(
    "size, numbers, solved",
    [
        (592, {}, True),  # 8 products for each of ten pairs, and 8 probes of 64 steps
        (593, {}, False),
        (500, {"num_probes": 1, "num_steps": 1}, True),  # a search for pairs takes as many
        (500, {"num_probes": 1, "num_steps": 1, "num_eigenpairs": 0}, False),
        (4096, {"num_probes": 40, "num_steps": 128}, True),
        (4097, {"num_probes": 40, "num_steps": 128}, False),
        (30, {"exact_rows": 29}, False),
    ],
)
def test_a_matrix_is_solved_where_an_estimate_takes_as_many_products(size, numbers, solved):
    assert Settings(**numbers).for_layer(size).solves(size, float("inf")) == solved
    assert not Settings(**numbers).for_layer(size).solves(size, 9 * size**2)  # no room for it


@pytest.mark.parametrize("work", [analysis.run, analysis.forecast])
def test_a_size_below_zero_is_refused(risk, work):
    with pytest.raises(ArgumentError, match="exact_rows=-1 was given"):
        work(risk, Settings(exact_rows=-1))


def test_a_forecast_adds_up(risk):
    for settings in (Settings(per_layer=True), Settings(per_layer=True, exact_rows=0)):
        cost = analysis.forecast(risk, settings)
        assert cost.product_seconds > 0 and 0 < cost.other_seconds < cost.seconds
        assert cost.seconds == pytest.approx(cost.num_products * cost.product_seconds + cost.other_seconds)


def test_every_layer_is_a_diagonal_block(record, risk, dense):
    assert list(record.scalars["layers"]) == ["0", "2"]
    blocks = {"0": dense[:36, :36], "2": dense[36:, 36:]}
    for layer, block in blocks.items():
        assert record.scalars["layers"][layer]["num_parameters"] == len(block)
        assert_close(analysis.array_of(record, "eigenvalues", layer), largest(block, 4), atol=1e-8, rtol=1e-6)


def test_facts_of_the_risk_are_in_the_record(record, risk):
    assert record.scalars["num_parameters"] == risk.size == 57
    assert record.scalars["num_terms"] == 30
    assert record.scalars["loss"] == risk.loss_value()
    assert_close(record.scalars["gradient_norm"], float(risk.gradient().norm()))
    assert record.config["operator"] == "hessian" and record.config["dtype"] == "float64"


def test_a_record_keeps_how_sure_eigenvalues_are_that_a_density_has_all_found():
    torch.manual_seed(0)
    data = torch.randn(3, 500, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)
    risk = Risk(nn.Linear(500, 1, bias=False).double(), nn.MSELoss(), data)  # of rank three
    record = analysis.run(risk, Settings(num_steps=16, num_probes=2, num_eigenpairs=2, exact_rows=0))
    found = analysis.spectrum_of(record)
    assert found.is_exact and torch.equal(found.ends, torch.as_tensor(record.arrays["reach"]))
    assert float((found.ends - found.nodes).abs().max()) > 0


def test_a_saved_analysis_draws_the_same_spectrum(record, tmp_path):
    loaded = Record.load(record.save(tmp_path))
    before, after = analysis.spectrum_of(record), analysis.spectrum_of(loaded)
    assert torch.equal(before.nodes, after.nodes) and before.resolution == after.resolution
    assert write_picture(tmp_path / "spectrum.png", analysis.draw(loaded)).stat().st_size > 10_000


@pytest.mark.parametrize("operator", [gauss_newton, functional_hessian])
def test_other_matrices_are_analysed_alike(risk, operator):
    record = analysis.run(risk, Settings(operator=operator, num_eigenpairs=2, num_probes=2, num_steps=8, vectors=True))
    V, values = analysis.array_of(record, "eigenvectors"), analysis.array_of(record, "eigenvalues")
    assert_close(operator(risk).dense() @ V, V * values, atol=1e-6, rtol=1e-6)
    assert record.config["operator"] == operator.__name__


class Sampled:
    """A matrix with something bound to it, as an object."""

    def __call__(self, risk):
        return monte_carlo_fisher(risk, num_samples=2, generator=torch.Generator().manual_seed(0))


SAMPLED = functools.partial(monte_carlo_fisher, num_samples=2)


@pytest.mark.parametrize(
    "operator, name",
    [(SAMPLED, "monte_carlo_fisher"), (functools.partial(SAMPLED), "monte_carlo_fisher"), (Sampled(), "Sampled")],
)
def test_a_matrix_with_something_bound_to_it_has_the_name_of_its_function(risk, operator, name, tmp_path):
    settings = Settings(operator, num_eigenpairs=2, num_probes=2, num_steps=8)
    record = Record.load(analysis.run(risk, settings).save(tmp_path))
    assert record.config["operator"] == name and analysis.title_of(record) in ("Monte Carlo Fisher", "Sampled")


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"num_probes": 0}, "num_probes=0 was given"),
        ({"num_steps": -1}, "num_steps=-1 was given"),
        ({"seed": -1}, "seed=-1 was given"),
        ({"tolerance": -1.0}, "tolerance=-1.0 was given"),
        ({"operator": ntk}, "a matrix of size 90"),
        ({"operator": lambda risk: None}, "gave a NoneType"),
    ],
)
@pytest.mark.parametrize("work", [analysis.run, analysis.forecast])
def test_settings_are_refused_before_anything_is_measured(risk, wrong, words, work, monkeypatch):
    monkeypatch.setattr(measurement, "eigenpairs", lambda *args, **options: pytest.fail("It was measured."))
    with pytest.raises(ArgumentError, match=words):
        work(risk, Settings(**wrong))


@pytest.mark.parametrize("k, probes", [(0, 1), (57, 2), (3, 1)])
def test_extreme_settings_are_measured_and_drawn(risk, k, probes, tmp_path):
    numbers = {"num_eigenpairs": k, "num_probes": probes, "num_steps": 70, "exact_rows": 0}
    settings = Settings(**numbers, log_spectrum=True, per_layer=True)
    record = Record.load(analysis.run(risk, settings).save(tmp_path))
    analysis.draw(record).draw_without_rendering()
    assert (record.scalars["trace_error"] is None) == (probes == 1)
    assert len(record.arrays["eigenvalues"]) == k


def test_parameters_of_the_model_itself_are_a_layer(risk):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))
            self.linear = nn.Linear(5, 3).double()

        def forward(self, x):
            return self.linear(x) * self.scale

    x = torch.ones(4, 5, dtype=torch.float64)
    layers = analysis.layers_of(Risk(Scaled(), nn.CrossEntropyLoss(), (x, torch.arange(4) % 3)))
    assert layers == {"(model)": ["scale"], "linear": ["linear.weight", "linear.bias"]}


@pytest.mark.parametrize("widths", [(2, 3), (4, 5, 3), (10, 20, 5), (30, 20, 5)])
def test_a_forecast_is_within_a_factor_of_two_at_every_size(widths):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(widths)))
    data = torch.randn(60, widths[0]), torch.randint(widths[-1], (60,))
    risk, settings = (
        Risk(model, nn.CrossEntropyLoss(), data),
        Settings(num_eigenpairs=3, num_probes=2, num_steps=12, per_layer=True),
    )
    made = analysis.num_products(analysis.run(risk, settings))
    assert 0.5 <= analysis.forecast(risk, settings).num_products / made <= 2


def test_a_forecast_counts_what_the_analysis_then_makes(risk, record):
    forecast = analysis.forecast(risk, Settings(num_eigenpairs=4, num_probes=20, num_steps=20, exact_rows=0))
    assert 0.5 < forecast.num_products / record.scalars["num_products"] < 2
    assert forecast.seconds > 0 and forecast.bytes > 0 and forecast.path == "rules"


def test_a_record_says_how_its_products_were_computed(record):
    facts = record.scalars["products"]
    assert facts["path"] == "rules" and facts["disagreement"] < 1e-3 and "seconds" not in facts


def test_the_same_seed_gives_the_same_probes(risk):
    first, second, other = (
        analysis.run(risk, Settings(num_eigenpairs=2, num_probes=2, num_steps=6, seed=seed, exact_rows=0))
        for seed in (3, 3, 4)
    )
    assert_close(first.arrays["weights"], second.arrays["weights"], atol=1e-10, rtol=0)
    assert (first.arrays["weights"] - other.arrays["weights"]).abs().max() > 1e-3


def test_the_default_number_of_eigenpairs_is_what_a_small_risk_has(risk):
    bias = risk.restricted_to("2.bias")
    record = analysis.run(bias, Settings(num_probes=2))
    assert len(record.arrays["eigenvalues"]) == record.config["num_eigenpairs"] == 3
    assert analysis.forecast(bias).num_products > 0
    for computation in (analysis.run, analysis.forecast):
        with pytest.raises(ArgumentError, match="10"):
            computation(bias, Settings(num_eigenpairs=10))


def test_the_config_tells_how_much_data_there_was(risk):
    config = analysis.run(risk, Settings(num_probes=2, num_steps=4), source={"factory": "mine.py:risk"}).config
    assert config["num_examples"] == 30 and config["num_batches"] == 2 and config["factory"] == "mine.py:risk"


def test_a_record_whose_picture_fails_is_not_written(risk, tmp_path, monkeypatch):
    record = analysis.run(risk, Settings(num_probes=2, num_steps=4))

    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr(pictures, "draw", broken)
    with pytest.raises(ZeroDivisionError):
        analysis.write(record, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_parametrised_layer_stays_one_layer():
    model = nn.Sequential(weight_norm(nn.Linear(5, 4)), nn.Tanh(), weight_norm(nn.Linear(4, 3))).double()
    x = torch.ones(4, 5, dtype=torch.float64)
    layers = analysis.layers_of(Risk(model, nn.CrossEntropyLoss(), (x, torch.arange(4) % 3)))
    assert list(layers) == ["0", "2"] and len(layers["0"]) == 3
    alone = analysis.layers_of(
        Risk(weight_norm(nn.Linear(5, 3).double()), nn.CrossEntropyLoss(), (x, torch.ones(4).long()))
    )
    assert list(alone) == ["(model)"]


def test_any_name_of_a_layer_is_measured_and_drawn():
    model = nn.Sequential()
    for name, width in (("a[0]*", 5), ("_b$x", 4), ("a0", 4)):
        model.add_module(name, nn.Linear(width, 4).double())
    x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.arange(6) % 3))
    record = analysis.run(risk, Settings(num_probes=2, num_steps=6, per_layer=True))
    assert [found["num_parameters"] for found in record.scalars["layers"].values()] == [24, 20, 20]
    legend = analysis.draw(record).axes[2].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(model._modules)
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_long_names_of_layers_stay_within_their_panel():
    def nested(first, *others):
        model = nn.Sequential()
        model.add_module(first, nested(*others) if others else nn.Linear(4, 4).double())
        return model

    deep = nn.Sequential(*(nested("attention", "projection", "output", "dense") for _ in range(3)))
    model = nn.Sequential()
    model.add_module("encoder", deep)
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.arange(6) % 3))
    figure = analysis.draw(analysis.run(risk, Settings(num_probes=2, num_steps=6, per_layer=True)))
    figure.draw_without_rendering()
    legend, panel = figure.axes[2].get_legend().get_window_extent(), figure.axes[2].get_window_extent()
    assert panel.x0 <= legend.x0 < legend.x1 <= panel.x1
    names = [text.get_text() for text in figure.axes[2].get_legend().get_texts()]
    assert names == [f"…{i}.attention…on.output.dense" for i in range(3)]


def test_a_short_name_belongs_to_one_layer_of_the_network():
    every = [f"body.layers.{i}.self_attention.{part}" for i in range(2) for part in ("projection", "out", "gate")]
    assert pictures._short(every[:3], every) == [
        "…0.self_attention.projection",
        "…0.self_attention.out",
        "…0.self_attention.gate",
    ]
    assert pictures._short(every[:3], every[:3]) == ["…projection", "…out", "…gate"]


def test_to_measure_needs_no_picture_library():
    """In a process of its own: here, other tests have drawn."""
    code = (
        "import sys, torch\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from ritz import Risk, analysis\n"
        "x, y = torch.eye(2), torch.tensor([0, 1])\n"
        "risk = Risk(torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss(), (x, y))\n"
        "record = analysis.spectrum.run(risk, analysis.spectrum.Settings(num_probes=2, num_steps=2))\n"
        "assert analysis.classes.run and 'matplotlib' not in sys.modules\n"
        "assert analysis.spectrum.draw(record) and 'matplotlib' in sys.modules\n"
    )
    run_alone(code)


@pytest.mark.parametrize(("top", "count", "words"), [
    ([1.1, 1.06, 1.03], 0, "the 3 largest fall without a gap: each is at most 1.04 times the next"),
    ([30.0, 1.1, 1.05], 1, "the largest stands apart: the next is 27.3 times smaller"),
    ([-6.0, 5.0, 4.0], 3, "the 3 largest in magnitude stand apart: the next is 4 times smaller"),
])  # fmt: skip
def test_only_what_a_gap_parts_from_the_rest_is_said_to_stand_apart(top, count, words):
    values = torch.cat([torch.tensor(top), torch.linspace(0, 1, 400)]).double()
    matrix = Settings(operator=lambda _: Operator.from_matrix(values.diag()), num_eigenpairs=3, num_steps=60)
    model = nn.Linear(len(values), 1, bias=False).double()
    data = torch.ones(1, len(values)).double(), torch.ones(1, 1).double()
    record = analysis.run(Risk(model, nn.MSELoss(), data), matrix)
    place, factor = analysis.widest_gap(record)
    assert (place if factor >= 1.5 else 0) == count
    assert gap(record).startswith(words)


def test_where_all_eigenpairs_are_negative_the_largest_eigenvalue_is_another():
    values = torch.cat([torch.tensor([-6.0, 5.0]), torch.linspace(0, 1, 400)]).double()
    model = nn.Linear(len(values), 1, bias=False).double()
    risk = Risk(model, nn.MSELoss(), (torch.ones(1, len(values)).double(), torch.ones(1, 1).double()))
    one, two = (
        analysis.run(risk, Settings(operator=lambda _: Operator.from_matrix(values.diag()), num_eigenpairs=k))
        for k in (1, 2)
    )
    assert analysis.largest_of(one) == (pytest.approx(5.0), None)
    assert analysis.largest_of(two) == (pytest.approx(5.0), pytest.approx(0.0, abs=1e-9))
    assert numbers(one)[0].text == "about 5" and numbers(two)[0].text.startswith("5 ±")
    assert {change.quantity: change.verdict for change in changes(Entry.of(one), Entry.of(two))}["λ_max"] != "changed"
    assert gap(one) == "the largest in magnitude does not stand apart: it is 1.2 times the next"
