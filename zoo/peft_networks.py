"""Adapters of PEFT in networks of transformers: θ is what the adapter trains."""

from __future__ import annotations

from functools import partial
from typing import Any

import peft
from torch import nn

from . import transformers_networks as hosts
from .network import Network, sentences

HOSTS = {network.name: network for network in hosts.NETWORKS}


def _adapted(host: str, config: Any) -> nn.Module:
    return peft.get_peft_model(HOSTS[host].build(), config())


def _network(name: str, host: str, config: Any, classes: int = 0, slope: bool = True, **options: Any) -> Network:
    settings = partial(config, task_type="SEQ_CLS" if classes else "CAUSAL_LM", **options)
    data = sentences(hosts.WORDS, 6, classes=classes)
    return Network(f"{name} in {host}", partial(_adapted, host, settings), data, slope=slope)


NETWORKS = [
    _network("LoRA", "GPT2LMHeadModel", peft.LoraConfig, r=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    _network("LoRA", "BertForSequenceClassification", peft.LoraConfig, 4, r=2),
    _network("LoRA with dropout", "LlamaForCausalLM", peft.LoraConfig, r=2, lora_dropout=0.1),
    _network("DoRA", "BertForSequenceClassification", peft.LoraConfig, 4, slope=False, r=2, use_dora=True),
    _network("IA3", "BertForSequenceClassification", peft.IA3Config, 4),
    _network("LoHa", "BertForSequenceClassification", peft.LoHaConfig, 4, r=2, target_modules=["query", "value"]),
    _network("prompt tuning", "BertForSequenceClassification", peft.PromptTuningConfig, 4, num_virtual_tokens=3),
]
