"""CIFAR-100 where its files are given: C = 100 in the figures of the Hessian, and a refusal in those that count ten."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz.errors import ArgumentError, FileError
from ritz.lab.data import sources
from ritz.papers.frame.figure import Context
from ritz.papers.papyan2020 import components, gradients, hessian_numbers, hessians
from ritz.papers.papyan2020.networks import Place
from ritz.papers.papyan2020.setting import TINY, Piece, network, split
from tests.papers.singh2026.records import record_of

from .records import FIGURES

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Its binary files by hand: a coarse label, a fine one, 3 × 32 × 32 pixels; two examples of every class."""
    place, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (place / "cifar100").mkdir()
    for name in ("train.bin", "test.bin"):
        fine = np.arange(200) % 100
        pixels = random.integers(0, 256, (200, 3072))
        np.concatenate([fine[:, None] // 5, fine[:, None], pixels], 1).astype(np.uint8).tofile(
            place / "cifar100" / name
        )
    return place


def test_its_hessians_have_a_hundred_outliers_apart(folder, tmp_path, monkeypatch):
    for module in (hessians, hessian_numbers):
        monkeypatch.setattr(module, "PARTS", ("train",))
    method = hessians.Method(num_steps=4, num_pairs=11, max_products=23, tolerance=0.9, num_examples=200)
    tiny = replace(TINY, per_class=2, width=4, depth=2, training=replace(TINY.training, num_epochs=1, batch_size=100))
    config = hessians.Config(("cifar100",), tiny, method, checked=None, whole=False)
    figure = FIGURES["papyan2020.fig14"]
    result = figure.run(config, Context(data_dir=folder, folder=tmp_path, shelf=tmp_path))
    facts = result["cifar100/train/deflated/facts"]
    assert facts["outliers"] == 100 and len(result["cifar100/train/deflated/values"]) == 110
    record = replace(record_of(figure, result), config={"data": ["cifar100"], "checked": None, "whole": False})
    assert "CIFAR-100, train" in hessian_numbers.each_panel(hessian_numbers.misaligned)(record)
    assert hessian_numbers.num_classes(record, "cifar100/train/deflated") == 100 and figure.draw(record).axes


def test_the_whole_of_cifar100_is_five_hundred_examples_of_each_of_a_hundred_classes(folder):
    whole = Piece().on("cifar100")
    assert (whole.num_classes, whole.per_class, whole.num_epochs) == (100, 500, 350)
    assert Piece(per_class=136).on("cifar100").per_class == 136 and Piece().on("cifar10") == Piece(data="cifar10")
    assert network(replace(whole, narrow=16), "meta")[-1].out_features == 100
    assert split(replace(whole, per_class=2), folder).train.y.bincount().tolist() == [2] * 100
    search = hessians.Config().hessian("cifar100", "test").method
    assert (search.num_pairs, search.max_products) == (200, 5000)


def test_figures_that_count_by_ten_classes_refuse_it(folder, tmp_path):
    piece, place = replace(TINY, data="cifar100", per_class=2), Place(CPU, folder, tmp_path)
    with pytest.raises(ArgumentError, match="100 classes"):
        components.run(components.Config(piece), Context(data_dir=folder, shelf=tmp_path))
    with pytest.raises(ArgumentError, match=r"papyan2020\.fig3 --set data=cifar100"):
        gradients.exact(gradients.Exact(gradients.Network(piece, 2)), place=place)


def test_where_its_files_are_not_there_the_message_says_where_to_put_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sources, "_receive", lambda address: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(FileError, match=r"CIFAR-100 is not in a data folder") as error:
        split(Piece().on("cifar100"), tmp_path)
    assert any("FOLDER/cifar100" in way for way in error.value.ways_out)
