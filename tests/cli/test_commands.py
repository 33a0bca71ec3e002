"""The command as people use it: what it prints, what it writes, and how it says no."""

import errno
import io
import json
import re
import signal
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ritz import Risk, __version__, hessian
from ritz.analysis import classes as class_analysis
from ritz.analysis import spectrum as analysis
from ritz.analysis.spectrum import pictures
from ritz.analysis.spectrum.settings import MATRICES
from ritz.cli import app, demo, folders
from ritz.cli import spectrum as spectrum_command
from ritz.cli.messages import accept_all_text
from ritz.cli.options import MatrixName
from ritz.cli.target import Target
from ritz.record import Record
from ritz.spectrum.estimate import digits_within
from tests.factories import CLASSIFIER

EXAMPLES = Path(__file__).parents[2] / "examples"

FACTORIES = (
    CLASSIFIER
    + """
def triple():
    return MODEL, nn.CrossEntropyLoss(), (X, Y)

def named(device, dtype, seed):
    assert isinstance(device, torch.device) and isinstance(seed, int)
    model = nn.Linear(4, 3).to(device, dtype)
    return model, nn.CrossEntropyLoss(), (X, Y)

def own_default(dtype=torch.float64, seed=11):
    assert seed in (11, 12)
    return MODEL.to(dtype), nn.CrossEntropyLoss(), (X, Y)

def unmade():
    return nn.Linear, nn.CrossEntropyLoss(), (torch.ones(3, 2), torch.ones(3).long())

def pair():
    return MODEL, nn.CrossEntropyLoss()

def needy(path):
    return triple()

def failing():
    raise KeyError("no such checkpoint")

class Absent(list):
    def __iter__(self):
        raise LookupError("no such data")

def unreadable():
    return MODEL, nn.CrossEntropyLoss(), Absent()

def marked():
    model = nn.Sequential()
    model.add_module("[bold]x", nn.Linear(4, 3))
    model.add_module(":smile:[0]*", nn.Linear(3, 3))
    return model, nn.CrossEntropyLoss(), (X, Y)

def bad_data():
    return MODEL, nn.CrossEntropyLoss(), (X, Y + 7)

class Rigid(nn.Linear):
    def _apply(self, *_, **__):
        raise RuntimeError

def rigid():
    return Rigid(4, 3), nn.CrossEntropyLoss(), (X, Y)

VALUE = 3
"""
)
FAST = ["--probes", "2", "--steps", "6", "-k", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the user's file `mine.py`, and nothing of it left in this process afterwards."""
    (tmp_path / "mine.py").write_text(FACTORIES)
    (tmp_path / "mine.txt").touch()
    (tmp_path / "importer.py").write_text("import absent")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name in ("mine", "importer", "leaver", "checkpoint", "train_checkpoint", "broken"):
            del sys.modules[name]


def ritz(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


FILES = ["arrays.npz", "record.json", "report.html", "spectrum.png"]


def spectrum(target, *options):
    result = ritz("spectrum", target, *FAST, *options)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.usefixtures("rendered")
def test_an_analysis_prints_a_table_and_writes_its_files(folder):
    result = spectrum("mine.py:risk")
    for part in (
        "n = 43",
        "N = 20",
        "loss",
        "gradient norm",
        "residual",
        "trace",
        "effective rank",
        "negative mass",
        "±",
    ):
        assert part in result.stdout
    written = folder / "out" / "mine-risk"
    assert sorted(path.name for path in written.iterdir()) == FILES
    assert (written / "spectrum.png").read_bytes().startswith(b"\x89PNG")
    record = Record.load(written)
    assert digits_within(*(float(record.arrays[key][0]) for key in ("eigenvalues", "residuals"))) in result.stdout


def test_the_record_holds_no_path_of_this_machine(folder):
    spectrum("mine.py:risk")
    assert str(folder) not in (folder / "out/mine-risk/record.json").read_text()


def test_a_module_is_found_from_the_working_folder(folder):
    spectrum("mine:triple", "--out", "elsewhere")
    assert Record.load("elsewhere").id == "mine-triple"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["classes", "mine.py:risk"], "mine-risk, classes"),
        (["spectrum", "mine.py:triple"], "mine-triple, hessian"),
        (["spectrum", "mine.py:risk", "--operator", "gauss-newton"], "mine-risk, gauss-newton"),
        (["spectrum", "mine.py:risk", "--layer", "2.*"], "mine-risk, hessian, 2.*"),
    ],
)
def test_the_record_of_another_analysis_is_not_lost_to_a_folder_named_twice(folder, command, words):
    spectrum("mine.py:risk", "--out", "kept")
    before = (folder / "kept/record.json").read_bytes()
    result = ritz(*command, "--out", "kept")
    assert result.exit_code == 2 and (folder / "kept/record.json").read_bytes() == before
    assert "kept holds another analysis: mine-risk, hessian." in " ".join(result.stderr.split())
    assert words in " ".join(result.stderr.split())
    spectrum("mine.py:risk", "--probes", "2", "--out", "kept")  # the same, measured less finely, replaces it


