"""The empirical risk: the one scalar function whose curvature this library studies."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from .. import progress
from ..errors import ArgumentError, DataError, ModelError, NumericalError
from .batches import Batch, Batches, batches_from, holding
from .losses import CrossEntropy, Loss, on_device
from .losses.by_autograd import loss_from
from .parameters import check_model, matching, own_copy, tensors, trainable
from .precision import Precision, numerics, untouched_randomness


class Risk:
    """R(θ) = Σᵢ tᵢ / Σᵢ wᵢ: the risk of a model on a fixed data set, as a function of some of its parameters.

    Everything is checked when a risk is built, before the first product: that data, model and loss fit together,
    that two passes give the same data and two evaluations the same outputs. The parameters and buffers are
    copied, so that the risk stays at this θ while training goes on; nothing in the model changes.

    Args:
        model: The network; in evaluation mode if it has dropout or batch norm.
        loss: A `ritz.losses` loss, a `torch.nn` loss module, or a callable returning one value per term.
        data: (x, y) tensors, a Dataset, a DataLoader, or any re-iterable of (inputs, targets) batches.
        parameters: Glob or globs over parameter names; θ is what matches and has `requires_grad`.
        tangent_precision: "high" lets the linear maps (never the network itself) run in TF32 on a GPU.
        memory: Bytes the engine may keep between products; by default half of what is free.
        group: A `torch.distributed` group, over whose ranks the data are divided.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        data: Any,
        *,
        parameters: str | Sequence[str] = "*",
        tangent_precision: Precision = "highest",
        memory: int | float | None = None,
        group: Any = None,
    ) -> None:
        check_model(model)
        _check_precision(tangent_precision)
        _check_memory(memory)
        self.model, self.group, self.tangent_precision = own_copy(model), group, tangent_precision
        self._select(tensors(model), matching(trainable(model), parameters))
        self.device, self.dtype = self.theta.device, self.theta.dtype
        self.memory = free_memory(self.device) / 2 if memory is None else float(memory)
        self.loss: Loss = on_device(loss_from(loss), self.device)
        with self._in_step():
            self.batches: Batches = batches_from(data, self.device, self.dtype, self.memory)
            self.batches = self._in_best_layout()
        self.separable = True  # whether each term depends on its own example alone; seen at the first evaluation
        self.num_examples, self.num_terms, self.total_weight, self._sum = self._first_evaluation()

    def __repr__(self) -> str:
        counts = f"n = {self.size:,} parameters, N = {self.num_terms:,} terms"
        return f"Risk({type(self.model).__name__}, {type(self.loss).__name__}: {counts}, R = {self.loss_value():.6g})"

    @property
    def size(self) -> int:
        """n, the number of parameters in θ."""
        return self.theta.numel()

    def loss_value(self) -> float:
        """R(θ)."""
        return self._sum / self.total_weight

    def gradient(self) -> Float[Tensor, " n"]:
        """∇R(θ)."""
        total = torch.zeros_like(self.theta)
        leaves = self.leaves()
        with progress.bar("Gradient") as bar:
            for batch in self.batches:
                with self.numerics():
                    z = self.outputs(leaves, batch)
                    slope = self.loss.gradient(z.detach(), batch.targets)
                    if z.requires_grad:  # else no output depends on θ
                        total += self.flatten(torch.autograd.grad(z, leaves, slope, allow_unused=True))
                bar.advance()
        return self.reduced(total) / self.total_weight

    @cached_property
    def labels(self) -> Int[Tensor, " N"]:
        """The class of every term, for losses whose targets are classes."""
        labels = torch.cat([batch.targets.flatten() for batch in self.batches])
        if labels.is_floating_point() or not isinstance(self.loss, CrossEntropy):
            raise DataError(
                f"The targets are {labels.dtype} values of a {type(self.loss).__name__} loss.",
                "Only class indices are labels.",
                "Use a cross-entropy risk with integer targets.",
            )
        return labels

    @cached_property
    def num_classes(self) -> int:
        """C, the width of the model's output."""
        batch = next(iter(self.batches))
        with self.numerics(), torch.no_grad():
            z = self.outputs(self.leaves(), batch)
        return 1 if z.ndim == 1 else z.shape[getattr(self.loss, "class_dim", -1)]

    def restricted_to(self, parameters: str | Sequence[str]) -> Risk:
        """The same risk as a function of fewer parameters, such as those of one layer."""
        risk, tensors = copy.copy(self), self._all_tensors()
        risk._select(tensors, matching({name: tensors[name] for name in self.shapes}, parameters))
        return risk

    def first(self, count: int) -> Risk:
        """The risk on the first examples alone."""
        if count < 1:
            raise ArgumentError(
                f"{count} examples were asked for.", "An average needs at least one.", "Ask for a positive number."
            )
        risk = copy.copy(self)
        risk.__dict__.pop("labels", None)  # cached for all examples
        risk.batches = holding(list(_first(self.batches, count)))
        risk.num_examples, risk.num_terms, risk.total_weight, risk._sum = risk._first_evaluation()
        return risk

    def to(self, dtype: torch.dtype) -> Risk:
        """The same risk in another precision: parameters, buffers and data converted, float64 for exact results."""
        if dtype == self.dtype:
            return self
        risk = copy.copy(self)
        tensors = {name: t.to(dtype) if t.is_floating_point() else t for name, t in self._all_tensors().items()}
        risk._select(tensors, list(self.shapes))
        risk.dtype, risk.batches = dtype, self.batches.to(self.device, dtype)
        risk.num_examples, risk.num_terms, risk.total_weight, risk._sum = risk._first_evaluation()
        return risk

    def outputs(self, parameters: Sequence[Tensor], batch: Batch) -> Tensor:
        """f(θ, x) on one batch, for parameters in the order and shapes of `shapes`."""
        tensors = {**self._constants, **dict(zip(self.shapes, parameters, strict=True))}
        if isinstance(batch.inputs, dict):
            z = functional_call(self.model, tensors, (), batch.inputs)
        else:
            z = functional_call(self.model, tensors, (batch.inputs,))
        return _output_tensor(z)

    def leaves(self) -> list[Tensor]:
        """Views of θ, one for each parameter, that autograd can differentiate with respect to."""
        return [piece.detach().requires_grad_() for piece in self.unflatten(self.theta)]

    def unflatten(self, vector: Float[Tensor, " n"]) -> list[Tensor]:
        """Split a vector of parameter space into parameter-shaped views."""
        pieces = vector.split([shape.numel() for shape in self.shapes.values()])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def flatten(self, pieces: Iterable[Tensor | None]) -> Float[Tensor, " n"]:
        """Join parameter-shaped tensors to one vector; a parameter that was not used contributes zeros."""
        zeros = (self.theta.new_zeros(shape) for shape in self.shapes.values())
        dense = (
            (z if p is None else p.to_dense()) for p, z in zip(pieces, zeros, strict=True)
        )  # embeddings may be sparse
        return torch.cat([piece.reshape(-1) for piece in dense])

    def reduced(self, value: Tensor) -> Tensor:
        """The sum of a value over all ranks of the group."""
        if self.group is not None:
            torch.distributed.all_reduce(value, group=self.group)
        return value

    def numerics(
        self, precision: Precision = "highest", *, search: bool = True
    ) -> contextlib.AbstractContextManager[None]:
        """How PyTorch computes inside the engine: exactly, and so that everything can be differentiated twice.

        Without `search`, for passes that are made once, cuDNN takes the convolution it has and looks for no better one.
        """
        recurrent = any(isinstance(module, nn.RNNBase) for module in self.model.modules())
        return numerics(self.device, precision, recurrent=recurrent, search=search)

    def _select(self, tensors: dict[str, Tensor], names: list[str]) -> None:
        """Make θ of the named tensors, and constants of the others."""
        self.shapes: dict[str, torch.Size] = {name: tensors[name].shape for name in names}
        self.theta: Float[Tensor, " n"] = torch.cat([tensors[name].reshape(-1) for name in names])
        self._constants = {name: tensor for name, tensor in tensors.items() if name not in self.shapes}

    def _all_tensors(self) -> dict[str, Tensor]:
        return {**self._constants, **dict(zip(self.shapes, self.unflatten(self.theta), strict=True))}

    def _in_best_layout(self) -> Batches:
        """Images channels-last on a CPU and with TF32, where convolutions are faster so, if the model allows it."""
        convolutional = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        faster = self.device.type == "cpu" or self.tangent_precision == "high"
        if not (faster and convolutional):
            return self.batches
        moved = self.batches.channels_last()
        leaves = [leaf.detach() for leaf in self.leaves()]
        with self.numerics(), torch.no_grad(), untouched_randomness(self.device):
            try:
                self.outputs(leaves, next(iter(moved)).first(1))
            except RuntimeError:  # a view() that wants contiguous images
                return self.batches
        return moved

    def _first_evaluation(self) -> tuple[int, int, float, float]:
        """Evaluate every batch once and the first one twice, and refuse what cannot be analysed."""
        with self._in_step():
            counts = self._counts()
        examples, terms, total, weight = self.reduced(counts).tolist()
        if self.loss.reduction == "sum":
            weight = 1.0
        _check_total(total, weight)
        return int(examples), int(terms), weight, total

    def _counts(self) -> Float[Tensor, "4"]:
        """This rank's examples, terms, Σ tᵢ and Σ wᵢ."""
        counts = torch.zeros(4, dtype=torch.float64, device=self.device)
        leaves = [leaf.detach() for leaf in self.leaves()]
        bar = progress.bar("Evaluating the risk")
        with self.numerics(search=False), torch.no_grad(), untouched_randomness(self.device), bar as shown:
            for number, batch in enumerate(self.batches):
                z = self._checked_outputs(leaves, batch, number)
                values, weights = self.loss.terms(z, batch.targets), self.loss.weights(z, batch.targets)
                sizes = counts.new_tensor([len(batch), len(values)])
                counts += torch.cat([sizes, torch.stack([values.double().sum(), weights.double().sum()])])
                if number == 0:
                    _check_deterministic(z, self.outputs(leaves, batch))
                    self.separable = self._separates(leaves, batch, z, values)
                shown.advance()
        _check_separable(self.separable, self.batches)
        return counts

    def _separates(self, leaves: list[Tensor], batch: Batch, z: Tensor, values: Tensor) -> bool:
        """Whether outputs and terms of the first example are the same without the rest of its batch."""
        alone = batch.first(1)
        try:
            z_alone = self.outputs(leaves, alone)
            terms_alone = self.loss.terms(z[: len(z_alone)], alone.targets)  # of the same outputs: a loss may be zero
        except (RuntimeError, ValueError, IndexError):
            return False
        return _near(z_alone, z[: len(z_alone)]) and _near(terms_alone, values[: len(terms_alone)])

    @contextlib.contextmanager
    def _in_step(self) -> Iterator[None]:
        """Fail on all ranks of the group where one fails, so that none waits for the others for ever."""
        if self.group is None:
            yield
            return
        norm = self.theta.double().norm()
        bounds = torch.stack([norm, -norm, torch.ones_like(norm)])
        try:
            yield
            bounds[2] = 0.0
        finally:
            torch.distributed.all_reduce(bounds, torch.distributed.ReduceOp.MAX, group=self.group)
        largest, smallest, failed = bounds.tolist()
        if failed:
            raise DataError(
                "Another rank of the group refused its part of the data.",
                "A product needs every rank.",
                "Read that rank's own message.",
            )
        if largest != -smallest:
            raise ModelError(
                f"The parameters differ between ranks: ‖θ‖ runs from {-smallest:.9g} to {largest:.9g}.",
                "All ranks must be at the same θ, each with its own part of the data.",
                "Load the same checkpoint on every rank, or broadcast the parameters from rank 0.",
            )

    def _checked_outputs(self, leaves: list[Tensor], batch: Batch, number: int) -> Tensor:
        try:
            z = self.outputs(leaves, batch)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ModelError(
                f"The model failed on batch {number}: {(str(error).splitlines() or [type(error).__name__])[0]}",
                "The inputs do not fit the model in shape or type, or parts of it are on different devices.",
                "Call model(inputs) on one batch by hand and compare the shapes.",
                "Integers are passed on as they are, for embeddings; convert images: x.float().",
            ) from error
        _check_outputs(z, batch, number)
        self.loss.check(z, batch.targets)
        return z


