"""A release changes the version everywhere at once; links of the long description work or are left out."""

import runpy
import tomllib

import pytest
import release
import setuptools

import ritz
from tests import matrix
from tests.source import ROOT

NAMES = ("pyproject.toml", "src/ritz/__init__.py", "CITATION.cff", "CHANGELOG.md")


def test_the_version_and_the_date_reach_every_file():
    texts = release.edits("9.8.7", "2030-01-02", {name: (ROOT / name).read_text() for name in NAMES})
    assert tomllib.loads(texts["pyproject.toml"])["project"]["version"] == "9.8.7"
    assert '__version__ = "9.8.7"' in texts["src/ritz/__init__.py"] and "## 9.8.7 (2030-01-02)" in texts["CHANGELOG.md"]
    assert release.edits("9.8.8", "2031-01-02", texts)["CHANGELOG.md"].count("\n## ") >= 3  # and the next time, too
    assert "version: 9.8.7\ndate-released: 2030-01-02" in texts["CITATION.cff"]


def test_all_files_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (
        project["version"] == ritz.__version__ and f"version: {ritz.__version__}" in (ROOT / "CITATION.cff").read_text()
    )


@pytest.mark.parametrize("version", ["", "1.0", "v1.0.0", "1.0.0; rm"])
def test_what_is_no_version_is_refused(version):
    with pytest.raises(SystemExit, match="make release VERSION"):
        release.main(version)


@pytest.fixture
def absolute(monkeypatch):
    """The function of setup.py that changes links; nothing is set up."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    return runpy.run_path(str(ROOT / "setup.py"))["absolute"]


def test_without_a_base_address_there_is_no_picture_and_no_relative_link(absolute):
    text = absolute((ROOT / "README.md").read_text(), "")
    assert "![" not in text and "](" not in text and "Documentation" in text


def test_with_a_base_address_every_link_is_absolute(absolute):
    text = absolute("![a](docs/a.png) [b](docs/b.md) [c](https://c.d/e)", "https://x.y/z")
    assert text == "![a](https://x.y/z/raw/main/docs/a.png) [b](https://x.y/z/blob/main/docs/b.md) [c](https://c.d/e)"


def test_the_matrix_has_three_versions():
    requirements = matrix.versions()
    assert [*requirements] == ["lowest", "pinned", "newest"] and requirements["lowest"].startswith("torch==2.")
