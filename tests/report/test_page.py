"""The page as a file: whole, small, in order, and without anything from elsewhere."""

import html
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

from ritz import Risk, hessian, report
from ritz.analysis import spectrum
from ritz.analysis.comparison import Entry
from ritz.errors import ArgumentError
from ritz.papers.frame.registry import figures
from ritz.record import Claim, Record, plain
from ritz.report import paper_figures, spectra
from ritz.report.spectral_charts import Lines, log_density
from ritz.report.subjects import articles
from ritz.report.typesetting import numerals, typeset
from ritz.spectrum import Spectrum
from ritz.spectrum.estimate import digits_within
from ritz.theory import ClosedForm, Group
from tests.report.conftest import HOSTILE

VOID = {"meta", "input", "img", "br", "link"}
ORDER = [
    "What was analysed", "Density", "Log spectrum", "Eigenvalues", "Where the lines come from",
    "Layers side by side", "Certificates", "How to reproduce it", "Words",
]  # fmt: skip


class Structure(HTMLParser):
    """The open elements, which must close in turn; headings, targets, links."""

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.targets, self.links = [], [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.targets += [attributes["id"]] if "id" in attributes else []
        self.links |= {attributes["href"]} if "href" in attributes else set()
        self.headings += [""] if tag == "h2" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "h2" in self.open:
            self.headings[-1] += data


@pytest.fixture(scope="module")
def text(records, tmp_path_factory):
    return report.write(records, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


def test_every_element_closes_and_every_link_leads_somewhere(text):
    structure = Structure(text)
    assert structure.open == []
    assert len(structure.targets) == len({*structure.targets})
    assert {link.removeprefix("#") for link in structure.links} <= {*structure.targets}


def test_what_was_measured_of_one_model_is_one_article_in_this_order(text):
    headings = [heading for heading in Structure(text).headings if heading in ORDER]
    assert headings == ORDER
    assert text.count("<article") == 1


def test_every_section_that_needs_it_says_how_to_read_it(text):
    """Who sees a spectrum for the first time learns what an eigenvalue is, what G and E are, what a residual bounds."""
    guides = [
        (
            re.sub("<[^>]*>", "", part.partition("<h2>")[2].partition("</h2>")[0]),
            part.partition('class="guide">')[2].partition("</p>")[0],
        )
        for part in text.split("<section")[1:]
        if 'class="guide"' in part
    ]
    assert [title for title, _ in guides[:3]] == ["Density", "Log spectrum", "Eigenvalues"]
    assert "curvature of the loss along one direction" in guides[0][1] and "H = G + E" in guides[0][1]
    assert "they do not say how far others would move the numbers" in text


def test_a_page_about_the_gauss_newton_matrix_alone_does_not_speak_of_the_loss(records):
    (article,) = articles([record for record in records if record.config.get("operator") == "gauss_newton"])
    words = " ".join(section.guide for section in article.sections)
    assert "one direction" in words and "bends" not in words and "changes the loss" not in words


def test_what_was_measured_on_other_examples_has_a_name_of_its_own(records):
    """Two parts of a page with one heading would be two links that nobody can tell apart."""
    few, layer = (
        replace(records[0], config=records[0].config | own) for own in ({"examples": 20}, {"layers": ["a.*"]})
    )
    titles = [article.title for article in articles([records[0], few, layer])]
    assert titles[1:] == [f"{titles[0]}, first 20 examples", f"{titles[0]}, a.*"]


@pytest.fixture(scope="module")
def comparison(records, tmp_path_factory):
    entries = [Entry.of(record, name=name) for name, record in zip(("before", HOSTILE), records, strict=False)]
    return report.compare(entries, tmp_path_factory.mktemp("page") / "compare.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["text", "comparison"])
def test_every_heading_of_a_table_and_every_fact_is_explained(page, request):
    body = request.getfixturevalue(page)
    measured = body.partition("How to reproduce it")[0]
    headings = re.findall(r'<th scope="col">(.*?)</th>|<span class="label">(.*?)</span>', measured)
    facts = [] if page == "comparison" else re.findall("<dt>(.*?)</dt>", measured)  # which are the user's own names
    plain = [one for one in [*map("".join, headings), *facts] if not one.startswith("<dfn")]
    assert {*plain} <= {"number", "value"}  # of the certificates, which explain themselves


@pytest.mark.parametrize("page", ["text", "comparison"])
def test_every_section_with_a_chart_or_a_table_leads_to_its_certificate(page, request):
    sections = request.getfixturevalue(page).partition("Certificates")[0].split("<section")[2:]
    shown = [one for one in sections if "<figure" in one or "<table" in one]
    assert len(shown) >= 4 and all('class="sure" href="#a1-s' in one for one in shown)


class Sentences(HTMLParser):
    """What is said in paragraphs, facts, captions and cells outside of any link, and how many links there are."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.linked = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.linked += tag == "a" and any(name in self.open for name in ("p", "caption"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if {"p", "li", "dd", "caption", "td"} & {*self.open} and not {"a", "dfn", "sub"} & {*self.open}:
            self.words.append(data)


@pytest.mark.parametrize("page", ["text", "comparison"])
def test_every_number_of_a_sentence_leads_to_its_certificate(page, request):
    sentences = Sentences(request.getfixturevalue(page).partition('<section id="a1-proofs')[0].partition("<main>")[2])
    words = [word for text in sentences.words for word in text.replace(HOSTILE, "").split()]
    assert sentences.linked >= 4 and len(words) > 40
    assert [word for word in words if re.match(r"-?\d[\d.,]*%?$", word)] == []


def test_digits_within_names_are_no_numbers(records, tmp_path):
    named = [Entry.of(record, name=name) for name, record in zip(("out/a-2", "b:0.conv1"), records, strict=False)]
    text = report.compare(named, tmp_path / "compare.html").read_text(encoding="utf-8")
    assert "From out/a-2 to b:0.conv1 " in text


def test_the_finding_of_several_is_one_sentence(records, tmp_path):
    named = [Entry.of(record, name=name) for name, record in zip("abc", records, strict=False)]
    page = report.compare(named, tmp_path / "compare.html").read_text(encoding="utf-8")
    finding = re.sub("<[^>]*>", "", re.findall('class="finding">(.*?)<a class="sure"', page)[0])
    assert finding.startswith("Against a: b is W₁ = ") and "; c is W₁ = " in finding and finding.count(". ") == 1
    assert "changed beyond noise" in finding and finding.endswith(". ")


def test_nothing_is_fetched_from_elsewhere(text):
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(\s*[\"']?http", text)


def test_headline_numbers_are_those_of_the_record(text, records):
    value, residual = (float(records[0].arrays[key][0]) for key in ("eigenvalues", "residuals"))
    assert value == float(records[0].arrays["eigenvalues"].max())
    assert f"{digits_within(value, residual)} ±</span>" in text
    assert f"{digits_within(2 / value, 2 * residual / value**2)} ±" in text
    assert "plain gradient descent is unstable" in text
    assert numerals(f"{records[0].scalars['accuracy']:.2%} on these data") in text


def test_eigenvalues_of_a_class_analysis_have_the_digits_that_their_residuals_reach(records, tmp_path):
    text = report.write([records[-1]], tmp_path / "page.html").read_text()
    value, residual = (float(records[-1].arrays[f"gauss_newton/{key}"][0]) for key in ("values", "residuals"))
    assert len(digits_within(value, residual)) > len(f"{value:.6g}")
    assert f"{digits_within(value, residual)} ±</span>" in text and f">{digits_within(value, residual)}<" in text


def test_the_model_and_the_loss_are_named(text, records):
    words = re.sub("<[^>]*>", "", text)
    assert "Sequential, from " in words and f"CrossEntropy: {records[0].scalars['loss']:.6g}" in words


def test_a_matrix_that_the_command_does_not_know_is_measured_again_from_python(records, tmp_path):
    record = replace(records[1], config={**records[1].config, "operator": "monte_carlo_fisher"})
    words = html.unescape(report.write([record], tmp_path / "page.html").read_text().partition("<script")[0])
    words = re.sub("<[^>]*>", "", words)
    assert "Settings(operator=monte_carlo_fisher, num_eigenpairs=3, num_probes=4, num_steps=20" in words
    assert "--operator" not in words and "The Monte Carlo Fisher matrix has" in words


@pytest.mark.parametrize(
    "plain, written",
    [
        ("1.87541 ± 3e-07", "1.87541 ± 3·10⁻⁷"),
        ("from 1e-05 to 2.5e+06", "from 10⁻⁵ to 2.5·10⁶"),
        ("(1.2 ± 0.3)e-05", "(1.2 ± 0.3)·10⁻⁵"),
        ("96% of 4, 95 % of all", "96\u202f% of 4, 95\u202f% of all"),
        ("from -0.34 to (-1e-05)", "from −0.34 to (−10⁻⁵)"),
        ("out/a-2, 2026-11-19, conv-1, 3-4", "out/a-2, 2026-11-19, conv-1, 3-4"),
        ("cifar/out/after:head", "cifar/<wbr>out/<wbr>after:<wbr>head"),
        ("2/λ_max of a/b:c", "2/λ<sub>max</sub> of a/b:c"),
        ("lr1e-5 and v1.2e-4x", "lr1e-5 and v1.2e-4x"),
        ("-λ_min/λ_max <b>", "-λ<sub>min</sub>/λ<sub>max</sub> &lt;b&gt;"),
    ],
)
def test_numbers_and_symbols_are_typeset(plain, written):
    assert typeset(plain) == written


def test_no_number_of_a_page_is_written_as_computers_do(text):
    words = re.sub("<[^>]*>", "", re.sub("<(script|style|pre).*?</\\1>", "", text, flags=re.S))
    assert len(words) > 5000 and re.findall(r"\S*\de[-+]\d\S*", words) == []


def test_a_share_is_never_rounded_to_a_falsehood(records, tmp_path):
    """Some eigenvalues are far from zero, however many are near."""
    assert spectra._share(0.9996) == "nearly all are" and spectra._share(1.0) == "all are"
    assert spectra._share(0.96) == "96% of all are" and spectra._share(0.001) == "hardly any are"


def test_zeros_in_a_log_spectrum_are_said_to_be_zeros():
    zeros = {"G": Lines(Spectrum.of_eigenvalues(torch.cat([torch.zeros(50), torch.linspace(0.1, 1, 50)]).double()))}
    none = {"G": Lines(Spectrum.of_eigenvalues(torch.linspace(0.1, 1, 50).double()))}
    assert "zeros too" in log_density("Log spectrum", zeros).summary
    assert "zeros too" not in log_density("Log spectrum", none).summary


def test_eigenvalues_are_stems_in_a_log_spectrum_too_by_their_size():
    values = torch.cat([torch.linspace(0.01, 0.1, 50), torch.tensor([-5.0])]).double()
    curve, stems = log_density("", {"H": Lines(Spectrum.of_eigenvalues(values), 1, [(-5.0, "λ₁"), (0.0, "λ₂")])}).series
    assert (stems.kind, [*stems.x], [*stems.notes]) == ("stems", [5.0], ["λ₁"])  # zero has no place on the axis
    assert max(curve.x) < 1  # the curve is of all others


def test_a_matrix_of_zeros_is_said_to_be_one_and_why(tmp_path):
    """The loss |z - y| of a linear model has no second derivative."""
    risk = Risk(nn.Linear(3, 1), nn.L1Loss(), (torch.randn(20, 3), torch.randn(20, 1)))
    page = report.write([spectrum.run(risk)], tmp_path / "page.html").read_text(encoding="utf-8")
    finding = re.sub("<[^>]*>", "", page.partition('class="finding">')[2].partition("</p>")[0])
    assert finding.startswith("All 4 eigenvalues of the Hessian are zero: second derivatives vanish")


def test_an_exact_number_has_no_error_of_zero(tmp_path):
    torch.manual_seed(0)
    risk = Risk(nn.Linear(3, 2), nn.CrossEntropyLoss(), (torch.randn(20, 3), torch.randint(2, (20,))))
    page = report.write([spectrum.run(risk)], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "± 0<" not in page


def test_a_line_of_a_command_ends_between_words(text):
    code = text.partition("<pre")[2].partition("</pre>")[0]
    assert "<span>--per-layer</span>" in code and "</span> <span>--seed</span> <span>0</span>" in code


def test_counts_of_lines_stand_on_a_page_once_with_their_meaning(records, tmp_path, text):
    alone = report.write(records[-1:], tmp_path / "page.html").read_text(encoding="utf-8")
    for page, cards in ((text, 0), (alone, 1)):
        body = page.partition("Certificates")[0]
        assert len(re.findall('class="label"><dfn[^>]*>outliers<', body)) == cards
        assert len(re.findall("<dt><dfn[^>]*>outliers<", body)) == 1 - cards
        assert "above everything that is left of it without" in page.partition("Certificates")[2]


def test_a_page_of_many_records_stays_below_ten_megabytes(records, tmp_path):
    one, two = (report.write(records * n, tmp_path / f"{n}.html").stat().st_size for n in (1, 2))
    assert one < 3e6 and one + 19 * (two - one) < 10e6


def test_twenty_networks_of_many_layers_fit_into_ten_megabytes():
    """What is largest on a page is the chart of layers: exact ones have a curve over their whole range."""
    values = torch.logspace(-7, 1, 400, dtype=torch.float64)
    layers = {str(rank): Lines(Spectrum.of_eigenvalues(values * rank)) for rank in range(1, spectra.LAYERS + 1)}
    chart = log_density("Log spectra", layers, points=spectra.LAYER_POINTS)
    assert 20 * len(json.dumps(chart.plain())) < 8e6


def test_other_models_and_repetitions_are_articles_of_their_own(records, tmp_path):
    other = replace(records[0], config={**records[0].config, "factory": "other.py:risk"})
    page = report.write([records[0], records[0], other], tmp_path / "page.html").read_text()
    assert page.count("<article") == 3 and page.count("<nav") == 1


def test_the_figure_of_a_paper_shows_its_claims(tmp_path):
    claim = Claim("Lines are <b>straight</b>", "Nobody 2000", "Fig. 1", "equal", 1.0, 1.0, None, "yes")
    record = Record("nobody2000.fig1", "smoke", {"width": 3}, {}, {}, (claim,))
    page = report.write([record], tmp_path / "page.html").read_text()
    assert "Of 1 statement of the paper, 1 holds" in re.sub("<a[^>]*>|</a>", "", page)
    assert "Lines are &lt;b&gt;straight" in page


def test_claims_are_counted_apart_and_shown_with_numbers_readings_and_reasons(tmp_path):
    said = ("Nobody 2000", "Fig. 1", "at least 1", 1.0)
    claims = (
        Claim("One", *said, {"MNIST": 0.5, "CIFAR-10": [2.0, None]}, None, "partly", "Not yes: MNIST."),
        Claim("Two", *said, 2.0, None, "yes", "", "as printed", {"squared": {"measured": 0.25, "verdict": "no"}}),
        Claim("Three", "ritz", "Fig. 1", "at least 1", 1.0, 0.0, None, "no"),
    )
    config = {"network": {"rates": [0.1, 0.03], "whole": False}, "data": "mnist"}
    record = Record("nobody2000.fig1", "smoke", config, {}, {}, claims, {"seconds": 61.0, "device": "cpu"})
    page = report.write([record], tmp_path / "page.html").read_text()
    body = re.sub("<a [^>]*>|</a>", "", page.partition("<main>")[2].partition("<script")[0])
    words = " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())
    assert "Of 2 statements of the paper, 1 holds, 1 holds in part." in words
    assert "Of 1 statement of ours beside it, 1 does not hold." in words
    for part in ("MNIST: 0.5; CIFAR-10: 2, -", "Not yes: MNIST.", "squared: 0.25 (no)", "ours, Fig. 1", "1 min 01 s"):
        assert part in words
    assert "network.rates 0.1, 0.03 network.whole false data mnist" in words and "{'" not in words
    assert 'data-term="data"' not in page  # it is the name of a setting


def test_a_figure_is_run_again_with_what_was_set(tmp_path):
    figure = figures(["linear2026.fig1a"])["linear2026.fig1a"]
    config = plain(figure.presets["smoke"])
    record = Record(figure.id, "smoke", {**config, "seed": 7}, {}, {}, (), {})
    assert paper_figures._reproduction(record).code == "ritz run linear2026.fig1a --preset smoke --set seed=7"
    assert paper_figures._title(record) == "linear2026.fig1a, smoke, seed=7"


def test_the_same_records_give_the_same_page(records, tmp_path):
    first, second = (report.write(records, tmp_path / f"{name}.html").read_bytes() for name in "ab")
    assert first == second


def test_a_page_about_nothing_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="No record"):
        report.write([], tmp_path / "page.html")


def test_a_closed_form_is_held_against_the_spectrum(tmp_path):
    weights = [torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double(), torch.eye(2).double()]
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in weights)).double()
    for layer, weight in zip(model, weights, strict=True):
        layer.weight.data = weight
    x = math.sqrt(2) * torch.eye(2).double()
    risk = Risk(model, nn.MSELoss(reduction="sum"), (x, x @ (weights[1] @ weights[0]).T))
    exact = ClosedForm(
        [Group(f"line {i}", float(v)) for i, v in enumerate(torch.linalg.eigvalsh(hessian(risk).dense()))]
    )
    record = spectrum.run(risk)
    page = report.write([record], tmp_path / "page.html", theory=exact).read_text()
    assert "Theory against measurement" in page and "within the error of the measurement" in page
    wrong = ClosedForm([Group("all", 1.0, 8)])
    page = report.write([record], tmp_path / "page.html", theory=wrong).read_text()
    assert "more than noise" in page
    with pytest.raises(ArgumentError, match="no record has a spectrum of as many"):
        report.write([record], tmp_path / "page.html", theory=ClosedForm([Group("all", 1.0, 3)]))
