"""A release changes the version everywhere at once; links of the long description work or are left out."""

import os
import runpy
import shutil
import subprocess
import tomllib

import pytest
import release
import setuptools
import torch

import ritz
from tests import matrix
from tests.source import ROOT

NAMES = release.FILES


def test_the_version_and_the_date_reach_every_file():
    texts = release.edits("9.8.7", "2030-01-02", {name: (ROOT / name).read_text() for name in NAMES})
    assert tomllib.loads(texts["pyproject.toml"])["project"]["version"] == "9.8.7"
    assert '__version__ = "9.8.7"' in texts["src/ritz/__init__.py"] and "## 9.8.7 - 2030-01-02" in texts["CHANGELOG.md"]
    assert release.edits("9.8.8", "2031-01-02", texts)["CHANGELOG.md"].count("\n## ") >= 3  # and the next time, too
    assert "version: 9.8.7\ndate-released: 2030-01-02" in texts["CITATION.cff"]


def test_all_files_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (
        project["version"] == ritz.__version__ and f"version: {ritz.__version__}" in (ROOT / "CITATION.cff").read_text()
    )


@pytest.mark.parametrize("version", ["", "1.0", "v1.0.0", "1.0.0; rm"])
def test_text_that_is_not_a_version_is_refused(version):
    with pytest.raises(SystemExit, match="make release VERSION"):
        release.main(version)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with the files that a release changes; nothing is built."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    changelog = (tmp_path / "CHANGELOG.md").read_text()  # nothing is unreleased while a release is made, and after it
    (tmp_path / "CHANGELOG.md").write_text(changelog.replace("## Unreleased\n", "## Unreleased\n\n- It is better.\n"))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "CHECKS", ())
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.name", "A")
    git(tmp_path, "config", "user.email", "a@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def state(folder):
    return git(folder, "log", "--format=%s"), git(folder, "status", "--porcelain"), git(folder, "tag")


def test_a_release_is_a_commit_with_a_tag_and_can_be_taken_back(clone, capsys):
    release.main("9.8.7")
    assert state(clone) == ("Release 9.8.7\nfirst\n", "", "v9.8.7\n")
    assert '__version__ = "9.8.7"' in (clone / "src/ritz/__init__.py").read_text()
    subprocess.run(capsys.readouterr().out.split("To take it back: ")[1], shell=True, cwd=clone, check=True)
    assert state(clone) == ("first\n", "", "")


@pytest.mark.parametrize("version", ["9.8.7", "9.8.6", "9.8.7rc1"])
def test_a_version_that_exists_or_was_passed_is_refused_before_anything_runs(clone, monkeypatch, version):
    git(clone, "tag", "v9.8.7")
    git(clone, "tag", "data-of-2020")  # of another kind
    monkeypatch.setattr(release, "CHECKS", (["no such command"],))
    with pytest.raises(SystemExit, match=r"v9\.8\.7 is tagged.*take a higher number"):
        release.main(version)
    assert state(clone)[:2] == ("first\n", "")
    monkeypatch.setattr(release, "CHECKS", ())
    release.main("9.8.8")


def test_changes_are_named_and_can_be_put_aside(clone):
    (clone / "new.py").write_text("")
    with pytest.raises(SystemExit, match=r"git stash -u(.|\n)*new.py"):
        release.main("9.8.7")
    git(clone, "stash", "-u")
    release.main("9.8.7")


def test_a_folder_that_is_not_a_clone_is_refused(clone, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(clone.parent))
    shutil.rmtree(clone / ".git")
    with pytest.raises(SystemExit, match="make it in a clone"):
        release.main("9.8.7")


def test_an_empty_changelog_is_refused(clone):
    release.main("9.8.7")
    with pytest.raises(SystemExit, match="write there what a user will notice"):
        release.main("9.8.8")
    changelog = clone / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## Unreleased\n", "## Unreleased\n\n- It is better.\n"))
    git(clone, "commit", "-qam", "Say so")
    release.main("9.8.8")


@pytest.mark.parametrize("command", ["test", "tag"])
def test_a_release_that_fails_leaves_no_trace(clone, monkeypatch, command):
    if command == "test":
        monkeypatch.setattr(release, "CHECKS", (["false"],))
    else:  # a tag that git refuses after the commit
        git(clone, "config", "tag.gpgSign", "true")
        git(clone, "config", "gpg.program", "false")
    with pytest.raises(SystemExit, match=r"Nothing was released, for .*false.* failed|git tag .* failed"):
        release.main("9.8.7")
    assert state(clone) == ("first\n", "", "")


@pytest.fixture
def setup(monkeypatch):
    """The functions of setup.py by name; nothing is set up."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    return runpy.run_path(str(ROOT / "setup.py"))


@pytest.fixture
def absolute(setup):
    """What changes links."""
    return setup["absolute"]


def test_without_a_base_address_there_is_no_picture_and_no_relative_link(absolute):
    text = absolute((ROOT / "README.md").read_text(), "")
    assert "![" not in text and "](" not in text and "Documentation" in text


def test_with_a_base_address_every_link_is_absolute(absolute):
    text = absolute("![a](docs/a.png) [b](docs/b.md) [c](https://c.d/e)", "https://x.y/z")
    assert text == "![a](https://x.y/z/raw/main/docs/a.png) [b](https://x.y/z/blob/main/docs/b.md) [c](https://c.d/e)"


def test_the_wheel_has_every_record_and_each_of_their_arrays_once(setup, tmp_path):
    one, other = (ritz.Record(id, "smoke", {}, {"π": 3.5}, {"x": torch.ones(3)}) for id in ("one", "other"))
    third = ritz.Record("third", "paper+x", {}, {}, {"x": torch.zeros(3)})
    for record in (one, other, third):
        record.save(tmp_path / "results" / record.id / record.preset)
    setup["copy_records"](tmp_path / "results", tmp_path / "wheel")
    assert len([*(tmp_path / "wheel").rglob("arrays.npz")]) == 2
    for record in (one, other, third):
        same = ritz.Record.load(tmp_path / "wheel" / record.id / record.preset)
        assert (same.id, same.scalars) == (record.id, record.scalars)
        assert same.arrays["x"].tolist() == record.arrays["x"].tolist()


def test_the_matrix_has_three_versions():
    requirements = matrix.versions()
    assert [*requirements] == ["lowest", "pinned", "newest"] and requirements["lowest"].startswith("torch==2.")
