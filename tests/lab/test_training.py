"""Training: what the loop yields, how rates change, how it goes on after a kill, and linear networks by moments."""

import inspect
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, jacfwd
from torch.testing import assert_close

import ritz
from ritz import record
from ritz.arguments import bare
from ritz.errors import ArgumentError, DataError, FileError
from ritz.lab import ensemble
from ritz.lab import training as lab
from ritz.lab.training.schedules import Pace
from tests.lab.runs import F64, classes, linear, network, run_with_file, sgd
from tests.seeds import normal, seeded

SQUARED, CROSS_ENTROPY = ritz.SquaredError(), nn.CrossEntropyLoss()


# what the loop yields


def test_a_pause_knows_epoch_step_loss_accuracy_and_rate():
    model, (x, y) = network(3, 5, 2), classes()
    run = lab.train(model, nn.CrossEntropyLoss(), (x, y), sgd(model), num_epochs=4, batch_size=32, generator=seeded())
    pauses = list(run)
    assert [pause.epoch for pause in pauses] == [1, 2, 3, 4]
    assert [pause.step for pause in pauses] == [2, 4, 6, 8]
    assert all(0 <= pause.accuracy <= 1 and pause.learning_rate == 0.1 for pause in pauses)
    assert not pauses[-1].diverged and not model.training


def test_full_batch_descent_is_gradient_descent():
    model, (x, y) = network(3, 5, 2), classes()
    reference = {name: p.detach().clone() for name, p in model.named_parameters()}

    def risk(parameters):
        return nn.functional.cross_entropy(functional_call(model, parameters, (x,)), y)

    before = [risk(reference)]
    for _ in range(5):
        slope = grad(risk)(reference)
        reference = {name: value - 0.1 * slope[name] for name, value in reference.items()}
        before.append(risk(reference))
    pauses = list(lab.train(model, nn.CrossEntropyLoss(), (x, y), sgd(model), num_epochs=5))
    assert_close(torch.tensor([pause.loss for pause in pauses], dtype=F64), torch.stack(before[:-1]).detach())
    assert_close(pauses[-1].parameters, {name: value.detach() for name, value in reference.items()})


def test_an_accuracy_counts_the_predictions_made_before_the_step():
    model, (x, y) = network(3, 5, 2), classes()
    expected = lab.accuracy(model, (x, y))
    (pause,) = lab.train(model, nn.CrossEntropyLoss(), (x, y), sgd(model), num_epochs=1)
    assert pause.accuracy == expected


@pytest.mark.parametrize("loss, moved", [(ritz.CrossEntropy(), False), (nn.CrossEntropyLoss(), True)])
@pytest.mark.parametrize("batch_size", [None, 1])
def test_an_accuracy_takes_classes_where_the_loss_has_them_and_no_padding(loss, moved, batch_size):
    class Tokens(nn.Linear):
        def forward(self, x):
            return super().forward(x).mT if moved else super().forward(x)

    model = Tokens(3, 3, bias=False)
    model.weight.data = torch.eye(3)
    labels = torch.tensor([[0, 1, 2], [2, 0, -100], [1, -100, -100]])  # as many tokens as classes
    x = torch.eye(3)[labels.clamp(min=0)]
    labels[0, 0] = 1  # the only one that is not predicted, of six
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    options = {"batch_size": batch_size, "generator": seeded()}
    (pause,) = lab.train(model, loss, (x, labels), optimizer, num_epochs=1, **options)
    assert pause.accuracy == 5 / 6
    if not moved:
        assert lab.accuracy(model, (x, labels)) == 5 / 6


def test_regression_has_no_accuracy_and_ritz_losses_are_taken_as_they_are():
    model, x, y = network(3, 4, 2), normal(20, 3), normal(20, 2, seed=1)
    expected = float(SQUARED.terms(model(x), y).mean().detach())
    (pause,) = lab.train(model, SQUARED, (x, y), sgd(model), num_epochs=1)
    assert pause.accuracy is None
    assert_close(pause.loss, expected)


def test_parameters_of_a_pause_that_is_over_are_refused():
    model, data = network(3, 5, 2), classes()
    first, second = lab.train(model, nn.CrossEntropyLoss(), data, sgd(model), num_epochs=2)
    assert set(second.parameters) == set(dict(model.named_parameters()))
    with pytest.raises(ArgumentError, match="inside the loop"):
        first.parameters


def test_a_run_ends_where_it_diverges_and_says_so():
    model, x = network(3, 5, 2, activation=nn.Identity), normal(20, 3)
    *_, last = lab.train(model, SQUARED, (x, 10 * normal(20, 2)), sgd(model, 100.0), num_epochs=10_000)
    assert last.diverged and last.epoch < 10_000


