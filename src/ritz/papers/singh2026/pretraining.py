"""What the GPT figures share: a text as tokens, a GPT, its twin without attention, and their training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ...errors import ArgumentError, FileError
from ...lab.data import tiny_shakespeare
from ...lab.models import GPT, GPTConfig, gpt, without_attention
from ...lab.training import Cosine, Pause, adamw, train
from ...lab.training.schedules import Pace


@dataclass(frozen=True)
class Config:
    """Pretraining of a GPT and of its twin without attention. The paper's values: nanoGPT's train.py, as D.1.5 says."""

    corpus: Literal["tokens", "shakespeare", "walk"] = "tokens"  # OpenWebText: D.1.5
    tokens: str = ""  # path: .npy, or raw 16-bit integers as nanoGPT's train.bin
    vocabulary: int = 50304  # nanoGPT: 50257 rounded up
    context: int = 1024  # nanoGPT
    depth: int = 12  # D.1.5; its twin has 18 blocks
    width: int = 768  # nanoGPT: 124M
    num_heads: int = 12  # nanoGPT
    bias: bool = False  # nanoGPT
    gelu: Literal["tanh", "none"] = "none"  # nanoGPT
    num_steps: int = 10_000  # D.1.5
    batch_size: int = 480  # nanoGPT: 12 sequences × 40 of gradient accumulation
    micro_batch: int | None = 12  # nanoGPT
    learning_rate: float = 6e-4  # nanoGPT
    warmup: int = 2000  # nanoGPT
    decay_steps: int = 600_000  # nanoGPT: of the cosine, of which only the start is seen
    weight_decay: float = 0.1  # nanoGPT
    second_moment: float = 0.95  # nanoGPT: β₂ of AdamW
    clip: float = 1.0  # nanoGPT
    bfloat16: bool = True  # nanoGPT, in training alone
    seeds: tuple[int, ...] = (0, 1, 2)  # three: D.1.5
    strides: tuple[int, ...] = (10, 100, 1000)  # "every 10 steps …, then every 100, and eventually every 1,000", D.1.5
    until: tuple[int, ...] = (100, 1000, 10_000)  # open: the step up to which each of these holds
    num_sequences: int = 8  # for each measurement, drawn at random from the training data: D.1.5
    tolerance: float = 5e-4  # of the eigenpairs, relative: half of what a statement on them allows
    basis_size: int = 40  # vectors kept by the eigensolver: 20 GB


GPT2_SIZE = Config(  # the 12 × 768 blocks of the paper on the text at hand: 85M parameters without GPT-2's vocabulary
    corpus="shakespeare",
    vocabulary=65,  # its characters
    num_steps=1000,  # 48 passes over a text of a million characters: more would only memorise it
    batch_size=48,
    warmup=100,
    decay_steps=1000,
    seeds=(0,),
    strides=(10, 100),
    until=(100, 1000),
)
CHARACTERS = Config(  # nanoGPT's config/train_shakespeare_char.py, for which D.1.5's setup has no say; without dropout
    corpus="shakespeare",
    vocabulary=65,
    context=256,
    depth=6,  # its twin has 9 blocks
    width=384,
    num_heads=6,
    num_steps=5000,
    batch_size=64,
    micro_batch=None,
    learning_rate=1e-3,
    second_moment=0.99,
    warmup=100,
    decay_steps=5000,
    until=(100, 1000, 5000),
    basis_size=100,
)
SMALL = replace(
    CHARACTERS,
    context=64,
    depth=4,
    width=64,
    num_heads=4,
    num_steps=600,
    batch_size=16,
    learning_rate=3e-3,  # a small model takes a larger rate
    second_moment=0.95,
    warmup=50,
    decay_steps=600,
    bfloat16=False,
    strides=(10, 50, 100),
    until=(50, 200, 600),
)
TINY = replace(
    SMALL,
    corpus="walk",
    vocabulary=11,
    context=8,
    depth=1,
    width=8,
    num_heads=2,
    num_steps=6,
    batch_size=4,
    warmup=2,
    seeds=(0,),
    strides=(3,),
    until=(6,),
    num_sequences=2,
    tolerance=1e-2,
)

PAPER_COST = (
    "As printed it needs a tokenised OpenWebText, which does not come with ritz, and, counted and not measured, about "
    "30 hours of one H200: six runs of 10,000 steps of half a million tokens at 124M parameters (29 h in bfloat16 at "
    "40 % of its peak), 174 measurements (2 h). Preset paper is what tiny Shakespeare allows."
)


def token_stream(config: Config, data_dir: Path | None) -> Integer[np.ndarray, " N"]:
    """The training text as integers; a file is mapped, not read."""
    if config.tokens and config.corpus != "tokens":
        raise ArgumentError(
            f"The file {config.tokens} was named, and the text is another one: corpus={config.corpus}.",
            "It would not be read, and its tokens are not those of this small model.",
            "Leave tokens=... out, or take --preset printed.",
            "For a model of this size: --set corpus=tokens --set vocabulary=50304",
        )
    if config.corpus == "shakespeare":
        stream = tiny_shakespeare(folder=data_dir, context=config.context).train.x.flatten().numpy()
    elif config.corpus == "walk":
        stream = _walk(config.vocabulary, 50 * config.context)
    else:
        stream = _file_of_tokens(config.tokens)
    check_tokens(stream, config)
    return stream


def sequences(
    stream: Integer[np.ndarray, " N"], count: int, context: int, generator: torch.Generator, *, vocabulary: int
) -> Int[Tensor, "count context_and_one"]:
    """Random pieces of the text, each one token longer than the context: inputs, and the tokens that follow them."""
    starts = torch.randint(len(stream) - context, (count,), generator=generator).tolist()
    rows = np.stack([stream[start : start + context + 1] for start in starts]).astype(np.int64)
    _check_known(rows, vocabulary)
    return torch.from_numpy(rows)


def _walk(vocabulary: int, length: int) -> Integer[np.ndarray, " N"]:
    """A random walk over the tokens: something to learn where there is no text."""
    steps = torch.randint(-1, 2, (length,), generator=torch.Generator().manual_seed(0))
    return (steps.cumsum(0) % vocabulary).numpy()


def _file_of_tokens(path: str) -> Integer[np.ndarray, " N"]:
    if not path:
        raise ArgumentError(
            "This preset reads tokens from a file, and none was named.",
            "The paper trains on OpenWebText, which does not come with ritz.",
            "Name one: --set tokens=train.bin (raw 16-bit integers, as nanoGPT prepares them, or a .npy of integers).",
            "Or take --preset paper, large or laptop, which read tiny Shakespeare.",
        )
    try:
        stream = np.load(path, mmap_mode="r") if path.endswith(".npy") else np.memmap(path, np.uint16, "r")
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.",
            "It was expected to hold tokens: raw 16-bit integers, or a .npy of integers.",
            "Check the path: --set tokens=train.bin",
        ) from error
    return stream


def check_tokens(stream: np.ndarray, config: Config) -> None:
    """Refuse anything but one long row of tokens in the model's vocabulary; only the first million are looked at."""
    if stream.ndim != 1 or stream.dtype.kind not in "iu" or len(stream) <= config.context:
        raise FileError(
            f"The tokens are {stream.dtype} of shape {stream.shape}.",
            f"One row of integers was expected, longer than the context of {config.context}.",
            "Check the file that tokens=... names.",
        )
    _check_known(stream[: 10**6], config.vocabulary)  # a glance: the file may hold billions; what is read is checked


