"""What pyproject.toml cannot say: the records that go into the wheel, and links that work where the README is shown."""

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
        if self.editable_mode:
            return
        for header in sorted((HERE / "results").glob("*/*/record.json")):
            target = Path(self.build_lib) / "ritz" / "papers" / "records" / header.parent.relative_to(HERE / "results")
            target.mkdir(parents=True, exist_ok=True)
            for name in ("record.json", "arrays.npz"):
                shutil.copyfile(header.parent / name, target / name)


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
