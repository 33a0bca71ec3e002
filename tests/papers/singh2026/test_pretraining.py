"""Tokens, batches and schedules of the GPT figures."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz import CrossEntropy, Risk
from ritz.errors import ArgumentError, FileError
from ritz.lab.models import gpt, parameter_count
from ritz.papers.frame.figure import Context
from ritz.papers.singh2026 import pretraining

from .records import FIGURES, tiny_gpt


def test_pieces_of_a_text_are_pieces_of_the_text():
    stream = np.arange(100, dtype=np.uint16)
    rows = pretraining.sequences(stream, 50, 7, torch.Generator().manual_seed(0), vocabulary=100)
    assert rows.shape == (50, 8) and bool((rows.diff(dim=1) == 1).all()) and int(rows.max()) <= 99
    assert len(set(rows[:, 0].tolist())) > 20


def test_tokens_come_from_a_file_of_integers(tmp_path):
    config = replace(pretraining.TINY, corpus="tokens", vocabulary=300)
    tokens = np.arange(40) % 300
    np.save(tmp_path / "tokens.npy", tokens)
    tokens.astype(np.uint16).tofile(tmp_path / "tokens.bin")
    for name in ("tokens.npy", "tokens.bin"):
        found = pretraining.token_stream(replace(config, tokens=str(tmp_path / name)), None)
        assert np.array_equal(found, tokens)


@pytest.mark.parametrize(
    "array, words", [(np.arange(40), "from 0 to 39"), (np.ones(40), "float64"), (np.arange(3), r"\(3,\)")]
)
@pytest.mark.usefixtures("unchecked")
def test_tokens_that_the_model_cannot_read_are_refused(tmp_path, array, words):
    np.save(tmp_path / "tokens.npy", array)
    config = replace(pretraining.TINY, corpus="tokens", tokens=str(tmp_path / "tokens.npy"))
    with pytest.raises(FileError, match=words):
        pretraining.token_stream(config, None)


def test_tokens_that_only_a_later_piece_holds_are_refused_where_it_is_read():
    stream = np.zeros(2 * 10**6, dtype=np.uint16)
    stream[10**6 :] = 11
    config = replace(pretraining.TINY, corpus="tokens")
    pretraining.check_tokens(stream, config)  # a glance does not see it
    with pytest.raises(FileError, match="from 0 to 11"):
        pretraining.sequences(stream, 50, 7, torch.Generator().manual_seed(0), vocabulary=config.vocabulary)


@pytest.mark.parametrize("name", ["fig5", "fig6"])
def test_a_file_of_tokens_that_would_not_be_read_is_refused(name):
    figure = FIGURES[f"singh2026.{name}"]
    with pytest.raises(ArgumentError, match="corpus=shakespeare"):
        figure.run(replace(figure.presets["laptop"], tokens="train.bin"), Context())


def test_parts_of_a_batch_have_the_gradient_of_the_whole():
    model = tiny_gpt()
    rows = torch.randint(11, (5, 9), generator=torch.Generator().manual_seed(0))
    gradients = []
    for micro_batch in (None, 2):
        losses = pretraining.TokenLosses(model, micro_batch=micro_batch)(rows)
        gradients.append(torch.autograd.grad(losses.mean(), list(model.parameters())))
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(*gradients, strict=True))  # losses are in float32
    risk = Risk(model, CrossEntropy(), [(rows[:2, :-1], rows[:2, 1:]), (rows[2:, :-1], rows[2:, 1:])])
    assert losses.detach().mean().item() == pytest.approx(risk.loss_value(), rel=1e-6)


def test_the_paper_measures_often_at_first_and_seldom_later():
    at = pretraining.checkpoints(pretraining.Config())
    assert at[:12] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200] and at[-2:] == [9000, 10_000] and len(at) == 29
    assert pretraining.checkpoints(pretraining.Config(num_steps=25)) == [0, 10, 20, 25]


def test_the_twin_without_attention_has_eighteen_blocks():
    twin = pretraining.architecture(pretraining.Config(), attention=False)
    assert twin.depth == 18 and not twin.attention


def test_the_model_of_the_text_at_hand_has_ten_million_parameters_and_a_twin_of_nine_blocks():
    sizes = {}
    for attention in (True, False):
        config = pretraining.architecture(pretraining.CHARACTERS, attention=attention)
        sizes[attention] = parameter_count(gpt(config, generator=torch.Generator(), device="meta"))
    assert config.depth == 9 and 10e6 < sizes[True] < 11e6 and sizes[False] == pytest.approx(sizes[True], rel=0.01)
    assert pretraining.checkpoints(pretraining.CHARACTERS)[-2:] == [4000, 5000]


def test_a_long_cosine_has_hardly_begun():
    schedule = pretraining.Stretched(pretraining.Cosine(2000), 600_000)
    start = pretraining.Pace.start(torch.tensor(math.inf))
    factors = [
        float(schedule.after(start, torch.tensor(1.0), epoch=e, num_epochs=10_000).factor) for e in (0, 2000, 9999)
    ]
    assert factors[0] == pytest.approx(1 / 2001) and factors[1] == 1 and 0.999 < factors[2] < 1
