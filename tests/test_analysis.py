"""The analysis of a model against the dense matrix it stands for."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from ritz import analysis
from ritz.analysis import Settings
from ritz.operators import functional_hessian, gauss_newton, hessian
from ritz.record import Record, write_picture
from ritz.risk import Risk


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
    return analysis.run(risk, Settings(num_eigenpairs=4, num_probes=20, num_steps=20, per_layer=True), name="tiny")


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


def test_every_layer_is_a_diagonal_block(record, risk, dense):
    assert list(record.scalars["layers"]) == ["0", "2"]
    blocks = {"0": dense[:36, :36], "2": dense[36:, 36:]}
    for layer, block in blocks.items():
        assert record.scalars["layers"][layer]["num_parameters"] == len(block)
        assert_close(analysis.array_of(record, "eigenvalues", layer), largest(block, 4), atol=1e-8, rtol=1e-6)


def test_facts_of_the_risk_are_told(record, risk):
    assert record.scalars["num_parameters"] == risk.size == 57
    assert record.scalars["num_terms"] == 30
    assert record.scalars["loss"] == risk.loss_value()
    assert_close(record.scalars["gradient_norm"], float(risk.gradient().norm()))
    assert record.config["operator"] == "hessian" and record.config["dtype"] == "float64"


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


@pytest.mark.parametrize("k, probes", [(0, 1), (57, 2), (3, 1)])
def test_extreme_settings_are_measured_and_drawn(risk, k, probes, tmp_path):
    settings = Settings(num_eigenpairs=k, num_probes=probes, num_steps=70, log_spectrum=True, per_layer=True)
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


def test_a_forecast_counts_what_the_analysis_then_makes(risk, record):
    forecast = analysis.forecast(risk, Settings(num_eigenpairs=4, num_probes=20, num_steps=20))
    assert 0.3 < forecast.num_products / record.scalars["num_products"] < 3
    assert forecast.seconds > 0 and forecast.bytes > 0 and forecast.path


def test_the_same_seed_gives_the_same_probes(risk):
    first, second, other = (
        analysis.run(risk, Settings(num_eigenpairs=2, num_probes=2, num_steps=6, seed=seed)) for seed in (3, 3, 4)
    )
    assert_close(first.arrays["weights"], second.arrays["weights"], atol=1e-10, rtol=0)
    assert (first.arrays["weights"] - other.arrays["weights"]).abs().max() > 1e-3
