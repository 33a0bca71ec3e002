"""Attention and GPT in Singh et al. (2026): every figure at its smallest, what they compute, and rules that say no."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, jacfwd, jacrev
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ritz import CrossEntropy, Risk
from ritz.errors import ArgumentError, FileError
from ritz.lab import ensemble
from ritz.lab.models import gpt as gpt_model
from ritz.lab.models import self_attention
from ritz.papers.frame.figure import Context
from ritz.papers.singh2026 import (
    attention,
    attention_sinks,
    edge,
    gpt,
    gpt_sinks,
    pretraining,
    stability,
)
from ritz.papers.singh2026.paper import BEYOND, PAPER
from ritz.record import Record, plain
from ritz.theory.attention import attention_bounds
from ritz.theory.attention import self_attention as closed_form

MODULES = (attention, attention_sinks, stability, gpt, gpt_sinks)
FIGURES = {name: figure for module in MODULES for name, figure in module.FIGURES.items()}
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")


def record_of(config, found):
    arrays = {name: np.asarray(value) for name, value in found.items() if isinstance(value, np.ndarray | torch.Tensor)}
    scalars = {name: value for name, value in found.items() if name not in arrays}
    return Record("", "smoke", plain(config), scalars, arrays, (), {})


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """The record of each computation at preset "smoke", computed when it is first asked for."""
    kept = {}

    def of(figure):
        if figure.shared not in kept:
            folder = tmp_path_factory.mktemp("cache")
            config = figure.presets["smoke"]
            kept[figure.shared] = record_of(config, figure.run(config, Context(folder=folder)))
        return kept[figure.shared]

    return of


# every figure


def test_the_figures_are_those_of_the_paper():
    names = ["fig2a", "fig2b", "fig2c", "fig5", "fig6", "fig9", "fig23", "fig24", "fig25", "fig27"]
    assert sorted(FIGURES) == sorted(f"singh2026.{name}" for name in names)
    assert all(set(figure.presets) == {"paper", "laptop", "smoke"} for figure in FIGURES.values())


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_computed_drawn_and_judged(name, computed, tmp_path):
    figure = FIGURES[name]
    record = computed(figure)
    figure.draw(record).savefig(tmp_path / "figure.png", format="png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    claims = figure.judged(record)
    assert claims and all(claim.why for claim in claims if claim.verdict != "yes")
    assert {claim.paper for claim in claims} <= {PAPER, BEYOND}


# one head of self-attention


def test_what_repeats_is_told_from_what_does_not():
    values = torch.tensor([3.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0 + 1e-12, 0.5, 0.5], dtype=torch.float64)
    bulk, copies, rest = attention.repeated(values)
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
    assert np.allclose(record.arrays["measured_outliers"], record.arrays["outliers"][0, at], atol=1e-12)


def test_the_bulk_of_a_head_of_vectors_is_the_slope_of_the_loss_in_the_product_of_query_and_key():
    config = replace(attention_sinks.FIGURES["singh2026.fig9"].presets["smoke"], num_draws=1)
    point = attention_sinks.Point(config, bias=1.5, draw=0)
    found = attention_sinks.spectrum_at(point, device=CPU)
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


# the edge of stability


@pytest.mark.parametrize("name", ["gaussians-half", "standardised-mse"])
def test_what_is_observed_of_a_head_agrees_with_its_closed_form(name):
    reading, generator = stability.READINGS[name], torch.Generator().manual_seed(1)
    heads = [self_attention(2, generator=generator, deviation=1.0, dtype=torch.float64) for _ in range(3)]
    x = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64)
    y = x.flip(2)[..., None]
    found = stability.observed(ensemble.Ensemble.of(heads), x, y, reading.loss)
    for i, head in enumerate(heads):
        w_v, w_q, w_k = (parameter.detach() for parameter in head.parameters())
        values = reading.scale * closed_form(w_q[0], w_k[0], w_v[0, 0], x[i], y[i, ..., 0]).eigenvalues()
        assert float(found["sharpness"][i]) == pytest.approx(float(values.max()))
        assert float(found["trace"][i]) == pytest.approx(float(values.sum()))
        apart = (head(x[i]) - y[i]).detach()
        assert float(found["residual"][i]) == pytest.approx(float(apart.norm()))
        assert float(found["losses"][i]) == pytest.approx(reading.scale * float(apart.square().mean()) / 2)
    inside = stability._inside(ensemble.Ensemble.of(heads), x, y, reading)
    bounds = [
        attention_bounds(head.w_q.detach()[0], head.w_k.detach()[0], head.w_v.item(), x[i], y[i, ..., 0])
        for i, head in enumerate(heads)
    ]
    tops = found["sharpness"] / reading.scale
    assert inside.tolist() == [
        b.largest_outlier[0] <= top <= b.largest_outlier[1] for b, top in zip(bounds, tops, strict=True)
    ]


def test_a_reading_that_there_is_not_is_refused():
    with pytest.raises(ArgumentError, match="standardised-mse"):
        stability.run(stability.Config(readings=("signs",)), Context())


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    config = stability.Config(readings=("signs-half",), factors=(1.0,), num_draws=2, num_steps=12)
    whole, train, epochs = stability.run(config, Context()), ensemble.train, []

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
        stability.run(config, Context(folder=tmp_path))
    monkeypatch.setattr(ensemble, "train", watched)
    again = stability.run(config, Context(folder=tmp_path))
    assert epochs == [11, 12]
    assert all(np.array_equal(whole[name], again[name], equal_nan=True) for name in whole)


# tokens


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
    pretraining._check_tokens(stream, config)  # a glance does not see it
    with pytest.raises(FileError, match="from 0 to 11"):
        pretraining.sequences(stream, 50, 7, torch.Generator().manual_seed(0), vocabulary=config.vocabulary)


@pytest.mark.parametrize("name", ["fig5", "fig6"])
def test_a_file_of_tokens_that_would_not_be_read_is_refused(name):
    figure = FIGURES[f"singh2026.{name}"]
    with pytest.raises(ArgumentError, match="corpus=shakespeare"):
        figure.run(replace(figure.presets["laptop"], tokens="train.bin"), Context())


def test_gpt2_is_not_given_characters():
    figure = FIGURES["singh2026.fig6"]
    with pytest.raises(ArgumentError, match="characters"):
        figure.run(replace(figure.presets["laptop"], weights="model.safetensors"), Context())


def test_gpt2_is_not_given_tokens_that_only_a_rounded_vocabulary_has(tmp_path):
    (tmp_path / "model.safetensors").touch()
    np.full(2000, 50_300, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    config = gpt_sinks.Config(tokens=str(tmp_path / "tokens.bin"), weights=str(tmp_path / "model.safetensors"))
    with pytest.raises(FileError, match="from 0 to 50256"):
        gpt_sinks.run(config, Context())


def test_what_the_paper_presets_need_is_asked_for_before_the_work():
    for name, words in (("fig5", "--set tokens="), ("fig6", "--set tokens=")):
        figure = FIGURES[f"singh2026.{name}"]
        with pytest.raises(ArgumentError, match=words):
            figure.run(figure.presets["paper"], Context())
    with pytest.raises(FileError, match=r"missing\.bin cannot be read"):
        gpt.run(pretraining.Config(tokens="missing.bin"), Context())


def test_the_weights_of_gpt2_are_asked_for_before_the_work(tmp_path):
    np.arange(2000, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    config = gpt_sinks.Config(tokens=str(tmp_path / "tokens.bin"))
    with pytest.raises(ArgumentError, match="--set weights="):
        gpt_sinks.run(config, Context())
    with pytest.raises(FileError, match="is no file"):
        gpt_sinks.run(replace(config, weights="nowhere.safetensors"), Context())


# training and measuring a GPT


def tiny_gpt(seed=0, **changed):
    config = pretraining.architecture(replace(pretraining.TINY, **changed), attention=True)
    return gpt_model(config, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def test_a_long_cosine_has_hardly_begun():
    schedule = pretraining.Stretched(pretraining.Cosine(2000), 600_000)
    start = pretraining.Pace.start(torch.tensor(math.inf))
    factors = [
        float(schedule.after(start, torch.tensor(1.0), epoch=e, num_epochs=10_000).factor) for e in (0, 2000, 9999)
    ]
    assert factors[0] == pytest.approx(1 / 2001) and factors[1] == 1 and 0.999 < factors[2] < 1


def test_the_residual_of_a_model_that_knows_nothing():
    class Nothing(torch.nn.Module):
        def forward(self, x):
            return torch.zeros(*x.shape, 4)

    x = torch.zeros(2, 3, dtype=torch.long)
    assert gpt.residual_norm(Nothing(), x, x) == pytest.approx(math.sqrt(0.75**2 + 3 * 0.25**2))


def test_both_sharpnesses_are_those_of_dense_matrices():
    model = tiny_gpt(vocabulary=5, context=4, width=4).requires_grad_(True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    rows = torch.randint(5, (3, 5), generator=torch.Generator().manual_seed(2))
    x, y = rows[:, :-1], rows[:, 1:]
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    theta = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    def logits(theta):
        pieces = theta.split([shape.numel() for shape in shapes.values()])
        values = {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        return functional_call(model, values, (x,)).flatten(0, 1)

    with sdpa_kernel(SDPBackend.MATH):  # no other has second derivatives
        H = jacfwd(grad(lambda theta: F.cross_entropy(logits(theta), y.flatten())))(theta)
        J = jacrev(logits)(theta)
    p = logits(theta).softmax(-1).detach()
    G = torch.einsum("tcn,tcd,tdm->nm", J, torch.diag_embed(p) - p[:, :, None] * p[:, None, :], J) / len(p)
    found = gpt.measured(model, rows, tolerance=1e-8, basis_size=100)
    assert found["hessian"] == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-6)
    assert found["gauss_newton"] == pytest.approx(float(torch.linalg.eigvalsh(G.detach())[-1]), rel=1e-6)
    assert found["converged"] == 1 and max(found["hessian_residual"], found["gauss_newton_residual"]) < 1e-6


def test_a_model_that_was_measured_leaves_no_checkpoint(tmp_path):
    config = replace(gpt_sinks.FIGURES["singh2026.fig6"].presets["smoke"], num_steps=2, targets=(), num_products=2)
    found = gpt_sinks.sinking(gpt_sinks.Task(config, 0), device=CPU, data_dir=None, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    size, atoms = found["num_parameters"], np.isin(found["nodes"][0, 0], found["top"][0])
    assert np.allclose(found["weights"][0, 0][atoms], 1 / size) and atoms.sum() == 2  # counted, not seen by chance


def test_a_diverged_model_is_measured_as_nothing():
    model = tiny_gpt()
    with torch.no_grad():
        model.tokens.weight.fill_(torch.nan)
    found = gpt.measured(model, torch.zeros(1, 3, dtype=torch.long), tolerance=1e-2, basis_size=10)
    assert all(math.isnan(value) for value in found.values())


def pretrained(error, *, residual=None, sizes=(100, 100), missed=0.0):
    """A record of both models whose relative errors are given: models × seeds × checkpoints.

    The eigenvalues are missed by so much, relative to them.
    """
    error = np.asarray(error, dtype=float)
    residual = np.broadcast_to(np.linspace(1.0, 0.1, error.shape[-1]), error.shape) if residual is None else residual
    arrays = {"residual": residual, "batch_loss": 3 * residual, "hessian": np.ones_like(error)}
    arrays |= {"gauss_newton": 1 - error, "steps": np.arange(error.shape[-1])}
    arrays |= {f"{name}_residual": missed * np.abs(arrays[name]) for name in ("hessian", "gauss_newton")}
    arrays["converged"] = np.full_like(error, float(missed < 1e-3))
    config = replace(pretraining.TINY, seeds=tuple(range(error.shape[1])))
    return record_of(config, {**arrays, "num_parameters": list(sizes)})


def test_runs_are_compared_where_both_have_been():
    residual = np.array([[[9, 0.8, 0.6, 0.2]], [[9, 0.7, 0.3, 0.1]]])
    grid, curves = gpt.interpolated(pretrained(residual / 10, residual=residual), "residual")
    assert (grid[0], grid[-1]) == (0.2, 0.7)  # what came before training is left out
    assert np.allclose(curves[0, 0], grid / 10) and np.allclose(curves[1, 0], grid / 10)


def test_runs_that_never_meet_are_not_compared():
    residual = np.array([[[9, 0.8, 0.6]], [[9, 0.3, 0.1]]])
    record = pretrained(residual / 10, residual=residual)
    assert len(gpt.interpolated(record, "residual")[0]) == 0
    assert FIGURES["singh2026.fig5"].judged(record)[0].verdict == "no"


# rules: on data that agree with the paper, and on data that contradict it in everything

STEPS = np.linspace(0.1, 0.9, 8)
GRID = np.arange(5.0)


def heads(varied, **arrays):
    """A record of Fig. 2 with the same rows for three draws."""
    rows = {name: np.tile(np.asarray(row, dtype=float), (3, *[1] * np.ndim(row))) for name, row in arrays.items()}
    measured = {"measured_copies": np.array([7, 7]), "measured_error": np.array([1e-14, 1e-13])}
    return record_of(attention.Config(varied, (0.0,), key_size=8), {"grid": GRID, **rows, **measured})


def norms(bulk, top, kappa, bound, copies=7):
    record = heads("query and key", bulk=bulk, sharpness=top, condition=kappa, condition_bound=bound)
    return replace(record, arrays={**record.arrays, "measured_copies": np.array([7, copies])})


def sunk(bulk, top, kappa, moments):
    return heads("sink", bulk=bulk, sharpness=top, condition=kappa, moments=moments)


UP, DOWN, FLAT = 2.0**GRID, 0.2**GRID, np.ones(5)
MOMENTS = np.stack([UP, DOWN, DOWN], 1)


def vectors(bulk, outliers):
    rows = {"bulk": np.tile(bulk[:, None], (2, 1, 3)), "outliers": np.tile(outliers[:, None], (2, 1, 4))}
    return record_of(attention_sinks.Config(), {"biases": GRID, **rows})


def trained_heads(agree):
    """Sharpness that rises to 2/η = 1 and hovers there, or one that gets there and does nothing of what is said."""
    t, before = np.arange(400), 40
    late, sign = np.clip(t - before, 0, None), np.where(t % 2 == 0, 1.0, -1.0)
    fade = np.exp(-late / 50)
    if agree:
        rise = np.clip(t / before, 0, 1)
        sharpness = np.where(t < before, 0.1 + 0.88 * rise, 1 + 0.1 * sign * fade)
        trace = np.where(t < before, rise, 1 - 0.1 * sign * fade)
        losses = np.where(t < before, 1.0, 0.5 * fade * (1 + 0.2 * sign))
        residual, grows = fade, rise + 0.01 * t
    else:
        sharpness = np.where(t < before, 0.9 - t / 100 + 0.01 * sign, 2 + 0.001 * late * sign)
        trace = np.where(t < before, t, 2 + 0.001 * late * sign)
        losses, residual, grows = np.ones(400), fade, -t
    series = dict.fromkeys(stability.NORMS, grows) | {"losses": losses, "sharpness": sharpness, "trace": trace}
    return tiled(series | {"residual": residual}, inside=agree)


def tiled(series, inside=True):
    """The same series for thirty draws at one rate."""
    rows = {name: np.tile(row, (1, 30, 1)).astype(float) for name, row in series.items()}
    return rows | {"inside_bounds": np.full((1, 30, 4), float(inside))}


def edge_record(*readings):
    """The record of as many readings as series are given, at η = 2."""
    names = tuple(stability.READINGS)[: len(readings)]
    config = stability.Config(learning_rate=2.0, factors=(1.0,), readings=names, num_draws=30)
    kept = [stability.summary(series, np.array([2.0]), 2.0) for series in readings]
    stacked = {name: np.stack([one[name] for one in kept]) for name in kept[0]}
    return record_of(config, {"rates": np.array([2.0]), **stacked})


def sinking(top, near_zero, first=0.32, missed=0.0):
    """A record with one row of ends of the spectrum for each seed, without and with a sink; all missed by so much."""
    nodes = np.tile(np.array([0.0, 5.0]), (len(top), 2, 1, 1))
    weights = np.tile(np.array([near_zero, 1 - near_zero]), (len(top), 2, 1, 1))
    arrays = {"top": np.array(top, dtype=float), "nodes": nodes, "weights": weights}
    arrays["top_residuals"] = np.full_like(arrays["top"], missed)
    config = gpt_sinks.Config(weights="given", seeds=tuple(range(len(top))))
    return record_of(config, {**arrays, "attention": np.array([[first, 0.81]] * len(top))})


def errors(attention_errors, twin_errors):
    return np.array([[attention_errors] * 2, [twin_errors] * 2])


AGREE = {
    "fig2a": norms(FLAT, UP, UP, 0.5 * UP),
    "fig2b": heads("value", bulk=UP, sharpness=UP, condition=[3, 1, 2, 1, 3]),
    "fig2c": sunk(DOWN, UP, UP, MOMENTS),
    "fig9": vectors(DOWN, UP),
    "fig27": edge_record(trained_heads(True)),
    "fig5": pretrained(errors([0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2])),
    "fig23": pretrained(errors([0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2])),
    "fig24": pretrained(errors([0.1, *STEPS], [0.2, *STEPS / 2])),
    "fig25": pretrained(errors([0.5, *STEPS[::-1], 0.01], [0.5, *STEPS[::-1], 0.01])),
    "fig6": sinking([[[4, 3, -1, -0.5], [8, 6, -2, -1]]], 0.99),
}
CONTRADICT = {
    "fig2a": norms(UP, FLAT, DOWN, 2 * DOWN, copies=5),
    "fig2b": heads("value", bulk=FLAT, sharpness=FLAT, condition=UP),
    "fig2c": sunk(UP, DOWN, DOWN, 1 / MOMENTS),
    "fig9": vectors(UP, DOWN),
    "fig27": edge_record(trained_heads(False)),
    "fig5": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS]), missed=0.02),
    "fig23": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS])),
    "fig24": pretrained(errors([0.4, *STEPS / 2], [0.2, *STEPS])),
    "fig25": pretrained(errors(STEPS, STEPS), sizes=(100, 130)),
    "fig6": sinking([[[8, 6, -2, -1], [4, 3, -1, -0.5]]], 0.2, first=0.7, missed=0.5),
}


def rules(records, verdict):
    for name, record in records.items():
        for number, claim in enumerate(FIGURES[f"singh2026.{name}"].judged(record)):
            if (name, number, verdict) == ("fig27", 0, "no"):
                continue  # a head that never gets to the edge can contradict nothing else: it has its own test
            yield pytest.param(claim, verdict, id=f"{name}-{number}")


@pytest.mark.parametrize("claim, verdict", [*rules(AGREE, "yes"), *rules(CONTRADICT, "no")])
def test_a_rule_says_what_the_data_say(claim, verdict):
    assert claim.verdict == verdict, f"{claim.statement}: {claim.measured}"
    assert claim.why if verdict == "no" else not claim.why


def test_contradiction_is_tried_on_every_figure():
    assert {f"singh2026.{name}" for name in CONTRADICT} == set(FIGURES) == {f"singh2026.{name}" for name in AGREE}


def test_a_seed_in_which_sinks_shrink_the_sharpness_is_not_hidden_by_another():
    without, with_sink = [4, 3, -1, -0.5], [8, 6, -2, -1]
    claims = FIGURES["singh2026.fig6"].judged(sinking([[without, with_sink], [with_sink, without]], 0.99))
    assert [claim.verdict for claim in claims[:3]] == ["partly"] * 3
    assert all("seed 1, sink 0.81" in claim.why and "seed 0" not in claim.why for claim in claims[:3])


def test_the_mean_over_the_runs_is_judged_apart_from_each_of_them():
    worse, better = [0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2]
    record = pretrained(np.array([[worse, worse, better], [better, better, worse]]))
    mean, single = FIGURES["singh2026.fig24"].judged(record)
    assert mean.verdict == "yes" and single.verdict == "partly" and "seed 2" in single.why
    assert mean.paper == PAPER and single.paper == BEYOND


def test_one_eigenvalue_of_many_that_was_missed_is_not_hidden():
    record = pretrained(errors([0.1, *STEPS], [0.2, *STEPS]))
    record.arrays["gauss_newton_residual"][1, 0, 3] = 0.005 * abs(record.arrays["gauss_newton"][1, 0, 3])
    found = FIGURES["singh2026.fig5"].judged(record)[-1]
    assert found.verdict == "partly" and found.measured["without attention, G"] == pytest.approx(0.005)
    assert "Not so, or not wholly: without attention, G." in found.why and "negative" in found.why  # it has converged
    record.arrays["hessian_residual"][:], record.arrays["converged"][0, 0, :2] = np.nan, 0
    found = FIGURES["singh2026.fig5"].judged(record)[-1]
    assert list(found.measured) == ["with attention, G", "without attention, G"] and "2 searches" in found.why
    record.arrays["gauss_newton_residual"][:] = np.nan
    found = FIGURES["singh2026.fig5"].judged(record)[-1]
    assert (found.verdict, found.measured) == ("no", {}) and "No network was left" in found.why


def test_residuals_of_both_ends_of_a_spectrum_are_told_by_its_largest_eigenvalue():
    ends = [[[4, 3, -1, -0.5], [8, 6, -2, -1]]]
    record = sinking([*ends, *ends], 0.99)
    record.arrays["top_residuals"][1, 1, 3] = 0.04
    found = FIGURES["singh2026.fig6"].judged(record)[-1]
    assert found.measured == {"seed 0": 0, "seed 1": pytest.approx(0.005)} and found.paper == BEYOND
    assert found.verdict == "partly" and "seed 1" in found.why


def test_a_run_that_diverges_before_its_first_checkpoint_was_measured_at_its_start():
    config = replace(pretraining.TINY, learning_rate=1e30, warmup=0)
    found = gpt.measured_run(gpt.Task(config, True, 0), device=CPU, data_dir=None, folder=None)
    columns = np.array([found[name] for name in gpt.MEASURED])
    assert np.isfinite(columns[:, 0]).all() and np.isnan(columns[:, -1]).all()


def idle():
    return tiled({name: np.full(400, 0.3) for name in stability.NOTED})


def test_where_no_head_reaches_the_edge_everything_said_of_it_is_wrong():
    claims = FIGURES["singh2026.fig27"].judged(edge_record(idle(), idle()))
    assert {claim.verdict for claim in claims[:-1]} == {"no"}  # the bounds hold wherever it is
    assert all("half of the draws" in claim.why for claim in claims[1:-1])
    assert "of 30 draws 30 below 2/η throughout" in claims[0].why


def test_a_reading_that_never_reaches_the_edge_is_named_and_not_asked_what_happens_there():
    reached, *others = FIGURES["singh2026.fig27"].judged(edge_record(trained_heads(True), idle()))
    assert reached.verdict == "partly" and list(reached.measured.values()) == [1, 0]
    assert {claim.verdict for claim in others} == {"yes"}
    assert list(others[1].measured.values()) == [1, "0 of 30 draws"]
    assert next(iter(others[1].measured)).endswith("(30 draws)")


def test_a_reading_is_not_judged_by_its_exceptions():
    series, exceptions = idle(), trained_heads(True)
    for name in stability.NOTED:
        series[name][:, :14] = exceptions[name][:, :14]
    claims = FIGURES["singh2026.fig27"].judged(edge_record(series))
    assert claims[0].verdict == "partly" and claims[0].measured == {"x = (1, -1), ½MSE": pytest.approx(14 / 30)}
    assert {claim.verdict for claim in claims[1:-1]} == {"no"}


def climbing(**changed):
    return {name: np.linspace(0.1, 2.0, 400) for name in stability.NOTED} | changed


def test_what_became_of_a_head_is_told():
    t = np.arange(400)
    names = ("first_step", "started_above", "diverged", "reached")
    cases = {
        "reached": (climbing(), (190, 0, 0, 1)),
        "never": (climbing(sharpness=np.full(400, 0.5)), (math.nan, 0, 0, 0)),
        "above from the start": (climbing(sharpness=np.full(400, 1.5)), (0, 1, 0, 0)),
        "no number": (climbing(losses=np.where(t > 300, np.nan, 1.0)), (190, 0, 1, 0)),
        "blown up": (climbing(losses=np.where(t > 300, 2000.0, 1.0)), (190, 0, 1, 0)),
    }
    for case, (series, expected) in cases.items():
        found = edge.measures(series, 1.0)
        assert [found[name] for name in names] == pytest.approx(list(expected), nan_ok=True), case
        assert math.isnan(found["level"]) == (case != "reached"), case


def test_a_head_that_reaches_the_edge_at_the_end_has_risen_to_it():
    found = edge.measures(climbing(sharpness=np.arange(400) / 390), 1.0)
    assert found["reached"] == found["rising"] == 1 and math.isnan(found["level"])


def test_the_level_of_a_cycle_of_two_does_not_depend_on_when_one_stops():
    for steps in (400, 401):
        t = np.arange(steps)
        sharpness = np.where(t < 40, t / 40, np.where(t % 2 == 0, 1.2, 0.6))
        series = {name: np.ones(steps) for name in stability.NOTED} | {"sharpness": sharpness}
        assert edge.measures(series, 1.0)["level"] == pytest.approx(0.9)


def stayed(amplitude, residual):
    """A head at the edge, with the amplitude and the residual of each step."""
    sign = np.where(np.arange(len(amplitude)) % 2 == 0, 1.0, -1.0)
    return edge.Stay({"sharpness": 1 + amplitude * sign, "residual": residual}, 1.0)


def test_an_amplitude_that_rises_with_the_residual_does_not_fall_with_it():
    grows = np.linspace(0.1, 0.2, 200)
    assert stayed(grows, grows).damping() == pytest.approx(-1)
    assert stayed(grows[::-1], grows).damping() == pytest.approx(-1)
    assert stayed(grows[::-1], grows[::-1]).damping() == pytest.approx(1)
    assert stayed(grows, grows).shrinking() > 1.5 and stayed(grows[::-1], grows).shrinking() < 0.6


def test_rounding_on_a_cycle_of_two_is_no_damping():
    random = np.random.default_rng(0)
    fades = 1 + np.concatenate([0.1 * 0.9 ** np.arange(60), np.zeros(940)])
    falls = np.sort(1e-10 * random.random(1000))[::-1]
    assert stayed(0.2 + falls, 1 + falls).damping() == 0
    assert stayed(0.2 * fades + falls, 2 - fades - falls).damping() == pytest.approx(-1)  # while the cycle sets in


def test_a_head_that_diverged_says_nothing_of_the_bounds():
    rows = tiled(climbing())
    rows["inside_bounds"][:, :29] = np.nan
    assert list(FIGURES["singh2026.fig27"].judged(edge_record(rows))[-1].measured.values()) == [1]
    losses = np.ones((1, 2, 13))
    losses[0, 1, 5:] = np.nan
    assert stability._lost(losses, 12).tolist() == [[[False] * 4, [False, False, True, True]]]