def free_memory(device: torch.device) -> float:
    """Bytes that are free on a device, as far as it tells."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in names else "SC_PHYS_PAGES"
    return float(os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")) if pages in names else 8e9


def _check_precision(precision: str) -> None:
    if precision not in ("highest", "high"):
        raise ArgumentError(
            f"tangent_precision={precision!r} was given.",
            "The precisions are those of torch.set_float32_matmul_precision.",
            '"highest" is float32 throughout, "high" allows TF32 in the linear maps.',
        )


def _check_memory(memory: int | float | None) -> None:
    if memory is not None and not memory >= 0:
        raise ArgumentError(
            f"memory={memory} was given.",
            "It is the number of bytes that the engine may keep between products.",
            "Pass 0 to keep nothing, or None for half of what is free.",
        )


def _check_outputs(z: Tensor, batch: Batch, number: int) -> None:
    if z.dtype not in (torch.float32, torch.float64):
        raise ModelError(
            f"The model returns {z.dtype}.",
            "Outputs in less than float32, or of integers, have no useful second derivative.",
            "Return the logits themselves, in the precision of the parameters.",
            "Leave out casts such as .half() and .argmax() in the forward pass.",
        )
    if not bool(torch.isfinite(z).all()):
        blame = [t for t in batch.tensors()[:-1] if t.is_floating_point() and not bool(torch.isfinite(t).all())]
        raise NumericalError(
            f"The model returns NaN or infinity on batch {number}{', whose inputs hold such values' if blame else ''}.",
            "Derivatives of such outputs mean nothing.",
            "Fill or drop missing values."
            if blame
            else "Look for weights that overflowed, inputs that were not scaled, or a division by zero.",
        )


def _check_deterministic(first: Tensor, second: Tensor) -> None:
    scale = float(first.abs().max())
    difference = float((first - second).abs().max())
    if difference > 1e3 * torch.finfo(first.dtype).eps * max(scale, torch.finfo(first.dtype).tiny):
        raise ModelError(
            f"Two evaluations of the same batch differ by {difference:.3g} (outputs up to {scale:.3g}).",
            "A random network has another curvature in every product, and Lanczos would mix them.",
            "Call model.eval(); turn off functional dropout, noise layers and random crops.",
        )


def _near(a: Tensor, b: Tensor) -> bool:
    """Equal but for the rounding of kernels that depend on the batch's size."""
    allowed = torch.finfo(b.dtype).eps ** 0.5 * float(b.abs().max())
    return a.shape == b.shape and float((a - b).abs().max()) <= allowed


