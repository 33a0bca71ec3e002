"""The libraries of the zoo, in the order of its table; each is imported when its networks are asked for.

torchvision, which most of them import, comes after two operators that it would miss.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from . import operators  # noqa: F401
from .network import Network


def _networks(module: str) -> Callable[[], list[Network]]:
    return lambda: import_module(f".{module}", __package__).NETWORKS


LIBRARIES: dict[str, Callable[[], list[Network]]] = {
    "torch.nn": _networks("torch_networks"),
    "torchvision": _networks("torchvision_networks"),
    "timm": _networks("timm_networks"),
    "transformers": _networks("transformers_networks"),
    "PEFT": _networks("peft_networks"),
}
