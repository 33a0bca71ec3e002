"""Networks as in Singh et al. (2026), D.1.3 and D.1.4: hundreds of a kind, measured, trained and measured again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ... import theory
from ...lab import data, ensemble, init, models
from ...lab.data import Examples
from ...lab.ensemble import Ensemble
from ...lab.init import Parametrization
from ...lab.training import Pause, Plateau, compressed, linear_descent
from ...record import Record
from ...risk.losses import SquaredError
from ..frame.figure import Context

Name = Literal["SP", "NTP", "μP"]
NAMES: tuple[Name, ...] = get_args(Name)
NORMS = ("spectral", "frobenius", "nuclear")
SPECTRAL, FROBENIUS, NUCLEAR = range(len(NORMS))
STAGES = ("at initialisation", "after training")
INITIAL, TRAINED = range(len(STAGES))
KINDS = {"linear": "linear", "relu": "ReLU"}  # of activations, as they are written
LOWEST_RATE = 1e-5  # D.1.3, η_min
TOLERANCE = 1e-3  # residual of an eigenvector; the eigenvalue's error is of second order
FINISHED = 0.9  # share of networks whose training the schedule has ended: a point with fewer is marked as cut off


@dataclass(frozen=True)
class Training:
    """How many networks a point has and how they are trained; `network_readings` fills in what D.1.3 leaves open.

    Our rates for μP are n_ℓ times the printed η/n_{ℓ-1}, by the spectral condition (docs/errata.md): with width 100 and
    η = 0.01, W₁ has the rate of the printed η = 1 at every D, and W₂ has D/100 of it; both agree only at D = 100.
    Training ends where the loss improves by less than `improvement` in `window` epochs: 1 % would end deep networks on
    the plateau they start from, and large NTP ones 20 % above their least.
    """

    networks: int = 200  # "we sample and fit 200 neural networks", D.1.3
    examples: int = 1024  # "on a sample of size 1024", D.1.3
    noise: float = 0.1  # "with variance 0.01", D.1.3
    batch_size: int = 128  # "batch size= 128", D.1.3
    learning_rate: float = 1e-2  # "a fixed base learning rate η = 10⁻²", D.1.3; η = 1 is for the printed rates of μP
    window: int = 20  # open: the epochs in which "the loss stops improving", D.1.3
    improvement: float = 5e-4  # open: the gain in these below which it has; 1 % ends deep networks on a plateau
    epochs: int = 10_000  # open, at most
    data_of: Literal["own", "shared"] = "own"  # open: whether a network has data of its own
    target: Literal["1/D", "1"] = "1/D"  # open: the variance of the entries of W
    teacher: Literal["single layer", "hidden layer"] = "single layer"  # "a single layer ReLU random teacher", D.1.3
    rates: Literal["spectral condition", "as printed"] = "spectral condition"  # "η_ℓ = Θ(1/n_{ℓ-1})" of μP, D.1.3
    seed: int = 0  # open

    @property
    def each(self) -> bool:
        """Whether every network has its own data."""
        return self.data_of == "own"


TRAINING = Training()


@dataclass(frozen=True)
class NetworkPoint:
    """One point of a curve: networks of one architecture and parametrisation, and how they are trained."""

    parametrization: Name
    widths: tuple[int, ...]
    activation: Literal["linear", "relu"]
    training: Training = TRAINING


def pytorch_default(
    widths: Sequence[int], *, generator: torch.Generator, learning_rate: float = 1.0
) -> Parametrization:
    """SP as in D.1.3: the default of `nn.Linear`, uniform in ±1/√n_{ℓ-1}, and one rate for all layers."""
    weights = [init.kaiming_uniform(after, before, generator=generator) for before, after in pairwise(widths)]
    return Parametrization(weights, [1.0] * len(weights), [learning_rate] * len(weights))


RECIPES: dict[Name, init.Recipe] = {"SP": pytorch_default, "NTP": init.neural_tangent, "μP": init.maximal_update}


def measurements(point: NetworkPoint, device: torch.device) -> dict[str, Any]:
    """Sharpness, trace, norms and alignments of all networks before and after training: stage first, networks last.

    For each network, `finished` says whether the schedule ended its training and `diverged` whether its loss became
    NaN; a network that is neither was cut off at the last epoch.
    """
    generator = torch.Generator().manual_seed(point.training.seed)
    networks, recipe = initial_networks(point, generator)  # drawn first, so that they are the same for all readings
    examples = Examples(*(part.to(device) for part in regression_examples(point, generator)))
    networks, rows = networks.to(device), _rows(point, examples)
    start = _measures(point, networks, rows, recipe)
    end = train(point, networks, examples, recipe, generator)
    finish = _measures(point, networks, rows, recipe, end.diverged)
    states = {"finished": (end.done & ~end.diverged).cpu(), "diverged": end.diverged.cpu()}
    return {"epochs": end.epoch, **states, **{name: torch.stack([start[name], finish[name]]) for name in start}}


def initial_networks(point: NetworkPoint, generator: torch.Generator) -> tuple[Ensemble, Parametrization]:
    """The networks of a point before training, and their parametrisation, with the multipliers and rates of all."""
    recipe, widths = RECIPES[point.parametrization], point.widths
    several = [recipe(widths, generator=generator) for _ in range(point.training.networks)]
    options: dict[str, Any] = {"generator": generator, "activation": point.activation, "bias": False}
    return Ensemble.of([models.mlp(widths, parametrization=one, **options) for one in several]), several[0]


def regression_examples(point: NetworkPoint, generator: torch.Generator) -> Examples:
    """y = Wx + ε for linear networks, y = teacher(x) + ε for ReLU: one set, or a set for each network."""
    if not point.training.each:
        return _one_set(point, generator)
    sets = [_one_set(point, generator) for _ in range(point.training.networks)]
    return Examples(*(torch.stack(part) for part in zip(*sets, strict=True)))


def _one_set(point: NetworkPoint, generator: torch.Generator) -> Examples:
    """A data set; its outputs are of order one unless W has entries N(0, 1), so that the noise is small beside them.

    The teacher with a hidden layer is as wide as the students, with weights N(0, 2/n_{ℓ-1}) and no biases.
    """
    training, D, K = point.training, point.widths[0], point.widths[-1]
    settings: dict[str, Any] = {"noise": training.noise, "generator": generator}
    W = torch.randn(K, D, generator=generator) * (1.0 if training.target == "1" else D**-0.5)
    if point.activation == "linear":
        return data.gaussian_regression(training.examples, D, K, W=W, **settings)
    if training.teacher == "single layer":
        return data.teacher(lambda x: (2**0.5 * x @ W.T).relu(), training.examples, D, **settings)
    loud = partial(init.standard, gain=2**0.5)
    network = models.mlp((D, point.widths[1], K), generator=generator, bias=False, parametrization=loud)
    return data.teacher(network, training.examples, D, **settings)


def train(
    point: NetworkPoint, networks: Ensemble, examples: Examples, recipe: Parametrization, generator: torch.Generator
) -> Pause[Any, Any]:
    """Train in place by SGD, dividing the rate by ten where the loss stops improving; returns how training ended."""
    training = point.training
    settings: dict[str, Any] = {
        "learning_rate": training.learning_rate,
        "layer_rates": layer_rates(point, recipe),
        "num_epochs": training.epochs,
        "schedule": schedule(training),
        "batch_size": training.batch_size,
        "generator": generator,
        "capture": True,
    }
    if point.activation == "relu":
        return _last(ensemble.train(networks, SquaredError(), examples, each=training.each, **settings))
    x, y = examples.x.to(networks.device), examples.y.to(networks.device)
    end = _last(linear_descent(networks.matrices, x, y, multipliers=recipe.multipliers, **settings))
    for W, trained in zip(networks.matrices, end.parameters, strict=True):
        W.copy_(trained)
    return end


def layer_rates(point: NetworkPoint, recipe: Parametrization) -> list[float]:
    """The factors of the learning rate, layer by layer."""
    if point.training.rates == "as printed":
        return [1 / before for before in point.widths[:-1]]
    return list(recipe.learning_rates)


def schedule(training: Training) -> Plateau:
    """Divide the rate by ten where the loss stops improving, until it would be below 1e-5. D.1.3."""
    floor = min(1.0, LOWEST_RATE / training.learning_rate)
    return Plateau(training.window, training.improvement, 0.1, floor=floor)


def _last(pauses: Iterator[Pause[Any, Any]]) -> Pause[Any, Any]:
    """The pause at the end of training."""
    (end,) = deque(pauses, maxlen=1)
    return end


def _rows(point: NetworkPoint, examples: Examples) -> tuple[Tensor, Tensor]:
    """The data for measurements in float64; for linear networks, D + 1 examples with the same second moments."""
    x, y = examples.x.double(), examples.y.double()
    return compressed(x, y) if point.activation == "linear" else (x, y)


def _measures(
    point: NetworkPoint,
    networks: Ensemble,
    rows: tuple[Tensor, Tensor],
    recipe: Parametrization,
    diverged: Bool[Tensor, " B"] | None = None,
) -> dict[str, Float[Tensor, "... B"]]:
    """All measures of the networks; NaN for a sharpness that was not found and for diverged networks."""
    networks = networks.to(torch.float64)
    linear, each = point.activation == "linear", point.training.each
    top = ensemble.sharpness(networks, SquaredError(), rows, tolerance=TOLERANCE, each=each)
    lost = torch.zeros_like(top.converged) if diverged is None else diverged
    losses = ensemble.losses(networks, SquaredError(), rows, each=each)
    weights = [W.cpu() for W in networks.matrices]  # a GPU decomposes many small matrices one by one
    result = {
        "sharpness": torch.where(top.converged & ~lost, top.values[:, 0], torch.nan).cpu(),
        "losses": torch.where(lost, torch.nan, losses).cpu(),
        **_of_weights(weights),
    }
    if linear:
        traces = theory.linear_trace(networks.matrices, rows[0], multipliers=recipe.multipliers)
        result["trace"] = torch.where(lost, torch.nan, traces).cpu()
        if len(weights) == 2:
            result["difference"] = functional_norm(networks.matrices, *rows, multipliers=recipe.multipliers)
    return result


def functional_norm(
    weights: Sequence[Float[Tensor, "B _ _"]],
    x: Float[Tensor, "*b N D"],
    y: Float[Tensor, "*b N K"],
    *,
    multipliers: Sequence[float],
) -> Float[Tensor, " B"]:
    """‖H - G‖ of two linear layers: the largest singular value of m₁m₂ E[(f(x) - y)xᵀ]; NaN of one that diverged."""
    scale = multipliers[0] * multipliers[1]
    W = scale * weights[1] @ weights[0]
    residuals = x @ W.mT - y
    slope = (scale * residuals.mT @ x / x.shape[-2]).cpu()  # a GPU decomposes many small matrices one by one
    sound = slope.isfinite().all(-1).all(-1)
    largest = torch.linalg.matrix_norm(torch.where(sound[:, None, None], slope, 0.0), 2)
    return torch.where(sound, largest, torch.nan)


def _of_weights(weights: Sequence[Float[Tensor, "B _ _"]]) -> dict[str, Float[Tensor, "... B"]]:
    """Squared norms of the layers and of the products that leave one out, and the alignments of two layers."""
    single = torch.stack([norms(W) for W in weights])
    if len(weights) > 2:
        products = [norms(theory.product_without(weights, left)) for left in range(len(weights))]
        return {"norms": single, "products": torch.stack(products)}
    met = ensemble.alignments(*weights)
    return {
        "norms": single,
        "products": single.flip(0),  # leaving one of two layers out leaves the other
        "alignments": torch.stack([getattr(met, name) for name in NORMS]),
    }


def norms(W: Float[Tensor, "... p q"]) -> Float[Tensor, "3 ..."]:
    """The squares of the three norms."""
    result = ensemble.norms(W)
    return torch.stack([getattr(result, name) ** 2 for name in NORMS])


def coefficients(target: Float[Tensor, "s B"], quantities: Float[Tensor, "s ... B"]) -> Float[Tensor, "s ..."]:
    """Pearson's coefficient of the target with each quantity, over the networks, stage by stage."""
    flat = quantities.flatten(1, -2) if quantities.ndim > 2 else quantities[:, None]
    rows = [[ensemble.pearson(t, one) for one in several] for t, several in zip(target, flat, strict=True)]
    return torch.tensor(rows, dtype=torch.float64).view(quantities.shape[:-1])


