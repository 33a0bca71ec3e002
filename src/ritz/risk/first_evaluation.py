"""The first evaluation of a risk, which refuses before the first product what cannot be analysed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from .. import progress
from ..errors import (
    DataError,
    ModelError,
    NumericalError,
    OutOfMemoryError,
    PrecisionWarning,
    first_line,
    warn_user,
)
from ..foreign_errors import is_out_of_memory
from .batches import Batch, Batches, Inputs, in_pieces, input_tensors, naming_batch
from .caches import forget_caches, may_have_caches
from .distributed import sum_over_ranks
from .losses import Loss
from .memory import forget_unused
from .model import output_tensor
from .network import Redirected, called
from .original import Original
from .point import Point
from .separability import SLACK, NetworkFunction, Separability, jittered

FixedNetwork = Callable[[Batch], Tensor]  # f(θ, x) at the θ of the risk
WITNESS = 2**16  # numbers of outputs that are kept, to see later whether the loss is still the same
COMPARED_EXAMPLES = 16  # examples on which a model's behaviour is compared: as many as in the trial of paths


@dataclass(frozen=True)
class _Witness:
    """What shows whether a loss is still the same: its terms of outputs that are kept."""

    z: Tensor
    batch: Batch
    terms: Tensor

    def agrees(self, loss: Loss) -> bool:
        """Whether a loss gives these terms."""
        return _alike(loss.terms(self.z, self.batch.targets), self.terms)


@dataclass(frozen=True)
class Evaluation:
    """The sums and counts of one evaluation of all batches."""

    num_examples: int
    num_targets: int
    num_terms: int  # targets with a weight
    total: float  # Σ tᵢ
    weight: float  # Σ wᵢ
    by_example: Tensor | None = None  # Σ tᵢ over the terms of each example of this rank, where they can be told apart
    witness: _Witness | None = None  # a few examples, where their outputs are small

    @cached_property
    def _typical(self) -> Tensor | float:
        """The root mean square of what the examples have: of all data, and so computed once for all batches."""
        return 0.0 if self.by_example is None else self.by_example.square().mean().sqrt()

    def agrees(self, loss: Loss, z: Tensor, batch: Batch, *, root: int = 2) -> bool | None:
        """Whether outputs give the same terms of every example, up to rounding, also of kernels of another size.

        None where examples cannot be told apart. `root` is of ε: how much is taken for rounding.
        """
        own = of_examples(loss.terms(z, batch.targets), len(batch))
        if self.by_example is None or own is None or len(batch.keys) != len(own):  # nothing to compare with
            return None
        expected, eps = self.by_example[batch.keys], torch.finfo(z.dtype).eps
        gap, scale = (own - expected).abs(), expected.abs() + self._typical
        if bool((gap <= eps ** (1 / root) * scale).all()):  # as nearly always: how far rounding goes is not asked
            return True
        rough = of_examples(loss.terms(jittered(z, eps * z.abs()), batch.targets), len(batch))
        drift = 0.0 if rough is None else (rough - own).abs().max()
        return bool((gap <= eps ** (1 / root) * scale + SLACK * drift).all())

    def check(self, loss: Loss, z: Tensor, batch: Batch, point: Point) -> None:
        """Refuse other terms than at the first evaluation, for the same examples in the same batch.

        A model that is random on some examples alone, or now and then, need not show it on the first batch. Other
        kernels may round differently, and some networks make much of it: ε^¼ is not refused.
        """
        if self.agrees(loss, z, batch, root=4) is not False:
            return
        self.check_loss(loss)
        if not self._is_rounding(loss, z, batch, point):
            raise _other_values(batch)

    def check_loss(self, loss: Loss) -> None:
        """Refuse a loss that has become another one, on the outputs of a few examples."""
        if self.witness is not None and not self.witness.agrees(loss):
            raise _other_values(self.witness.batch)

    def _is_rounding(self, loss: Loss, z: Tensor, batch: Batch, point: Point) -> bool:
        """Whether the terms are no further from those of the first evaluation than where θ is rounded otherwise.

        Of a network that fits its data to the last digits, the terms are made of rounding alone.
        """
        assert self.by_example is not None  # else there was nothing to compare with
        terms = lambda outputs: loss.terms(outputs, batch.targets).unflatten(0, (len(batch), -1)).sum(1)
        with torch.no_grad():
            here, there = (terms(outputs) for outputs in point.roundings(batch))
            gap = terms(z) - self.by_example[batch.keys]
        return bool(gap.abs().max() <= (there - here).abs().max())


def _other_values(batch: Batch) -> ModelError:
    return ModelError(
        f"The loss has other values on {batch.name}, than when the risk was built.",
        "Every product must see the same matrix. Something that the loss refers to has changed since, or the model is "
        "random on some examples, or now and then, or computes otherwise where gradients are recorded.",
        "After a change, build the risk anew.",
        "Let the loss keep what it needs: functools.partial(loss, weight), of which a risk has its own copy.",
        "Call model.eval(); turn off functional dropout, noise layers and layers that are skipped at random.",
    )


def examine(outputs: NetworkFunction, leaves: list[Tensor], loss: Loss, batches: Batches) -> tuple[Loss, Batches]:
    """The loss, settled on outputs, and the batches, knowing how they may be cut and joined.

    Whether the terms of an example see each other's rows, only an example of several rows shows. Two evaluations of the
    first batch must agree, and two of the loss on the same outputs.
    """
    network = lambda batch: outputs(leaves, batch)
    first = next(iter(batches))
    inputs = [(x, x._version) for x in first.tensors()]
    z = _checked_outputs(network, loss, first, 0)
    _check_deterministic(z, network(first), overwritten=any(x._version != before for x, before in inputs))
    with naming_batch("the loss on", first):
        _repeatable_terms(loss, z, first.targets)
        _warn_of_precision(loss, z, first.targets)
        longest = max([first, *(batches.held or ())], key=lambda batch: batch.targets[:1].numel())
        loss = loss.settled(z if longest is first else network(longest), longest.targets)
    return loss, Separability(outputs, leaves, loss).batches_with_findings(batches)


def examine_in_memory(
    outputs: NetworkFunction, leaves: list[Tensor], loss: Loss, batches: Batches
) -> tuple[Loss, Batches]:
    """`examine`, on smaller batches if memory does not suffice for those given and cutting them changes nothing."""
    tried, given = batches, len(next(iter(batches)))
    size = given
    while True:
        try:
            settled, result = examine(outputs, leaves, loss, tried)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            message, size = first_line(error), size // 2
        forget_unused(leaves[0].device)  # outside of the handler, whose traceback holds what filled the memory
        if given == 1:
            raise _no_room(given, message, "It is the smallest batch that there is.")
        if size < 2 or not all(batch.countable() for batch in batches):
            raise _no_room(
                given,
                message,
                "Not even two of its examples fit, so ritz cannot find out whether the batch may be cut.",
            )
        tried = replace(batches.regrouped(size), ours=False)
    if tried is not batches and not (result.separable and result.joinable):
        raise _no_room(given, message, "Their terms depend on each other, so that the batch cannot be cut.")
    return settled, result


def forget_tables(original: Original, batches: Batches, one_pass: Callable[[], AbstractContextManager[None]]) -> bool:
    """Empty tables that the model computed from its parameters before; returns whether there were any."""
    if not may_have_caches(original):
        return False
    whole = next(iter(batches))
    few = [whole.first(COMPARED_EXAMPLES), whole.first(1)] if whole.countable() else []
    for batch in (*few, whole):  # what memory holds; all of it for a model that takes nothing else
        forward = lambda own=batch: output_tensor(called(original.model, own.inputs), len(own))
        with suppress(Exception), one_pass():  # reported where the risk is evaluated
            return forget_caches(original, forward)
    return False


def channels_last(network: FixedNetwork, batches: Batches, device: torch.device) -> Batches:
    """The batches with images stored channels-last, if the model gives the same outputs for them.

    It need not: a view of memory as it lies, by strides that are written out or in a kernel of its own, is another one.
    """
    first = next(iter(batches))
    # a GPU chooses its kernels for every size of a batch anew: no other than the evaluation's
    few = first.first(1) if device.type == "cpu" else first
    try:
        moved = network(few.channels_last())
    except RuntimeError:  # a view() that requires contiguous images
        return batches
    own = network(few)
    near = float((moved - own).norm()) <= torch.finfo(own.dtype).eps ** 0.5 * float(own.norm())
    return batches.channels_last() if near else batches


def _no_room(size: int, message: str, why: str) -> OutOfMemoryError:
    smaller = ("Pass smaller batches yourself: the risk is then that of these batches.",) if size > 1 else ()
    return OutOfMemoryError(
        f"There is no memory to evaluate the model on a batch of {size} example{'s' if size > 1 else ''}: {message}",
        why,
        *smaller,
        "Free memory that other objects hold, or use a device with more memory.",
    )


def evaluate(network: FixedNetwork, loss: Loss, batches: Batches, device: torch.device) -> Evaluation:
    """Evaluate every batch of this rank once."""
    sums = torch.zeros(5, dtype=torch.float64, device=device)  # examples, targets, terms, Σ tᵢ, Σ wᵢ

    by_example: list[Tensor | None] = []
    witness: _Witness | None = None

    def own_sums(batch: Batch, number: int) -> Tensor:
        nonlocal witness
        z = _checked_outputs(network, loss, batch, number)
        with naming_batch("the loss on", batch):
            values, weights = _repeatable_terms(loss, z, batch.targets), loss.weights(z, batch.targets)
        witness = witness or _witness(loss, z, batch, batches.separable)
        by_example.append(of_examples(values, len(batch)))
        sizes = sums.new_tensor([len(batch), len(values)])
        return torch.cat([sizes, torch.stack([part.double().sum() for part in (weights != 0, values, weights)])])

    with progress.bar("Evaluating the risk") as bar:
        for number, batch in enumerate(batches):
            for part in in_pieces(partial(own_sums, number=number), batch, divisible=batches.separable):
                sums += part
            bar.advance()
    examples, targets, terms, total, weight = sums.tolist()
    known = [values for values in by_example if values is not None]
    together = torch.cat(known) if len(known) == len(by_example) else None
    return Evaluation(int(examples), int(targets), int(terms), total, weight, together, witness)


def _witness(loss: Loss, z: Tensor, batch: Batch, separable: bool) -> _Witness | None:
    """A few examples, or all of the batch where outputs are not rows of examples or their terms depend on others."""
    if separable and len(z) == len(batch):
        batch = batch.first(max(1, WITNESS // max(1, z[:1].numel())))
        z = z[: len(batch)]
    if z.numel() > WITNESS:
        return None
    outputs, targets = z.clone(), batch.targets.clone()
    return _Witness(outputs, Batch((), targets, batch.keys), loss.terms(outputs, targets).clone())


def of_examples(terms: Tensor, count: int) -> Tensor | None:
    """The sum of the terms of each example, given example by example; None if examples differ in their number."""
    return None if len(terms) % count else terms.unflatten(0, (count, -1)).sum(1)


def over_ranks(own: Evaluation, loss: Loss, device: torch.device, group: Any) -> Evaluation:
    """The evaluations of all ranks as one; refuses one without an average, unless the loss is a sum."""
    sums = [own.num_examples, own.num_targets, own.num_terms, own.total, own.weight]
    summed = sum_over_ranks(torch.tensor(sums, dtype=torch.float64, device=device), group)
    examples, targets, terms, total, weight = summed.tolist()
    _check_total(total, 1.0 if loss.reduction == "sum" else weight)
    return Evaluation(int(examples), int(targets), int(terms), total, weight, own.by_example, own.witness)


def agreed(batches: Batches, device: torch.device, group: Any) -> Batches:
    """The batches of this rank, taken as independent only if those of all ranks are, so that all ranks act alike."""
    doubts = torch.tensor([not batches.separable, not batches.joinable], dtype=torch.float64, device=device)
    separable, joinable = (sum_over_ranks(doubts, group) == 0).tolist()
    return replace(batches, separable=separable, joinable=joinable)


def _checked_outputs(network: FixedNetwork, loss: Loss, batch: Batch, number: int) -> Tensor:
    try:
        z = network(batch)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"The model failed on batch {number}: {first_line(error)}",
            "The inputs do not fit the model in shape or type, or parts of it are on different devices.",
            *_ways_to_call(error, batch),
            *_ways_to_parameters(error),
            "Call model(inputs) on one batch by hand and compare the shapes.",
            "Integers are passed on as they are, for embeddings; convert images: x.float().",
        ) from error
    _check_outputs(z, batch, number)
    with naming_batch("the loss on", batch):
        loss.check(z, batch.targets)
    return z


def _ways_to_call(error: Exception, batch: Batch) -> list[str]:
    """Ways to pass inputs to a model that was called with too few, too many or wrong arguments."""
    if not isinstance(error, TypeError) or "argument" not in str(error):
        return []
    if isinstance(batch.inputs, Mapping) and len(batch.inputs) == 1:
        (name,) = batch.inputs
        return [f"A dict is passed by names. For one input, pass pairs: [(batch[{name!r}], targets), ...]."]
    return [
        "For several inputs, give ((a, b), y) for model(a, b), or ({'a': a, 'b': b}, y) for model(a=a, b=b).",
        "For inputs as one dict, a Module around it: def forward(self, **batch): return self.model(batch).",
    ]


def _ways_to_parameters(error: Exception) -> list[str]:
    """A way to a parameter for a model that asks whether it is one, or assigns it, as PyTorch's messages show."""
    if "nn.Parameter" not in str(error):
        return []
    return [
        "Read parameters as self.weight, not by self.get_parameter('weight'), and assign none: in ritz they are plain "
        "tensors while a model runs."
    ]


