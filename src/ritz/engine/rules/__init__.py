"""Derivative rules of our own, for layers whose second derivative PyTorch computes the long way round."""

from .dispatch import TRANSPARENT, EfficientRules

__all__ = ["TRANSPARENT", "EfficientRules"]
