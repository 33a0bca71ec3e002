"""Figs. 4, 14-16 and 26: rules that say no, and points that were cut off."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz.papers.singh2026 import correlations, trained_networks

from .records import FIGURES, ended, record_of, verdicts


def sweep_record(figure, **changes):
    """Correlations as the paper has them, unless changed: norms are parametrisation × size × stage × layer × norm."""
    config = figure.presets["smoke"]
    norms = np.empty((3, len(config.sizes), 2, 2, 3))
    norms[:, :, 0] = np.array([[0.45, 0.1, 0.1], [0.05, 0.05, 0.05]])
    norms[:, :, 1] = np.array([[0.9, 0.5, 0.4], [0.3, 0.2, 0.1]])
    norms[[0, 2], :, 1] = norms[[0, 2], :, 1, ::-1].copy()  # in SP and μP the second matrix leads
    norms[1, :, 1, :, 0] = 0.9  # in NTP both correlate
    norms[1, :, 1, 1, 0] = 0.78  # the first somewhat more
    trace = np.zeros_like(norms) + np.array([0.8, 0.95, 0.8])
    arrays = ended(3, len(config.sizes)) | {
        "norms": norms,
        "trace_norms": trace,
        "alignments": np.full((3, len(config.sizes), 2, 3), 0.8),
        "above": np.ones((3, len(config.sizes), 2)),
        "trace_error": np.zeros((3, len(config.sizes), 2)),
    }
    return record_of(figure, arrays | changes)


LINEAR = ("4", "14", "15", "26")


@pytest.mark.parametrize("number", LINEAR)
def test_claims_about_correlations_hold_where_they_are_as_the_paper_says(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    assert set(verdicts(figure, sweep_record(figure)).values()) == {"yes"}


@pytest.mark.parametrize("number", LINEAR)
def test_claims_about_correlations_are_refused_where_they_are_the_opposite(number):
    figure = FIGURES[f"singh2026.fig{number}"]
    good = sweep_record(figure).arrays
    norms = np.empty_like(good["norms"])
    norms[:, :, 0] = np.array([[0.1, 0.1, 0.1], [0.9, 0.9, 0.9]])
    norms[:, :, 1] = np.array([[0.1, 0.3, 0.2], [0.05, 0.3, 0.2]])
    changes = {
        "norms": norms,
        "trace_norms": good["trace_norms"][..., [1, 0, 2]] - 0.8,
        "alignments": 0 * good["alignments"],
        "above": 0.5 * good["above"],
        "trace_error": 1 + good["trace_error"],
    }
    claims = figure.claims(sweep_record(figure, **changes))
    assert {claim.verdict for claim in claims} == {"no"}
    assert all(claim.why for claim in claims)


def test_claims_about_relu_correlations_can_hold_and_be_refused():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    assert set(verdicts(figure, record_of(figure, ended(3, 3) | {"norms": norms})).values()) == {"yes"}
    other = norms[..., [1, 0, 2]] + 0.15
    assert set(verdicts(figure, record_of(figure, ended(3, 3) | {"norms": other})).values()) == {"no"}


def test_an_interval_is_judged_by_all_sizes_and_not_by_the_middle_one():
    figure = FIGURES["singh2026.fig16"]
    norms = np.zeros((3, 3, 2, 2, 3)) + np.array([0.5, 0.8, 0.6])
    norms[:, 0, 1, 0, 0], norms[:, 2, 1, 0, 0] = 0.1, 0.95
    found = verdicts(figure, record_of(figure, ended(3, 3) | {"norms": norms}))
    assert found["The squared spectral norm of the first matrix correlates between 0.25 and 0.75."] == "no"


def test_a_strong_correlation_is_judged_where_it_is_weakest():
    figure = FIGURES["singh2026.fig4"]
    norms = sweep_record(figure).arrays["norms"].copy()
    norms[:, -1, 1] = 0.3
    found = verdicts(figure, sweep_record(figure, norms=norms))
    assert found["Sharpness and the squared spectral norm correlate strongly."] == "no"


@pytest.mark.parametrize("leader", [0, 1])
def test_a_matrix_that_leads_in_all_parametrisations_does_not_depend_on_them(leader):
    figure = FIGURES["singh2026.fig4"]
    norms = sweep_record(figure).arrays["norms"].copy()
    norms[:, :, 1, leader, 0], norms[:, :, 1, 1 - leader, 0] = 0.9, np.array([0.1, 0.8, 0.5])[:, None]
    found = verdicts(figure, sweep_record(figure, norms=norms))
    assert found["Which matrix drives the correlation after training depends on the parametrisation."] == "no"


def test_one_wrong_trace_of_many_is_not_hidden():
    point = trained_networks.NetworkPoint("SP", (2, 5, 2), "linear")
    norms = torch.ones(2, 2, 3, 9, dtype=torch.float64)
    trace = torch.full((2, 9), 4.0, dtype=torch.float64)
    assert correlations.trace_error(point, trace, norms).tolist() == [0, 0]
    trace[1, 3], trace[1, 4] = 8.0, torch.nan
    assert correlations.trace_error(point, trace, norms).tolist() == [0, 1]
    assert correlations.trace_error(point, trace * torch.nan, norms).isnan().all()
    assert correlations.trace_error(replace(point, parametrization="NTP"), trace, norms).isnan().all()


def test_networks_without_an_eigenvalue_are_neither_above_nor_below_the_bound():
    sharpness = torch.tensor([[1.0, 3.0, torch.nan], [torch.nan] * 3])
    found = correlations.share_above(sharpness, torch.full((2, 3), 2.0))
    assert found[0] == 0.5 and found[1].isnan()


@pytest.mark.parametrize("number", [4, 17])
def test_points_that_were_cut_off_are_marked_and_told(number, computed):
    figure = FIGURES[f"singh2026.fig{number}"]
    record = computed(figure)
    for finished, said in ((1.0, False), (0.5, True)):
        arrays = record.arrays | {"finished": np.full_like(record.arrays["finished"], finished)}
        changed = replace(record, arrays=arrays)
        titles = [ax.get_title(loc="left") for ax in figure.draw(changed).axes]
        assert any("not finished in 3 epochs" in title for title in titles) == said
        claims = [claim for claim in figure.claims(changed) if "initialisation" not in claim.statement]
        assert all(("Not finished after 3 epochs" in claim.why) == said for claim in claims)


def test_hollow_points_are_those_that_were_cut_off(computed):
    figure = FIGURES["singh2026.fig14"]
    record = computed(figure)
    finished = np.ones_like(record.arrays["finished"])
    finished[1, 2] = 0.5
    before, after = figure.draw(replace(record, arrays=record.arrays | {"finished": finished})).axes
    assert not any(len(line.get_xdata()) for line in before.lines if line.get_markerfacecolor() == "w")
    hollow = [line.get_xdata().tolist() for line in after.lines if line.get_markerfacecolor() == "w"]
    assert hollow == [[record.config["sizes"][2]]] * 6


def test_numbers_that_are_none_are_no_support():
    figure = FIGURES["singh2026.fig4"]
    lost = sweep_record(figure, norms=np.full((3, 3, 2, 2, 3), np.nan))
    found = verdicts(figure, lost)
    assert [verdict for statement, verdict in found.items() if "largest eigenvalue" in statement] == ["yes"]
    assert list(found.values()).count("no") == len(found) - 1