def _check_outputs(z: Tensor, batch: Batch, number: int) -> None:
    if z.dtype not in (torch.float32, torch.float64):
        raise ModelError(
            f"The model returns {z.dtype}.",
            "Outputs in less than float32, or of integers, have no useful second derivative.",
            "Return the logits themselves, in the precision of the parameters.",
            "Leave out casts such as .half() and .argmax(), and torch.autocast, in the forward pass.",
        )
    if not bool(torch.isfinite(z).all()):
        blame = _not_finite(batch)
        held = f", whose inputs hold such values: {blame}" if blame else ""
        raise NumericalError(
            f"The model returns NaN or infinity on batch {number}{held}.",
            "Derivatives of such outputs are meaningless.",
            "Fill or drop missing values."
            if blame
            else "Look for weights that overflowed, inputs that were not scaled, or a division by zero.",
        )


def _not_finite(batch: Batch) -> str:
    """The first input that holds NaN or infinity and its example, in words; empty if there is none."""
    for name, x in zip(_names_of(batch.inputs), input_tensors(batch.inputs), strict=True):
        if not x.is_floating_point() or bool(torch.isfinite(x).all()):
            continue
        if not batch.countable():  # it is not known which entries belong to which example
            return name
        row = int((~torch.isfinite(x)).nonzero()[0, 0])
        known = f", which is example {int(batch.keys[row])} of the data" if len(batch.keys) else ""
        return f"{name} of its example {row}{known}"
    return ""


