"""Embeddings, one by one or in bags, by operations that PyTorch can differentiate twice."""

from __future__ import annotations

from typing import Any

import torch
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
    """`F.embedding_bag` as an embedding and what becomes of its rows, which PyTorch can differentiate twice."""
    if max_norm is not None or scale_grad_by_freq:
        return NotImplemented
    words, bags, count = _words(input, offsets, include_last_offset)
    rows = F.embedding(words, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if padding_idx is not None:
        kept = words != padding_idx % len(weight)
        rows, bags = rows[kept], bags[kept]
    empty = rows.new_zeros(count, rows.shape[1])
    if mode == "max":
        return empty.scatter_reduce(0, bags[:, None].expand_as(rows), rows, "amax", include_self=False)
    sums = empty.index_add(0, bags, rows)
    return sums if mode == "sum" else sums / bags.bincount(minlength=count).clamp(min=1)[:, None]


def _words(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Tensor, Tensor, int]:
    """The words of all bags one after the other, the bag of each, and how many bags there are."""
    words = input.reshape(-1)
    if offsets is None:
        return words, torch.arange(len(words), device=words.device) // max(1, input.shape[1]), len(input)
    starts = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(len(words), device=words.device, dtype=starts.dtype)
    return words, torch.searchsorted(starts, places, right=True) - 1, len(starts)
