"""The trial of the paths on the first batch: which are right, and which of those is fast on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError
from ..risk import Risk
from ..risk.batches import Batch
from .agreement import distance, tolerance
from .batching import add_product
from .paths import DoesNotApply, Map, Path
from .timing import seconds_of

FASTER = 1.5  # how much faster PyTorch's own path must be to be taken: the choice should not hang on noise


@dataclass(frozen=True)
class Trial:
    """The path that the trial chose, and what it saw of it."""

    path: Path
    seconds: float  # of one product with the first batch
    disagreement: float | None  # relative, with the reference; None where there was no other path to compare
    tangent_error: float  # relative, of tangent_precision="high" against "highest"
    set_up_seconds: float
    batch_bytes: int  # kept by the linearisation of the first batch
    example_bytes: float  # the same, for each of its examples


@dataclass(frozen=True)
class _Attempt:
    """One path on the first batch."""

    path: Path
    result: Tensor
    seconds: float
    set_up_seconds: float
    tangent_error: float
    kept_bytes: int


def try_paths(risk: Risk, paths: list[Path]) -> Trial:
    """Try the paths on the first batch and take the fastest of those that agree with PyTorch's own derivatives."""
    batch = next(iter(risk.batches))
    rows = torch.randn(2, risk.size, generator=torch.Generator().manual_seed(0), dtype=risk.dtype).to(risk.device)
    attempts: list[_Attempt] = []
    failures: list[str] = []
    for path in paths:
        if attempts and not path.keeps:
            continue  # forward differentiation is the way out, not the way
        try:
            attempts.append(_attempt(risk, batch, path, rows))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # PyTorch's NotImplementedError is one, too
            failures.append(f"{path.name}: {str(error).splitlines()[0]}")
    if not attempts:
        raise ModelError(
            "The network cannot be differentiated as asked. " + "; ".join(failures),
            "Some operation in it has no second derivative in PyTorch.",
            "Replace the operation; a custom autograd Function needs a differentiable backward.",
            "Leave out the parameters in front of it: Risk(..., parameters=...).",
        )
    return _best(attempts, len(batch))


def _attempt(risk: Risk, batch: Batch, path: Path, rows: Float[Tensor, "2 n"]) -> _Attempt:
    saved: dict[int, int] = {}
    product: list[Map] = []
    results = torch.zeros_like(rows)
    with risk.numerics():
        with _count_bytes(saved, risk, batch) if path.keeps else contextlib.nullcontext():
            set_up = seconds_of(risk, lambda: product.append(path.linearize(risk, batch)))
        seconds = _fastest(risk, product[0], rows, results)
    _check_symmetric(rows, results)
    error = 0.0
    if risk.tangent_precision != "highest":
        fast = torch.zeros_like(rows)
        with risk.numerics(risk.tangent_precision):
            seconds = _fastest(risk, product[0], rows, fast)
        error = distance(fast, results)
    return _Attempt(path, results, seconds, set_up, error, sum(saved.values()))


def _fastest(risk: Risk, product: Map, rows: Float[Tensor, "2 n"], results: Float[Tensor, "2 n"]) -> float:
    """Seconds of the faster of two products: the first warms up, either may be disturbed."""
    halves = (slice(0, 1), slice(1, 2))
    return min(seconds_of(risk, lambda i=i: add_product(risk, results[i], product, rows[i])) for i in halves)  # type: ignore[misc]


def _check_symmetric(rows: Float[Tensor, "2 n"], results: Float[Tensor, "2 n"]) -> None:
    """vᵀAw = wᵀAv holds only if every operation was differentiated completely.

    A custom autograd Function whose backward is a constant to autograd would silently lose its terms.
    """
    v, w = rows.double()
    Av, Aw = results.double() / (float(results.abs().max()) or 1.0)  # whose squares do not vanish
    asymmetry = abs(float(w @ Av - v @ Aw))
    if asymmetry > 30 * torch.finfo(rows.dtype).eps ** 0.5 * float(Av.norm() + Aw.norm()):
        raise DoesNotApply("its products are not symmetric, so some backward pass is not differentiable")


def _best(attempts: list[_Attempt], num_examples: int) -> Trial:
    """The first path that agrees with the reference, unless that is clearly faster; the first where there is none."""
    reference = next((attempt for attempt in attempts if attempt.path.reference), None)
    best = attempts[0]
    if reference is not None:
        best = next(a for a in attempts if distance(a.result, reference.result) <= tolerance(a.result.dtype))
        best = reference if FASTER * reference.seconds < best.seconds else best
    compared = reference is not None and best is not reference
    return Trial(
        path=best.path,
        seconds=best.seconds,
        disagreement=distance(best.result, reference.result) if compared and reference is not None else None,
        tangent_error=best.tangent_error,
        set_up_seconds=best.set_up_seconds,
        batch_bytes=best.kept_bytes,
        example_bytes=best.kept_bytes / num_examples,
    )


@contextlib.contextmanager
def _count_bytes(saved: dict[int, int], risk: Risk, batch: Batch) -> Iterator[None]:
    """Count the bytes that autograd keeps, by storage; parameters and data are there anyway and do not count.

    What is handed back has no history: an operation that saves its own output would hold itself alive for ever.
    """
    present = {t.untyped_storage().data_ptr() for t in [risk.theta, *batch.tensors()]}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in present:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
