"""Identities of computations: their values, code and data, as short texts.

They are the same in every process, since no address of an object and no order of a set enters. If they differ, the
computations differ; helpers in other files that a user's function calls are not followed. An object is described by
what pickle would keep of it; one that cannot be described is refused, since two of its kind would look alike.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import hashlib
import inspect
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ArgumentError, first_line

DIGITS = 16  # of a digest, hexadecimal
PIECE = 2**24  # entries of a tensor that are hashed at a time
OTHERS = ("torch", "numpy", "builtins", "ritz", "functools", "math")  # whose code has a version, which is kept beside
MAPPINGS = (dict, OrderedDict, types.MappingProxyType)  # that are their entries, and nothing else
LOCKS = (type(threading.Lock()), type(threading.RLock()))  # which keep threads apart, and hold no value
CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, slice, range, Tensor, np.ndarray, np.generic)
PICKLING = 2  # the protocol by which objects say what they are made of: the first that knows slots


def digest(*tensors: Tensor | None) -> str:
    """A checksum of shapes, types and all values.

    >>> digest(torch.zeros(2)) == digest(torch.zeros(2)) != digest(torch.zeros(3))
    True
    """
    state = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            state.update(b"none")
            continue
        state.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        for piece in _pieces(tensor.detach()):
            state.update(piece)
    return state.hexdigest()[:DIGITS]


def identity_of(name: str, value: Any) -> dict[str, str]:
    """A setting under its name; what it is made of, each under a name of its own, so that a difference can be named.

    >>> list(identity_of("rule", slice(1, 2))), list(identity_of("rates", {"first": 1, "last": 2}))
    (['rule'], ['rates', 'rates.first', 'rates.last'])
    """
    parts = _parts(value)
    if isinstance(value, nn.Module):
        return model_identity(name, value) | {f"{name} tensors": digest(*value.state_dict().values())}
    named = {f"{name}.{key}": text_digest(_described(part, ())) for key, part in parts.items()}
    return {name: text_digest(_described(value, ()) if not parts else _kind(value)), **named}


def model_identity(name: str, model: nn.Module) -> dict[str, str]:
    """The structure of a module and its code; the tensors of its state_dict are no part of it."""
    return _module_identity(name, model, ())


def _module_identity(name: str, model: nn.Module, seen: tuple[int, ...]) -> dict[str, str]:
    modules = dict(model.named_modules())
    within = {place: (*seen, id(model), id(one)) for place, one in modules.items()}
    structure = [f"{at}: {_kind(one)} {_described(_settings(one), within[at])}" for at, one in modules.items()]
    code = sorted({_code(kind) for kind in {type(one) for one in modules.values()}})
    code += [_own_forward(one, within[at]) for at, one in modules.items()]
    tensors = [f"{key} {tuple(t.shape)} {t.dtype}" for key, t in model.state_dict(keep_vars=True).items()]
    return {
        f"{name} structure": text_digest("\n".join([*structure, *tensors])),
        f"{name} code": text_digest("\n".join(code)),
    }


def text_digest(text: str) -> str:
    """A checksum of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _pieces(tensor: Tensor) -> Iterator[bytes | memoryview]:
    """The bytes of a tensor in the order of its entries, a piece at a time, so that it is not copied whole."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    flat = tensor.reshape(-1) if tensor.is_contiguous() else None
    if flat is None and tensor.ndim > 1 and tensor.numel() > PIECE:
        for row in tensor:
            yield from _pieces(row)
        return
    for piece in (tensor.reshape(-1) if flat is None else flat).split(PIECE):
        plain = piece.cpu().contiguous()
        if plain.stride(-1) != 1:  # one entry that was expanded is contiguous, too
            plain = plain.clone(memory_format=torch.contiguous_format)
        yield memoryview(plain.view(torch.uint8).numpy()) if plain.numel() else b""


def _parts(value: Any) -> dict[str, Any]:
    """The parts of a mapping, or of an object with plain attributes."""
    if type(value) in MAPPINGS and all(isinstance(key, str) for key in value):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return fields | _not_looked_up(value, getattr(value, "__dict__", {}))
    return {}


def _described(value: Any, seen: tuple[int, ...]) -> str:
    """A complete description of a value as text; a reference back to an enclosing value is cut."""
    if id(value) in seen:
        return "..."
    inner = (*seen, id(value))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
        return repr(value)
    if isinstance(value, Tensor):
        return f"tensor {digest(value)}"
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"array {value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value!r}"
    if isinstance(value, torch.Generator):
        return f"generator {digest(value.get_state())}"
    if type(value) in MAPPINGS:
        return "{" + ", ".join(f"{_described(k, inner)}: {_described(v, inner)}" for k, v in value.items()) + "}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(_described(one, inner) for one in value)) + "}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}(" + ", ".join(_described(one, inner) for one in value) + ")"
    return _described_object(value, inner)


def _described_object(value: Any, seen: tuple[int, ...]) -> str:
    """A function with everything it closes over, a class by its code, an object by its parts."""
    if isinstance(value, functools.partial):
        return f"partial {_described([value.func, value.args, value.keywords], seen)}"
    if isinstance(value, types.MethodType):
        return f"method {_described([value.__func__, value.__self__], seen)}"
    if isinstance(value, types.FunctionType):
        return _described_function(value, seen)
    if isinstance(value, type):
        return _code(value)
    if isinstance(value, nn.Module):
        weights = {name: digest(one) for name, one in value.state_dict().items()}
        return f"{_described(_module_identity('module', value, seen), seen)} {weights}"
    if isinstance(value, types.ModuleType) or _is_free_builtin(value):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    if isinstance(value, weakref.ReferenceType):
        return f"reference {_described(value(), seen)}"
    if isinstance(value, LOCKS):
        return _kind(value)
    if isinstance(value, types.CodeType):  # which some decorators hold
        return f"code {value.co_code.hex()} {_described([value.co_names, value.co_consts], seen)}"
    return f"{_kind(value)} {_code(type(value))} {_described(_made_of(value), seen)}"


def _is_free_builtin(value: Any) -> bool:
    """Whether a value is a built-in function of Python or PyTorch, not bound to another value."""
    return isinstance(value, types.BuiltinFunctionType) and (
        value.__self__ is None or isinstance(value.__self__, (types.ModuleType, type))
    )


def _made_of(value: Any) -> Any:
    """What pickle would keep of an object: its attributes, slots, entries and constructor arguments."""
    reduced = copyreg.dispatch_table.get(type(value))
    try:
        kept = value.__reduce_ex__(PICKLING) if reduced is None else reduced(value)
    except Exception as error:  # whatever its class says of it
        raise ArgumentError(
            f"A {_kind(value)} cannot be identified: {first_line(error)}.",
            "A file belongs to one computation, which is recognised by the values of everything it was given.",
            "Keep it out of the model, the loss, the data and the settings, or write no file.",
            "Give its class a method __reduce__ that returns what it is made of.",
        ) from error
    if isinstance(kept, str):  # a constant, by its name
        return kept
    maker, arguments, state, *entries = (*kept, None, None, None)[:5]
    state = _not_looked_up(value, state) if isinstance(state, dict) else state
    if getattr(maker, "__name__", "") == "__newobj__" and len(arguments) == 1 and entries == [None, None]:
        return state or {}  # as of most: a class and attributes
    return [maker, arguments, state, *(None if one is None else list(one) for one in entries)]


def _not_looked_up(value: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes without cached properties, which are computed from the others."""
    kind = type(value)
    computed = lambda name: isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)
    return {name: one for name, one in attributes.items() if not (isinstance(name, str) and computed(name))}


