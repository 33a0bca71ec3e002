"""Many networks at once: each is trained and measured as if it were alone."""

import gc
import itertools
import weakref

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacfwd
from torch.testing import assert_close

import ritz
from ritz.errors import ArgumentError, DataError
from ritz.lab import ensemble as lab
from ritz.lab.ensemble import curvature
from ritz.lab.training import Plateau
from ritz.lab.training import train as train_one
from tests.seeds import normal, seeded

F64 = torch.float64
SQUARED = ritz.SquaredError()


def network(seed, widths=(4, 6, 3), activation=nn.Tanh, bias=True):
    layers = []
    for index, (before, after) in enumerate(itertools.pairwise(widths)):
        layer = nn.Linear(before, after, bias=bias, dtype=F64)
        layer.weight.data = normal(after, before, seed=10 * seed + index) / before**0.5
        if bias:
            layer.bias.data = normal(after, seed=10 * seed + index + 5) / 10
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def networks(count=3, **options):
    return [network(seed, **options) for seed in range(count)]


def regression(examples=30, inputs=4, outputs=3, seed=0):
    return normal(examples, inputs, seed=1000 + seed), normal(examples, outputs, seed=2000 + seed)


def dense(model, loss, data):
    """The Hessian of one network's mean loss, by forward over reverse."""
    named, (x, y) = dict(model.named_parameters()), data
    sizes = [p.numel() for p in named.values()]

    def risk(theta):
        parts = (part.view_as(p) for part, p in zip(theta.split(sizes), named.values(), strict=True))
        return loss(functional_call(model, dict(zip(named, parts, strict=True)), (x,)), y)

    return jacfwd(grad(risk))(torch.cat([p.detach().flatten() for p in named.values()]))


def mean_squared(z, y):
    return (z - y).square().sum(-1).mean() / 2


# stacking


def test_an_ensemble_is_its_networks():
    models, (x, y) = networks(), regression()
    stack = lab.Ensemble.of(models)
    assert len(stack) == 3 and stack.size == sum(p.numel() for p in models[0].parameters())
    assert_close(stack.outputs(x), torch.stack([model(x) for model in models]).detach())
    expected = torch.stack([mean_squared(model(x), y) for model in models]).detach()
    assert_close(lab.losses(stack, SQUARED, (x, y)), expected)
    assert_close(stack.network(1)(x), models[1](x))
    assert [tuple(W.shape) for W in stack.matrices] == [(3, 6, 4), (3, 3, 6)]
    assert_close(stack.flat[2], torch.cat([p.flatten() for p in models[2].parameters()]).detach())


def test_every_network_can_have_its_own_data():
    models, sets = networks(), [regression(seed=seed) for seed in range(3)]
    x, y = (torch.stack(part) for part in zip(*sets, strict=True))
    found = lab.losses(lab.Ensemble.of(models), SQUARED, (x, y), each=True)
    assert_close(found, torch.stack([mean_squared(m(a), b) for m, (a, b) in zip(models, sets, strict=True)]).detach())
    with pytest.raises(DataError, match="3 networks"):
        lab.losses(lab.Ensemble.of(models), SQUARED, (x[:2], y[:2]), each=True)


