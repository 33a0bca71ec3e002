"""How PyTorch computes while the engine runs, whatever the user has set for training; all of it restored afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import ArgumentError, ModelError

Precision = Literal["highest", "high"]


@contextlib.contextmanager
def numerics(device: torch.device, precision: Precision, *, recurrent: bool, search: bool) -> Iterator[None]:
    """Run with attention that can be differentiated twice, outside autocast, and without TF32 unless asked for.

    Fused attention kernels have no second derivative, and cuDNN's recurrent ones neither. Where the same shapes come
    back in every product, cuDNN may `search` for its fastest convolution once; for a single pass that takes too long.
    """
    _check_inference_mode()
    with contextlib.ExitStack() as settings:
        settings.enter_context(_cudnn(device, enabled=not recurrent, search=search))
        settings.enter_context(_float32(precision))
        settings.enter_context(sdpa_kernel(SDPBackend.MATH))
        settings.enter_context(_without_fast_path())
        settings.enter_context(torch.autocast(device.type, enabled=False))
        settings.enter_context(torch.enable_grad())
        yield


@contextlib.contextmanager
def _cudnn(device: torch.device, *, enabled: bool, search: bool) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    backend: Any = torch.backends.cudnn
    before = backend.enabled, backend.benchmark
    backend.enabled, backend.benchmark = before[0] and enabled, search
    try:
        yield
    finally:
        backend.enabled, backend.benchmark = before


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    """Transformer layers take a fused path where no gradient is asked for, and may then compute something else."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _float32(precision: Precision) -> Iterator[None]:
    """Set the precision of every kind of float32 product, one by one: PyTorch's summary setting cannot be put back."""
    kinds = _kinds()
    if not kinds:  # PyTorch before 2.9
        with _legacy_float32(precision):
            yield
        return
    before = [kind.fp32_precision for kind in kinds]
    for kind in kinds:
        kind.fp32_precision = "tf32" if precision == "high" else "ieee"
    try:
        yield
    finally:
        for kind, value in zip(kinds, before, strict=True):
            kind.fp32_precision = value


def _kinds() -> list[Any]:
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "conv"):
        return []
    kinds = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]
    return [*kinds, backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn]


@contextlib.contextmanager
def _legacy_float32(precision: Precision) -> Iterator[None]:
    matmul, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision == "high"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution


def check_precision(precision: str) -> None:
    """Refuse what is no precision."""
    if precision not in ("highest", "high"):
        raise ArgumentError(
            f"tangent_precision={precision!r} was given.",
            "The precisions are those of torch.set_float32_matmul_precision.",
            '"highest" is float32 throughout, "high" allows TF32 in the linear maps.',
        )


def _check_inference_mode() -> None:
    if torch.is_inference_mode_enabled():
        raise ModelError(
            "Inference mode is on.",
            "Nothing computed in it can be differentiated.",
            "Leave `with torch.inference_mode():`; `torch.no_grad()` is fine.",
        )
