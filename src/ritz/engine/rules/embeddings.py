"""Embeddings, one by one or in bags, by operations that PyTorch can differentiate twice."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F


def embedding_rule(second: bool, input: Tensor, weight: Tensor, *_: Any, sparse: bool = False, **options: Any) -> Any:
    """`F.embedding` with a dense gradient in place of a sparse one, which PyTorch cannot differentiate."""
    if not sparse or not weight.requires_grad:
        return NotImplemented
    return F.embedding(input, weight, **options)


def embedding_bag_rule(
    second: bool,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """`F.embedding_bag` of bags of one size as an embedding and a sum, which PyTorch can differentiate twice."""
    if input.ndim != 2 or max_norm is not None or scale_grad_by_freq or padding_idx is not None:
        return NotImplemented
    rows = F.embedding(input, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if mode == "max":
        return rows.amax(1)
    return rows.sum(1) if mode == "sum" else rows.mean(1)