def _check_separable(separable: bool, batches: Batches) -> None:
    if not separable and batches.chunked:
        raise DataError(
            "The terms of an example depend on the other examples of its batch, and the data came without batches.",
            "The risk would depend on how ritz cuts them.",
            "Pass the batches themselves: a list of (inputs, targets) or a DataLoader.",
            "Replace layers that look across the batch, such as batch norm without running statistics.",
        )


def _check_total(total: float, weight: float) -> None:
    if weight == 0:
        raise DataError(
            "All terms have weight zero.",
            "Every label is ignored, or every class weight is zero, so there is nothing to average.",
            "Check ignore_index and the class weights.",
        )
    if not (abs(total) < float("inf") and abs(weight) < float("inf")):
        raise NumericalError(
            f"The loss over all data is {total} / {weight}.",
            "Its derivatives are not defined.",
            "Look for targets with NaN, logs of zero, or a diverged training.",
        )


def _output_tensor(z: Any) -> Tensor:
    z = z.get("logits", z) if isinstance(z, dict) else getattr(z, "logits", z)
    if not isinstance(z, Tensor) or z.ndim == 0:
        raise ModelError(
            f"The model returned a {'scalar' if isinstance(z, Tensor) else type(z).__name__}.",
            "The loss takes one tensor of outputs, the first dimension counting examples.",
            "Wrap the model in a Module whose forward returns that tensor.",
        )
    return z


def _first(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    for batch in batches:
        if count <= 0:
            return
        yield batch.first(count)
        count -= len(batch)
