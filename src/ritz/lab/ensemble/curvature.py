"""The curvature of many networks at once: sharpness, spectra, traces.

One product serves all networks, since the Hessian of the summed loss is block diagonal, with a block for each.
Networks whose loss or gradient is not finite have NaN as a result; none is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ... import progress
from ...errors import ArgumentError, check_positive, check_tolerance, check_whole
from ...risk.memory import free_memory
from ...solvers.probes import source, student_factor
from ..training.batches import Data
from ..training.scores import AnyLoss
from .block_lanczos import Product, capacity, largest
from .networks import Ensemble, losses_at, on_device

DENSE = 256  # parameters up to which whole Hessians are formed and diagonalised
EXACT_TRACE = 512  # parameters up to which a trace is summed over all coordinates
ENTRIES = 2**26  # numbers held at a time, for bases, Hessians, products: half a gigabyte in float64; more on a GPU
GPU_SHARE = 1 / 8  # of the memory that is free there: others may work on it, too
PROBES = 100  # of Hutchinson's estimate; linear2026, App. C


@dataclass(frozen=True)
class Top:
    """The k largest eigenvalues of each network's Hessian, largest first, each with its residual ‖Hv - λv‖.

    >>> Top(torch.ones(2, 1), torch.zeros(2, 1), torch.ones(2, dtype=torch.bool), num_products=8).converged.tolist()
    [True, True]
    """

    values: Float[Tensor, "B k"]
    residuals: Float[Tensor, "B k"]  # each by one fresh product
    converged: Bool[Tensor, " B"]  # all k residuals are below the tolerance times the largest |λ| met
    num_products: int  # for each network


@dataclass(frozen=True)
class Traces:
    """The trace of each network's Hessian with its standard error, which is zero where the trace is exact.

    >>> Traces(torch.ones(2), torch.zeros(2), num_products=8).values
    tensor([1., 1.])
    """

    values: Float[Tensor, " B"]
    standard_errors: Float[Tensor, " B"]
    num_products: int


def sharpness(
    ensemble: Ensemble,
    loss: AnyLoss,
    data: Data,
    *,
    k: int = 1,
    tolerance: float = 1e-4,
    generator: torch.Generator | None = None,
    each: bool = False,
) -> Top:
    """λ₁ ≥ … ≥ λ_k of each network's Hessian: dense for small networks, else block Lanczos in step.

    A block of k vectors finds multiple eigenvalues as often as they occur. The spaces grow together and are restarted
    with their best vectors (thick restart) until all have converged.

    >>> from ritz.lab.ensemble import linear
    >>> W, data = torch.tensor([[[1.0]], [[2.0]]]), (torch.ones(1, 1), torch.ones(1, 1))
    >>> sharpness(linear([W, W]), torch.nn.MSELoss(), data).values.round().tolist()
    [[4.0], [22.0]]
    """
    check_positive(k=k)
    check_whole(k=k)
    check_tolerance(tolerance)
    k = min(k, ensemble.size)
    generator = source(generator)
    parts = _parts(ensemble, data, each, "Sharpness", ensemble.size * capacity(k))
    tops = [_top(part, loss, batch, k, tolerance, generator, each) for part, batch in parts]
    values, residuals, converged = (torch.cat([getattr(top, name) for top in tops]) for name in _TOP)
    return Top(values, residuals, converged, max(top.num_products for top in tops))


_TOP = ("values", "residuals", "converged")


def hessians(ensemble: Ensemble, loss: AnyLoss, data: Data, *, each: bool = False) -> Float[Tensor, "B n n"]:
    """The whole Hessian of each network.

    >>> from ritz.lab.ensemble import linear
    >>> W, data = torch.tensor([[[1.0]], [[2.0]]]), (torch.ones(1, 1), torch.ones(1, 1))
    >>> hessians(linear([W, W]), torch.nn.MSELoss(), data).tolist()
    [[[2.0, 2.0], [2.0, 2.0]], [[8.0, 14.0], [14.0, 8.0]]]
    """
    curvature = _curvature(ensemble, loss, on_device(ensemble, data, each), each)
    B, n = curvature.gradient.shape
    H = curvature.gradient.new_empty(B, n, n)
    for start, stop in curvature.pieces():
        H[:, start:stop] = curvature.product(_coordinates(curvature.gradient, start, stop)).transpose(0, 1)
    return (H + H.mT) / 2


def spectra(ensemble: Ensemble, loss: AnyLoss, data: Data, *, each: bool = False) -> Float[Tensor, "B n"]:
    """All eigenvalues of each network's Hessian, ascending. Takes n³ operations a network: for thousands at most.

    >>> from ritz.lab.ensemble import linear
    >>> W, data = torch.tensor([[[1.0]], [[2.0]]]), (torch.ones(1, 1), torch.ones(1, 1))
    >>> spectra(linear([W, W]), torch.nn.MSELoss(), data).round().int().tolist()
    [[0, 4], [-6, 22]]
    """
    return torch.cat(
        [
            _eigh(hessians(part, loss, batch, each=each))[0]
            for part, batch in _parts(ensemble, data, each, "Spectra", ensemble.size**2)
        ]
    )


def trace(
    ensemble: Ensemble,
    loss: AnyLoss,
    data: Data,
    *,
    num_products: int | None = None,
    generator: torch.Generator | None = None,
    each: bool = False,
) -> Traces:
    """tr H of each network: exact where it has no more parameters than products, else by Hutchinson's random signs.

    By default exact up to 512 parameters, and with 100 probes beyond, as linear2026 has it. Probes are independent
    between networks. Two standard errors cover 95 %, however few the probes.

    >>> from ritz.lab.ensemble import linear
    >>> W, data = torch.tensor([[[1.0]], [[2.0]]]), (torch.ones(1, 1), torch.ones(1, 1))
    >>> trace(linear([W, W]), torch.nn.MSELoss(), data).values
    tensor([ 4., 16.])
    """
    check_positive(num_products=num_products)
    check_whole(num_products=num_products)
    curvature = _curvature(ensemble, loss, on_device(ensemble, data, each), each)
    n = curvature.gradient.shape[1]
    budget = num_products or (n if n <= EXACT_TRACE else PROBES)
    if budget >= n:
        blocks = (_coordinates(curvature.gradient, start, stop) for start, stop in curvature.pieces())
        total = torch.stack([(V * curvature.product(V)).sum((0, 2)) for V in blocks]).sum(0)
        return Traces(total, torch.zeros_like(total), n)
    _check_probes(budget, n)
    generator = source(generator)
    samples = torch.stack([_probe(curvature.gradient, curvature.product, generator) for _ in range(budget)])
    return Traces(samples.mean(0), student_factor(budget) * samples.std(0) / budget**0.5, budget)


def _check_probes(budget: int, size: int) -> None:
    """Refuse numbers of probes that give no error."""
    if budget < 2:
        raise ArgumentError(
            f"num_products={budget} was given for {size} parameters.",
            "The error of an estimate comes from the scatter of at least two probes.",
            f"Pass 2 or more; with {size} the trace is exact.",
        )


def _probe(gradient: Tensor, product: Product, generator: torch.Generator) -> Float[Tensor, " B"]:
    """zᵀHz for a random sign vector z of each network."""
    draws = torch.randint(0, 2, gradient.shape, generator=generator, device=generator.device)
    z = (2 * draws - 1).to(gradient)
    return (z * product(z[None])[0]).sum(1)


@dataclass(frozen=True)
class _Curvature:
    """The losses, their gradients, the product with all Hessians, and how many columns of it fit into memory."""

    values: Float[Tensor, " B"]
    gradient: Float[Tensor, "B n"]
    product: Product
    columns: int

    def pieces(self) -> Iterator[tuple[int, int]]:
        """All columns, as many at a time as fit."""
        n = self.gradient.shape[1]
        return ((start, min(start + self.columns, n)) for start in range(0, n, self.columns))


def _curvature(ensemble: Ensemble, loss: AnyLoss, data: Data, each: bool) -> _Curvature:
    """The graph of the gradient is kept for the products; a batch of them takes what it keeps for each column."""
    theta, kept = ensemble.flat.requires_grad_(), dict[int, int]()

    def count(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor.detach()  # the tensor itself would tie the graph to itself, and nothing would ever free it

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        values = losses_at(ensemble, ensemble.rows(theta), loss, data, each)
        (gradient,) = torch.autograd.grad(values.sum(), theta, create_graph=True, materialize_grads=True)

    def product(V: Tensor) -> Tensor:
        if not gradient.requires_grad:  # a loss linear in every parameter
            return torch.zeros_like(V)
        options = {"retain_graph": True, "materialize_grads": True}
        if len(V) == 1:
            return torch.autograd.grad(gradient, theta, V[0], **options)[0][None]
        return torch.autograd.grad(gradient, theta, V, is_grads_batched=True, **options)[0]

    columns = max(1, _entries(theta.device) // (sum(kept.values()) + 4 * theta.numel()))
    return _Curvature(values.detach(), gradient.detach(), product, columns)


def _entries(device: torch.device) -> int:
    """How many numbers may be held at a time."""
    return int(GPU_SHARE * free_memory(device) / 8) if device.type == "cuda" else ENTRIES


def _parts(ensemble: Ensemble, data: Data, each: bool, label: str, entries: int) -> Iterator[tuple[Ensemble, Data]]:
    """Parts of as many networks as memory holds at a time, with their data."""
    x, y = on_device(ensemble, data, each)
    width = max(1, _entries(ensemble.device) // entries)
    with progress.bar(label, total=len(ensemble)) as bar:
        for start in range(0, len(ensemble), width):
            here = slice(start, start + width)
            yield ensemble.part(here), (x[here], y[here]) if each else (x, y)
            bar.advance(min(width, len(ensemble) - start))


def _top(
    ensemble: Ensemble, loss: AnyLoss, data: Data, k: int, tolerance: float, generator: torch.Generator, each: bool
) -> Top:
    curvature = _curvature(ensemble, loss, data, each)
    gradient, product = curvature.gradient, curvature.product
    sound = curvature.values.isfinite() & gradient.isfinite().all(1)
    if not sound.all():
        return _top_of_sound(ensemble, sound, loss, data, k, tolerance, generator, each)
    if ensemble.size <= max(DENSE, 2 * capacity(k)):
        values, V, scale, count = _dense(hessians(ensemble, loss, data, each=each), k)
    else:
        values, V, scale, count = largest(product, gradient, k, tolerance=tolerance, generator=generator)
    residuals = (product(V.transpose(0, 1)).transpose(0, 1) - values[..., None] * V).norm(dim=-1)
    converged = (residuals <= tolerance * scale).all(1)
    return Top(values, residuals, converged, count + k)


def _top_of_sound(
    ensemble: Ensemble,
    sound: Tensor,
    loss: AnyLoss,
    data: Data,
    k: int,
    tolerance: float,
    generator: torch.Generator,
    each: bool,
) -> Top:
    """The largest eigenvalues of sound networks, with NaN for those that have diverged."""
    unknown = ensemble.flat.new_full((len(ensemble), k), torch.nan)
    top = Top(unknown, unknown.clone(), torch.zeros_like(sound), 0)
    rows = sound.nonzero().squeeze(1)
    if not len(rows):
        return top
    own = (data[0][rows], data[1][rows]) if each else data
    rest = _top(ensemble.part(rows), loss, own, k, tolerance, generator, each)
    for name in _TOP:
        getattr(top, name)[rows] = getattr(rest, name)
    return Top(top.values, top.residuals, top.converged, rest.num_products)


def _dense(
    H: Float[Tensor, "B n n"], k: int
) -> tuple[Float[Tensor, "B k"], Float[Tensor, "B k n"], Float[Tensor, "B 1"], int]:
    """What `largest` returns, from the whole matrices."""
    values, vectors = _eigh(H)
    scale = values.abs().amax(1, keepdim=True)
    return values[:, -k:].flip(1), vectors[..., -k:].flip(2).mT, scale, H.shape[1]


def _coordinates(like: Float[Tensor, "B n"], start: int, stop: int) -> Float[Tensor, "p B n"]:
    """Unit vectors start … stop - 1, the same for every network."""
    B, n = like.shape
    V = like.new_zeros(stop - start, n)
    V[:, start:stop] = torch.eye(stop - start).to(like)
    return V[:, None].expand(-1, B, -1)


def _eigh(H: Float[Tensor, "b n n"]) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n n"]]:
    """Eigenvalues and vectors of each matrix; NaN for one that is not finite, for which LAPACK would refuse all.

    Each is scaled to entries of order one, since very large entries would overflow on the way.
    """
    sound = H.isfinite().all(-1).all(-1)[:, None, None]
    size = torch.where(sound, H, 0.0).abs().amax((1, 2), keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    values, vectors = torch.linalg.eigh(torch.where(sound, H / size, 0.0))
    return torch.where(sound[..., 0], values * size[..., 0], torch.nan), vectors
