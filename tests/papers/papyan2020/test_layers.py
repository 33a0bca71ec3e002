"""The figures of layers: computed at the smallest size, and their rules fed with what should pass or not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ritz import Operator, gauss_newton, kfac
from ritz.papers.frame.figure import Context
from ritz.papers.papyan2020 import attributions, kronecker, layer_blocks, layer_figures, layer_numbers, layer_structure
from ritz.papers.papyan2020.layers import PRESETS
from ritz.papers.papyan2020.networks import Place
from ritz.papers.papyan2020.setting import NUM_CLASSES as C
from ritz.papers.papyan2020.setting import examples
from ritz.record import Record, plain
from ritz.risk import Risk
from ritz.spectrum import Spectrum
from tests.papers.singh2026.records import record_with

FIGURES = {**layer_figures.FIGURES, **kronecker.FIGURES, **attributions.FIGURES}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=list(FIGURES))
def test_a_figure_is_computed_judged_and_drawn(figure, computed):
    record = computed(figure)
    claims = figure.claims(record)
    named = [
        s
        for s in figure.statements
        if any(word in s.statement for word in ("CIFAR-10", "MNIST", "bulk is unaffected", "bulk attributed"))
        or s.where in ("Fig. 11", "Sec. 9.2")
    ]
    assert len(figure.statements) - len(named) <= len(claims) <= len(figure.statements)
    assert figure.draw(record).axes


def test_blocks_are_judged_by_several_seeds(shelf, tmp_path):
    figure = kronecker.FIGURES["papyan2020.fig11"]
    config = replace(figure.presets["smoke"], seeds=(0, 1))
    record = record_with(config, figure.run(config, Context(folder=tmp_path, shelf=shelf)))
    gaps = [kronecker.mini_bulk_gap(record, config.sets[0], seed, 1) for seed in config.seeds]
    assert min(gaps) >= 1 and len(set(gaps)) == len(gaps)
    assert figure.claims(record) and figure.draw(record).axes
    assert kronecker.draw_all(record).get_supxlabel() == "seed 0 of 2"


def test_blocks_of_which_all_eigenvalues_are_known_are_drawn(computed, monkeypatch):
    exact = Spectrum.of_eigenvalues(torch.logspace(-4, 0, 30))
    monkeypatch.setattr(kronecker, "spectrum_of", lambda record, prefix: exact)
    figure = kronecker.FIGURES["papyan2020.fig12"]
    assert figure.draw(computed(figure)).axes[0].lines


def test_a_seed_whose_nodes_end_above_the_main_bulk_says_nothing_of_it():
    lines = np.linspace(2.0, 1.0, 90)
    kept = {"mnist": (0.01, None), "cifar10": (1e-20, 1e-20)}  # the largest of the main bulk, by seed
    arrays = {}
    for data, bulks in kept.items():
        for seed, bulk in enumerate(bulks):
            prefix = f"{data}/{seed}/blocks/1/G"
            nodes = lines if bulk is None else np.append(lines, bulk)
            arrays |= {f"{prefix}/top": lines, f"{prefix}/nodes": nodes}
    config = {"sets": list(kept), "seeds": [0, 1], "piece": {"depth": 1}}
    record = Record("a figure", "smoke", config, {}, arrays)
    gaps = kronecker.at_layer(kronecker.mini_bulk_gap)(record)
    assert gaps == {"MNIST (1 of 2 seeds)": pytest.approx(100.0), "CIFAR-10": pytest.approx(2.0**22)}
    assert kronecker.at_layer(kronecker.bulk_reach)(record)["CIFAR-10"] == pytest.approx(2.0**-23)


def test_whiskers_of_errors_are_also_measured_to_one_end_in_all_layers():
    falling = np.geomspace(1.0, 0.5, C)
    rows = {1: falling * np.append(np.ones(C - 1), 0.01), 2: np.append(falling[:-1], 0.0)}
    config = {"sets": ["mnist"], "seeds": [0], "piece": {"depth": 2}}
    arrays = {f"mnist/0/structure/errors/{layer}/class": values for layer, values in rows.items()}
    record = Record("a figure", "smoke", config, {}, arrays)
    whisker = [layer_numbers.whisker("errors", last)(record, "mnist", 0, 1) for last in (C, C - 1)]
    assert whisker[0] > 50 * whisker[1]
    assert layer_numbers.whisker("errors")(record, "mnist", 0, 2) == pytest.approx(whisker[1])
    assert len(layer_numbers.whiskers("errors")(record)) == 2


def test_a_number_of_one_data_set_is_judged_without_the_others():
    known = lambda record, data, seed, layer: float(layer) if data == "mnist" else float("nan")
    depths = lambda record, data, seed, layer: float(layer)
    config = {"sets": ["mnist", "cifar10"], "seeds": [0], "piece": {"depth": 4}}
    record = Record("a figure", "smoke", config, {}, {})
    assert layer_numbers.together(known, depths)(record) == {"MNIST": pytest.approx(1.0)}
    assert layer_numbers.together(lambda *_: float("nan"), depths)(record) is None


@pytest.fixture(scope="module")
def risk():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=generator).double(), torch.arange(40) % C
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, C)).double().eval()
    return Risk(model, nn.CrossEntropyLoss(), [(x[:15], y[:15]), (x[15:], y[15:])]).restricted_to(
        ["0.weight", "3.weight"]
    )


@pytest.mark.parametrize("layer", ["0", "3"])
def test_a_block_is_that_of_the_gauss_newton_matrix(risk, layer):
    block = layer_blocks.rows(risk, layer).block.dense()
    torch.testing.assert_close(block, gauss_newton(risk.restricted_to(f"{layer}.weight")).dense())


def test_gradients_of_classes_with_one_example_are_products_of_means(risk):
    whole = layer_blocks.rows(risk, "0")
    one = layer_blocks.Rows("0", whole.features[:C], whole.errors[:, :C], whole.weights[:C], whole.labels[:C])
    errors = layer_blocks.mean_products(one)
    assert max(errors.values()) < 1e-12 and layer_blocks.mean_products(whole)["class"] > 0.1


def test_entries_of_table_1_are_medians_over_all_networks_of_a_data_set():
    config = {"sets": ["mnist", "cifar10"], "seeds": [0, 1, 2]}
    numbers = {"mnist/0": 1.0, "mnist/1": 5.0, "mnist/2": 2.0, "cifar10/0": 7.0, "cifar10/1": 0.0, "cifar10/2": 6.0}
    measured = attributions.of_networks(lambda _, network: numbers[network])
    assert measured(Record("a", "smoke", config, {}, {})) == {"MNIST": 2.0, "CIFAR-10": 6.0}


APART = {"features": 4, "errors": 5, "weights": 3}  # the first layer in which the paper has C outliers
CROSS = layer_numbers.CROSS


def curves(kind, layer, good):
    """Outliers, mini-bulk and bulk that the knockouts take away, or that they leave where they are."""
    lift, bulk = 3.0**layer if good else 3.0**-layer, np.geomspace(1.0, 0.1, 200)
    ratio = 2.0 + 0.5 / layer if good else 20.0 * layer
    means = 100 * lift * np.concatenate([[2 * ratio], np.geomspace(ratio, 1.0, C - 1)])
    mini = np.concatenate([np.geomspace(40, 30, 45), np.geomspace(4, 3, CROSS - 45)])  # a gap behind C(C - 1)/2
    mini = np.zeros(0) if kind != "errors" else mini if good else np.geomspace(1.45, 1.05, CROSS)
    top = means if good else np.full(C, 1.5)
    whole = descending(top, mini, bulk)
    off = np.append(descending(mini, bulk), np.zeros(C)) if good else lowered(whole, C)
    off = whole if good and layer < APART[kind] else off
    within = np.full(C, (1e4 if layer == 1 else 1.0) if good else (1e-3 if layer == 1 else 1e6))
    result = {"whole": whole, "off_class": off, "class": means, "within": within}
    if kind == "errors":
        none_left = np.append(bulk, np.zeros(len(whole) - len(bulk)))
        result["off_class_and_cross"] = none_left if good else lowered(off, CROSS)
        reached = good == (layer > 5)  # of the cross-class means the eigenvalues reach those of the whole
        result["class_and_cross"] = np.concatenate([means, whole[C : C + CROSS] * (1.0 if reached else 0.1)])
    return result


def descending(*groups):
    """All values, largest first."""
    return np.sort(np.concatenate(groups))[::-1]


def lowered(values, first):
    """The values with all but the first lowered, ever more and without a gap, to a third."""
    count = len(values) - first
    return values * np.concatenate([np.ones(first), np.geomspace(1.0, 1 / 3, 30), np.full(count - 30, 1 / 3)])


def layer_record(good):
    names, depth = ("mnist", "fashion_mnist", "cifar10"), 8
    config = plain(PRESETS["paper"]) | {"seeds": [0]}
    arrays, scalars = {}, {}
    for data in names:
        for layer in range(1, depth + 1):
            for kind in ("features", "errors", "weights"):
                prefix = f"{data}/0/structure/{kind}/{layer}"
                arrays |= {f"{prefix}/{name}": value for name, value in curves(kind, layer, good).items()}
                scalars[f"{prefix}/global_alignment"] = 0.99 if good else 0.01
                scalars[f"{prefix}/residual"] = 0.01 if good else 0.99
                scalars[f"{prefix}/linear_error"] = 0.5 / layer if good else 0.9
                scalars[f"{prefix}/mean_cosine"] = 0.5 / layer if good else 0.5 + 0.1 * (layer % 2)
            _blocks(arrays, scalars, f"{data}/0/blocks/{layer}", data, layer, good)
        _gram(arrays, data, good)
    return Record("", "smoke", config, scalars, arrays)


def _blocks(arrays, scalars, prefix, data, layer, good):
    """CFAC near G and KFAC far from it, or the other way round; in one layer the paper has CFAC as bad."""
    G = np.concatenate([np.full(C, 100.0), np.geomspace(5, 1, C * (C - 2))]) if good else np.geomspace(3, 1, 90)
    set_of = {"mnist": 1, "fashion_mnist": 2, "cifar10": 4}[data] if good else 1  # by which the gain differs
    near, far = 1.02 * G, G * (3.0 * set_of + 0.1 * layer) * (1.0 if good else np.where(np.arange(90) % 2, 3, 1))
    ours, theirs = (near, far) if good else (far, near)
    if layer == 2 and (data == "cifar10" or not good):
        ours, theirs = (far, 1.01 * far) if good else (near, far)
    arrays.update({f"{prefix}/G/top": G, f"{prefix}/CFAC/top": ours, f"{prefix}/KFAC/top": theirs})
    arrays[f"{prefix}/G/nodes"] = np.append(G, 1e-3 if good else 0.95)
    for name in ("class", "class, weighted", "cross"):
        scalars[f"{prefix}/products/{name}"] = 0.01 if good else 1.0


def _gram(arrays, data, good):
    spread, cross, means = (
        np.geomspace(0.5, 2, 300),
        np.geomspace(0.8, 1.2, C * (C - 2)) * (1e-3 if good else 1.0),
        np.full(C, 100.0),
    )
    lists = {"G": [means, cross, spread], "class": [cross, spread], "cross": [means, spread]}
    lists |= {"only_within": [spread if good else 10 * spread], "only_cross": [cross]}
    for name, values in lists.items():
        values = np.concatenate(values)
        arrays |= {f"{data}/0/gram/{name}/nodes": values, f"{data}/0/gram/{name}/counts": np.ones(len(values))}
    share = 0.95 if good else 0.05
    arrays[f"{data}/0/origins/H/shares/functional"] = np.concatenate([np.full(C, 1 - share), np.full(C, share)])
    for part in ("between_class", "own_class"):
        arrays[f"{data}/0/origins/G/shares/{part}"] = np.full(2 * C, share / 2)


EVERY = [pytest.param(s, id=f"{name} {i}") for name, f in FIGURES.items() for i, s in enumerate(f.statements)]


@pytest.mark.parametrize("statement", EVERY)
def test_every_statement_can_say_yes_and_no(statement):
    verdicts = [statement.claim(layer_record(good)).verdict for good in (True, False)]
    assert verdicts[0] == "yes" and verdicts[1] != "yes", (statement.statement, verdicts)


def test_a_bulk_beside_class_means_is_the_same_without_them_though_its_ranks_are_others():
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(60, 60, generator=generator).double()).Q
    means, rest = Q[:, :C] * torch.logspace(2, 1, C), Q[:, C:] * torch.logspace(0, -3, 50)
    A, P = means @ means.T + rest @ rest.T, Q[:, C:] @ Q[:, C:].T
    eigenvalues = lambda M: torch.linalg.eigvalsh(M).flip(0).clamp(min=0).numpy()
    arrays = {
        f"mnist/0/structure/features/1/{name}": eigenvalues(M) for name, M in (("whole", A), ("off_class", P @ A @ P))
    }
    record = Record("", "", plain(PRESETS["paper"]) | {"seeds": [0]}, {}, arrays)
    assert layer_numbers.bulk_change("features")(record, "mnist", 0, 1) < 1e-8
    assert layer_numbers.bulk_change("features", same_rank=True)(record, "mnist", 0, 1) > 0.5


def test_a_number_that_few_seeds_have_is_judged_by_these():
    known = lambda record, data, seed, layer: float(layer) if data == "mnist" or seed else float("nan")
    depths = lambda record, data, seed, layer: float(layer)
    config = {"sets": ["mnist", "cifar10"], "seeds": [0, 1, 2], "piece": {"depth": 4}}
    found = layer_numbers.together(known, depths)(Record("a figure", "smoke", config, {}, {}))
    assert found == {"MNIST": pytest.approx(1.0), "CIFAR-10 (2 of 3 seeds)": pytest.approx(1.0)}


def test_a_correlation_over_the_layers_is_that_of_each_network():
    numbers = {0: [9.0, 8.0, 1.0, 0.9, 0.8], 1: [9.0, 2.0, 1.9, 1.8, 1.7]}
    depths = lambda record, data, seed, layer: float(layer)
    wave = lambda record, data, seed, layer: numbers[seed][layer - 1] + (0.5 * layer if layer > 3 and seed else 0.0)
    config = {"sets": ["mnist"], "seeds": [0, 1], "piece": {"depth": 5}}
    record = Record("a figure", "smoke", config, {}, {})
    own = [
        layer_numbers.together(wave, depths)(Record("", "", config | {"seeds": [s]}, {}, {}))["MNIST"] for s in (0, 1)
    ]
    assert layer_numbers.together(wave, depths)(record)["MNIST"] == pytest.approx(np.mean(own))


def test_singular_values_of_the_size_of_rounding_are_no_bulk():
    record = layer_record(True)
    record.arrays.update({name: values.copy() for name, values in record.arrays.items()})  # as read from a file
    whole = np.concatenate([np.full(C, 5.0), np.full(50, 1.0), np.full(C, 1e-9)])
    off = np.concatenate([np.full(50, 1.0), np.full(2 * C, 1e-9)])
    for layer in range(1, 9):
        prefix = f"mnist/0/structure/weights/{layer}"
        record.arrays.update({f"{prefix}/whole": whole, f"{prefix}/off_class": off})
    assert layer_numbers.bulk_change("weights")(record, "mnist", 0, 7) == 0.0
    points = FIGURES["papyan2020.fig13"].draw(record).axes[6].lines[1:]
    assert sum(len(line.get_xdata()) for line in points) == 50


def test_where_the_knockout_leaves_no_bulk_nothing_is_said_of_it():
    record = layer_record(True)
    for name in [name for name in record.arrays if name.endswith("off_class")]:
        record.arrays[name] = np.zeros_like(record.arrays[name])
    said = [s for f in FIGURES.values() for s in f.statements if "bulk is unaffected by" in s.statement]
    assert len(said) == 3 and all(statement.claim(record) is None for statement in said)
    entry = next(s for s in FIGURES["papyan2020.table1"].statements if "H_within" in s.statement)
    assert entry.claim(record) is None and FIGURES["papyan2020.table1"].draw(record).axes


def test_spectra_of_products_keep_their_trace():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, C, bias=False)).double()
    x, y = torch.randn(30, 6).double(), torch.arange(30) % C
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    layer = kfac(risk).layers["0"]
    ours = layer_blocks._product_spectrum(layer)
    assert float((ours["nodes"] * ours["counts"]).sum()) == pytest.approx(float(layer.operator.dense().trace()))


def test_a_mini_bulk_far_below_the_largest_line_is_found_as_exactly():
    lines = layer_blocks.LINES
    values = torch.cat([torch.ones(1), torch.logspace(-2.5, -3.5, lines - 1), torch.logspace(-3.6, -6, 1500)])
    values = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(0))]
    A = Operator(lambda V: values[:, None] * V, len(values), values.dtype, values.device)
    top = layer_blocks._spectrum(A, layer_blocks.Blocks(PRESETS["smoke"].piece, num_steps=20))["top"]
    torch.testing.assert_close(top, values.double().sort(descending=True).values[:lines], rtol=1e-3, atol=0)


def test_the_error_of_a_linear_classifier_is_that_of_least_squares(computed, shelf):
    piece, place = PRESETS["smoke"].piece, Place(torch.device("cpu"), None, shelf)
    risk, _ = layer_structure.weights_risk(layer_structure.Layers(piece), place)
    errors = layer_structure.linear_errors(layer_structure.Layers(piece), risk.model, place)
    train, test = (examples(piece, part, None, place.device) for part in ("train", "test"))
    X, Z = (torch.cat([x.double(), torch.ones(len(x), 1)], 1) for x in (train.x, test.x))
    W = torch.linalg.lstsq(X, torch.eye(C, dtype=torch.float64)[train.y], driver="gelsd", rcond=1e-9).solution
    assert errors[0] == pytest.approx(float(((Z @ W).argmax(1) != test.y).float().mean()), abs=0.05)
    assert len(errors) == piece.depth and not any(module._forward_pre_hooks for module in risk.model.modules())


def test_the_cosine_over_all_layers_is_no_less_than_the_worst_layer_allows():
    generator = torch.Generator().manual_seed(0)
    config = {"sets": ["mnist"], "seeds": [0], "piece": {"depth": 3}}
    for noise in (0.1, 0.5, 3.0):
        g = [torch.randn(90, 5 * layer, generator=generator).double() for layer in (1, 2, 3)]
        ours = [rows + noise / layer * torch.randn(rows.shape, generator=generator) for layer, rows in enumerate(g, 1)]
        errors = {layer: float((a - b).norm() / a.norm()) for layer, (a, b) in enumerate(zip(g, ours, strict=True), 1)}
        scalars = {f"mnist/0/blocks/{layer}/products/cross": error for layer, error in errors.items()}
        bound = kronecker.whole_cosine(Record("", "", config, scalars, {}))["MNIST"]
        a, b = torch.cat(g, 1), torch.cat(ours, 1)
        assert bound <= float((a * b).sum() / (a.norm() * b.norm()))
        assert bound == pytest.approx(max(1 - max(errors.values()) ** 2, 0) ** 0.5)


def test_a_table_of_medians_says_over_how_many_seeds():
    record = layer_record(True)
    several = Record("", "", record.config | {"seeds": [0, 1, 2]}, {}, {})
    assert attributions._legend(record) == "numbers: MNIST, Fashion-MNIST, CIFAR-10; [verdict]"
    assert "medians over 3 seeds (changes of a bulk: seed 0)" in attributions._legend(several)
