"""Class structure of features, errors and weights: against loops over examples, and every identity of the theory."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ritz.classes import backpropagated_errors, features, weights
from ritz.errors import ArgumentError, DataError, ModelError
from ritz.factored.kronecker import kfac
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from tests.factored.networks import close, factors_of_example, unequal
from tests.zoo import case, dense_hessian

C = 3
LABELS = {
    "balanced": torch.tensor([0, 1, 2, 2, 0, 1, 1, 0, 2]),
    "unbalanced": torch.tensor([0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0]),
    "one_example": torch.tensor([0, 1, 0, 0, 0, 1, 0, 2, 0]),
    "empty_class": torch.tensor([0, 2, 0, 0, 0, 2, 0, 2, 0]),
}
WEIGHT = torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64)


def mlp(sureness):
    model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, C)).double()
    with torch.no_grad():
        model[4].weight.mul_(sureness)
    return model, (4,)


def cnn(sureness):
    convolutions = [nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 7, 2, stride=2), nn.GELU()]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(28, C)).double()
    with torch.no_grad():
        model[5].weight.mul_(sureness)
    return model, (2, 4, 4)


def built(kind, balance="unbalanced", *, sureness=1.0, **options):
    labels = LABELS[balance]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, shape = (mlp if kind == "mlp" else cnn)(sureness)
        x = torch.randn(len(labels), *shape, dtype=torch.float64)
    return Risk(model, nn.CrossEntropyLoss(**options), unequal(x, labels)), model, x, labels


def rows_of(model, name, x, labels, masses):
    """Every position of every example: h, p, δ for every would-be label, the class and the weight a."""
    found = []
    for xi, label, a in zip(x, labels.tolist(), masses.tolist(), strict=True):
        h, p, delta = factors_of_example(model, model.get_submodule(name), xi)
        found += [(h[t, :-1], p, delta[:, t], label, a) for t in range(len(h))]
    return found


def unit(labels):
    return torch.ones(len(labels), dtype=torch.float64)


def outer(x, y=None):
    return torch.outer(x, x if y is None else y)


EVERY = pytest.mark.parametrize(
    "kind, balance", [("mlp", "balanced"), ("mlp", "unbalanced"), ("mlp", "one_example"), ("mlp", "empty_class"),
                      ("cnn", "unbalanced")]
)  # fmt: skip


# Features ------------------------------------------------------------------------------------------------------------


@EVERY
def test_features_are_split_as_by_a_loop_over_examples(kind, balance):
    risk, model, x, labels = built(kind, balance)
    for name, ours in features(risk).items():
        rows = rows_of(model, name, x, labels, unit(labels))
        means = torch.zeros_like(ours.class_means)
        for c in set(labels.tolist()):
            means[c] = torch.stack([h for h, _, _, label, _ in rows if label == c]).mean(0)
        close(ours.class_means, means)
        close(ours.weights, torch.bincount(labels, minlength=C).double() / len(labels))
        close(ours.global_mean, sum(h for h, *_ in rows) / len(rows))
        close(ours.second_moment.dense(), sum(outer(h) for h, *_ in rows) / len(rows))
        close(ours.between_class.dense(), sum(w * outer(m) for w, m in zip(ours.weights, means, strict=True)))
        close(ours.within.dense(), sum(outer(h - means[label]) for h, _, _, label, _ in rows) / len(rows))


@EVERY
def test_parts_of_the_features_add_up_and_have_their_ranks(kind, balance):
    risk, *_ = built(kind, balance)
    for ours in features(risk).values():
        close((ours.between_class + ours.within).dense(), ours.second_moment.dense())
        close((ours.global_part + ours.class_covariance).dense(), ours.between_class.dense())
        present = int((ours.weights > 0).sum())
        assert rank(ours.between_class) <= present and rank(ours.class_covariance) <= present - 1
        assert rank(ours.global_part) == 1
        for part in ("between_class", "within", None):
            check_spectrum(ours.spectrum(part), getattr(ours, part or "second_moment"))


def rank(operator):
    return int(torch.linalg.matrix_rank(operator.dense(), hermitian=True, rtol=1e-12))


def check_spectrum(spectrum, operator):
    dense = torch.linalg.eigvalsh(operator.dense())
    counts = (spectrum.weights[0] * spectrum.size).round().long()
    values = spectrum.nodes[0].repeat_interleave(counts).sort().values
    torch.testing.assert_close(values, dense, rtol=1e-10, atol=1e-13 * float(dense.abs().max()))
    assert float(dense[0]) > -1e-13 * float(dense[-1])  # no part is indefinite


def test_class_weights_of_the_loss_weigh_features_and_ignored_examples_do_not_count():
    risk, model, x, labels = built("cnn", weight=WEIGHT, ignore_index=1)
    masses = torch.where(labels == 1, 0.0, WEIGHT[labels])
    for name, ours in features(risk).items():
        rows = rows_of(model, name, x, labels, masses)
        total = sum(a for *_, a in rows)
        close(ours.second_moment.dense(), sum(a * outer(h) for h, _, _, _, a in rows) / total)
        assert float(ours.weights[1]) == 0.0 and not bool(ours.class_means[1].any())


# Errors --------------------------------------------------------------------------------------------------------------


def loop_over_errors(rows, total_weight):
    """Weights, means and the four parts, from their definitions."""
    w, sums = torch.zeros(C, C).double(), torch.zeros(C, C, len(rows[0][2][0])).double()
    for _, p, delta, c, a in rows:
        w[c] += a * p / total_weight
        sums[c] += (a * p / total_weight)[:, None] * delta
    means = sums / torch.where(w > 0, w, 1.0)[..., None]
    others = 1 - torch.eye(C).double()
    class_weights = (w * others).sum(1)
    centres = (
        torch.einsum("ck,cko->co", w * others, means) / torch.where(class_weights > 0, class_weights, 1.0)[:, None]
    )
    pairs = [(c, k) for c in range(C) for k in range(C)]
    parts = {
        "between_class": sum(class_weights[c] * outer(centres[c]) for c in range(C)),
        "cross_class": sum(w[c, k] * outer(means[c, k] - centres[c]) for c, k in pairs if c != k),
        "own_class": sum(w[c, c] * outer(means[c, c]) for c in range(C)),
        "within": sum(
            a * p[k] / total_weight * outer(delta[k] - means[c, k]) for _, p, delta, c, a in rows for k in range(C)
        ),
        "second_moment": sum(a * p[k] / total_weight * outer(delta[k]) for _, p, delta, _, a in rows for k in range(C)),
    }
    return w, means, centres, parts


@EVERY
@pytest.mark.parametrize("options", [{}, {"weight": WEIGHT, "label_smoothing": 0.1, "reduction": "sum"}])
def test_errors_are_split_as_by_a_loop_over_examples(kind, balance, options):
    risk, model, x, labels = built(kind, balance, **options)
    masses = 0.9 * WEIGHT[labels] + 0.1 * WEIGHT.mean() if options else unit(labels)
    for name, ours in backpropagated_errors(risk).items():
        w, means, centres, parts = loop_over_errors(rows_of(model, name, x, labels, masses), risk.total_weight)
        close(ours.cross_weights, w)
        close(ours.cross_means, means)
        close(ours.class_means, centres)
        close(ours.own_means, torch.stack([means[c, c] for c in range(C)]))
        for part, dense in parts.items():
            found = getattr(ours, part).dense()
            torch.testing.assert_close(found, dense, rtol=1e-10, atol=1e-12 * float(parts["second_moment"].abs().max()))


@EVERY
def test_parts_of_the_errors_add_up_and_have_their_ranks(kind, balance):
    risk, *_ = built(kind, balance)
    for ours in backpropagated_errors(risk).values():
        parts = [getattr(ours, part) for part in ("between_class", "cross_class", "own_class", "within")]
        close(sum(part.dense() for part in parts), ours.second_moment.dense())
        close((ours.global_part + ours.class_covariance).dense(), ours.between_class.dense())
        assert rank(ours.between_class) <= C
        assert rank(ours.cross_class) <= C * (C - 2)
        assert rank(parts[0] + parts[1] + parts[2]) <= C * (C - 1)
        for part in ("between_class", "cross_class", "own_class", "within", None):
            check_spectrum(ours.spectrum(part), getattr(ours, part or "second_moment"))


@EVERY
def test_exact_identities_between_own_and_class_means(kind, balance):
    risk, _, _, labels = built(kind, balance)
    share = torch.bincount(labels, minlength=C).double() / len(labels)
    for name, ours in backpropagated_errors(risk).items():
        own, others = ours.own_weights, ours.class_weights
        positions = float(ours.cross_weights.sum())
        assert positions == pytest.approx({"cnn0": 16, "cnn2": 4}.get(kind + name, 1))
        close(own + others, positions * share)
        present = share > 0
        close(ours.class_means[present], -(own / others)[present, None] * ours.own_means[present])
        factors = torch.where(present, others * (own + others) / torch.where(present, own, 1.0), 0.0)
        joined = torch.einsum("c,co,cp->op", factors, ours.class_means, ours.class_means)
        close((ours.between_class + ours.own_class).dense(), joined)


def test_second_moments_are_the_factors_of_kfac():
    risk, *_ = built("cnn", weight=WEIGHT)
    by_kfac, h, delta = kfac(risk), features(risk), backpropagated_errors(risk)
    for name, layer in by_kfac.layers.items():
        ((errors, joint),) = layer.factors
        close(delta[name].second_moment.dense(), errors)
        close(h[name].second_moment.dense(), joint[:-1, :-1])
        close(h[name].global_mean, joint[:-1, -1])


@pytest.mark.parametrize("sureness", [300.0, 20000.0])
def test_a_network_that_is_sure_has_finite_structure(sureness):
    risk, model, x, labels = built("mlp", "balanced", sureness=sureness)
    smallest = model(x).detach().softmax(-1).min()
    assert float(smallest) < 1e-20 and (sureness < 1000 or float(smallest) == 0.0)
    for name, ours in backpropagated_errors(risk).items():
        for part in ("between_class", "cross_class", "own_class", "within", "second_moment"):
            assert bool(getattr(ours, part).dense().isfinite().all())
        for means in (ours.cross_means, ours.class_means, ours.global_mean):
            assert bool(means.isfinite().all())
        w, _, _, parts = loop_over_errors(rows_of(model, name, x, labels, unit(labels)), risk.total_weight)
        close(ours.cross_weights, w)
        close(ours.second_moment.dense(), parts["second_moment"])
    assert all(bool(ours.scatter.isfinite().all()) for ours in features(risk).values())


def test_errors_of_sure_examples_are_not_rounded_away():
    """Two examples with p = (1 - ε, ε): δ for the true label is ε (1, -1), which p - 1 would round."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
    x = torch.tensor([[50.0, 0.0], [0.0, 50.0]]).double()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.tensor([0, 1])))
    epsilon = torch.sigmoid(torch.tensor(-50.0).double())
    ours = backpropagated_errors(risk)["0"]
    torch.testing.assert_close(ours.own_means[0], epsilon * torch.tensor([-1.0, 1.0]).double(), rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.class_weights, epsilon.expand(2) / 2, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.class_means[0], torch.tensor([1.0, -1.0]).double(), rtol=1e-12, atol=0)


