"""PyTorch's numerical settings while the engine runs, whatever the user has set; all are restored afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import ArgumentError, ModelError
from .undo import Hold, surely

Precision = Literal["highest", "high"]


class Numerics:
    """Run with attention that can be differentiated twice, outside autocast, and without TF32 unless requested.

    Fused attention kernels have no second derivative, nor have cuDNN's recurrent ones. Where the same shapes come back
    in every product, cuDNN may `search` for its fastest convolution once; for a single pass that takes too long, and it
    is not done where deterministic algorithms are requested. All settings are restored afterwards, also after Ctrl-C,
    and however threads interleave.
    """

    _entered = False

    def __init__(self, device: torch.device, precision: Precision, *, recurrent: bool, search: bool) -> None:
        self._settings = [
            *_cudnn(device, enabled=not recurrent, search=search),
            *_float32(precision),
            *_attention(),
            _Setting(
                partial(torch.is_autocast_enabled, device.type), partial(torch.set_autocast_enabled, device.type), False
            ),
            _Setting(torch.is_grad_enabled, torch._C._set_grad_enabled, True),
        ]
        self._before: list[Any] | None = None
        self._hold = Hold()

    def __enter__(self) -> None:
        _check_inference_mode()
        self._before, self._hold, self._entered = None, Hold(), True
        try:
            self._hold.take()
            self._before = [setting.read() for setting in self._settings]
            for setting in self._settings:
                setting.write(setting.value)
        except BaseException:
            surely(self._restore)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        surely(self._restore)

    def __del__(self) -> None:
        """Restore the settings if Ctrl-C struck on the way to the first line of `__exit__`."""
        if self._entered:
            surely(self._restore)

    def _restore(self) -> None:
        """Write back what was read, if anything was, and give the lock back; may be called again."""
        for setting, value in zip(self._settings, self._before or (), strict=False):
            setting.write(value)
        self._before = None
        self._hold.give_back()
        self._entered = False


@dataclass(frozen=True)
class _Setting:
    """One of PyTorch's settings, and the value it is to have."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]
    value: Any


def _attribute(owner: Any, name: str, value: Any) -> _Setting:
    return _Setting(lambda: getattr(owner, name), lambda to: setattr(owner, name, to), value)


def _cudnn(device: torch.device, *, enabled: bool, search: bool) -> list[_Setting]:
    backend: Any = torch.backends.cudnn
    if device.type != "cuda":
        return []
    free = not (backend.deterministic or torch.are_deterministic_algorithms_enabled())
    return [
        _attribute(backend, "enabled", backend.enabled and enabled),
        _attribute(backend, "benchmark", search and free),
    ]


def _attention() -> list[_Setting]:
    """Only the plain attention kernel, and no fused layers, which may compute differently where no gradient is due."""
    cuda, mha = torch.backends.cuda, torch.backends.mha
    return [
        _Setting(cuda.math_sdp_enabled, cuda.enable_math_sdp, True),
        _Setting(cuda.flash_sdp_enabled, cuda.enable_flash_sdp, False),
        _Setting(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, False),
        _Setting(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, False),
        _Setting(mha.get_fastpath_enabled, mha.set_fastpath_enabled, False),
    ]


def _float32(precision: Precision) -> list[_Setting]:
    """The precision of every kind of float32 product, one by one: PyTorch's summary setting cannot be put back."""
    backends: Any = torch.backends
    kinds = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]
    kinds += [backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn]
    return [_attribute(kind, "fp32_precision", "tf32" if precision == "high" else "ieee") for kind in kinds]


def has_tf32(device: torch.device) -> bool:
    """Whether a device multiplies float32 matrices faster in TF32: NVIDIA's do since compute capability 8."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def check_precision(precision: str) -> None:
    """Refuse anything but a known precision."""
    if precision not in ("highest", "high"):
        raise ArgumentError(
            f"tangent_precision={precision!r} was given.",
            "The precisions are those of torch.set_float32_matmul_precision.",
            'Pass "highest" for float32 throughout, or "high" to allow TF32 in the linear maps.',
        )


def in_precision(tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    """What a tensor becomes in a precision: real numbers of it, complex ones of two such, integers as they are."""
    if tensor.is_complex():
        return dtype.to_complex()
    return dtype if tensor.is_floating_point() else tensor.dtype


def _check_inference_mode() -> None:
    if torch.is_inference_mode_enabled():
        raise ModelError(
            "Inference mode is on.",
            "Nothing computed in it can be differentiated.",
            "Leave `with torch.inference_mode():`; `torch.no_grad()` is fine.",
        )
