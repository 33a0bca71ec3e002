"""The documentation without building it: links, names, numbers and code are those of the source."""

import ast
import importlib
import json
import pkgutil
import re
from pathlib import Path

import curvlinops
import pytest
from benchmarks import page, side_by_side
from docs._tools import reference_pages

import ritz
from tests.documents import DOCS, PAGES
from tests.faces import FACES, public
from tests.source import ROOT

DOCUMENTS = [*ROOT.glob("*.md"), *PAGES, *(DOCS / "notebooks").glob("*.ipynb")]
GALLERY = sorted((DOCS / "gallery").glob("*.py"))
every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def source_of(target: Path) -> Path:
    """What a page that only the build writes is made from."""
    inside = target.relative_to(DOCS).parts if target.is_relative_to(DOCS) else ()
    if inside[:1] == ("auto_gallery",):
        name = "GALLERY_HEADER.rst" if target.stem == "index" else f"{target.stem}.py"
        return DOCS / "gallery" / name
    if inside[:1] == ("reference",):
        assert target.stem in reference_pages.pages()
        return DOCS
    return target


@every_document
def test_links_lead_somewhere(document):
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()) if "://" not in link]
    targets = [(document.parent / link.replace("\\", "")).resolve() for link in links]
    assert not [target for target in targets if not source_of(target).exists()]


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_contents_name_pages_that_exist(document):
    trees = re.findall(r"```{toctree}\n(.*?)```", document.read_text(), re.DOTALL)
    names = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    places = [(document.parent / name).resolve() for name in names if "*" not in name]
    found = [any(source_of(Path(f"{place}.{kind}")).exists() for kind in ("md", "ipynb", "rst")) for place in places]
    assert all(found), names


def test_every_page_is_in_the_contents():
    text = "\n".join(path.read_text() for path in PAGES)
    listed = {
        line.split("/")[-1] for tree in re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL) for line in tree.split()
    }
    assert (
        not {path.stem for path in PAGES} - listed - {"index"} - {path.stem for path in (DOCS / "papers").glob("*.md")}
    )


@pytest.mark.parametrize("face", FACES)
def test_the_reference_has_every_public_name(face):
    module = f"ritz.{face}".rstrip(".")
    names, text = public(importlib.import_module(module)), reference_pages.pages()[module]
    assert names.keys() <= {*re.findall(r"^\| (?:{py:obj}`|\[)?(\w+)", text, re.MULTILINE)}
    described = re.findall(
        r"(?:autoclass|autofunction|py:data):: (ritz[\w.]*)", "".join(reference_pages.pages().values())
    )
    assert {*re.findall(r"^\| {py:obj}`\w+ <(.*?)>", text, re.MULTILINE)} <= {*described}


def test_a_table_of_the_reference_says_what_a_name_is_and_leads_to_where_it_is_described():
    text = reference_pages.pages()["ritz.solvers"]
    assert "| {py:obj}`trace <ritz.trace>` |" in text and ".. autofunction:: ritz.solvers.trace" not in text
    assert reference_pages.summary(reference_pages.summary).startswith("The first sentence of a docstring, as Markdown")
    assert reference_pages.summary(3.0) == ""
    assert reference_pages.summary(ritz.hessian) == "H = ∇²R(θ): Papyan (2019), eq. (1)."


def test_docstrings_become_text_that_sphinx_can_read():
    lines = ["max |λ| of a* and `b*`, W_ too", "", "    code | here", "", ">>> a | b_", "", "Args:", "    x: |y|"]
    reference_pages.as_text(None, "function", "f", None, None, lines)
    assert lines[0] == r"max \|λ\| of a\* and `b*`, W\_ too" and lines[2:4] == ["::", ""]
    assert "    code | here" in lines and ">>> a | b_" in lines and r"    x: \|y\|" in lines


def test_what_a_property_is_stays_in_one_sentence_and_fields_of_tuples_in_the_signature():
    lines = ["N, the number of terms: as many as examples."]
    reference_pages.as_text(None, "property", "f", None, None, lines)
    assert lines == ["..", "", "N, the number of terms: as many as examples."]  # an empty comment has no colon
    assert ":exclude-members: set, x, y" in reference_pages.pages()["ritz.lab.data"]