def test_float32_keeps_squares_that_it_cannot_hold():
    risk, model, x, labels = built("mlp", "balanced", sureness=60.0)
    single = Risk(model.float(), nn.CrossEntropyLoss(), unequal(x.float(), labels))
    exact, ours = backpropagated_errors(risk), backpropagated_errors(single)
    for name in exact:
        reference, result = exact[name].second_moment.dense(), ours[name].second_moment.dense()
        assert result.dtype == torch.float64
        assert float((result - reference).norm()) < 1e-3 * float(reference.norm())


# Weights -------------------------------------------------------------------------------------------------------------


def trained(kind, decay):
    """A stationary point of R + (η/2)‖W‖² over all weights W, by LBFGS and Newton; the biases have no decay."""
    _, model, x, labels = built(kind)
    if kind == "mlp":
        model[3] = nn.Tanh()  # a minimum at the kink of a ReLU has no zero gradient
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def objective(theta):
        pieces = theta.split([shape.numel() for shape in shapes.values()])
        tensors = {n: piece.view(shapes[n]) for n, piece in zip(shapes, pieces, strict=True)}
        penalty = sum(t.square().sum() for n, t in tensors.items() if n.endswith("weight"))
        return F.cross_entropy(torch.func.functional_call(model, tensors, (x,)), labels) + decay / 2 * penalty

    theta = nn.utils.parameters_to_vector(model.parameters()).detach().requires_grad_()
    options = {"max_iter": 300, "tolerance_grad": 1e-9, "tolerance_change": 0, "history_size": 50}
    optimiser = torch.optim.LBFGS([theta], line_search_fn="strong_wolfe", **options)

    def closure():
        optimiser.zero_grad()
        value = objective(theta)
        value.backward()
        return value

    optimiser.step(closure)
    theta = theta.detach()
    for _ in range(5):  # equal shifts of all logits change nothing: H is singular
        inverse = torch.linalg.pinv(dense_hessian(objective, theta), hermitian=True, rtol=1e-9)
        theta = theta - inverse @ torch.func.grad(objective)(theta)
    nn.utils.vector_to_parameters(theta, model.parameters())
    return Risk(model, nn.CrossEntropyLoss(), unequal(x, labels)), model


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_the_weights_of_a_trained_network_are_made_of_errors_and_features(kind):
    risk, model = trained(kind, 0.01)
    for name, ours in weights(risk, 0.01).items():
        W = model.get_submodule(name).weight.detach().flatten(1)
        assert float(W.norm()) > 0.1 and ours.residual < 1e-9
        close(ours.weight, W)
        torch.testing.assert_close(ours.between_class + ours.within, W, rtol=0, atol=1e-9 * float(W.norm()))
        assert float(ours.global_error.norm()) < 1e-10  # the biases have no decay


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("options", [{}, {"weight": WEIGHT, "label_smoothing": 0.1}, {"ignore_index": 2}])
def test_class_and_within_parts_are_those_of_a_loop_over_examples(kind, options):
    risk, model, x, labels = built(kind, **options)
    gradient = dict(zip(risk.shapes, risk.unflatten(risk.gradient()), strict=True))
    smoothing, weight = options.get("label_smoothing", 0.0), options.get("weight", torch.ones(C).double())
    masses = (1 - smoothing) * weight[labels] + smoothing * weight.mean()
    masses = torch.where(labels == options.get("ignore_index", -100), 0.0, masses)
    smooth = weight / weight.mean() / C  # the label that smoothing mixes in
    for name, ours in weights(risk, 0.3).items():
        close(ours.stationary, -gradient[f"{name}.weight"].flatten(1) / 0.3)
        rows = rows_of(model, name, x, labels, masses)
        target = lambda c, a: (
            (a - smoothing * weight.mean()) / a * F.one_hot(torch.tensor(c), C)
            + (smoothing * weight.mean() / a * smooth)
        )
        rows = [(h, target(c, a) @ delta, c, a / risk.total_weight) for h, p, delta, c, a in rows if a > 0]
        between, within = 0, 0
        for k in range(C):
            own = [(h, delta, a) for h, delta, c, a in rows if c == k]
            if own:
                total = sum(a for *_, a in own)
                h_c, delta_c = sum(a * h for h, _, a in own) / total, sum(a * d for _, d, a in own) / total
                between = between - total * outer(delta_c, h_c) / 0.3
                within = within - sum(a * outer(d - delta_c, h - h_c) for h, d, a in own) / 0.3
        close(ours.between_class, between)
        close(ours.within, within)
        total = sum(a for *_, a in rows)
        h_G, delta_G = sum(a * h for h, *_, a in rows) / total, sum(a * d for _, d, _, a in rows) / total
        torch.testing.assert_close(ours.global_part, -total * outer(delta_G, h_G) / 0.3, rtol=1e-9, atol=1e-13)


