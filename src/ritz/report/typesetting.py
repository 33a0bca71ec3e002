"""Text of a page as people write it: powers of ten, symbols with subscripts, and everything else escaped."""

from __future__ import annotations

import html
import re

LONG, WORD = 24, 16  # letters beyond which a row is broken into lines, and a name in it
SYMBOLS = re.compile(r"\b(λ|w|G|Φ|Δ|W)_(max|min|class|cross|own|within|[QKVc])\b")  # as in typesetting.js
POWER = re.compile(r"(?:(?<![\w.])(\d+(?:\.\d+)?)|(?<=\d)\))e([-+]\d+)\b")
MINUS = re.compile(r"(?<![\w.,:/)-])-(?=\d)")  # of a number, not within a name or a date
PERCENT = re.compile(r"(?<=\d) ?%")
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LONG_WORD, JOINTS = re.compile(rf"\S{{{WORD},}}"), re.compile(r"(?<=\w)[._/:](?=\w)")


def escaped(content: str) -> str:
    """Text with all markup escaped."""
    return html.escape(content, quote=True)


def numerals(content: str) -> str:
    """Text with its numbers as people write them: −3·10⁻⁷ for -3e-07, (2 ± 1)·10⁻⁵, and a narrow space before %."""
    return escaped(PERCENT.sub("\u202f%", MINUS.sub("−", POWER.sub(_power, content))))


def typeset(content: str) -> str:
    """Our own text, in which λ_max and G_class get subscripts, and long names may break where their parts meet."""
    return SYMBOLS.sub(r"\1<sub>\2</sub>", LONG_WORD.sub(_jointed, numerals(content)))


def _power(match: re.Match[str]) -> str:
    factor, power = match.group(1) or ")", str(int(match.group(2)))
    return f"{'' if factor == '1' else f'{factor}·'}10{power.translate(RAISED)}"


def _jointed(word: re.Match[str]) -> str:
    return JOINTS.sub(r"\g<0><wbr>", word.group())
