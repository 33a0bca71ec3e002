"""A release in one command: `make release VERSION=0.2.0`.

The version goes into pyproject.toml, the package and CITATION.cff, the date into the changelog, whose section of what
is not released yet begins anew; tests run, site, wheel and sources are built and checked; then the commit is made and
tagged. Nothing is pushed or uploaded. What would stop it is looked for first, and what stops it later leaves no trace.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent
CHECKS = (["make", "test"], ["make", "docs"], ["make", "wheel"])
FILES = ("pyproject.toml", "src/ritz/__init__.py", "CITATION.cff", "CHANGELOG.md")


def changed(text: str, pattern: str, replacement: str, where: str) -> str:
    """The text with the one place that the pattern names replaced; anything else is an error."""
    result, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{where} has {count} places that match {pattern}, and a release changes one: mend the file first.")
    return result


def edits(version: str, date: str, read: dict[str, str]) -> dict[str, str]:
    """The files that hold the version or the date, as they should be."""
    places = {
        "pyproject.toml": [(r'^version = "[^"]*"', f'version = "{version}"')],
        "src/ritz/__init__.py": [(r'^__version__ = "[^"]*"', f'__version__ = "{version}"')],
        "CITATION.cff": [(r"^version: .*", f"version: {version}"), (r"^date-released: .*", f"date-released: {date}")],
        "CHANGELOG.md": [(r"^## Unreleased$", f"## Unreleased\n\n## {version} - {date}")],
    }
    texts = dict(read)
    for name, changes in places.items():
        for pattern, replacement in changes:
            texts[name] = changed(texts[name], pattern, replacement, name)
    return texts


def main(version: str) -> None:
    """Change, check, commit, tag."""
    read = {name: (ROOT / name).read_text() for name in FILES}
    check(version, read["CHANGELOG.md"])
    texts = edits(version, datetime.now(UTC).date().isoformat(), read)
    before = _git("rev-parse", "HEAD").stdout.strip()
    try:
        _write(texts)
        for command in CHECKS:
            subprocess.run(command, cwd=ROOT, check=True)
        _git("commit", "--quiet", "-m", f"Release {version}", "--", *FILES)
        _git("tag", "-a", f"v{version}", "-m", f"ritz {version}")
    except (subprocess.CalledProcessError, KeyboardInterrupt) as error:
        _git("reset", "--quiet", before)  # the commit, where its tag failed
        _write(read)
        why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"`{' '.join(error.cmd)}` failed"
        sys.exit(f"Nothing was released, for {why}. All files are as they were: mend it and run the same once more.")
    print(f"v{version} is tagged, and dist/ holds it. Nothing was pushed or uploaded.")
    print("To publish it:   git push --follow-tags && .venv/bin/python -m twine upload dist/*")
    print(f"To take it back: git tag -d v{version} && git reset --hard HEAD~1")


def check(version: str, changelog: str) -> None:
    """Refuse at once what would fail after tests and site, or be wrong."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        sys.exit(f"{version!r} is no version such as 0.2.0 or 0.2.0rc1: make release VERSION=0.2.0")
    if (answer := _git("status", "--porcelain", check=False)).returncode:
        sys.exit("This folder is no clone, and a release is a commit with a tag: make it in a clone of the repository.")
    if answer.stdout:
        sys.exit(f"There are changes that are not committed; commit or stash them (git stash -u):\n{answer.stdout}")
    if _git("var", "GIT_COMMITTER_IDENT", check=False).returncode:
        sys.exit(
            "git does not know who you are: git config user.name 'Your Name', git config user.email you@example.org"
        )
    latest = max(filter(None, map(_version, _git("tag").stdout.split())), default=None)
    if latest is not None and Version(version) <= latest:
        sys.exit(f"v{latest} is tagged, and {version} does not come after it: take a higher number. See them: git tag")
    if not re.search(r"^## Unreleased$\s*^(?!## )\S", changelog, flags=re.MULTILINE):
        sys.exit("CHANGELOG.md says nothing under ## Unreleased: write there what a user will notice, and commit it.")


def _version(tag: str) -> Version | None:
    try:
        return Version(tag.removeprefix("v"))
    except InvalidVersion:  # a tag of another kind
        return None


def _write(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (ROOT / name).write_text(text)


def _git(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """With `check` git's own words on what is wrong are shown; without, they stay with the answer."""
    said = None if check else subprocess.PIPE
    return subprocess.run(["git", *words], cwd=ROOT, check=check, stdout=subprocess.PIPE, stderr=said, text=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