def test_notes_are_kept_with_their_epochs():
    model, data = network(3, 5, 2), classes()
    for pause in lab.train(model, nn.CrossEntropyLoss(), data, sgd(model), num_epochs=6):
        if pause.epoch % 3 == 0:
            pause.note(top=torch.arange(2) * pause.epoch, size=7.0)
    history = pause.history
    assert history["top"].epochs.tolist() == [3, 6] and history["top"].values.tolist() == [[0, 3], [0, 6]]
    assert history["size"].values.tolist() == [7, 7]
    np.testing.assert_array_equal(history["top"].at([6, 4, 3, 99]), [[0, 6], [np.nan] * 2, [0, 3], [np.nan] * 2])
    assert history["size"].at([]).shape == (0,) and history["top"].at([]).shape == (0, 2)
    assert history["loss"].epochs.tolist() == list(range(1, 7)) and history["loss"].values[-1] == pause.loss


@pytest.mark.parametrize(
    "value, message",
    [
        ("flat", "numbers"),
        ([[1.0, 2.0], [3.0]], "numbers"),
        (1j, "numbers"),
        (torch.ones(2) * 1j, "numbers"),
        (object(), "numbers"),
        (None, "numbers"),
    ],
)
def test_a_note_that_is_not_a_number_is_refused_at_once(value, message):
    model, data = network(3, 5, 2), classes()
    pause = next(lab.train(model, nn.CrossEntropyLoss(), data, sgd(model), num_epochs=2))
    with pytest.raises(ArgumentError, match=message):
        pause.note(seen=value)
    assert "seen" not in pause.history


def test_a_note_keeps_its_shape_and_does_not_take_the_name_of_what_is_kept_anyway():
    model, data = network(3, 5, 2), classes()
    run = lab.train(model, nn.CrossEntropyLoss(), data, sgd(model), num_epochs=2)
    next(run).note(top=torch.zeros(2))
    pause = next(run)
    with pytest.raises(ArgumentError, match=r"shape \(3,\).*shape \(2,\)"):
        pause.note(top=torch.zeros(3))  # would fail where all are put together: in the middle of the run
    with pytest.raises(ArgumentError, match="'loss'"):
        pause.note(loss=0.0)
    assert pause.history["loss"].values[-1] == pause.loss


def test_notes_may_be_of_any_precision():
    model, data = network(3, 5, 2), classes()
    (pause,) = lab.train(model, nn.CrossEntropyLoss(), data, sgd(model), num_epochs=1)
    pause.note(half=torch.tensor([0.5, 3.0], dtype=torch.bfloat16), count=torch.tensor(3), yes=True)
    assert pause.history["half"].values.tolist() == [[0.5, 3.0]] and pause.history["count"].values.tolist() == [3]
    assert pause.history["yes"].values.tolist() == [1]


def test_drawn_batches_make_an_epoch_a_step():
    model, (x, y) = network(3, 5, 2), classes()

    def draw(generator):
        rows = torch.randint(len(x), (8,), generator=generator)
        return x[rows], y[rows]

    pauses = list(lab.train(model, nn.CrossEntropyLoss(), draw, sgd(model), num_epochs=5, generator=seeded()))
    assert [pause.step for pause in pauses] == [1, 2, 3, 4, 5]


def test_a_gradient_is_clipped():
    model, (x, y) = network(3, 5, 2), classes()
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    (pause,) = lab.train(model, nn.CrossEntropyLoss(), (x, y), sgd(model, 1.0), num_epochs=1, clip=1e-3)
    moved = torch.cat([p.flatten() for p in pause.parameters.values()]) - before
    assert_close(moved.norm().item(), 1e-3, rtol=1e-3, atol=0)


def test_adamw_decays_matrices_alone():
    model = network(3, 5, 2)
    decayed, spared = lab.adamw(model, 1e-3).param_groups
    assert [p.ndim for p in decayed["params"]] == [2, 2] and decayed["weight_decay"] == 0.1
    assert [p.ndim for p in spared["params"]] == [1, 1] and spared["weight_decay"] == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_epochs": 0},
        {"num_epochs": 1, "batch_size": 0, "generator": seeded()},
        {"num_epochs": 1, "batch_size": 8},
        {"num_epochs": 1, "clip": -1.0},  # would climb
        {"num_epochs": 1, "clip": float("nan")},
    ],
)
def test_runs_that_cannot_be_are_refused_before_they_start(wrong):
    model, data = network(3, 5, 2), classes()
    with pytest.raises(ArgumentError):
        lab.train(model, nn.CrossEntropyLoss(), data, sgd(model), **wrong)


def test_data_that_do_not_fit_are_refused():
    model, (x, y) = network(3, 5, 2), classes()
    with pytest.raises(DataError, match="50 inputs and 49 targets"):
        lab.train(model, nn.CrossEntropyLoss(), (x, y[1:]), sgd(model), num_epochs=1)
    with pytest.raises(ArgumentError, match="generator"):
        lab.train(model, nn.CrossEntropyLoss(), lambda generator: (x, y), sgd(model), num_epochs=1)


def test_an_optimiser_that_asks_for_the_loss_again_and_again_is_refused():
    model = network(3, 5, 2)
    with pytest.raises(ArgumentError, match="LBFGS"):
        lab.train(model, nn.CrossEntropyLoss(), classes(), torch.optim.LBFGS(model.parameters()), num_epochs=1)


