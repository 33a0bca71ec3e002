"""The functions of PyTorch that are replaced by rules of ours while a model runs.

The rules are closed under differentiation: each derivative is one of a few fast kernels, and what does not depend on
the direction is computed once. `EfficientRules` swaps them in; the engine compares products with and without them
before it trusts them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .attention import attention_rule
from .bilinear import addmm_rule, convolution_rule, linear_rule, transposed_convolution_rule
from .distances import distances_rule, own_distances_rule
from .embeddings import embedding_bag_rule, embedding_rule
from .norms import batch_norm_rule, group_norm_rule, instance_norm_rule, layer_norm_rule
from .pointwise import POINTWISE
from .pooling import max_pool_rule

RULES: dict[Any, Callable[..., Any]] = {
    **POINTWISE,
    F.linear: linear_rule,
    torch.conv1d: convolution_rule,
    torch.conv2d: convolution_rule,
    torch.conv3d: convolution_rule,
    F.conv_transpose1d: transposed_convolution_rule,
    F.conv_transpose2d: transposed_convolution_rule,
    F.conv_transpose3d: transposed_convolution_rule,
    torch.addmm: addmm_rule,
    F.embedding: embedding_rule,
    F.embedding_bag: embedding_bag_rule,
    torch.cdist: distances_rule,
    F.pdist: own_distances_rule,
    F.group_norm: group_norm_rule,
    F.instance_norm: instance_norm_rule,
    F.layer_norm: layer_norm_rule,
    F.batch_norm: batch_norm_rule,
    F.scaled_dot_product_attention: attention_rule,
    F.max_pool2d: max_pool_rule,
    torch.max_pool2d: max_pool_rule,
}


def _transparent(func: Any) -> Callable[..., Any]:
    """A function of `torch.nn.functional` that bypasses function modes itself, so that they see what it calls.

    A mode is switched off while a function it has intercepted runs, including everything inside that function.
    """
    questions = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = {**func.__globals__, **dict.fromkeys(questions, lambda *_: False)}
    return FunctionType(func.__code__, names, func.__name__, func.__defaults__)


TRANSPARENT = {F.multi_head_attention_forward: _transparent(F.multi_head_attention_forward)}


class EfficientRules(TorchFunctionMode):
    """While active, layers with a rule use it; every other function runs as it is.

    With `second=False` the graph of Jᵀu is differentiated with respect to u alone, as Gauss-Newton products
    need it, and the terms with a second derivative of the network are never built.
    """

    def __init__(self, *, second: bool) -> None:
        super().__init__()
        self.second, self.used = second, False

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in TRANSPARENT:
            with self:
                return TRANSPARENT[func](*args, **(kwargs or {}))
        rule = RULES.get(func)
        result = rule(self.second, *args, **(kwargs or {})) if rule else NotImplemented
        if result is NotImplemented:
            return func(*args, **(kwargs or {}))
        self.used = True
        return result
