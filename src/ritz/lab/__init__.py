"""What experiments need around the measurement: data, networks, initialisations, training, many at once, sweeps."""

from importlib import import_module
from typing import Any

__all__ = ["data", "ensemble", "init", "models", "sweeps", "training", "workers"]  # modules, imported when first used


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
