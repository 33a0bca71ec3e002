"""`ritz claims` on a paper of our own: what is said, alone and beside what was measured."""

import json
from dataclasses import replace

from typer.testing import CliRunner

from ritz.cli import app
from ritz.papers.frame.pages import command
from ritz.record import Record
from tests.papers.paper_of_squares import ritz


def test_the_ledger_has_a_line_for_every_claim_and_counts_them(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,1")
    result = ritz("claims")
    for part in ("areas grow", "Fig. 2", "3 claims · 2 yes · 1 no", "ritz claims --full"):
        assert part in result.stdout
    assert "The areas do not" not in result.stdout and "yes if" not in result.stdout
    one = ritz("claims", "us2000.fig2").stdout
    assert "the first is 1" not in one and "ritz claims us2000.fig2 --full" in one


def test_a_long_sentence_takes_no_room_of_its_verdict(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    place = folder / "results/us2000.fig2/smoke"
    record = Record.load(place)
    longer = replace(record.claims[0], statement=300 * "areas grow ")
    replace(record, claims=[longer]).save(place)
    line = next(line for line in ritz("claims").stdout.splitlines() if "areas grow" in line)
    assert line.startswith("yes ") and line.rstrip().endswith("…")


def test_the_full_ledger_has_numbers_rules_and_reasons(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,1")
    full = " ".join(ritz("claims", "--full").stdout.split())
    for part in ("Us 2000", "yes if ≥ 4", "It is 0.25, and yes takes ≥ 4.", "The areas do not grow."):
        assert part in full


def test_the_time_of_a_run_that_was_resumed_is_marked(folder):
    (folder / "stop").touch()
    CliRunner().invoke(app, ["run", "us2000.fig2"])
    (folder / "stop").unlink()
    assert "computed in more than" in ritz("run", "us2000.fig2").stdout


def test_a_page_of_a_paper_is_made_of_configs_and_records_and_keeps_what_was_written(folder):
    ritz("run", "us2000.fig2", "us2000.fig10", "--preset", "smoke")
    assert "docs/papers/us2000.md" in ritz("pages").stdout
    page = folder / "docs/papers/us2000.md"
    text = page.read_text()
    for part in (
        "# us2000",
        "2 of 3 figures have a record. Claims: 2 yes.",
        "![us2000.fig2](../../results/us2000.fig2/smoke/figure.png)",
        "`ritz run us2000.fig2 --preset smoke`",
        "CPU thread",
        "| **yes** | areas grow | Fig. 2 | 4 |",
        "| us2000.fig3 | Alone | not run |  |",
        '| scale | "the side is one" | 1.0 |  |',
        "| sides | open | 1, 2 | any; 1, 2, 3, 4, 5, 6 at preset paper |",
    ):
        assert part in text, part
    page.write_text(text.replace("# us2000", "# us2000, by hand"))
    ritz("run", "us2000.fig2", "--preset", "paper")
    ritz("pages", "us2000.*")
    again = page.read_text()
    assert again.startswith("# us2000, by hand") and "results/us2000.fig2/paper/figure.png" in again
    assert again.count("## us2000.fig2") == 1


def test_pages_of_a_folder_without_records_are_refused_and_stay_as_they_were(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    ritz("pages")
    before = (folder / "docs/papers/us2000.md").read_text()
    result = CliRunner().invoke(app, ["pages", "--out", "resluts"])
    assert result.exit_code == 2 and "resluts holds no record of us2000" in result.output
    assert (folder / "docs/papers/us2000.md").read_text() == before


def test_a_page_names_what_differs_from_the_preset(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke", "--set", "sides=2,4", "--set", "scale=3")
    record = Record.load(next(folder.glob("results/us2000.fig2/smoke+*")))
    assert command(record) == "ritz run us2000.fig2 --preset smoke --set sides=2,4 --set scale=3.0"
    assert ", sides=2,4, scale=3.0" in ritz("claims").stdout


def test_no_text_of_a_hostile_claim_steers_the_terminal(folder):
    ritz("run", "us2000.fig2", "--preset", "smoke")
    place = folder / "results/us2000.fig2/smoke/record.json"
    header = json.loads(place.read_text())
    texts = [name for name, value in header["claims"][0].items() if isinstance(value, str) and name != "verdict"]
    header["claims"][0].update({name: f"\x1b[31m{header['claims'][0][name]}\r" for name in texts})
    place.write_text(json.dumps(header))
    said = ritz("claims").stdout + ritz("claims", "--full").stdout
    assert len(texts) > 3 and "\\x1b[31m" in said and "\x1b" not in said and "\r" not in said


def test_one_damaged_record_does_not_hide_the_others(folder):
    ritz("run", "us2000.*", "--preset", "smoke")
    (folder / "results/us2000.fig2/smoke/record.json").write_text("{")
    result = ritz("claims")
    assert "Note:" in result.stderr and "cannot be read" in result.stderr and "1 claims · 1 yes" in result.stdout


def test_without_records_the_ledger_says_how_to_get_some(folder):
    assert "ritz run" in ritz("claims", code=2).stderr
    assert "Similar ids: us2000.fig2" in ritz("claims", "us2000.fig22", code=2).stderr
    assert "ritz run us2000.fig2" in ritz("claims", "us2000.fig2", code=2).stderr  # and not another figure


def test_what_the_papers_say_can_be_read_without_any_record(folder):
    result = ritz("claims", "us2000.fig2", "--statements")
    reason = "if no: The areas do not grow."
    rule = "yes if ≥ 4, partly if ≥ 2, else no"
    for part in ("us2000.fig2: Squares grow", "Us 2000, Fig. 2", "areas grow", rule, reason):
        assert part in result.stdout
    assert "the first is 1" not in result.stdout and not (folder / "results").exists()
    assert "the first is 1" in ritz("claims", "--statements").stdout
    assert "no figure us2000.fig22" in ritz("claims", "us2000.fig22", "--statements", code=2).stderr
