"""Networks as in Singh et al. (2026), D.1.3 and D.1.4: hundreds of one kind, measured, trained, and measured again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ...lab import data, ensemble, init, models
from ...lab.data import Examples
from ...lab.ensemble import Ensemble
from ...lab.init import Parametrization
from ...lab.train import Checkpoint, Plateau, compressed, linear_descent
from ...losses import SquaredError

Name = Literal["SP", "NTP", "μP"]
NAMES: tuple[Name, ...] = get_args(Name)
NORMS = ("spectral", "frobenius", "nuclear")
STAGES = ("at initialisation", "after training")
LOWEST_RATE = 1e-5  # D.1.3, η_min
TOLERANCE = 1e-3  # residual of an eigenvector; that of its eigenvalue is of second order


@dataclass(frozen=True)
class Point:
    """One point of a curve: so many networks of one architecture and parametrisation, and how they are trained."""

    parametrization: Name
    widths: tuple[int, ...]
    activation: Literal["linear", "relu"]
    networks: int
    examples: int
    noise: float
    learning_rate: float
    batch_size: int
    window: int
    improvement: float
    epochs: int
    seed: int


def pytorch_default(
    widths: Sequence[int], *, generator: torch.Generator, learning_rate: float = 1.0
) -> Parametrization:
    """SP as D.1.3 has it: what `nn.Linear` draws by default, uniform in ±1/√n_{ℓ-1}, one rate for all layers."""
    weights = [init.kaiming_uniform(after, before, generator=generator) for before, after in pairwise(widths)]
    return Parametrization(weights, [1.0] * len(weights), [learning_rate] * len(weights))


RECIPES: dict[Name, init.Recipe] = {"SP": pytorch_default, "NTP": init.neural_tangent, "μP": init.maximal_update}


def measured(point: Point, device: torch.device) -> dict[str, Any]:
    """Sharpness, trace, norms and alignments of all networks before and after training: stage first, networks last."""
    generator = torch.Generator().manual_seed(point.seed)
    examples = task(point, generator)
    recipe = RECIPES[point.parametrization](point.widths, generator=generator)
    networks = Ensemble.of([_network(point, generator) for _ in range(point.networks)], device=device)
    start = _measures(point, networks, examples, recipe)
    epochs = _train(point, networks, examples, recipe, generator)
    end = _measures(point, networks, examples, recipe)
    return {"epochs": epochs, **{name: torch.stack([start[name], end[name]]) for name in start}}


def task(point: Point, generator: torch.Generator) -> Examples:
    """y = Wx + ε for linear networks, y = teacher(x) + ε for ReLU; the same for all networks of a point.

    Open in D.1.3: the fixed matrix W (here entries N(0, 1/D)), and the "single layer ReLU random teacher" (here one
    hidden layer, as wide as that of the students, weights N(0, 2/n_{ℓ-1}) and no biases). Both have outputs of order
    one, so that the noise is small beside them.
    """
    D, K = point.widths[0], point.widths[-1]
    if point.activation == "linear":
        return data.gaussian_regression(point.examples, D, K, noise=point.noise, generator=generator)
    loud = partial(init.standard, gain=2**0.5)
    teacher = models.mlp((D, point.widths[1], K), generator=generator, bias=False, parametrization=loud)
    return data.teacher(teacher, point.examples, D, noise=point.noise, generator=generator)


def _network(point: Point, generator: torch.Generator) -> torch.nn.Module:
    recipe = RECIPES[point.parametrization]
    return models.mlp(
        point.widths, generator=generator, activation=point.activation, bias=False, parametrization=recipe
    )


def _train(
    point: Point, networks: Ensemble, examples: Examples, recipe: Parametrization, generator: torch.Generator
) -> int:
    """Train in place by SGD, a tenth of the rate wherever the loss stops to improve; how many epochs it took."""
    floor = min(1.0, LOWEST_RATE / point.learning_rate)
    settings: dict[str, Any] = {
        "learning_rate": point.learning_rate,
        "layer_rates": recipe.learning_rates,
        "num_epochs": point.epochs,
        "schedule": Plateau(point.window, point.improvement, 0.1, floor=floor),
        "batch_size": point.batch_size,
        "generator": generator,
    }
    if point.activation == "relu":
        return int(_last(ensemble.train(networks, SquaredError(), examples, **settings)).epoch)
    x, y = examples.x.to(networks.device), examples.y.to(networks.device)
    end = _last(linear_descent(networks.matrices, x, y, multipliers=recipe.multipliers, **settings))
    for W, trained in zip(networks.matrices, end.parameters, strict=True):
        W.copy_(trained)
    return int(end.epoch)


def _last(pauses: Iterator[Checkpoint[Any, Any]]) -> Checkpoint[Any, Any]:
    """The pause at the end of training."""
    (end,) = deque(pauses, maxlen=1)
    return end


def _measures(
    point: Point, networks: Ensemble, examples: Examples, recipe: Parametrization
) -> dict[str, Float[Tensor, "... B"]]:
    """In float64; those of linear networks by D + 1 examples with the same second moments as all."""
    networks, x, y = networks.to(torch.float64), examples.x.double(), examples.y.double()
    rows = compressed(x, y) if point.activation == "linear" else (x, y)
    top = ensemble.sharpness(networks, SquaredError(), rows, tolerance=TOLERANCE)
    weights = networks.matrices
    found = {
        "sharpness": top.values[:, 0],
        "converged": top.converged.double(),
        "losses": ensemble.losses(networks, SquaredError(), rows),
        "norms": torch.stack([norms(W) for W in weights]),
        "products": torch.stack([norms(ensemble.product_without(weights, left)) for left in range(len(weights))]),
    }
    if point.activation == "linear":
        S = (x.T @ x / len(x)).to(networks.device)
        found["trace"] = linear_traces(weights, recipe.multipliers, S)
    if len(weights) == 2:
        met = ensemble.alignments(*weights)
        found["alignments"] = torch.stack([getattr(met, name) for name in NORMS])
    return {name: value.cpu() for name, value in found.items()}


def norms(W: Float[Tensor, "B p q"]) -> Float[Tensor, "3 B"]:
    """The squares of the three norms."""
    found = ensemble.norms(W)
    return torch.stack([getattr(found, name) ** 2 for name in NORMS])


def linear_traces(
    weights: Sequence[Float[Tensor, "B _ _"]], multipliers: Sequence[float], S: Float[Tensor, "d d"]
) -> Float[Tensor, " B"]:
    """tr H = Σ_ℓ m_ℓ² tr(P_ℓΣP_ℓᵀ)‖S_ℓ‖_F² of layers h ↦ m_ℓW_ℓh, exactly and at any loss: `theory.linear_trace`."""
    mapped = [m * W for m, W in zip(multipliers, weights, strict=True)]
    total = torch.zeros(len(mapped[0]), dtype=S.dtype, device=S.device)
    P = torch.eye(len(S)).to(S).expand(len(total), -1, -1)
    for layer, m in enumerate(multipliers):
        after = torch.eye(mapped[-1].shape[-2]).to(S).expand(len(total), -1, -1)
        for W in reversed(mapped[layer + 1 :]):
            after = after @ W
        total = total + m**2 * torch.einsum("bid,de,bie->b", P, S, P) * after.square().sum((-2, -1))
        P = mapped[layer] @ P
    return total


def correlations(target: Float[Tensor, "s B"], quantities: Float[Tensor, "s ... B"]) -> Float[Tensor, "s ..."]:
    """Pearson's coefficient of the target with each quantity, over the networks, stage by stage."""
    flat = quantities.flatten(1, -2) if quantities.ndim > 2 else quantities[:, None]
    rows = [[ensemble.pearson(t, one) for one in several] for t, several in zip(target, flat, strict=True)]
    return torch.tensor(rows, dtype=torch.float64).view(quantities.shape[:-1])
