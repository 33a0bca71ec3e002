"""Attention: whatever does not depend on the direction is done once, and every derivative is a few matrix products.

PyTorch's attention in plain operations scales both factors of the scores anew in every product, and copies them to
multiply. Here they are scaled and copied once, and a sum of two matrix products is accumulated by the second of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Context = Any  # autograd's context object, to which a Function may attach what it likes
Some = Tensor | None


class Attention(Function):
    """o = P v with P = softmax(s q kᵀ + mask)."""

    @staticmethod
    def forward(
        ctx: Context, q: Tensor, k: Tensor, v: Tensor, mask: Some, causal: bool, scale: float | None, second: bool
    ) -> Tensor:
        if mask is not None and mask.dtype == torch.bool:
            mask = q.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        value, P = torch.ops.aten._scaled_dot_product_attention_math(q, k, v, mask, 0.0, causal, scale=scale)
        ctx.scale = q.shape[-1] ** -0.5 if scale is None else scale
        sources = (q, k, v) if second else (None, None, None)
        ctx.save_for_backward(*sources, *(_stacked(t) for t in (ctx.scale * q, ctx.scale * k, v, P)))
        return value

    @staticmethod
    def backward(ctx: Context, cotangent: Tensor) -> tuple[Some, ...]:
        *sources, q, k, v, P = ctx.saved_tensors
        constants = [tensor.detach() for tensor in (q, k, v, P)]
        if torch.is_grad_enabled():
            results = AttentionBackward.apply(cotangent, *sources, *constants, ctx.scale)
        else:
            results, _ = _attention_backward(cotangent, *constants)
        return *results, None, None, None, None


class AttentionBackward(Function):
    """q̄ = s S̄ k, k̄ = s S̄ᵀ q, v̄ = Pᵀ ō as functions of ō and, for second derivatives, of their sources q, k and v.

    S̄ = P (D - Σ P D) is the derivative of the softmax along D = ō vᵀ. The constants q and k hold the factor s.
    """

    @staticmethod
    def forward(
        ctx: Context,
        cotangent: Tensor,
        *tensors: Any,  # the sources or None; the constants q, k, v and P; s
    ) -> tuple[Tensor, ...]:
        *sources, q, k, v, P, scale = tensors
        ctx.set_materialize_grads(False)
        ctx.shapes = [cotangent.shape, *(source.shape for source in sources if source is not None)]
        results, (D, S) = _attention_backward(cotangent, q, k, v, P)
        kept: tuple[Some, ...] = (None, None, None)
        if len(ctx.shapes) > 1:
            kept = _stacked(cotangent), D - (P * D).sum(-1, keepdim=True), scale * S
        ctx.save_for_backward(q, k, v, P, *kept)
        return results

    @staticmethod
    def backward(ctx: Context, *tangents: Some) -> tuple[Some, ...]:
        q, k, v, P, o, D, S = ctx.saved_tensors  # D without the mean of its rows under P, S̄ with the factor s
        dq, dk, dv = (None if t is None else _stacked(t) for t in tangents)
        A = _sum_of_products((dq, k.mT), (q, _transposed(dk)))
        B = None if A is None else _along_softmax(A, P)
        results = [_sum_of_products((B, v), (P, dv))]
        if o is not None:
            C = _score_curvature(P, B, D, _sum_of_products((o, _transposed(dv))))
            results.append(_sum_of_products((C, k), (S, dk)))
            results.append(_sum_of_products((_transposed(C), q), (S.mT, dq)))
            results.append(_sum_of_products((_transposed(B), o)))
        shaped = [t if t is None else t.reshape(shape) for t, shape in zip(results, ctx.shapes, strict=True)]
        return *shaped, *[None] * (9 - len(shaped))


def _attention_backward(
    cotangent: Tensor, q: Tensor, k: Tensor, v: Tensor, P: Tensor
) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
    o = _stacked(cotangent)
    D = o @ v.mT
    S = _along_softmax(D, P)
    results = S @ k, S.mT @ q, P.mT @ o
    return tuple(t.reshape(*cotangent.shape[:-2], *t.shape[-2:]) for t in results), (D, S)


def _score_curvature(P: Tensor, B: Some, D: Tensor, T: Some) -> Some:
    """W - P Σ W with W = B D + P T: what comes back to the scores through P, on which S̄ and v̄ depend."""
    W = None if B is None else B * D
    if T is not None:
        W = P * T if W is None else torch.addcmul(W, P, T)
    return None if W is None else torch.addcmul(W, P, W.sum(-1, keepdim=True), value=-1)


def _transposed(t: Some) -> Some:
    return None if t is None else t.mT


def _stacked(t: Tensor) -> Tensor:
    """Matrices with any leading dimensions as one stack."""
    return t.reshape(-1, *t.shape[-2:])


def _along_softmax(S: Tensor, P: Tensor) -> Tensor:
    """P (S - Σ P S): the derivative of the softmax along S, which is symmetric."""
    return torch.ops.aten._softmax_backward_data(S, P, -1, P.dtype)


def _sum_of_products(*pairs: tuple[Some, Some]) -> Some:
    """Σ A B over pairs of stacks of matrices, skipping pairs that are None."""
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
    attn_mask: Some = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`F.scaled_dot_product_attention` with a fixed mask; heads that share their keys get copies of them."""
    if enable_gqa and query.ndim > 2:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    plain = query.ndim > 2 and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    learned = attn_mask is not None and attn_mask.requires_grad
    if not plain or learned or dropout_p:
        return NotImplemented
    return Attention.apply(query, key, value, attn_mask, is_causal, scale, second)
