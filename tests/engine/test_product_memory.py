"""What a product takes, in vectors of n numbers, beside a plain double backward; and that little memory suffices."""

import gc

import pytest
import torch
from torch import nn

import ritz
from ritz.engine import linearized_risk
from ritz.engine.curvatures import HESSIAN
from ritz.engine.graph_bytes import graph_bytes
from ritz.errors import OutOfMemoryError
from tests.solvers.memory import peak_vectors

WIDTH, DEPTH = 160, 6  # vectors of n numbers outweigh activations, as they do in large networks
ABOVE = 0.6  # vectors that a product may take more than a plain double backward


def count(model):
    return sum(p.numel() for p in model.parameters())


def wide(dtype=torch.float32, examples=24):
    generator = torch.Generator().manual_seed(0)
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 5)).to(dtype)
    x = torch.randn(examples, WIDTH, generator=generator, dtype=dtype)
    return model, x, torch.randint(5, (examples,), generator=generator)


@pytest.fixture(scope="module")
def problem():
    model, x, y = wide()
    parameters = list(model.parameters())
    n = count(model)
    v = torch.randn(n, generator=torch.Generator().manual_seed(1))
    pieces = [piece.view_as(p) for piece, p in zip(v.split([p.numel() for p in parameters]), parameters, strict=True)]

    def double_backward():
        gradients = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), parameters, create_graph=True)
        return torch.autograd.grad(gradients, parameters, pieces)

    double_backward()
    return model, (x, y), v, peak_vectors(double_backward, n) + 2  # the model and v


@pytest.mark.parametrize("operator", [ritz.hessian, ritz.functional_hessian, ritz.gauss_newton])
def test_a_product_that_keeps_nothing_takes_little_more_than_a_double_backward(operator, problem):
    model, data, v, plain = problem
    A = operator(ritz.Risk(model, ritz.CrossEntropy(), [data], memory=0))
    A @ v
    assert peak_vectors(lambda: A @ v, A.size) + 3 <= plain + ABOVE  # the model, θ and v


def test_the_trial_of_a_large_network_takes_no_more_than_its_products(monkeypatch):
    monkeypatch.setattr(linearized_risk, "LARGE_BYTES", 0)
    monkeypatch.setattr(linearized_risk, "TRIAL_EXAMPLES", 100)
    model, x, y = wide(examples=100)
    A, v = ritz.hessian(ritz.Risk(model, ritz.CrossEntropy(), [(x, y)])), torch.ones(count(model))
    first, kept = peak_vectors(lambda: A @ v, A.size), A.info.kept_bytes / 4 / A.size
    assert kept > 1 and first <= kept + peak_vectors(lambda: A @ v, A.size) + 0.05


def test_products_that_free_as_they_go_are_the_same():
    model = nn.Sequential(nn.Linear(3, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 4)).double()
    x, y = torch.randn(24, 3).double(), torch.arange(24) % 4
    batches, V = [(x[:14], y[:14]), (x[14:], y[14:])], torch.randn(count(model), 3).double()
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        kept, freed = (operator(ritz.Risk(model, ritz.CrossEntropy(), batches, memory=m)) for m in ("1G", 0))
        for _ in range(2):
            torch.testing.assert_close(freed @ V, kept @ V)
            torch.testing.assert_close(freed @ V[:, 0], kept @ V[:, 0])


class Limited(nn.Module):
    """A network without room for more than a few examples at a time, with or without their graph."""

    def __init__(self, most, most_with_graph):
        super().__init__()
        self.layer, self.most, self.most_with_graph = nn.Linear(3, 4), most, most_with_graph

    def forward(self, x):
        z = self.layer(x).tanh()
        if len(x) > (self.most_with_graph if z.requires_grad else self.most):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return z


@pytest.mark.parametrize("most, most_with_graph", [(100, 100), (100, 3), (9, 9), (3, 1)])
@pytest.mark.parametrize("form", ["tensors", "batches"])
def test_a_risk_is_built_in_pieces_that_fit(most, most_with_graph, form):
    x, y = torch.randn(24, 3, dtype=torch.float64), torch.arange(24) % 4
    data = (x, y) if form == "tensors" else [(x[:14], y[:14]), (x[14:], y[14:])]
    free, limited = Limited(100, 100).double(), Limited(most, most_with_graph).double()
    limited.load_state_dict(free.state_dict())
    expected, risk = (ritz.Risk(model, ritz.CrossEntropy(), data) for model in (free, limited))
    assert risk.loss_value() == pytest.approx(expected.loss_value(), rel=1e-12) and risk.num_terms == 24
    torch.testing.assert_close(ritz.hessian(risk).dense(), ritz.hessian(expected).dense())


class Coupled(Limited):
    def forward(self, x):
        return super().forward(x) - super().forward(x).mean(0)