# ------------------------------------------------------------------------------------------------- points of a figure

Raw = dict[str, Any]  # epochs, and tensors with a column for each network
Summary = Callable[[NetworkPoint, Raw], dict[str, Tensor]]


def sweep_arrays(
    points: Sequence[NetworkPoint], summary: Summary, context: Context, *, shape: tuple[int, ...], name: str
) -> dict[str, Tensor]:
    """What is recorded of every point, as arrays of this shape × …: its summary, and how training ended."""
    records = context.sweep(partial(measurements, device=context.device), points, name=name)
    result = []
    for point, record in zip(points, records, strict=True):
        raw = {key: torch.as_tensor(array) for key, array in record.arrays.items()}
        result.append({"epochs": torch.tensor(record.scalars["epochs"]), **ending(raw), **summary(point, raw)})
    return {key: torch.stack([one[key] for one in result]).unflatten(0, shape) for key in result[0]}


def ending(raw: Raw) -> dict[str, Tensor]:
    """How the training and the measurement of a point's networks ended, in numbers."""
    finite = raw["sharpness"].isfinite()
    return {
        "finished": raw["finished"].double().mean(),
        "diverged": raw["diverged"].double().mean(),
        "used": finite.sum(-1),  # networks that a coefficient is taken over
        "lost": 1 - finite.double().mean(-1),  # that diverged, or whose eigenvalue was not found
        "loss": raw["losses"].nanmedian(-1).values,
        "highest_loss": highest(raw["losses"]),
    }