def test_an_optimiser_of_another_model_is_refused():
    model, other = network(3, 5, 2), network(3, 5, 2)
    with pytest.raises(ArgumentError, match="parameter of the model"):
        lab.train(model, nn.CrossEntropyLoss(), classes(), sgd(other), num_epochs=1)
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert len(list(lab.train(model, nn.CrossEntropyLoss(), classes(), both, num_epochs=1))) == 1


def test_an_accuracy_on_no_examples_is_refused():
    with pytest.raises(DataError, match="no examples"):
        lab.accuracy(network(3, 5, 2), (torch.zeros(0, 3, dtype=F64), torch.zeros(0).long()))


def test_an_accuracy_is_that_of_the_model_in_eval_mode_and_leaves_it_as_it_was():
    x, y = classes()
    model = nn.Sequential(network(3, 5, 2), nn.BatchNorm1d(2, dtype=F64)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = lab.accuracy(model, (x, y))
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert found == float((model.eval()(x).argmax(1) == y).double().mean())


# schedules


def factors(schedule, losses):
    """The factor at which each epoch is run, for losses seen in turn."""
    pace = schedule.after(Pace.start(torch.tensor(torch.inf)), torch.tensor(torch.inf), epoch=0, num_epochs=len(losses))
    found = []
    for epoch, loss in enumerate(losses, 1):
        found.append(float(pace.factor))
        pace = schedule.after(pace, torch.tensor(loss), epoch=epoch, num_epochs=len(losses))
    return found


def test_a_plateau_is_looked_for_in_disjoint_windows():
    flat = factors(lab.HALVING, [1.0] * 1000)
    assert flat[100] == 1.0 and flat[101] == 0.5 and flat[201] == 0.25
    assert flat[-1] == 2.0**-9  # a sliding window would have halved 900 times
    falling = factors(lab.HALVING, [0.9999**t for t in range(1000)])
    assert set(falling) == {1.0}  # 1 % in a hundred epochs
    assert factors(lab.HALVING, [0.999_995**t for t in range(1000)])[-1] < 1


def test_a_plateau_ends_below_its_floor_for_the_network_concerned():
    schedule = lab.Plateau(1, 0.5, 0.1, floor=0.001)
    pace = Pace.start(torch.zeros(2, dtype=F64))
    for epoch in range(1, 6):
        loss = torch.tensor([1.0, 0.1**epoch], dtype=F64)
        pace = schedule.after(pace, loss, epoch=epoch, num_epochs=10)
    assert pace.done.tolist() == [True, False]
    assert_close(pace.factor, torch.tensor([0.001, 1.0], dtype=F64))  # 0.001 was run, 0.0001 is not


def test_annealing_falls_after_each_third():
    found = factors(lab.Annealing(), [1.0] * 9)
    assert_close(found, [1.0] * 3 + [0.1] * 3 + [0.1**2] * 3)


def test_a_cosine_warms_up_and_falls_to_its_floor():
    found = factors(lab.Cosine(warmup=4, floor=0.1), [1.0] * 104)
    assert_close(found[:5], [0.2, 0.4, 0.6, 0.8, 1.0])
    assert_close(found[54], 0.55)
    assert found[5:] == sorted(found[5:], reverse=True) and 0.1 < found[-1] < 0.102


def test_a_schedule_multiplies_the_rate_of_every_group():
    model = network(3, 5, 2)
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.3}]
    optimizer = torch.optim.SGD(groups)
    *_, last = lab.train(model, nn.CrossEntropyLoss(), classes(), optimizer, num_epochs=6, schedule=lab.Annealing())
    assert_close([group["lr"] for group in optimizer.param_groups], [0.001, 0.003])
    assert_close(last.learning_rate, 0.001)


