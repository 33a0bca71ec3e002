"""Trained networks by piece: kept, resumed, chosen by rate."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz.errors import ArgumentError
from ritz.papers.papyan2020 import gradients, hessians, inheritance, layer_blocks, layer_structure, networks
from ritz.papers.papyan2020.networks import Place, identity, trained_network, training
from ritz.papers.papyan2020.setting import Piece, Training, dynamics_piece, examples, network, split
from ritz.record import key, plain

CPU = torch.device("cpu")
BRIEF = Training(num_epochs=4, batch_size=32, rates=(0.05,), num_errors=3)
PIECE = Piece("mlp", "digits", 8, pauses=(0, 2), training=BRIEF, width=8, depth=3)


@pytest.fixture
def place(tmp_path):
    return Place(CPU, None, tmp_path)


def test_a_piece_is_trained_once_and_then_read_from_the_shelf(place, monkeypatch):
    first = training(PIECE, place=place)
    monkeypatch.setattr(networks, "train", None)  # whoever trains again fails
    again = training(PIECE, place=place)
    assert first["identity"] == again["identity"] == identity(trained_network(PIECE, None, place))
    assert again["epochs"].tolist() == [0, 1, 2, 4]
    assert len(again["test_error"]) == 4 and 0 <= again["last_test_error"] <= 1


def test_a_network_is_kept_as_it_was_at_each_of_its_epochs(place):
    start, middle, end = (trained_network(PIECE, epoch, place) for epoch in (0, 2, 4))
    assert identity(start) == identity(network(PIECE, CPU))
    assert len({identity(model) for model in (start, middle, end)}) == 3
    shorter = replace(PIECE, pauses=(0,))
    assert identity(trained_network(shorter, 4, place)) == identity(end)  # when it is kept changes nothing


def test_a_training_that_was_cut_goes_on_to_the_same_network(place, tmp_path, monkeypatch):
    whole = training(PIECE, place=Place(CPU, None, tmp_path / "other"))["identity"]
    train = networks.train

    def cut(*given, **options):
        for pause in train(*given, **options, save_seconds=0.0):
            yield pause
            if pause.epoch == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(networks, "train", cut)
    with pytest.raises(KeyboardInterrupt):
        training(PIECE, place=place)
    seen = []

    def counted(*given, **options):
        for pause in train(*given, **options):
            seen.append(pause.epoch)
            yield pause

    monkeypatch.setattr(networks, "train", counted)
    assert training(PIECE, place=place)["identity"] == whole and seen[0] >= 2


def test_the_rate_of_the_least_test_error_is_taken_for_every_seed_from_one_sweep(place, monkeypatch):
    errors = {0.2: 0.5, 0.08: 0.1, 0.03: 0.1}
    asked = []
    monkeypatch.setattr(networks, "_error_at", lambda piece, rate, place: asked.append(rate) or errors[rate])
    piece = replace(PIECE, training=replace(BRIEF, rates=tuple(errors)))
    for seed in (0, 1):
        rate, tried = networks.best_rate(piece.with_seed(seed), place)
        assert rate == 0.08 and tried == {"0.2": 0.5, "0.08": 0.1, "0.03": 0.1}
    assert asked == list(errors)


def test_a_sweep_is_a_twentieth_of_the_training_or_enough_steps():
    whole = Piece()
    assert networks._short(whole.with_seed(7)) == replace(whole, training=replace(whole.training, num_epochs=10))
    assert networks._short(replace(whole, per_class=136)).num_epochs == 182  # 2,000 steps of 11
    assert networks._short(replace(whole, per_class=13)).num_epochs == 200  # no longer than all


def test_epochs_are_the_papers_unless_set():
    assert [Piece(data=name).num_epochs for name in ("mnist", "fashion_mnist", "cifar10")] == [200, 200, 350]
    assert Piece("mlp", "mnist").num_epochs == 350 and PIECE.num_epochs == 4
    with pytest.raises(ArgumentError, match="kept after"):
        replace(PIECE, pauses=(5,))


def test_examples_are_balanced_and_of_the_seed():
    ours, other = split(PIECE, None), split(PIECE.with_seed(1), None)
    assert ours.train.y.bincount().tolist() == [8] * 10 and not torch.equal(ours.train.x, other.train.x)
    few = examples(PIECE, "test", None, CPU, num_examples=30)
    assert few.y.bincount().tolist() == [3] * 10
    whole = replace(PIECE, network="resnet18", per_class=100)
    assert abs(float(split(whole, None).train.x.std()) - 1) < 0.05 and split(whole, None).train.x.shape[1:] == (1, 8, 8)
    assert split(replace(PIECE, network="vgg11"), None).test.x.shape[1:] == (1, 32, 32)


def test_a_training_that_diverges_says_so(place):
    wild = replace(PIECE, training=replace(BRIEF, rates=(1e9,)))
    with pytest.raises(ArithmeticError, match="diverged"):
        training(wild, place=place)


def test_errors_start_before_training_and_end_with_it():
    at = networks.error_epochs(Piece(data="cifar10", pauses=(5, 116)))
    assert at[0] == 0 and at[-1] == 350 and {1, 5, 116} <= set(at) and np.all(np.diff(at) > 0)


END = gradients.Network(dynamics_piece(136, 0), 350)
ON_SHELF = {  # hours of a GPU lie under these names
    "4b02f21127a0468a45cae67f9e8338c4": Piece(),
    "2ad6a1924827f547087968c5a162b5c9": hessians.Config().hessian("mnist", "train"),
    "7957eb231f8ced4d7f7280faad3b7ac0": gradients.Exact(END),
    "f8e853d2da2bc61ecf0f7b7a17ee9257": gradients.Quadrature(END, 2048, 0),
    "dc72d2da158db0c51bb80d4f8426affd": END,
    "52df914ed9af3536a3b6e8a8b143e7d4": layer_structure.Layers(Piece("mlp")),
    "bcf10b8c752c1aa5d789f3139a12b9ca": layer_blocks.Blocks(Piece("mlp")),
    "efafba6350fce3da79215db5e13b418e": inheritance.Config(),
}


@pytest.mark.parametrize("name", ON_SHELF)
def test_what_was_measured_is_found_on_the_shelf_by_the_same_name(name):
    """A field that is added, or another default, would lose it: the key is that of the whole config."""
    assert key(plain(ON_SHELF[name])) == name
