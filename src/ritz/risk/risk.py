"""The empirical risk: the one scalar function whose curvature this library studies."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .. import progress
from ..errors import ArgumentError, DataError, ModelError, PrecisionWarning, check_whole, first_line, warn_user
from ..record.cards import card
from .batches import Batch, Batches, naming_batch
from .data import batches_from
from .distributed import check_group, in_step, smallest_over_ranks, sum_over_ranks
from .first_evaluation import (
    Evaluation,
    agreed,
    channels_last,
    evaluate,
    examine_in_memory,
    forget_tables,
    over_ranks,
)
from .losses import Classification, Loss, loss_from, on_device, own_copy
from .memory import Budget, memory_budget
from .model import check_model, further_names, output_tensor, prefers_channels_last
from .network import Network, check_importable
from .original import Original
from .own_gradient import check_own_gradient
from .parameters import (
    as_pairs,
    fewest_globs,
    matching_names,
    no_gradient,
    other_tensors,
    other_theta,
    tensors,
    trainable,
)
from .path_names import checked_path
from .precision import Numerics, Precision, check_dtype, check_precision, in_precision, no_conversion
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
        self._output_dims: int | None = None  # of outputs of several examples, once some were seen

        # θ first: where it lies, and in what precision, holds for all else. The snapshot of the model is taken before
        # anything runs it, because a forward pass may leave traces.
        self._further_names, original = further_names(model), Original(model)
        names = matching_names(trainable(model), parameters, self._further_names)
        self._select(tensors(model, names), names)
        self._network = Network.of(original, self._all_tensors(), names)
        self.device, self.dtype = self.theta.device, self.theta.dtype

        # Before the data are read, which takes part of what is free.
        allowed = memory_budget(memory, self.device)
        self.path, self.choices = checked_path(path), dict[str, Any]()  # the choices of the engine, by matrix
        self.loss: Loss = on_device(loss_from(loss), self.device)

        # A rank that fails in here makes all ranks fail; exchanges between ranks stay outside, since it joins none.
        with in_step(self.theta, self.group):
            self.batches: Batches = batches_from(data, self.device, self.dtype, allowed)
            self._run_first_batches(original)
        self.batches = agreed(self.batches, self.device, self.group)
        self.budget = Budget(allowed - self.batches.held_bytes())  # only now do the data lie as they stay

        # Only a network that can be evaluated on all data is compared with the user's own module.
        self._evaluation = self._first_evaluation()
        with in_step(self.theta, self.group), self.numerics(), untouched_randomness(self.device):
            own = original, self.loss, self._network, self._all_tensors(), names
            check_own_gradient(*own, self.batches, self._evaluation)
        self.loss = own_copy(self.loss)  # only now: a loss that takes parameters of the model was refused by theirs
        self._settle()  # last: until here every pass may show something that has to be watched from now on

    def __repr__(self) -> str:
        counts = f"n = {self.size:,} parameters, N = {self.num_terms:,} terms"
        return f"Risk({type(self.model).__name__}, {self.loss.name}: {counts}, R = {self.loss_value():.6g})"

    def _repr_html_(self) -> str:
        """In a notebook: what is differentiated, and where it is."""
        facts = {"parameters": f"{self.size:,}", "terms": f"{self.num_terms:,}", "loss": f"{self.loss_value():.6g}"}
        return card(f"Risk: {type(self.model).__name__}, {self.loss.name}", facts)

    def __copy__(self) -> Risk:
        risk = object.__new__(type(self))
        risk.__dict__.update(self.__dict__)
        return risk

    def __deepcopy__(self, memo: Any) -> Risk:
        """A copy with its own θ and its own memory budget; the data and the network, which never change, are shared."""
        risk = copy.copy(self)
        risk.theta, risk.choices, risk.budget = self.theta.clone(), dict(self.choices), Budget(self.budget.total)
        return risk

    def __getstate__(self) -> dict[str, Any]:
        if self.group is not None:
            raise ArgumentError(
                "The risk is divided over the ranks of a group.",
                "A process outside of the group cannot take part in it.",
                "Build the risk without a group: Risk(..., group=None).",
            )
        check_importable("loss", self.loss)
        return self.__dict__

    @property
    def model(self) -> nn.Module:
        """A copy of the user's module that holds the tensors of this risk."""
        return self._network.module

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
        return self.dtype if self._network.lowest is None else self._network.lowest[0]

    @property
    def has_hooks(self) -> bool:
        """Whether the model was seen to hook a function of its own to the gradient of a tensor."""
        return self._network.hooked

    def loss_value(self) -> float:
        """R(θ)."""
        return self._evaluation.total / self.total_weight

    def has_terms(self, z: Tensor, batch: Batch) -> bool:
        """Whether outputs of some examples give the same terms as these examples did in their own batches."""
        return bool(self._evaluation.agrees(self.loss, z, batch))

    def check_terms(self, z: Tensor, batch: Batch) -> None:
        """Refuse outputs of a batch as given that have other terms than when the risk was evaluated."""
        with torch.no_grad():
            self._evaluation.check(self.loss, z.detach(), batch)

    def gradient(self) -> Float[Tensor, " n"]:
        """∇R(θ)."""
        total = torch.zeros_like(self.theta)
        leaves = self.leaves()
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
        labels = torch.cat([batch.targets.flatten() for batch in self.batches])
        if labels.is_floating_point() or not isinstance(self.loss, Classification):
            raise DataError(
                f"The targets are {labels.dtype} values, and the loss is {self.loss.name}.",
                "Only class indices can serve as labels.",
                "Use a cross-entropy risk with integer targets.",
                "Without classes, look at the spectrum alone: ritz spectrum.",
            )
        return labels.long()

    @cached_property
    def num_classes(self) -> int:
        """C, the width of the model's output."""
        with self.numerics(), torch.no_grad():
            z = self.outputs(self.leaves(), next(iter(self.batches)))
        return 1 if z.ndim == 1 else z.shape[self.loss.class_dim]

    def restricted_to(self, parameters: str | Sequence[str]) -> Risk:
        """The same risk as a function of fewer parameters, such as those of one layer."""
        risk, tensors = self._sibling(), self._all_tensors()
        own = {name: tensors[name] for name in self.shapes}
        risk._select(tensors, matching_names(own, parameters, self._further_names))
        risk._network = self._network.holding(risk._all_tensors(), risk.shapes)
        return risk

    def globs_without(self, names: Collection[str]) -> list[str]:
        """Globs that `restricted_to` takes for all parameters in θ but these; none where nothing else is in θ."""
        return fewest_globs(self.shapes, [name for name in self.shapes if name not in names], self._further_names)

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
        if isinstance(theta, Tensor):
            risk.theta = other_theta(theta, self.theta, self.shapes)
        else:
            further = {**self._further_names, **further_names(self.model, "_buffers")}
            tensors = other_tensors(theta, self._all_tensors(), self.shapes, further)
            risk._select(tensors, list(self.shapes))
        risk._network = self._network.holding(risk._all_tensors(), self.shapes)
        risk._evaluation = risk._first_evaluation()
        return risk

    def first(self, count: int) -> Risk:
        """The risk on the first examples alone; on all of them where there are no more."""
        check_whole(count=count)
        if count is None or count < 1:
            raise ArgumentError(
                f"{count} examples were requested.", "An average needs at least one.", "Ask for a positive number."
            )
        self._check_loss()
        risk = self._sibling()
        risk.batches = self.batches.first(count)
        risk._evaluation = risk._first_evaluation()
        return risk

    def to(self, dtype: torch.dtype, *, device: torch.device | str | None = None) -> Risk:
        """The same risk in another precision: parameters, buffers and data converted, float64 for exact results.

        Args:
            dtype: float32 or float64.
            device: Where all of it is to lie; there, memory has a budget of its own.
        """
        check_dtype(dtype)
        device = self.device if device is None else _device(device)
        if (dtype, device) == (self.dtype, self.device):
            return self
        self._check_loss()
        risk = self._converted(dtype, device)
        try:
            risk._evaluation = risk._first_evaluation()
        except ModelError as error:
            raise error if dtype == self.dtype else no_conversion(dtype, self.dtype, error) from error
        risk._settle()
        return risk

    def in_double(self, batch: Batch) -> Risk:
        """The risk in float64 on one batch, for derivatives there: its sums are not evaluated."""
        risk = self._sibling()
        risk.batches, risk.group = replace(Batches.of([batch]), separable=self.separable), None
        return risk._converted(torch.float64, self.device)

    def _converted(self, dtype: torch.dtype, device: torch.device) -> Risk:
        """The risk with all its tensors converted, before anything is evaluated."""
        risk = self._sibling()
        convert = lambda t: t.to(device, in_precision(t, dtype))
        tensors = {name: convert(t) for name, t in self._all_tensors().items()}
        risk._select(tensors, list(self.shapes))
        risk._network = self._network.holding(risk._all_tensors(), risk.shapes).unsettled()
        risk.dtype, risk.device, risk.loss = dtype, device, on_device(self.loss, device, dtype)
        risk.batches = self.batches.to(device, dtype)
        if device != self.device:
            risk.batches = risk.batches.contiguous()  # the layout was chosen for the other device
            risk.batches = risk._in_best_layout()
            risk.budget = Budget(memory_budget(None, device) - risk.batches.held_bytes())
        return risk

    def outputs(self, parameters: Sequence[Tensor], batch: Batch) -> Tensor:
        """f(θ, x) on one batch, for parameters in the order and shapes of `shapes`."""
        if not torch.is_grad_enabled():
            parameters = [parameter.detach() for parameter in parameters]
        tensors = {**self._constants, **dict(zip(self.shapes, parameters, strict=True))}
        with naming_batch("the model on", batch):
            z = output_tensor(self._network(tensors, batch.inputs), len(batch), self._output_dims)
        if self._output_dims is None and len(batch) > 1:
            self._output_dims = z.ndim
        return z if torch.is_grad_enabled() else z.detach()

    def leaves(self) -> list[Tensor]:
        """θ by parameters, that autograd can differentiate with respect to: views, but for pairs at odd places."""
        return [as_pairs(piece).detach().requires_grad_() for piece in self.unflatten(self.theta)]

    def unflatten(self, vector: Float[Tensor, " n"]) -> list[Tensor]:
        """Split a vector of parameter space into parameter-shaped views."""
        if vector.shape != (self.size,):
            raise ArgumentError(
                f"A tensor of shape {tuple(vector.shape)} was to be split.",
                f"The parameters of the risk are {self.size:,} numbers.",
                "Pass a vector like risk.theta, such as a column of eigenvectors: pairs.vectors[:, 0].",
            )
        pieces = vector.split([shape.numel() for shape in self.shapes.values()])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def flatten(self, pieces: Iterable[Tensor | None]) -> Float[Tensor, " n"]:
        """Join parameter-shaped tensors to one vector; a parameter that was not used contributes zeros."""
        zeros = (self.theta.new_zeros(shape) for shape in self.shapes.values())
        dense = (
            (z if p is None else p.to_dense()) for p, z in zip(pieces, zeros, strict=True)
        )  # embeddings may be sparse
        return torch.cat([piece.reshape(-1) for piece in dense])

    def sum_over_ranks(self, value: Tensor) -> Tensor:
        """The sum of a value over all ranks of the group."""
        return sum_over_ranks(value, self.group)

    def numerics(
        self, precision: Precision = "highest", *, search: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """How PyTorch computes inside the engine: exactly, and so that everything can be differentiated twice.

        With `search`, cuDNN looks for its fastest convolution of every shape, which pays over hundreds of products.
        """
        recurrent = any(isinstance(module, nn.RNNBase) for module in self.model.modules())
        return Numerics(self.device, precision, recurrent=recurrent, search=search)

    def _sibling(self) -> Risk:
        """A copy to be modified: it shares the budget, but no choice or cached property."""
        risk = copy.copy(self)
        risk.choices = {}
        risk.__dict__.pop("labels", None)  # they are those of all examples, on this device
        return risk

    def _run_first_batches(self, original: Original) -> None:
        """Run the network for the first time, and keep what shows of tables, the loss, the batches and their layout."""
        # Tables of values of other parameters would make all outputs wrong, those of the next step included.
        if forget_tables(original, self.batches, self._one_pass):
            self._network = Network.of(original, self._all_tensors(), list(self.shapes))
        # This may cut the batches to a size that fits, and settles the loss, which separates their terms.
        self.loss, self.batches = self._examination()
        # The layout is tried on a batch of the final size.
        self.batches = self._in_best_layout()

    def _select(self, tensors: dict[str, Tensor], names: list[str]) -> None:
        """Make θ of the named tensors, and constants of the others."""
        self.shapes: dict[str, torch.Size] = {name: tensors[name].shape for name in names}
        self.theta: Float[Tensor, " n"] = torch.cat([tensors[name].reshape(-1) for name in names])
        self._constants = {name: tensor for name, tensor in tensors.items() if name not in self.shapes}

    def _settle(self) -> None:
        """After the first evaluation, keep what it showed about the model, and warn where that limits results."""
        self._network.settle()
        if self._network.lowest is not None:
            dtype, function = self._network.lowest
            warn_user(
                f"The model computes in {dtype} inside (first in {function}), though its parameters are {self.dtype}: "
                "derivatives are only as accurate as the lower of the two.",
                PrecisionWarning,
            )

    def _all_tensors(self) -> dict[str, Tensor]:
        return {**self._constants, **dict(zip(self.shapes, map(as_pairs, self.unflatten(self.theta)), strict=True))}

    def _in_best_layout(self) -> Batches:
        """The batches with images channels-last, if that makes convolutions faster and the model allows it."""
        if not prefers_channels_last(self.model, self.device, self.tangent_precision):
            return self.batches
        with self._one_pass():
            return channels_last(partial(self.outputs, self._fixed()), self.batches, self.device)

    def _examination(self) -> tuple[Loss, Batches]:
        """The loss, settled on the first outputs, and the batches, knowing whether their examples are independent."""
        with self._one_pass():
            return examine_in_memory(self.outputs, self._fixed(), self.loss, self.batches)

    def _check_loss(self) -> None:
        """Refuse to evaluate anew with a loss that has become another one."""
        with self._one_pass():
            self._evaluation.check_loss(self.loss)

    def _first_evaluation(self) -> Evaluation:
        """Evaluate every batch once, and refuse what cannot be analysed."""
        with in_step(self.theta, self.group), self._one_pass():
            torch.rand((), device=self.device)  # that a later pass of a random model draws other numbers than this one
            own = evaluate(partial(self.outputs, self._fixed()), self.loss, self.batches, self.device)
        return over_ranks(own, self.loss, self.device, self.group)

    def _fixed(self) -> list[Tensor]:
        """θ by parameters, detached: nothing is differentiated with respect to them."""
        return [leaf.detach() for leaf in self.leaves()]

    @contextlib.contextmanager
    def _one_pass(self) -> Iterator[None]:
        """A pass without gradients that leaves the random state as it was."""
        with self.numerics(), torch.no_grad(), untouched_randomness(self.device):
            yield


def _device(place: Any) -> torch.device:
    try:
        return torch.empty(0, device=place).device  # with its index, as tensors have it: "cuda" is the current one
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise ArgumentError(
            f"device={place!r} was given: {first_line(error)}",
            "All tensors of the risk would be moved there.",
            "Pass 'cpu', or 'cuda' where torch.cuda.is_available().",
        ) from error
