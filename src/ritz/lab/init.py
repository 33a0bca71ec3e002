"""Initial weights: balanced, orthogonal, uniform, and three parametrisations with the learning rates that go with them.

Weights are out × in, layer by layer, drawn in float64 on the generator's device: a network has the same weights,
rounded, in every precision and on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..arguments import guard
from ..errors import ArgumentError, ModelError

__all__ = [
    "Parametrization", "Recipe", "standard", "neural_tangent", "maximal_update",
    "balanced", "kaiming_uniform", "orthogonal",
]  # fmt: skip


def orthogonal(rows: int, columns: int, *, generator: torch.Generator, gain: float = 1.0) -> Float[Tensor, "r c"]:
    """gain · Q, with QᵀQ = I or QQᵀ = I on the shorter side: uniform among all such matrices.

    The signs of R are moved into Q, without which a QR decomposition is not uniform (Mezzadri 2007).

    >>> Q = orthogonal(4, 2, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(Q.T @ Q, torch.eye(2, dtype=Q.dtype)))
    True
    """
    check_widths([columns, rows])
    Q, R = torch.linalg.qr(_normal(max(rows, columns), min(rows, columns), generator))
    Q = Q * torch.where(R.diagonal() < 0, -1.0, 1.0)
    return gain * (Q if rows >= columns else Q.T)


def kaiming_uniform(rows: int, columns: int, *, generator: torch.Generator) -> Float[Tensor, "r c"]:
    """Uniform in ±1/√columns, of variance 1/(3·columns): what `nn.Linear` draws by default.

    >>> W = kaiming_uniform(3, 4, generator=torch.Generator().manual_seed(0))
    >>> W.shape, bool((W.abs() <= 0.5).all())
    (torch.Size([3, 4]), True)
    """
    check_widths([columns, rows])
    draws = torch.rand(rows, columns, generator=generator, dtype=torch.float64, device=generator.device)
    return (2 * draws - 1) / columns**0.5


def balanced(
    widths: Sequence[int], singular_values: Sequence[float] | Float[Tensor, " k"], *, generator: torch.Generator
) -> list[Tensor]:
    """W_ℓ = U_ℓ S U_{ℓ-1}ᵀ: every layer has the singular values S, and hands its left vectors to the next.

    So W_ℓW_ℓᵀ = W_{ℓ+1}ᵀW_{ℓ+1}. `widths` are d₀ … d_L, and there are at most min d values. linear2026, App. C, where
    "right" in step 1 is to read "left": U_ℓ is drawn, d_ℓ × k. (`theory.balanced_weights` factors a given product.)

    >>> W1, W2 = balanced((4, 3, 2), (2.0, 1.0), generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(W1 @ W1.T, W2.T @ W2))
    True
    """
    check_widths(widths)
    S = torch.as_tensor(singular_values, dtype=torch.float64, device=generator.device)
    if S.ndim != 1 or not 1 <= len(S) <= min(widths) or not bool((S >= 0).all()) or not bool(S.isfinite().all()):
        raise ArgumentError(
            f"The singular values have shape {tuple(S.shape)}, for layers of widths {list(widths)}.",
            f"Layers pass at most {min(widths)} directions, each with one finite singular value that is not negative.",
            f"Give between 1 and {min(widths)} of them, for instance torch.rand({min(widths)}, generator=generator).",
        )
    frames = [orthogonal(width, len(S), generator=generator) for width in widths]
    return [after * S @ before.T for before, after in pairwise(frames)]


@dataclass(frozen=True)
class Parametrization:
    """The layers h ↦ m_ℓW_ℓh of a network at its start: weights, what multiplies them, the rate each is trained at.

    >>> start = neural_tangent((4, 2), generator=torch.Generator().manual_seed(0), learning_rate=0.1)
    >>> [group["lr"] for group in start.groups(nn.Linear(4, 2))]
    [0.1]
    """

    weights: Sequence[Tensor]
    multipliers: Sequence[float]
    learning_rates: Sequence[float]

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups for an optimiser: each weight of the model (`models.mlp`) with its layer's learning rate.

        A bias is trained at the rate of its layer.
        """
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        shapes = [tuple(layer.weight.shape) for layer in layers]
        if shapes != [tuple(W.shape) for W in self.weights]:
            raise ModelError(
                f"The model has linear layers {shapes}.",
                f"This parametrisation belongs to layers of shapes {[tuple(W.shape) for W in self.weights]}.",
                "Pass the model that was built from it, by models.mlp(widths, parametrization=…).",
            )
        rates = zip(layers, self.learning_rates, strict=True)
        return [{"params": list(layer.parameters(recurse=False)), "lr": rate} for layer, rate in rates]


