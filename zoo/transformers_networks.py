"""Networks of transformers, from configs of one or two narrow layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import transformers
from torch import nn

from .network import Network, Pairs, images, sentences, vectors

transformers.logging.set_verbosity_error()  # it says at every network what faster kernels there are

WORDS = 40
_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_NARROW = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, **_IDS}
_MLP = {"intermediate_size": 32, "max_position_embeddings": 32}
_LLAMA = {**_NARROW, **_MLP, "num_key_value_heads": 2}
_GROUPED = {**_NARROW, **_MLP, "num_key_value_heads": 1, "head_dim": 8}
_IMAGE = {"image_size": 32, "num_labels": 10, **_NARROW, "intermediate_size": 32}
_IMAGE.pop("vocab_size")


def _build(config: str, head: str, options: dict[str, Any]) -> nn.Module:
    settings = getattr(transformers, f"{config}Config")(**options)
    return getattr(transformers, f"{config}{head}")(settings)


def _speaker(config: str, options: dict[str, Any], head: str = "ForCausalLM", **more: Any) -> Network:
    """A model of the next token."""
    return Network(f"{config}{head}", partial(_build, config, head, options), sentences(WORDS, 6), **more)


def _reader(config: str, options: dict[str, Any], head: str = "ForSequenceClassification") -> Network:
    """A model that gives a sentence a label."""
    build = partial(_build, config, head, {**options, "num_labels": 4})
    return Network(f"{config}{head}", build, sentences(WORDS, 6, classes=4))


def _viewer(config: str, options: dict[str, Any], **more: Any) -> Network:
    """A model that gives an image a label."""
    head = "ForImageClassification"
    return Network(f"{config}{head}", partial(_build, config, head, options), images(32), **more)


_EAGER = {"experts_implementation": "eager"}  # the grouped product of matrices has no float64
_GPT2 = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, **_IDS}

_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
_FEED = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": WORDS, "d_model": 16}
_T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, **_IDS}
_BART = {**_HEADS, **_FEED, **_IDS, "max_position_embeddings": 32, "decoder_start_token_id": 2}
_WHISPER = {**_HEADS, **_FEED, **_IDS, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16,
            "decoder_start_token_id": 2}  # fmt: skip


def _translations() -> Pairs:
    """The same sentence as source and as the beginning of the target."""
    return [({**x, "decoder_input_ids": x["input_ids"]}, y) for x, y in sentences(WORDS, 6)()]


def _speeches() -> Pairs:
    """Random spectrograms beside the beginning of the target."""
    sounds = vectors(8, 20, classes=2)()
    pairs = zip(sounds, sentences(WORDS, 6)(), strict=True)
    return [({"input_features": s, "decoder_input_ids": x["input_ids"]}, y) for (s, _), (x, y) in pairs]


def _translator(config: str, options: dict[str, Any], data: Callable[[], Pairs]) -> Network:
    """A model of the next token that also reads something else."""
    head = "ForConditionalGeneration"
    return Network(f"{config}{head}", partial(_build, config, head, options), data)


NETWORKS = [
    _speaker("GPT2", _GPT2, "LMHeadModel"),
    _speaker("GPTNeo", {**_NARROW, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}),
    _speaker("GPTNeoX", {**_NARROW, **_MLP}),
    _speaker("GPTJ", {**_GPT2, "rotary_dim": 4}),
    _speaker("OPT", {**_NARROW, **_MLP, "ffn_dim": 32, "word_embed_proj_dim": 16}),
    _speaker("Bloom", {"vocab_size": WORDS, "hidden_size": 16, "n_layer": 2, "n_head": 2, **_IDS}),
    _speaker("Falcon", {**_NARROW, "alibi": False}),
    _speaker("Llama", _LLAMA),
    _speaker("Mistral", _GROUPED),
    _speaker("Qwen2", _LLAMA),
    _speaker("Qwen3", _GROUPED),
    _speaker("Gemma", _GROUPED),
    _speaker("Gemma2", _GROUPED),
    _speaker("Phi", {**_NARROW, **_MLP}),
    _speaker("Phi3", _LLAMA),
    _speaker("StableLm", _LLAMA),
    _speaker("Mamba", {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, **_IDS}),
    _speaker("Mixtral", {**_LLAMA, "num_local_experts": 2, "num_experts_per_tok": 2, **_EAGER}),
    _speaker("Bert", {**_NARROW, **_MLP}, "ForMaskedLM"),
    _reader("Bert", {**_NARROW, **_MLP}),
    _reader("Roberta", {**_NARROW, **_MLP}),
    _reader("DistilBert", {"vocab_size": WORDS, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, **_IDS}),
    _reader("Albert", {**_NARROW, **_MLP, "embedding_size": 8}),
    _reader("Electra", {**_NARROW, **_MLP, "embedding_size": 8}),
    _reader("DebertaV2", {**_NARROW, **_MLP, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    _reader("ModernBert", {**_NARROW, **_MLP}),
    _translator("T5", _T5, _translations),
    _translator("Bart", _BART, _translations),
    _translator("Whisper", _WHISPER, _speeches),
    _viewer("ViT", {**_IMAGE, "patch_size": 8}),
    _viewer("Dinov2", {**_IMAGE, "patch_size": 8}),
    _viewer("Swin", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2],
                     "window_size": 4, "num_labels": 10}),
    _viewer("ConvNext", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "num_labels": 10}),
    _viewer("ResNet", {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 10}),
    _viewer("MobileViT", {"image_size": 32, "hidden_sizes": [8, 16, 16], "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16],
                          "num_labels": 10}),
]  # fmt: skip
