"""Figs. 5 and 23-25: both sharpnesses of a GPT, and rules that say no."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, jacfwd, jacrev
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ritz.errors import ArgumentError, FileError
from ritz.papers.frame.figure import Context
from ritz.papers.singh2026 import gpt, gpt_sharpness, pretraining
from ritz.papers.singh2026.paper import BEYOND, PAPER

from .records import FIGURES, STEPS, errors, pretrained, tiny_gpt

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")


def test_what_the_paper_presets_need_is_asked_for_before_the_work():
    for name, words in (("fig5", "--set tokens="), ("fig6", "--set tokens=")):
        figure = FIGURES[f"singh2026.{name}"]
        with pytest.raises(ArgumentError, match=words):
            figure.run(figure.presets["printed"], Context())
    with pytest.raises(FileError, match=r"missing\.bin cannot be read"):
        gpt_sharpness.run(pretraining.Config(tokens="missing.bin"), Context())


def test_the_residual_of_a_model_that_knows_nothing():
    class Nothing(torch.nn.Module):
        def forward(self, x):
            return torch.zeros(*x.shape, 4)

    x = torch.zeros(2, 3, dtype=torch.long)
    assert gpt_sharpness.residual_norm(Nothing(), x, x) == pytest.approx(math.sqrt(0.75**2 + 3 * 0.25**2))


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
    found = gpt_sharpness.measurements(model, rows, tolerance=1e-8, basis_size=100)
    assert found["hessian"] == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-6)
    assert found["gauss_newton"] == pytest.approx(float(torch.linalg.eigvalsh(G.detach())[-1]), rel=1e-6)
    difference = torch.linalg.matrix_norm((H - G).detach(), 2)
    assert found["difference"] == pytest.approx(float(difference), rel=1e-3)  # by its own, looser tolerance
    assert found["converged"] == 1 and max(found["hessian_residual"], found["gauss_newton_residual"]) < 1e-6


def test_a_diverged_model_is_measured_as_nothing():
    model = tiny_gpt()
    with torch.no_grad():
        model.tokens.weight.fill_(torch.nan)
    found = gpt_sharpness.measurements(model, torch.zeros(1, 3, dtype=torch.long), tolerance=1e-2, basis_size=10)
    assert all(math.isnan(value) for value in found.values())


def test_runs_are_compared_where_both_have_been():
    residual = np.array([[[9, 0.8, 0.6, 0.2]], [[9, 0.7, 0.3, 0.1]]])
    grid, curves = gpt.common_curves(pretrained(residual / 10, residual=residual), "residual")
    assert (grid[0], grid[-1]) == (0.2, 0.7)  # what came before training is left out
    assert np.allclose(curves[0, 0], grid / 10) and np.allclose(curves[1, 0], grid / 10)


def test_runs_that_never_meet_are_not_compared():
    residual = np.array([[[9, 0.8, 0.6]], [[9, 0.3, 0.1]]])
    record = pretrained(residual / 10, residual=residual)
    assert len(gpt.common_curves(record, "residual")[0]) == 0
    assert FIGURES["singh2026.fig5"].claims(record)[0].verdict == "no"


def test_the_mean_over_the_runs_is_judged_apart_from_each_of_them():
    worse, better = [0.1, *STEPS[::-1]], [0.2, *STEPS[::-1] / 2]
    record = pretrained(np.array([[worse, worse, better], [better, better, worse]]))
    mean, single = FIGURES["singh2026.fig23"].claims(record)
    assert mean.verdict == "yes" and single.verdict == "partly" and "seed 2" in single.why
    assert mean.paper == PAPER and single.paper == BEYOND


def test_models_are_compared_step_by_step_too():
    """A model that learns faster has small losses early: at one step it may be worse, at one loss better."""
    residual = np.array([[[1.0, 0.2, 0.1, 0.05]], [[1.0, 0.8, 0.4, 0.2]]])
    error = np.array([[[0.1, 0.4, 0.3, 0.2]], [[0.2, 0.1, 0.1, 0.1]]])
    record = pretrained(error, residual=residual)
    by_step, by_seed, _ = FIGURES["singh2026.fig25"].claims(record)
    assert (by_step.verdict, by_step.measured, by_seed.measured) == ("yes", 1.0, {"seed 0": 1.0})
    swapped = pretrained(error[::-1], residual=residual[::-1])
    assert FIGURES["singh2026.fig25"].claims(swapped)[0].measured == 0.0


def test_one_eigenvalue_of_many_that_was_missed_is_not_hidden():
    record = pretrained(errors([0.1, *STEPS], [0.2, *STEPS]))
    record.arrays["gauss_newton_residual"][1, 0, 3] = 0.005 * abs(record.arrays["gauss_newton"][1, 0, 3])
    found = FIGURES["singh2026.fig5"].claims(record)[-1]
    assert found.verdict == "partly" and found.measured["without attention, G"] == pytest.approx(0.005)
    assert "without attention, G at 0.005" in found.why and "negative" in found.why  # it has converged
    record.arrays["hessian_residual"][:], record.arrays["converged"][0, 0, :2] = np.nan, 0
    found = FIGURES["singh2026.fig5"].claims(record)[-1]
    assert list(found.measured) == ["with attention, G", "without attention, G"] and "2 searches" in found.why
    record.arrays["gauss_newton_residual"][:] = np.nan
    found = FIGURES["singh2026.fig5"].claims(record)[-1]
    assert (found.verdict, found.measured) == ("no", {}) and "No network was left" in found.why


def test_a_run_that_diverges_before_its_first_checkpoint_was_measured_at_its_start():
    config = replace(pretraining.TINY, learning_rate=1e30, warmup=0)
    found = gpt_sharpness.trajectory(gpt_sharpness.TrainingRun(config, True, 0), device=CPU, data_dir=None, folder=None)
    columns = np.array([found[name] for name in gpt_sharpness.QUANTITIES])
    assert np.isfinite(columns[:, 0]).all() and np.isnan(columns[:, -1]).all()
