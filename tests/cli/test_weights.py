"""Weights that do not fit: what `ritz spectrum` says of them, and that its ways out work."""

import pytest
import torch
from torch import nn

from ritz.cli.target import Request, Target, risk_of
from ritz.errors import ArgumentError

FILE = """
import ritz, torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

def risk():
    state = torch.load({file!r}, weights_only=True)
    net = model()
    net.load_state_dict({state})
    return ritz.Risk(net, nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.arange(6) % 2))
"""


def weights(prefix="", **other):
    model = nn.Sequential(nn.Linear(3, other.get("width", 4)), nn.Tanh(), nn.Linear(other.get("width", 4), 2))
    return {f"{prefix}{name}": value for name, value in model.state_dict().items()}


CASES = {
    "of DataParallel": (weights("module."), "{name.removeprefix('module.'): w for name, w in state.items()}"),
    "compiled": (weights("_orig_mod."), "{name.removeprefix('_orig_mod.'): w for name, w in state.items()}"),
    "a whole checkpoint": ({"epoch": 3, "model_state_dict": weights()}, "state['model_state_dict']"),
}


def loaded(tmp_path, saved, state="state"):
    torch.save(saved, tmp_path / "weights.pt")
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(file=str(tmp_path / "weights.pt"), state=state))
    return risk_of(Target.of(f"{file}:risk"), Request.of(None, None, None))


@pytest.mark.parametrize("case", CASES)
def test_the_way_out_that_is_named_loads_them(case, tmp_path):
    saved, way_out = CASES[case]
    with pytest.raises(ArgumentError, match="do not fit the model: 4 missing") as refusal:
        loaded(tmp_path, saved)
    assert way_out in str(refusal.value)
    assert loaded(tmp_path, saved, way_out).size == 26


def test_other_sizes_are_named_on_both_sides(tmp_path):
    with pytest.raises(ArgumentError, match=r"0\.weight is \[5, 3\] in the file and \[4, 3\] in the model"):
        loaded(tmp_path, weights(width=5))


def test_a_file_that_is_not_there_is_looked_for_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE.format(file="nowhere.pt", state="state"))
    with pytest.raises(ArgumentError, match=r"nowhere\.pt") as refusal:
        risk_of(Target.of("mine.py:risk"), Request.of(None, None, None))
    assert str(tmp_path) in str(refusal.value)
