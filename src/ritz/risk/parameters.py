"""Which parameters of a model are θ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ArgumentError, ModelError, NumericalError, kind_of, listed, nearest_first
from .model import named_buffers, named_parameters

COMPILED = "_orig_mod."  # what torch.compile puts into names


def tensors(model: nn.Module, theta: Collection[str]) -> dict[str, Tensor]:
    """All parameters and buffers, copied unless they are part of θ, which is a copy anyway."""
    named = {**named_parameters(model), **named_buffers(model)}
    return {name: tensor.detach() if name in theta else tensor.detach().clone() for name, tensor in named.items()}


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters with `requires_grad`, by name."""
    return {name: parameter for name, parameter in named_parameters(model).items() if parameter.requires_grad}


def matching_names(
    trainable: dict[str, Tensor], parameters: str | Sequence[str], further: Mapping[str, str]
) -> list[str]:
    """The names that match a glob, or one of several; each glob must match something.

    `further` maps further names of parameters that several modules share to their first name.
    """
    _check_globs(parameters)
    globs = [parameters] if isinstance(parameters, str) else list(parameters)
    first = _first_names(trainable, further)
    matched = {glob: _matched(first, glob) for glob in globs}
    chosen = set[str]().union(*matched.values())
    theta = {name: parameter for name, parameter in trainable.items() if name in chosen}
    idle = [glob for glob in globs if not matched[glob]]
    if idle or not theta:
        raise _no_match(parameters, idle if len(globs) > 1 else [], _modules(idle, first), list(trainable))
    _check_parameters(theta)
    return list(theta)


def _check_globs(parameters: str | Sequence[str]) -> None:
    if not isinstance(parameters, (str, Sequence)) or not all(isinstance(glob, str) for glob in parameters):
        raise ArgumentError(
            f"parameters={_in_short(parameters)} was given.",
            "It must select parameters by their names.",
            "Pass a glob or several: '*', ['0.*', 'head.*'].",
        )


def _in_short(parameters: object) -> str:
    """What was passed, without the numbers of tensors."""
    if isinstance(parameters, Sequence) and parameters and not isinstance(parameters[0], str):
        return f"[{kind_of(parameters[0])}{', …' if len(parameters) > 1 else ''}]"
    return repr(parameters)


def _first_names(trainable: Collection[str], further: Mapping[str, str]) -> dict[str, str]:
    """The names by which parameters can be chosen, each with the parameter's first name."""
    return {name: name for name in trainable} | {n: known for n, known in further.items() if known in trainable}


def _matched(first: Mapping[str, str], glob: str) -> set[str]:
    """The first names of the parameters that a glob matches: of one alone, if it is the name of one."""
    return {first[glob]} if glob in first else {known for name, known in first.items() if fnmatchcase(name, glob)}


def fewest_globs(trainable: Collection[str], chosen: Collection[str], further: Mapping[str, str]) -> list[str]:
    """Few globs that match the chosen parameters and no others: of all layers of one name, of a layer, or a parameter.

    `further` is as in `matching_names`.
    """
    first, chosen, globs = _first_names(trainable, further), set(chosen), list[str]()
    left = [name for name in trainable if name in chosen]
    while left:
        module = left[0].rpartition(".")[0]
        wider = [f"*.{module.rpartition('.')[2]}.*", f"{module}.*"] if module else []
        matched = {glob: _matched(first, glob) for glob in [left[0], *wider]}
        globs.append(max(matched, key=lambda glob: len(matched[glob] & set(left)) if matched[glob] <= chosen else 0))
        left = [name for name in left if name not in matched[globs[-1]]]
    return globs


def _modules(globs: Sequence[str], names: Collection[str]) -> list[str]:
    """Globs for all parameters of those modules that were named as if they were parameters."""
    return [f"{glob}.*" for glob in globs if any(name.startswith(f"{glob}.") for name in names)]


