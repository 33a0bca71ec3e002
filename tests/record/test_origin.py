"""A result says where it comes from, and names no machine, user or folder."""

import shutil
import subprocess

import pytest
import torch

import ritz
from ritz.record import origin, provenance


def test_provenance_names_versions_and_no_machine():
    import getpass
    import socket

    facts = provenance()
    names = {"ritz", "torch", "numpy", "commit", "python", "platform", "device", "threads", "date"}
    assert names == set(facts) and set(provenance(seconds=1.5)) == names | {"seconds"}
    assert facts["torch"] == torch.__version__ and facts["date"].endswith("+00:00")
    assert facts["threads"] == torch.get_num_threads()
    for private in (socket.gethostname(), getpass.getuser(), "/"):
        assert private not in " ".join(map(str, facts.values()))


def test_the_version_of_what_runs_from_its_source_is_its_own(monkeypatch):
    monkeypatch.setattr(origin, "version", lambda package: pytest.fail("as if it were installed"))
    assert origin.version_of("ritz") == ritz.__version__


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree of its own, with the package where ritz has it; `commit()` asks for its commit."""
    package = tmp_path / "tree/src/ritz"
    package.mkdir(parents=True)
    (package / "record").mkdir()
    (package / "record/origin.py").write_text("1")
    monkeypatch.setattr(origin, "__file__", str(package / "record/origin.py"))
    return tmp_path / "tree"


def git(tree, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", "-C", tree, *who, *arguments], check=True, capture_output=True, text=True).stdout


def commit():
    return origin._commit.__wrapped__()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_source_tree_and_says_whether_the_code_was_changed(tree):
    assert commit() is None  # an installed package
    git(tree, "init")
    assert commit() is None  # no commit yet
    git(tree, "add", ".")
    git(tree, "commit", "-m", "first")
    head = git(tree, "rev-parse", "HEAD").strip()
    assert commit() == head[:12]
    (tree / "results.json").write_text("new results are no changes of the code")
    assert commit() == head[:12]
    (tree / "src/ritz/record/origin.py").write_text("2")
    assert commit() == head[:12] + "+changes"


def test_without_git_there_is_no_commit_and_no_error(tree, monkeypatch):
    (tree / ".git").mkdir()
    assert commit() is None  # a folder that is no repository
    monkeypatch.setenv("PATH", str(tree))
    assert commit() is None