def test_far_from_a_stationary_point_the_residual_says_so():
    risk, *_ = built("mlp")
    assert all(ours.residual > 0.5 for ours in weights(risk, 0.1).values())


def test_singular_values_are_those_of_the_matrices():
    risk, *_ = built("cnn")
    for ours in weights(risk, 0.1).values():
        for part in (None, "between_class", "within"):
            dense = torch.linalg.svdvals(getattr(ours, part or "weight"))
            torch.testing.assert_close(ours.singular_values(part).nodes[0].sort(descending=True).values, dense)
        assert int((torch.linalg.svdvals(ours.between_class) > 1e-12 * ours.between_class.norm()).sum()) <= C


@pytest.mark.parametrize("decay", [0.0, -1.0, float("nan")])
def test_a_decay_that_is_not_positive_is_refused(decay):
    with pytest.raises(ArgumentError, match="decay"):
        weights(built("mlp")[0], decay)


# Refused, and allowed -------------------------------------------------------------------------------------------------


ALL = [features, backpropagated_errors, lambda risk: weights(risk, 0.1)]


def zoo_risk(name, **options):
    found = case(name)
    targets = torch.arange(torch.Size(found.shape[:-1]).numel()).view(found.shape[:-1]) % C
    return Risk(found.model, CrossEntropy(), (found.inputs, targets), **options)


