"""docs/equations.md: every equation leads to one name of ritz, whose docstring cites it."""

import importlib
import inspect
import re

import pytest

from tests.source import ROOT

TEXT = (ROOT / "docs" / "equations.md").read_text()
PAPERS = ("Singh et al. (2026)", "linear2026", "Papyan (2019)", "Papyan (2020)")
ROW = re.compile(r"^\| (?P<label>[^|]+?) \| (?P<says>(?:\\\||[^|])+?) \| `(?P<name>[\w.]+)` \|$", re.MULTILINE)
NUMBERED = r"(?:Thm|Cor|Lemma|Remark|Def\.?|Alg\.) [AB0-9]+(?:\.\d+)?"


def rows(text):
    """(paper, label, name) of each row; the heading of a section begins with the paper as it is cited."""
    for section in text.split("\n## ")[1:]:
        paper = section.split(":")[0]
        yield from ((paper, row["label"], row["name"]) for row in ROW.finditer(section))


def resolved(name):
    """The object of a qualified name: the longest part that is a module is imported, the rest are attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


def cites(docstring, paper, label):
    """Whether a docstring names the label after the paper, before another paper is named; "eq. (3), (4)" has both."""
    text = " ".join(docstring.split())
    others = "|".join(re.escape(other) for other in PAPERS if other != paper)
    number = re.escape(label).replace(r"\ ", " ")
    if equation := re.fullmatch(r"eq\. (\(\w+\.?\d*\))", label):
        number = r"eq\. (?:\([\w.]+\)(?:, | and ))*" + re.escape(equation[1])
    return any(re.search(number + r"(?![\w]|\.\d|-\()", re.split(others, part)[0]) for part in text.split(paper)[1:])


every_row = pytest.mark.parametrize("paper, label, name", list(rows(TEXT)))


@every_row
def test_an_equation_leads_to_code_that_cites_it(paper, label, name):
    assert cites(inspect.getdoc(resolved(name)) or "", paper, label)


def test_every_row_of_the_table_is_read():
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| where")]
    assert len(lines) == len(list(rows(TEXT))) > 80
    assert {paper for paper, _, _ in rows(TEXT)} == set(PAPERS)


def test_every_numbered_result_of_the_errata_is_in_the_table():
    def plain(label):
        return label.replace("Def ", "Def. ")

    errata = (ROOT / "docs" / "errata.md").read_text()
    assert {plain(label) for label in re.findall(NUMBERED, errata)} <= set(re.findall(NUMBERED, TEXT))


def test_the_table_can_be_wrong():
    docstring = """H of a network. Singh et al. (2026), Thm 3.1 and eq. (1), (12); Papyan (2020), Alg. 2."""
    for label in ("Thm 3.1", "eq. (1)", "eq. (12)"):
        assert cites(docstring, "Singh et al. (2026)", label)
    for label in ("Thm 3", "Thm 3.11", "eq. (2)", "eq. (13)", "Alg. 2"):
        assert not cites(docstring, "Singh et al. (2026)", label)
    assert not cites(docstring, "linear2026", "Thm 3.1") and cites(docstring, "Papyan (2020)", "Alg. 2")
    assert list(rows("\n## A: b\n| eq. (1) | x | `ritz.y` |\n")) == [("A", "eq. (1)", "ritz.y")]
    for missing in ("ritz.nothing", "ritz.theory.nothing", "nothing.at.all"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            resolved(missing)
