"""The network of a risk: the user's model as a function of named tensors, however its forward pass accesses them."""

from __future__ import annotations

import contextlib
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..errors import ModelError, first_line
from .batches import Inputs
from .model import copy_with, named_buffers, named_parameters
from .original import Original
from .randomness import random_state, untouched_randomness
from .undo import LOCK

WITHOUT_GRADIENT = (  # what PyTorch says of a derivative in the forward pass for which it keeps no graph
    "does not require grad",
    "do not require grad",
    "Trying to use forward AD",  # of a backward pass, which is differentiable with a graph alone
)

COMPILER = "torch._dynamo"
GROUP_NORMS = (F.group_norm, torch.group_norm)
Names = Mapping[int, tuple[Tensor, str]]  # by identity: a tensor that stands for a name, kept alive


class Network:
    """f(θ, x), on a copy of the user's modules that holds the tensors of the risk.

    Recomputation in a backward pass, as in activation checkpointing, sees them too. What cannot be copied (a lambda, a
    hook, a table of functions that close over the user's own module) still accesses the user's parameters and buffers;
    wherever one of these enters an operation, it is replaced by the risk's tensor of that name.
    """

    def __init__(self, module: nn.Module, original: Original | None, names: Names, *, leaves: bool = True) -> None:
        self.module = module
        self._start = Original(module) if leaves else None  # None once a forward pass was seen to leave nothing
        self._left = False  # whether a forward pass ever left something
        self._original = original  # None once the copy was seen to need no replacements
        self._names = names
        self._reached = False  # whether a tensor was ever replaced
        self._changed = False  # whether an operation was ever run in another way than as it was called
        self._settled = False
        self.lowest: tuple[torch.dtype, str] | None = None  # a precision below that of θ, and what computed in it
        self._dtype = next(p.dtype for p in module.parameters() if p.requires_grad)
        self._parameters = frozenset(named_parameters(module))
        self._buffers = list(named_buffers(module))  # buffers that a forward pass may write to
        self._written: set[str] = set()  # buffers that it did write to
        self._takes: dict[int, bool] = {}  # whether the model takes a tuple of this many inputs as separate arguments
        self._differentiates = False  # whether a forward pass was seen to differentiate by itself
        self._draws = False  # whether a forward pass was seen to draw random numbers
        self.hooked = False  # whether a forward pass was seen to register a hook on a tensor

    @property
    def is_recurrent(self) -> bool:
        """Whether it has recurrent layers, of which cuDNN's have no second derivative."""
        return any(isinstance(module, nn.RNNBase) for module in self.module.modules())

    def __getstate__(self) -> dict[str, Any]:
        if self._original is not None or self._names:
            raise ModelError(
                "The model reaches its parameters in ways that a copy of its modules does not have.",
                "In another process these lead nowhere: through a lambda, a hook or a table of functions.",
                "Let the forward pass take its parameters from the modules themselves.",
                "Build the risk where it is needed: send a function that returns it.",
            )
        check_importable("model", self.module)
        return self.__dict__

    def __deepcopy__(self, memo: Any) -> Network:
        return self  # it is a function: nobody changes it, and nothing of it depends on the user's module

    @classmethod
    def of(cls, original: Original, tensors: Mapping[str, Tensor], theta: Collection[str]) -> Network:
        """A user's model with copies of its tensors; those named in `theta` can be differentiated with respect to."""
        with original.as_it_was():
            module, names = _copy(original.model, tensors, theta, {})
        return cls(module, original, names)

    def holding(self, tensors: Mapping[str, Tensor], theta: Collection[str]) -> Network:
        """The same network with other tensors."""
        module, names = _copy(self.module, tensors, theta, self._names)
        kept = names if self._original is not None else {}
        new = Network(module, self._original, kept, leaves=self._start is not None)
        new._buffers, new._reached, new._settled = self._buffers, self._reached, self._settled
        new._changed = self._changed
        new._left = self._left
        new.lowest, new._takes, new._differentiates = self.lowest, self._takes, self._differentiates
        new.hooked, new._draws = self.hooked, self._draws
        return new

    def unsettled(self) -> Network:
        """The same network, to be examined once more."""
        self._settled, self.lowest = False, None
        return self

    def settle(self) -> None:
        """After an evaluation of all data: watch the user's tensors and the buffers from now on only if needed."""
        self._settled = True
        self._start = self._start if self._left else None
        self._buffers = [name for name in self._buffers if name in self._written]
        if not self._reached:
            self._original, self._names = None, {}

    def __call__(self, tensors: Mapping[str, Tensor], inputs: Any) -> Any:
        """The model's result with these parameters and buffers, run eagerly.

        A forward pass may itself compute a derivative, along inputs or parameters, even where nothing else needs
        gradients.
        """
        if not self._differentiates:
            try:
                return _until_compiler_is_known(lambda: self._run(tensors, inputs))
            except RuntimeError as error:
                if not any(said in str(error) for said in WITHOUT_GRADIENT):
                    raise
        with torch.enable_grad():
            result = _until_compiler_is_known(lambda: self._run(self._differentiable(tensors), inputs))
        self._differentiates = True
        return result

    def _differentiable(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors, with parameters that cannot be differentiated with respect to replaced by leaves."""
        own = {name for name, tensor in tensors.items() if name in self._parameters and not tensor.requires_grad}
        return {name: t.detach().requires_grad_() if name in own else t for name, t in tensors.items()}

    def _run(self, tensors: Mapping[str, Tensor], inputs: Any) -> Any:
        spare = {name: tensors[name].clone() for name in self._buffers}
        try:
            with LOCK, _eagerly(), self._from_the_start(), self._watched(tensors):
                return self._call({**tensors, **spare}, *_arguments(self.module, inputs, self._takes))
        finally:
            self._written |= {name for name, buffer in spare.items() if buffer._version}

    @contextlib.contextmanager
    def _watched(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Until settled, see what a forward pass does besides computing; later, undo it."""
        device = next(iter(tensors.values())).device
        if self._settled:
            with untouched_randomness(device) if self._draws else contextlib.nullcontext():
                yield
            return
        if torch._C._are_functorch_transforms_active():  # where tensors have no memory of their own
            yield
            return
        parameters = {name: t for name, t in tensors.items() if name in self._parameters}
        before, state = {n: (t.detach(), t._version) for n, t in parameters.items()}, random_state(device)
        yield
        self._draws |= random_state(device) != state
        for name, tensor in parameters.items():
            if _is_written(tensor, *before[name]):
                raise _overwritten(name)

    @contextlib.contextmanager
    def _from_the_start(self) -> Iterator[None]:
        """Forget what a forward pass leaves in the modules, such as a table that it would look up the next time."""
        if self._start is None:
            yield
            return
        try:
            yield
        finally:
            if self._start.differs():
                self._left = True
                self._start.restore()

    def _call(self, tensors: dict[str, Tensor], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self._original is None and self._settled and not self._changed:
            return functional_call(self.module, tensors, args, options)
        given = {key: tensors[name] for key, (_, name) in self._names.items()}
        frozen = contextlib.nullcontext() if self._original is None else self._original.as_it_was()
        with frozen, Redirected(given, self._dtype, self._settled) as mode:
            try:
                return functional_call(self.module, tensors, args, options)
            finally:
                self._reached |= mode.reached
                self._changed |= mode.changed
                self.hooked |= mode.hooked
                self.lowest = mode.lowest or self.lowest


def _is_written(tensor: Tensor, before: Tensor, version: int) -> bool:
    """Whether a tensor has other values; other memory may hold the same, as where recurrent weights are flattened."""
    if tensor.data_ptr() == before.data_ptr():
        return tensor._version != version
    return not torch.equal(tensor, before)


def _overwritten(name: str) -> ModelError:
    return ModelError(
        f"The forward pass writes into parameter {name}.",
        "θ would change while it is being measured.",
        "Compute what it uses as a new tensor: F.linear(x, self.weight.clamp(-1, 1)) in place of self.weight.clamp_().",
        "Write into it before the analysis, and not in the forward pass.",
        "For an initialisation by the first batch, call model(inputs) once before the analysis.",
    )


class _Skeleton(pickle.Pickler):
    """A pickler that writes everything of an object but its tensors."""

    def reducer_override(self, value: Any) -> Any:
        return (int, ()) if isinstance(value, Tensor) else NotImplemented


def check_importable(what: str, value: Any) -> None:
    """Refuse an object that another process could not import, or that holds something that cannot be sent."""
    try:
        _Skeleton(io.BytesIO()).dump(value)
    except Exception as error:  # pickle raises whatever it likes
        raise ModelError(
            f"The {what} cannot be sent to another process: {first_line(error)}",
            "Python sends classes and functions by the name under which they can be imported, without their code.",
            f"Define the {what}'s class or function at the top level of a file, without lambdas among its attributes.",
            "Build the risk where it is needed: send a function that returns it.",
        ) from error


def called(model: nn.Module, inputs: Any) -> Any:
    """The result of a module called as it is, run eagerly."""
    args, options = _arguments(model, inputs, {})

    def run() -> Any:
        with _eagerly(), Redirected({}, torch.get_default_dtype(), settled=True):
            return model(*args, **options)

    return _until_compiler_is_known(run)


def _arguments(model: nn.Module, inputs: Inputs, known: dict[int, bool]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model is called: a dict by name, a tuple as separate arguments if the model takes that many."""
    if isinstance(inputs, dict):
        return (), inputs
    if not isinstance(inputs, tuple):
        return (inputs,), {}
    if len(inputs) not in known:  # asked once: signatures are slow
        known[len(inputs)] = _takes(model, inputs)
    return (inputs, {}) if known[len(inputs)] else ((inputs,), {})


def _takes(model: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    try:
        inspect.signature(model.forward).bind(*inputs)
    except TypeError:
        return False
    except ValueError:  # a forward pass that does not say what it takes
        return True
    return True


class Redirected(TorchFunctionMode):
    """While active, some tensors are replaced by others wherever they enter an operation.

    It notes hooks on tensors and, until the network is settled, operations that lower the risk's precision.

    Images channels last enter a group norm in PyTorch's usual order: on a CPU its backward pass for the weights alone
    would write a gradient of the images to where there is no memory, and end the process. `torch.cond` and its kin run
    as the Python that they stand for: compiled, they cannot be differentiated twice. A weight norm runs in plain
    operations: the second derivative of PyTorch's fused one is wrong. Embeddings do not scale their gradient by the
    frequency of words, which makes it that of no function.
    """

    def __init__(self, given: Mapping[int, Tensor], dtype: torch.dtype, settled: bool) -> None:
        super().__init__()
        self.given, self.dtype, self.settled = given, dtype, settled
        self.reached = self.changed = self.hooked = False
        self.lowest: tuple[torch.dtype, str] | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        args, kwargs = self._replaced(args), self._replaced(kwargs or {})
        if func in GROUP_NORMS:
            args, kwargs = tuple(map(self._upright, args)), {name: self._upright(v) for name, v in kwargs.items()}
        if kwargs.get("scale_grad_by_freq"):
            self.changed = True
            kwargs = {**kwargs, "scale_grad_by_freq": False}
        self.hooked |= func is Tensor.register_hook
        if isinstance(func, HigherOrderOperator) and func.name() in CONTROL_FLOW:
            self.changed = True
            with self:
                return CONTROL_FLOW[func.name()](*args, **kwargs)
        if func is torch._weight_norm:
            self.changed = True
            return _weight_norm(*args, **kwargs)
        result = func(*args, **kwargs)
        if not self.settled and isinstance(result, Tensor) and result.is_floating_point():
            self._note(func, args, result.dtype)
        return result

    def _upright(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.device.type != "cpu" or not _is_channels_last(value):
            return value
        self.changed = True
        return value.clone(memory_format=torch.contiguous_format)

    def _note(self, func: Any, args: tuple, dtype: torch.dtype) -> None:
        bound = self.dtype if self.lowest is None else self.lowest[0]
        if dtype.itemsize < bound.itemsize and any(isinstance(a, Tensor) and a.dtype == self.dtype for a in args):
            self.lowest = dtype, getattr(func, "__name__", str(func))

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            given = self.given.get(id(value))
            self.reached |= given is not None
            return value if given is None else given
        if isinstance(value, dict):
            return {key: self._replaced(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            entries = [self._replaced(entry) for entry in value]
            return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
        return value


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v/‖v‖ by plain operations, with the value of the fused one to the last digit."""
    result = v * (g / torch.norm_except_dim(v, 2, dim))
    return result + (torch._weight_norm(v.detach(), g.detach(), dim) - result).detach()


def _while_loop(condition: Any, body: Any, carried: tuple[Any, ...], constants: tuple[Any, ...]) -> tuple[Any, ...]:
    """`torch.while_loop`: what is carried through the body for as long as a condition holds."""
    while condition(*carried, *constants):
        carried = tuple(body(*carried, *constants))
    return carried


CONTROL_FLOW = {"cond": lambda condition, yes, no, args: (yes if condition else no)(*args), "while_loop": _while_loop}


def _is_channels_last(images: Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    try:
        return images.ndim in formats and images.is_contiguous(memory_format=formats[images.ndim])
    except RuntimeError:  # under vmap, which has a group norm of its own
        return False


def _copy(
    module: nn.Module, tensors: Mapping[str, Tensor], theta: Collection[str], names: Names
) -> tuple[nn.Module, Names]:
    """The modules with these tensors, and the user's tensors that stand for a name."""
    parameters, buffers = named_parameters(module), named_buffers(module)
    new: dict[str, Tensor] = {name: nn.Parameter(tensors[name].detach(), name in theta) for name in parameters}
    new |= {name: tensors[name] for name in buffers}
    before = {id(tensor): (tensor, name) for name, tensor in {**parameters, **buffers}.items()}
    own = copy_with(module, {key: new[name] for key, (_, name) in before.items()})
    return own, {**names, **before, **{id(tensor): (tensor, name) for name, tensor in new.items()}}


def _eagerly() -> contextlib.AbstractContextManager[Any]:
    """Run without torch.compile, whose graphs can neither be differentiated twice nor see other parameters."""
    if COMPILER not in sys.modules:  # nothing was compiled, and importing it takes seconds
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


def _until_compiler_is_known(run: Callable[[], Any]) -> Any:
    """The result of a run; of a second one if the first failed and imported the compiler, as `torch.cond` does."""
    known = COMPILER in sys.modules
    try:
        return run()
    except RuntimeError:
        if known or COMPILER not in sys.modules:
            raise
    return run()
