"""What pyproject.toml cannot say: the records that go into the wheel, and links that work where the README is shown."""

import json
import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
BASE = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["ritz"]["base"].rstrip("/")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+://)([^)]*)\)")


def absolute(text: str, base: str) -> str:
    """Relative links become absolute ones; without a base address, pictures are left out and links are their text."""

    def link(match: re.Match[str]) -> str:
        picture, words, path = match.groups()
        if base:
            return f"{picture}[{words}]({base}/{'raw' if picture else 'blob'}/main/{path})"
        return "" if picture else words

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(link, text))


class Build(build_py):
    """The usual build, with the records of the papers' figures beside the code that draws them."""

    def run(self) -> None:
        """Copy what `ritz claims` and `ritz draw` read; the pictures can be drawn again."""
        super().run()
        if not self.editable_mode:
            copy_records(HERE / "results", Path(self.build_lib) / "ritz" / "papers" / "records")


def copy_records(results: Path, target: Path) -> None:
    """The records, and each of their arrays once: figures that share a computation name those of the first one."""
    first = dict[str, str]()
    for path in sorted(results.glob("*/*/record.json")):
        place = path.parent.relative_to(results)
        (target / place).mkdir(parents=True, exist_ok=True)
        header = json.loads(path.read_text(encoding="utf-8"))
        owner = first.setdefault(header["arrays"]["sha256"], place.as_posix())
        if owner == place.as_posix():
            shutil.copyfile(path.parent / "arrays.npz", target / place / "arrays.npz")
        else:
            header["arrays"]["file"] = f"../../{owner}/arrays.npz"
        text = json.dumps(header, indent=2, ensure_ascii=False) + "\n"
        (target / place / "record.json").write_text(text, encoding="utf-8")


setup(
    cmdclass={"build_py": Build},
    long_description=absolute((HERE / "README.md").read_text(), BASE),
    long_description_content_type="text/markdown",
    project_urls={
        "Source": BASE,
        "Documentation": f"{BASE}/tree/main/docs",
        "Changelog": f"{BASE}/blob/main/CHANGELOG.md",
    }
    if BASE
    else {},
)
