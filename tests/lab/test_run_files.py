"""The file of a run of training knows which run it belongs to; damaged and foreign ones are refused and left alone."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import ritz
from ritz import record
from ritz.errors import FileError, ResumptionWarning, VersionWarning
from ritz.lab import training as lab
from ritz.record.layouts import layout_of
from tests.lab.runs import classes, run_with_file, sgd


def weighted(strength):
    """A loss with a number that only its closure holds."""
    return lambda z, y: nn.functional.cross_entropy(z, y) + strength * z.square().mean()


def other_example(data, row=37):
    return data[0].index_fill(0, torch.tensor([row]), 0.25), data[1]


class Doubled(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.factor = model, 2.0

    def forward(self, x):
        return self.factor * self.model(x)


class Trebled(Doubled):
    def forward(self, x):
        return 3.0 * self.model(x)


def with_attribute(model):
    model.factor = 5.0
    return model


def with_window(model, *ends):
    model.window = slice(*ends)
    return model


def with_relu(model):
    return nn.Sequential(model[0], nn.ReLU(), *model[2:])


def weighed(*weights, **options):
    return nn.CrossEntropyLoss(torch.tensor(weights, dtype=torch.float64), **options)


SIMILAR = {
    "class weights": ({"loss": weighed(1.0, 2.0)}, {"loss": weighed(1.0, 2.5)}, "loss tensors"),
    "smoothing": (
        {"loss": nn.CrossEntropyLoss()},
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
        "loss structure",
    ),
    "smoothing of ours": (
        {"loss": ritz.CrossEntropy()},
        {"loss": ritz.CrossEntropy(label_smoothing=0.1)},
        "loss.label_smoothing",
    ),
    "a number in a closure": ({"loss": weighted(0.1)}, {"loss": weighted(0.2)}, "loss"),
    "another activation": ({}, {"change": with_relu}, "model structure"),
    "another number in the model": ({"change": Doubled}, {"change": lambda m: with_attribute(Doubled(m))}, "structure"),
    "another window in the model": (
        {"change": lambda m: with_window(m, 0, 2)},
        {"change": lambda m: with_window(m, 2, 4)},
        "model structure",
    ),
    "another forward": ({"change": Doubled}, {"change": Trebled}, "model code"),
    "one example of many": ({}, {"data": other_example(classes())}, "data"),
}


@pytest.mark.parametrize("name", SIMILAR)
def test_a_file_of_a_similar_run_is_refused_with_what_differs(tmp_path, name):
    one, other, named = SIMILAR[name]
    run_with_file(tmp_path / "run.npz", until=2, **one)
    before = (tmp_path / "run.npz").read_bytes()
    with pytest.raises(FileError, match=f"different .*{named}"):
        run_with_file(tmp_path / "run.npz", **other)
    assert (tmp_path / "run.npz").read_bytes() == before
    assert run_with_file(tmp_path / "run.npz", **one)[0][0] == 2  # and its own run goes on


def without(arrays, header):
    arrays.pop("trainee/model/0.weight")


def with_nan(arrays, header):
    arrays["trainee/model/0.weight"][0, 0] = np.nan


def in_float32(arrays, header):
    arrays["trainee/model/0.weight"] = arrays["trainee/model/0.weight"].astype(np.float32)


def cut(arrays, header):
    arrays["trainee/model/0.weight"] = arrays["trainee/model/0.weight"][:-1]


def without_momentum(arrays, header):
    arrays["trainee/optimizer/0/momentum_buffer"] = np.zeros(1)


def before_the_start(arrays, header):
    header["epoch"] = -100


def after_the_end(arrays, header):
    header["epoch"] = 10**6


def at_half_an_epoch(arrays, header):
    header["epoch"] = 2.5


def with_notes_of_the_future(arrays, header):
    arrays["notes/loss/epochs"] = arrays["notes/loss/epochs"] + 100


def without_epoch(arrays, header):
    header.pop("epoch")


def with_other_randomness(arrays, header):
    arrays["random/torch"] = arrays["random/torch"][:10]


def with_a_stranger(arrays, header):
    arrays["trainee/optimizer/99/momentum_buffer"] = np.zeros(1)


def sure_beyond_reason(arrays, header):
    header["accuracy"] = "very"


def without_one_momentum(arrays, header):
    arrays.pop("trainee/optimizer/1/momentum_buffer")


def with_momentum_of_nan(arrays, header):
    arrays["trainee/optimizer/1/momentum_buffer"][0] = np.inf


def with_complex_momentum(arrays, header):
    name = "trainee/optimizer/1/momentum_buffer"
    arrays[name] = arrays[name].astype(np.complex64)


def without_a_curve(arrays, header):
    arrays.pop("notes/loss/epochs")


def with_complex_notes(arrays, header):
    arrays["notes/loss/values"] = arrays["notes/loss/values"].astype(np.complex64)


def with_a_loss_of_nan(arrays, header):
    arrays["notes/loss/values"][0] = np.nan


def with_a_loss_that_was_not_noted(arrays, header):
    arrays["run/loss"] = np.array(3.0)


def with_a_factor_of_infinity(arrays, header):
    arrays["run/factor"] = np.array(np.inf)


def over_too_early(arrays, header):
    header["over"] = True


def with_text_for_a_momentum(arrays, header):
    header["trainee"]["moved"][0]["momentum"] = "text"


def with_an_endless_weight_decay(arrays, header):
    header["trainee"]["moved"][0]["weight_decay"] = float("nan")


def with_another_list_of_memories(arrays, header):
    header["trainee"]["memory"].pop()


DAMAGE = (without, with_nan, in_float32, cut, without_momentum, before_the_start, after_the_end, at_half_an_epoch)
DAMAGE += (with_notes_of_the_future, without_epoch, with_other_randomness, with_a_stranger, sure_beyond_reason)
DAMAGE += (without_one_momentum, with_momentum_of_nan, with_complex_momentum, without_a_curve, with_complex_notes)
DAMAGE += (with_a_loss_of_nan, with_a_loss_that_was_not_noted, with_a_factor_of_infinity, over_too_early)
DAMAGE += (with_text_for_a_momentum, with_an_endless_weight_decay, with_another_list_of_memories)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_file_that_is_well_formed_but_damaged_is_refused_and_left_alone(tmp_path, damage):
    run_with_file(tmp_path / "run.npz", until=2)
    arrays, header = record.read_arrays(tmp_path / "run.npz")
    damage(arrays, header)
    record.write_arrays(tmp_path / "run.npz", arrays, {**header, "layout": layout_of(arrays)})
    before = (tmp_path / "run.npz").read_bytes()
    with pytest.raises(FileError, match="is damaged") as caught:
        run_with_file(tmp_path / "run.npz")
    assert caught.value.ways_out and (tmp_path / "run.npz").read_bytes() == before


def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    run_with_file(tmp_path / "run.npz", until=2)
    whole = (tmp_path / "run.npz").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "run.npz").write_bytes(whole[:length])
        with pytest.raises(FileError):
            run_with_file(tmp_path / "run.npz")


def test_other_versions_are_noted_and_another_format_is_refused(tmp_path, monkeypatch):
    run_with_file(tmp_path / "run.npz", until=2)
    with monkeypatch.context() as now:
        now.setattr("ritz.record.checkpoints.version_of", lambda package: "99.0")
        with pytest.warns(VersionWarning, match=r"torch .*, now 99.0"):
            run_with_file(tmp_path / "run.npz")
    monkeypatch.setattr("ritz.record.checkpoints.FORMAT", 99)
    with pytest.raises(FileError, match="format"):
        run_with_file(tmp_path / "run.npz")


class Noisy(nn.Linear):
    """Draws from Python's and numpy's own randomness."""

    def forward(self, x):
        noise = random.gauss(0, 1) + np.random.standard_normal() + random.random()  # noqa: NPY002
        return super().forward(x + 0.1 * noise)


def test_randomness_of_python_and_numpy_goes_on_too(tmp_path):
    def run(path, until=None):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        model = Noisy(3, 2, dtype=torch.float64)
        for pause in lab.train(model, nn.CrossEntropyLoss(), classes(), sgd(model), num_epochs=6, checkpoint=path,
                               save_seconds=0.0):  # fmt: skip
            if pause.epoch == until:
                break
        return pause.parameters["weight"]

    run(tmp_path / "half.npz", until=3)
    assert torch.equal(run(tmp_path / "half.npz"), run(tmp_path / "whole.npz"))


class Warming(nn.Linear):
    """A layer that counts its steps where no state_dict has them, and keeps its last output."""

    steps, last = 0, None

    def forward(self, x):
        self.steps += self.training
        self.last = super().forward(x) * (1 - 0.5 ** (1 + self.steps))
        return self.last


class Caching(nn.Linear):
    """A layer that computes something once."""

    ones = None

    def forward(self, x):
        self.ones = torch.ones_like(x) if self.ones is None else self.ones
        return super().forward(x * self.ones)


@pytest.mark.parametrize("kind, count", [(Warming, 1), (Caching, 0), (nn.Linear, 0)])
def test_what_changes_and_is_not_saved_is_warned_of(tmp_path, kind, count, recwarn):
    model = kind(3, 2, dtype=torch.float64)
    options = {"num_epochs": 4, "checkpoint": tmp_path / "run.npz", "save_seconds": 0.0}
    for _ in lab.train(model, nn.CrossEntropyLoss(), classes(), sgd(model), **options):
        pass
    found = [one for one in recwarn if one.category is ResumptionWarning]
    assert len(found) == count and all("outside its state_dict" in str(one.message) for one in found)


def test_a_file_stays_where_it_was_named_wherever_the_loop_goes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    model = nn.Linear(3, 2).double()
    options = {"num_epochs": 3, "checkpoint": "run.npz", "save_seconds": 0.0}
    for _ in lab.train(model, nn.CrossEntropyLoss(), classes(), sgd(model), **options):
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert record.read_arrays(tmp_path / "run.npz")[1]["epoch"] == 3


OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    if name not in ("Optimizer", "LBFGS", "SparseAdam")  # these take no such network or no single gradient
)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_goes_on_from_a_file_to_the_same_bits(tmp_path, name):
    def weights(path, until=None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False)).double()
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        loss = nn.CrossEntropyLoss()
        for pause in lab.train(model, loss, classes(), optimizer, num_epochs=6, checkpoint=path, save_seconds=0.0):
            if pause.epoch == until:
                break
        return list(pause.parameters.values())

    weights(tmp_path / "run.npz", until=3)
    found, whole = weights(tmp_path / "run.npz"), weights(None)
    assert all(torch.equal(one, other) for one, other in zip(found, whole, strict=True))
