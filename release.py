"""A release in one command: `make release VERSION=0.2.0`.

The version goes into pyproject.toml, the package and CITATION.cff, the date into the changelog, whose section of what
is not released yet begins anew; tests run, site, wheel and sources are built and checked; then the commit is made and
tagged. Nothing is pushed or uploaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent
CHECKS = (["make", "test"], ["make", "docs"], ["make", "wheel"])


def changed(text: str, pattern: str, replacement: str, where: str) -> str:
    """The text with the one place that the pattern names replaced; anything else is an error."""
    result, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{where} has {count} places that match {pattern}; one was expected.")
    return result


def edits(version: str, date: str, read: dict[str, str]) -> dict[str, str]:
    """The files that hold the version or the date, as they should be."""
    places = {
        "pyproject.toml": [(r'^version = "[^"]*"', f'version = "{version}"')],
        "src/ritz/__init__.py": [(r'^__version__ = "[^"]*"', f'__version__ = "{version}"')],
        "CITATION.cff": [(r"^version: .*", f"version: {version}"), (r"^date-released: .*", f"date-released: {date}")],
        "CHANGELOG.md": [(r"^## Unreleased$", f"## Unreleased\n\n## {version} ({date})")],
    }
    texts = dict(read)
    for name, changes in places.items():
        for pattern, replacement in changes:
            texts[name] = changed(texts[name], pattern, replacement, name)
    return texts


def main(version: str) -> None:
    """Change, check, commit, tag."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        sys.exit(f"{version!r} is no version such as 0.2.0 or 0.2.0rc1: make release VERSION=0.2.0")
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        sys.exit("There are changes that are not committed: a release is made from a commit.")
    names = ("pyproject.toml", "src/ritz/__init__.py", "CITATION.cff", "CHANGELOG.md")
    read = {name: (ROOT / name).read_text() for name in names}
    texts = edits(version, datetime.now(UTC).date().isoformat(), read)
    for name, text in texts.items():
        (ROOT / name).write_text(text)
    try:
        for command in CHECKS:
            subprocess.run(command, cwd=ROOT, check=True)
    except (subprocess.CalledProcessError, KeyboardInterrupt) as error:
        for name, text in read.items():
            (ROOT / name).write_text(text)
        sys.exit(f"Nothing was released: {error}")
    subprocess.run(["git", "commit", "-am", f"Release {version}"], cwd=ROOT, check=True)
    subprocess.run(["git", "tag", "-a", f"v{version}", "-m", f"ritz {version}"], cwd=ROOT, check=True)
    print(f"v{version} is tagged, and dist/ holds it. To publish: git push --follow-tags, twine upload dist/*")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