def test_files_of_one_name_in_two_folders_have_results_of_their_own(folder):
    for name in ("before", "after"):
        (folder / name).mkdir()
        (folder / name / "mine.py").write_text(FACTORIES)
        spectrum(f"{name}/mine.py:risk")
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["after-mine-risk", "before-mine-risk"]
    assert Target.of("./mine.py:risk").name == Target.of("mine.py:risk").name == Target.of("mine:risk").name
    assert Target.of("my.package.models:resnet").name == "my-package-models-resnet"
    assert Target.of(f"{folder}/mine.py:risk").name == "mine-risk"  # whose folders are nobody's business


def test_a_factory_is_called_with_what_it_names(folder):
    spectrum("mine.py:named", "--dtype", "float64", "--device", "cpu", "--seed", "5")
    assert Record.load("out/mine-named-float64-seed-5").config["dtype"] == "float64"


def test_a_factory_that_draws_its_weights_draws_them_again(folder):
    losses = []
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        spectrum("mine.py:named", "--seed", seed, "--out", out)
        losses.append(Record.load(out).scalars["loss"])
    assert losses[0] == losses[1] != losses[2]


def test_a_default_of_the_factory_stands_unless_the_user_says_otherwise(folder):
    spectrum("mine.py:own_default")
    assert Record.load("out/mine-own_default").config["dtype"] == "float64"
    spectrum("mine.py:own_default", "--dtype", "float32", "--seed", "12")
    assert Record.load("out/mine-own_default-float32-seed-12").config["dtype"] == "float32"


@pytest.mark.parametrize("factory", ["risk", "triple"])
def test_a_copy_of_the_model_is_converted_where_the_factory_does_not(folder, factory):
    spectrum(f"mine.py:{factory}", "--dtype", "float64", "-k", "3")
    import mine

    assert all(p.dtype == torch.float32 for p in mine.MODEL.parameters())
    record = Record.load(f"out/mine-{factory}-float64")
    assert record.config["dtype"] == "float64" and record.scalars["num_terms"] == 20
    dense = hessian(Risk(mine.MODEL.double(), torch.nn.CrossEntropyLoss(), (mine.X, mine.Y))).dense()
    exact = torch.linalg.eigvalsh(dense).abs().sort(descending=True).values[:3]
    np.testing.assert_allclose(np.abs(record.arrays["eigenvalues"]), exact, rtol=1e-6)


@pytest.mark.parametrize("operator", ["gauss-newton", "functional"])
def test_other_matrices_are_a_word_away(folder, operator):
    spectrum("mine.py:risk", "--operator", operator)
    assert Record.load(f"out/mine-risk/{operator}").config["operator"].startswith(operator.replace("-", "_"))


def test_another_matrix_stands_on_the_page_of_the_model_and_its_record_beside_the_first(folder):
    spectrum("mine.py:risk")
    written = spectrum("mine.py:risk", "--operator", "gauss-newton").stdout.splitlines()[-1]
    assert written == (
        "Written to out/mine-risk/gauss-newton: record.json, arrays.npz, spectrum.png, out/mine-risk/report.html"
    )
    page = (folder / "out/mine-risk/report.html").read_text()
    assert page.count("<article") == 1 and "Spectrum of the Hessian and Gauss-Newton" in page
    assert Record.load("out/mine-risk").config["operator"] == "hessian"
    spectrum("mine.py:risk", "--operator", "gauss-newton", "--out", "elsewhere")
    assert (folder / "elsewhere/record.json").is_file() and (folder / "elsewhere/report.html").is_file()


OTHERS = [
    {},
    {"layers": ["2.*"]},
    {"layers": ["2.+"]},
    {"layers": ["2.?*"]},
    {"layers": ["2.bias"]},
    {"layers": ["2.bias", "0.bias"]},
    {"layers": ["[02].*"]},
    {"layers": [300 * "?*", "2.*"]},
    {"layers": [299 * "?*", "2.*"]},
    {"examples": 15},
    {"dtype": "float64"},
    {"seed": 3},
]


