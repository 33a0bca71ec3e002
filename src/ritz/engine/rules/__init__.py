"""Our own derivative rules for layers whose second derivatives PyTorch computes inefficiently."""

from .dispatch import TRANSPARENT, EfficientRules

__all__ = ["TRANSPARENT", "EfficientRules"]
