"""Small things of every kind that public functions take: risks, operators, spectra, records, networks, data."""

import functools
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import nn

import ritz
from ritz import lab, plot, theory
from ritz.analysis.comparison import Entry
from tests.seeds import seeded


def model(outputs=3):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs)).double()


INPUTS = torch.arange(12, dtype=torch.float64).reshape(6, 2) / 8 - 0.5
LABELS = torch.arange(6) % 3
TARGETS = INPUTS @ torch.tensor([[0.5, 1.0, -1.0], [1.0, 0.0, 0.25]], dtype=torch.float64)


@functools.cache
def classifier_risk():
    return ritz.Risk(model(), nn.CrossEntropyLoss(), (INPUTS, LABELS))


@functools.cache
def regression_risk():
    return ritz.Risk(model(), nn.MSELoss(), (INPUTS, TARGETS))


def definite(n=4):
    return ritz.Operator.from_matrix(torch.diag(torch.arange(1, n + 1, dtype=torch.float64)))


def indefinite(n=2):
    return ritz.Operator.from_matrix(torch.diag(torch.arange(n, dtype=torch.float64) - 0.5) + 1)


def curvature(n):
    """A curvature matrix of n parameters, in float32."""
    model = nn.Linear(n, 1, bias=False)
    return ritz.gauss_newton(ritz.Risk(model, nn.MSELoss(), (torch.eye(n), torch.ones(n, 1))))


OPERATORS = [definite, indefinite, curvature]


def spectrum():
    return ritz.Spectrum.of_eigenvalues(torch.tensor([-1.0, 0.5, 2.0, 4.0], dtype=torch.float64))


def drawn_spectrum():
    nodes = torch.tensor([[-1.0, 0.5, 2.0], [-0.5, 1.0, 2.5]], dtype=torch.float64)
    return ritz.Spectrum(nodes, torch.tensor([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]], dtype=torch.float64), 8)


def quadrature():
    quadrature = ritz.solvers.LanczosQuadrature(definite(), generator=seeded())
    quadrature.extend(num_probes=2, num_steps=2)
    return quadrature


def pairs():
    return ritz.eigenpairs(definite(), 2, generator=seeded())


def closed_form():
    v, x = torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, -1.0]).double()
    return theory.linear_network(v, v + 1, x, 2 * x)


@functools.cache
def record():
    return ritz.analysis.spectrum.run(classifier_risk(), ritz.analysis.spectrum.Settings(num_steps=8, num_probes=2))


@functools.cache
def class_record():
    return ritz.analysis.classes.run(classifier_risk())


def examples():
    return lab.data.Examples(INPUTS, LABELS)


def squares():
    return lab.data.Examples(torch.arange(32.0).reshape(2, 1, 4, 4), torch.tensor([0, 1]))


def ensemble():
    return lab.ensemble.Ensemble.of([model(), model()])


def axes():
    _, (ax,) = plot.panels()
    return ax


def gpt():
    config = lab.models.GPTConfig(vocabulary=4, context=4, depth=1, width=4, num_heads=2)
    return lab.models.gpt(config, generator=seeded())


def task(config):
    return ritz.Record("a", "smoke", {"config": config}, {"x": 1.0}, {})


def squares_of(*tensors):
    return sum((x**2).sum() for x in tensors)


def keep():
    """Files to read, in the folder `kept`."""
    record().save("kept")
    for kind, made in KEPT.items():
        made().save(f"kept/{kind}.npz")