def test_buffers_belong_to_each_network():
    class Shifted(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.layer = nn.Linear(4, 3, dtype=F64)
            self.register_buffer("shift", torch.full((3,), shift, dtype=F64))

        def forward(self, x):
            return self.layer(x) + self.shift

    shifted, (x, _) = [Shifted(0.0), Shifted(5.0)], regression()
    assert_close(lab.Ensemble.of(shifted).outputs(x), torch.stack([m(x) for m in shifted]).detach())


def test_linear_networks_are_made_from_their_stacked_weights():
    weights, (x, y) = [normal(3, 6, 4), normal(3, 3, 6, seed=1)], regression()
    stack = lab.linear(weights, [2.0, 0.5])
    assert_close(stack.outputs(x), torch.stack([x @ V.T @ W.T for V, W in zip(*weights, strict=True)]))
    for index in range(3):
        V, W = (layer[index] for layer in weights)
        expected = ritz.theory.two_layer_linear(
            2 * V, W / 2, x, y
        ).eigenvalues()  # the same function, other coordinates
        found = lab.spectra(
            lab.linear([layer[index : index + 1] for layer in (2 * weights[0], weights[1] / 2)]), SQUARED, (x, y)
        )
        assert_close(found[0], expected.sort().values, rtol=1e-9, atol=1e-10)
    with pytest.raises(ArgumentError, match="one multiplier"):
        lab.linear(weights, [1.0])


class Scaled(nn.Linear):
    """A layer with a factor and a function that are no part of its state."""

    def __init__(self, factor=1.0, act=torch.tanh):
        super().__init__(2, 2)
        self.factor, self.act = factor, act

    def forward(self, x):
        return self.factor * self.act(super().forward(x))


class Dropping(nn.Linear):
    """A layer with dropout that is no layer."""

    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, self.training)


def test_networks_that_are_others_while_they_train_are_not_trained():
    x, y = normal(9, 3, seed=0).float(), normal(9, 3, seed=1).float()
    normed = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten())
    for one in (Dropping(3, 3), nn.Sequential(nn.Linear(3, 3), normed)):
        before = torch.get_rng_state()
        with pytest.raises(ritz.RitzError, match="training mode"):
            lab.train(lab.Ensemble.of([one]), nn.MSELoss(), (x, y), learning_rate=0.1, num_epochs=1)
        assert torch.equal(torch.get_rng_state(), before)


def test_networks_may_be_in_different_modes():
    networks = [network(0).train(), network(1).eval()]
    x = normal(5, 4, seed=2)
    assert_close(lab.Ensemble.of(networks).outputs(x), torch.stack([one(x) for one in networks]))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ([], "at least one"),
        ([network(0), network(1, widths=(4, 5, 3))], "different names or shapes"),
        ([network(0), network(1, activation=nn.ReLU)], "different layers"),
        ([nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))], "eval mode"),
        ([nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))], "eval mode"),
        ([nn.Linear(2, 2).requires_grad_(False)], "frozen"),
        ([Scaled(1.0), Scaled(2.0)], "more than their parameters"),
        ([Scaled(torch.tensor(1.0)), Scaled(torch.tensor(2.0))], "more than their parameters"),
        ([Scaled(act=lambda x: x), Scaled(act=lambda x: 2 * x)], "more than their parameters"),
        ([nn.Linear(2, 2), nn.Linear(2, 2, dtype=F64)], "more than their parameters"),
    ],
)
def test_networks_that_cannot_be_one_are_refused(wrong, message):
    with pytest.raises(ritz.RitzError, match=message):
        lab.Ensemble.of(wrong)


class Tied(nn.Module):
    """A layer that is used twice under two names."""

    def __init__(self, seed):
        super().__init__()
        self.first, self.second = (nn.Linear(3, 3, bias=False, dtype=F64) for _ in range(2))
        self.first.weight.data = normal(3, 3, seed=seed)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def test_a_weight_that_is_shared_stays_shared():
    models, (x, y) = [Tied(0), Tied(1)], regression(inputs=3)
    stack = lab.Ensemble.of(models)
    assert stack.size == 9
    assert_close(stack.outputs(x), torch.stack([model(x) for model in models]).detach())
    alone = stack.network(1)
    assert alone.first.weight is alone.second.weight
    assert_close(alone(x), models[1](x))
    *_, together = lab.train(stack, SQUARED, (x, y), learning_rate=0.05, num_epochs=5)
    *_, single = train_one(models[1], SQUARED, (x, y), torch.optim.SGD(models[1].parameters(), 0.05), num_epochs=5)
    assert_close(together.parameters["first.weight"][1], single.parameters["first.weight"])


