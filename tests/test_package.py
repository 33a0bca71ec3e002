"""What a user meets first: the names of the package, and the files its documents point to."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ritz

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_there():
    assert all(hasattr(ritz, name) for name in ritz.__all__)


def test_parts_come_on_demand_and_unknown_names_are_refused():
    """In a process of its own: here, other tests have imported them."""
    code = (
        "import sys, ritz\n"
        "assert 'ritz.lab' not in sys.modules and 'lab' in dir(ritz) and 'data' in dir(ritz.lab)\n"
        "assert ritz.lab.data.digits and ritz.lab.training.HALVING and ritz.analysis.classes.run\n"
        "assert not hasattr(ritz, 'labs') and not hasattr(ritz.lab, 'dates')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/errata.md"])
def test_documents_point_to_files_that_exist(document):
    text = (ROOT / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    missing = [link for link in links if not ((ROOT / document).parent / link).exists()]
    assert not missing
