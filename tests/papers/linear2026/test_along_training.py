"""Fig. 3 and 4."""

from dataclasses import replace

import numpy as np

from ritz.papers.frame.figure import Context
from ritz.papers.frame.results import order, run
from ritz.papers.linear2026 import along_training, networks
from ritz.papers.linear2026.data import White
from ritz.record import Record, plain
from tests.papers.both_ways import missing_verdicts
from tests.papers.linear2026.problems import gaussian_weights, paper_figures, problem, verdicts

TWO = ("mnist", "cifar10")  # names alone: nothing is read


def test_a_narrow_hidden_layer_leaves_more_eigenvalues_than_the_paper_counts():
    assert along_training.num_nonzero(along_training.Config(counted=(12, 5, 3))) == 12 * 3  # not 5 · 3


def test_probes_differ_between_epochs_and_data_sets(generator, monkeypatch):
    X, Y = problem(generator, D=6, sigma_x=1.0)
    descent = networks.WhiteDescent([gaussian_weights(generator, 6, 4, 3)], [White.of(X, Y, 1.0)])
    values = set()
    for name, epoch, seed in [("mnist", 1, 0), ("mnist", 2, 0), ("cifar10", 1, 0), ("mnist", 1, 7), ("mnist", 1, 0)]:
        config = along_training.Config(data=(name,), depth=2, num_probes=3, seed=seed)
        values.add(along_training.traces(descent, descent.start, epoch, config)["measured"][0])
    assert len(values) == 4  # and the same where nothing differs


def test_along_training_the_loss_is_that_of_the_weights_that_are_measured():
    config = replace(paper_figures()["linear2026.fig4"].presets["smoke"], num_epochs=40, num_pauses=4)
    found = along_training.run_pairs(config, Context())
    longer = along_training.run_pairs(replace(config, num_epochs=41), Context())
    assert (np.diff(found["loss"]) < 0).all() and (found["loss"] > found["rest"]).all()
    assert longer["loss"][0, -1] < found["loss"][0, -1]
    (estimate, error), printed = found["trace"][0, -1], found["printed_trace"][0, -1]
    assert abs(estimate - printed) < 4 * error < 0.2 * printed  # (11), at any loss
    assert np.isnan(found["trace"][0, :-1]).all()


def test_a_run_along_which_training_diverges_has_gaps(tmp_path):
    figure = paper_figures()["linear2026.fig3"]
    record = run(order(figure, "smoke", ["learning_rate=50"], tmp_path), paper_figures().values(), Context())
    assert np.isnan(record.arrays["measured"][:, -1]).all() and record.arrays["epochs"].shape == (1, 5)
    assert record.claims[0].verdict == "no"


def along(name, **changed):
    config = replace(paper_figures()[f"linear2026.{name}"].presets["paper"], data=TWO)
    epochs = np.tile([1.0, 10, 100, 1000, 10_000], (2, 1))
    arrays = {"epochs": epochs, "loss": 0.1 + 1 / epochs, "rest": 0 * epochs + 0.1, "learning_rate": 0 * epochs + 0.01}
    if name == "fig3":
        arrays |= {"measured": np.full((2, 5, 2), 301.0), "printed": 300 * epochs**0, "error": np.ones((2, 5, 2))}
    else:
        top = np.tile(np.linspace(10, 9, 10), (2, 5, 1))
        arrays |= {"printed": top, "measured": top * (1 + 0.1 / epochs[..., None]), "num_nonzero": np.array([15])}
        arrays |= {"norms": np.full((2, 5, 2), 5**0.5), "error": 0 * top, "size": 20 - epochs**0.1}
        arrays |= {"trace": np.tile([100.0, 0.5], (2, 5, 1)), "printed_trace": np.full((2, 5), 100.5)}
    return Record("", "", plain(config), {}, arrays | changed)


def test_figure_3_can_be_refuted_in_every_point():
    wrong = {"measured": np.full((2, 5, 2), 400.0), "loss": np.tile(np.arange(5.0), (2, 1))}
    records = [along("fig3"), along("fig3", **wrong)]
    assert missing_verdicts(paper_figures()["linear2026.fig3"], records) == []
    assert [verdicts("fig3", record) for record in records] == [["yes"] * 4, ["no"] * 4]


def test_gaussian_probes_lead_and_signs_stand_beside():
    claim = paper_figures()["linear2026.fig3"].claims(along("fig3"))[0]
    assert claim.reading == "Gaussian vectors" and set(claim.beside) == {"random signs"}


def test_figure_4_can_be_refuted_in_every_point():
    assert verdicts("fig4", along("fig4")) == ["yes"] * 7
    rising = np.linspace(10, 9, 10) * (1 + 0.1 * np.arange(1, 6)[:, None])
    bad = along("fig4", measured=np.tile(rising, (2, 1, 1)), num_nonzero=np.array([36]), error=np.full((2, 5, 10), 0.5),
                size=np.tile(np.arange(1.0, 6.0), (2, 1)), printed_trace=np.full((2, 5), 120.0))  # fmt: skip
    assert verdicts("fig4", bad) == ["partly", *["no"] * 6]  # a norm that never falls is least at the start
