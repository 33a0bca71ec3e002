"""Attention for Gauss-Newton products: what does not depend on the direction is done once.

PyTorch's attention in plain operations scales both factors of the scores anew in every product, and copies them to
multiply. Here they are scaled and copied once, and a sum of two matrix products is accumulated by the second of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Context = Any  # autograd's context object, to which a Function may attach what it likes


class Attention(Function):
    """o = P v with P = softmax(s q kᵀ + mask), whose backward pass is differentiated with respect to ō alone."""

    @staticmethod
    def forward(
        ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None
    ) -> Tensor:
        if mask is not None and mask.dtype == torch.bool:
            mask = q.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        value, P = torch.ops.aten._scaled_dot_product_attention_math(q, k, v, mask, 0.0, causal, scale=scale)
        s = q.shape[-1] ** -0.5 if scale is None else scale
        ctx.save_for_backward(*(_stacked(t) for t in (s * q, s * k, v, P)))
        return value

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        saved = [tensor.detach() for tensor in ctx.saved_tensors]
        run = AttentionBackward.apply if torch.is_grad_enabled() else _attention_backward
        return *run(cotangent, *saved), None, None, None


class AttentionBackward(Function):
    """q̄ = s S̄ k, k̄ = s S̄ᵀ q, v̄ = Pᵀ ō as functions of ō, with S̄ the derivative of the softmax along ō vᵀ."""

    @staticmethod
    def forward(ctx: Context, cotangent: Tensor, q: Tensor, k: Tensor, v: Tensor, P: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(q, k, v, P)
        ctx.set_materialize_grads(False)
        ctx.leading = cotangent.shape[:-2]
        return _attention_backward(cotangent, q, k, v, P)

    @staticmethod
    def backward(ctx: Context, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, P = ctx.saved_tensors
        dq, dk, dv = (None if t is None else _stacked(t) for t in tangents)
        S = _sum_of_products((dq, k.mT), (q, None if dk is None else dk.mT))
        o = _sum_of_products((None if S is None else _along_softmax(S, P), v), (P, dv))
        return None if o is None else o.reshape(*ctx.leading, *o.shape[-2:]), None, None, None, None


def _attention_backward(cotangent: Tensor, q: Tensor, k: Tensor, v: Tensor, P: Tensor) -> tuple[Tensor, ...]:
    o = _stacked(cotangent)
    S = _along_softmax(o @ v.mT, P)
    results = S @ k, S.mT @ q, P.mT @ o
    return tuple(t.reshape(*cotangent.shape[:-2], *t.shape[-2:]) for t in results)


def _stacked(t: Tensor) -> Tensor:
    """Matrices with any leading dimensions as one stack."""
    return t.reshape(-1, *t.shape[-2:])


def _along_softmax(S: Tensor, P: Tensor) -> Tensor:
    """P (S - Σ P S): the derivative of the softmax along S, which is symmetric."""
    return torch.ops.aten._softmax_backward_data(S, P, -1, P.dtype)


def _sum_of_products(*pairs: tuple[Tensor | None, Tensor | None]) -> Tensor | None:
    """Σ A B over stacks of matrices, without the pairs that are not there."""
    total = None
    for A, B in pairs:
        if A is not None and B is not None:
            total = A @ B if total is None else torch.baddbmm(total, A, B)
    return total


def attention_rule(
    second: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`F.scaled_dot_product_attention` where only first derivatives are asked for and every head has its own keys."""
    plain = query.ndim > 2 and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    learned = attn_mask is not None and attn_mask.requires_grad
    if second or not plain or learned or dropout_p or enable_gqa:
        return NotImplemented
    return Attention.apply(query, key, value, attn_mask, is_causal, scale)