Recipe = Callable[..., Parametrization]


def standard(
    widths: Sequence[int], *, generator: torch.Generator, learning_rate: float = 1.0, gain: float = 1.0
) -> Parametrization:
    """SP: W_ℓ ~ N(0, g²/n_{ℓ-1}), and the same rate for every layer.

    Singh et al. (2026), D.1.3 has Θ(1/n_{ℓ-1}) and names PyTorch's default as an instance, which is uniform and of
    variance 1/(3n_{ℓ-1}): gain = 1/√3 has that variance, `kaiming_uniform` that distribution.

    >>> standard((4, 3, 2), generator=torch.Generator().manual_seed(0)).multipliers
    [1.0, 1.0]
    """
    deviations = [gain / before**0.5 for before, _ in _layers(widths)]
    return _gaussian(widths, deviations, [1.0] * len(deviations), [learning_rate] * len(deviations), generator)


def neural_tangent(
    widths: Sequence[int], *, generator: torch.Generator, learning_rate: float = 1.0, gain: float = 1.0
) -> Parametrization:
    """NTP: W_ℓ ~ N(0, 1), layer ℓ multiplied by g/√n_{ℓ-1}, and the same rate for every layer.

    Jacot et al. (2018). Singh et al. (2026), D.1.3 prints 1/√n_ℓ, the fan-out; the definition has the fan-in.

    >>> neural_tangent((4, 16, 2), generator=torch.Generator().manual_seed(0)).multipliers
    [0.5, 0.25]
    """
    multipliers = [gain / before**0.5 for before, _ in _layers(widths)]
    return _gaussian(widths, [1.0] * len(multipliers), multipliers, [learning_rate] * len(multipliers), generator)


def maximal_update(
    widths: Sequence[int], *, generator: torch.Generator, learning_rate: float = 1.0, gain: float = 1.0
) -> Parametrization:
    """μP for SGD: W_ℓ ~ N(0, g² min(1, n_ℓ/n_{ℓ-1})/n_{ℓ-1}), rate η n_ℓ/n_{ℓ-1}.

    Then ‖W_ℓ‖₂ and the updates of it scale as √(n_ℓ/n_{ℓ-1}), the spectral condition. Singh et al. (2026), D.1.3 prints
    the variance n_ℓ/n_{ℓ-1} and the rate 1/n_{ℓ-1}, with which ‖W_ℓ‖₂/√(n_ℓ/n_{ℓ-1}) grows with the width.

    >>> maximal_update((8, 16, 4), generator=torch.Generator().manual_seed(0), learning_rate=0.1).learning_rates
    [0.2, 0.025]
    """
    layers = _layers(widths)
    deviations = [gain * (min(1.0, after / before) / before) ** 0.5 for before, after in layers]
    rates = [learning_rate * after / before for before, after in layers]
    return _gaussian(widths, deviations, [1.0] * len(layers), rates, generator)


def check_widths(widths: Iterable[int]) -> None:
    """Refuse widths that no network can have."""
    widths = list(widths)
    if len(widths) < 2 or not all(isinstance(width, int) and width >= 1 for width in widths):
        raise ArgumentError(
            f"The widths are {widths}.",
            "A network needs an input, an output, and at least one unit in every layer between them.",
            "Give the sizes from input to output, for instance (784, 64, 10).",
        )


def _layers(widths: Sequence[int]) -> list[tuple[int, int]]:
    check_widths(widths)
    return list(pairwise(widths))


def _gaussian(
    widths: Sequence[int],
    deviations: Sequence[float],
    multipliers: Sequence[float],
    learning_rates: Sequence[float],
    generator: torch.Generator,
) -> Parametrization:
    layers = zip(_layers(widths), deviations, strict=True)
    weights = [deviation * _normal(after, before, generator) for (before, after), deviation in layers]
    return Parametrization(weights, multipliers, learning_rates)


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64, device=generator.device)


guard(__name__)
