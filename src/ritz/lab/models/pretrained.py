"""The published weights of GPT-2 for the GPT that is built here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import record
from ...errors import ArgumentError, FileError, ModelError, first_line
from .transformers import GPT, GPTConfig

# transformers' names to ours; its "Conv1D" layers keep their weights in × out, so that ours are the transposes
_NAMES = {
    "wte": "tokens",
    "wpe": "positions",
    "ln_f": "norm",
    "ln_1": "attention_norm",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.out",
    "ln_2": "mlp_norm",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.out",
}
_TRANSPOSED = ("qkv", "out", "up")
_PATTERN = re.compile(r"(?:transformer\.)?(?:h\.(?P<block>\d+)\.)?(?P<name>.+)\.(?P<kind>weight|bias)")
_IGNORED = re.compile(r".*\.attn\.(bias|masked_bias)|lm_head\.weight")  # the causal mask; the tied embedding


def gpt2_state(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of GPT-2 as `transformers` names it, under the names and in the shapes of `GPT`.

    >>> list(gpt2_state({"transformer.h.0.ln_1.weight": torch.ones(2)}))
    ['blocks.0.attention_norm.weight']
    """
    return dict(_translated(name, value) for name, value in published.items() if not _IGNORED.fullmatch(name))


def gpt2(
    source: str | Path | Mapping[str, Tensor],
    *,
    num_heads: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> GPT:
    """GPT-2 with its published weights, of any size: from a `.safetensors` file or a `transformers` state dict.

        gpt2(transformers.GPT2LMHeadModel.from_pretrained("gpt2").state_dict())

    The sizes are read from the weights; the number of heads, which they do not show, follows from the 64 dimensions a
    head has in GPT-2. Only names and shapes were tested, not the published file.

    >>> gpt2("model.safetensors").config.depth  # doctest: +SKIP
    12
    """
    state = gpt2_state(source if isinstance(source, Mapping) else _read(Path(source)))
    with torch.device("meta"):
        model = GPT(_config(state, num_heads)).to(dtype)
    model.load_state_dict({name: value.to(device, dtype) for name, value in state.items()}, assign=True)
    return model.requires_grad_(True)


def _translated(name: str, value: Tensor) -> tuple[str, Tensor]:
    match = _PATTERN.fullmatch(name)
    if match is None or match["name"] not in _NAMES:
        raise ModelError(
            f"The weights hold {name!r}.",
            "GPT-2 has no such part, so this is another model, or its parts have other names.",
            "Give the state dict of transformers.GPT2LMHeadModel, or the model.safetensors published with it.",
        )
    ours = _NAMES[match["name"]]
    path = f"blocks.{match['block']}.{ours}" if match["block"] is not None else ours
    turned = match["kind"] == "weight" and ours.split(".")[-1] in _TRANSPOSED
    return f"{path}.{match['kind']}", value.T.contiguous() if turned else value


def _config(state: Mapping[str, Tensor], num_heads: int | None) -> GPTConfig:
    try:
        (vocabulary, width), context = state["tokens.weight"].shape, len(state["positions.weight"])
    except KeyError as error:
        raise ModelError(
            f"The weights lack {error.args[0]!r}.",
            "Without its embeddings a GPT cannot be built.",
            "Give the whole state dict.",
        ) from None
    depth = 1 + max((int(name.split(".")[1]) for name in state if name.startswith("blocks.")), default=0)
    return GPTConfig(vocabulary, context, depth, width, num_heads or max(1, width // 64))


def _read(path: Path) -> dict[str, Any]:
    try:
        damaged, load = import_module("safetensors").SafetensorError, import_module("safetensors.torch").load
    except ImportError:
        raise ArgumentError(
            f"{path} was to be read, but the package safetensors is not installed.",
            "Files of this format are read with it.",
            "Install it: pip install safetensors",
        ) from None
    try:
        return load(record.read_bytes(path))
    except damaged as error:
        raise FileError(
            f"{path} is no file of weights: {first_line(error)}",
            "It is damaged, or of another format.",
            "Give a .safetensors file, or the state dict of a model: gpt2(model.state_dict()).",
        ) from error
