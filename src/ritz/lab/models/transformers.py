"""Transformers that read text: GPT-2 in any size, and its twin without attention."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ArgumentError
from . import build

DEVIATION = 0.02  # of all initial weights: Radford et al. (2018), Sec. 4.1
_LARGEST = 64.0  # bias of a sink: e⁶⁴ leaves no other token any attention
_RESOLUTION = 1e-3  # of a bias: it changes an attention by less than 3e-4


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT; `GPT2` are those of GPT-2 124M, `SMALL` those for two CPU cores.

    >>> GPTConfig(vocabulary=5, context=4, depth=1, width=8, num_heads=2).attention
    True
    """

    vocabulary: int
    context: int  # positions, the longest sequence it reads
    depth: int  # blocks
    width: int
    num_heads: int
    bias: bool = True
    attention: bool = True  # False: blocks have an MLP alone
    gelu: Literal["tanh", "none"] = "tanh"  # its approximation, as torch names it; GPT-2 has tanh

    def __post_init__(self) -> None:
        if min(self.vocabulary, self.context, self.depth, self.width, self.num_heads) < 1 or (
            self.width % self.num_heads
        ):
            raise ArgumentError(
                f"A GPT was described by {self}.",
                "All sizes must be positive, and the heads must share the width evenly.",
                "Choose a width that is a multiple of num_heads.",
            )


GPT2 = GPTConfig(vocabulary=50257, context=1024, depth=12, width=768, num_heads=12)
SMALL = GPTConfig(vocabulary=65, context=128, depth=4, width=128, num_heads=4)  # 65: tiny Shakespeare's characters


class CausalAttention(nn.Module):
    """Causal self-attention of several heads; `sink` is added to the scores of the first token in `sink_heads`."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)
        self.num_heads = config.num_heads
        self.sink = 0.0
        self.sink_heads: tuple[int, ...] = (0,)

    def forward(self, h: Float[Tensor, "b n w"]) -> Float[Tensor, "b n w"]:
        q, k, v = self._heads(h)
        if self.sink:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self._scores_bias(h))
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def weights(self, h: Float[Tensor, "b n w"]) -> Float[Tensor, "b a n n"]:
        """The attention of each position to each other one, in every head."""
        q, k, _ = self._heads(h)
        return (q @ k.mT / q.shape[-1] ** 0.5 + self._scores_bias(h)).softmax(-1)

    def _heads(self, h: Tensor) -> tuple[Float[Tensor, "b a n d"], ...]:
        return tuple(t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))

    def _scores_bias(self, h: Tensor) -> Float[Tensor, "a n n"]:
        length = h.shape[1]
        bias = torch.full((self.num_heads, length, length), -torch.inf, dtype=h.dtype, device=h.device).triu(1)
        bias[list(self.sink_heads), :, 0] += self.sink
        return bias


class MLP(nn.Module):
    """Two linear layers with a GELU between them, four times as wide as the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.out = nn.Linear(4 * config.width, config.width, bias=config.bias)
        self.gelu = config.gelu

    def forward(self, h: Float[Tensor, "b n w"]) -> Float[Tensor, "b n w"]:
        return self.out(F.gelu(self.up(h), approximate=self.gelu))