@pytest.mark.parametrize("network, why", [(Coupled(9, 9), "depend on each other"), (Limited(1, 1), "Not even two")])
def test_a_batch_that_cannot_be_cut_and_has_no_room_is_refused(network, why):
    x, y = torch.randn(24, 3), torch.arange(24) % 4
    with pytest.raises(OutOfMemoryError, match=f"(?s)batch of 24 examples: CUDA out of memory.*{why}"):
        ritz.Risk(network, ritz.CrossEntropy(), [(x, y)])
    few = 8 if isinstance(network, Coupled) else 1  # the way out
    risk = ritz.Risk(network, ritz.CrossEntropy(), list(zip(x.split(few), y.split(few), strict=True)))
    ritz.hessian(risk) @ risk.theta


def test_one_example_without_room_is_refused():
    with pytest.raises(OutOfMemoryError, match=r"(?s)batch of 1 example: CUDA out of memory.*smallest batch") as caught:
        ritz.Risk(Limited(0, 0), ritz.CrossEntropy(), [(torch.randn(1, 3), torch.tensor([0]))])
    assert "smaller batches" not in str(caught.value)  # there are none


class Neighbours(nn.Module):
    """A network on a graph, whose edges are a sparse matrix."""

    def __init__(self, edges):
        super().__init__()
        self.layer, self.head = nn.Linear(3, 4), nn.Linear(4, 3)
        self.register_buffer("edges", edges)

    def forward(self, x):
        return self.head(self.edges @ self.layer(x).tanh())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")  # that both are new to PyTorch
def test_a_sparse_matrix_in_a_network_is_one_like_any_other(layout, generator):
    edges = (torch.rand(6, 6, generator=generator) < 0.4).double()
    plain, model = (Neighbours(m).double() for m in (edges, edges.to_sparse(layout=layout)))
    model.load_state_dict(plain.state_dict() | {"edges": model.edges})
    data = [(torch.randn(6, 3, generator=generator, dtype=torch.float64), torch.arange(6) % 3)]
    A, B = (ritz.hessian(ritz.Risk(m, ritz.CrossEntropy(), data)) for m in (model, plain))
    torch.testing.assert_close(A.dense(), B.dense())
    assert A.info.path == B.info.path


@pytest.mark.parametrize("layout, parts", [(torch.sparse_coo, 3 * 8), (torch.sparse_csr, 2 * 8)])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_the_bytes_of_a_sparse_matrix_are_those_of_its_entries(layout, parts):
    entries, w = torch.arange(50), torch.ones(50, 1, dtype=torch.float64, requires_grad=True)
    if layout == torch.sparse_coo:
        A = torch.sparse_coo_tensor(entries.repeat(2, 1), w.detach()[:, 0].clone(), (50, 50))
    else:
        A = torch.sparse_csr_tensor(torch.arange(51), entries, w.detach()[:, 0].clone(), (50, 50))
    rows = 0 if layout == torch.sparse_coo else 51 * 8
    assert graph_bytes([(A @ w).grad_fn], [w]) == 50 * parts + rows


def test_a_hundred_kronecker_factorisations_leave_memory_flat():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    data = torch.randn(20, 6).double(), torch.arange(20) % 3
    risk = ritz.Risk(model, ritz.CrossEntropy(), data)
    v, held = torch.ones(risk.size).double(), []
    for number in range(100):
        factors = ritz.kfac(risk)
        factors.operator @ v
        factors.operator.inverse(0.1) @ v
        del factors
        if number in (1, 99):
            gc.collect()
            held.append(sum(issubclass(type(entry), torch.Tensor) for entry in gc.get_objects()))
    assert held[1] <= held[0]


def normed_network():
    layers = [torch.nn.Conv2d(2, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.Tanh(), torch.nn.Conv2d(64, 64, 3)]
    return torch.nn.Sequential(*layers, torch.nn.BatchNorm2d(64), torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()


def test_what_a_graph_keeps_beside_the_examples_is_not_taken_for_theirs(generator):
    """A batch norm scales the weights in front of it: of 16 examples they would be nearly all that is kept."""
    x, y = torch.randn(600, 2, 5, 5, generator=generator), torch.randint(3, (600,), generator=generator)
    risk = ritz.Risk(normed_network(), ritz.CrossEntropy(), (x, y))
    whole = linearized_risk.LinearizedRisk(risk, HESSIAN)
    whole.for_each(lambda batch, contribution: contribution(risk.theta[None], 0 * risk.theta[None]))
    trial, graphs = whole.prepare(), [contribution.linearized for contribution in whole._maps.values()]
    assert graphs and trial.fixed_bytes > 0.9 * risk.theta.nbytes
    assert risk.budget.taken(whole) == pytest.approx(sum(graph.kept_bytes() for graph in graphs), rel=0.02)


def test_a_trial_takes_no_graphs_apart_where_one_pass_may_take_all_examples(generator):
    x, y = torch.randn(40, 2, 5, 5, generator=generator), torch.randint(3, (40,), generator=generator)
    risk = ritz.Risk(normed_network(), ritz.CrossEntropy(), [(x[:20], y[:20]), (x[20:], y[20:])])
    whole = linearized_risk.LinearizedRisk(risk, HESSIAN)
    whole.for_each(lambda batch, contribution: contribution(risk.theta[None], 0 * risk.theta[None]))
    assert whole.prepare().fixed_bytes == 0 and [len(batch) for batch in whole._batches] == [40]