def _no_match(
    parameters: str | Sequence[str], idle: Sequence[str], modules: Sequence[str], trainable: Sequence[str]
) -> ModelError:
    """The error for globs that match no trainable parameter; `idle` are the ones to blame among several."""
    culprit = f": {', '.join(map(repr, idle))}" if idle else ""
    return ModelError(
        f"parameters={parameters!r}{culprit} matches none of the {len(trainable)} trainable parameters."
        if trainable
        else "The model has no trainable parameter.",
        "Curvature is taken only with respect to matching parameters that have requires_grad.",
        *(f"For all of that module, write '{glob}'." for glob in modules),
        *_choices(listed(nearest_first([parameters] if isinstance(parameters, str) else parameters, trainable), 6)),
    )


def _choices(shown: str) -> list[str]:
    """The names that can be chosen; for a model without trainable parameters, ways to get some."""
    if not shown:
        return [
            "Unfreeze some: parameter.requires_grad_().",
            "Check the order of arguments: Risk(model, loss, data).",
        ]
    return [f"Choose among: {shown}.", "Globs match whole names: '*.weight', 'layer1.*', '*' for all."]


def other_theta(vector: Tensor, now: Float[Tensor, " n"], shapes: Mapping[str, torch.Size]) -> Float[Tensor, " n"]:
    """A vector as a new θ like that of `now`."""
    if vector.shape != now.shape or not vector.is_floating_point():
        raise ArgumentError(
            f"A tensor of shape {tuple(vector.shape)} and {vector.dtype} was given as θ.",
            f"It is one vector of {now.numel()} numbers, in the order of risk.shapes.",
            "Pass a vector like risk.theta, tensors by name, or a module of the same architecture.",
        )
    theta = vector.detach().to(now.device, now.dtype, copy=True)
    for name, piece in zip(shapes, theta.split([shape.numel() for shape in shapes.values()]), strict=True):
        _check_finite(name, piece)
    return theta


def other_tensors(
    source: Mapping[str, Tensor] | nn.Module,
    now: Mapping[str, Tensor],
    theta: Collection[str],
    further: Mapping[str, str],
) -> dict[str, Tensor]:
    """The parameters and buffers `now`, with copies of those that a module of the same architecture or a mapping has.

    `further` has other names of some parameters, each with the first, as in `matching_names`.
    """
    named = {**named_parameters(source), **named_buffers(source)} if isinstance(source, nn.Module) else source
    _check_named(named)
    first = {name: further.get(name, name) for name in named}
    _check_known(first, now, theta)
    given = {first[name]: tensor for name, tensor in named.items()}
    for name, tensor in given.items():
        _check_like(name, tensor, now[name])
        if name in theta:
            _check_finite(name, tensor)
    return {**now, **{name: t.detach().to(now[name], copy=True) for name, t in given.items()}}


def _check_named(source: object) -> None:
    if not isinstance(source, Mapping) or not all(isinstance(value, Tensor) for value in source.values()):
        raise ArgumentError(
            f"A {type(source).__name__} was given as θ.",
            "It must be a vector, tensors by name, or a module of the same architecture.",
            "Pass a vector like risk.theta, model.state_dict(), or the model.",
        )


def _check_known(first: Mapping[str, str], now: Collection[str], theta: Collection[str]) -> None:
    """Refuse names that the network does not have: what is meant by them would silently stay as it is."""
    unknown = [name for name, known in first.items() if known not in now]
    if unknown or not set(first.values()) & set(theta):
        culprits = ", ".join(map(repr, unknown[:3]))
        raise ArgumentError(
            f"{len(unknown)} of the {len(first)} names given belong to no parameter or buffer: {culprits}."
            if unknown
            else f"None of the {len(first)} names given belongs to θ.",
            f"The names of θ begin with {', '.join(list(theta)[:3])}.",
            *_without_prefix(unknown, now),
            "Pass a module of the same architecture, or its state_dict().",
        )


