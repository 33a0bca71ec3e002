"""`ritz claims` on a paper of our own: what is said, alone and beside what was measured."""

from typer.testing import CliRunner

from ritz.cli import app
from tests.papers.paper_of_squares import ritz


def test_the_ledger_has_every_claim_with_its_verdict_and_why(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,1")
    result = ritz("claims")
    for part in ("areas grow", "Us 2000", "Fig. 2", "yes if ≥ 4", "The areas do not", "3 claims · 2 yes · 1 no"):
        assert part in result.stdout
    assert "the first is 1" not in ritz("claims", "us2000.fig2").stdout


def test_the_ledger_as_markdown_names_the_picture_the_command_and_the_time(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    heading, _, row = ritz("claims", "--markdown").stdout.splitlines()
    assert heading.count("|") == row.count("|") == 8
    for part in (
        "(results/us2000.fig2/smoke/figure.png)",
        "`ritz run us2000.fig2 --preset smoke`",
        "CPU thread",
        "yes",
    ):
        assert part in row


def test_a_command_in_the_ledger_names_what_differs_from_the_preset(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,4", "--set", "scale=3")
    assert "--preset smoke --set sides=2,4 --set scale=3.0`" in ritz("claims", "--markdown").stdout


def test_the_time_of_a_run_that_was_resumed_is_marked(folder):
    (folder / "stop").touch()
    CliRunner().invoke(app, ["run", "us2000.fig2"])
    (folder / "stop").unlink()
    assert "computed in more than" in ritz("run", "us2000.fig2").stdout
    assert "| more than " in ritz("claims", "--markdown").stdout


def test_the_brief_ledger_has_a_row_for_each_figure_that_counts_its_claims(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    heading, _, *rows = ritz("claims", "--brief").stdout.splitlines()
    assert len(rows) == 2 and heading.count("|") == rows[0].count("|") == 9
    assert all(row.endswith("| 1 yes |") for row in rows)


def test_one_damaged_record_does_not_hide_the_others(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    (folder / "results/us2000.fig2/smoke/record.json").write_text("{")
    result = ritz("claims")
    assert "Note:" in result.stderr and "cannot be read" in result.stderr and "1 claims · 1 yes" in result.stdout


def test_without_records_the_ledger_says_how_to_get_some(folder):
    assert "ritz run" in ritz("claims", code=2).stderr
    assert "ritz run" in ritz("claims", "--markdown", code=2).stderr
    assert "Near it: us2000.fig2" in ritz("claims", "us2000.fig22", code=2).stderr


def test_what_the_papers_say_can_be_read_without_any_record(folder):
    result = ritz("claims", "us2000.fig2", "--statements")
    reason = "if no: The areas do not grow."
    rule = "yes if ≥ 4, partly if ≥ 2, else no"
    for part in ("us2000.fig2: Squares grow", "Us 2000, Fig. 2", "areas grow", rule, reason):
        assert part in result.stdout
    assert "the first is 1" not in result.stdout and not (folder / "results").exists()
    assert "the first is 1" in ritz("claims", "--statements").stdout
    assert "no figure us2000.fig22" in ritz("claims", "us2000.fig22", "--statements", code=2).stderr
