"""The exact spectrum of G through its Gram matrix, and of G without some of its parts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ritz
from ritz.errors import ArgumentError, DataError, ModelError, NumericalError
from ritz.factored.gram import Gram, gram_spectrum
from ritz.factored.gram_parts import PARTS
from ritz.layers import jacobian_rows
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from tests.factored.dense_parts import dense_parts
from tests.layers.unusual_rows import ByLength, Routed, Sorted, Stacked, by_length
from tests.zoo import CASES, OUTPUTS, Centred, case, unequal_batches

LOSSES = {
    "cross-entropy": CrossEntropy(),
    "weighted": CrossEntropy(weight=torch.tensor([0.3, 2.0, 1.0]), label_smoothing=0.1, ignore_index=1),
    "squared error": ritz.SquaredError(),
    "binary": ritz.BinaryCrossEntropy(),
}


def risk_of(name, loss="cross-entropy", **options):
    found = case(name)
    generator = torch.Generator().manual_seed(1)
    if loss in ("cross-entropy", "weighted"):
        targets = torch.randint(OUTPUTS, found.shape[:-1], generator=generator)
    else:
        targets = torch.rand(found.shape, generator=generator, dtype=torch.float64)
    return found, Risk(found.model, LOSSES[loss], unequal_batches(found.inputs, targets), **options)


def assert_same_spectrum(spectrum, A, *, scale=None):
    expected = torch.linalg.eigvalsh(A)
    scale = float(expected.abs().max()) if scale is None else scale
    assert spectrum.size == len(A)
    counts = (spectrum.weights[0] * spectrum.size).round().long()
    ours = spectrum.nodes[0].repeat_interleave(counts).sort().values
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10 * scale)


def test_zeros_are_zero_to_the_precision_of_the_gram_matrix():
    """A layer of one unit leaves G far from full rank."""
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 3)).eval(), torch.randn(12, 8), torch.arange(12) % 3
    risk = Risk(model, CrossEntropy(), [(x[:7], y[:7]), (x[7:], y[7:])])
    values = torch.linalg.eigvalsh(ritz.gauss_newton(risk.to(torch.float64)).dense())
    zeros = float((values.abs() < 1e-12 * values.max()).double().mean())
    assert zeros > 0.2
    for dtype in (torch.float32, torch.float64):
        assert Gram.of(risk, dtype=dtype).spectrum().zero_mass() == pytest.approx(zeros)
    assert ritz.Spectrum.of_matrix(ritz.gauss_newton(risk).dense()).zero_mass() == pytest.approx(zeros)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CASES)
def test_the_gram_matrix_has_the_spectrum_of_g(name, loss):
    _, risk = risk_of(name, loss)
    gram = Gram.of(risk)
    assert gram.error < 1e-12
    assert_same_spectrum(gram.spectrum(), ritz.gauss_newton(risk).dense())


@pytest.mark.parametrize("loss", ["cross-entropy", "weighted"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
@pytest.mark.parametrize(
    "subtract",
    [
        ("between_class",),
        ("cross_class",),
        ("own_class", "between_class"),
        PARTS[:3],
        ("within",),
        ("within", "own_class"),
    ],
)
def test_subtracted_parts_leave_the_spectrum_of_the_rest(name, loss, subtract):
    found, risk = risk_of(name, loss)
    G, parts = dense_parts(found, risk)
    spectrum = gram_spectrum(risk, subtract=subtract)
    assert_same_spectrum(spectrum, G - sum(parts[part] for part in subtract))


@pytest.mark.parametrize("loss", ["cross-entropy", "weighted"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
@pytest.mark.parametrize("subtract", [(), ("between_class",)])
@pytest.mark.parametrize("project", [("between_class",), ("cross_class",), PARTS[:3]])
def test_projected_parts_leave_the_spectrum_on_their_complement(name, loss, subtract, project):
    found, risk = risk_of(name, loss)
    G, parts = dense_parts(found, risk)
    rest = G - sum((parts[part] for part in subtract), torch.zeros_like(G))
    values, vectors = torch.linalg.eigh(sum(parts[part] for part in project))
    Q = vectors[:, values > 1e-12 * values.max()]
    complement = torch.eye(len(G)).double() - Q @ Q.T
    scale = 10 * float(torch.linalg.eigvalsh(G)[-1])  # of what is projected out: its range is known as well as that
    left = gram_spectrum(risk, subtract=subtract, project=project)
    assert_same_spectrum(left, complement @ rest @ complement, scale=scale)


def test_projecting_out_everything_leaves_nothing():
    _, risk = risk_of("mlp")
    assert gram_spectrum(risk, project=PARTS).zero_mass(1e-12) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_part_that_is_zero_takes_nothing_with_it(copies, dtype):
    """Where the examples of a class are all alike, G_within is rounding, and its range is nothing."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(3, 3).repeat(copies, 1)
    y, near = torch.arange(3).repeat(copies), {torch.float64: 1e-12, torch.float32: 1e-5}[dtype]
    gram = Gram.of(Risk(model.double(), nn.CrossEntropyLoss(), (x.double(), y)), dtype=dtype)
    left, whole = gram.eigenvalues(project=("within",)), gram.eigenvalues()
    torch.testing.assert_close(left, whole, rtol=0, atol=near * float(whole[0]))