def test_a_rate_that_a_scheduler_of_pytorch_has_set_is_refused_and_not_undone(tmp_path):
    def run(scheduled):
        model = network(3, 5, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        options = {"num_epochs": 4, "schedule": lab.Annealing(), "checkpoint": tmp_path / "run", "save_seconds": 0.0}
        for pause in lab.train(model, nn.CrossEntropyLoss(), classes(), optimizer, **options):
            if scheduled and pause.epoch == 2:
                scheduler.step()
        return pause.epoch

    with pytest.raises(ArgumentError, match=r"changed from \[0.1\] to \[0.05\]"):
        run(scheduled=True)
    assert run(scheduled=False) == 4


def test_a_scheduler_of_pytorch_sets_the_rates_where_no_schedule_does():
    def run():
        torch.manual_seed(0)
        model = network(3, 5, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=6)

    x, y = classes()
    model, optimizer, scheduler = run()
    for pause in lab.train(model, nn.CrossEntropyLoss(), (x, y), optimizer, num_epochs=5):
        scheduler.step()
    expected, optimizer, scheduler = run()
    rates = []
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(expected(x), y).backward()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert_close(list(model.parameters()), list(expected.parameters()), rtol=0, atol=0)
    assert pause.history["learning_rate"].values.tolist() == rates


@pytest.mark.parametrize(
    "loss, targets, words",
    [
        (nn.MSELoss(), normal(30), r"outputs have shape \(30, 1\), the targets \(30,\)"),
        (ritz.SquaredError(), normal(30, 3), r"the targets \(30, 3\)"),
        (nn.CrossEntropyLoss(), torch.ones(30, dtype=torch.long), "one class in dimension 1"),
    ],
)
def test_targets_that_do_not_fit_are_refused_before_the_first_step(loss, targets, words):
    model = network(3, 1)
    before = [parameter.clone() for parameter in model.parameters()]
    run = lab.train(
        model, loss, (normal(30, 3, seed=1), targets), torch.optim.SGD(model.parameters(), 0.1), num_epochs=1
    )
    with pytest.raises(DataError, match=words):
        next(run)
    assert_close(list(model.parameters()), before, rtol=0, atol=0)


def test_rates_that_a_resumed_run_would_not_know_are_refused(tmp_path):
    model = network(3, 5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = lab.train(model, nn.CrossEntropyLoss(), classes(), optimizer, num_epochs=3, checkpoint=tmp_path / "run")
    next(run)
    optimizer.param_groups[0]["lr"] = 0.05
    with pytest.raises(ArgumentError, match="leave out `schedule` and `checkpoint`"):
        next(run)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: lab.Plateau(window=100, improvement=1e-3, factor=2.0),
        lambda: lab.Annealing(factor=-0.1),
        lambda: lab.Annealing(at=(-0.5,)),
        lambda: lab.Cosine(warmup=-1),
        lambda: lab.Cosine(floor=float("nan")),
    ],
)
def test_a_schedule_without_meaning_is_refused(wrong):
    with pytest.raises(ArgumentError, match="requested"):
        wrong()


# going on after a kill

