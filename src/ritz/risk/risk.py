"""The empirical risk: the one scalar function whose curvature this library studies."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .. import progress
from ..errors import check_whole
from ..record.cards import card
from .batches import Batch, Batches, naming_batch
from .data import batches_from
from .devices import Place, destination, naming_conversion
from .distributed import check_group, check_sendable, in_step, smallest_over_ranks, sum_over_ranks
from .first_evaluation import Evaluation, agreed, channels_last, evaluate, examine_in_memory, forget_tables, over_ranks
from .losses import Loss, class_indices, loss_from, on_device, own_copy
from .memory import Budget, memory_budget
from .model import check_model, prefers_channels_last
from .network import check_importable
from .original import Original
from .own_gradient import check_own_gradient
from .parameters import no_gradient
from .path_names import checked_path
from .point import Point
from .precision import Numerics, Precision, check_precision
from .randomness import untouched_randomness


class Risk:
    """R(θ) = Σᵢ tᵢ / Σᵢ wᵢ: the risk of a model on a fixed data set, as a function of some of its parameters.

    Everything is checked when a risk is built, before the first product: that data, model and loss fit together,
    that two passes give the same data and two evaluations the same outputs. The parameters and buffers are copied, and
    what the loss holds: tensors, modules, variables of the scope that it was made in. So the risk stays as it is while
    training goes on. Nothing in the model changes.

    Args:
        model: The network; in evaluation mode if it has dropout or batch norm.
        loss: A ritz loss, a `torch.nn` loss module, or a callable returning one value per term.
        data: (x, y) tensors, a Dataset or a list of its examples, a DataLoader, or any re-iterable of (inputs, targets)
            batches. Inputs may be a dict for `model(**inputs)`, or a tuple for `model(*inputs)` (for `model(inputs)`
            where that takes one argument); a batch may be one dict, whose `labels` (or `targets`, `y`) are the targets.
            The loss sees outputs and targets as they are: to shift the labels of a language model is the loss's task.
        parameters: Glob or globs over parameter names; θ is what matches and has `requires_grad`.
        tangent_precision: "high" lets the linear maps (never the network itself) run in TF32 on a GPU.
        memory: What the data and all operators together may hold between products, in bytes or like "8G"; by default
            half of what is free, three quarters on a GPU.
        path: "rules", "plain" or "forward" pins the way to differentiate; by default the first that is right.
        group: A `torch.distributed` group, over whose ranks the data are divided.

    >>> x = torch.linspace(-1, 1, 12).reshape(6, 2)
    >>> risk = Risk(nn.Linear(2, 3), nn.CrossEntropyLoss(), (x, torch.arange(6) % 3))
    >>> risk.size, risk.num_terms, risk.num_classes
    (9, 6, 3)
    >>> risk.gradient().shape
    torch.Size([9])
    >>> risk.restricted_to("weight").size
    6
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        data: Any,
        *,
        parameters: str | Sequence[str] = "*",
        tangent_precision: Precision = "highest",
        memory: int | float | str | None = None,
        path: str | None = None,
        group: Any = None,
    ) -> None:
        check_model(model)
        check_precision(tangent_precision)
        check_group(group)
        self.group, self.tangent_precision = group, tangent_precision

        # θ first: its device and precision are those of all else. The snapshot of the model is taken before anything
        # runs it, because a forward pass may leave traces.
        original = Original(model)
        self._point = Point(original, parameters)
        self.device, self.dtype = self.theta.device, self.theta.dtype

        # Before the data are read, which takes part of what is free.
        allowed = memory_budget(memory, self.device)
        self.path, self.choices = checked_path(path), dict[str, Any]()  # the choices of the engine, by matrix
        self.loss: Loss = on_device(loss_from(loss), self.device)

        # A rank that fails inside `in_step` makes all ranks fail. Any other exchange between ranks stays outside, since
        # a rank that failed would never join it.
        with in_step(self.theta, self.group):
            self.batches: Batches = batches_from(data, self.device, self.dtype, allowed)
            self._run_first_batches(original)
        self.batches = agreed(self.batches, self.device, self.group)
        self.budget = Budget(allowed - self.batches.held_bytes())  # only now do the data lie as they stay

        # Only a network that can be evaluated on all data is compared with the user's own module.
        self._evaluation = self._first_evaluation()
        with in_step(self.theta, self.group), self.numerics(), untouched_randomness(self.device):
            check_own_gradient(original, self.loss, self._point, self.batches, self._evaluation)
        self.loss = own_copy(self.loss)  # only now: a loss that takes parameters of the model was refused by theirs
        self._point.settle()  # last: until here every pass may show something that has to be watched from now on

    def __repr__(self) -> str:
        counts = f"n = {self.size:,} parameters, N = {self.num_terms:,} terms"
        return f"Risk({type(self.model).__name__}, {self.loss.name}: {counts}, R = {self.loss_value():.6g})"

    def _repr_html_(self) -> str:
        """HTML for a notebook: what is differentiated, and where it is."""
        facts = {"parameters": f"{self.size:,}", "terms": f"{self.num_terms:,}", "loss": f"{self.loss_value():.6g}"}
        return card(f"Risk: {type(self.model).__name__}, {self.loss.name}", facts)

    def __copy__(self) -> Risk:
        risk = object.__new__(type(self))
        risk.__dict__.update(self.__dict__)
        return risk

    def __deepcopy__(self, memo: Any) -> Risk:
        """A copy with its own θ and its own memory budget; the data and the network, which never change, are shared."""
        risk = copy.copy(self)
        risk._point, risk.choices, risk.budget = self._point.copied(), dict(self.choices), Budget(self.budget.total)
        return risk

    def __getstate__(self) -> dict[str, Any]:
        check_sendable(self.group)
        check_importable("loss", self.loss)
        return self.__dict__

    @property
    def model(self) -> nn.Module:
        """A copy of the user's module that holds the tensors of this risk."""
        return self._point.network.module

    @property
    def theta(self) -> Float[Tensor, " n"]:
        """θ, the parameters with respect to which the risk is differentiated, as one vector."""
        return self._point.theta

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """The name and shape of every parameter in θ, in its order."""
        return self._point.shapes

    @property
    def size(self) -> int:
        """n, the number of parameters in θ."""
        return self.theta.numel()

    @property
    def num_examples(self) -> int:
        """How many examples the data hold."""
        return self._evaluation.num_examples

    @property
    def num_terms(self) -> int:
        """N, the number of terms: as many as examples, or tokens of all examples; labels to ignore make none."""
        return self._evaluation.num_terms

    @property
    def num_targets(self) -> int:
        """How many targets the outputs are compared with: the terms, and those whose weight is zero."""
        return self._evaluation.num_targets

    @property
    def total_weight(self) -> float:
        """Σ wᵢ, by which sums are divided; one for a loss that is a sum."""
        return 1.0 if self.loss.reduction == "sum" else self.sum_of_weights

    @property
    def sum_of_weights(self) -> float:
        """Σ wᵢ, whatever the loss divides by."""
        return self._evaluation.weight

    @property
    def separable(self) -> bool:
        """Whether each term depends on its own example alone."""
        return self.batches.separable

    @property
    def memory(self) -> float:
        """Bytes that are still left of the budget."""
        return self.budget.left

    def common_memory(self) -> float:
        """The least that is left on any rank, so that all of them decide alike; every rank must ask."""
        return smallest_over_ranks(self.memory, self.device, self.group)

    @property
    def lowest_precision(self) -> torch.dtype:
        """The lowest precision in which the model was seen to compute with numbers in the precision of θ."""
        lowest = self._point.network.lowest
        return self.dtype if lowest is None else lowest[0]

    @property
    def has_hooks(self) -> bool:
        """Whether the model was seen to hook a function of its own to the gradient of a tensor."""
        return self._point.network.hooked

    def loss_value(self) -> float:
        """R(θ)."""
        return self._evaluation.total / self.total_weight

    def has_terms(self, z: Tensor, batch: Batch) -> bool:
        """Whether outputs of some examples give the same terms as these examples did in their own batches."""
        return bool(self._evaluation.agrees(self.loss, z, batch))

    def check_terms(self, z: Tensor, batch: Batch) -> None:
        """Refuse outputs of a batch as given that have other terms than when the risk was evaluated."""
        with torch.no_grad():
            self._evaluation.check(self.loss, z.detach(), batch, self._point)

    def gradient(self) -> Float[Tensor, " n"]:
        """∇R(θ)."""
        total, leaves = torch.zeros_like(self.theta), self.leaves()
        with progress.bar("Gradient") as bar:
            for batch in self.batches:
                with self.numerics(), naming_batch("the gradient on", batch):
                    z = self.outputs(leaves, batch)
                    self.check_terms(z, batch)
                    slope = self.loss.gradient(z.detach(), batch.targets)
                    if z.requires_grad:  # else no output depends on θ
                        total += self.flatten(torch.autograd.grad(z, leaves, slope, allow_unused=True))
                bar.advance()
        gradient = self.sum_over_ranks(total) / self.total_weight
        if not bool(torch.isfinite(gradient).all()):
            raise no_gradient(dict(zip(self.shapes, self.unflatten(gradient), strict=True)))
        return gradient

    @cached_property
    def labels(self) -> Int[Tensor, " N"]:
        """The class of every target of this rank, for losses whose targets are classes; `ignore_index` for none."""
        return class_indices(self.loss, torch.cat([batch.targets.flatten() for batch in self.batches]))

    @cached_property
    def num_classes(self) -> int:
        """C, the width of the model's output."""
        with self.numerics(), torch.no_grad():
            z = self.outputs(self.leaves(), next(iter(self.batches)))
        return 1 if z.ndim == 1 else z.shape[self.loss.class_dim]

    def restricted_to(self, parameters: str | Sequence[str]) -> Risk:
        """The same risk as a function of fewer parameters, such as those of one layer."""
        risk = self._sibling()
        risk._point = self._point.restricted_to(parameters)
        return risk

    def globs_without(self, names: Collection[str]) -> list[str]:
        """Globs that `restricted_to` takes for all parameters in θ but these; none where nothing else is in θ."""
        return self._point.globs_without(names)

    def at(self, theta: Tensor | Mapping[str, Tensor] | nn.Module) -> Risk:
        """The same risk at other parameters, for one pass over the data: along a training run, or a line.

        Nothing else is examined anew, which makes it much cheaper than another risk.

        Args:
            theta: A vector in the order of this risk's; or tensors by name, as in a `state_dict`, or a module of the
                same architecture, of which buffers (the means of a batch norm) and frozen parameters are taken, too.
                What has no name there stays.

        >>> x = torch.linspace(-1, 1, 12).reshape(6, 2)
        >>> risk = Risk(nn.Linear(2, 3), nn.CrossEntropyLoss(), (x, torch.arange(6) % 3))
        >>> round(risk.at(torch.zeros(9)).loss_value(), 4)  # log 3
        1.0986
        """
        self._check_loss()
        risk = copy.copy(self)
        risk._point = self._point.at(theta)
        risk._evaluation = risk._first_evaluation()
        return risk

    def first(self, count: int) -> Risk:
        """The risk on the first examples alone; on all of them where there are no more."""
        check_whole(count=count)
        self._check_loss()
        risk = self._sibling()
        risk.batches = self.batches.first(count)
        risk._evaluation = risk._first_evaluation()
        return risk

    def to(self, place: Place, *, device: torch.device | str | None = None) -> Risk:
        """The same risk in another precision or elsewhere, with its data: `risk.to(torch.float64)`, `risk.to("cuda")`.

        Args:
            place: float32, or float64 for exact results; or a device, on which memory has a budget of its own.
            device: A device, beside a precision.
        """
        dtype, device = destination(place, device, (self.dtype, self.device))
        if (dtype, device) == (self.dtype, self.device):
            return self
        self._check_loss()
        risk = self._converted(dtype, device)
        with naming_conversion(self.dtype, dtype):
            risk._evaluation = risk._first_evaluation()
        risk._point.settle()
        return risk

    def in_double(self, batch: Batch) -> Risk:
        """The risk in float64 on one batch, for derivatives there: its sums are not evaluated."""
        risk = self._sibling()
        risk.batches, risk.group = replace(Batches.of([batch]), separable=self.separable), None
        return risk._converted(torch.float64, self.device)

    def _converted(self, dtype: torch.dtype, device: torch.device) -> Risk:
        """The risk with all its tensors converted, before anything is evaluated."""
        risk = self._sibling()
        risk._point = self._point.converted(dtype, device)
        risk.dtype, risk.device, risk.loss = dtype, device, on_device(self.loss, device, dtype)
        risk.batches = self.batches.to(device, dtype)
        if device != self.device:
            risk.batches = risk.batches.contiguous()  # the layout was chosen for the other device
            risk.batches = risk._in_best_layout()
            risk.budget = Budget(memory_budget(None, device) - risk.batches.held_bytes())
        return risk

    def rounded_otherwise(self) -> Risk:
        """The same risk at a θ whose numbers all differ by a few last digits; nothing is evaluated."""
        risk = copy.copy(self)
        risk._point = self._point.rounded_otherwise()
        return risk

    def outputs(self, parameters: Sequence[Tensor], batch: Batch) -> Tensor:
        """f(θ, x) on one batch, for parameters in the order and shapes of `shapes`."""
        return self._point.outputs(parameters, batch)

    def leaves(self) -> list[Tensor]:
        """θ by parameters, that autograd can differentiate with respect to: views, but for pairs at odd places."""
        return self._point.leaves()

    def unflatten(self, vector: Float[Tensor, " n"]) -> list[Tensor]:
        """Split a vector of parameter space into parameter-shaped views."""
        return self._point.unflatten(vector)

    def flatten(self, pieces: Iterable[Tensor | None]) -> Float[Tensor, " n"]:
        """Join parameter-shaped tensors to one vector; a parameter that was not used contributes zeros."""
        return self._point.flatten(pieces)

    def sum_over_ranks(self, value: Tensor) -> Tensor:
        """The sum of a value over all ranks of the group."""
        return sum_over_ranks(value, self.group)

    def numerics(self, precision: Precision = "highest", *, search: bool = False) -> AbstractContextManager[None]:
        """How PyTorch computes inside the engine: exactly, and so that everything can be differentiated twice.

        With `search`, cuDNN looks for its fastest convolution of every shape, which pays over hundreds of products.
        """
        return Numerics(self.device, precision, recurrent=self._point.network.is_recurrent, search=search)

    def _sibling(self) -> Risk:
        """A copy to be modified: it shares the budget, but no choice or cached property."""
        risk = copy.copy(self)
        risk.choices = {}
        risk.__dict__.pop("labels", None)  # they are those of all examples, on this device
        return risk

    def _run_first_batches(self, original: Original) -> None:
        """Run the network for the first time, and keep what shows of tables, the loss, the batches and their layout."""
        # A table computed from other parameters would make all outputs wrong, those of the next step included.
        if forget_tables(original, self.batches, self._one_pass):
            self._point.take_modules(original)
        # This may cut the batches to a size that fits, and settles the loss, which separates their terms.
        with self._one_pass():
            outputs, leaves = self._point.outputs, self._point.fixed()
            self.loss, self.batches = examine_in_memory(outputs, leaves, self.loss, self.batches)
        self.batches = self._in_best_layout()  # tried on a batch of the final size

    def _in_best_layout(self) -> Batches:
        """The batches with images channels-last, if that makes convolutions faster and the model allows it."""
        if not prefers_channels_last(self.model, self.device, self.tangent_precision):
            return self.batches
        with self._one_pass():
            return channels_last(self._point.fixed_outputs, self.batches, self.device)

    def _check_loss(self) -> None:
        """Refuse to evaluate anew with a loss that has become another one."""
        with self._one_pass():
            self._evaluation.check_loss(self.loss)

    def _first_evaluation(self) -> Evaluation:
        """Evaluate every batch once, and refuse what cannot be analysed."""
        with in_step(self.theta, self.group), self._one_pass():
            torch.rand((), device=self.device)  # that a later pass of a random model draws other numbers than this one
            own = evaluate(self._point.fixed_outputs, self.loss, self.batches, self.device)
        return over_ranks(own, self.loss, self.device, self.group)

    @contextmanager
    def _one_pass(self) -> Iterator[None]:
        """A pass without gradients that leaves the random state as it was."""
        with self.numerics(), torch.no_grad(), untouched_randomness(self.device):
            yield