def _check_known(tokens: np.ndarray, vocabulary: int) -> None:
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocabulary:
        raise FileError(
            f"The tokens go from {int(tokens.min())} to {int(tokens.max())}.",
            f"The model knows those from 0 to {vocabulary - 1}.",
            "Check that the file holds 16-bit integers of this vocabulary, or set vocabulary=....",
        )


class TokenLosses(nn.Module):
    """The loss of every token of rows (b, n + 1), computed in parts, and again for the gradient.

    A batch thus takes the memory of one part, however large it is, as with accumulated gradients.
    """

    def __init__(self, model: GPT, *, micro_batch: int | None = None, autocast: bool = False) -> None:
        super().__init__()
        self.model, self.micro_batch, self.autocast = model, micro_batch, autocast

    def forward(self, rows: Int[Tensor, "b m"]) -> Float[Tensor, "b n"]:
        if self.micro_batch is None:
            return self._losses(rows)
        parts = rows.split(self.micro_batch)
        return torch.cat([checkpoint(self._losses, part, use_reentrant=False) for part in parts])

    def _losses(self, rows: Tensor) -> Tensor:
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=self.autocast):
            logits = self.model(rows[:, :-1])
        return F.cross_entropy(logits.float().mT, rows[:, 1:], reduction="none")


@dataclass(frozen=True)
class Stretched:
    """The beginning of a cosine schedule that would last for `decay_steps`."""

    cosine: Cosine
    decay_steps: int

    def after(self, pace: Pace, loss: Float[Tensor, "*B"], *, epoch: int, num_epochs: int) -> Pace:
        """The pace of the full-length schedule at this step."""
        return self.cosine.after(pace, loss, epoch=epoch, num_epochs=self.decay_steps)


def checkpoints(config: Config) -> list[int]:
    """The steps of measurements: before the first, then every `strides[i]` up to `until[i]`, and the last."""
    result, start = {0, config.num_steps}, 0
    for stride, end in zip(config.strides, config.until, strict=True):
        result |= set(range(start, min(end, config.num_steps) + 1, stride))
        start = end
    return sorted(result)


def architecture(config: Config, *, attention: bool) -> GPTConfig:
    """The sizes of the model, or of its twin without attention."""
    sizes = (config.vocabulary, config.context, config.depth, config.width, config.num_heads)
    model = GPTConfig(*sizes, bias=config.bias, gelu=config.gelu)
    return model if attention else without_attention(model)


def pretrain(
    config: Config,
    stream: Integer[np.ndarray, " N"],
    *,
    attention: bool,
    seed: int,
    device: torch.device,
    file: Path | None,
) -> tuple[GPT, Iterator[Pause[float, dict[str, Tensor]]]]:
    """The initial model, or its twin without attention, and its training, with a pause at every step."""
    random = torch.Generator().manual_seed(seed)
    model = gpt(architecture(config, attention=attention), generator=random, device=device)
    losses = TokenLosses(model, micro_batch=config.micro_batch, autocast=config.bfloat16)

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = sequences(stream, config.batch_size, config.context, generator, vocabulary=config.vocabulary).to(device)
        return rows, rows[:, 1:]

    pauses = train(
        losses,
        lambda values, _: values,
        batch,
        adamw(losses, config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, config.second_moment)),
        num_epochs=config.num_steps,
        generator=random,
        schedule=Stretched(Cosine(config.warmup), config.decay_steps),
        clip=config.clip,
        checkpoint=file,
    )
    return model.eval(), pauses
