"""Passes over the data in which linear layers meet the classes of their examples.

Where a layer is applied at several positions of an example (pixels, tokens, several uses), each position is a row of
its own with the class of its example, as in `kfac`: features are averaged over positions and errors summed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...layers.capture import Forward, Layers
from ...layers.linear import LinearLayer, linear_layers, pieces
from ...risk import Risk
from ...risk.batches import Batch
from ...risk.class_terms import ClassTerms, cross_weights, terms
from ...risk.data_by_class import check_one_label
from ...risk.memory import check_memory


def class_layers(risk: Risk, purpose: str) -> tuple[Layers, list[LinearLayer], int]:
    """The layers to look at and the number of classes, checked to exist."""
    C = len(cross_weights(risk))
    why = f"{purpose} sorts examples, with all that a layer sees of them, by class, so each needs exactly one."
    check_one_label(risk, why, "Use class_decomposition(risk), which sorts the terms of the loss.")
    layers = Layers.of(risk)
    return layers, list(linear_layers(layers, purpose).values()), C


def class_passes(layers: Layers, linear: list[LinearLayer], label: str) -> Iterator[tuple[Batch, Forward, ClassTerms]]:
    """All data in pieces, with the classes of their examples."""
    for batch, forward in pieces(layers, linear, label):
        yield batch, forward, terms(layers.risk, forward.z, batch.targets)


def check_size(risk: Risk, sizes: dict[LinearLayer, tuple[int, int, int]], what: str) -> None:
    """Refuse what exceeds the memory, given the number of groups, the width of their means, and the scatter's rows."""
    check_memory(
        sum(8.0 * width * (groups + rows) for groups, width, rows in sizes.values()), risk.common_memory(), what
    )