@pytest.mark.parametrize("structure", ALL)
def test_a_structure_of_a_risk_without_classes_is_refused(structure):
    _, model, x, labels = built("mlp")
    with pytest.raises(DataError, match="SquaredError"):
        structure(Risk(model, nn.MSELoss(), (x, torch.zeros(len(x), C).double())))
    with pytest.raises(DataError, match="class 1"):
        structure(Risk(model, nn.CrossEntropyLoss(), (x, torch.ones_like(labels))))
    with pytest.raises(DataError, match="several labels"):
        structure(zoo_risk("transformer", parameters="mlp.*"))
    with pytest.raises(ModelError, match="gru"):
        structure(zoo_risk("recurrent"))
    with pytest.raises(ModelError, match="No linear layer"):
        structure(zoo_risk("cnn", parameters="1.*"))


@pytest.mark.parametrize("structure", ALL)
def test_results_that_do_not_fit_into_memory_are_refused(structure):
    _, model, x, labels = built("mlp")
    with pytest.raises(ArgumentError, match="GiB"):
        structure(Risk(model, nn.CrossEntropyLoss(), unequal(x, labels), memory=1000))


def test_other_layers_are_left_out_and_groups_matter_for_weights_alone():
    risk = zoo_risk("residual")
    for structure in ALL[:2]:
        assert list(structure(risk)) == ["conv1", "conv2", "shortcut", "head"]
    with pytest.raises(ModelError, match=r"groups: conv2\."):
        weights(risk, 0.1)
    assert list(weights(zoo_risk("residual", parameters=["conv1.*", "head.*"]), 0.1)) == ["conv1", "head"]


def test_little_memory_gives_the_same_structure():
    risk, model, x, labels = built("cnn")
    little = Risk(model, nn.CrossEntropyLoss(), unequal(x, labels), memory=2e4)
    for structure in ALL[:2]:
        for name, ours in structure(little).items():
            close(ours.second_moment.dense(), structure(risk)[name].second_moment.dense())
