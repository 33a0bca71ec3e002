"""The engine: products with curvature matrices, fast because the matrix does not change.

Every Krylov method multiplies the same matrix tens or thousands of times. What does not depend on the vector - the
forward pass, the first backward pass, the loss's own Hessian - is therefore computed once per batch and kept, as
the graph of Jᵀu or of ∇R, within a memory budget. A product then costs 6 matrix products per layer (H, E) or 4
(G), where a gradient costs 3: the floors are 2 and 4/3 gradients.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from .batches import Batch, Batches
from .errors import ModelError
from .risk import Risk
from .rules import EfficientRules

Pieces = Sequence[Tensor | None]  # parameter-shaped; None where a parameter plays no part
Map = Callable[[list[Tensor], bool], Pieces]  # tangent pieces (with a leading dimension of columns if True) -> product
Linearization = Callable[[Risk, Batch], Map]  # what is done once per batch

MAX_COLUMNS = 16  # beyond that, a batched product gains nothing and costs memory
BUSY_SECONDS = 0.1  # shorter products are mostly overhead, so batches are joined until one takes this long
FASTER = 1.25  # how much faster PyTorch's own path must be to be taken: the choice should not hang on noise


# Linearisations: one batch, everything that does not depend on the vector ---------------------------------------------


class OutputGradient(Function):
    """u = ∂ℓ/∂z as a function of z, differentiated by the loss's own Hessian product."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, gradient: Tensor, curvature: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.curvature = curvature
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> tuple[Tensor, None, None]:
        return ctx.curvature(tangent), None, None


def hessian_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ H v by a second backward pass through the kept graph of ∇R."""
    leaves, z = _forward(risk, batch, rules, second=True)
    detached = z.detach()
    gradient = risk.loss.gradient(detached, batch.targets)
    u = OutputGradient.apply(z, gradient, risk.loss.curvature(detached, batch.targets))
    return _second_backward(leaves, z, u)


def functional_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ E v: the derivative of Jᵀu for fixed u = ∂ℓ/∂z, which is Σ_k u_k ∇²f_k. One pass, no difference H - G."""
    leaves, z = _forward(risk, batch, rules, second=True)
    return _second_backward(leaves, z, risk.loss.gradient(z.detach(), batch.targets))


def gauss_newton_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ Jᵀ (∂²ℓ/∂z²) J v."""
    return _output_space_map(risk, batch, rules, risk.loss.curvature)


def fisher_map(risk: Risk, batch: Batch, *, rules: bool) -> Map:
    """v ↦ Σᵢ wᵢ gᵢ gᵢᵀ v with gᵢ = Jᵢᵀ ∂ℓᵢ/∂zᵢ, without forming any gᵢ."""
    return _output_space_map(risk, batch, rules, partial(_gradient_moment, risk))


def _gradient_moment(risk: Risk, z: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    gradient, weights = risk.loss.gradient(z, targets), risk.loss.weights(z, targets)
    dim = getattr(risk.loss, "class_dim", -1)
    shape = z.shape if z.ndim == 1 else z.select(dim, 0).shape
    inverse = torch.where(weights > 0, 1 / weights, 0.0).reshape(shape)
    if z.ndim == 1:
        return lambda u: gradient * gradient * inverse * u
    return lambda u: gradient * (inverse * (gradient * u).sum(dim)).unsqueeze(dim)


def _forward(risk: Risk, batch: Batch, rules: bool, *, second: bool) -> tuple[list[Tensor], Tensor]:
    leaves = risk.leaves()
    if not rules:
        return leaves, risk.outputs(leaves, batch)
    with EfficientRules(second=second) as mode:
        z = risk.outputs(leaves, batch)
    if not mode.used:
        raise NotImplementedError("no layer has a rule of its own")
    return leaves, z


def _second_backward(leaves: list[Tensor], z: Tensor, u: Tensor) -> Map:
    gradient = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
    return partial(_vector_jacobian, gradient, leaves)


def _output_space_map(risk: Risk, batch: Batch, rules: bool, middle: Callable[[Tensor, Tensor], Any]) -> Map:
    """v ↦ Jᵀ M J v. J v is the derivative of u ↦ Jᵀu along v: linear in u, so its graph serves at any u."""
    leaves, z = _forward(risk, batch, rules, second=False)
    u = torch.zeros_like(z, requires_grad=True)
    transposed = torch.autograd.grad(z, leaves, u, create_graph=True, allow_unused=True)
    M = middle(z.detach(), batch.targets)

    def product(tangent: list[Tensor], batched: bool) -> Pieces:
        (Jv,) = _vector_jacobian(transposed, [u], tangent, batched)
        if Jv is None:
            return [None] * len(leaves)
        MJv = torch.func.vmap(M)(Jv) if batched else M(Jv)
        return _vector_jacobian([z], leaves, [MJv], batched)

    return product


def _vector_jacobian(outputs: Pieces, inputs: list[Tensor], cotangents: Sequence[Tensor], batched: bool) -> Pieces:
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    connected, along = zip(*pairs, strict=True)
    return torch.autograd.grad(connected, inputs, along, retain_graph=True, allow_unused=True, is_grads_batched=batched)


def forward_over_reverse(risk: Risk, batch: Batch) -> Map:
    """v ↦ H v by forward differentiation of the gradient, for operations without a double backward. Keeps nothing."""

    def gradient(*parameters: Tensor) -> tuple[Tensor, ...]:
        z, pullback = _pulled_back(lambda *p: risk.outputs(p, batch), *parameters)
        return pullback(risk.loss.gradient(z, batch.targets))

    return _forward_derivative(risk, gradient)


def functional_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ E v by forward differentiation of Jᵀu for fixed u. Keeps nothing."""
    with torch.no_grad():
        u = risk.loss.gradient(risk.outputs(risk.leaves(), batch), batch.targets)
    return _forward_derivative(risk, lambda *p: torch.func.vjp(lambda *q: risk.outputs(q, batch), *p)[1](u))