def _described_function(function: types.FunctionType, seen: tuple[int, ...]) -> str:
    """A function's code, its defaults, what it closes over, and the globals of its own module that it uses."""
    cells = [_cell(cell) for cell in function.__closure__ or ()]
    own = {
        name: function.__globals__[name]
        for name in _names(function.__code__)
        if _is_own(function.__globals__.get(name), function.__module__)
    }
    held = [function.__defaults__, function.__kwdefaults__, cells, own]
    return f"{function.__module__}.{function.__qualname__} {_code(function)} {_described(held, seen)}"


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _names(code: types.CodeType) -> list[str]:
    inside = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names(const)]
    return sorted({*code.co_names, *inside})


def _is_own(value: Any, module: str) -> bool:
    """Whether the function's result may depend on a global of its module: on a constant or a function."""
    if isinstance(value, CONSTANTS):
        return True
    return isinstance(value, types.FunctionType) and value.__module__ == module


def _settings(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module but for parts, hooks and whether it trains; of tensors, those that no file has."""
    inside = ("_parameters", "_buffers", "_modules", "training")
    settings = {key: value for key, value in vars(module).items() if key not in inside and "hook" not in key}
    unsaved = {key: module._buffers[key] for key in sorted(module._non_persistent_buffers_set)}
    return settings | ({"buffers that are not saved": unsaved} if unsaved else {})


def _own_forward(module: nn.Module, seen: tuple[int, ...]) -> str:
    """The code of a forward method that was set on the module instance."""
    forward = vars(module).get("forward")
    return "" if forward is None else _described(forward, seen)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _code(what: Any) -> str:
    """The source of a user's class or function, or its compiled code if there is no source."""
    name = f"{what.__module__}.{what.__qualname__}"
    if (what.__module__ or "").partition(".")[0] in OTHERS:
        return name
    try:
        source = inspect.getsource(what)
        also = _compiled(what) if name.endswith("<lambda>") else ""  # several may stand in the lines of its source
        return f"{name} {text_digest(source + also)}"
    except (OSError, TypeError, IndentationError):  # typed in by hand
        return f"{name} {text_digest(_compiled(what))}"


def _compiled(what: Any) -> str:
    if isinstance(what, type):
        functions = {key: one for key, one in vars(what).items() if isinstance(one, types.FunctionType)}
        return "\n".join(f"{key} {_compiled(functions[key])}" for key in sorted(functions))
    return _compiled_text(what.__code__) if hasattr(what, "__code__") else ""


def _compiled_text(code: types.CodeType) -> str:
    consts = [_compiled_text(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {consts}"
