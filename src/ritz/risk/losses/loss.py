"""The interface of a loss: its terms, with their derivatives with respect to the network's outputs.

A risk is R = Σᵢ tᵢ / Σᵢ wᵢ: every loss says what its terms tᵢ (weights included) and its weights wᵢ are, and the
risk alone adds up and divides, once. A term is one index of all output dimensions but the last.
"""

from __future__ import annotations

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ...errors import ArgumentError, DataError, NumericalError, check_instance
from ..precision import in_precision

Reduction = Literal["mean", "sum"]
Outputs = Float[Tensor, "*batch"]
Targets = Shaped[Tensor, "..."]
LinearMap = Callable[[Tensor], Tensor]


class Loss(ABC):
    """Terms tᵢ(z, y) of a risk, and the derivatives of Σᵢ tᵢ with respect to the outputs z.

    `reduction="mean"` divides the sum of all terms by the sum of all weights; `"sum"` does not divide.

    >>> from ritz.risk import SquaredError
    >>> loss, z, y = SquaredError(), torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]])
    >>> isinstance(loss, Loss), loss.terms(z, y), loss.gradient(z, y)
    (True, tensor([2.5000]), tensor([[1., 2.]]))
    """

    reduction: Reduction
    class_dim: int = -1  # the dimension of z along which the outputs of one term lie
    by_rows: bool = True  # whether a term depends only on its own row of z

    @property
    def name(self) -> str:
        """What a reader knows it by: its class, and what of it is not as usual.

        >>> from ritz.risk import CrossEntropy
        >>> CrossEntropy(label_smoothing=0.1, class_dim=1).name
        'CrossEntropy(label_smoothing=0.1)'
        """
        settings: dict[str, tuple[Any, Any]]
        settings = {f.name: (getattr(self, f.name), f.default) for f in fields(self)} if is_dataclass(self) else {}
        settings.pop("class_dim", None)  # which is a matter of shapes
        pairs = [(_shown(name, own), _shown(name, usual)) for name, (own, usual) in settings.items()]
        unusual = [own for own, usual in pairs if own != usual]
        return type(self).__name__ + (f"({', '.join(unusual)})" if unusual else "")

    def settled(self, z: Outputs, y: Targets) -> Loss:
        """The loss with settings that only outputs show, such as the class dimension; by default, the loss itself."""
        return self

    @property
    def is_convex(self) -> bool:
        """Whether every term is known to be convex in the outputs, for valid targets."""
        return False

    @abstractmethod
    def terms(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """The values wᵢ ℓᵢ, one per term."""

    @abstractmethod
    def weights(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """The weights wᵢ."""

    def masses(self, z: Outputs, y: Targets) -> Float[Tensor, " terms"]:
        """How much each term counts in the curvature: its weight, unless the loss says otherwise."""
        return self.weights(z, y)

    @abstractmethod
    def gradient(self, z: Outputs, y: Targets) -> Outputs:
        """∂/∂z Σ tᵢ."""

    @abstractmethod
    def curvature(self, z: Outputs, y: Targets) -> LinearMap:
        """u ↦ ∂²/∂z² Σ tᵢ · u, with everything independent of u evaluated once."""

    def hessian_product(self, z: Outputs, y: Targets, u: Outputs) -> Outputs:
        """∂²/∂z² Σ tᵢ · u."""
        return self.curvature(z, y)(u)

    @abstractmethod
    def square_root(self, z: Outputs, y: Targets) -> Float[Tensor, "terms K r"]:
        """S with S Sᵀ = ∂²tᵢ/∂zᵢ², a K × r block for each term."""

    def total_hessian(self, z: Outputs, y: Targets) -> Float[Tensor, "K K"]:
        """Σᵢ ∂²tᵢ/∂zᵢ², the blocks of all terms added up, in float64."""
        rows = self.square_root(z, y).double().transpose(0, 1).flatten(1)
        return rows @ rows.T

    def sampled_gradient(self, z: Outputs, y: Targets, uniform: Float[Tensor, "..."]) -> Outputs:
        """A random u for each term with E[u uᵀ] = ∂²tᵢ/∂zᵢ²: its square root times random signs.

        It uses the first `num_uniforms(z)` of the given numbers, which are uniform in (0, 1), with a row for each
        example.
        """
        root = self.square_root(z, y)
        signs = (self._rows_of(uniform, z)[:, : root.shape[-1]] - 0.5).sign().to(root)
        return restored((root * signs[:, None]).sum(-1), z, self.class_dim)

    def num_uniforms(self, z: Outputs) -> int:
        """How many random numbers `sampled_gradient` needs per example for these outputs."""
        return z.numel()

    @abstractmethod
    def check(self, z: Outputs, y: Targets) -> None:
        """Raise a `DataError` where outputs and targets do not fit together."""

    def _rows_of(self, uniform: Tensor, z: Tensor) -> Tensor:
        """The first of the given numbers, as rows of terms like those of the outputs."""
        return class_rows(uniform.flatten()[: z.numel()].view(z.shape), self.class_dim)


def _shown(name: str, value: Any) -> str:
    """A setting in a name: the name alone of a switch that is on, of tensors how many entries they have."""
    if value is True:
        return name
    return f"{name}=({value.numel()} values)" if isinstance(value, Tensor) else f"{name}={value!r}"


def on_device(loss: Loss, device: torch.device, dtype: torch.dtype | None = None) -> Loss:
    """The loss with its class weights on the given device; functions and modules in it are in a precision, too."""
    moved = lambda value: value.to(device) if isinstance(value, Tensor) else _converted(value, device, dtype)
    return _with_parts(loss, moved)


def own_copy(loss: Loss) -> Loss:
    """The loss with its own tensors, modules and enclosing variables: what a user does to theirs does not reach it."""
    return _with_parts(loss, partial(_with_arguments, _copied))


def _with_parts(loss: Loss, change: Callable[[Any], Any]) -> Loss:
    result = copy.copy(loss)
    for name, value in vars(loss).items():
        object.__setattr__(result, name, change(value))  # a frozen dataclass forbids it to others
    return result


def _converted(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """A tensor, a module, or a function with some of its arguments, in another precision; anything else as it is."""
    if dtype is None:
        return value

    def convert(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device, in_precision(part, dtype))
        return copy.deepcopy(part).to(device, dtype) if isinstance(part, nn.Module) else part

    return _with_arguments(convert, value)


def _copied(value: Any) -> Any:
    """A copy of a tensor, a module or an object that can be called; what cannot be copied, and all else, as it is."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    with contextlib.suppress(Exception):  # whatever a user's own class raises
        return copy.deepcopy(value) if callable(value) and not isinstance(value, MethodType) else value
    return value


def _with_arguments(change: Callable[[Any], Any], value: Any, made: dict[int, Any] | None = None) -> Any:
    """A value after a change, or a function with its bound arguments and enclosing variables, each after it.

    `made` has the functions that this call has already made, which may refer to each other.
    """
    made = {} if made is None else made
    own = partial(_with_arguments, change, made=made)
    if isinstance(value, FunctionType) and "<" in value.__qualname__:  # others are imported by name, as they are
        return made[id(value)] if id(value) in made else _with_scope(own, value, made)
    if not isinstance(value, partial):
        return change(value)
    return partial(own(value.func), *map(own, value.args), **{name: own(v) for name, v in value.keywords.items()})


def _with_scope(change: Callable[[Any], Any], function: FunctionType, made: dict[int, Any]) -> FunctionType:
    """A local function with defaults and enclosing variables of its own, and tensors and functions in them changed.

    Modules there stay as they are: they may be large, or hold whatever made the function.
    """
    own = lambda value: change(value) if isinstance(value, (Tensor, partial, FunctionType)) else value
    cells = tuple(CellType() for _ in function.__closure__ or ())
    defaults = None if function.__defaults__ is None else tuple(map(own, function.__defaults__))
    made[id(function)] = result = FunctionType(
        function.__code__, function.__globals__, function.__name__, defaults, cells
    )
    result.__dict__.update(function.__dict__)
    result.__qualname__, result.__module__ = function.__qualname__, function.__module__
    result.__kwdefaults__ = {name: own(v) for name, v in (function.__kwdefaults__ or {}).items()} or None
    for cell, given in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            cell.cell_contents = own(given.cell_contents)
    return result


def term_rows(values: Tensor) -> Tensor:
    """Values as rows of outputs, one per term; a 1-d output has one column."""
    return values[:, None] if values.ndim == 1 else values.reshape(-1, values.shape[-1])


def class_rows(values: Tensor, class_dim: int) -> Tensor:
    """Values as rows of outputs, one per term, where a term runs along the given dimension."""
    return term_rows(values if values.ndim == 1 else values.movedim(class_dim, -1))


def restored(rows: Tensor, z: Tensor, class_dim: int) -> Tensor:
    """Rows of terms in the shape of the outputs."""
    return rows.view_as(z) if z.ndim == 1 else rows.reshape(z.movedim(class_dim, -1).shape).movedim(-1, class_dim)


def unit_weights(z: Tensor, elementwise: bool) -> Tensor:
    """Equal weights: one for each term, or one for each of its outputs."""
    rows = term_rows(z)
    return rows.new_full((len(rows),), float(rows.shape[1]) if elementwise else 1.0)


def misfit(z: Tensor, y: Tensor, why: str, *ways_out: str) -> DataError:
    """The error for outputs and targets that do not fit together."""
    return DataError(
        f"The outputs have shape {tuple(z.shape)}, the targets {tuple(y.shape)} ({y.dtype}).",
        why,
        "Reshape the targets, or the model's outputs.",
        *ways_out,
    )


def entries_misfit(z: Tensor, y: Tensor) -> DataError:
    """The error for outputs and targets that a loss cannot compare entry by entry."""
    ways = []
    if z.shape == (*y.shape, 1):
        ways.append("Targets of the shape of these outputs: y.unsqueeze(-1).")
    elif z.shape[:-1] == y.shape and not y.is_floating_point():
        ways.append(f"For labels of classes: torch.nn.functional.one_hot(y, {z.shape[-1]}).to(outputs.dtype).")
    return misfit(z, y, "The loss compares them entry by entry; broadcasting would pair the wrong ones.", *ways)


def not_convex(eigenvalue: float) -> NumericalError:
    """The error for a loss that is not convex, so that its Hessian has no square root."""
    return NumericalError(
        f"The loss has a Hessian with eigenvalue {eigenvalue:.3g} at these outputs.",
        "Only a convex loss has a Hessian with a real square root.",
        "Use products with gauss_newton(risk), which need no square root.",
    )


def check_reduction(reduction: Any) -> None:
    """Refuse reductions other than "mean" and "sum": a risk adds up all terms, and divides or does not."""
    if reduction not in get_args(Reduction):
        raise ArgumentError(
            f"reduction={reduction!r} was given.",
            "A risk is one number: the mean of its terms, or their sum.",
            "Pass 'mean' or 'sum'.",
            "For the terms themselves, call loss.terms(outputs, targets).",
        )


def check_weight_tensors(**weights: Any) -> None:
    """Refuse weights that are not tensors."""
    given = {name: weight for name, weight in weights.items() if weight is not None}
    check_instance(Tensor, "Convert it: torch.tensor([1.0, 2.0]), one number for each class or output.", **given)


def check_finite_weights(name: str, weight: Tensor | None) -> None:
    """Refuse NaN and infinity among the weights of a loss."""
    if weight is not None and not bool(torch.isfinite(weight).all()):
        raise NumericalError(
            f"The loss's {name} hold NaN or infinity.",
            "They multiply the terms, so the risk would be NaN or infinite, too.",
            "Look for a class without examples, whose weight 1/count is infinite; give it the weight zero.",
        )


def check_broadcasts(name: str, weight: Tensor | None, z: Tensor) -> None:
    """Refuse weights whose shape is not that of the outputs of every batch."""
    if weight is None:
        return
    try:
        fits = torch.broadcast_shapes(weight.shape, z.shape) == z.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"The loss's {name} has shape {tuple(weight.shape)}, the outputs {tuple(z.shape)}.",
            "It multiplies the outputs of every batch, whatever its size.",
            "Pass one weight for each output, of the shape of the last dimension.",
            "For weights that differ between examples, pack them into the targets and use a callable loss.",
        )