KEPT = {"Spectrum": spectrum, "Eigenpairs": pairs}
DATA = [lambda: (INPUTS, LABELS), examples, lambda: [(INPUTS[:3], LABELS[:3]), (INPUTS[3:], LABELS[3:])]]
LOSSES = [nn.CrossEntropyLoss, ritz.CrossEntropy, lambda: ritz.CrossEntropy(label_smoothing=0.25)]
CALLABLES = [lambda: squares_of]
ANYTHING = [lambda: 1, lambda: "a", lambda: [1.0, 2.0], lambda: {"a": 1}, lambda: None]
BY_NAME = {
    "model": [model],
    "network": [lambda: torch.tanh],
    "statistic": [lambda: lambda spectrum: spectrum.moment(1)],
    "preconditioner": [lambda: None, lambda: lambda v: v],
    "basis": [lambda: None],
    "density": [lambda: torch.exp],
    "networks": [lambda: [model(), model()]],
    "loss": LOSSES,
    "data": [*DATA, lambda: lab.data.Split(examples(), examples())],
    "optimizer": [lambda: torch.optim.SGD(model().parameters(), lr=0.1)],
    "operator": [lambda: ritz.hessian, lambda: ritz.gauss_newton],
    "solver": [lambda: ritz.eigenpairs, lambda: ritz.trace],
    "which": [lambda: "largest", lambda: "smallest", lambda: "largest magnitude", lambda: "both"],
    "precision": [lambda: "own"],
    "parameters": [lambda: "*", lambda: ["0.weight"], lambda: "2.*"],
    "path": [
        lambda: Path("made/here.npz"),
        lambda: "made/there",
        *(lambda kind=kind: Path(f"kept/{kind}.npz") for kind in KEPT),
    ],
    "checkpoint": [lambda: None, lambda: Path("made/run.npz")],
    "folder": [lambda: Path("made"), lambda: "kept"],
    "task": [lambda: task],
    "configs": [lambda: [{"x": 1}, {"x": 2}]],
    "workers": [lambda: "in-process"],
    "linear_operator": [lambda: definite().to_scipy()],
    "measured": [
        lambda: torch.linspace(0, 1, 16).double().reshape(4, 4).mT @ torch.linspace(0, 1, 16).double().reshape(4, 4),
        spectrum,
    ],
    "config": [lambda: {"a": 1}, lambda: gpt().config],
    "name": [lambda: "mine"],
    "theta": [lambda: classifier_risk().theta, model],
    "layer": [lambda: None],
    "key": [lambda: "nodes"],
    "source": [lambda: None, lambda: {"a": 1}],
    "tensors": [lambda: {name: torch.as_tensor(array) for name, array in pairs().state()[0].items()}],
    "header": [lambda: pairs().state()[1]],
    "group": [lambda: None],
    "parametrization": [lambda: None, lambda: lab.init.standard, lambda: lab.init.neural_tangent],
    "activation": [lambda: "tanh", lambda: "relu"],
    "widths": [lambda: (2, 3, 1), lambda: [4, 4]],
    "multipliers": [lambda: None],
    "layer_rates": [lambda: None],
    "A": [lambda: TARGETS.T @ TARGETS, definite],
    "B": [lambda: INPUTS[:3].T @ INPUTS[:3], definite],
    "entries": [lambda: [Entry.of_spectrum("a", spectrum()), Entry.of_spectrum("b", drawn_spectrum())]],
    "learning_rate": [lambda: 0.05],
    "num_epochs": [lambda: 2],
    "spikes": [lambda: (4.0, 3.0)],
    "error": [lambda: 0.5],
    "verdict": [lambda: "yes", lambda: "no"],
    "size": [lambda: 3, lambda: 8],
    "memory": [lambda: None, lambda: "1G"],
    "subtract": [lambda: (), lambda: ("class",)],
    "project": [lambda: (), lambda: ("class",)],
    "f": [lambda: torch.exp, lambda: torch.cos],
}
BY_CLASS = {
    ritz.Risk: [classifier_risk, regression_risk],
    ritz.Spectrum: [spectrum, drawn_spectrum],
    ritz.Eigenpairs: [pairs],
    ritz.Estimate: [lambda: ritz.Estimate(1.0, 0.5, 3)],
    ritz.Record: [record, class_record],
    ritz.Claim: [lambda: ritz.Claim("a", "b", "c", "d", 1, 1, None, "yes")],
    ritz.solvers.Tridiagonal: [lambda: ritz.lanczos(definite(), torch.ones(4, 2).double(), 3)],
    ritz.solvers.LanczosQuadrature: [quadrature],
    ritz.classes.ClassDecomposition: [lambda: ritz.class_decomposition(classifier_risk())],
    ritz.factored.Gram: [lambda: ritz.factored.Gram.of(classifier_risk())],
    theory.ClosedForm: [closed_form],
    theory.laws.Law: [theory.laws.semicircle, lambda: theory.laws.marchenko_pastur(0.5)],
    Entry: [lambda: Entry.of_spectrum("a", spectrum()), lambda: Entry.of(record())],
    lab.data.Examples: [examples, squares],
    lab.data.Split: [lambda: lab.data.Split(examples(), examples())],
    lab.ensemble.Ensemble: [ensemble],
    lab.models.GPT: [gpt],
    lab.training.Schedule: [lab.training.Constant, lambda: lab.training.HALVING, lab.training.Cosine],
    nn.Module: [model],
    Axes: [axes],
    torch.Generator: [seeded],
    torch.dtype: [lambda: torch.float64, lambda: torch.float32],
    torch.device: [lambda: torch.device("cpu")],
    torch.Tensor: [lambda: INPUTS, lambda: INPUTS[0]],
    torch.optim.Optimizer: [lambda: torch.optim.SGD(model().parameters(), lr=0.1)],
    slice: [lambda: slice(0, 1)],
    np.ndarray: [lambda: np.array([1.0, 2.0, 4.0]), lambda: np.array([0, 1, 2])],
    lab.models.GPTConfig: [lambda: gpt().config],
    ritz.record.Picture: [lambda: plot.panels()[0]],
}


