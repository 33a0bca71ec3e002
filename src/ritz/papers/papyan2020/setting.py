"""What the figures of trained networks have in common: data sets, networks, and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from ...errors import ArgumentError
from ...lab import data, models
from ...lab.data import Examples, Split
from ...lab.training.arithmetic import Arithmetic

Data = Literal["mnist", "fashion_mnist", "cifar10", "cifar100", "digits"]
Network = Literal["vgg11", "resnet18", "mlp"]
Part = Literal["train", "test"]
TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "digits": "digits 8 × 8",
}
NETWORKS = {"vgg11": "VGG11", "resnet18": "ResNet-18", "mlp": "MLP"}
NUM_CLASSES = 10  # C of all data sets but CIFAR-100
_MANY = {"cifar100": (100, 500)}  # C, and how many examples of each class there are, where the usual 5000 are not
_EPOCHS = {"mnist": 200, "fashion_mnist": 200, "cifar10": 350, "cifar100": 350, "digits": 200}  # App. D.1, but for MLPs
_MLP_EPOCHS = 350  # App. D.1: "for all datasets"
SIZES = (13, 51, 136, 365, 1351)  # examples a class, of the 20 on a logarithmic scale from 10 to 5000
PAUSES = (1, 6, 30, 116)  # open: epochs of 350 at which networks are measured beside the last; 117 is annealed first
_IMAGE = 32  # pixels on a side for convolutional networks; smaller images have a black frame
_SHAPES = {
    "mnist": (1, 28),
    "fashion_mnist": (1, 28),
    "cifar10": (3, 32),
    "cifar100": (3, 32),
    "digits": (1, 8),
}  # channels, pixels on a side


@dataclass(frozen=True)
class Training:
    """SGD as in both papers (2020: App. D.1; 2019: C.1), except for the choice of the initial rate."""

    num_epochs: int | None = None  # "200 epochs in the case of MNIST and FashionMNIST and 350": as printed; MLPs 350
    batch_size: int = 128  # "128 batch size"
    momentum: float = 0.9  # "0.9 momentum"
    weight_decay: float = 5e-4  # "5 × 10⁻⁴ weight decay"
    rates: tuple[float, ...] = (0.1, 0.03, 0.01)  # "100 logarithmically spaced initial learning rates": 25 for MLPs
    sweep_fraction: float = 0.05  # open: of the epochs, to try a rate; the paper trains to the end at each
    sweep_steps: int = 2000  # open: at least so many steps to try a rate
    precision: Arithmetic | None = "bfloat16"  # open: on a GPU alone
    num_errors: int = 24  # open: epochs at which errors are counted, on a logarithmic scale


AS_PRINTED = Training()


@dataclass(frozen=True)
class Piece:
    """One trained network: what it is, on what, from which seed, and at which epochs it is kept beside the last."""

    network: Network = "vgg11"  # "VGG11 and ResNet18", "an eight-layer multilayer perceptrons (MLP)"
    data: Data = "mnist"  # "MNIST, FashionMNIST, CIFAR10 and CIFAR100"
    per_class: int = 5000  # "logarithmically spaced in the range [10, 5000]": of each class, all classes having as many
    seed: int = 0  # open: of the examples, the weights and the batches
    pauses: tuple[int, ...] = ()  # open: epochs at which the network is kept beside the last
    training: Training = AS_PRINTED
    narrow: int = 1  # open: every width of a convolutional network is divided by it, for machines without a GPU
    width: int = 2048  # "2048 neurons in each hidden layer"
    depth: int = 8  # "eight-layer"

    def __post_init__(self) -> None:
        if any(not 0 <= pause <= self.num_epochs for pause in self.pauses) or self.num_epochs < 1:
            raise ArgumentError(
                f"The network was to be kept after the epochs {self.pauses}, of {self.num_epochs}.",
                "The network exists from epoch 0, before training, to the last epoch.",
                "Give epochs in between, or train for longer.",
            )

    @property
    def num_epochs(self) -> int:
        """How many epochs the network is trained."""
        usual = _MLP_EPOCHS if self.network == "mlp" else _EPOCHS[self.data]
        return usual if self.training.num_epochs is None else self.training.num_epochs

    @property
    def num_classes(self) -> int:
        """C, the number of classes of the data set."""
        return _MANY[self.data][0] if self.data in _MANY else NUM_CLASSES

    @property
    def epochs(self) -> list[int]:
        """The epochs at which the network is kept, the last among them."""
        return sorted({*self.pauses, self.num_epochs})

    @property
    def title(self) -> str:
        """The piece in words."""
        return f"{NETWORKS[self.network]}, {TITLES[self.data]}, {self.per_class} a class, seed {self.seed}"

    def with_seed(self, seed: int) -> Piece:
        """The same piece from another seed."""
        return replace(self, seed=seed)

    def on(self, name: Data) -> Piece:
        """The same piece on another data set, or on all of it if it has fewer examples of a class."""
        most = _MANY[name][1] if name in _MANY else self.per_class
        return replace(self, data=name, per_class=min(self.per_class, most))


WHOLE = Piece()  # VGG11 on 50,000 examples: 2020, Fig. 3, 4 and 14; 2019, Fig. 2, 3 and 9
FOLLOWED = Piece(
    data="cifar10", per_class=136, pauses=PAUSES
)  # along training: 2020, Fig. 5 and 6; 2019, Fig. 1, 6, 7, 10
SMALL_TRAINING = Training(num_epochs=15, rates=(0.05,), num_errors=4)
SMALL = Piece(per_class=100, training=SMALL_TRAINING, narrow=16)  # for a laptop
TINY = Piece("mlp", "digits", 4, training=Training(2, 40, rates=(0.05,), num_errors=2), width=8, depth=3)  # for tests


def dynamics_piece(per_class: int, seed: int) -> Piece:
    """VGG11 on some of CIFAR-10, as it is followed along training."""
    return replace(FOLLOWED, per_class=per_class, seed=seed)


def check_ten_classes(piece: Piece) -> None:
    """Refuse other numbers of classes where a figure counts eigenvalues by C = 10."""
    if piece.num_classes != NUM_CLASSES:
        raise ArgumentError(
            f"The network is trained on {TITLES[piece.data]}, which has {piece.num_classes} classes.",
            f"This figure is printed for {NUM_CLASSES} classes, and counts its eigenvalues by them.",
            "Take another data set: mnist, fashion_mnist or cifar10.",
            "Or take a figure of the Hessian: ritz run papyan2020.fig3 --set data=cifar100",
        )


def split(piece: Piece, data_dir: Path | None) -> Split:
    """The examples that a piece is trained on, drawn by its seed, and all test examples, standardised by channel.

    The scale of the pixels is that of the whole training set: open, as the papers print none.
    """
    flat = piece.network == "mlp"
    framed = piece.network == "vgg11" or (
        piece.network == "resnet18" and piece.data != "digits"
    )  # VGG11 halves it often
    whole = _data_set(piece.data, data_dir, framed)
    generator = torch.Generator().manual_seed(piece.seed)
    train, test = data.subsample(whole.train, per_class=piece.per_class, generator=generator), whole.test
    return Split(data.flattened(train), data.flattened(test)) if flat else Split(train, test)


def examples(
    piece: Piece, part: Part, data_dir: Path | None, device: torch.device, *, num_examples: int | None = None
) -> Examples:
    """The training or test examples of a piece on a device: all, or the first ones of each class in equal numbers."""
    both = split(piece, data_dir)
    chosen = both.train if part == "train" else both.test
    if num_examples is not None and num_examples < len(chosen.x):
        chosen = data.subsample(chosen, per_class=num_examples // piece.num_classes)
    return Examples(chosen.x.to(device), chosen.y.to(device))


def network(piece: Piece, device: torch.device | str) -> nn.Sequential:
    """The network of a piece with its first weights."""
    generator = torch.Generator().manual_seed(piece.seed)
    channels, pixels = _SHAPES[piece.data]
    if piece.network == "mlp":
        return models.wide_mlp(
            channels * pixels**2,
            piece.num_classes,
            generator=generator,
            depth=piece.depth,
            width=piece.width,
            device=device,
        )
    make = models.vgg11 if piece.network == "vgg11" else models.resnet18
    return make(piece.num_classes, generator=generator, num_channels=channels, narrow=piece.narrow, device=device)


@lru_cache(maxsize=1)
def _data_set(name: Data, folder: Path | None, framed: bool) -> Split:
    """The whole data set as images, kept in memory until another one is requested."""
    if name == "digits":
        whole = data.digits(generator=torch.Generator().manual_seed(0))
        whole = Split(*(Examples(part.x.view(-1, *_square(name)), part.y) for part in (whole.train, whole.test)))
    else:
        whole = getattr(data, name)(folder=folder)
    if framed:
        whole = Split(data.padded(whole.train, _IMAGE), data.padded(whole.test, _IMAGE))
    return data.standardized(whole)


def _square(name: Data) -> tuple[int, int, int]:
    channels, pixels = _SHAPES[name]
    return channels, pixels, pixels