RUN = """
import os, signal, sys, time, torch
import torch._dynamo  # which the first optimiser imports: here once, and not in every process
from torch import nn
from ritz.lab import ensemble, training as lab

def run(kind, path):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    model = lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    options = {"num_epochs": 12, "batch_size": 32, "generator": generator, "checkpoint": path, "save_seconds": 0.0}
    if kind == "linear":
        weights = [torch.randn(4, 3, generator=generator), torch.randn(2, 4, generator=generator)]
        options |= {"learning_rate": 0.05, "schedule": lab.Plateau(4, 0.1, 0.5)}
        return generator, lab.linear_descent(weights, x, x[:, :2] + 1, **options)
    if kind == "ensemble":
        networks = ensemble.Ensemble.of([model() for _ in range(3)])
        return generator, ensemble.train(networks, nn.CrossEntropyLoss(), (x, y), learning_rate=0.2, **options)
    net = nn.Sequential(*model(), nn.BatchNorm1d(2), nn.Dropout(0.2))
    optimizer = lab.adamw(net, 0.02) if kind == "adamw" else torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return generator, lab.train(net, nn.CrossEntropyLoss(), (x, y), optimizer, schedule=lab.Cosine(5), **options)

def result(kind, path):
    generator, pauses = run(kind, path)
    for pause in pauses:
        pause.note(drawn=torch.rand((), generator=generator) + torch.rand(()))  # a measurement that draws, too
        print(kind, pause.epoch, flush=True)
    found = pause.parameters
    parts = list(found.values()) if isinstance(found, dict) else found
    noted = [torch.from_numpy(pause.history[name].values) for name in ("loss", "drawn", "learning_rate")]
    assert pause.history["drawn"].epochs.tolist() == list(range(1, 13))
    return torch.cat([part.flatten().double() for part in (*parts, *noted)])

KINDS = "sgd", "adamw", "linear", "ensemble"

def killed(folder, pauses, delay):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 1)
        for kind in KINDS:
            result(kind, f"{folder}/{kind}.npz")
    with open(reader) as lines:
        for _ in range(pauses):
            lines.readline()
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

folder, *moments = sys.argv[1:]
for moment in moments:
    pauses, delay = moment.split(":")
    killed(folder, int(pauses), float(delay))
for kind in KINDS:
    found = result(kind, f"{folder}/{kind}.npz")
    assert torch.equal(found, result(kind, f"{folder}/{kind}-whole.npz")), kind
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_killed_at_random_moments_gives_the_same_bits(tmp_path):
    """Killed twice, in the middle of one kind of training or another; then all are compared with runs in one go.

    One process imports torch and forks before it computes anything: what it forks is as good as a new process.
    """
    random = np.random.default_rng()
    pauses, delays = random.integers(1, 23, size=2), random.uniform(0, 0.01, size=2)  # within an epoch, or a writing
    moments = [f"{pause}:{delay}" for pause, delay in zip(pauses, delays, strict=True)]
    command = [sys.executable, "-c", RUN, str(tmp_path), *moments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    reported = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout.decode().splitlines()
    assert len(reported) < 2 * 4 * 12  # some of it had been done


@pytest.mark.parametrize("kind", ["linear", "ensemble"])
def test_a_measurement_that_draws_from_pytorch_draws_the_same_after_a_break(tmp_path, kind):
    def drawn(path, until=None):
        torch.manual_seed(0)
        data, options = classes(), {"num_epochs": 5, "checkpoint": path, "save_seconds": 0.0, "learning_rate": 0.1}
        if kind == "linear":
            x = data[0].double()
            pauses = lab.linear_descent([x[:4, :3].clone(), x[4:6, :2].repeat(1, 2)], x, x[:, :2], **options)
        else:
            networks = ensemble.Ensemble.of([network(3, 5, 2, seed=seed) for seed in range(2)])
            pauses = ensemble.train(networks, CROSS_ENTROPY, data, **options)
        for pause in pauses:
            pause.note(drawn=torch.rand(()))
            if pause.epoch == until:
                return None
        return pause.history["drawn"].values.tolist()

    drawn(tmp_path / "broken.npz", until=3)
    assert drawn(tmp_path / "broken.npz") == drawn(tmp_path / "whole.npz")


def test_a_run_pauses_again_where_it_was_saved_and_goes_on(tmp_path):
    whole = run_with_file(tmp_path / "whole.npz")
    assert run_with_file(tmp_path / "half.npz", until=3) == whole[:3]
    assert run_with_file(tmp_path / "half.npz") == whole[2:]
    assert run_with_file(tmp_path / "half.npz") == whole[-1:]  # a finished run has its last pause


def test_notes_survive_in_the_file(tmp_path):
    for until in (3, None):
        model = network(3, 5, 2)
        options = {"num_epochs": 5, "checkpoint": tmp_path / "run.npz", "save_seconds": 0.0}
        for pause in lab.train(model, nn.CrossEntropyLoss(), classes(), sgd(model), **options):
            pause.note(twice=[pause.epoch, 2 * pause.epoch])
            if pause.epoch == until:
                break
    assert pause.history["twice"].epochs.tolist() == [1, 2, 3, 4, 5]
    assert pause.history["twice"].values[:, 1].tolist() == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    "other, names",
    [
        ({"seed": 1}, "initial weights"),
        ({"rate": 0.2}, "optimizer"),
        ({"num_epochs": 7}, "num_epochs"),
        ({"loss": nn.MultiMarginLoss()}, "loss"),
        ({"loss": lambda z, y: nn.functional.cross_entropy(z, y)}, "loss"),
    ],
)
def test_a_file_of_another_run_is_refused(tmp_path, other, names):
    run_with_file(tmp_path / "run.npz", until=2)
    with pytest.raises(FileError, match=names):
        run_with_file(tmp_path / "run.npz", **other)


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "run.npz").write_bytes(b"nonsense")
    with pytest.raises(FileError):
        run_with_file(tmp_path / "run.npz")


@pytest.mark.parametrize("header", [[], {}, {"identity": 3}])
@pytest.mark.usefixtures("unchecked")
def test_a_file_with_another_header_is_refused(tmp_path, header):
    run_with_file(tmp_path / "run.npz", until=2)
    bare(record.write_arrays)(tmp_path / "run.npz", record.read_arrays(tmp_path / "run.npz")[0], header)
    with pytest.raises(FileError):
        run_with_file(tmp_path / "run.npz")


def test_half_precision_survives_the_file(tmp_path):
    def run(path, until=None):
        model, (x, y) = network(3, 5, 2).to(torch.bfloat16), classes()
        options = {"num_epochs": 4, "checkpoint": path, "save_seconds": 0.0}
        optimizer = sgd(model, momentum=0.9)
        for pause in lab.train(model, nn.CrossEntropyLoss(), (x.bfloat16(), y), optimizer, **options):
            if pause.epoch == until:
                break
        return pause.parameters

    run(tmp_path / "half.npz", until=2)
    found, expected = run(tmp_path / "half.npz"), run(tmp_path / "whole.npz")
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# linear networks by their second moments


def problem(*widths, examples=40, noise=0.1, seed=0, dead=()):
    """Weights, and data that a linear map explains but for noise; `dead` inputs are always zero."""
    X = normal(examples, widths[0], seed=seed + 50)
    X[:, list(dead)] = 0
    Y = X @ normal(widths[0], widths[-1], seed=seed + 51) + noise * normal(examples, widths[-1], seed=seed + 52)
    weights = [
        normal(after, before, seed=seed + 60 + i) / before**0.5
        for i, (before, after) in enumerate(itertools.pairwise(widths))
    ]
    return weights, X, Y


@pytest.mark.parametrize("schedule", [None, lab.Plateau(20, 0.3, 0.5)])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_linear_descent_takes_the_steps_of_the_autograd_loop(schedule, batch_size):
    weights, X, Y = problem(7, 5, 4, 3, dead=[2])
    model = linear(weights)
    options = {"num_epochs": 300 if schedule else 60, "batch_size": batch_size, "schedule": schedule}
    slow = list(lab.train(model, SQUARED, (X, Y), sgd(model, 0.02), generator=seeded(1), **options))
    fast = list(lab.linear_descent(weights, X, Y, learning_rate=0.02, generator=seeded(1), **options))
    assert_close([pause.loss for pause in fast], [pause.loss for pause in slow], rtol=1e-10, atol=1e-12)
    assert_close([pause.learning_rate for pause in fast], [pause.learning_rate for pause in slow])
    assert_close(fast[-1].parameters, list(slow[-1].parameters.values()), rtol=1e-10, atol=1e-10)
    if schedule:
        assert fast[-1].learning_rate < 0.02  # the rule was at work


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 12), st.integers(1, 4))
def test_linear_descent_knows_every_shape(inputs, hidden, outputs, examples, batch_size):
    weights, X, Y = problem(inputs, hidden, outputs, examples=examples)
    for size in (None, batch_size):
        model = linear(weights)
        options = {"num_epochs": 3, "batch_size": size, "generator": seeded()}
        *_, slow = lab.train(model, SQUARED, (X, Y), sgd(model, 0.05), **options)
        options["generator"] = seeded()
        *_, fast = lab.linear_descent(weights, X, Y, learning_rate=0.05, **options)
        assert_close(fast.loss, slow.loss, rtol=1e-9, atol=1e-12)
        assert_close(fast.parameters, list(slow.parameters.values()), rtol=1e-9, atol=1e-11)


def test_linear_descent_sees_a_tiny_loss_exactly():
    weights, X, _ = problem(6, 5, 3)
    W = weights[1] @ weights[0]
    Y = X @ (W + 1e-12 * normal(3, 6, seed=9)).T
    (pause,) = lab.linear_descent(weights, X, Y, learning_rate=0.0, num_epochs=1)
    expected = float((X @ W.T - Y).square().sum() / (2 * len(X)))
    assert expected < 1e-22  # of second moments of size 1: subtracting them would leave nothing
    assert_close(pause.loss, expected, rtol=2e-2, atol=0)  # Y itself is rounded


def test_linear_descent_of_a_stack_is_that_of_each_at_its_own_rate_and_pace():
    stack = [problem(4, 5, 2, seed=seed)[0] for seed in (0, 1000, 2000)]
    _, X, Y = problem(4, 5, 2)
    weights = [torch.stack(layer) for layer in zip(*stack, strict=True)]
    rates, schedule = torch.tensor([0.02, 0.05, 0.001], dtype=F64), lab.Plateau(5, 0.05, 0.1, floor=0.01)
    options = {"num_epochs": 100, "schedule": schedule, "layer_rates": [1.0, 0.5], "multipliers": [0.5, 2.0]}
    *_, together = lab.linear_descent(weights, X, Y, learning_rate=rates, **options)
    for index, alone in enumerate(stack):
        *_, single = lab.linear_descent(alone, X, Y, learning_rate=float(rates[index]), **options)
        assert_close([W[index] for W in together.parameters], single.parameters, rtol=1e-11, atol=1e-12)
        assert bool(together.done[index]) == single.done
    assert together.done.any() and not together.done.all()


def test_linear_descent_of_a_stack_can_have_data_for_each():
    problems = [problem(4, 5, 2, seed=seed, examples=30) for seed in (0, 1000)]
    weights = [torch.stack(layer) for layer in zip(*(p[0] for p in problems), strict=True)]
    X, Y = (torch.stack([p[i] for p in problems]) for i in (1, 2))
    *_, together = lab.linear_descent(
        weights, X, Y, learning_rate=0.02, num_epochs=20, batch_size=8, generator=seeded()
    )
    for index, (alone, x, y) in enumerate(problems):
        options = {"num_epochs": 20, "batch_size": 8, "generator": seeded()}
        *_, single = lab.linear_descent(alone, x, y, learning_rate=0.02, **options)
        assert_close([W[index] for W in together.parameters], single.parameters, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("examples", [3, 30])
@pytest.mark.parametrize("batch_size", [None, 8])
def test_networks_of_a_stack_can_share_inputs_and_have_targets_of_their_own(examples, batch_size):
    weights, X, _ = problem(4, 5, 2, examples=examples)
    Y = normal(3, examples, 2, seed=70)
    options = {"learning_rate": 0.02, "num_epochs": 10, "batch_size": batch_size}
    *_, together = lab.linear_descent(weights, X, Y, generator=seeded(), **options)
    for index, y in enumerate(Y):
        *_, single = lab.linear_descent(weights, X, y, generator=seeded(), **options)
        assert_close([W[index] for W in together.parameters], single.parameters, rtol=1e-11, atol=1e-12)
        assert_close(together.loss[index].item(), single.loss)
        few = lab.compressed(X, Y)
        assert_close([few.x, few.y[index]], list(lab.compressed(X, y)))


@pytest.mark.parametrize("batch_size", [None, 16])
def test_linear_descent_does_not_mind_what_becomes_of_the_weights_given(batch_size):
    """As where they are a model's, into which every pause is written to be measured."""
    weights, X, Y = problem(4, 5, 2)
    used = [W.clone() for W in weights]
    options = {"learning_rate": 0.05, "num_epochs": 5, "batch_size": batch_size}
    *_, expected = lab.linear_descent(weights, X, Y, generator=seeded(), **options)
    for pause in lab.linear_descent(used, X, Y, generator=seeded(), **options):
        for W, now in zip(used, pause.parameters, strict=True):
            W.copy_(now)
    assert_close(used, expected.parameters, rtol=0, atol=0)


