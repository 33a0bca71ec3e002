"""What every analysis records about the risk: its config, sizes and values, and the accuracy of a classifier."""

from __future__ import annotations

from typing import Any

import torch

from ..risk import Risk
from ..risk.losses import Classification


def config_of(risk: Risk) -> dict[str, Any]:
    """What was analysed, in words and numbers."""
    return {
        "dtype": str(risk.dtype).removeprefix("torch."),
        "num_examples": risk.num_examples,
        "model": type(risk.model).__name__,
        "loss": risk.loss.name,
        "parameters": list(risk.shapes),
    }


def scalars_of(risk: Risk) -> dict[str, Any]:
    """The sizes of a risk, its value and the norm of its gradient."""
    return {
        "num_parameters": risk.size,
        "num_terms": risk.num_terms,
        "loss": risk.loss_value(),
        "gradient_norm": float(risk.gradient().norm()),
    }


def accuracy(risk: Risk) -> float | None:
    """The fraction of terms whose most likely class is their label; None where targets are no classes.

    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> accuracy(Risk(torch.nn.LayerNorm(2), torch.nn.CrossEntropyLoss(), data))
    1.0
    """
    loss = risk.loss
    if not isinstance(loss, Classification):
        return None
    leaves, counts = [leaf.detach() for leaf in risk.leaves()], torch.zeros(2, dtype=torch.float64, device=risk.device)
    for batch in risk.batches:
        if batch.targets.is_floating_point():
            return None
        with risk.numerics(), torch.no_grad():
            likely = loss.probabilities(risk.outputs(leaves, batch)).argmax(-1)
        known = ~loss.ignored(batch.targets)
        counts += torch.stack([((likely == loss.labels(batch.targets)) & known).sum(), known.sum()])
    hits, terms = risk.sum_over_ranks(counts).tolist()
    return hits / terms if terms else None
