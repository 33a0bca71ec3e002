"""Records with hostile names, and a browser that opens their page."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from ritz import Risk
from ritz.analysis import classes, spectrum
from ritz.operators import functional_hessian, gauss_newton, hessian
from tests.source import ROOT

HOSTILE = "<img src=x onerror=alert(1)>&\"'</script><b>"
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def records():
    """H layer by layer, G, E and a class analysis of one small classifier, all with markup in their names."""
    torch.manual_seed(0)
    model = nn.Sequential()
    for name, layer in ((f"body{HOSTILE}", nn.Linear(6, 8)), ("act", nn.Tanh()), ("head", nn.Linear(8, 3))):
        model.add_module(name, layer)
    x, y = torch.randn(60, 6), torch.randint(3, (60,))
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    settings = {"num_eigenpairs": 3, "num_probes": 4, "num_steps": 20, "exact_rows": 0}
    options = {"name": HOSTILE, "source": {"factory": f"{HOSTILE}.py:risk"}}
    matrices = [spectrum.Settings(matrix, **settings) for matrix in (gauss_newton, functional_hessian)]
    return [
        spectrum.run(risk, spectrum.Settings(hessian, per_layer=True, **settings), **options),
        *(spectrum.run(risk, one, **options) for one in matrices),
        classes.run(risk, **options),
    ]


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium. Where there is none the tests are skipped with a reason, but not in continuous integration.

    `.ci/run` leaves a note where it tried to install one and could not.
    """
    note = ROOT / "out" / "no-browser.txt"
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None or find_spec("playwright") is None:
        reason = "These tests need a browser: apt-get install chromium, pip install -e '.[dev]'"
        reason = note.read_text().strip() if note.exists() else reason
        (pytest.fail if os.environ.get("CI") == "true" and not note.exists() else pytest.skip)(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
