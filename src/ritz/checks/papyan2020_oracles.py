"""A small classifier and the quantities that Papyan (2020) defines, by loops over examples, classes and layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import cycle

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.func import jacrev
from torch.nn.functional import cross_entropy

from ..factored.gram_parts import PARTS
from ..risk import Risk
from .draws import normal, whole

POOL = 5  # classifiers of one run


@dataclass(frozen=True, eq=False)
class Classifier:
    """f(x) = W_L tanh(⋯ tanh(W₁x)) on rows x, with the labels of these."""

    weights: tuple[Float[Tensor, "_ _"], ...]
    x: Float[Tensor, "N _"]
    labels: Int[Tensor, " N"]

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.weights[-1])

    @cached_property
    def risk(self) -> Risk:
        """The mean cross-entropy, over two batches of different size."""
        layers: list[nn.Module] = []
        for W in self.weights:
            linear = nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=torch.float64)
            linear.weight.data = W.clone()
            layers += [linear, nn.Tanh()]
        first = max(1, len(self.x) // 3)
        cuts = slice(0, first), slice(first, None)
        return Risk(
            nn.Sequential(*layers[:-1]), nn.CrossEntropyLoss(), [(self.x[cut], self.labels[cut]) for cut in cuts]
        )

    def names(self) -> list[str]:
        """The layers, as the model of the risk names them."""
        return [str(2 * i) for i in range(len(self.weights))]

    def outputs(self, weights: tuple[Tensor, ...], shifts: tuple[Tensor, ...] | None = None) -> Float[Tensor, "N C"]:
        """The outputs z for these weights, with an optional shift added to what each layer returns."""
        h = self.x
        for i, W in enumerate(weights):
            h = h @ W.T if shifts is None else h @ W.T + shifts[i]
            h = torch.tanh(h) if i + 1 < len(weights) else h
        return h

    @cached_property
    def probabilities(self) -> Float[Tensor, "N C"]:
        """p_{i,c'}."""
        return self.outputs(self.weights).softmax(1)

    @property
    def cross_weights(self) -> Float[Tensor, "N C"]:
        """w_{i,c'} = p_{i,c'}/N, for any balance of the classes."""
        return self.probabilities / len(self.x)

    @cached_property
    def features(self) -> list[Float[Tensor, "N _"]]:
        """What enters each layer."""
        rows = [self.x]
        for W in self.weights[:-1]:
            rows.append(torch.tanh(rows[-1] @ W.T))
        return rows

    @cached_property
    def errors(self) -> list[Float[Tensor, "N C _"]]:
        """δ_{i,c'} of each layer: the derivative of the loss with respect to its output as if the label were c'."""
        zeros = tuple(self.x.new_zeros(len(self.x), len(W)) for W in self.weights)
        slopes = self.probabilities[:, None] - torch.eye(self.num_classes, dtype=torch.float64)  # (N, c', C)
        J = jacrev(lambda shifts: self.outputs(self.weights, shifts))(zeros)
        return [torch.einsum("nck,nkno->nco", slopes, one) for one in J]

    @cached_property
    def jacobian(self) -> Float[Tensor, "N C n"]:
        """∂z/∂θ of every example."""
        J = jacrev(self.outputs)(self.weights)
        return torch.cat([one.flatten(2) for one in J], 2)

    @property
    def gradients(self) -> Float[Tensor, "N C n"]:
        """g_{i,c'} = Jᵢᵀ(pᵢ - e_{c'}), the gradient as if the label were c'."""
        slopes = self.probabilities[:, None] - torch.eye(self.num_classes, dtype=torch.float64)
        return torch.einsum("nck,nkq->ncq", slopes, self.jacobian)

    @property
    def gauss_newton(self) -> Float[Tensor, "n n"]:
        """G = Σᵢ Jᵢᵀ(diag(pᵢ) - pᵢpᵢᵀ)Jᵢ/N, from the curvature of the loss and no gradient."""
        p = self.probabilities
        curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        return torch.einsum("nkq,nkl,nlr->qr", self.jacobian, curvature, self.jacobian) / len(self.x)

    def layer_gradients(self) -> Iterator[Float[Tensor, "_ _"]]:
        """∇R of each layer's weight, by autograd."""
        leaves = [W.clone().requires_grad_() for W in self.weights]
        yield from torch.autograd.grad(cross_entropy(self.outputs(tuple(leaves)), self.labels), leaves)


def parts(rows: Float[Tensor, "N C q"], w: Float[Tensor, "N C"], labels: Tensor) -> dict[str, Float[Tensor, "q q"]]:
    """Papyan (2020), eq. (6.3), (6.4) from their sums, with G_cross centred at g_c."""
    low_rank = {part: columns @ columns.T for part, columns in factors(rows, w, labels).items()}
    within = rows.new_zeros(rows.shape[2], rows.shape[2])
    for c in range(w.shape[1]):
        own = labels == c
        for k in range(w.shape[1]):
            deviations = rows[own, k] - _mean(rows[own, k], w[own, k])
            within += torch.einsum("n,nq,nr->qr", w[own, k], deviations, deviations)
    return {**low_rank, "within": within}


def factors(rows: Float[Tensor, "N C q"], w: Float[Tensor, "N C"], labels: Tensor) -> dict[str, Float[Tensor, "q _"]]:
    """The columns √w · mean of the parts that are second moments of means."""
    columns: dict[str, list[Tensor]] = {part: [] for part in PARTS if part != "within"}
    for c in range(w.shape[1]):
        own = labels == c
        weights = w[own].sum(0)
        means = [_mean(rows[own, k], w[own, k]) for k in range(w.shape[1])]
        others = [k for k in range(w.shape[1]) if k != c]
        centre = _mean(torch.stack([means[k] for k in others]), weights[others])
        columns["between_class"].append(weights[others].sum().sqrt() * centre)
        columns["own_class"].append(weights[c].sqrt() * means[c])
        columns["cross_class"] += [weights[k].sqrt() * (means[k] - centre) for k in others]
    return {part: torch.stack(vectors, 1) for part, vectors in columns.items()}


def _mean(rows: Float[Tensor, "m q"], w: Float[Tensor, " m"]) -> Float[Tensor, " q"]:
    return w @ rows / w.sum() if float(w.sum()) > 0 else rows.new_zeros(rows.shape[1])


def classifier(generator: Generator, *, classes: int | None = None, one_each: bool = False) -> Classifier:
    """Two or three layers of two to four units, two to four classes, and four to nine examples of any labels."""
    C = whole(generator, 2, 4) if classes is None else classes
    widths = [whole(generator, 2, 4) for _ in range(whole(generator, 2, 3))]
    N = C if one_each else whole(generator, 4, 9)
    labels = torch.arange(C) if one_each else torch.randint(C, (N,), generator=generator)
    labels[:2] = torch.arange(2)  # a single class has no structure
    weights = tuple(normal(generator, o, d) for d, o in zip(widths, [*widths[1:], C], strict=True))
    softened = (*weights[:-1], weights[-1] / 2)  # so that no probability loses its part of G to rounding
    return Classifier(softened, normal(generator, N, widths[0]), labels)


@lru_cache(2)
def _pool(seed: int, one_each: bool) -> tuple[Classifier, ...]:
    """Classifiers shared by the checks of one run, because building a risk takes longer than checking it."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(classifier(generator, one_each=one_each) for _ in range(POOL))


def any_labels(generator: Generator) -> tuple[Classifier]:
    """The next classifier of any labels."""
    return (next(_turns(generator, generator.initial_seed(), False)),)


def one_of_each(generator: Generator) -> tuple[Classifier]:
    """The next classifier with one example a class."""
    return (next(_turns(generator, generator.initial_seed(), True)),)


@lru_cache(4)  # for two runs at a time: generators are compared by identity, and the cache keeps them alive
def _turns(generator: Generator, seed: int, one_each: bool) -> Iterator[Classifier]:
    """The classifiers of a pool in turn, for the run with this generator; another run begins with the first."""
    return cycle(_pool(seed, one_each))


def unusual(generator: Generator) -> dict[str, tuple[Classifier]]:
    """A class without examples, one example a class, a network that is nearly certain, and one that knows nothing."""
    return _unusual(generator.initial_seed())


@lru_cache(1)
def _unusual(seed: int) -> dict[str, tuple[Classifier]]:
    generator = torch.Generator().manual_seed(seed)
    usual = classifier(generator, classes=3)
    certain = Classifier((*usual.weights[:-1], 16 * usual.weights[-1]), usual.x, usual.labels)
    ignorant = Classifier((*usual.weights[:-1], 0 * usual.weights[-1]), usual.x, usual.labels)
    return {
        "two classes": (classifier(generator, classes=2),),
        "an empty class": (Classifier(usual.weights, usual.x, usual.labels.clamp(max=1)),),
        "one example a class": (classifier(generator, one_each=True),),
        "nearly certain": (certain,),
        "equal probabilities": (ignorant,),
    }