# training


@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.Identity])
def test_training_together_is_training_each_alone(batch_size, activation):
    models, data = networks(activation=activation), regression()
    stack, rates = lab.Ensemble.of(models), torch.tensor([0.05, 0.02, 0.1], dtype=F64)
    schedule = Plateau(5, 0.1, 0.5)
    options = {"num_epochs": 40, "batch_size": batch_size, "schedule": schedule}
    together = list(lab.train(stack, SQUARED, data, learning_rate=rates, generator=seeded(), **options))
    for index, model in enumerate(models):
        optimizer = torch.optim.SGD(model.parameters(), lr=float(rates[index]))
        alone = list(train_one(model, SQUARED, data, optimizer, generator=seeded(), **options))
        losses = torch.tensor([pause.loss for pause in alone], dtype=F64)
        assert_close(torch.stack([pause.loss[index] for pause in together]), losses, rtol=1e-10, atol=1e-12)
        assert_close(together[-1].learning_rate[index].item(), alone[-1].learning_rate)
        for name, parameter in model.named_parameters():
            assert_close(stack.parameters[name][index], parameter.detach(), rtol=1e-10, atol=1e-10)


def test_layers_have_their_own_rates():
    models, data = networks(bias=False), regression()
    stack = lab.Ensemble.of(models)
    for _ in lab.train(stack, SQUARED, data, learning_rate=0.1, layer_rates=[1.0, 0.25], num_epochs=10):
        pass
    layers = [{"params": models[1][0].parameters(), "lr": 0.1}, {"params": models[1][2].parameters(), "lr": 0.025}]
    for _ in train_one(models[1], SQUARED, data, torch.optim.SGD(layers), num_epochs=10):
        pass
    assert_close([W[1] for W in stack.matrices], [p.detach() for p in models[1].parameters()], rtol=1e-11, atol=1e-12)
    with pytest.raises(ArgumentError, match="2 parameter tensors"):
        lab.train(stack, SQUARED, data, learning_rate=0.1, layer_rates=[1.0], num_epochs=1)


def test_a_network_that_diverges_is_flagged_and_the_others_go_on():
    models, data = networks(activation=nn.Identity), regression()
    stack = lab.Ensemble.of(models)
    rates = torch.tensor([0.05, 50.0, 0.05], dtype=F64)
    *_, last = lab.train(stack, SQUARED, data, learning_rate=rates, num_epochs=300)
    assert last.diverged.tolist() == [False, True, False] and last.epoch == 300 and len(stack) == 3
    alone = lab.Ensemble.of([models[2]])
    for _ in lab.train(alone, SQUARED, data, learning_rate=0.05, num_epochs=300):
        pass
    assert_close(stack.flat[2], alone.flat[0])
    top = lab.sharpness(stack, SQUARED, data)
    assert top.values.isnan().any(1).tolist() == [False, True, False]
    assert top.converged.tolist() == [True, False, True]
    assert lab.spectra(stack, SQUARED, data).isnan().any(1).tolist() == [False, True, False]
    assert lab.norms(stack.matrices[0]).spectral.isfinite().tolist()[::2] == [True, True]


def test_a_network_at_its_floor_rests_while_the_others_go_on():
    stack, data = lab.Ensemble.of(networks()), regression()
    rates = torch.tensor([1e-7, 0.05, 0.05], dtype=F64)  # the first one hardly moves: it has reached its plateau
    resting = None
    for pause in lab.train(
        stack, SQUARED, data, learning_rate=rates, num_epochs=60, schedule=Plateau(3, 1e-3, 0.1, floor=0.1)
    ):
        if pause.done[0] and resting is None:
            resting, running = stack.flat[0].clone(), stack.flat[1].clone()
    assert pause.done.tolist() == [True, False, False] and pause.epoch == 60
    assert torch.equal(stack.flat[0], resting) and not torch.equal(stack.flat[1], running)