def test_multipliers_and_layer_rates_are_those_of_the_network():
    weights, X, Y = problem(4, 5, 2)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Parameter(W.clone()) for W in weights)

        def forward(self, x):
            return 0.5 * (3.0 * (x @ self.first.T)) @ self.second.T

    model = Scaled()
    optimizer = torch.optim.SGD([{"params": model.first, "lr": 0.01}, {"params": model.second, "lr": 0.02}])
    *_, slow = lab.train(model, SQUARED, (X, Y), optimizer, num_epochs=50)
    options = {"layer_rates": [1.0, 2.0], "multipliers": [3.0, 0.5]}
    *_, fast = lab.linear_descent(weights, X, Y, learning_rate=0.01, num_epochs=50, **options)
    assert_close(fast.parameters, list(slow.parameters.values()), rtol=1e-11, atol=1e-12)


def test_a_stack_goes_on_when_one_network_diverges():
    weights, X, Y = problem(4, 5, 2)
    stacked, rates = [torch.stack([W, W]) for W in weights], torch.tensor([0.02, 100.0], dtype=F64)
    *_, last = lab.linear_descent(stacked, X, Y, learning_rate=rates, num_epochs=200)
    *_, alone = lab.linear_descent(weights, X, Y, learning_rate=0.02, num_epochs=200)
    assert last.diverged.tolist() == [False, True] and last.epoch == 200
    assert_close([W[0] for W in last.parameters], alone.parameters)


