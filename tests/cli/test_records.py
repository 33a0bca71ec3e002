"""Records that come with an installed ritz: `ritz list`, `claims` and `draw` need no clone."""

import pytest

from ritz.cli import records
from tests.papers.paper_of_squares import ritz


@pytest.fixture
def shipped(folder, tmp_path_factory, monkeypatch):
    """A record of our own in the place where the wheel has its records; the working folder has none."""
    place = tmp_path_factory.mktemp("installed") / "records"
    ritz("run", "us2000.fig2", "--preset", "smoke", "--out", place)
    (place / "us2000.fig2/smoke/figure.png").unlink()
    monkeypatch.setattr(records, "SHIPPED", place)
    return place


def test_claims_and_list_read_them_and_say_so(folder, shipped):
    result = ritz("claims")
    assert "1 claims · 1 yes" in result.stdout and "came with ritz" in result.stderr
    assert ritz("list").stdout.splitlines()[1].rstrip().endswith("smoke")


def test_draw_writes_to_the_working_folder_alone(folder, shipped):
    result = ritz("draw", "us2000.fig2")
    assert "results/us2000.fig2/smoke/figure.png" in result.stdout
    assert (folder / "results/us2000.fig2/smoke/figure.png").exists()
    assert not list(shipped.rglob("figure.png"))


def test_own_results_come_first_and_a_named_folder_stands(folder, shipped):
    ritz("claims", "--out", "elsewhere", code=2)
    ritz("run", "us2000.fig2", "--preset", "smoke")
    result = ritz("claims")
    assert "came with ritz" not in result.stderr and "1 claims" in result.stdout


def test_one_result_of_ones_own_hides_none_of_the_others(folder, shipped):
    ritz("run", "us2000.fig10", "--preset", "smoke")
    result = ritz("claims")
    assert "us2000.fig2" in result.stdout and "1 of these 2 records came with ritz" in result.stderr
    ritz("draw", "us2000.fig2")
    assert [line.rstrip().endswith("smoke") for line in ritz("list").stdout.splitlines()[1:]].count(True) == 2
