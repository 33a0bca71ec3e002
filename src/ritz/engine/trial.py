"""The probe: which way to compute a product is right, and which of those is fast, on this model and this machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ModelError
from ..risk.batches import Batch
from ..risk.risk import Risk
from .paths import DoesNotApply, Linearization, Map, add_product

FASTER = 1.5  # how much faster PyTorch's own path must be to be taken: the choice should not hang on noise


@dataclass(frozen=True)
class Path:
    """One way to compute a product, by name."""

    name: str
    linearize: Linearization
    keeps: bool = True  # whether its linearisation is worth keeping between products


def paths(linearize: Callable[..., Map], forward: Linearization | None) -> list[Path]:
    """The ways to try: with the efficient rules, by PyTorch alone, and by forward differentiation."""
    found = [
        Path("kept graph, efficient rules", partial(linearize, rules=True)),
        Path("kept graph", partial(linearize, rules=False)),
    ]
    return found if forward is None else [*found, Path("forward over reverse", forward, keeps=False)]


@dataclass(frozen=True)
class Probe:
    """What the probe of the paths found."""

    path: Path
    seconds: float  # of one product with the first batch
    disagreement: float  # relative, with PyTorch's own derivatives
    tangent_error: float  # relative, of tangent_precision="high" against "highest"
    set_up_seconds: float
    batch_bytes: int  # kept by the linearisation of the first batch
    example_bytes: float  # the same, for each of its examples


@dataclass(frozen=True)
class _Trial:
    """One path tried on the first batch."""

    path: Path
    result: Tensor
    seconds: float
    set_up_seconds: float
    tangent_error: float
    kept_bytes: int


def probed(risk: Risk, candidates: list[Path]) -> Probe:
    """Try the paths on the first batch and take the fastest of those that agree with PyTorch's own derivatives."""
    batch = next(iter(risk.batches))
    rows = torch.randn(2, risk.size, generator=torch.Generator().manual_seed(0), dtype=risk.dtype).to(risk.device)
    trials: list[_Trial] = []
    failures: list[str] = []
    for path in candidates:
        if trials and not path.keeps:
            continue  # forward differentiation is the way out, not the way
        try:
            trials.append(_trial(risk, batch, path, rows))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # PyTorch's NotImplementedError is one, too
            failures.append(f"{path.name}: {str(error).splitlines()[0]}")
    if not trials:
        raise ModelError(
            "The network cannot be differentiated as asked. " + "; ".join(failures),
            "Some operation in it has no second derivative in PyTorch.",
            "Replace the operation; a custom autograd Function needs a differentiable backward.",
            "Leave out the parameters in front of it: Risk(..., parameters=...).",
        )
    return _chosen(trials, len(batch))


def _trial(risk: Risk, batch: Batch, path: Path, rows: Float[Tensor, "2 n"]) -> _Trial:
    saved: dict[int, int] = {}
    product: list[Map] = []
    results = torch.zeros_like(rows)
    with risk.numerics():
        with _counted_into(saved, risk, batch) if path.keeps else contextlib.nullcontext():
            set_up = seconds_of(risk, lambda: product.append(path.linearize(risk, batch)))
        seconds = _fastest(risk, product[0], rows, results)
    _check_symmetric(rows, results)
    error = 0.0
    if risk.tangent_precision != "highest":
        fast = torch.zeros_like(rows)
        with risk.numerics(risk.tangent_precision):
            seconds = _fastest(risk, product[0], rows, fast)
        error = distance(fast, results)
    return _Trial(path, results, seconds, set_up, error, sum(saved.values()))


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


def _chosen(trials: list[_Trial], num_examples: int) -> Probe:
    """The first path that agrees with PyTorch's own derivatives, which come last, unless these are clearly faster."""
    reference = trials[-1]
    disagreements = [distance(trial.result, reference.result) for trial in trials]
    best, disagreement = next(
        (t, d) for t, d in zip(trials, disagreements, strict=True) if d <= tolerance(t.result.dtype)
    )
    if FASTER * reference.seconds < best.seconds:
        best, disagreement = reference, 0.0
    return Probe(
        path=best.path,
        seconds=best.seconds,
        disagreement=disagreement,
        tangent_error=best.tangent_error,
        set_up_seconds=best.set_up_seconds,
        batch_bytes=best.kept_bytes,
        example_bytes=best.kept_bytes / num_examples,
    )


def tolerance(dtype: torch.dtype) -> float:
    """How far two ways to compute the same product may lie apart, relative."""
    return torch.finfo(dtype).eps ** 0.5


def distance(a: Tensor, b: Tensor) -> float:
    """‖a - b‖ / ‖b‖, absolute where b is zero."""
    scale = float(b.norm())
    return float((a - b).norm()) / scale if scale > 0 else float((a - b).norm())


def seconds_of(risk: Risk, work: Callable[[], Any]) -> float:
    """How long a piece of work takes until the device has finished it."""
    _synchronize(risk)
    start = time.perf_counter()
    work()
    _synchronize(risk)
    return time.perf_counter() - start


def _synchronize(risk: Risk) -> None:
    if risk.device.type == "cuda":
        torch.cuda.synchronize(risk.device)


@contextlib.contextmanager
def _counted_into(saved: dict[int, int], risk: Risk, batch: Batch) -> Iterator[None]:
    """Count the bytes that autograd keeps, by storage; parameters and data are there anyway and do not count."""
    present = {t.untyped_storage().data_ptr() for t in [risk.theta, *batch.tensors()]}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in present:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