def test_the_gallery_has_fifteen_programs_with_a_title_and_a_picture():
    assert len(GALLERY) >= 15
    for path in GALLERY:
        tree = ast.parse(path.read_text())
        title, line = (ast.get_docstring(tree) or "").split("\n")[:2]
        shown = [node for node in tree.body if isinstance(node, ast.Expr) and ast.unparse(node) == "figure"]
        assert len(title) == len(line) and set(line) == {"="} and shown, path.name


def test_three_notebooks_open_in_jupyter_and_are_stored_without_results():
    books = [json.loads(path.read_text()) for path in (DOCS / "notebooks").glob("*.ipynb")]
    cells = [cell for book in books for cell in book["cells"] if cell["cell_type"] == "code"]
    assert len(books) == 3 and all(book["nbformat"] == 4 for book in books)
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    assert all(ast.parse("".join(cell["source"])).body for cell in cells)


@pytest.mark.parametrize("library", [library for library in side_by_side.JOBS if library != "ritz"])
def test_the_side_by_side_pages_are_those_of_the_record(library):
    text = (DOCS / "coming-from" / f"{library.lower()}.md").read_text()
    record = json.loads(side_by_side.RECORD.read_text())
    assert side_by_side.page(text, library, record) == text, "python -m benchmarks.side_by_side --page writes it anew"


def test_the_benchmarks_are_those_of_the_records():
    tables = lambda text: [line for line in text.splitlines() if line.startswith("|")]
    assert tables(page.page()) == tables(page.PAGE.read_text()), "python -m benchmarks.page writes it anew"


NAME = re.compile(r"(?<![\w/.-])ritz((?:\.[a-zA-Z]\w*)+)")  # a dotted name, and no file
HISTORY = ("CHANGELOG.md", "decisions.md")  # names are those of their day


@pytest.mark.parametrize(
    "document",
    [document for document in [*DOCUMENTS, *GALLERY] if document.name not in HISTORY],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_every_name_of_ritz_exists(document):
    for name in {*NAME.findall(document.read_text())}:
        pkgutil.resolve_name(f"ritz{name}")


def test_the_names_of_curvlinops_are_those_of_the_version_that_was_measured():
    text = (DOCS / "coming-from" / "curvlinops.md").read_text()
    left = "".join(row.split("|")[1] for row in text.splitlines() if row.startswith("| `"))
    names = [name for name in re.findall(r"`(\w+)", left) if name not in ("eigsh", "params")]
    assert len(names) >= 9 and all(hasattr(curvlinops, name) for name in names)


COVERED = {
    "`mass(a, b)`": ("mass",),
    "`trace`": ("trace, 40",),
    "`effective_rank`": ("effective rank",),
    "`negative_mass`": ("negative mass",),
    "`log_determinant`": ("log-determinant",),
    "`solvers.norm`": ("Frobenius norm", "nuclear norm"),
}  # what stands in a row of "How sure is it?", and the numbers of the record that it sums up


@pytest.mark.parametrize("name", COVERED)
def test_the_rates_of_how_sure_are_those_of_the_record(name):
    numbers = json.loads((ROOT / "benchmarks/results/coverage.json").read_text())["numbers"]
    rates = [round(100 * row["rate"]) for row in numbers if row["number"].startswith(COVERED[name])]
    rows = [line for line in (DOCS / "how-sure.md").read_text().splitlines() if line.startswith("|")]
    (row,) = [row for row in rows if name in "".join(row.split("|")[1:3])]
    assert row.endswith(f"| {min(rates)} to {max(rates)} % |")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_cells_of_pages_are_code(path):
    for tags, code in re.findall(r"```{code-cell} ipython3\n((?::.*\n)*)(.*?)```", path.read_text(), re.DOTALL):
        lines = [line for line in code.splitlines() if not line.startswith(("!", "%"))]
        ast.parse("\n".join(lines))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_programs_of_pages_are_code(path):
    for code in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        ast.parse(code)
