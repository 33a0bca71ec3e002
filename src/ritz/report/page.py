"""One self-contained HTML file: articles, their charts, and the code that draws them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import count

from .articles import Article, Number, Section, Statement, Table
from .charts import Chart, Series
from .terms import TERMS
from .typesetting import LONG, escaped, numerals, typeset

LONG_NAME = ' class="long"'  # of a row: it is broken into lines
SCALES = {"linear": "linear", "log": "logarithmic", "symlog": "logarithmic on both sides"}
SCRIPTS = ("typesetting.js", "scales.js", "view.js", "page.js")
BUTTONS = {"closer": "+", "farther": "−", "whole": "Whole range", "svg": "SVG", "csv": "CSV"}
MANY = 12  # facts that stand one below the other
COLOURS, DASHES = 6, 4  # of page.css and view.js: curves beyond the sixth are dashed
SPOKEN = {"closer": "Zoom in", "farther": "Zoom out"}  # what a sign alone does not say
THEME = '<button type="button" id="theme" hidden></button>'  # its words and what it does are of page.js
TECHNICAL = re.compile(r"\b(random probes|nodes|residual|standard error|W₁)\b")  # words of certificates, all in TERMS
NUMBERS = re.compile(r"(?<![\w.,:/-])[-−]?\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?(?:\s?%)?(?![\w/]|\.\d)")  # not those in names


def page(articles: Sequence[Article], *, title: str) -> str:
    """The whole page as text, in which names are escaped and never act as markup."""
    charts = [chart for article in articles for section in article.sections for chart in section.charts]
    numbers = count()
    body = "".join(_article(article, index, numbers) for index, article in enumerate(articles, start=1))
    words = sorted((term for term in TERMS if f'data-term="{escaped(term)}"' in body), key=str.casefold)
    scripts = "".join(f"<script>\n{_asset(name)}</script>\n" for name in SCRIPTS)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"{THEME}{_contents(articles)}<main>{body}{_glossary(words)}</main>\n"
        "<noscript>The charts need JavaScript; the tables have the same numbers.</noscript>\n"
        f'<script type="application/json" id="charts">{_json([chart.plain() for chart in charts])}</script>\n'
        f"{scripts}</body>\n</html>\n"
    )


def _article(article: Article, index: int, charts: Iterator[int]) -> str:
    prefix = f"a{index}"
    numbers = "".join(_number(number, f"{prefix}-n{rank}") for rank, number in enumerate(article.numbers))
    sections = "".join(_section(section, f"{prefix}-s{i}", charts) for i, section in enumerate(article.sections, 1))
    return (
        f'<article id="{prefix}"><h1>{escaped(article.title)}</h1>'
        f'<p class="finding">{_sentence(article.finding, f"{prefix}-finding")}{_sure(f"{prefix}-finding")}</p>'
        f"{_section(article.analysed, f'{prefix}-s0', charts)}"
        f'<ul class="numbers">{numbers}</ul>{sections}{_certificates(article, prefix)}'
        f"{_section(article.reproduction, f'{prefix}-end', charts)}</article>"
    )


def _number(number: Number, anchor: str) -> str:
    label = _term(number.label, number.term)
    parts = re.split(r"(?<=±) | (?=\()", number.text)  # where a line may end: not at the sign of 1e-07
    text = " ".join(f'<span class="whole">{numerals(part)}</span>' for part in parts)
    hint = f'<span class="hint">{typeset(number.hint)}</span>' if number.hint else ""
    return f'<li><span class="label">{label}</span><a class="value" href="#{anchor}">{text}</a>{hint}</li>'


def _certificates(article: Article, prefix: str) -> str:
    """The certificates that numbers link to: the evidence behind them."""
    rows = [(f"{prefix}-finding", _term("Finding"), "", article.proof)]
    rows += [
        (f"{prefix}-n{rank}", _term(number.label, number.term), number.text, number.certificate)
        for rank, number in enumerate(article.numbers)
    ]
    anchors = [*(f"{prefix}-s{rank}" for rank in range(1 + len(article.sections))), f"{prefix}-end"]
    sections = (article.analysed, *article.sections, article.reproduction)
    rows += [
        (f"{anchor}-proof", _term(section.title), "", section.certificate)
        for anchor, section in zip(anchors, sections, strict=True)
        if section.certificate
    ]
    body = "".join(
        f'<tr id="{anchor}"><th scope="row">{label}</th><td>{numerals(value)}</td>'
        f'<td class="words">{_explained(proof)}</td></tr>'
        for anchor, label, value, proof in rows
    )
    head = '<th scope="col">number</th><th scope="col">value</th><th scope="col" class="words">what it rests on</th>'
    table = f'<table class="certificates"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    title = f"<h2>{_term('Certificates')}</h2>"
    scrolled = f'<div class="scroll" tabindex="0">{table}</div>'
    return f'<section id="{prefix}-proofs">{title}{_guide(article.trust)}{scrolled}</section>'


def _explained(proof: str) -> str:
    """A certificate, whose technical words have their explanation on hover and at the end of the page."""
    parts = TECHNICAL.split(proof)
    return "".join(_term(part, reached=False) if rank % 2 else typeset(part) for rank, part in enumerate(parts))


def _section(section: Section, anchor: str, charts: Iterator[int]) -> str:
    proof = f"{anchor}-proof" if section.certificate else None
    parts = [_guide(section.guide), _sentences(section.sentences, proof)]
    if section.facts:
        parts.append(_facts(section.facts, proof, own_names=section.own_names))
    if section.picture:
        data = base64.b64encode(section.picture).decode()
        image = f'<img alt="{escaped(section.picture_words)}" src="data:image/png;base64,{data}">'
        swipe = '<p class="summary swipe">Swipe to see all of the picture.</p>'
        parts.append(f'{swipe}<div class="scroll" tabindex="0">{image}</div>')
    if section.statements:
        rows = "".join(_statement(statement, proof) for statement in section.statements)
        parts.append(f'<ul class="statements">{rows}</ul>')
    parts += [_figure(chart, next(charts), proof, own_names=section.own_names) for chart in section.charts]
    parts += [_table(table, proof) for table in section.tables]
    if section.code:
        parts.append(f'<pre tabindex="0"><code>{_code(section.code)}</code></pre>')
    title = f'<div class="head"><h2>{_term(section.title)}</h2>{_sure(proof) if proof else ""}</div>'
    return f'<section id="{anchor}">{title}{"".join(parts)}</section>'


def _code(lines: str) -> str:
    """Commands, whose lines end between words: not within an option, after its hyphens."""
    words = re.split(r"(\s+)", lines)
    return "".join(word if word.isspace() or not word else f"<span>{escaped(word)}</span>" for word in words)


def _guide(words: str) -> str:
    return f'<p class="guide">{typeset(words)}</p>' if words else ""


def _sentences(sentences: Sequence[str], proof: str | None) -> str:
    """Sentences as paragraphs; more than two as a list."""
    if len(sentences) < 3:
        return "".join(f"<p>{_sentence(sentence, proof)}</p>" for sentence in sentences)
    return f"<ul>{''.join(f'<li>{_sentence(sentence, proof)}</li>' for sentence in sentences)}</ul>"


def _facts(facts: Mapping[str, str], proof: str | None, *, own_names: bool) -> str:
    """Facts one below the other; many of them in as many columns as there is room for."""
    name_of, many = (typeset if own_names else _term), len(facts) > MANY
    rows = [f"<dt>{name_of(name)}</dt><dd>{_linked(fact, proof)}</dd>" for name, fact in facts.items()]
    if many:
        return f'<dl class="facts many">{"".join(f"<div>{row}</div>" for row in rows)}</dl>'
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _statement(statement: Statement, proof: str | None) -> str:
    verdict = f'<span class="verdict {escaped(statement.verdict)}">{escaped(statement.verdict)}</span>'
    where = f'<span class="where">{escaped(statement.where)}</span>'
    facts = _facts(statement.facts, proof, own_names=False)
    return f"<li><p>{verdict} {_sentence(statement.sentence, proof)} {where}</p>{facts}</li>"


def _sure(target: str) -> str:
    """A link from a statement to the evidence behind it."""
    return f' <a class="sure" href="#{target}">how sure?</a>'


def _figure(chart: Chart, index: int, proof: str | None, *, own_names: bool) -> str:
    boxes = "".join(_box(rank, series, own_names=own_names) for rank, series in enumerate(chart.series))
    selects = "".join(
        f'<label>{name}: <select data-axis="{name}">'
        + "".join(f'<option value="{scale}">{SCALES[scale]}</option>' for scale in axis.scales)
        + "</select></label>"
        for name, axis in (("x", chart.x), ("y", chart.y))
        if len(axis.scales) > 1
    )
    buttons = "".join(
        f'<button type="button" class="{name}" aria-label="{SPOKEN.get(name, label)}">{label}</button>'
        for name, label in BUTTONS.items()
    )
    return (
        f'<figure class="chart" data-chart="{index}"><figcaption>{typeset(chart.title)}</figcaption>'
        f'<p class="summary">{_sentence(chart.summary, proof)}</p><div class="stage">'
        f'<div class="plot" tabindex="0" role="img" aria-label="{escaped(chart.title + ". " + chart.summary)}"></div>'
        '<div class="tip" role="status" hidden></div></div>'
        f'<div class="controls">{boxes}{selects}{buttons}</div></figure>'
    )


def _box(rank: int, series: Series, *, own_names: bool) -> str:
    """The checkbox that shows and hides a series, with its colour and its dashes."""
    sign = f'<span class="swatch s{series.colour % COLOURS} d{series.colour // COLOURS % DASHES}"></span>'
    name = typeset(series.name) if own_names else _term(series.name, reached=False)
    return f'<label><input type="checkbox" value="{rank}"{" checked" * series.shown}> {sign} {name}</label>'


def _table(table: Table, proof: str | None) -> str:
    head = "".join(f'<th scope="col">{_term(name)}</th>' for name in table.columns)
    rows = "".join(
        f'<tr><th scope="row"{LONG_NAME * (len(first) > LONG)}>{typeset(first)}</th>'
        + "".join(f"<td>{_linked(cell, proof)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in zip(*table.columns.values(), strict=True)
    )
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{_sentence(table.caption, proof)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _linked(text: str, proof: str | None) -> str:
    """A cell; a number in it links to the evidence behind it."""
    is_number = proof is not None and any(character.isdigit() for character in text)
    return f'<a class="quiet" href="#{proof}">{numerals(text)}</a>' if is_number else typeset(text)


def _sentence(text: str, proof: str | None) -> str:
    """A sentence in which every number links to the evidence behind it."""
    if proof is None:
        return typeset(text)
    parts, end = [], 0
    for match in NUMBERS.finditer(text):
        parts += [typeset(text[end : match.start()]), f'<a class="quiet" href="#{proof}">{numerals(match.group())}</a>']
        end = match.end()
    return "".join([*parts, typeset(text[end:])])


def _contents(articles: Sequence[Article]) -> str:
    if len(articles) < 2:
        return ""
    links = "".join(
        f'<li><a href="#a{index}">{escaped(article.title)}</a></li>' for index, article in enumerate(articles, start=1)
    )
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _glossary(words: Sequence[str]) -> str:
    rows = "".join(f"<dt>{typeset(word)}</dt><dd>{typeset(TERMS[word])}</dd>" for word in words)
    return f'<section id="words"><h2>Words</h2><dl class="facts">{rows}</dl></section>' if words else ""


def _term(label: str, term: str | None = None, *, reached: bool = True) -> str:
    """A label, with its explanation on hover and focus where there is one; `reached` by the Tab key, or on hover."""
    term = term or (label if label in TERMS else label[:1].lower() + label[1:])
    if term not in TERMS:
        return typeset(label)
    stop = ' tabindex="0"' * reached
    return f'<dfn{stop} data-term="{escaped(term)}" data-tip="{escaped(TERMS[term])}">{typeset(label)}</dfn>'


def _json(value: object) -> str:
    """JSON that cannot end the script it stands in."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
