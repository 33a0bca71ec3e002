"""Texts as windows of tokens: tiny Shakespeare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from ...errors import ArgumentError
from . import sources
from .archives import content_error, file_content
from .examples import Examples, check_fraction
from .sources import Source


@dataclass(frozen=True)
class Corpus:
    """A text as windows of tokens and the tokens that follow them; token i stands for `alphabet[i]`.

    >>> data = windows(torch.tensor([1, 0, 1, 2]), 3)
    >>> corpus = Corpus(data, data, alphabet="abc")
    >>> "".join(corpus.alphabet[token] for token in corpus.train.x[0])
    'bab'
    """

    train: Examples
    test: Examples
    alphabet: str


def tiny_shakespeare(
    *,
    folder: str | Path | None = None,
    context: int = 128,
    stride: int | None = None,
    test_fraction: float = 0.1,
) -> Corpus:
    """40,000 lines of Shakespeare, character by character: x (N, context), and y the same one character on.

    A window starts every `stride` characters, every `context` by default, so that none overlap. The test part is the
    end of the text. From `folder` or $RITZ_DATA (`tinyshakespeare/input.txt`), else the cache, else the network.
    Karpathy (2015).

    >>> tiny_shakespeare(context=64).train.x.shape  # doctest: +SKIP
    torch.Size([15685, 64])
    """
    source = sources.TINY_SHAKESPEARE
    check_fraction(test_fraction)
    text = _text(source, file_content(source, "input.txt", folder))
    alphabet = "".join(sorted(set(text)))
    index = {character: token for token, character in enumerate(alphabet)}
    tokens = torch.tensor([index[character] for character in text])
    cut = len(tokens) - round(test_fraction * len(tokens))
    train, test = (windows(part, context, stride=stride) for part in (tokens[:cut], tokens[cut:]))
    return Corpus(train, test, alphabet)


def windows(tokens: Int[Tensor, " n"], context: int, *, stride: int | None = None) -> Examples:
    """Windows x of `context` tokens, one every `stride`, and the tokens y that follow each of theirs.

    >>> x, y = windows(torch.arange(7), 3)
    >>> x.tolist(), y.tolist()
    ([[0, 1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5, 6]])
    """
    if len(tokens) <= context or context < 1 or (stride is not None and stride < 1):
        raise ArgumentError(
            f"Windows of {context} tokens, one every {stride}, were to be cut from a text of {len(tokens)}.",
            "A window needs one more token than its length, so that its last position has a token to predict.",
            "Choose a shorter context, and a stride of at least 1.",
        )
    rows = tokens.unfold(0, context + 1, stride or context)
    return Examples(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def _text(source: Source, raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise content_error(source, f"{error.reason} at byte {error.start:,}") from error
    if not text:
        raise content_error(source, "the text is empty")
    if "\0" in text:  # what a file system may leave of a file that was not written to the end
        raise content_error(source, f"the text has a zero at character {text.index(chr(0)):,}")
    return text