def test_a_run_ends_with_its_last_network(tmp_path):
    stack, data = lab.Ensemble.of(networks()), regression()
    schedule = Plateau(2, 0.9, 0.1, floor=0.1)
    *_, last = lab.train(stack, SQUARED, data, learning_rate=0.01, num_epochs=1000, schedule=schedule)
    assert last.done.all() and last.epoch < 20


def test_training_goes_on_from_its_file(tmp_path):
    def run(path, until=None):
        stack, data = lab.Ensemble.of(networks()), regression()
        options = {"num_epochs": 8, "batch_size": 16, "generator": seeded(), "checkpoint": path, "save_seconds": 0.0}
        for pause in lab.train(stack, SQUARED, data, learning_rate=0.05, **options):
            pause.note(size=stack.flat.norm(dim=1))
            if pause.epoch == until:
                break
        return stack.flat, pause.history

    run(tmp_path / "half.npz", until=3)
    (found, noted), (expected, whole) = run(tmp_path / "half.npz"), run(tmp_path / "whole.npz")
    assert torch.equal(found, expected)
    assert noted["size"].values.shape == (8, 3) and (noted["size"].values == whole["size"].values).all()


@pytest.mark.parametrize("count, dtype", [(1, F64), (2, torch.bfloat16)])
def test_any_number_of_networks_of_any_precision_goes_on_from_a_file(tmp_path, count, dtype):
    def run(path, until=None):
        stack, data = lab.Ensemble.of(networks(count)).to(dtype), tuple(part.to(dtype) for part in regression())
        for pause in lab.train(
            stack, SQUARED, data, learning_rate=0.05, num_epochs=4, checkpoint=path, save_seconds=0.0
        ):
            if pause.epoch == until:
                break
        return stack.flat

    run(tmp_path / "half.npz", until=2)
    assert torch.equal(run(tmp_path / "half.npz"), run(tmp_path / "whole.npz"))


@pytest.mark.parametrize("wrong", [{"learning_rate": -0.1}, {"learning_rate": torch.tensor([0.1, torch.nan, 0.1])}])
def test_rates_that_no_descent_has_are_refused(wrong):
    with pytest.raises(ArgumentError, match="negative"):
        lab.train(lab.Ensemble.of(networks()), SQUARED, regression(), num_epochs=1, **wrong)


# curvature


def classification(examples=30):
    return normal(examples, 4, seed=7), torch.randint(0, 3, (examples,), generator=seeded(8))


