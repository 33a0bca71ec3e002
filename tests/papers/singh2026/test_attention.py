"""Figs. 2 and 9: bulk and outliers of one head of self-attention."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import grad

from ritz.lab.models import self_attention
from ritz.papers.singh2026 import attention, attention_sinks

from .records import FIGURES


def test_repeated_eigenvalues_are_separated_from_the_rest():
    values = torch.tensor([3.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0 + 1e-12, 0.5, 0.5], dtype=torch.float64)
    bulk, copies, rest = attention.bulk_and_rest(values)
    assert torch.allclose(bulk, torch.tensor([-1.0, 1.0], dtype=torch.float64)) and copies == [3, 4]
    assert rest.tolist() == [0.5, 0.5, 3.0]


@pytest.mark.parametrize("varied", ["query and key", "value", "sink"])
def test_a_grid_point_changes_what_it_says_and_nothing_else(varied):
    config = attention.Config(varied, (0.5, 2.0), key_size=5, norm=1.5)
    drawn = self_attention(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    head = attention.head_at(drawn, config, 2.0)
    query_key, value, sink = {"query and key": (2, 1.5, 0), "value": (1.5, 2, 0), "sink": (1.5, 1.5, 2)}[varied]
    assert [float(w.detach().norm()) for w in (head.w_q, head.w_k)] == pytest.approx([query_key] * 2)
    assert head.w_v.item() == pytest.approx(value) and head.sink == sink


def test_the_measured_spectrum_of_the_head_is_that_of_the_closed_form(computed):
    record = computed(FIGURES["singh2026.fig2c"])
    assert record.arrays["measured_error"].max() < 1e-12
    assert (record.arrays["measured_copies"] == record.config["key_size"] - 1).all()
    at = np.searchsorted(record.arrays["grid"], record.arrays["measured_at"])
    assert np.allclose(
        record.arrays["measured_outliers"], record.arrays["outliers"][record.scalars["shown"], at], atol=1e-12
    )
    kappa = record.arrays["condition"][record.scalars["shown"], at]
    assert np.allclose(record.arrays["measured_condition"], kappa, rtol=1e-6)


def test_the_bulk_of_a_head_of_vectors_is_the_slope_of_the_loss_in_the_product_of_query_and_key():
    config = replace(attention_sinks.FIGURES["singh2026.fig9"].presets["smoke"], num_draws=1)
    point = attention_sinks.SinkPoint(config, bias=1.5, draw=0)
    found = attention_sinks.spectrum_at(point, device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(config.seed)
    e, d = config.embedding_size, config.key_size
    head = self_attention(d, e, generator=generator, deviation=d**-0.5, dtype=torch.float64)
    x, y = torch.randn(2, config.num_sequences, config.length, e, generator=generator, dtype=torch.float64)
    bias = torch.zeros(config.length, config.length, dtype=torch.float64)
    bias[:, 0] = 1.5

    def loss(M):
        A = (x @ M @ x.mT / d**0.5 + bias).softmax(-1)
        return (A @ x @ head.w_v * (d / e) ** 0.5 - y).square().sum(-1).mean() / 2

    slopes = torch.linalg.svdvals(grad(loss)((head.w_q @ head.w_k.mT).detach()))
    assert torch.allclose(found["bulk"], slopes.detach().repeat_interleave(2), atol=1e-12)


def test_the_draw_that_is_shown_is_neither_the_calmest_nor_the_wildest():
    bulk = np.array([[1.0, 200.0], [1.0, 1.1], [1.0, 1.7], [2.0, 2.2], [1.0, 9.0]])
    assert attention.median_draw(bulk) == 2