def _without_prefix(unknown: Sequence[str], now: Collection[str]) -> list[str]:
    """The way out where all names have that of a wrapper: in front, or, of layers in torch.compile, anywhere."""
    prefixes = {name.partition(".")[0] + "." for name in unknown}
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    if prefix and all(name.removeprefix(prefix) in now for name in unknown):
        return [f"Take {prefix!r} off: {{name.removeprefix({prefix!r}): w for name, w in state.items()}}."]
    if unknown and all(name.replace(COMPILED, "") in now for name in unknown):
        return [f"Take {COMPILED!r} out: {{name.replace({COMPILED!r}, ''): w for name, w in state.items()}}."]
    return []


def _check_like(name: str, tensor: Tensor, now: Tensor) -> None:
    if tensor.shape != now.shape:
        raise ArgumentError(
            f"{name} was given with shape {tuple(tensor.shape)}; in this risk it has {tuple(now.shape)}.",
            "The result is the same risk at other parameters, so the network must be the same.",
            "Build a risk of that network instead: Risk(model, loss, data).",
        )


def _check_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values.detach()).all()):
        raise NumericalError(
            f"Parameter {name} holds NaN or infinity.",
            "The network has no curvature at such a point.",
            "Take a checkpoint from before training diverged.",
        )


def _check_parameters(parameters: dict[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        _check_layout(name, parameter.layout)
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
        if parameter.is_inference() and not torch.is_inference_mode_enabled():  # else the mode itself is refused
            raise inference_error()
        _check_finite(name, parameter)


def no_gradient(gradient: Mapping[str, Tensor]) -> NumericalError:
    """The error for a gradient, by parameters, that is NaN or infinite: the risk has none, or autograd finds none."""
    counts = {name: int((~torch.isfinite(piece)).sum()) for name, piece in gradient.items()}
    first = next(name for name, count in counts.items() if count)
    return NumericalError(
        f"The gradient has {sum(counts.values()):,} entries that are NaN or infinite, the first in {first}.",
        "The risk itself is finite here. Some function on the way has no finite slope, as sqrt(x) and a norm at 0.",
        "Keep such functions away from that point: (x**2 + eps).sqrt() in place of (x**2).sqrt().",
        "Find the function: torch.autograd.set_detect_anomaly(True), and a backward pass of the loss.",
        "Leave the parameters out: risk.restricted_to(...) with globs that match others.",
    )


def inference_error() -> ModelError:
    """The error for parameters and buffers that were created in inference mode."""
    return ModelError(
        "Parameters or buffers of the model were made in inference mode.",
        "PyTorch cannot differentiate what is computed with them.",
        "Build and load the model outside of `with torch.inference_mode():`.",
        "Copy it outside: copy.deepcopy(model).",
    )


def _check_layout(name: str, layout: torch.layout) -> None:
    if layout != torch.strided:
        raise ModelError(
            f"Parameter {name} is sparse ({layout}).",
            "θ is one dense vector, of which it is a piece.",
            "Keep its values as a parameter and its indices as a buffer, and build the matrix in the forward pass.",
            "Leave it out: Risk(..., parameters=...).",
        )


def _check_dtype(name: str, dtype: torch.dtype) -> None:
    if dtype.is_complex:
        raise ModelError(
            f"Parameter {name} is {dtype}.",
            "Its curvature is not a real symmetric matrix over θ.",
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


def as_pairs(piece: Tensor) -> Tensor:
    """A piece of a vector; a copy if it consists of pairs that begin at odd places.

    A network may view pairs as complex numbers, which PyTorch allows only at even places, as parameters of its own are.
    """
    if piece.shape[-1:] != (2,) or not any(place % 2 for place in (piece.storage_offset(), *piece.stride()[:-1])):
        return piece
    return piece.clone(memory_format=torch.contiguous_format)
