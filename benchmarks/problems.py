"""The networks that every benchmark measures: built from a seed, with random data of the right shape."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Problem:
    """A model in evaluation mode, its loss, and its data in batches on one device."""

    name: str
    model: nn.Module
    loss: nn.Module
    batches: list[tuple[Tensor, Tensor]]


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions with batch norm; the shortcut subsamples and pads with zeros (He et al. 2016, option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.stride > 1:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(h + x)


def resnet20(num_classes: int = 10) -> nn.Module:
    """ResNet-20 for 32×32 images: 272,474 parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    width = 16
    for outputs in (16, 32, 64):
        for index in range(3):
            layers.append(ResidualBlock(width, outputs, 2 if index == 0 and outputs > 16 else 1))
            width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


def vgg11(num_classes: int = 10) -> nn.Module:
    """VGG11 for 32×32 images with its three fully connected layers: 28,144,010 parameters."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if isinstance(outputs, int):
            layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.ReLU()]
            inputs = outputs
        else:
            layers.append(nn.MaxPool2d(2))
    head = [nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, num_classes)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


class TransformerBlock(nn.Module):
    """Pre-norm causal self-attention and a GELU MLP, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A decoder-only transformer with tied embeddings."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.blocks(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        return self.norm(x) @ self.tokens.weight.T


class TokenCrossEntropy(nn.CrossEntropyLoss):
    """Cross-entropy over the last dimension: (batch, length, vocabulary) against (batch, length)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input.flatten(0, -2), target.flatten())


def mlp_problem(device: torch.device) -> Problem:
    """MLP 784-256-256-256-256-10 on 2,000 examples in batches of 500."""
    widths = (784, 256, 256, 256, 256, 10)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())][:-1]
    return _classifier("MLP", nn.Sequential(*layers), (784,), 2000, 500, device)


def resnet_problem(device: torch.device) -> Problem:
    """ResNet-20 on 512 CIFAR-sized images in batches of 128."""
    return _classifier("ResNet-20", resnet20(), (3, 32, 32), 512, 128, device)


def vgg_problem(device: torch.device) -> Problem:
    """VGG11 with 28M parameters on 1,360 CIFAR-sized images in batches of 340."""
    return _classifier("VGG11", vgg11(), (3, 32, 32), 1360, 340, device)


def gpt_problem(device: torch.device) -> Problem:
    """A 4-layer GPT of width 256 and context 128 on 16 sequences of 65 symbols, in batches of 8."""
    model = GPT(vocabulary=65, width=256, depth=4, heads=4, context=128)
    for parameter in model.tokens.parameters():
        nn.init.normal_(parameter, std=0.02)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(65, (16, 129), generator=generator).to(device)
    batches = [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens.split(8)]
    return Problem("GPT", model.to(device).eval(), TokenCrossEntropy(), batches)


def _classifier(
    name: str, model: nn.Module, shape: tuple[int, ...], count: int, batch: int, device: torch.device
) -> Problem:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, *shape, generator=generator).to(device)
    y = torch.randint(10, (count,), generator=generator).to(device)
    return Problem(
        name, model.to(device).eval(), nn.CrossEntropyLoss(), list(zip(x.split(batch), y.split(batch), strict=True))
    )


PROBLEMS: dict[str, Callable[[torch.device], Problem]] = {
    "mlp": mlp_problem,
    "resnet": resnet_problem,
    "gpt": gpt_problem,
    "vgg": vgg_problem,
}
