"""The class structure of a classifier as one record: its numbers against dense ones, and what it leaves out."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from ritz import classes, gauss_newton
from ritz.analysis import classes as analysis
from ritz.analysis.classes import ClassSettings, kronecker_spectra
from ritz.analysis.classes.contents import layer_spectra_of, layers_with, spectra_of
from ritz.analysis.classes.pictures import draw, errors, knockouts
from ritz.analysis.classes.results import SHOWN, spaced
from ritz.classes import attribution
from ritz.classes import knockouts as knockout
from ritz.errors import ArgumentError, DataError
from ritz.factored.kronecker import cfac, kfac
from ritz.record import Record
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from ritz.spectrum import Spectrum
from tests.zoo import OUTPUTS, case, unequal_batches

SETTINGS = ClassSettings(weight_decay=1e-2, seed=3)


def risk_of(name="mlp"):
    found = case(name)
    y = torch.randint(OUTPUTS, found.shape[:-1], generator=torch.Generator().manual_seed(1))
    return Risk(found.model, CrossEntropy(), unequal_batches(found.inputs, y))


def deep(count):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)), nn.Linear(4, 3)).double()
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Risk(model, nn.CrossEntropyLoss(), [(x[:7], torch.arange(7) % 3), (x[7:], torch.arange(5) % 3)])


@pytest.fixture(scope="module")
def risk():
    return risk_of()


@pytest.fixture(scope="module")
def record(risk):
    return analysis.run(risk, SETTINGS, name="tiny", source={"factory": "mine"}).detached()


def array(record, key):
    return torch.as_tensor(record.arrays[key])


def test_the_record_is_that_of_the_attribution(risk, record):
    found = attribution(risk, generator=torch.Generator().manual_seed(3))
    assert_close(array(record, "gauss_newton/values"), found.gauss_newton.pairs.values)
    assert_close(array(record, "hessian/shares"), torch.stack(list(found.hessian.shares.values())))
    assert record.scalars["counts"] == found.counts and record.scalars["findings"] == list(found.findings)
    assert record.scalars["class_overlap"] == pytest.approx(found.class_overlap)
    assert record.config["factory"] == "mine" and record.config["weight_decay"] == 1e-2
    for name, spectrum in spectra_of(record).items():
        assert spectrum.wasserstein(found.spectra[name]) < 1e-12


def test_the_same_seed_gives_the_same_record(risk, record):
    again = analysis.run(risk, SETTINGS).detached()
    assert again.arrays.keys() == record.arrays.keys()
    for key in record.arrays:  # to rounding: paths are chosen by their speed
        assert_close(array(again, key), array(record, key), rtol=1e-10, atol=1e-12)


def test_features_are_those_of_the_dense_second_moments(risk, record):
    for name, phi in classes.features(risk).items():
        whole, between = phi.second_moment.dense(), phi.between_class.dense()
        expected = torch.linalg.eigvalsh(knockout.project(whole, between, tolerance=1e-9)).flip(0)
        scale = float(torch.linalg.eigvalsh(whole)[-1])
        assert_close(array(record, f"features/{name}/whole"), torch.linalg.eigvalsh(whole).flip(0), rtol=0, atol=1e-12)
        assert_close(array(record, f"features/{name}/off_class"), expected, rtol=0, atol=1e-12 * scale)
        share = float(between.trace() / whole.trace())
        assert record.scalars["layers"][name]["class_part_of_features"] == pytest.approx(share)


def test_errors_are_those_of_the_dense_second_moments(risk, record):
    for name, D in classes.backpropagated_errors(risk).items():
        whole, means = D.second_moment.dense(), D.between_class.dense() + D.cross_class.dense()
        expected = torch.linalg.eigvalsh(knockout.project(whole, means, tolerance=1e-9)).flip(0)
        assert_close(array(record, f"errors/{name}/off_class_and_cross"), expected, rtol=0, atol=1e-11)
        values = torch.linalg.eigvalsh(means).flip(0)
        ours = array(record, f"errors/{name}/class_and_cross")
        assert_close(ours, values[: len(ours)], rtol=0, atol=1e-12)


def test_weights_are_measured_where_their_decay_is_known(risk, record):
    for name, W in classes.weights(risk, 1e-2).items():
        left = torch.linalg.svdvals(knockout.project(W.weight, W.between_class))
        assert_close(array(record, f"weights/{name}/off_class"), left)
        assert record.scalars["layers"][name]["weight_residual"] == pytest.approx(W.residual)
    without = analysis.run(risk)
    assert not layers_with(without, "weights") and "weights" not in draw(without)
    assert any("--weight-decay" in note for note in without.scalars["notes"])


def test_layers_are_compared_with_their_factorisations(risk, record):
    for name in layers_with(record, "kronecker"):
        block = risk.restricted_to(f"{name}.*")
        exact = Spectrum.of_matrix(gauss_newton(block).dense())
        spectra = layer_spectra_of(record, name)
        assert spectra["G"].wasserstein(exact) < 1e-12
        for kind, build in (("KFAC", kfac), ("CFAC", cfac)):
            dense = Spectrum.of_matrix(build(block).operator.dense())
            assert spectra[kind].wasserstein(dense) < 1e-12
            distance = record.scalars["layers"][name]["distances"][kind]
            assert distance == pytest.approx(dense.wasserstein(exact) / exact.moment(1), rel=1e-6)


def test_examples_to_ignore_change_nothing():
    found = case("mlp")
    y = torch.randint(OUTPUTS, found.shape[:-1], generator=torch.Generator().manual_seed(1))
    y[[0, 8]] = -100
    kept = y != -100
    whole = Risk(found.model, CrossEntropy(), unequal_batches(found.inputs, y))
    fewer = Risk(found.model, CrossEntropy(), unequal_batches(found.inputs[kept], y[kept]))
    one, other = (analysis.run(risk, SETTINGS).detached() for risk in (whole, fewer))
    for name in layers_with(one, "kronecker"):
        for kind, spectrum in layer_spectra_of(one, name).items():
            assert spectrum.wasserstein(layer_spectra_of(other, name)[kind]) < 1e-10
    assert_close(array(one, "gauss_newton/values"), array(other, "gauss_newton/values"))


def test_a_large_spectrum_is_kept_small_with_its_mass_trace_and_largest_eigenvalues():
    values = torch.logspace(-12, 0, 9000, dtype=torch.float64)
    spectrum = Spectrum.of_eigenvalues(torch.cat([values, torch.zeros(500)]))
    small = Spectrum(*kronecker_spectra.coarse_atoms(spectrum), spectrum.size)
    assert small.nodes.numel() <= kronecker_spectra.ATOMS + kronecker_spectra.BINS
    assert small.moment(1) == pytest.approx(spectrum.moment(1), rel=1e-12)
    assert_close(small.nodes[0, :1000], values.flip(0)[:1000])
    assert small.wasserstein(spectrum) < 0.01 * spectrum.moment(1)  # a bin is a 40th of an e-fold wide
    assert kronecker_spectra.coarse_atoms(small)[0] is small.nodes


def test_a_saved_record_is_drawn_again(record, tmp_path):
    files = analysis.write(record, tmp_path)
    assert sorted(files) == sorted(path.name for path in tmp_path.iterdir())
    assert set(files) == {
        "record.json", "arrays.npz", "knockouts.png", "features.png", "errors.png", "weights.png", "scree.png",
        "kronecker.png",
    }  # fmt: skip
    loaded = Record.load(tmp_path)
    assert spectra_of(loaded)["G"].wasserstein(spectra_of(record)["G"]) == 0


def test_knockouts_share_their_axes_and_mark_the_largest_eigenvalues(record):
    axes = knockouts(record).axes
    assert len(axes) == len(record.scalars["spectra"]) and len({ax.get_xlim() for ax in axes}) == 1
    marked = torch.as_tensor(axes[0].lines[-1].get_xdata())
    assert_close(marked, array(record, "gauss_newton/values")[:OUTPUTS])
    assert axes[0].get_xlim()[1] > float(marked.max())


def test_errors_off_all_means_are_drawn_where_a_layer_is_wider_than_their_span():
    wide = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    batches = [(batch.inputs, batch.targets) for batch in deep(1).batches]
    narrow, broad = (analysis.run(r) for r in (deep(2), Risk(wide, nn.CrossEntropyLoss(), batches)))
    assert len(errors(narrow).axes) == len(layers_with(narrow, "errors")) == 3
    assert len(errors(broad).axes) == 2 * len(layers_with(broad, "errors")) == 4


def test_of_many_layers_eight_are_shown_and_that_is_said():
    record = analysis.run(deep(11))
    assert len(layers_with(record, "features")) == len(layers_with(record, "kronecker")) == SHOWN
    assert {"0", "11"} < set(layers_with(record, "features"))
    assert "Of 12 layers, 8 are shown, evenly spaced." in record.scalars["notes"]
    assert spaced(range(20)) == [0, 3, 5, 8, 11, 14, 16, 19]


def test_norms_and_convolutions_in_groups_are_left_out_of_the_factorisations_alone():
    risk = risk_of("residual")
    record = analysis.run(risk)
    assert set(layers_with(record, "features")) == set(classes.features(risk))
    assert "conv2" not in layers_with(record, "kronecker") and "conv1" in layers_with(record, "kronecker")
    assert any("conv2" in note and "group" in note for note in record.scalars["notes"])


def test_wide_layers_are_left_out_with_the_way_to_have_them(risk):
    record = analysis.run(risk, ClassSettings(exact_rows=4))
    assert any("--exact-rows" in note and "Features" in note for note in record.scalars["notes"])
    assert all(len(record.arrays[f"features/{name}/whole"]) <= 4 for name in layers_with(record, "features"))


def test_a_spectrum_that_would_take_too_long_is_left_out(risk, monkeypatch):
    monkeypatch.setattr(kronecker_spectra, "WORK", 0.0)
    record = analysis.run(risk)
    assert set(layer_spectra_of(record, layers_with(record, "kronecker")[0])) == {"G", "KFAC"}
    assert any(note.startswith("CFAC: left out in") for note in record.scalars["notes"])
    assert "kronecker" in draw(record)


def test_labels_by_token_leave_the_attribution_and_say_what_is_missing():
    record = analysis.run(risk_of("transformer"))
    assert len(record.scalars["findings"]) > 4
    assert set(draw(record)) == {"knockouts", "kronecker"}  # KFAC needs no labels
    notes = " ".join(record.scalars["notes"])
    assert "Features: left out. An example has several labels" in notes and "CFAC: left out" in notes


@pytest.mark.parametrize(
    "settings", [ClassSettings(num_lines=0), ClassSettings(exact_rows=-1), ClassSettings(weight_decay=0.0)]
)
@pytest.mark.usefixtures("unchecked")
def test_settings_that_nothing_could_satisfy_are_refused_before_the_work(settings):
    with pytest.raises(ArgumentError):
        analysis.run(None, settings)


def test_a_regression_is_refused():
    x, y = torch.randn(6, 3).double(), torch.randn(6, 2).double()
    with pytest.raises(DataError):
        analysis.run(Risk(nn.Linear(3, 2).double(), nn.MSELoss(), [(x[:4], y[:4]), (x[4:], y[4:])]))


class Encoded(nn.Module):
    """Parameters that are added, and so enter through no layer, before two that are seen."""

    def __init__(self):
        super().__init__()
        self.position, self.first, self.second = nn.Parameter(torch.ones(4)), nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x + self.position)))


def test_parameters_that_cannot_be_captured_leave_the_other_layers():
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    record = analysis.run(Risk(Encoded().double(), nn.CrossEntropyLoss(), (x, y)))
    assert list(record.scalars["layers"]) == ["first", "second"]
    assert record.scalars["notes"][0].startswith("Layers: position left out")
    assert set(record.scalars["layers"]["first"]["largest"]) == {"G", "KFAC", "CFAC"}


def test_a_convolution_in_groups_leaves_the_weights_of_the_others():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 3)).double()
    x, y = torch.randn(12, 2, 3, 3, generator=torch.Generator().manual_seed(0)).double(), torch.arange(12) % 3
    record = analysis.run(Risk(model, nn.CrossEntropyLoss(), (x, y)), analysis.ClassSettings(weight_decay=1e-3))
    assert "Weights: left out in 0, whose weights are a matrix for each group." in record.scalars["notes"]
    assert "weights/2/whole" in record.arrays and "weights/0/whole" not in record.arrays


def test_a_layer_without_curvature_is_drawn_without_distances(tmp_path):
    """Behind a head that starts at zero, no output depends on the first layer."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    nn.init.zeros_(model[2].weight)
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(12) % 3
    record = analysis.run(Risk(model, nn.CrossEntropyLoss(), (x, y)), SETTINGS)
    layers = record.scalars["layers"]
    assert layers["0"]["largest"]["G"] == 0.0 and layers["0"]["distances"] == {}
    assert set(layers["2"]["distances"]) == {"KFAC", "CFAC"}
    written = analysis.write(record, tmp_path)
    assert {f"{name}.png" for name in ("knockouts", "features", "errors", "weights", "kronecker", "scree")} < set(
        written
    )