def written(name):
    """A file of a kind that is read, written anew: other calls may have changed or removed it."""
    return KEPT[name]().save(f"again/{name}.npz")


def published():
    """The weights of a small GPT-2, as they are published."""
    from tests.lab.gpt2_weights import TINY
    from tests.lab.gpt2_weights import published as weights

    return weights(TINY)


LINES = torch.diag(torch.arange(1.0, 4.0)).double()
OF = {  # what goes together, for functions that take hardly anything else
    "ritz.Spectrum": {
        "nodes": [lambda: drawn_spectrum().nodes],
        "weights": [lambda: drawn_spectrum().weights],
        "reach": [lambda: None],
    },
    "ritz.Spectrum.load": {"path": [functools.partial(written, "Spectrum")]},
    "ritz.classes.project": {"A": [lambda: LINES, lambda: definite(3)], "B": [lambda: ritz.low_rank(LINES[:, :1])]},
    "ritz.lab.data.padded": {"data": [squares], "size": [lambda: 4, lambda: 8]},
    "ritz.lab.ensemble.Ensemble.rows": {"theta": [lambda: ensemble().flat]},
    "ritz.lab.init.Parametrization.groups": {
        "self": [lambda: lab.init.standard((2, 3, 3), generator=seeded())],
        "model": [model],
    },
    "ritz.lab.models.gpt2": {"source": [published], "num_heads": [lambda: 2]},
    "ritz.preconditioned": {"A": [lambda: definite(3)], "diagonal": [lambda: LINES.diagonal()]},
    "ritz.record.read_arrays": {"path": [functools.partial(written, "Eigenpairs")]},
    "ritz.record.read_bytes": {"path": [functools.partial(written, "Eigenpairs")]},
    "ritz.theory.ClosedForm.eigenvectors": {"group": [lambda: closed_form().groups[0].name]},
    "ritz.theory.Comparison": {"groups": [lambda: (theory.comparison.GroupError("a", 1, 0.5, None),)]},
    "ritz.theory.balanced_solution": {
        "X": [lambda: torch.eye(3).double()],
        "Y": [lambda: LINES],
        "depth": [lambda: 2, lambda: 3],
        "widths": [lambda: 3, lambda: 4],
    },
}


def moments(data):
    """All that the squared loss of a linear network depends on."""
    x, y = data
    return [x.mT @ x, x.mT @ y, y.square().sum((-2, -1))]


DETERMINED = {  # by the arguments, where a result is one of several that are as good: inputs of less rank than columns
    "ritz.lab.training.compressed": moments,
}
