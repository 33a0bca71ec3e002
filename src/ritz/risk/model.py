"""The model of a risk: a copy of its own, whose outputs must be a function of θ for each example alone."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ..errors import ModelError


def own_copy(model: nn.Module) -> nn.Module:
    """The modules without their tensors, copied: train() and eval() on the user's model do not reach them.

    A model that cannot be copied deeply (a lock, an open file, an activation kept as an attribute) is copied module by
    module, its other attributes shared.
    """
    shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    try:
        return copy.deepcopy(model, shared)
    except Exception:
        return _module_copy(model, {})


def _module_copy(module: nn.Module, copies: dict[int, nn.Module]) -> nn.Module:
    if id(module) not in copies:
        copies[id(module)] = new = copy.copy(module)
        children = {n: m and _module_copy(m, copies) for n, m in module._modules.items()}
        new.__dict__.update(_modules=children, _parameters=dict(module._parameters), _buffers=dict(module._buffers))
    return copies[id(module)]


def output_tensor(z: Any) -> Tensor:
    """What a model returned as one tensor: itself, or its logits."""
    z = z.get("logits", z) if isinstance(z, dict) else getattr(z, "logits", z)
    if not isinstance(z, Tensor) or z.ndim == 0:
        raise ModelError(
            f"The model returned a {'scalar' if isinstance(z, Tensor) else type(z).__name__}.",
            "The loss takes one tensor of outputs, the first dimension counting examples.",
            "Wrap the model in a Module whose forward returns that tensor.",
        )
    return z


def check_model(model: Any) -> None:
    """Refuse a model whose outputs are no function of θ and the example alone."""
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"The model is a {type(model).__name__}.",
            "Parameters have their names in a torch.nn.Module.",
            "Wrap the function in a Module that owns its parameters.",
        )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if nn.parameter.is_lazy(tensor):
            raise ModelError(
                f"Parameter {name} is not initialised yet.",
                "A lazy layer has no shape before its first forward pass.",
                "Call model(inputs) once on one batch.",
            )
    for name, module in model.named_modules():
        if _is_random(module):
            mode = "in train mode" if module.training else "without running statistics"
            raise ModelError(
                f"Module {name or '(the model itself)'} is a {type(module).__name__} {mode}.",
                "Its output is random or depends on the other examples of the batch, so the risk is not a "
                "function of θ alone.",
                "Call model.eval() before the analysis.",
                "To study train-mode batch norm on purpose, write it as a layer of your own that is deterministic.",
            )


def _is_random(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.training or module.running_mean is None
    return module.training and isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
