"""Every figure of singh2026 and of its poster, at its smallest."""

import pytest

from ritz.papers.singh2026.paper import BEYOND, PAPER

from .records import ATTENTION, FIGURES

NETWORKS = [name for name in FIGURES if name not in ATTENTION]
pytestmark = pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")


def test_every_figure_is_listed():
    numbers = ("1", "2a", "2b", "2c", "3a", "3b", *map(str, range(4, 28)))
    poster = {f"singh2024.{name}" for name in ("evolution", "relu", "bulk")}
    assert set(FIGURES) == {f"singh2026.fig{number}" for number in numbers} | poster | {"singh2026.theorems"}
    assert set(NETWORKS) | set(ATTENTION) == set(FIGURES)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_figure_runs_draws_and_judges_at_its_smallest(name, computed):
    figure = FIGURES[name]
    record = computed(figure)
    claims = figure.claims(record)
    assert claims and all(claim.verdict in ("yes", "partly", "no") for claim in claims)
    assert all(claim.why for claim in claims if claim.verdict != "yes")
    assert figure.draw(record).axes


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_the_papers_setting_one_for_a_laptop_and_one_for_tests(name):
    assert (
        {"paper", "laptop", "smoke"} <= set(FIGURES[name].presets) <= {"paper", "laptop", "smoke", "large", "printed"}
    )


@pytest.mark.parametrize("name", ATTENTION)
def test_a_figure_is_computed_drawn_and_judged(name, computed, tmp_path):
    figure = FIGURES[name]
    record = computed(figure)
    figure.draw(record).savefig(tmp_path / "figure.png", format="png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    claims = figure.claims(record)
    assert claims and all(claim.why for claim in claims if claim.verdict != "yes")
    assert {claim.paper for claim in claims} <= {PAPER, BEYOND}
