"""Fig. 27: heads under gradient descent, and what is judged of each reading."""

import numpy as np
import pytest
import torch

from ritz.errors import ArgumentError
from ritz.lab import ensemble
from ritz.lab.models import self_attention
from ritz.papers.frame.figure import Context
from ritz.papers.singh2026 import attention_descent, attention_edge
from ritz.theory.attention import attention_bounds
from ritz.theory.attention import self_attention as closed_form

from .records import FIGURES, climbing, edge_record, tiled, trained_heads


@pytest.mark.parametrize("name", ["gaussians-half", "standardised-mse"])
def test_what_is_observed_of_a_head_agrees_with_its_closed_form(name):
    reading, generator = attention_descent.READINGS[name], torch.Generator().manual_seed(1)
    heads = [self_attention(2, generator=generator, deviation=1.0, dtype=torch.float64) for _ in range(3)]
    x = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64)
    y = x.flip(2)[..., None]
    found = attention_descent.observables(ensemble.Ensemble.of(heads), x, y, reading.loss)
    for i, head in enumerate(heads):
        w_v, w_q, w_k = (parameter.detach() for parameter in head.parameters())
        values = reading.scale * closed_form(w_v[0, 0], w_q[0], w_k[0], x[i], y[i, ..., 0]).eigenvalues()
        assert float(found["sharpness"][i]) == pytest.approx(float(values.max()))
        assert float(found["trace"][i]) == pytest.approx(float(values.sum()))
        apart = (head(x[i]) - y[i]).detach()
        assert float(found["residual"][i]) == pytest.approx(float(apart.norm()))
        assert float(found["losses"][i]) == pytest.approx(reading.scale * float(apart.square().mean()) / 2)
    inside = attention_descent.within_bounds(ensemble.Ensemble.of(heads), x, y, reading)
    bounds = [
        attention_bounds(head.w_v.item(), head.w_q.detach()[0], head.w_k.detach()[0], x[i], y[i, ..., 0])
        for i, head in enumerate(heads)
    ]
    tops = found["sharpness"] / reading.scale
    assert inside.tolist() == [
        b.largest_outlier[0] <= top <= b.largest_outlier[1] for b, top in zip(bounds, tops, strict=True)
    ]


def test_a_reading_that_there_is_not_is_refused():
    with pytest.raises(ArgumentError, match="standardised-mse"):
        attention_edge.run(attention_edge.Config(readings=("signs",)), Context())


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    config = attention_edge.Config(readings=("signs-half",), factors=(1.0,), num_draws=2, num_steps=12)
    whole, train, epochs = attention_edge.run(config, Context()), ensemble.train, []

    def stopped(*given, **settings):
        for pause in train(*given, save_seconds=0.0, **settings):
            yield pause
            if pause.epoch == 11:  # a check of the bounds is behind it
                raise KeyboardInterrupt

    def watched(*given, **settings):
        for pause in train(*given, **settings):
            epochs.append(pause.epoch)
            yield pause

    monkeypatch.setattr(ensemble, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        attention_edge.run(config, Context(folder=tmp_path))
    monkeypatch.setattr(ensemble, "train", watched)
    again = attention_edge.run(config, Context(folder=tmp_path))
    assert epochs == [11, 12]
    assert all(np.array_equal(whole[name], again[name], equal_nan=True) for name in whole)


def idle():
    return tiled({name: np.full(400, 0.3) for name in attention_descent.SERIES})


def test_where_no_head_reaches_the_edge_everything_said_of_it_is_wrong():
    claims = FIGURES["singh2026.fig27"].claims(edge_record(idle(), idle()))
    assert {claim.verdict for claim in claims[:-1]} == {"no"}  # the bounds hold wherever it is
    assert all("Fewer than half of the draws" in claim.why for claim in claims[2:-1])
    assert "Of 30 draws 30 below 2/η throughout" in claims[0].why


def test_the_first_reading_is_judged_and_the_second_stands_beside_it():
    for leads, verdict, other in ((True, "yes", "no"), (False, "no", "yes")):
        series = (trained_heads(True), idle()) if leads else (idle(), trained_heads(True))
        claims = FIGURES["singh2026.fig27"].claims(edge_record(*series))[:-1]
        assert {claim.verdict for claim in claims} == {verdict}
        assert {beside["verdict"] for claim in claims for beside in claim.beside.values()} == {other}


def test_a_reading_is_not_judged_by_its_exceptions():
    series, exceptions = idle(), trained_heads(True)
    for name in attention_descent.SERIES:
        series[name][:, :14] = exceptions[name][:, :14]
    claims = FIGURES["singh2026.fig27"].claims(edge_record(series))
    assert claims[0].verdict == "partly" and claims[0].measured == pytest.approx(14 / 30)
    assert {claim.verdict for claim in claims[1:-1]} == {"no"}


def test_a_head_that_diverged_says_nothing_of_the_bounds():
    rows = tiled(climbing())
    rows["inside_bounds"][:, :29] = np.nan
    assert FIGURES["singh2026.fig27"].claims(edge_record(rows))[-1].measured == 1
    losses = np.ones((1, 2, 13))
    losses[0, 1, 5:] = np.nan
    assert attention_descent.divergence(losses, 12).tolist() == [[[False] * 4, [False, False, True, True]]]


def test_the_picture_is_one_grid_on_common_axes():
    figure = FIGURES["singh2026.fig27"].draw(edge_record(idle(), idle()))
    rows = [figure.axes[i : i + 2] for i in range(0, len(figure.axes), 2)]
    assert len(rows) == 5 and all(len({ax.get_ylim() for ax in row}) == 1 for row in rows)
    assert [ax.get_legend() is not None for row in rows for ax in row] == [False, True] * 5
    assert [ax.get_ylabel() for ax in figure.axes[1::2]] == [""] * 5
