"""The empirical risk: the one scalar function whose curvature this library studies."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from .batches import Batch, Batches, batches_from, holding
from .errors import ArgumentError, DataError, ModelError, NumericalError
from .losses import CrossEntropy, Loss, loss_from, on_device

Precision = Literal["highest", "high"]


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
        _check_model(model)
        _check_precision(tangent_precision)
        self.model, self.group, self.tangent_precision = model, group, tangent_precision
        self._select(_tensors(model), _matching(model, parameters))
        self.device, self.dtype = self.theta.device, self.theta.dtype
        self.memory = free_memory(self.device) / 2 if memory is None else float(memory)
        self.loss: Loss = on_device(loss_from(loss), self.device)
        self.batches: Batches = batches_from(data, self.device, self.dtype, self.memory)
        self.batches = self._in_best_layout()
        self.num_examples, self.num_terms, self.total_weight, self._sum = self._first_evaluation()

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
        for batch in self.batches:
            with self.numerics():
                z = self.outputs(leaves, batch)
                slope = self.loss.gradient(z.detach(), batch.targets)
                pieces = torch.autograd.grad(z, leaves, slope, allow_unused=True)
            total += self.flatten(pieces)
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
        with torch.no_grad(), self.numerics():
            z = self.outputs(self.leaves(), batch)
        return 1 if z.ndim == 1 else z.shape[getattr(self.loss, "class_dim", -1)]

    def restricted_to(self, parameters: str | Sequence[str]) -> Risk:
        """The same risk as a function of fewer parameters, such as those of one layer."""
        risk = copy.copy(self)
        risk._select(self._all_tensors(), _matching(self.model, parameters))
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
        return torch.cat([(z if p is None else p).reshape(-1) for p, z in zip(pieces, zeros, strict=True)])

    def reduced(self, value: Tensor) -> Tensor:
        """The sum of a value over all ranks of the group."""
        if self.group is not None:
            torch.distributed.all_reduce(value, group=self.group)
        return value

    @contextlib.contextmanager
    def numerics(self, precision: Precision = "highest") -> Iterator[None]:
        """Run with attention that can be differentiated twice, and without TF32 unless asked for.

        Fused attention kernels have no second derivative, and cuDNN's recurrent ones neither.
        """
        matmul = torch.get_float32_matmul_precision()
        recurrent = self.device.type == "cuda" and any(isinstance(m, nn.RNNBase) for m in self.model.modules())
        cudnn = torch.backends.cudnn.flags(enabled=not recurrent, allow_tf32=precision == "high")
        torch.set_float32_matmul_precision(precision)
        try:
            with sdpa_kernel(SDPBackend.MATH), cudnn:
                yield
        finally:
            torch.set_float32_matmul_precision(matmul)

    def _select(self, tensors: dict[str, Tensor], names: list[str]) -> None:
        """Make θ of the named tensors, and constants of the others."""
        self.shapes: dict[str, torch.Size] = {name: tensors[name].shape for name in names}
        self.theta: Float[Tensor, " n"] = torch.cat([tensors[name].reshape(-1) for name in names])
        self._constants = {name: tensor for name, tensor in tensors.items() if name not in self.shapes}

    def _all_tensors(self) -> dict[str, Tensor]:
        return {**self._constants, **dict(zip(self.shapes, self.unflatten(self.theta), strict=True))}

    def _in_best_layout(self) -> Batches:
        """Images channels-last on a CPU, where that makes convolutions about twice as fast and the model allows it."""
        convolutional = any(isinstance(module, nn.Conv2d) for module in self.model.modules())
        if self.device.type != "cpu" or not convolutional:
            return self.batches
        moved = self.batches.channels_last()
        leaves = [leaf.detach() for leaf in self.leaves()]
        with torch.no_grad(), self.numerics(), _untouched_randomness(self.device):
            try:
                self.outputs(leaves, next(iter(moved)).first(1))
            except RuntimeError:  # a view() that wants contiguous images
                return self.batches
        return moved

    def _first_evaluation(self) -> tuple[int, int, float, float]:
        """Evaluate every batch once and the first one twice, and refuse what cannot be analysed."""
        examples = terms = 0
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        leaves = [leaf.detach() for leaf in self.leaves()]
        with torch.no_grad(), self.numerics(), _untouched_randomness(self.device):
            for number, batch in enumerate(self.batches):
                z = self._checked_outputs(leaves, batch, number)
                values, weights = self.loss.terms(z, batch.targets), self.loss.weights(z, batch.targets)
                sums += torch.stack([values.double().sum(), weights.double().sum()])
                examples, terms = examples + len(batch), terms + len(values)
                if number == 0:
                    _check_deterministic(z, self.outputs(leaves, batch))
        total, weight = self.reduced(sums).tolist()
        if self.loss.reduction == "sum":
            weight = 1.0
        _check_total(total, weight)
        return examples, terms, weight, total

    def _checked_outputs(self, leaves: list[Tensor], batch: Batch, number: int) -> Tensor:
        try:
            z = self.outputs(leaves, batch)
        except RuntimeError as error:
            raise ModelError(
                f"The model failed on batch {number}: {str(error).splitlines()[0]}",
                "The inputs do not fit the model, or its parameters and buffers are on different devices.",
                "Call model(inputs) on one batch by hand and compare the shapes.",
            ) from error
        self.loss.check(z, batch.targets)
        if not bool(torch.isfinite(z).all()):
            raise NumericalError(
                f"The model returns NaN or infinity on batch {number}.",
                "Derivatives of such outputs mean nothing.",
                "Look for weights that overflowed, inputs that were not scaled, or a division by zero.",
            )
        return z


def free_memory(device: torch.device) -> float:
    """Bytes that are free on a device, as far as it tells."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in names else "SC_PHYS_PAGES"
    return float(os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")) if pages in names else 8e9


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers, so that neither training nor a forward pass can move the risk."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in named}


def _matching(model: nn.Module, parameters: str | Sequence[str]) -> list[str]:
    globs = [parameters] if isinstance(parameters, str) else list(parameters)
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = {n: p for n, p in trainable.items() if any(fnmatchcase(n, glob) for glob in globs)}
    if not found:
        shown = ", ".join(list(trainable)[:6]) + (", ..." if len(trainable) > 6 else "")
        raise ModelError(
            f"parameters={parameters!r} matches none of the {len(trainable)} trainable parameters.",
            "Curvature is taken with respect to the matching ones that have requires_grad.",
            f"Choose among: {shown}." if trainable else "Unfreeze some: parameter.requires_grad_().",
            "Globs match whole names: '*.weight', 'layer1.*', '*' for all.",
        )
    _check_parameters(found)
    return list(found)


def _check_parameters(parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise ModelError(
                f"Parameter {name} is {parameter.dtype}.",
                "Second derivatives in half precision, of integers or of complex numbers are noise or not defined.",
                "Analyse a float32 copy: copy.deepcopy(model).float().",
                'On a GPU, Risk(..., tangent_precision="high") is fast and keeps the network itself exact.',
            )
        if not bool(torch.isfinite(parameter).all()):
            raise NumericalError(
                f"Parameter {name} holds NaN or infinity.",
                "The network has no curvature there.",
                "Take a checkpoint from before training diverged.",
            )
    kinds = {(str(p.device), str(p.dtype)) for p in parameters.values()}
    if len(kinds) > 1:
        raise ModelError(
            f"The parameters are of several kinds: {', '.join(' '.join(kind) for kind in sorted(kinds))}.",
            "θ is one vector on one device in one precision.",
            "Convert the model with .to(device, dtype), or select parameters of one kind by a glob.",
        )


def _check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"The model is a {type(model).__name__}.",
            "Parameters are found by name in a torch.nn.Module.",
            "Wrap the function in a Module that owns its parameters.",
        )
    for name, module in model.named_modules():
        if module.training and _is_random(module):
            raise ModelError(
                f"Module {name or '(the model itself)'} is a {type(module).__name__} in train mode.",
                "Its output is random or depends on the other examples of the batch, so the risk is not a "
                "function of θ alone.",
                "Call model.eval() before the analysis.",
                "To study train-mode batch norm on purpose, write it as a layer of your own that is deterministic.",
            )


def _is_random(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return True
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0


def _check_precision(precision: str) -> None:
    if precision not in ("highest", "high"):
        raise ArgumentError(
            f"tangent_precision={precision!r} was given.",
            "The precisions are those of torch.set_float32_matmul_precision.",
            '"highest" is float32 throughout, "high" allows TF32 in the linear maps.',
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
    z = getattr(z, "logits", z)
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


@contextlib.contextmanager
def _untouched_randomness(device: torch.device) -> Iterator[None]:
    """Leave the global random state as it was, should the model draw from it."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield
