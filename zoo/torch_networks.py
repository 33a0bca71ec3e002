"""Networks of torch.nn itself: its layers and wrappers, in a few lines as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.checkpoint import checkpoint

from .losses import BinaryCrossEntropy, SquaredError
from .network import Network, Pairs, images, sentences, vectors


class _Recurrent(nn.Module):
    """The last state of a recurrent layer, read out."""

    def __init__(self, layer: type, **options: Any) -> None:
        super().__init__()
        self.layer = layer(5, 7, batch_first=True, num_layers=2, **options)
        self.out = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0][:, -1])


class _Translator(nn.Module):
    """`nn.Transformer` from one sequence to the same, shifted."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.out = nn.Linear(16, 11)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.out(self.transformer(x, x, tgt_mask=mask))


class _Attention(nn.Module):
    """`nn.MultiheadAttention` on itself."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x, x, x, need_weights=self.need_weights)[0]
        return self.out(torch.tanh(y).mean(1))


class _Encoder(nn.Module):
    """Layers of an encoder, of which some tokens are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 4)

    def forward(self, input_ids: Tensor) -> Tensor:
        features = self.encoder(self.embedding(input_ids), src_key_padding_mask=input_ids == 0)
        return self.out(features[:, 0])


class _Bags(nn.Module):
    """A bag of words with an `nn.Bilinear` behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.key = nn.EmbeddingBag(13, 6, mode="sum"), nn.Embedding(13, 5)
        self.out = nn.Bilinear(6, 5, 4)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.out(torch.tanh(self.bag(input_ids)), torch.tanh(self.key(input_ids[:, 0])))


class _Checkpointed(nn.Module):
    """Blocks whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.GELU()) for _ in range(3))
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(x)


class _UNet(nn.Module):
    """Down and up again with a skip connection: an output for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool2d(2))
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 3, padding="same"), nn.InstanceNorm2d(8, affine=True), nn.ELU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(11, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.interpolate(self.middle(self.down(x)), scale_factor=1, mode="bilinear")
        return self.out(torch.cat([x, self.up(y)], 1))


def _perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 3))


def _recurrent(layer: type, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = _Recurrent(layer, **options)
        model(torch.zeros(1, 4, 5))
        return model

    return build


def _lambda() -> nn.Module:
    model = _perceptron()
    forward = model.forward
    model.forward = lambda x: forward(x)
    return model


def _hooked() -> nn.Module:
    model = _perceptron()
    model.scale = nn.Parameter(torch.tensor(1.5))
    model[1].register_forward_hook(lambda module, inputs, output: output * model.scale)
    return model


def _weight_norm() -> nn.Module:
    return nn.Sequential(weight_norm(nn.Linear(6, 8)), nn.Tanh(), weight_norm(nn.Linear(8, 3)))


def _parametrized() -> nn.Module:
    first, second = parametrizations.weight_norm(nn.Linear(6, 8)), parametrizations.spectral_norm(nn.Linear(8, 3))
    return nn.Sequential(first, nn.Tanh(), second)


def _activations() -> nn.Module:
    smooth = [nn.PReLU(8), nn.Mish(), nn.SELU(), nn.CELU(), nn.LogSigmoid(), nn.Softsign(), nn.Hardtanh(-3, 3)]
    layers = [layer for act in smooth for layer in (nn.Linear(8, 8), act)]
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.GLU(), nn.Linear(4, 3))


def _hard_activations() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Hardsigmoid(), nn.Linear(8, 8), nn.Hardswish(), nn.Linear(8, 3))


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 6, 3, groups=3, padding=1, padding_mode="circular"),
        nn.LocalResponseNorm(2),
        nn.LeakyReLU(0.1, inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 10),
    )


def _signals() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 6, 5, dilation=2), nn.BatchNorm1d(6), nn.ReLU6(inplace=True), nn.Unflatten(1, (2, 3)),
        nn.Conv2d(2, 4, (2, 3)), nn.Flatten(), nn.RMSNorm(48), nn.Linear(48, 3),
    )  # fmt: skip


def _volumes() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.SiLU(inplace=True), nn.ConvTranspose3d(4, 3, 2),
        nn.Flatten(1), nn.Linear(375, 3),
    )  # fmt: skip


def _padded() -> Pairs:
    pairs = sentences(11, 5, classes=4)()
    for inputs, _ in pairs:
        inputs["input_ids"][0, 3:] = 0
    return pairs


def _labelled_pixels() -> Pairs:
    return [(x, (x[:, :1] > 0).double()) for x, _ in images(8)()]


_PLAIN = vectors(6, classes=3)
_SEQUENCE = vectors(4, 5, classes=3)

NETWORKS = [
    Network("Linear, Tanh, Softplus", _perceptron, _PLAIN),
    Network("Linear, Tanh, Softplus; squared error", _perceptron, vectors(6, outputs=(3,)), SquaredError()),
    Network("nine activations", _activations, _PLAIN),
    Network("Hardsigmoid, Hardswish", _hard_activations, _PLAIN, oracle="central differences"),
    Network("Conv2d, in-place ReLU, LocalResponseNorm", _convolutions, images(16)),
    Network("Conv1d, RMSNorm", _signals, vectors(3, 16, classes=3)),
    Network("Conv3d, ConvTranspose3d", _volumes, vectors(2, 4, 4, 4, classes=3)),
    Network("U-net, GroupNorm, InstanceNorm", _UNet, _labelled_pixels, BinaryCrossEntropy()),
    Network("GRU", _recurrent(nn.GRU), _SEQUENCE),
    Network("LSTM, projected", _recurrent(nn.LSTM, proj_size=4), _SEQUENCE),
    Network("RNN, both directions", _recurrent(nn.RNN, bidirectional=True), _SEQUENCE),
    Network("Transformer", _Translator, sentences(11, 5)),
    Network("TransformerEncoder, padded", _Encoder, _padded),
    Network("MultiheadAttention", lambda: _Attention(False), vectors(5, 8, classes=3)),
    Network("MultiheadAttention, need_weights", lambda: _Attention(True), vectors(5, 8, classes=3)),
    Network("EmbeddingBag, Bilinear", _Bags, sentences(13, 6, classes=4), oracle="central differences"),
    Network("weight_norm, the old one", _weight_norm, _PLAIN, oracle="central differences"),
    Network("weight_norm and spectral_norm, parametrized", _parametrized, _PLAIN, oracle="central differences"),
    Network("checkpointed", _Checkpointed, _PLAIN, rules=False),  # what is recomputed does not see them
    Network("compiled", lambda: torch.compile(_perceptron(), backend="eager"), _PLAIN),
    Network("DataParallel", lambda: nn.DataParallel(_perceptron()), _PLAIN),
    Network("a lambda as forward", _lambda, _PLAIN),
    Network("a hook with a parameter", _hooked, _PLAIN),
]