def gauss_newton_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ G v with J v by forward differentiation. Keeps nothing."""
    return _forward_then_reverse(risk, batch, risk.loss.curvature)


def fisher_forward(risk: Risk, batch: Batch) -> Map:
    """v ↦ F v with J v by forward differentiation. Keeps nothing."""
    return _forward_then_reverse(risk, batch, partial(_gradient_moment, risk))


def _pulled_back(function: Callable[..., Tensor], *primals: Tensor) -> tuple[Tensor, Callable[..., Any]]:
    """`torch.func.vjp`, without the third value that its signature allows."""
    value, pullback = torch.func.vjp(function, *primals)[:2]
    return value, pullback


def _forward_derivative(risk: Risk, gradient: Callable[..., tuple[Tensor, ...]]) -> Map:
    primals = tuple(leaf.detach() for leaf in risk.leaves())
    along = lambda *tangent: torch.func.jvp(gradient, primals, tangent)[1]
    return lambda tangent, batched: (torch.func.vmap(along) if batched else along)(*tangent)


def _forward_then_reverse(risk: Risk, batch: Batch, middle: Callable[[Tensor, Tensor], Any]) -> Map:
    primals = tuple(leaf.detach() for leaf in risk.leaves())
    network = lambda *p: risk.outputs(p, batch)
    z, pullback = _pulled_back(network, *primals)
    M = middle(z, batch.targets)
    along = lambda *tangent: pullback(M(torch.func.jvp(network, primals, tangent)[1]))
    return lambda tangent, batched: (torch.func.vmap(along) if batched else along)(*tangent)


# The product over all batches -----------------------------------------------------------------------------------------


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


class CurvatureProduct:
    """V ↦ Σ_b A_b V / Σ w over the batches of a risk, the linearisations kept within its memory budget."""

    def __init__(self, risk: Risk, candidates: list[Path]) -> None:
        self.risk, self._candidates = risk, candidates
        self._kept: dict[int, Map] = {}
        self._kept_bytes = 0.0
        self._columns: int | None = None  # how many columns one pass takes; None until measured

    @cached_property
    def probe(self) -> Probe:
        """Which path was chosen and what was measured; the first product triggers it."""
        with quiet():
            return probed(self.risk, self._candidates)

    @cached_property
    def batches(self) -> Batches:
        """The risk's batches, joined where one alone would not keep the device busy."""
        wanted = math.ceil(BUSY_SECONDS / self.probe.seconds)
        fitting = int(self.risk.memory / 8 / max(self.probe.batch_bytes, 1))
        return self.risk.batches.joined(max(1, min(wanted, fitting)))

    def __call__(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        rows = V.T.contiguous()
        total = torch.zeros_like(rows)
        with quiet():
            for number, batch in enumerate(self.batches):
                self._add(total, self._map(number, batch), rows)
        return (self.risk.reduced(total) / self.risk.total_weight).T

    def _map(self, number: int, batch: Batch) -> Map:
        if number in self._kept:
            return self._kept[number]
        with self.risk.numerics():
            found = self.probe.path.linearize(self.risk, batch)
        size = self.probe.example_bytes * len(batch)
        if self.probe.path.keeps and self._kept_bytes + size <= self.risk.memory:
            self._kept[number] = found
            self._kept_bytes += size
        return found

    def _add(self, total: Tensor, product: Map, rows: Tensor) -> None:
        """total += (A_b V)ᵀ, as many columns at a time as measured best."""
        start = 0
        if self._columns is None and len(rows) >= 4:
            start = self._measured_columns(total, product, rows)
        width = self._columns or 1
        with self.risk.numerics(self.risk.tangent_precision):
            for first in range(start, len(rows), width):
                part = slice(first, first + width)
                add_product(self.risk, total[part], product, rows[part])

    def _measured_columns(self, total: Tensor, product: Map, rows: Tensor) -> int:
        """Do the first columns one by one and as many next ones together; time both, and remember which was faster.

        The last single column is done again among the batched ones, to see that they agree.
        """
        half = min(len(rows) // 2, MAX_COLUMNS)
        room = (self.risk.memory - self._kept_bytes) / max(self.probe.batch_bytes, 1)
        single, together = torch.zeros_like(rows[:half]), torch.zeros_like(rows[: half + 1])
        add = lambda target, first: add_product(self.risk, target, product, rows[first : first + len(target)])
        self._columns = 1
        with self.risk.numerics(self.risk.tangent_precision):
            seconds = _seconds(self.risk, lambda: [add(single[i : i + 1], i) for i in range(half)])
            total[:half] += single
            if room < half:
                return half
            try:
                batched_seconds = _seconds(self.risk, lambda: add(together, half - 1))
            except RuntimeError:  # an operation that cannot be batched
                return half
        if _distance(together[0], single[-1]) > _tolerance(rows.dtype):
            return half
        total[half : 2 * half] += together[1:]
        if batched_seconds < seconds:
            self._columns = int(min(MAX_COLUMNS, room))
        return 2 * half


def add_product(risk: Risk, total: Tensor, product: Map, rows: Tensor) -> None:
    """total += (A_b V)ᵀ for a few rows; a single one is not batched."""
    batched = len(rows) > 1
    pieces = product(_pieces(risk, rows, batched), batched)
    for target, piece in zip(_pieces(risk, total, batched), pieces, strict=True):
        if piece is not None:
            target += piece


def _pieces(risk: Risk, rows: Float[Tensor, "k n"], batched: bool) -> list[Tensor]:
    """Parameter-shaped views of vectors; with a leading dimension if there are several."""
    if not batched:
        return risk.unflatten(rows[0])
    shapes = risk.shapes.values()
    pieces = rows.split([shape.numel() for shape in shapes], dim=1)
    return [piece.unflatten(1, shape) if shape else piece[:, 0] for piece, shape in zip(pieces, shapes, strict=True)]


# The probe ------------------------------------------------------------------------------------------------------------


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
        except (NotImplementedError, RuntimeError) as error:
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
            set_up = _seconds(risk, lambda: product.append(path.linearize(risk, batch)))
        add_product(risk, results[:1], product[0], rows[:1])  # a warm-up, too
        seconds = _seconds(risk, lambda: add_product(risk, results[1:], product[0], rows[1:]))
    _check_symmetric(rows, results)
    error = 0.0
    if risk.tangent_precision != "highest":
        fast = torch.zeros_like(rows)
        with risk.numerics(risk.tangent_precision):
            add_product(risk, fast[:1], product[0], rows[:1])
            seconds = _seconds(risk, lambda: add_product(risk, fast[1:], product[0], rows[1:]))
        error = _distance(fast, results)
    return _Trial(path, results, seconds, set_up, error, sum(saved.values()))


def _check_symmetric(rows: Float[Tensor, "2 n"], results: Float[Tensor, "2 n"]) -> None:
    """vᵀAw = wᵀAv holds only if every operation was differentiated completely.

    A custom autograd Function whose backward is a constant to autograd would silently lose its terms.
    """
    v, w = rows.double()
    Av, Aw = results.double() / (float(results.abs().max()) or 1.0)  # whose squares do not vanish
    asymmetry = abs(float(w @ Av - v @ Aw))
    if asymmetry > 30 * torch.finfo(rows.dtype).eps ** 0.5 * float(Av.norm() + Aw.norm()):
        raise NotImplementedError("its products are not symmetric, so some backward pass is not differentiable")


def _chosen(trials: list[_Trial], num_examples: int) -> Probe:
    """The first path that agrees with PyTorch's own derivatives, which come last, unless these are clearly faster."""
    reference = trials[-1]
    disagreements = [_distance(trial.result, reference.result) for trial in trials]
    best, disagreement = next(
        (t, d) for t, d in zip(trials, disagreements, strict=True) if d <= _tolerance(t.result.dtype)
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


def _tolerance(dtype: torch.dtype) -> float:
    """How far two ways to compute the same product may lie apart, relative."""
    return torch.finfo(dtype).eps ** 0.5


def _distance(a: Tensor, b: Tensor) -> float:
    scale = float(b.norm())
    return float((a - b).norm()) / scale if scale > 0 else float((a - b).norm())


def _seconds(risk: Risk, work: Callable[[], Any]) -> float:
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence, by message, what PyTorch says of operations that it batches by a loop."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop because we have not yet implemented")
        yield