def highest(values: Float[Tensor, "... B"]) -> Float[Tensor, "..."]:
    """The largest value that is not NaN; NaN if there is none."""
    largest = torch.where(values.isnan(), -torch.inf, values).amax(-1)
    return torch.where(values.isnan().all(-1), torch.nan, largest)


def cut_off(record: Record, name: Name) -> Bool[np.ndarray, " points"]:
    """For each point of this parametrisation, whether fewer than nine in ten networks were trained to the end."""
    return np.asarray(record.arrays["finished"])[NAMES.index(name)] < FINISHED


def stage_title(record: Record, name: Name, stage: int, mark: str) -> str:
    """The title of a panel, with the mark of points that were cut off if there are any."""
    title = f"{name}, {STAGES[stage]}"
    if stage == INITIAL or not cut_off(record, name).any():
        return title
    return f"{title}\n{mark}: not finished in {record.config['training']['epochs']} epochs"


def reasons(why: str, *, names: Sequence[Name] = NAMES) -> Callable[[Record], dict[str, str]]:
    """Reasons for each verdict on networks trained in these parametrisations, which say how their training ended.

    Statements about networks before training need none of this.
    """
    rates = "Under μP layer ℓ has n_ℓ times the printed rate η/n_{ℓ-1}, by the spectral condition."
    rates = rates if "μP" in names else ""

    def by_verdict(record: Record) -> dict[str, str]:
        ended = _cut_points(record)
        whole = " ".join(filter(None, (why, rates, ended)))
        return {"no": whole, "partly": whole, "yes": ended}

    return by_verdict


def _cut_points(record: Record) -> str:
    """A sentence on how many points were cut off, or no text if none were."""
    cut = {name: cut_off(record, name) for name in NAMES}
    parts = [f"{name} at {points.sum()} of {len(points)} points" for name, points in cut.items() if points.any()]
    return f"Not finished after {record.config['training']['epochs']} epochs: {', '.join(parts)}." if parts else ""