@pytest.mark.parametrize("count", [2, 9])
def test_stacked_inputs_with_shared_targets_are_compressed(count):
    X, Y = normal(4, count, 3, seed=1), normal(count, 2, seed=2)
    small, W = lab.compressed(X, Y), normal(2, 3, seed=3)
    loss = lambda x, y: (x @ W.T - y).square().sum((-2, -1)) / x.shape[-2]
    assert_close(loss(small.x, small.y), loss(X, Y))


def test_compressed_data_have_the_loss_and_hessian_of_all_data():
    weights, X, Y = problem(5, 4, 3, examples=60)
    small = lab.compressed(X, Y)
    assert len(small.x) == 6
    model = linear(weights)
    sizes = [p.numel() for p in model.parameters()]

    def risk(theta, x, y):
        names = [name for name, _ in model.named_parameters()]
        parts = (part.view_as(p) for part, p in zip(theta.split(sizes), model.parameters(), strict=True))
        return SQUARED.terms(functional_call(model, dict(zip(names, parts, strict=True)), (x,)), y).mean()

    theta = torch.cat([W.flatten() for W in weights])
    assert_close(risk(theta, *small), risk(theta, X, Y), rtol=1e-13, atol=0)
    assert_close(jacfwd(grad(risk))(theta, *small), jacfwd(grad(risk))(theta, X, Y), rtol=1e-11, atol=1e-12)


# as users have them: in tests the annotations are checked as well, and would come first
linear_descent, compressed = inspect.unwrap(lab.linear_descent), inspect.unwrap(lab.compressed)


def test_layers_that_do_not_fit_are_refused():
    weights, X, Y = problem(4, 5, 2)
    with pytest.raises(DataError, match="order of the layers"):
        linear_descent(weights[::-1], X, Y, learning_rate=0.1, num_epochs=1)
    with pytest.raises(ArgumentError, match="layer_rates"):
        linear_descent(weights, X, Y, learning_rate=0.1, num_epochs=1, layer_rates=[1.0])
    stack = [torch.stack([W, W]) for W in weights]
    for wrong in ([stack[0], torch.stack([weights[1]] * 3)], [stack[0], weights[1][0]]):
        with pytest.raises(DataError, match="order of the layers"):
            linear_descent(wrong, X, Y, learning_rate=0.1, num_epochs=1)
    for x, y in ((X[0], Y), (torch.stack([X] * 3), torch.stack([Y] * 3)), (X, torch.stack([Y] * 3))):
        with pytest.raises(DataError, match="order of the layers"):
            linear_descent(stack, x, y, learning_rate=0.1, num_epochs=1)


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": -0.1},  # would climb
        {"learning_rate": float("nan")},
        {"learning_rate": torch.tensor([0.1, 0.2, 0.3])},
        {"learning_rate": 0.1, "layer_rates": [1.0, -1.0]},
        {"learning_rate": 0.1, "multipliers": [1.0, float("inf")]},
    ],
)
def test_rates_that_no_descent_has_are_refused(options):
    weights, X, Y = problem(4, 5, 2)
    for layers in (weights, [torch.stack([W, W]) for W in weights]):
        with pytest.raises(ArgumentError):
            linear_descent(layers, X, Y, num_epochs=1, **options)


