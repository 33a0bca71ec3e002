"""`ritz classes` as people use it: what it prints, what it writes, and how it says no."""

import sys

import pytest
from typer.testing import CliRunner

from ritz.analysis import classes as analysis
from ritz.cli import app
from ritz.record import Record
from ritz.record.checkpoints import Checkpoint
from tests.factories import CLASSIFIER

FACTORIES = (
    CLASSIFIER
    + """
from ritz.risk.losses import CrossEntropy

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, x):
        return self.out(self.words(x).cumsum(1))

def tokens():
    torch.manual_seed(0)
    words = torch.randint(5, (6, 4))
    return Tokens(), CrossEntropy(), (words[:, :-1], words[:, 1:])

def regression():
    return nn.Linear(4, 2), nn.MSELoss(), (X, X[:, :2])

def probabilities():
    return MODEL, nn.CrossEntropyLoss(), (X, torch.full((20, 3), 1 / 3))
"""
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "ours.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("ours", None)


def ritz(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def classes(target, *options):
    result = ritz("classes", target, *options)
    assert result.exit_code == 0, result.output
    return result


def test_the_attribution_is_printed_and_everything_is_written(folder):
    result = classes("ours.py:risk", "--weight-decay", "1e-3", "--dtype", "float64")
    record = Record.load(folder / "out" / "ours-risk-float64-classes")
    overlap = record.scalars["class_overlap"]
    said = f"Overlap of the top 3 eigenvectors of G with the span of the class means: {overlap:.3f}"
    words = [
        "G_class",
        "G_cross",
        "G_own",
        "G_within",
        "in class means",
        "nearest in G (overlap)",
        "outliers",
        "mini-bulk",
        "KFAC",
    ]
    for part in (said, "N = 20 in C = 3 classes", *words, *record.scalars["counts"]):
        assert part in result.stdout
    for values in (record.arrays["hessian/values"], record.arrays["gauss_newton/values"]):
        assert f"{values[0]:.6g}" in result.stdout
    plain = " ".join(result.stdout.split())
    assert all(sentence in plain for sentence in record.scalars["findings"])
    pictures = {"knockouts", "features", "errors", "weights", "scree", "kronecker"}
    expected = {"record.json", "arrays.npz", "report.html", *(f"{name}.png" for name in pictures)}
    assert {path.name for path in (folder / "out/ours-risk-float64-classes").iterdir()} == expected
    assert all(name in result.stdout for name in expected)
    assert record.config["factory"] == "ours.py:risk" and record.config["dtype"] == "float64"


def test_lines_layers_and_examples_are_selected(folder):
    classes("ours.py:risk", "--lines", "2", "--layer", "2.*", "--examples", "15", "--out", "elsewhere", "--seed", "5")
    record = Record.load("elsewhere")
    assert len(record.arrays["hessian/values"]) == 2 and list(record.scalars["layers"]) == ["2"]
    assert record.scalars["num_parameters"] == 18 and record.scalars["num_terms"] == 15
    assert record.config["seed"] == 5 and record.config["examples"] == 15


def test_a_long_table_is_cut_and_the_page_has_all_of_it(folder):
    """The terminal shows 24 lines of each matrix."""
    printed = classes("ours.py:risk", "--lines", "26").stdout
    assert printed.count("2 more are in report.html.") == 2
    page = (folder / "out" / "ours-risk-classes" / "report.html").read_text()
    ranks = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert ranks.count("24") == 2 and "25" not in ranks and page.count(">26<") >= 2


def test_what_is_left_out_is_said_with_its_reason(folder):
    printed = " ".join(classes("ours.py:tokens").stdout.split())
    assert "Features: left out. An example has several labels" in printed
    assert "CFAC: left out." in printed and "Overlap of the top 5" in printed


@pytest.mark.parametrize("factory, message", [("regression", "cross-entropy"), ("probabilities", "class ind")])
def test_what_has_no_classes_is_refused_with_a_way_out(folder, factory, message):
    result = ritz("classes", f"ours.py:{factory}")
    assert result.exit_code == 2 and message in result.stderr and "  - " in result.stderr
    assert "Traceback" not in result.stderr and not (folder / "out").exists()


@pytest.mark.parametrize("options", [("--weight-decay", "-1"), ("--lines", "0"), ("--exact-rows", "-3")])
def test_impossible_options_are_refused_before_the_model_is_built(folder, options):
    assert ritz("classes", "absent.py:risk", *options).exit_code == 2
    assert "absent.py" not in ritz("classes", "absent.py:risk", *options).stderr


def test_a_dry_run_forecasts_time_memory_and_disk_and_writes_nothing(folder):
    printed = classes("ours.py:risk", "--dry-run").stdout
    assert all(word in printed for word in ("time", "memory", "disk", "to resume from"))
    assert not (folder / "out").exists()


def test_an_analysis_that_failed_goes_on_from_what_it_left(folder, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(analysis, "write", fail)
        assert ritz("classes", "ours.py:risk").exit_code == 130
    unfinished = folder / "out" / "ours-risk-classes" / "unfinished"
    before = {path: path.stat().st_mtime_ns for path in unfinished.rglob("*.npz")}
    monkeypatch.setattr(Checkpoint, "keep", lambda *_, **__: pytest.fail("something was computed again"))
    assert len(before) > 5
    classes("ours.py:risk")
    assert not unfinished.exists() and Record.load(folder / "out" / "ours-risk-classes")


def test_help_has_examples():
    text = ritz("classes", "--help").stdout
    assert "ritz classes mine.py:risk" in text and "--exact-rows" in text
