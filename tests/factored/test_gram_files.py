"""A Gram matrix goes on from a file that its own assembly could have written, and from no other."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import ritz
from ritz.errors import FileError
from ritz.factored import Gram
from ritz.record import checkpoints, read_arrays, write_arrays
from ritz.record.layouts import layout_of


class Killed(BaseException):
    """Not an Exception: nobody catches it."""


def risk(labelled=True):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y, loss = (torch.arange(24) % 3, nn.CrossEntropyLoss()) if labelled else (x[:, :3], nn.MSELoss())
    return ritz.Risk(model, loss, [(x[:13], y[:13]), (x[13:], y[13:])])


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """What files hold after nine writings, and in the end."""
    files, keep = {}, checkpoints.Checkpoint.keep
    for name, writings in (("under way", 9), ("over", None)):
        folder, count, ticks = tmp_path_factory.mktemp("gram"), itertools.count(1), itertools.count(step=1000.0)

        def counting(*arguments, writings=writings, count=count, **options):
            keep(*arguments, **options)
            if next(count) == writings:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoints, "SHARE", 0)
            patch.setattr(checkpoints, "monotonic", lambda ticks=ticks: next(ticks))
            patch.setattr(checkpoints.Checkpoint, "keep", counting)
            with contextlib.suppress(Killed):
                Gram.of(risk(), checkpoint=folder)
        files[name] = read_arrays(folder / "gram.npz")
    return files


def array(name, change):
    return lambda arrays, header: arrays.update({name: change(np.array(arrays[name]))})


def kind(name, dtype):
    return array(name, lambda values: values.astype(dtype))


def cut(values):
    return values[..., :-1]


def fact(name, value):
    return lambda arrays, header: header.update({name: value})


def gone(name):
    return lambda arrays, header: (arrays if name in arrays else header).pop(name)


def other(values):
    values[0] += 0.125
    return values


DAMAGE = {
    "under way": [
        *(kind("pieces/0/0", np.float32), kind("pieces/1/0", np.complex64), array("pieces/1/1", cut)),
        *(array("probabilities/1", cut), array("probabilities/0", other), array("labels/2", lambda labels: labels - 1)),
        *(array("masses/0", lambda masses: -masses), gone("masses/3"), gone("pieces/0/0"), gone("pieces")),
        *(fact("pieces", [[0, 0]]), fact("pieces", [[0, 1]]), fact("pieces", [[0, 0], [0, 0]]), fact("pieces", [3])),
    ],
    "over": [
        *(kind("matrix", np.float32), array("matrix", cut), array("matrix", other), gone("labels"), gone("matrix")),
        *(array("matrix", lambda K: 1.01 * K), fact("error", 1.5), fact("error", None), fact("error", -1.0)),
        *(array("probabilities", other), array("labels", lambda labels: labels + 3)),
    ],
}


@pytest.mark.parametrize("which, damage", [(which, damage) for which, ways in DAMAGE.items() for damage in ways])
def test_a_file_that_no_assembly_writes_is_refused_and_left_alone(tmp_path, left_behind, which, damage):
    arrays, header = ({**part} for part in left_behind[which])
    damage(arrays, header)
    path = write_arrays(tmp_path / "gram.npz", arrays, {**header, "layout": layout_of(arrays)})
    before = path.read_bytes()
    with pytest.raises(FileError, match="is damaged"):
        Gram.of(risk(), checkpoint=tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("which", DAMAGE)
def test_a_file_of_the_assembly_gives_the_same_bits(tmp_path, left_behind, which):
    whole = Gram.of(risk(), checkpoint=tmp_path / "whole")
    (tmp_path / "file").mkdir()
    write_arrays(tmp_path / "file" / "gram.npz", *left_behind[which])
    result = Gram.of(risk(), checkpoint=tmp_path / "file")
    assert torch.equal(result.matrix, whole.matrix) and torch.equal(result.classes.labels, whole.classes.labels)


def test_targets_without_labels_are_read_back(tmp_path):
    whole = Gram.of(risk(labelled=False), checkpoint=tmp_path)
    again = Gram.of(risk(labelled=False), checkpoint=tmp_path)
    assert torch.equal(again.matrix, whole.matrix) and again.classes is None