@pytest.mark.parametrize("batch_size", [None, 16])
def test_linear_descent_refuses_data_with_nan_or_infinity(batch_size):
    weights, X, Y = problem(4, 5, 2)
    for x, y in ((X * torch.nan, Y), (X, Y * torch.inf)):
        options = {"num_epochs": 1, "batch_size": batch_size, "generator": seeded()}
        with pytest.raises(DataError, match="NaN"):
            linear_descent(weights, x, y, learning_rate=0.1, **options)


def test_data_that_do_not_fit_are_not_compressed():
    _, X, Y = problem(4, 5, 2)
    for x, y in ((X, Y[1:]), (X[:0], Y[:0]), (X * torch.nan, Y)):
        with pytest.raises(DataError):
            compressed(x, y)


class FakeGraph:
    """A CUDA graph without a GPU: what was captured is done again at every replay."""

    def replay(self):
        self.again()


def rows_step(log):
    def step(rows):
        log.append(rows.tolist())
        return (rows.sum(),)

    return step


def captured_on_the_cpu(monkeypatch):
    """`CapturedStep` with graphs that run Python again."""
    from ritz.lab.training import captured

    step = captured.CapturedStep(rows_step(log := []))
    monkeypatch.setattr(step, "_aside", lambda rows: (setattr(step, "_rows", rows.clone()), step._step(rows))[1])

    def capture(rows):
        graph = FakeGraph()
        graph.again = lambda: step._results[0].copy_(step._step(step._rows)[0])
        step._graph, step._results = graph, (torch.zeros((), dtype=torch.long),)
        log.append("captured")

    monkeypatch.setattr(step, "_capture", capture)
    return step, log


def test_a_captured_step_is_taken_for_every_batch_and_captured_again_when_told(monkeypatch):
    step, log = captured_on_the_cpu(monkeypatch)
    batches = [torch.tensor(rows) for rows in ([0, 1], [2, 3], [4, 5], [6, 7], [8], [9, 10])]
    sums = [int(step(rows)[0]) for rows in batches]
    assert sums == [1, 5, 9, 13, 8, 19]
    assert [entry for entry in log if entry != "captured"] == [rows.tolist() for rows in batches]
    assert log.count("captured") == 1 and log[3] == "captured"
    step.forget()
    step(batches[0])
    assert log.count("captured") == 2


def test_capture_and_tf32_change_nothing_on_the_cpu():
    def trained(**options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
        x, y = torch.linspace(-1, 1, 20).view(10, 2), torch.arange(10) % 3
        generator = torch.Generator().manual_seed(0)
        settings = {"num_epochs": 3, "batch_size": 4, "generator": generator, **options}
        *_, last = lab.train(model, nn.CrossEntropyLoss(), (x, y), sgd(model, 0.1, momentum=0.9), **settings)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), last

    plain, last = trained()
    fast, _ = trained(precision="tf32", capture=True)
    low, _ = trained(precision="bfloat16")
    assert torch.equal(plain, fast) and last.accuracy is not None
    assert low.dtype == torch.float32 and not torch.equal(plain, low) and float((plain - low).abs().max()) < 0.02


def test_capture_changes_nothing_for_many_networks_on_the_cpu():
    x, y = torch.linspace(-1, 1, 20).view(10, 2), torch.linspace(0, 1, 10).view(10, 1)
    weights = [torch.linspace(-1, 1, 12).view(3, 2, 2), torch.linspace(1, 2, 6).view(3, 1, 2)]
    options = {"learning_rate": 0.1, "num_epochs": 3, "batch_size": 4}

    def trained(capture):
        *_, first = lab.linear_descent(weights, x, y, generator=seeded(), capture=capture, **options)
        stack = ensemble.linear([W.clone() for W in weights])
        *_, second = ensemble.train(stack, nn.MSELoss(), (x, y), generator=seeded(), capture=capture, **options)
        return torch.cat([part.flatten() for part in (*first.parameters, *second.parameters.values())])

    assert torch.equal(trained(True), trained(False))


def test_a_precision_that_is_none_is_refused(unchecked):
    model, data = nn.Linear(1, 1), (torch.ones(2, 1), torch.ones(2, 1))
    with pytest.raises(ArgumentError, match="bfloat16"):
        lab.train(model, nn.MSELoss(), data, sgd(model), num_epochs=1, precision="half")


@pytest.mark.parametrize(
    ("count", "least", "seen"), [(10, 1, [4, 4, 2]), (10, 3, [4, 4]), (11, 3, [4, 4, 3]), (2, 3, [2])]
)
def test_too_small_a_rest_is_left_out_of_an_epoch(count, least, seen):
    sizes = []
    model = nn.Sequential(nn.Linear(3, 2))
    model.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])) if module.training else None)
    data = (torch.randn(count, 3), torch.zeros(count, dtype=torch.long))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"num_epochs": 1, "batch_size": 4, "generator": torch.Generator().manual_seed(0), "least_batch": least}
    (pause,) = lab.train(model, nn.CrossEntropyLoss(), data, optimizer, **options)
    assert sizes == seen and pause.step == len(seen)
