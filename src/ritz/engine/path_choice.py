"""The trial of the paths on the first batch that tells: the first path that is right is chosen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from ..errors import ModelError, first_line
from ..foreign_errors import is_out_of_memory
from ..risk import Risk
from ..risk.batches import Batch
from ..risk.losses import no_second_derivative
from ..risk.precision import Precision
from .agreement import tolerance
from .columns import pass_bytes
from .curvatures import Contribution, Curvature, Map
from .custom_functions import check_custom_functions
from .linearized import DoesNotApply, ReverseMode
from .paths import Path
from .pieces import inner, norm, random_row

ROUNDINGS = 1000  # times the rounding seen in a product, which does not show the rounding of what went before
MANY_THETAS = 20  # times the bytes of θ: a graph that keeps more has hardly anything but examples in it
ASYMMETRY = 30  # times √ε: how far vᵀAw and wᵀAv may lie apart


@dataclass(frozen=True)
class Trial:
    """The path that the trial chose, and what it measured."""

    path: Path
    disagreement: float | None  # relative to the reference; None where there was no other path to compare
    tangent_error: float | None  # relative, of tangent_precision="high" against "highest"
    seconds: float  # of one product with the trial's part of the first batch
    example_bytes: float  # kept by a linearisation for each example
    fixed_bytes: float  # kept whatever the number of examples, such as weights that a batch norm has scaled

    def graph_bytes(self, count: int) -> float:
        """What a linearisation of so many examples keeps."""
        return self.fixed_bytes + self.example_bytes * count


def try_paths(
    risk: Risk, curvature: Curvature, batch: Batch, paths: Sequence[Path]
) -> tuple[Trial, Contribution | None]:
    """The first path that agrees with PyTorch's own derivatives, and the contribution of the batch by it.

    Where the loss has no slope on this batch, all its products may vanish, right or wrong: examples of another one are
    tried in its place, and None is returned for their contribution. Only one vector is held for the comparison: a
    path's product is subtracted from the reference's in place.
    """
    telling = _with_slope(risk, batch)
    trial, contribution = _try_paths(risk, curvature, telling, paths)
    return trial, contribution if telling is batch else None


def _with_slope(risk: Risk, batch: Batch) -> Batch:
    """The batch; where the loss has no slope on it, as many examples of another one on which it has."""
    for own in chain([batch], risk.batches):
        slopes = _slopes(risk, own)
        if bool(slopes.any()):
            if own is batch or not risk.separable or len(slopes) != len(own):
                return own
            return own.rows(slopes.reshape(len(slopes), -1).any(1).nonzero()[: len(batch), 0])
    return batch


def _slopes(risk: Risk, batch: Batch) -> Tensor:
    """Where the loss of a batch has a slope."""
    with risk.numerics(), torch.no_grad():
        z = risk.outputs([leaf.detach() for leaf in risk.leaves()], batch)
    with risk.numerics():
        return risk.loss.gradient(z, batch.targets) != 0


def _try_paths(risk: Risk, curvature: Curvature, batch: Batch, paths: Sequence[Path]) -> tuple[Trial, Contribution]:
    attempts = _Attempts(risk, curvature, batch)
    reference = next((path for path in paths if path.reference), None)
    if reference is not None:
        attempts.run_reference(reference)
    for path in paths if risk.path is None else [path for path in paths if path.name == risk.path]:
        if path.keeps or risk.path or not attempts.has_reference:  # forward mode is the last resort
            result = attempts.run(path)
            if result is not None:
                return result
    if curvature.of_loss:
        _check_loss(risk, batch)
    raise _no_path(risk, attempts.failures)


def _no_path(risk: Risk, failures: Sequence[str]) -> ModelError:
    seen = "The network cannot be differentiated as asked. " + "; ".join(failures)
    if risk.path is not None:
        return ModelError(
            seen,
            f"path={risk.path!r} was given, so that no other way was tried.",
            "Leave it out: of all paths, the first that is right is taken.",
        )
    return ModelError(
        seen,
        "Some operation in it has no second derivative in PyTorch.",
        "Replace the operation; a custom autograd Function needs a differentiable backward.",
        "Leave out the parameters that come before it: Risk(..., parameters=...).",
    )


def _check_loss(risk: Risk, batch: Batch) -> None:
    """Raise an error that names the loss, if it is the loss that fails."""
    with risk.numerics(), torch.no_grad():
        z = risk.outputs([leaf.detach() for leaf in risk.leaves()], batch)
    try:
        with risk.numerics():
            risk.loss.curvature(z, batch.targets)(torch.ones_like(z))
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise no_second_derivative(error) from error


class _Attempts:
    """The paths on one batch, one after the other."""

    def __init__(self, risk: Risk, curvature: Curvature, batch: Batch) -> None:
        self.risk, self.curvature, self.batch = risk, curvature, batch
        self.failures: list[str] = []
        self._reference: Path | None = None  # the path that there is to compare with
        self._expected: Tensor | None = None  # A v by it
        self._scale = 0.0  # its norm
        self._seconds = 0.0  # of the last product

    @property
    def has_reference(self) -> bool:
        """Whether there is a product to compare with."""
        return self._expected is not None

    def run_reference(self, path: Path) -> None:
        """PyTorch's own product, if it has one that is right."""
        try:
            contribution = self._contribution(path, kept=False)
            self._check_complete(contribution)
            self._expected = self._symmetric_product(path, contribution, contribution.finish)
            del contribution
            self._reference, self._scale = path, norm(self._expected)
        except RuntimeError as error:  # PyTorch's NotImplementedError is one, too
            self._note(path, error)

    def run(self, path: Path) -> tuple[Trial, Contribution] | None:
        """The contribution by this path, if it agrees with the reference; without one, if it is symmetric at least."""
        if path.reference and not self.has_reference:
            return None  # it has already failed
        try:
            product = self._contribution(path)
            disagreement = self._disagreement(path, product)
        except RuntimeError as error:
            self._note(path, error)
            return None
        if disagreement is not None and not disagreement <= tolerance(self.risk.dtype):
            self.failures.append(f"{path.name}: differs from PyTorch's own derivatives by {disagreement:.1e}")
            self._put_back(product)
            return None
        self._expected = None  # it is no longer needed
        tangent_error = None if self.risk.tangent_precision == "highest" else self._tangent_error(product)
        seconds = self._seconds
        return Trial(path, disagreement, tangent_error, seconds, *self._bytes_kept(path, product)), product

    def _bytes_kept(self, path: Path, product: Contribution) -> tuple[float, float]:
        """What a linearisation keeps for each example, and beside these: half of the examples tell, where it matters.

        A few examples keep little beside a large θ, and would seem to take many times what they do. It does not matter
        where even so one pass may take all examples.
        """
        risk, count, kept = self.risk, len(self.batch), product.linearized.kept_bytes()
        matters = risk.num_examples * kept / count > pass_bytes(risk.device, risk.budget.total)
        if not (risk.separable and matters) or count < 2 or kept > MANY_THETAS * risk.theta.nbytes:
            return kept / count, 0.0
        few = self.batch.first(count // 2)
        try:
            half = self._contribution(path, few)
            self._add(half, 1, torch.zeros_like(self.risk.theta)[None])  # which shows what it keeps
        except (RuntimeError, MemoryError):  # two graphs are too many: what one keeps is a bound
            return kept / count, 0.0
        each = max(0.0, (kept - half.linearized.kept_bytes()) / (count - len(few)))
        return each, max(0.0, kept - each * count)

    def _put_back(self, product: Map) -> None:
        """The reference's product again, from which this one was subtracted; anew where NaN has taken its place."""
        assert self._expected is not None and self._reference is not None
        if math.isfinite(norm(self._expected)):
            self._add(product, 1, self._expected)
        else:
            self.run_reference(self._reference)

    def _contribution(self, path: Path, batch: Batch | None = None, *, kept: bool = True) -> Contribution:
        with self.risk.numerics():
            linearized = path.linearize(self.risk, batch or self.batch, self.curvature.order)
            return Contribution(linearized, self.curvature.contribution(linearized), kept)

    def _disagreement(self, path: Path, product: Contribution) -> float | None:
        if path.reference:
            self._add(product, 1, torch.zeros_like(self.risk.theta)[None])  # which shows what it keeps
            return None
        if self._expected is None:
            self._check_complete(product)
            self._symmetric_product(path, product, product)
            return None
        self._add(product, -1, self._expected)
        difference = norm(self._expected)
        return difference / self._scale if self._scale > 0 else difference

    def _check_complete(self, product: Contribution) -> None:
        if isinstance(product.linearized, ReverseMode):
            check_custom_functions(product.linearized)

    def _add(
        self, product: Map, factor: int, total: Tensor, *, seed: int = 1, precision: Precision = "highest"
    ) -> None:
        v = random_row(self.risk, seed).mul_(factor)
        with self.risk.numerics(precision):
            self._seconds = _seconds_of(self.risk, lambda: product(v, total))

    def _symmetric_product(self, path: Path, first: Map, second: Map) -> Tensor:
        """A v, checked to satisfy vᵀAw = wᵀAv, which holds only if every operation was differentiated completely.

        A custom autograd Function whose backward is a constant to autograd would silently lose its terms.
        """
        forms, lengths, Av = [], [], torch.zeros_like(self.risk.theta)[None]
        for product, seed, other in ((first, 2, 1), (second, 1, 2)):
            self._add(product, 1, Av.zero_(), seed=seed)
            forms.append(inner(random_row(self.risk, other), Av))
            lengths.append(norm(Av))
        if not math.isfinite(sum(lengths)):  # of a derivative that PyTorch does not have right
            raise DoesNotApply("its products hold NaN or infinity")
        gap = abs(forms[0] - forms[1])
        if gap > ASYMMETRY * tolerance(self.risk.dtype) * sum(lengths) and gap > ROUNDINGS * self._rounding(path):
            raise DoesNotApply("its products are not symmetric, so some backward pass is not differentiable")
        return Av

    def _rounding(self, path: Path) -> float:
        """The rounding of vᵀAw, as the difference between A (3 v) and 3 A v.

        The products of a matrix that is zero, such as that of a bias before a normalisation, are mere rounding, and not
        symmetric.
        """
        product, total = self._contribution(path), 0.0
        for seed, other in ((2, 1), (1, 2)):
            rest = torch.zeros_like(self.risk.theta)[None]
            self._add(product, 3, rest, seed=seed)
            self._add(product, 1, rest.div_(-3), seed=seed)
            total += norm(rest) * norm(random_row(self.risk, other))
        return total

    def _tangent_error(self, product: Map) -> float:
        """The relative difference of a product in TF32 from one in float32."""
        total = torch.zeros_like(self.risk.theta)[None]
        self._add(product, 1, total)
        scale = norm(total)
        self._add(product, -1, total, precision=self.risk.tangent_precision)
        return norm(total) / scale if scale > 0 else norm(total)

    def _note(self, path: Path, error: RuntimeError) -> None:
        if is_out_of_memory(error):
            raise error
        self.failures.append(f"{path.name}: {first_line(error)}")


def _seconds_of(risk: Risk, work: Callable[[], object]) -> float:
    """How long a piece of work takes, until the device of the risk has finished it."""
    _synchronize(risk)
    start = time.perf_counter()
    work()
    _synchronize(risk)
    return time.perf_counter() - start


def _synchronize(risk: Risk) -> None:
    if risk.device.type == "cuda":
        torch.cuda.synchronize(risk.device)
