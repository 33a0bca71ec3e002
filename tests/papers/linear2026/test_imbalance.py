"""Fig. 1 right and 2: how their networks are trained."""

import numpy as np
import torch

from ritz.papers.frame.figure import Context
from ritz.papers.frame.results import order, run
from ritz.papers.linear2026 import data, imbalance
from tests.papers.linear2026.problems import paper_figures


def test_a_run_that_diverges_is_recorded_as_diverged_and_drawn(tmp_path):
    figure = paper_figures()["linear2026.fig2a"]
    record = run(order(figure, "smoke", ["learning_rate=50"], tmp_path), paper_figures().values(), Context())
    assert record.arrays["diverged"].all() and np.isnan(record.arrays["sharpness"]).all()
    assert np.isnan(record.arrays["peak"]).all()
    assert record.claims[-2].verdict == "no" and "paper leaves open" in record.claims[-2].why


def test_tanh_networks_that_diverge_have_no_sharpness(tmp_path):
    figure = paper_figures()["linear2026.fig2c"]
    settings = ["learning_rate=1e30", "num_epochs=20", "starts=kaiming"]
    record = run(order(figure, "smoke", settings, tmp_path), paper_figures().values(), Context())
    assert record.arrays["diverged"].any() and np.isnan(record.arrays["sharpness"][record.arrays["diverged"]]).all()


def test_equal_whitenings_are_trained_once(generator, monkeypatch):
    X = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    sets = [(X, data.data.one_hot(torch.arange(40) % 10, 10, dtype=torch.float64))]
    config = imbalance.Config(alphas=(0.1,), width=4, num_epochs=5)
    group = [imbalance.Variant("qr", "balanced"), imbalance.Variant("rank", "balanced")]
    networks_seen = []
    real = imbalance.WhiteDescent
    monkeypatch.setattr(imbalance, "WhiteDescent", lambda s, p: networks_seen.append(len(s)) or real(s, p))
    found = imbalance.train_white(config, group, sets, None)
    assert networks_seen == [1] and found["sharpness"].shape == (2,)
    X[:, 2] = 0
    found = imbalance.train_white(config, group, [(X, sets[0][1])], None)
    assert networks_seen == [1, 2] and found["num_inputs"].tolist() == [6, 5]
