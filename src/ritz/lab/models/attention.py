"""One head of self-attention alone: the model whose Hessian has a closed form."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ... import theory
from ...errors import ArgumentError
from . import build


class SelfAttention(nn.Module):
    """f(X) = A X W_v with A = softmax(X W_q W_kᵀXᵀ/√d + bias), with parameters (w_v, w_q, w_k).

    `sink` is added to every position's score of `sink_token`; both may be changed at any time. Sequences of numbers
    (b, n) have embedding dimension e = 1, others are (b, n, e); outputs are (b, n, e). Singh et al. (2026), eq. (4) for
    e = 1, where w_v is a number and w_q, w_k ∈ Rᵈ; Fig. 9 for larger e.

    >>> head = SelfAttention(key_size=4, causal=True)
    >>> [tuple(parameter.shape) for parameter in head.parameters()]
    [(1, 1), (1, 4), (1, 4)]
    """

    def __init__(
        self,
        key_size: int,
        embedding_size: int = 1,
        *,
        causal: bool = False,
        sink: float = 0.0,
        sink_token: int = 0,
    ) -> None:
        super().__init__()
        if min(key_size, embedding_size) < 1:
            raise ArgumentError(
                f"A head of key size {key_size} and embedding size {embedding_size} was requested.",
                "Both count the columns of a weight matrix.",
                "Give positive sizes.",
            )
        self.causal, self.sink, self.sink_token = causal, sink, sink_token
        self.w_v = nn.Parameter(torch.empty(embedding_size, embedding_size))
        self.w_q = nn.Parameter(torch.empty(embedding_size, key_size))
        self.w_k = nn.Parameter(torch.empty(embedding_size, key_size))

    def attention(self, x: Float[Tensor, "b n *e"]) -> Float[Tensor, "b n n"]:
        """A, whose row i holds the attention of position i to all positions."""
        x = self._embedded(x)
        scores = (x @ self.w_q) @ (x @ self.w_k).mT / self.w_q.shape[1] ** 0.5
        return (scores + self.scores_bias(x.shape[1])).softmax(-1)

    def scores_bias(self, length: int) -> Float[Tensor, "n n"]:
        """The bias of the scores: the sink's bias in its column, -∞ where the future is masked."""
        bias = torch.zeros(length, length, dtype=self.w_q.dtype, device=self.w_q.device)
        if self.sink:
            bias[:, self.sink_token] = self.sink
        return bias + torch.full_like(bias, -torch.inf).triu(1) if self.causal else bias

    def forward(self, x: Float[Tensor, "b n *e"]) -> Float[Tensor, "b n e"]:
        return self.attention(x) @ (self._embedded(x) @ self.w_v)

    def closed_form(self, x: Tensor, y: Tensor, *, gauss_newton: bool = False) -> theory.ClosedForm | None:
        """The spectrum under squared error on these data, which reports compare with measurements; None for e > 1."""
        if len(self.w_v) > 1:
            return None
        own = (self.w_v.detach().reshape(()), self.w_q.detach()[0], self.w_k.detach()[0])
        x, y = (sequences.reshape(sequences.shape[:2]) for sequences in (x, y))
        bias = self.scores_bias(x.shape[1])
        return theory.self_attention(*own, x, y, scores_bias=bias, gauss_newton=gauss_newton)

    def _embedded(self, x: Tensor) -> Float[Tensor, "b n e"]:
        x = x[..., None] if x.ndim == 2 else x
        if x.ndim != 3 or x.shape[-1] != len(self.w_v):
            raise ArgumentError(
                f"The head of embedding dimension {len(self.w_v)} was given inputs of shape {tuple(x.shape)}.",
                "It reads batches of sequences: (b, n, e), or (b, n) where e = 1.",
                "Add a batch dimension with x[None], or build the head with embedding_size = x.shape[-1].",
            )
        return x


def self_attention(
    key_size: int,
    embedding_size: int = 1,
    *,
    generator: torch.Generator,
    causal: bool = False,
    sink: float = 0.0,
    sink_token: int = 0,
    deviation: float = 0.1,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> SelfAttention:
    """A head with Gaussian weights of the given deviation, which is that of Singh et al. (2026), App. D.2.

    >>> head = self_attention(4, generator=torch.Generator().manual_seed(0))
    >>> head(torch.zeros(2, 3)).shape
    torch.Size([2, 3, 1])
    """

    def layout() -> SelfAttention:
        return SelfAttention(key_size, embedding_size, causal=causal, sink=sink, sink_token=sink_token)

    def draw(part: nn.Module, generator: torch.Generator) -> None:
        for parameter in part.parameters(recurse=False):
            build.fill_normal(parameter, deviation, generator)

    return build.network(layout, draw, generator=generator, device=device, dtype=dtype)