def test_all_parts_subtracted_leave_nothing():
    _, risk = risk_of("cnn")
    assert gram_spectrum(risk, subtract=PARTS).zero_mass(1e-12) == 1.0


def test_blocks_of_few_examples_give_the_same_matrix():
    for name in ("cnn", "transformer", "partly_trained"):
        _, risk = risk_of(name)
        whole_matrix = Gram.of(risk).matrix
        risk.budget.total = 24 * whole_matrix.numel() + 1.0
        cut = Gram.of(risk)
        y = torch.linalg.eigvalsh(whole_matrix)
        torch.testing.assert_close(torch.linalg.eigvalsh(cut.matrix), y, rtol=0, atol=1e-13 * float(y.max()))


@settings(max_examples=25, deadline=None)
@given(
    channels=st.integers(1, 3),
    out=st.sampled_from([2, 4]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    image=st.integers(3, 6),
    grouped=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_convolutions_of_any_shape_are_exact_whichever_way_is_cheaper(
    channels, out, kernel, stride, image, grouped, seed
):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        groups = 2 if grouped else 1
        first = nn.Conv2d(channels, 2, 3, padding=1)
        second = nn.Conv2d(2, out, kernel, stride=stride, groups=groups, bias=False)
        model = nn.Sequential(first, nn.Tanh(), second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(out, 3))
        x = torch.randn(7, channels, image, image).double()
        y = torch.randint(3, (7,))
    risk = Risk(model.double(), nn.CrossEntropyLoss(), [(x[:5], y[:5]), (x[5:], y[5:])])
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


def test_outputs_that_are_sure_give_finite_and_exact_eigenvalues():
    found, _ = risk_of("mlp")
    with torch.no_grad():
        found.model[-1].weight *= 200  # probabilities down to 1e-100 and below
    y = torch.arange(11) % 3
    risk = Risk(found.model, CrossEntropy(), (found.inputs, y))
    for subtract in ((), PARTS[:1], PARTS[:3]):
        gram = Gram.of(risk)
        values = gram.eigenvalues(subtract=subtract)
        assert bool(values.isfinite().all())
    assert_same_spectrum(gram.spectrum(), ritz.gauss_newton(risk).dense())


def test_a_class_without_examples_has_no_part():
    found, _ = risk_of("mlp")
    y = torch.tensor([0, 1] * 5 + [0])
    risk = Risk(found.model, CrossEntropy(), (found.inputs, y))
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())
    assert 0 < int((gram_spectrum(risk, subtract=PARTS[1:]).nodes.abs() > 1e-12).sum()) <= 2


def test_ranks_are_those_of_theory():
    """Class ≤ C, cross ≤ C(C - 2), the three together ≤ C(C - 1), within ≤ min((N - C) C, N(C - 1)). theory 3.1."""
    _, risk = risk_of("mlp")
    gram, N, C = Gram.of(risk), 11, OUTPUTS
    rank = lambda kept: int((gram.eigenvalues(subtract=[p for p in PARTS if p not in kept]).abs() > 1e-12).sum())
    assert rank(["between_class"]) <= C
    assert rank(["cross_class"]) <= C * (C - 2)
    assert rank(list(PARTS[:3])) <= C * (C - 1)
    assert rank(["within"]) <= min((N - C) * C, N * (C - 1))


def test_float32_says_how_far_it_is_from_a_product_with_g():
    _, risk = risk_of("mlp")
    gram = Gram.of(risk, dtype=torch.float32)
    assert gram.matrix.dtype == torch.float32
    assert 0 < gram.error < 1e-4
    exact = Gram.of(risk).eigenvalues()
    torch.testing.assert_close(gram.eigenvalues(), exact, rtol=0, atol=1e-5 * float(exact.max()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_capture_that_misses_something_is_found_out_and_replaced(monkeypatch, dtype):
    """A layer that is captured wrongly must not pass: the probe sees it, and every example is done by itself."""
    honest = jacobian_rows.Weight.inner
    monkeypatch.setattr(jacobian_rows.Weight, "inner", lambda *arguments: honest(*arguments) / 2)
    _, risk = risk_of("mlp")
    G = ritz.gauss_newton(risk).dense()
    scale = float(torch.linalg.eigvalsh(G)[-1]) * (1 if dtype == torch.float64 else 1e5)
    assert_same_spectrum(gram_spectrum(risk, dtype=dtype), G, scale=scale)


@pytest.mark.usefixtures("unchecked")
def test_bad_requests_are_refused_with_a_way_out():
    _, risk = risk_of("mlp", "squared error")
    with pytest.raises(DataError, match="not indices of the same classes"):
        gram_spectrum(risk, subtract=("within",))
    _, risk = risk_of("mlp")
    with pytest.raises(ArgumentError, match="'between_class', 'cross_class'"):
        gram_spectrum(risk, subtract=("classes",))
    with pytest.raises(ArgumentError, match="tuple"):
        gram_spectrum(risk, subtract="within")
    risk.budget.total = 100.0
    with pytest.raises(ArgumentError, match=r"risk\.first\("):
        gram_spectrum(risk)


def test_examples_that_depend_on_each_other_are_refused():
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 3
    risk = Risk(Centred().double(), nn.CrossEntropyLoss(), [(x, y)])
    with pytest.raises(ModelError, match="depend on the other examples"):
        gram_spectrum(risk)


def test_a_part_that_is_named_twice_is_subtracted_once():
    _, risk = risk_of("mlp")
    gram = Gram.of(risk)
    for parts in (("between_class",), ("own_class", "between_class")):
        torch.testing.assert_close(gram.eigenvalues(subtract=parts * 2), gram.eigenvalues(subtract=parts))


def test_a_loss_that_is_not_convex_is_refused_before_the_work():
    found, _ = risk_of("mlp")
    loss = CrossEntropy(weight=torch.tensor([1.0, -0.5, 1.0]))
    risk = Risk(found.model, loss, unequal_batches(found.inputs, torch.arange(11) % 3))
    with pytest.raises(NumericalError, match=r"eigenvalue -0\.5"):
        gram_spectrum(risk)


@pytest.mark.parametrize("model", [Stacked, Sorted, Routed])
@pytest.mark.parametrize("sizes", [(9, 6), (1, 8, 6), (1,) * 15])
def test_rows_in_any_order_give_the_spectrum_of_g(model, sizes):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(15, 4, generator=generator).double(), torch.arange(15) % 3
    x[:9, 0], x[9:11, 0], x[11:, 0] = torch.arange(1, 10), -1.0, 1.0  # the first nine sorted, and of one part
    risk = Risk(model().double(), nn.CrossEntropyLoss(), list(zip(x.split(sizes), y.split(sizes), strict=True)))
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lengths", [(5, 2), (2, 5)])
def test_batches_that_take_different_ways_have_the_spectrum_of_g(lengths):
    risk = Risk(ByLength().double(), nn.CrossEntropyLoss(), by_length(lengths))
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


class Bags(nn.Module):
    """Words with weights of their own, which PyTorch alone does not differentiate twice."""

    def __init__(self):
        super().__init__()
        self.bag, self.weights = nn.EmbeddingBag(6, 3, mode="sum"), nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self, words):
        return self.bag(words, per_sample_weights=self.weights[words]).tanh()


class Distances(nn.Module):
    """Distances to centres."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(6, 4)
        self.centres = nn.Parameter(torch.randn(3, 4, generator=torch.Generator().manual_seed(1)))

    def forward(self, words):
        return torch.cdist(self.rows(words).mean(1), self.centres)


@pytest.mark.parametrize("model", [Bags, Distances])
def test_what_only_our_rules_differentiate_has_the_spectrum_of_g(model):
    words = torch.randint(6, (11, 4), generator=torch.Generator().manual_seed(0))
    risk = Risk(model().double(), nn.CrossEntropyLoss(), unequal_batches(words, torch.arange(11) % 3))
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


class Segments(nn.Module):
    """Sums over pieces, which PyTorch differentiates once, and backwards."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x):
        rows = self.layer(x.reshape(-1, 2))
        return torch.segment_reduce(rows, "sum", lengths=torch.full((len(x),), len(rows) // len(x)))


def test_what_nothing_differentiates_is_refused():
    x = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double()
    risk = Risk(Segments().double(), nn.CrossEntropyLoss(), unequal_batches(x, torch.arange(11) % 3))
    with pytest.raises(ModelError, match="cannot be differentiated along a direction"):
        gram_spectrum(risk)


def test_no_warning_reaches_the_user():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Bilinear(4, 4, 3)  # its derivative is batched by a loop, which PyTorch warns of

        def forward(self, x):
            return self.layer(x, x.tanh())

    x = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)).double()
    risk = Risk(Product().double(), nn.CrossEntropyLoss(), unequal_batches(x, torch.arange(11) % 3))
    assert gram_spectrum(risk).size == 51


@pytest.mark.parametrize("count", [2, 3])
def test_gradients_that_are_mapped_wrongly_are_found_out(count):
    """PyTorch's rule for PReLU mixes examples and directions where there are as many of one as of the other."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv1d(2, 2, 2), nn.PReLU(2), nn.Flatten(), nn.Linear(4, 3)).double()
        x = torch.randn(count, 2, 3).double()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.arange(count) % 3))
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


@pytest.mark.parametrize("margin", [30.0, 51.0, 80.0])
def test_the_check_in_float32_does_not_underflow_where_a_network_is_sure(margin):
    class Sure(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):  # the label's logit lies above the others by about the margin: p down to 1e-35
            return self.layer(x) + margin * torch.eye(3, dtype=x.dtype)[x[:, 0].long()]

    x, y = torch.randn(11, 4, generator=torch.Generator().manual_seed(0)), torch.arange(11) % 3
    x[:, 0] = y
    with torch.random.fork_rng():
        torch.manual_seed(0)
        risk = Risk(Sure(), CrossEntropy(), unequal_batches(x, y))
    gram = Gram.of(risk, dtype=torch.float32)
    exact = Gram.of(risk).eigenvalues()
    assert gram.error < 1e-4
    torch.testing.assert_close(gram.eigenvalues(), exact, rtol=0, atol=1e-4 * float(exact.max()))


def test_a_loss_that_is_flat_along_a_direction_has_the_spectrum_of_g():
    """Scores of a ranking may all grow alike; the root of a rounding would be 1e-8, and another one in every batch."""

    def pairs(z, y):
        return (nn.functional.softplus(z[:, None] - z[:, :, None]) * (y[:, :, None] > y[:, None])).sum((1, 2))

    with torch.random.fork_rng():
        torch.manual_seed(4)
        scorer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1), nn.Flatten()).double()
        batches = [(torch.randn(n, 5, 3).double(), torch.randn(n, 5).double()) for n in (5, 3)]
    risk = Risk(scorer, pairs, batches)
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())
    assert Gram.of(risk).error < 1e-11


def test_a_loss_whose_hessians_have_many_directions_has_the_spectrum_of_g():
    """Signs of eigenvectors may be others in batches of another size; a chain of labels has 12 directions of a term."""

    def chain(z, y):
        emissions, T = z[:, :12].view(-1, 4, 3), z[:, 12:].view(-1, 3, 3)
        forward = emissions[:, 0]
        for place in range(1, 4):
            forward = torch.logsumexp(forward[..., None] + T, 1) + emissions[:, place]
        own = emissions.gather(2, y[..., None]).sum((1, 2)) + T.flatten(1).gather(1, 3 * y[:, :-1] + y[:, 1:]).sum(1)
        return forward.logsumexp(1) - own

    for seed in range(4):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 21)).double()
            batches = [(torch.randn(n, 5).double(), torch.randint(3, (n, 4))) for n in (5, 3)]
        risk = Risk(model, chain, batches)
        assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


@pytest.mark.parametrize("lengths", [(2, 7, 4), (7, 2, 4)])
def test_sentences_of_any_length_have_the_spectrum_of_g(lengths):
    """In the long ones the weights are small beside the errors of all words, in the short ones they are not."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 5)).double()
        words = [torch.randint(5, (count, length)) for count, length in zip((4, 2, 3), lengths, strict=True)]
    risk = Risk(model, CrossEntropy(), [(x, x.roll(-1, 1)) for x in words])
    assert_same_spectrum(gram_spectrum(risk), ritz.gauss_newton(risk).dense())


class Choosing(nn.Module):
    """Scores of candidates, of which there are more or fewer in a batch."""

    def __init__(self):
        super().__init__()
        self.key, self.score = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, candidates):
        return self.score(torch.tanh(self.key(candidates)))[..., 0]


@pytest.mark.parametrize("counts", [(4, 6), (6, 4)])
def test_a_choice_among_any_number_of_candidates_has_the_spectrum_of_g_and_no_parts_by_class(counts, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Choosing().double()
        batches = [(torch.randn(n, C, 3).double(), torch.randint(C, (n,))) for n, C in zip((5, 3), counts, strict=True)]
    risk = Risk(model, nn.CrossEntropyLoss(), batches)
    assert_same_spectrum(gram_spectrum(risk, checkpoint=tmp_path), ritz.gauss_newton(risk).dense())
    with pytest.raises(DataError, match="not indices of the same classes"):
        gram_spectrum(risk, subtract=("between_class",))
    for by_class in (ritz.class_decomposition, ritz.cfac, ritz.classes.features, ritz.attribution):
        with pytest.raises(DataError, match=f"first batch are of {counts[0]} classes, those of .* of {counts[1]}"):
            by_class(risk)
