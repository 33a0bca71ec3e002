"""Networks as others wrote them, from torchvision and transformers: their configurations, with random weights.

The constructors import what they need, so that a machine without these libraries can measure everything else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .problems import Problem, TokenCrossEntropy

GPT2 = {  # layers, heads, width
    "124m": (12, 12, 768),
    "774m": (36, 20, 1280),
    "1.5b": (48, 25, 1600),
}
VOCABULARY, CONTEXT = 50257, 1024
DETECTION = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_definitions: list[Any] = []  # alive as long as the process: operators vanish with what defined them


def torchvision_models() -> Any:
    """torchvision's networks; where its compiled part does not fit PyTorch's build, what that lacks is declared."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        _definitions.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _definitions[-1].define(name + DETECTION)
    return importlib.import_module("torchvision.models")


class Logits(nn.Module):
    """A language model of transformers as a function from tokens to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


def gpt2(size: str, device: torch.device, *, smoke: bool = False) -> nn.Module:
    """GPT-2 as transformers configures it, made on its device."""
    torchvision_models()  # transformers imports it
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, heads, width = (2, 2, 32) if smoke else GPT2[size]
    vocabulary = 100 if smoke else VOCABULARY
    end = vocabulary - 1
    shape = {"n_layer": layers, "n_head": heads, "n_embd": width, "n_positions": CONTEXT, "vocab_size": vocabulary}
    with device:
        return Logits(GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=end, eos_token_id=end))).eval()


def tokens(sequences: int, length: int, device: torch.device, *, smoke: bool) -> tuple[Tensor, Tensor]:
    """Random sequences, and what follows each of their tokens."""
    vocabulary, length = (100, 16) if smoke else (VOCABULARY, length)
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(vocabulary, (sequences, length + 1), generator=generator).to(device)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def gpt2_problem(device: torch.device, smoke: bool = False) -> Problem:
    """GPT-2 124M on 8 sequences of 512 tokens."""
    return Problem(
        "GPT-2 124M, 8 × 512 tokens", gpt2("124m", device, smoke=smoke), TokenCrossEntropy(),
        [tokens(2 if smoke else 8, 512, device, smoke=smoke)],
    )  # fmt: skip


def resnet50_problem(device: torch.device, smoke: bool = False) -> Problem:
    """ResNet-50, with its in-place ReLUs and sums, on 64 images of 224²."""
    return _images("ResNet-50, 64 × 224²", torchvision_models().resnet50(), 32 if smoke else 224, device, smoke)


def mobilenet_problem(device: torch.device, smoke: bool = False) -> Problem:
    """MobileNetV3-large on 64 images of 224²."""
    model = torchvision_models().mobilenet_v3_large()
    return _images("MobileNetV3-large, 64 × 224²", model, 32 if smoke else 224, device, smoke)


def vit_problem(device: torch.device, smoke: bool = False) -> Problem:
    """ViT-B/16 on 64 images of 224²."""
    models = torchvision_models()
    tiny = {"image_size": 32, "patch_size": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    model = models.VisionTransformer(**tiny) if smoke else models.vit_b_16()
    nn.init.normal_(model.heads.head.weight, std=0.02)  # zero as torchvision makes it, and so would be most of H
    return _images("ViT-B/16, 64 × 224²", model, 32 if smoke else 224, device, smoke)


def resnet18_problem(device: torch.device, smoke: bool = False) -> Problem:
    """ResNet-18, with its in-place ReLUs and sums, on 64 images of 64²."""
    return _images("ResNet-18, 64 × 64²", torchvision_models().resnet18(), 32 if smoke else 64, device, smoke)


def _images(name: str, model: nn.Module, side: int, device: torch.device, smoke: bool) -> Problem:
    count, generator = 4 if smoke else 64, torch.Generator().manual_seed(1)
    x = torch.randn(count, 3, side, side, generator=generator).to(device)
    y = torch.randint(1000, (count,), generator=generator).to(device)
    model = model.to(device)
    _settle(model, x)
    return Problem(name, model.eval(), nn.CrossEntropyLoss(), [(x, y)])


def _settle(model: nn.Module, x: Tensor) -> None:
    """Give batch norms the statistics of the data, as training would: with those of their birth, activations grow."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the mean over all batches seen
    with torch.no_grad():
        model.train()(x)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum


NETWORKS: dict[str, Callable[..., Problem]] = {
    "resnet18": resnet18_problem,
    "resnet50": resnet50_problem,
    "mobilenet": mobilenet_problem,
    "vit": vit_problem,
    "gpt2": gpt2_problem,
}
NEEDS = {name: "transformers" if name == "gpt2" else "torchvision" for name in NETWORKS}


def load(name: str) -> None:
    """Import what a network needs."""
    torchvision_models()
    importlib.import_module(NEEDS[name])