def _names_of(inputs: Inputs) -> list[str]:
    """What a message calls each tensor of the inputs."""
    if isinstance(inputs, dict):
        return [repr(name) for name in inputs]
    return [f"input {place}" for place in range(len(inputs))] if isinstance(inputs, tuple) else ["the inputs"]


def _check_deterministic(first: Tensor, second: Tensor, *, overwritten: bool) -> None:
    scale = float(first.abs().max())
    difference = float((first - second).abs().max())
    if difference > 1e3 * torch.finfo(first.dtype).eps * max(scale, torch.finfo(first.dtype).tiny):
        seen = f"Two evaluations of the same batch differ by {difference:.3g} (outputs up to {scale:.3g})."
        if overwritten:
            raise ModelError(
                seen,
                "The model writes into its inputs, so that the next product would see other data.",
                "Let its first operation make a new tensor: x = x * 0.5, not x *= 0.5 or x.mul_(0.5).",
                "Or begin its forward pass with x = x.clone().",
            )
        raise ModelError(
            seen,
            "A random network has a different curvature in every product, and Lanczos would mix them.",
            "Call model.eval(); turn off functional dropout, noise layers and random crops.",
        )


def _repeatable_terms(loss: Loss, z: Tensor, y: Tensor) -> Tensor:
    """The terms; refuses a loss with others when it is called again: random, with a state, overwriting the targets."""
    versions = z._version, y._version
    first, second = loss.terms(z, y).clone(), loss.terms(z, y)
    if (z._version, y._version) != versions:
        raise ModelError(
            "The loss writes into its outputs or targets.",
            "It is called several times on the same batch, and would see other numbers every time.",
            "Let it make new tensors: y * 0.5, not y.mul_(0.5).",
        )
    if not _alike(first, second):
        raise ModelError(
            f"The loss gives two results for the same outputs and targets: {_sum(first)}, then {_sum(second)}.",
            "Every product must see the same matrix; the loss draws random numbers, or changes what it keeps.",
            "Draw the numbers once, and pass them with the targets: (x, torch.stack((y, noise), -1)).",
            "Leave out dropout; put a loss module into evaluation mode: loss.eval().",
            "Fix what moves from call to call, such as a running mean or the weight of a schedule.",
        )
    return second


def _alike(first: Tensor, second: Tensor) -> bool:
    """Whether a loss that was called twice on the same outputs gives the same terms, up to rounding."""
    size = lambda t: float(t.abs().nan_to_num(0.0, 0.0).norm())
    return first.shape == second.shape and size(first - second) <= 1e3 * torch.finfo(first.dtype).eps * size(first)


def _sum(terms: Tensor) -> str:
    return f"{float(terms.sum()):.6g} in {len(terms)} terms"


def _warn_of_precision(loss: Loss, z: Tensor, y: Tensor) -> None:
    """Warn of a loss that computes with less precision than its outputs have."""
    with Redirected({}, z.dtype, settled=False) as mode:
        loss.terms(z, y)
    if mode.lowest is not None:
        dtype, function = mode.lowest
        warn_user(
            f"The loss computes in {dtype} inside (first in {function}), though its outputs are {z.dtype}: derivatives "
            "are only as accurate as the lower of the two.",
            PrecisionWarning,
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