def test_whatever_else_is_analysed_has_a_folder_of_its_own(folder):
    for options in (["--layer", "2.*"], ["--examples", "15"]):
        spectrum("mine.py:risk", *options)
    spectrum("mine.py:risk")
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == ["mine-risk", "mine-risk-2.+", "mine-risk-first-15"]
    assert Record.load("out/mine-risk").scalars["num_parameters"] == 43
    assert Record.load("out/mine-risk-2.+").scalars["num_parameters"] == 18


@pytest.mark.parametrize("suffix", ["", "classes"])
def test_no_two_analyses_share_a_folder(suffix):
    every = [folders.analysis_folder("mine-risk", **options, suffix=suffix) for options in OTHERS]
    assert len({*every}) == len(every) and all(path.parent == Path("out") for path in every)
    assert all(set(path.name) <= {*string.ascii_letters, *string.digits, *"._+-"} for path in every)
    assert all(len(path.name) <= 255 for path in every)
    assert folders.analysis_folder("mine", layers=["a", "b"]) == folders.analysis_folder("mine", layers=["b", "a"])


def test_layers_and_examples_are_selected(folder):
    spectrum("mine.py:risk", "--layer", "2.*", "--examples", "15")
    record = Record.load("out/mine-risk-2.+-first-15")
    assert record.config["parameters"] == ["2.weight", "2.bias"]
    assert record.scalars["num_parameters"] == 18 and record.scalars["num_terms"] == 15


def test_every_layer_in_one_call(folder):
    result = spectrum("mine.py:risk", "--per-layer", "--log", "--save-vectors")
    record = Record.load("out/mine-risk")
    assert list(record.scalars["layers"]) == ["0", "2"] and "Layer by layer" in result.stdout
    assert record.arrays["2/eigenvectors"].shape == (18, 2)


