"""Which parameters of a model are θ, and whether the model can be analysed at all."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, ModelError, NumericalError


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


def _module_copy(module: nn.Module, done: dict[int, nn.Module]) -> nn.Module:
    if id(module) not in done:
        done[id(module)] = copied = copy.copy(module)
        children = {n: m and _module_copy(m, done) for n, m in module._modules.items()}
        copied.__dict__.update(_modules=children, _parameters=dict(module._parameters), _buffers=dict(module._buffers))
    return done[id(module)]


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers, so that neither training nor a forward pass can move the risk."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in named}


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters with `requires_grad`, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def matching(trainable: dict[str, Tensor], parameters: str | Sequence[str]) -> list[str]:
    """The names that match a glob, or one of several; each glob must match something."""
    if not isinstance(parameters, (str, Sequence)) or not all(isinstance(glob, str) for glob in parameters):
        raise ArgumentError(
            f"parameters={parameters!r} was given.",
            "It selects by name.",
            "Pass a glob or several: '*', ['0.*', 'head.*'].",
        )
    globs = [parameters] if isinstance(parameters, str) else list(parameters)
    matches = lambda name, glob: name == glob or (glob not in trainable and fnmatchcase(name, glob))
    found = {n: p for n, p in trainable.items() if any(matches(n, glob) for glob in globs)}
    idle = [glob for glob in globs if not any(matches(name, glob) for name in found)]
    if idle or not found:
        shown = ", ".join(list(trainable)[:6]) + (", ..." if len(trainable) > 6 else "")
        culprit = f": {', '.join(map(repr, idle))}" if len(globs) > 1 else ""
        raise ModelError(
            f"parameters={parameters!r}{culprit} matches none of the {len(trainable)} trainable parameters.",
            "Curvature is taken with respect to the matching ones that have requires_grad.",
            f"Choose among: {shown}." if trainable else "Unfreeze some: parameter.requires_grad_().",
            "Globs match whole names: '*.weight', 'layer1.*', '*' for all.",
        )
    _check_parameters(found)
    return list(found)


def _check_parameters(parameters: dict[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        _check_dtype(name, parameter.dtype)
    kinds = {(str(p.device), str(p.dtype)) for p in parameters.values()}
    if len(kinds) > 1:
        raise ModelError(
            f"The parameters are of several kinds: {', '.join(' '.join(kind) for kind in sorted(kinds))}.",
            "θ is one vector on one device in one precision.",
            "Convert the model with .to(device, dtype), or select parameters of one kind by a glob.",
        )
    for name, parameter in parameters.items():
        if parameter.device.type == "meta":
            raise ModelError(
                f"Parameter {name} is on the meta device.",
                "It has a shape but no values.",
                "Load the weights first: model.to_empty(device=...), then load_state_dict.",
            )
        if not bool(torch.isfinite(parameter).all()):
            raise NumericalError(
                f"Parameter {name} holds NaN or infinity.",
                "The network has no curvature there.",
                "Take a checkpoint from before training diverged.",
            )


def _check_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype.is_complex:
        raise ModelError(
            f"Parameter {name} is {dtype}.",
            "Its curvature is no real symmetric matrix over θ.",
            "Keep real and imaginary parts as real parameters, and use torch.view_as_complex in the forward.",
            "Leave it out: Risk(..., parameters=...).",
        )
    if dtype not in (torch.float32, torch.float64):
        raise ModelError(
            f"Parameter {name} is {dtype}.",
            "Second derivatives in less than float32 are mostly rounding.",
            "Analyse a float32 copy: copy.deepcopy(model).float().",
            'On a GPU, Risk(..., tangent_precision="high") is fast and keeps the network itself exact.',
        )


def check_model(model: Any) -> None:
    """Refuse a model whose outputs are no function of θ and the example alone."""
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"The model is a {type(model).__name__}.",
            "Parameters are found by name in a torch.nn.Module.",
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
