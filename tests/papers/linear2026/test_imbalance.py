"""Fig. 1 right and 2: how their networks are trained."""

import numpy as np
import torch
from torch.func import grad

from ritz.papers.frame.figure import Context
from ritz.papers.frame.results import order, run
from ritz.papers.linear2026 import data, imbalance, networks, training
from ritz.papers.linear2026.data import White
from ritz.papers.linear2026.variants import Variant, seed_of, variants
from tests.papers.linear2026.problems import loss_of, paper_figures


def test_a_run_that_diverges_is_recorded_as_diverged_and_drawn(tmp_path):
    figure = paper_figures()["linear2026.fig2a"]
    settings = ["learning_rate=50", "alphas=0.1,0.3"]
    record = run(order(figure, "smoke", settings, tmp_path), paper_figures().values(), Context())
    assert record.arrays["diverged"].all() and np.isnan(record.arrays["sharpness"]).all()
    assert np.isnan(record.arrays["peak"]).all()
    diverged = next(claim for claim in record.claims if "diverged" in claim.statement)
    assert diverged.verdict == "no" and "paper leaves open" in diverged.why


def test_tanh_networks_that_diverge_have_no_sharpness(tmp_path):
    figure = paper_figures()["linear2026.fig2c"]
    settings = ["learning_rate=1e30", "num_epochs=20", "starts=kaiming", "draws=own"]
    record = run(order(figure, "smoke", settings, tmp_path), paper_figures().values(), Context())
    assert record.arrays["diverged"].any() and np.isnan(record.arrays["sharpness"][record.arrays["diverged"]]).all()


def test_equal_whitenings_are_trained_once(generator, monkeypatch):
    X = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    Y = data.data.one_hot(torch.arange(40) % 10, 10, dtype=torch.float64)
    config = imbalance.Config(alphas=(0.1,), width=4, num_epochs=5)
    group = [Variant("qr"), Variant("rank")]
    networks_seen = []
    real = training.WhiteDescent
    monkeypatch.setattr(training, "WhiteDescent", lambda s, p: networks_seen.append(len(s)) or real(s, p))
    found = training.train_white(config, group, training.Sets([0], lambda: iter([(X, Y)])), None)
    assert networks_seen == [1] and [part["sharpness"].shape for part in found] == [(1,), (1,)]
    X[:, 2] = 0
    found = training.train_white(config, group, training.Sets([0], lambda: iter([(X, Y)])), None)
    assert networks_seen == [1, 2] and [part["num_inputs"].tolist() for part in found] == [[6], [5]]


def test_networks_of_each_share_have_their_own_images_and_weights_or_share_a_seed():
    seeds = {draws: [[seed_of(0, draws, repeat, share) for share in range(9)] for repeat in range(5)]
             for draws in ("own", "shared")}  # fmt: skip
    assert len({seed for row in seeds["own"] for seed in row} | {row[0] for row in seeds["shared"]}) == 45 + 5
    assert all(len(set(row)) == 1 for row in seeds["shared"])


def test_readings_change_one_choice_at_a_time():
    several = variants(paper_figures()["linear2026.fig2a"].presets["paper"])
    assert several[0] == Variant("raw") and len(several) == 5
    assert all(sum(a != b for a, b in zip(vars(one).values(), vars(several[0]).values(), strict=True)) == 1
               for one in several[1:])  # fmt: skip


def test_balanced_layers_descend_in_the_hidden_directions_that_they_use(generator):
    X = data.white_inputs(torch.randn(60, 12, generator=generator, dtype=torch.float64), 1.0, "qr")
    white = White.of(X, torch.randn(60, 3, generator=generator, dtype=torch.float64), 1.0)
    start = networks.initial_weights("balanced", (12, 9, 9, 3), singular_values=(0.2, 1.0), generator=generator)
    descent = networks.WhiteDescent([start], [white])
    assert [tuple(W.shape[1:]) for W in descent.start] == [(3, 12), (3, 3), (3, 3)]
    *_, pause = descent.pauses(learning_rate=0.05, num_epochs=200, checkpoint=None)
    theta = torch.cat([W.flatten() for W in start])
    slope = grad(loss_of([W.shape for W in start], X, (X @ white.T.T)))
    for _ in range(200):
        theta = theta - 0.05 * slope(theta)
    torch.testing.assert_close(torch.cat([W.flatten() for W in descent.weights(pause.parameters, 0)]), theta)