def test_a_dry_run_forecasts_and_writes_nothing(folder):
    result = spectrum("mine.py:risk", "--dry-run")
    assert "time" in result.stdout and "memory" in result.stdout
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["mine.py"], "does not name a factory"),
        (["mine.py"], "Name one of its functions, mine.py:risk: risk, "),
        (["absent.py"], "`ritz new mine.py` writes such a file"),
        (["absent.py:risk"], "no file absent.py"),
        (["absent.module:risk"], "There is no module absent.module"),
        (["mine.txt:risk"], "mine.txt is not a Python file"),
        (["importer:risk"], "could not be imported: ModuleNotFoundError: No module named 'absent'"),
        (["mine.py:absent"], "Its functions are: risk, triple"),
        (["mine.py:tripel"], "Its functions are: triple, risk"),
        (["mine.py:VALUE"], "but a value"),
        (["mine.py:pair"], "Return ritz.Risk"),
        (["mine.py:needy"], "cannot be called"),
        (["mine.py:failing"], "no such checkpoint"),
        (["builtins:dict"], "type dict"),
        (["builtins:print"], "print returned None"),
        (["builtins:print"], "`return` is missing"),
        (["mine.py:unmade"], "Make an instance: Linear"),
        (["builtins:range"], "range failed"),
        (["mine.py:unreadable"], "no such data"),
        (["mine.py:bad_data"], "there are 3 outputs"),
        (["mine.py:rigid", "--dtype", "float64"], "cannot be converted: RuntimeError"),
        (["mine.py:risk", "--layer", "conv*"], "matches none"),
        (["mine.py:risk", "-k", "44"], "44"),
        (["mine.py:risk", "--layer", "2.bias", "-k", "10"], "10"),
        (["mine.py:risk", "--device", "nowhere"], "--device nowhere"),
        (
            ["mine.py:risk", "--device", "meta"],
            "--device meta cannot be used: what lies there has",
        ),
        (["mine.py:risk", "--out", "mine.py/x"], "cannot be written"),
        (["mine.py:risk", "--out", 300 * "x"], "room for 255 bytes in one name"),
        (["mine.py:risk", "--examples", "99999"], "the data have 20"),
        (["mine.py:risk", "--seed", 2**70], "--seed"),
        (["mine.py:risk", "--operator", "hesian"], "hesian"),
        (["mine.py:risk", "--steps", "0"], "--steps"),
        (["mine.py:risk", "--dtype", "float16"], "float16"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_ends_with_its_message_and_code_two(folder, arguments, message):
    result = ritz("spectrum", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr and "Traceback" not in result.output
    assert not (folder / "out").exists()


def test_a_device_that_fails_without_a_word_is_named(folder, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr(torch, "empty", fail)
    result = ritz("spectrum", "mine.py:risk", "--device", "cuda")
    assert result.exit_code == 2 and "--device cuda cannot be used: AssertionError" in result.stderr


def test_a_file_that_does_not_run_says_so(folder):
    (folder / "broken.py").write_text("import nonexistent_package\n")
    result = ritz("spectrum", "broken.py:risk")
    assert result.exit_code == 2 and "nonexistent_package" in result.stderr


def test_a_factory_that_goes_to_another_folder_does_not_take_the_results_along(folder):
    (folder / "elsewhere").mkdir()
    lines = "import os, mine\ndef risk():\n    os.chdir('elsewhere')\n    return mine.risk()\n"
    (folder / "leaver.py").write_text(lines)
    result = spectrum("leaver.py:risk")
    assert sorted(path.name for path in (folder / "out/leaver-risk").iterdir()) == FILES
    assert f"Written to {folder}/out/leaver-risk" in result.stdout and not [*(folder / "elsewhere").iterdir()]


def test_one_probe_is_said_to_have_no_error(folder):
    result = spectrum("mine.py:risk", "--probes", "1", "--steps", "1", "--exact-rows", "0")
    assert "estimated: 1 probe of 1 step " in result.stdout and result.stdout.count("(error unknown)") == 3


def test_an_end_of_the_spectrum_that_is_rounding_is_printed_as_zero(folder):
    result = spectrum("mine.py:risk", "--operator", "gauss-newton", "--per-layer")
    assert re.search(r"range of λ +0 ± \de-0\d to", result.stdout)
    assert re.search(r"\n2 +18 +exact +0\.\d+ +0 ± \de-0\d ", result.stdout)


def test_a_full_disk_behind_the_output_is_no_fault_of_ritz(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spectrum_command, "show", full)
    result = ritz("spectrum", "mine.py:risk", *FAST)
    assert result.exit_code == 1 and "The output cannot be printed: [Errno 28]" in result.stderr
    assert Record.load("out/mine-risk")


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_an_interruption_that_an_import_turned_into_an_error_is_one(folder, monkeypatch, debug):
    def importing(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(analysis, "run", importing)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        result = ritz("spectrum", "mine.py:risk", *debug)
        assert result.exit_code == 130 and "initialization" not in result.output
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_output_in_another_encoding_or_none_at_all_is_no_reason_to_fail(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252", write_through=True))
    monkeypatch.setattr(sys, "stderr", None)
    accept_all_text()
    print("λ = 2 ± 1")
    print("nowhere", file=sys.stderr)
    assert written.getvalue().rstrip() == b"? = 2 \xb1 1"
    sys.stderr.close()


def test_an_unexpected_error_shows_its_message_and_the_way_to_see_more(folder, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(analysis, "run", broken)
    result = ritz("spectrum", "mine.py:risk")
    assert result.exit_code == 1 and "a fault of ours" in result.stderr and "--debug" in result.stderr
    assert "Traceback" not in result.output and not (folder / "out").exists()
    assert isinstance(ritz("spectrum", "mine.py:risk", "--debug").exception, ZeroDivisionError)


def test_debug_shows_where_an_error_comes_from(folder):
    result = ritz("spectrum", "mine.py:failing", "--debug")
    assert result.exit_code == 2 and "Traceback" in result.stderr and 'raise KeyError("no such' in result.stderr


@pytest.mark.parametrize("command", [[], ["demo"], ["spectrum"]])
def test_help_carries_an_example(command):
    result = ritz(*command, "--help")
    assert result.exit_code == 0 and f"ritz {'spectrum' if not command else command[0]}" in result.stdout


@pytest.mark.usefixtures("rendered")
def test_the_demo_analyses_a_classifier_of_real_digits(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EPOCHS", 3)
    monkeypatch.setattr(demo, "SETTINGS", analysis.Settings(num_eigenpairs=2, num_probes=2, num_steps=5))
    result = ritz("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    record = Record.load(tmp_path / "demo")
    assert record.scalars["num_terms"] == 1438 and "test accuracy" in result.stdout


def test_the_example_starts_from_a_checkpoint_file(folder, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    spectrum(EXAMPLES / "checkpoint.py:risk", "--dtype", "float64", "--examples", "200", "--out", "checkpoint")
    record = Record.load("checkpoint")
    assert record.scalars["loss"] < 0.5 and record.config["dtype"] == "float64"  # the trained weights were read


def test_the_example_checkpoint_can_be_made_again(folder, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import train_checkpoint

    train_checkpoint.main(folder / "new.pt")
    import checkpoint

    monkeypatch.setattr(checkpoint, "CHECKPOINT", folder / "new.pt")
    assert checkpoint.risk().loss_value() < 0.1


def test_python_dash_m_is_the_same_command():
    ran = subprocess.run([sys.executable, "-m", "ritz", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"ritz {__version__}\n"


def test_a_record_is_json_that_others_can_read(folder):
    spectrum("mine.py:risk")
    header = json.loads((folder / "out/mine-risk/record.json").read_text())
    assert header["scalars"]["trace_error"] > 0 and header["provenance"]["device"] == "cpu"


def test_the_default_number_of_eigenpairs_fits_a_small_layer(folder):
    result = ritz("spectrum", "mine.py:risk", "--layer", "2.bias")
    assert result.exit_code == 0, result.output
    assert len(Record.load("out/mine-risk-2.bias").arrays["eigenvalues"]) == 3


def test_products_of_all_layers_are_counted(folder):
    result = spectrum("mine.py:risk", "--per-layer")
    scalars = Record.load("out/mine-risk").scalars
    total = scalars["num_products"] + sum(layer["num_products"] for layer in scalars["layers"].values())
    assert f"{total:,} products" in result.stdout


@pytest.mark.parametrize("command", [["spectrum", "mine.py:risk", *FAST], ["demo"]])
def test_no_record_stays_without_its_picture(folder, monkeypatch, command):
    def broken(_):
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "SETTINGS", analysis.Settings(num_eigenpairs=2, num_probes=2, num_steps=5))
    monkeypatch.setattr(pictures, "draw", broken)
    result = ritz(*command)
    left = {path.name for place in folder.glob("out/*") for path in place.iterdir()}
    assert result.exit_code == 1 and left <= {"unfinished"}  # what was computed, to go on from
    assert len(result.stderr.strip().splitlines()) >= 3 and "no picture" in result.stderr


@pytest.mark.usefixtures("rendered")
def test_names_of_layers_are_printed_as_they_are(folder):
    result = spectrum("mine.py:marked", "--per-layer")
    assert "[bold]x" in result.stdout and ":smile:[0]*" in result.stdout


def test_the_record_tells_what_was_analysed(folder):
    spectrum(folder / "mine.py:risk", "--examples", "15")
    config = Record.load("out/mine-risk-first-15").config
    assert config["factory"] == "mine.py:risk" and config["examples"] == config["num_examples"] == 15
    assert config["num_batches"] == 2
    assert str(folder) not in (folder / "out/mine-risk-first-15/record.json").read_text()
    spectrum("./mine.py:risk")
    config = Record.load("out/mine-risk").config
    assert config["factory"] == "./mine.py:risk" and config["examples"] is None and config["num_examples"] == 20


def test_numbers_are_printed_to_the_digits_that_mean_something(folder):
    result = spectrum("mine.py:risk", "--layer", "2.bias", "--dtype", "float64")
    (trace,) = [line for line in result.stdout.splitlines() if line.startswith("trace")]
    assert "e-1" not in trace and len(trace.split()[1]) < 10


def test_a_device_without_float64_is_not_offered():
    assert "mps" not in ritz("spectrum", "--help").stdout


def test_the_option_names_every_matrix_that_an_analysis_knows():
    assert [str(name) for name in MatrixName] == list(MATRICES)


@pytest.mark.parametrize("command, module", [("spectrum", analysis), ("classes", class_analysis)])
def test_an_interrupted_analysis_says_how_it_goes_on(folder, monkeypatch, command, module):
    """Ctrl-C, once before there is something to go on from and once after."""

    def run(*_, checkpoint, **__):
        if (left := checkpoint.parent / "left").exists():
            checkpoint.mkdir(parents=True)
            (checkpoint / "eigenpairs.npz").touch()
        left.parent.mkdir(parents=True, exist_ok=True)
        left.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run", run)
    first, second = (ritz(command, "mine.py:risk") for _ in range(2))
    assert first.exit_code == second.exit_code == 130
    assert "Interrupted" not in first.stderr and "Run the same command again" in second.stderr
