"""The data of a risk, class by class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch

from ..errors import DataError
from .batches import Batch, joined
from .losses import Classification, is_label
from .risk import Risk


def class_batches(risk: Risk, *, only: int | None = None) -> Iterator[Batch]:
    """The data class by class, so that every example takes part only in the columns of its own class.

    Batches whose examples have several labels (tokens), or depend on each other, stay as they are. With `only`, just
    what can have terms of that class.
    """
    if not risk.separable or any(batch.targets.ndim > 1 for batch in known_batches(risk)):
        yield from (b for b in risk.batches if only is None or bool(is_label(b.targets, only).any()))
        return
    held = risk.batches.held
    pools = [held] if held is not None and risk.batches.alike() else ([batch] for batch in risk.batches)
    for pool in pools:
        for label in _labels(risk, pool) if only is None else [only]:
            yield from _of_class(pool, label)


def known_batches(risk: Risk) -> list[Batch]:
    """The batches held, or the first of those that are read anew."""
    return risk.batches.held or [next(iter(risk.batches))]


def _labels(risk: Risk, pool: list[Batch]) -> list[int]:
    labels = torch.cat([batch.targets for batch in pool]).long().unique()
    return labels[~cast(Classification, risk.loss).ignored(labels)].tolist()


def _of_class(pool: list[Batch], label: int) -> Iterator[Batch]:
    """The examples of one class, in batches no larger than the user's."""
    pieces = [batch.rows(is_label(batch.targets, label).nonzero()[:, 0]) for batch in pool]
    pieces = [piece for piece in pieces if len(piece)]
    if not pieces:
        return
    whole, size = joined(pieces), max(len(batch) for batch in pool)
    for first in range(0, len(whole), size):
        yield whole.rows(slice(first, first + size))


def check_one_label(risk: Risk, why: str, way_out: str) -> None:
    """Refuse examples with several labels, such as sequences of tokens, where each must belong to one class."""
    if any(batch.targets.ndim > 1 for batch in risk.batches):
        raise DataError(
            "An example has several labels: the targets have a dimension besides that of the examples.", why, way_out
        )
