"""The model of a risk: names of its parts without wrappers, copies of it, and refusals of unsuitable models."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError, kind_of

NORMS_OF_EXAMPLES = (nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of `torch.compile`, DataParallel and DistributedDataParallel."""
    while True:
        if isinstance(compiled := getattr(module, "_orig_mod", None), nn.Module):  # by torch.compile
            module = compiled
        elif isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            return module


def named_modules(model: nn.Module, *, repeated: bool = False) -> Iterator[tuple[str, nn.Module]]:
    """`model.named_modules()` without wrappers and their part of the names; each once, unless `repeated`."""
    seen: set[int] = set()

    def walk(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
        module = unwrapped(module)
        if id(module) in seen:
            return
        seen.add(id(module))
        yield prefix, module
        for name, child in module._modules.items():
            if child is not None:
                yield from walk(child, f"{prefix}.{name}" if prefix else name)
        if repeated:
            seen.discard(id(module))

    return walk(model, "")


def named_parameters(model: nn.Module) -> dict[str, Tensor]:
    """`model.named_parameters()` without what wrappers add to the names."""
    return _named(model, "_parameters")


def further_names(model: nn.Module, kind: str = "_parameters") -> dict[str, str]:
    """Further names of parameters, or "_buffers", that several modules share, mapped to their first name."""
    first = {id(tensor): name for name, tensor in _named(model, kind).items()}
    every = {
        f"{prefix}.{name}" if prefix else name: first[id(tensor)]
        for prefix, module in named_modules(model, repeated=True)
        for name, tensor in getattr(module, kind).items()
        if tensor is not None
    }
    return {name: known for name, known in every.items() if name != known}


def named_buffers(model: nn.Module) -> dict[str, Tensor]:
    """`model.named_buffers()` without what wrappers add to the names."""
    return _named(model, "_buffers")


def _named(model: nn.Module, kind: str) -> dict[str, Tensor]:
    tensors: dict[int, tuple[str, Tensor]] = {}
    for prefix, module in named_modules(model):
        for name, tensor in getattr(module, kind).items():
            if tensor is not None:
                tensors.setdefault(id(tensor), (f"{prefix}.{name}" if prefix else name, tensor))
    return dict(tensors.values())


def copy_with(model: nn.Module, tensors: Mapping[int, Tensor]) -> nn.Module:
    """A copy of the modules without wrappers and with other tensors, given by the id of the tensors they replace.

    Hooks that change gradients are left out: they are not part of the function. A model that cannot be copied deeply
    (a lock, an open file) is copied module by module, its other attributes shared.
    """
    model = unwrapped(model)
    kept = {id(value): value.detach() for module in model.modules() for value in _activations(module)}
    try:
        new = copy.deepcopy(model, {**_empty_copies(model), **kept, **tensors})
    except Exception:
        new = _module_copy(model, tensors, {})
    for module in list(new.modules()):
        children = {name: None if child is None else unwrapped(child) for name, child in module._modules.items()}
        module.__dict__.update(_modules=children, **without_backward_hooks())
    return new


def without_backward_hooks() -> dict[str, Any]:
    """The attributes of a module that has no hooks for its backward pass."""
    return {"_backward_hooks": OrderedDict(), "_backward_pre_hooks": OrderedDict(), "_is_full_backward_hook": None}


def _empty_copies(model: nn.Module) -> dict[int, OrderedDict[Any, Any]]:
    """Copies of empty attributes, of which each module has ten for hooks, and whose deep copies take half the time."""
    values = (value for module in model.modules() for value in vars(module).values())
    return {id(value): OrderedDict() for value in values if type(value) is OrderedDict and not value}


def _activations(module: nn.Module) -> Iterator[Tensor]:
    """Results of a forward pass that a module keeps as attributes; PyTorch cannot copy these."""
    return (value for value in vars(module).values() if isinstance(value, Tensor) and not value.is_leaf)


def _module_copy(module: nn.Module, tensors: Mapping[int, Tensor], copies: dict[int, nn.Module]) -> nn.Module:
    if id(module) not in copies:
        copies[id(module)] = new = copy.copy(module)
        children = {
            name: None if child is None else _module_copy(child, tensors, copies)
            for name, child in module._modules.items()
        }
        replace = lambda named: {name: tensors.get(id(tensor), tensor) for name, tensor in named.items()}
        new.__dict__.update(
            _modules=children, _parameters=replace(module._parameters), _buffers=replace(module._buffers)
        )
    return copies[id(module)]


def prefers_channels_last(model: nn.Module, device: torch.device, precision: str) -> bool:
    """Whether convolutions are faster on images stored channels-last: on a CPU, and in TF32 on a GPU.

    Not with norms of single examples on a CPU, whose derivatives are faster in the usual order. On a GPU not where a
    convolution has a group for every channel: in float32, in which the network itself runs, that takes far longer.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if device.type == "cpu":
        normed = any(isinstance(module, NORMS_OF_EXAMPLES) for module in model.modules())
        return bool(convolutions) and not normed and not any(map(_fails_channels_last, convolutions))
    return bool(convolutions) and precision == "high" and not any(map(_is_depthwise, convolutions))


def _is_depthwise(layer: nn.Conv2d) -> bool:
    return layer.groups == layer.in_channels > 1


def _fails_channels_last(layer: nn.Conv2d) -> bool:
    """Whether PyTorch's backward pass on a CPU writes out of bounds for images stored channels-last.

    oneDNN's does in float32, for 1 × 1 kernels with a stride and few channels.
    """
    return layer.kernel_size == (1, 1) and max(layer.stride) > 1 and layer.in_channels < 8


def output_tensor(z: Any, examples: int, dims: int | None = None) -> Tensor:
    """The tensor that a model returned for so many examples, or its logits.

    Of a single one it may lack the dimension that counts examples, which `squeeze()` takes away there: no dimension is
    left of a number, or one less than the `dims` of several examples.
    """
    z = z.get("logits", z) if isinstance(z, dict) else getattr(z, "logits", z)
    if isinstance(z, Tensor) and examples == 1 and z.ndim == (dims or 1) - 1:
        z = z[None]
    if not isinstance(z, Tensor) or z.ndim == 0:
        raise ModelError(
            f"The model returned a {'scalar' if isinstance(z, Tensor) else type(z).__name__}.",
            "The loss takes one tensor of outputs, the first dimension counting examples.",
            *_ways_to_one_tensor(z),
        )
    return z


def _ways_to_one_tensor(z: Any) -> list[str]:
    """Ways to make a model that returned this return one tensor."""
    if isinstance(z, Tensor):
        return ["Return one row of outputs for each example, and let the loss compute what is minimised."]
    entry = repr(next(iter(z), "out")) if isinstance(z, Mapping) else "0"
    one = f"Wrap the model in a Module whose forward returns that tensor: return self.model(*args, **kwargs)[{entry}]."
    several = "Where the loss needs several of them, join them, and let the loss split them: torch.cat(outputs, -1)."
    return [one, *([several] if isinstance(z, (tuple, list, Mapping)) and len(z) > 1 else [])]


def check_model(model: Any) -> None:
    """Refuse a model whose outputs are not a function of θ and the example alone."""
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"The model is {kind_of(model)}.",
            "Parameters are found by their names in a torch.nn.Module.",
            _way_to_a_module(model),
        )
    for name, module in named_modules(model):
        _check_script(name, module)
    for name, tensor in {**named_parameters(model), **named_buffers(model)}.items():
        if nn.parameter.is_lazy(tensor):
            raise ModelError(
                f"Parameter {name} is not initialised yet.",
                "A lazy layer has no shape before its first forward pass.",
                "Call model(inputs) once on one batch.",
            )
    for name, module in named_modules(model):
        _check_layer(name or "(the model itself)", module)


def _way_to_a_module(model: Any) -> str:
    """A way to get a module from something else that was passed as the model."""
    if isinstance(model, type):
        return f"Make an instance: {model.__name__}(...)."
    if isinstance(model, Mapping):
        return "Build the model, and load these weights into it: model.load_state_dict(weights)."
    if isinstance(model, str | PathLike):
        return "Build the model, and load the weights: model.load_state_dict(torch.load(path, weights_only=True))."
    if isinstance(model, list | tuple) and model and all(isinstance(layer, nn.Module) for layer in model):
        return "Join the layers: nn.Sequential(*layers)."
    if isinstance(model, Iterator) or (isinstance(model, list) and model and isinstance(model[0], Tensor)):
        return "Pass the model itself, not model.parameters(); Risk(..., parameters='head.*') takes some of them."
    return "Wrap the function in a Module that owns its parameters. The order is Risk(model, loss, data)."


def _check_script(name: str, module: nn.Module) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"Module {name or '(the model itself)'} was compiled by torch.jit.",
            "It holds its parameters in a way that cannot be differentiated as a function of them.",
            "Build it from its Python class and load the weights into it: "
            "model.load_state_dict(compiled.state_dict()).",
        )


def _check_layer(name: str, module: nn.Module) -> None:
    """Refuse a layer that is random, looks across the batch, or changes its own weights."""
    if _is_random(module):
        raise ModelError(
            f"Module {name} is a {type(module).__name__} in train mode.",
            "Its output is random or depends on the other examples of the batch, so the risk is not a "
            "function of θ alone.",
            "Call model.eval() before the analysis.",
            *["To study it on purpose, write it as a layer of your own that is deterministic."]
            * _is_batch_norm(module),
        )
    if _is_batch_norm(module) and module.running_mean is None:
        raise ModelError(
            f"Module {name} is a {type(module).__name__} without running statistics, and so uses the batch in "
            "evaluation mode too.",
            "It normalises by the mean and variance of whatever batch it sees, so that an example's output depends on "
            "the other examples.",
            "Build it with track_running_stats=True, let it see data in train mode once, then call model.eval().",
            "Use a norm that looks at one example alone, such as nn.GroupNorm.",
        )
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
        raise ModelError(
            f"Module {name} is a {type(module).__name__} with max_norm={module.max_norm}.",
            "It shortens rows of its weight in every forward pass, so θ changes while it is being measured.",
            f"Shorten them once: weight.data.renorm_({module.norm_type}, 0, {module.max_norm}), then set "
            "max_norm = None.",
        )


def _is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


def _is_random(module: nn.Module) -> bool:
    if _is_batch_norm(module):
        return module.training
    return module.training and isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
