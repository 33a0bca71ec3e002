"""What a dry run says, held against what the analysis then takes: within a factor of two."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ritz import Risk, gauss_newton
from ritz.analysis import classes, spectrum
from ritz.analysis.classes import forecasts as class_forecasts
from ritz.analysis.peak_bytes import peak_bytes
from ritz.analysis.spectrum import forecasts
from ritz.analysis.spectrum.forecasts import product_bytes, product_seconds
from ritz.operators import Operator
from tests.solvers.memory import peak_vectors


def perceptron(inputs=40, hidden=30, outputs=10, examples=100):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
    return Risk(model, nn.CrossEntropyLoss(), (torch.randn(examples, inputs), torch.randint(outputs, (examples,))))


def convolutions():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    data = torch.randn(60, 1, 8, 8), torch.randint(5, (60,))
    return Risk(nn.Sequential(*layers).eval(), nn.CrossEntropyLoss(), data)


FEW = {"num_eigenpairs": 3, "num_probes": 4, "num_steps": 12}
KINDS = {
    "the spectrum of H": (perceptron, spectrum, spectrum.Settings(**FEW)),
    "all eigenvalues of H": (
        lambda: perceptron(20, 20, 5),
        spectrum,
        spectrum.Settings(num_eigenpairs=3, num_probes=10),
    ),
    "G layer by layer, estimated": (
        convolutions,
        spectrum,
        spectrum.Settings(gauss_newton, per_layer=True, **FEW, exact_rows=0),
    ),
    "G layer by layer": (convolutions, spectrum, spectrum.Settings(gauss_newton, per_layer=True, **FEW)),
    "classes": (lambda: perceptron(20, 24, 4, 60), classes, classes.ClassSettings()),
    "more means of classes than parameters": (
        lambda: perceptron(6, 8, 20, 60),
        classes,
        classes.ClassSettings(exact_rows=0),
    ),
    "classes of a small model": (lambda: perceptron(20, 24, 4, 300), classes, classes.ClassSettings(exact_rows=700)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_forecast_is_within_a_factor_of_two(kind, tmp_path, monkeypatch):
    make, analysis, settings = KINDS[kind]
    said, risk, columns, multiply = analysis.forecast(make(), settings), make(), [], Operator.__matmul__

    def counted(A, V):
        if A.info is not None:  # a matrix of curvature: others are multiplied without the data
            columns.append(1 if V.ndim == 1 else V.shape[1])
        return multiply(A, V)

    monkeypatch.setattr(Operator, "__matmul__", counted)
    held = 4 * peak_vectors(lambda: analysis.run(risk, settings, checkpoint=tmp_path / "unfinished"), 1)
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.npz"))
    ratios = said.bytes / held, said.num_products / sum(columns)
    assert all(0.5 <= ratio <= 2 for ratio in ratios), (ratios, said, held, sum(columns))
    assert written <= 2 * said.file_bytes


def test_a_forecast_counts_the_time_to_find_the_span_of_many_means(monkeypatch):
    """The means of 40 classes are more columns than the 568 parameters; without them there is nothing to decompose."""
    risk, rows = perceptron(6, 12, 40, 60), list[int]()
    monkeypatch.setattr(class_forecasts, "decomposition_seconds", lambda size: rows.append(size) or 1e6)
    held = classes.forecast(risk, classes.ClassSettings(exact_rows=0)).seconds
    assert rows == [risk.size] and held > 1e6
    few = perceptron(6, 12, 40, 60)
    few.budget.total = 0.0
    assert classes.forecast(few, classes.ClassSettings(exact_rows=0)).seconds < 1e6


def test_bytes_are_counted_from_the_birth_of_a_tensor_to_its_end():
    x, cpu = torch.ones(1000), torch.device("cpu")
    assert peak_bytes(lambda: x.view(10, 100).t(), cpu) == 0  # views are none
    assert peak_bytes(lambda: [x + i for i in range(5)][-1], cpu) == 20_000
    assert peak_bytes(lambda: x.mul(2).add_(1).relu().sum(), cpu) == 8_000  # one is gone before the third is made


def test_the_bytes_of_many_columns_are_known_from_few():
    A = gauss_newton(perceptron(examples=2000))
    A @ torch.ones(A.size, 12)  # how many go together is tried
    assert A.info.columns < 11
    whole = peak_bytes(lambda: A @ torch.ones(A.size, 12), A.device) - 4 * 12 * A.size
    assert product_bytes(A, 12) == pytest.approx(whole, rel=0.2)


@pytest.mark.parametrize("seconds, repeats", [(0.3, 1), (0.05, 5)])
def test_slow_products_are_not_timed_again_and_again(seconds, repeats, monkeypatch):
    columns = []
    clock = SimpleNamespace(perf_counter=lambda: seconds * sum(columns))
    monkeypatch.setattr(forecasts, "time", clock)

    def product(V):
        columns.append(V.shape[1])
        return V

    A = Operator(product, 500, torch.float32, torch.device("cpu"))
    assert product_seconds(A, 0, 4) == pytest.approx(4 * seconds)
    assert columns == [4] * repeats