class Reused(nn.Module):
    """A layer whose weight is used with its bias, then without it."""

    def __init__(self):
        super().__init__()
        self.layer, self.between, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = torch.tanh(self.between(torch.tanh(self.layer(x))))
        return self.head(torch.tanh(nn.functional.linear(x, self.layer.weight)))


def test_a_weight_that_is_used_in_two_ways_is_seen_in_both_and_left_out_of_the_factorisations_alone():
    torch.manual_seed(0)
    model, x, y = Reused().double(), torch.randn(12, 4).double(), torch.arange(12) % 3
    risk = Risk(model, nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])])
    found = classes.features(risk)
    h = torch.tanh(model.between(torch.tanh(model.layer(x)))).detach()
    for name, rows in {"layer": x, "layer.weight": h}.items():
        assert_close(found[name].second_moment.dense(), rows.T @ rows / 12)
    record = analysis.run(risk, analysis.ClassSettings(weight_decay=1e-3))
    left_out = "left out in layer, layer.weight, whose parameters enter in several ways."
    assert record.scalars["notes"] == [f"Weights: {left_out}", f"KFAC and CFAC: {left_out}"]
    assert set(record.scalars["layers"]["between"]["largest"]) == {"G", "KFAC", "CFAC"}


def test_a_layer_has_the_same_name_whatever_else_is_measured():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True)

    class Attentive(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = attention, nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.attention(x[..., :4], x[..., 4:7], x[..., 7:])[0].mean(1))

    x, y = torch.randn(12, 2, 12), torch.arange(12) % 3
    risk = Risk(Attentive().double(), nn.CrossEntropyLoss(), [(x[:7].double(), y[:7]), (x[7:].double(), y[7:])])
    within = risk.restricted_to(["*_proj_weight", "head.*"])
    names = [*classes.features(within)]
    assert names[:3] == [f"attention.{kind}_proj_weight" for kind in "qkv"] and names[-1] == "head"
    for name in names[:3]:
        assert [*classes.features(within.restricted_to(name))] == [name]