@pytest.mark.parametrize(
    "loss, plain, data",
    [
        (SQUARED, mean_squared, regression()),
        (ritz.CrossEntropy(), nn.functional.cross_entropy, classification()),
        (nn.CrossEntropyLoss(), nn.functional.cross_entropy, classification()),
    ],
)
def test_spectra_and_hessians_are_those_of_each_network(loss, plain, data):
    models = networks()
    stack = lab.Ensemble.of(models)
    expected = torch.stack([dense(model, plain, data) for model in models])
    assert_close(lab.hessians(stack, loss, data), expected, rtol=1e-10, atol=1e-12)
    assert_close(lab.spectra(stack, loss, data), torch.linalg.eigvalsh(expected), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_lanczos_in_step_finds_the_largest_eigenvalues_of_each(k, activation):
    models = networks(widths=(6, 20, 12, 4), activation=activation)
    data = regression(inputs=6, outputs=4)
    stack = lab.Ensemble.of(models)
    assert stack.size > 256  # too many for the dense route
    top = lab.sharpness(stack, SQUARED, data, k=k, tolerance=1e-8, generator=seeded())
    expected = torch.stack([torch.linalg.eigvalsh(dense(model, mean_squared, data)) for model in models])
    assert top.converged.all() and top.num_products < stack.size
    assert (top.residuals <= 1e-8 * top.values.abs().amax(1, keepdim=True)).all()
    assert_close(top.values, expected[:, -k:].flip(1), rtol=1e-8, atol=1e-10)


def test_small_networks_are_solved_densely_with_residuals():
    models, data = networks(), regression()
    top = lab.sharpness(lab.Ensemble.of(models), SQUARED, data, k=2)
    expected = torch.stack([torch.linalg.eigvalsh(dense(model, mean_squared, data))[-2:].flip(0) for model in models])
    assert_close(top.values, expected, rtol=1e-10, atol=1e-12)
    assert top.converged.all() and (top.residuals < 1e-12).all()


def test_multiple_eigenvalues_are_all_found():
    """W₂W₁ with white inputs at zero loss: σ²ᵢ(W₁) + σ²ⱼ(W₂), here 9 + 1 three times. linear2026, eq (15)."""
    x = torch.linalg.qr(normal(40, 12)).Q * 40**0.5
    model = network(0, widths=(12, 20, 3), activation=nn.Identity, bias=False)
    model[0].weight.data = torch.linalg.qr(normal(20, 12, seed=1)).Q * torch.tensor([3.0, *[0.5] * 11], dtype=F64)
    model[2].weight.data = torch.linalg.qr(normal(20, 3, seed=2)).Q.T.contiguous()
    data = x, model(x).detach()
    stack = lab.Ensemble.of([model])
    top = lab.sharpness(stack, SQUARED, data, k=4, tolerance=1e-9, generator=seeded())
    assert stack.size > 256 and top.converged.all()
    assert_close(top.values[0], torch.tensor([10.0, 10.0, 10.0, 1.25], dtype=F64), rtol=1e-8, atol=0)


def test_an_invariant_space_is_no_obstacle():
    """Scalar two-layer nets have four distinct eigenvalues: the Krylov space is exhausted after four products."""
    widths = (1, 200, 1)
    models = networks(widths=widths, activation=nn.Identity, bias=False)
    data = regression(inputs=1, outputs=1)
    stack = lab.Ensemble.of(models)
    top = lab.sharpness(stack, SQUARED, data, tolerance=1e-9, generator=seeded())
    for index, model in enumerate(models):
        v, w = model[0].weight.detach()[:, 0], model[2].weight.detach()[0]
        expected = ritz.theory.linear_network(v, w, data[0][:, 0], data[1][:, 0]).eigenvalues().max()
        assert_close(top.values[index, 0], expected, rtol=1e-9, atol=0)
    assert top.converged.all()


def test_curvature_takes_data_for_each_network_and_agrees_with_the_operator():
    models, sets = networks(widths=(4, 24, 8, 3)), [regression(seed=seed) for seed in range(3)]
    data = tuple(torch.stack(part) for part in zip(*sets, strict=True))
    stack = lab.Ensemble.of(models)
    top = lab.sharpness(stack, SQUARED, data, tolerance=1e-8, each=True)
    for index, model in enumerate(models):
        pairs = ritz.eigenpairs(ritz.hessian(ritz.Risk(model, SQUARED, sets[index])), 1, tolerance=1e-8)
        assert_close(top.values[index, 0], pairs.values[0], rtol=1e-7, atol=0)


def test_networks_are_measured_in_parts_where_memory_is_short(monkeypatch):
    models, data = networks(4, widths=(6, 20, 12, 4)), regression(inputs=6, outputs=4)
    stack = lab.Ensemble.of(models)
    whole = lab.sharpness(stack, SQUARED, data, tolerance=1e-9), lab.spectra(stack, SQUARED, data)
    monkeypatch.setattr(curvature, "ENTRIES", stack.size**2)
    parts = lab.sharpness(stack, SQUARED, data, tolerance=1e-9), lab.spectra(stack, SQUARED, data)
    assert_close(parts[0].values, whole[0].values, rtol=1e-8, atol=0)
    assert_close(parts[1], whole[1])


class Root(nn.Module):
    """√p x: near p = 0 its first derivative is a number, and its second is not."""

    def __init__(self, start):
        super().__init__()
        self.p = nn.Parameter(torch.tensor([start], dtype=F64))

    def forward(self, x):
        return self.p.sqrt() * x


def test_a_network_whose_hessian_is_nan_costs_no_other_its_sharpness():
    stack, data = lab.Ensemble.of([Root(1.0), Root(1e-250), Root(4.0)]), (torch.ones(5, 1, dtype=F64),) * 2
    assert lab.losses(stack, SQUARED, data).isfinite().all()
    top = lab.sharpness(stack, SQUARED, data)
    assert_close(top.values[[0, 2], 0], torch.tensor([0.25, 1 / 32], dtype=F64))
    assert top.values[1].isnan().all() and top.converged.tolist() == [True, False, True]
    assert lab.spectra(stack, SQUARED, data)[1].isnan().all()


def test_products_are_batched_by_what_they_keep_of_all_examples(monkeypatch):
    """200 × 1,024 examples × 100 units × 200 columns asked for 30 GB, where the Hessians have 64 MB."""
    models, data = networks(3, widths=(4, 10, 2)), regression(examples=200, inputs=4, outputs=2)
    stack = lab.Ensemble.of(models)
    whole, seen = lab.hessians(stack, SQUARED, data), []
    unit = curvature._coordinates
    monkeypatch.setattr(curvature, "ENTRIES", 40 * 3 * 200 * 10)
    monkeypatch.setattr(curvature, "_coordinates", lambda like, *ends: seen.append(ends) or unit(like, *ends))
    assert_close(lab.hessians(stack, SQUARED, data), whole)
    assert len(seen) > 1 and max(stop - start for start, stop in seen) < 20


def test_traces_are_exact_for_small_networks_and_estimated_for_large():
    models, data = networks(), regression()
    stack = lab.Ensemble.of(models)
    expected = torch.stack([dense(model, mean_squared, data).trace() for model in models])
    exact = lab.trace(stack, SQUARED, data)
    assert_close(exact.values, expected, rtol=1e-11, atol=0)
    assert not exact.standard_errors.any()


def test_one_probe_says_nothing_of_its_error():
    stack = lab.Ensemble.of([network(seed) for seed in range(2)])
    with pytest.raises(ArgumentError, match=r"(?s)num_products=1 .* 51 parameters.*two probes"):
        lab.trace(stack, SQUARED, (normal(7, 4), normal(7, 3)), num_products=1)
    alone = lab.linear([torch.ones(2, 1, 1)])  # one parameter: one product is the trace itself
    assert not lab.trace(alone, SQUARED, (torch.ones(1, 1), torch.ones(1, 1)), num_products=1).standard_errors.any()


def test_another_precision_leaves_counts_and_masks_as_they_are():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    model.register_buffer("count", torch.tensor(3))
    model.register_buffer("scale", torch.ones(2))
    model.register_buffer("mask", torch.tensor([True, False]))
    stack = lab.Ensemble.of([model]).to(F64)
    kinds = {name: buffer.dtype for name, buffer in stack.buffers.items()}
    assert kinds["count"] == torch.int64 and kinds["mask"] == torch.bool
    assert kinds["scale"] == stack.flat.dtype == F64
    assert stack.to("cpu").buffers["mask"].data_ptr() != stack.buffers["mask"].data_ptr()  # a copy


def test_the_error_of_a_trace_covers_it():
    """z-scores of 40 independent estimates of 5 networks have the variance of Student's t, near 1."""
    models, data = networks(5), regression()
    stack, generator = lab.Ensemble.of(models), seeded()
    expected = torch.stack([dense(model, mean_squared, data).trace() for model in models])
    scores = []
    for _ in range(40):
        found = lab.trace(stack, SQUARED, data, num_products=20, generator=generator)
        scores.append((found.values - expected) / found.standard_errors)
    assert found.num_products == 20
    scores = torch.stack(scores)
    assert scores.mean().abs() < 4 / 200**0.5 * 1.1 and 0.7 < scores.square().mean() < 1.6


@pytest.mark.parametrize("num_products", [2, 3])
def test_two_standard_errors_of_a_trace_from_two_or_three_probes_cover_it(num_products):
    models, data = networks(5), regression()
    stack, generator = lab.Ensemble.of(models), seeded()
    expected = torch.stack([dense(model, mean_squared, data).trace() for model in models])
    held = []
    for _ in range(40):
        found = lab.trace(stack, SQUARED, data, num_products=num_products, generator=generator)
        held.append((found.values - expected).abs() <= 2 * found.standard_errors)
    assert float(torch.stack(held).double().mean()) > 0.89  # 0.7 and 0.82 by the scatter alone


# weights


def test_norms_and_alignments_are_those_of_the_singular_values():
    W, V = normal(5, 7, 4), normal(5, 4, 7, seed=1)
    found, met = lab.norms(W), lab.alignments(W, V)
    for i in range(5):
        assert_close(found.frobenius[i], torch.linalg.matrix_norm(W[i]))
        assert_close(found.spectral[i], torch.linalg.matrix_norm(W[i], 2))
        assert_close(found.nuclear[i], torch.linalg.matrix_norm(W[i], "nuc"))
        assert_close(met.frobenius[i], (V[i].T * W[i]).sum().abs())
        assert_close(met.spectral[i], torch.linalg.matrix_norm(V[i] @ W[i], 2))
        assert_close(met.nuclear[i], torch.linalg.matrix_norm(V[i] @ W[i], "nuc"))
    assert lab.alignments(normal(7, 4), normal(3, 7)).frobenius.isnan()


def test_vectors_have_one_norm_and_one_alignment():
    v, w = normal(6, 1), normal(1, 6, seed=1)
    size, met = lab.norms(v), lab.alignments(v, w)
    for value in (size.frobenius, size.spectral, size.nuclear):
        assert_close(value, v.norm())
    for value in (met.frobenius, met.spectral, met.nuclear):
        assert_close(value, (w @ v)[0, 0].abs())


def test_balanced_layers_are_aligned():
    U = [torch.linalg.qr(normal(6, 6, seed=seed)).Q for seed in range(3)]
    S = torch.diag(torch.linspace(2, 1, 6, dtype=F64))
    aligned = lab.alignments(U[1] @ S @ U[0].T, U[2] @ S @ U[1].T)
    assert_close(aligned.leading.item(), 1.0)
    assert_close(aligned.spectral.item(), 4.0)


def test_correlation_leaves_out_nan_and_infinity():
    x = torch.arange(6, dtype=F64)
    y = torch.tensor([0.0, 2.0, 4.0, torch.nan, 8.0, torch.inf], dtype=F64)
    assert_close(lab.pearson(x, y), 1.0)
    assert lab.pearson(x[:2], y[:2]) != lab.pearson(x[:2], y[:2])  # NaN


def test_a_measurement_leaves_no_graph_behind(monkeypatch):
    """A hook on the parameters lives as long as the graph that they enter."""
    hooks, rows = [], lab.Ensemble.rows

    class Hook:
        def __call__(self, gradient):
            return None

    def watched(self, theta):
        parameters = rows(self, theta)
        hook = Hook()
        parameters["0.weight"].register_hook(hook)
        hooks.append(weakref.ref(hook))
        return parameters

    monkeypatch.setattr(lab.Ensemble, "rows", watched)
    lab.trace(lab.Ensemble.of(networks()), SQUARED, regression(), num_products=2)
    gc.collect()
    assert len(hooks) == 1 and hooks[0]() is None
