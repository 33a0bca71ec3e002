"""Where the documentation is, and its pages."""

from tests.source import ROOT

DOCS = ROOT / "docs"
BUILT = ("_build", "auto_gallery", "reference")
PAGES = [path for path in DOCS.rglob("*.md") if not set(BUILT) & set(path.relative_to(DOCS).parts)]