class TransformerBlock(nn.Module):
    """h + attention(norm(h)), then h + mlp(norm(h)); only the latter where the model has no attention."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention: CausalAttention | None = None
        if config.attention:
            self.attention_norm = nn.LayerNorm(config.width, bias=config.bias)
            self.attention = CausalAttention(config)
        self.mlp_norm = nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, h: Float[Tensor, "b n w"]) -> Float[Tensor, "b n w"]:
        if self.attention is not None:
            h = h + self.attention(self.attention_norm(h))
        return h + self.mlp(self.mlp_norm(h))


class GPT(nn.Module):
    """A decoder that predicts the next token: tokens (b, n) to logits (b, n, vocabulary), the head tied to `tokens`.

    >>> model = GPT(GPTConfig(vocabulary=5, context=4, depth=1, width=8, num_heads=2))
    >>> model(torch.tensor([[0, 1, 2]])).shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, bias=config.bias)

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b n v"]:
        h = self.embedded(tokens)
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.tokens.weight)

    def embedded(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b n w"]:
        """The input of the first block: each token's vector plus that of its position."""
        if tokens.shape[-1] > self.config.context:
            raise ArgumentError(
                f"A sequence of {tokens.shape[-1]} tokens was given to a GPT of context {self.config.context}.",
                "It has learned no vector for the positions beyond its context.",
                "Cut the sequence, or build the model with a longer context.",
            )
        return self.tokens(tokens) + self.positions.weight[: tokens.shape[-1]]


def gpt(
    config: GPTConfig = SMALL,
    *,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> GPT:
    """A GPT with the weights GPT-2 starts from; `gpt(GPT2)` has 124,439,808 parameters.

    Weights are Gaussian of deviation 0.02, divided by √(number of residual branches) where a branch joins the stream,
    and biases zero: Radford et al. (2019), Sec. 2.3. There is no dropout.

    >>> build.parameter_count(gpt(GPT2, generator=torch.Generator(), device="meta"))
    124439808
    """
    branches = config.depth * (2 if config.attention else 1)

    def draw(part: nn.Module, generator: torch.Generator) -> None:
        if isinstance(part, nn.Embedding):
            build.fill_normal(part.weight, DEVIATION, generator)
        elif isinstance(part, CausalAttention):
            _draw_linear(part.qkv, DEVIATION, generator)
            _draw_linear(part.out, DEVIATION / branches**0.5, generator)
        elif isinstance(part, MLP):
            _draw_linear(part.up, DEVIATION, generator)
            _draw_linear(part.out, DEVIATION / branches**0.5, generator)
        else:
            build.fill_norm(part)

    return build.network(lambda: GPT(config), draw, generator=generator, device=device, dtype=dtype)


def without_attention(config: GPTConfig) -> GPTConfig:
    """The attention-free twin of similar size: every two attention layers are replaced by one more MLP block.

    Attention has 4w² weights, an MLP 8w². Singh et al. (2026), App. D.1.5: 12 layers become 18 MLP blocks.

    >>> without_attention(GPT2).depth
    18
    """
    return replace(config, depth=config.depth + (config.depth + 1) // 2, attention=False)


def set_sink(model: GPT, bias: float, *, heads: Collection[int] = (0,)) -> None:
    """Make the first token an attention sink: add `bias` to its scores in the given heads of every block.

    Zero takes it away again. Singh et al. (2026), App. D.1.6.

    >>> model = gpt(GPTConfig(5, 4, 1, 8, 2), generator=torch.Generator().manual_seed(0))
    >>> set_sink(model, 50.0)
    >>> attention_on_first_token(model, torch.tensor([[0, 1, 2]]))
    1.0
    """
    unknown = [head for head in heads if not 0 <= head < model.config.num_heads]
    if unknown or not model.config.attention:
        raise ArgumentError(
            f"A sink was to be put into heads {list(heads)}.",
            f"The model has {model.config.num_heads if model.config.attention else 0} heads in each block.",
            "Name heads from 0 on, of a model with attention.",
        )
    for attention in _attentions(model):
        attention.sink, attention.sink_heads = float(bias), tuple(heads)


@torch.no_grad()
def attention_on_first_token(model: GPT, tokens: Int[Tensor, "b n"], *, heads: Collection[int] = (0,)) -> float:
    """The attention that the first token gets, averaged over positions, sequences, blocks and the given heads.

    Singh et al. (2026), App. D.1.6 has 0.32 for GPT-2 as it is. The first position looks at nothing but itself.

    >>> model = gpt(GPTConfig(5, 4, 1, 8, 2), generator=torch.Generator().manual_seed(0))
    >>> round(attention_on_first_token(model, torch.tensor([[0, 1]])), 2)  # (1 + ½)/2: the second sees both alike
    0.75
    """
    shares: list[Tensor] = []
    _check_heads(model, heads)

    def note(attention: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(attention, CausalAttention)
        shares.append(attention.weights(*inputs)[:, list(heads), :, 0].double().mean())

    hooks = [attention.register_forward_pre_hook(note) for attention in _attentions(model)]
    try:
        model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return float(torch.stack(shares).mean())


def sink_bias(model: GPT, tokens: Int[Tensor, "b n"], target: float, *, heads: Collection[int] = (0,)) -> float:
    """The bias with which `attention_on_first_token` is `target`, found by bisection; the model is left as it was.

    Singh et al. (2026), App. D.1.6 has 0.81.

    >>> model = gpt(GPTConfig(5, 4, 1, 8, 2), generator=torch.Generator().manual_seed(0))
    >>> round(sink_bias(model, torch.tensor([[0, 1]]), 0.9), 1)  # (1 + σ(b))/2 = 0.9
    1.4
    """
    before = [(attention, attention.sink, attention.sink_heads) for attention in _attentions(model)]

    def reached(bias: float) -> float:
        set_sink(model, bias, heads=heads)
        return attention_on_first_token(model, tokens, heads=heads)

    try:
        low, high = -_LARGEST, _LARGEST
        least, most = reached(low), reached(high)
        if not least < target < most:
            raise ArgumentError(
                f"An attention of {target} on the first token was requested.",
                f"With these tokens it can be between {least:.3g} and {most:.3g}.",
                "Choose a target in between.",
            )
        while high - low > _RESOLUTION:
            middle = (low + high) / 2
            low, high = (middle, high) if reached(middle) < target else (low, middle)
        return high
    finally:
        for attention, sink, where in before:
            attention.sink, attention.sink_heads = sink, where


def _check_heads(model: GPT, heads: Collection[int]) -> None:
    if not heads or not all(0 <= head < model.config.num_heads for head in heads):
        raise ArgumentError(
            f"The heads {list(heads)} were requested.",
            f"There are {model.config.num_heads} in every block, and 0 is the first.",
            "Name one or more of these.",
        )


def _attentions(model: GPT) -> list[CausalAttention]:
    return [part for part in model.modules() if isinstance(part, CausalAttention)]


def _draw_linear(layer: nn.Linear, deviation: float, generator: torch.Generator) -> None:
    build.fill_normal(layer.weight, deviation, generator)
    if layer.bias is not None:
        layer.bias.zero_()
