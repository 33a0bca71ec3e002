"""Two-layer networks of one input and one output: f(x) = ⟨w, φ(v x)⟩, linear and ReLU, of any width.

Coordinates are (v, w). The loss is ℓ = (1/2N) Σᵢ (f(xᵢ) - yᵢ)², so that everything the data do is in two moments:
σ² = (1/N) Σᵢ xᵢ² and the residual-input covariance δx = (1/N) Σᵢ (f(xᵢ) - yᵢ) xᵢ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad

from ..errors import ArgumentError
from .arguments import check_lengths, checked_loss, vector
from .bases import complement
from .closed_form import ClosedForm
from .inner_products import ROOT, Pair, coordinates, pair_lines

MEANINGS = {
    "imbalance": "the norms of the two layers differ",
    "non_collinearity": "the layers point in different directions",
    "deviation": "the network is off its target",
    "norm": "the overall size of the weights, tr H",
}


def linear_network(
    v: Float[Tensor, " m"],
    w: Float[Tensor, " m"],
    x: Float[Tensor, " N"],
    y: Float[Tensor, " N"],
    *,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of f(x) = ⟨w,v⟩x: bulk ±δx (m - 1 each), outliers eig (δx + σ²p², σ²pq; σ²pq, σ²q² - δx).

    p = ‖w + v‖/√2, q = ‖w - v‖/√2. "bulk +" is the line +δx whatever its sign: its eigenvectors (u; u), u ⟂ w + v, stay
    the same when δx changes sign. Singh et al. (2026), Thm 3.1 and eq. (1); Thm 3.2, completed for z = 0; Thm 3.3 with
    s = λ_bulk/δx in place of sgn(λ_bulk). For G the residual is taken as zero.

    >>> v, w, x, y = (torch.tensor(entries) for entries in ([1.0, 2.0], [2.0, 1.0], [1.0], [1.0]))
    >>> linear_network(v, w, x, y)
    ClosedForm(4 eigenvalues, 4 lines)
      bulk +            3  × 1
      bulk -           -3  × 1
      outlier 1   12.6158  × 1
      outlier 2  -2.61577  × 1
    """
    v, w, x, y = _scalar_regression(v, w, x, y)
    sigma2, delta = _moments(x, (w @ v) * x - y)
    return _one_pair(v, w, 0.0 * delta if gauss_newton else delta, sigma2)


def product_network(
    v: Float[Tensor, " m"], w: Float[Tensor, " m"], loss: Callable[[Tensor], Tensor], *, gauss_newton: bool = False
) -> ClosedForm:
    """H of F(⟨w,v⟩) for any scalar loss F: Thm 3.1-3.3 with δx = F'(c) and σ² = F''(c), c = ⟨w,v⟩.

    Where F'' < 0 the outliers lie below the bulk. Not in the papers beyond the squared error.

    >>> v, w = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    >>> product_network(v, w, lambda c: (c - 1) ** 2 / 2)["bulk +"].value
    3.0
    """
    v, w = vector("v", v), vector("w", w)
    check_lengths(v=v, w=w)
    c = w @ v
    loss = checked_loss(loss)
    slope, curvature = grad(loss)(c), grad(grad(loss))(c)
    return _one_pair(v, w, 0.0 * slope if gauss_newton else slope, curvature)


@dataclass(frozen=True, repr=False)
class SharpnessTerms:
    """The four summands of λ₁,₂ = ½ norm ± ½ √(imbalance + non_collinearity + deviation).

    Singh et al. (2026), eq. (2). The first three are squares, in units of λ²; the last is in units of λ.

    >>> SharpnessTerms(imbalance=9.0, non_collinearity=0.0, deviation=16.0, norm=5.0).outliers
    (5.0, 0.0)
    """

    imbalance: float  # σ⁴(‖w‖² - ‖v‖²)²
    non_collinearity: float  # 4σ⁴(‖w‖²‖v‖² - ⟨w,v⟩²)
    deviation: float  # 4(2σ²⟨w,v⟩ - yx)²
    norm: float  # σ²(‖w‖² + ‖v‖²)

    @property
    def outliers(self) -> tuple[float, float]:
        """λ₁ and λ₂ that the terms add up to."""
        root = (self.imbalance + self.non_collinearity + self.deviation) ** 0.5
        return (self.norm + root) / 2, (self.norm - root) / 2

    def __repr__(self) -> str:
        lines = [f"  {name:<17} {getattr(self, name):>12.6g}  {meaning}" for name, meaning in MEANINGS.items()]
        return "\n".join([f"SharpnessTerms(λ₁ = {self.outliers[0]:.6g}, λ₂ = {self.outliers[1]:.6g})", *lines])


def sharpness_terms(
    v: Float[Tensor, " m"], w: Float[Tensor, " m"], x: Float[Tensor, " N"], y: Float[Tensor, " N"]
) -> SharpnessTerms:
    """The four terms of the sharpness: layer imbalance, non-collinearity, deviation from the target, and norm.

    Singh et al. (2026), eq. (2); the poster of 2024 lacks σ² in the third.

    >>> one = torch.ones(1)
    >>> sharpness_terms(2 * one, one, one, one)
    SharpnessTerms(λ₁ = 5.8541, λ₂ = -0.854102)
      imbalance                    9  the norms of the two layers differ
      non_collinearity             0  the layers point in different directions
      deviation                   36  the network is off its target
      norm                         5  the overall size of the weights, tr H
    """
    v, w, x, y = _scalar_regression(v, w, x, y)
    sigma2, c = float(x.square().mean()), float(w @ v)
    short, long = sorted((v, w), key=lambda u: float(u.norm()))
    square = float(long @ long)
    rest = short - (c / square if square else 0.0) * long  # ‖w‖²‖v‖² - c² without its cancellation
    return SharpnessTerms(
        (sigma2 * float((w - v) @ (w + v))) ** 2,
        4 * sigma2**2 * square * float(rest @ rest),
        4 * (2 * sigma2 * c - float((y * x).mean())) ** 2,
        sigma2 * float(w @ w + v @ v),
    )


class Phase(StrEnum):
    """The three phases of learning of Singh et al. (2026), App. C.

    >>> one = torch.ones(1)
    >>> phase(one, one, one, 4 * one) is Phase.EARLY
    True
    """

    EARLY = "early"
    LATE = "late"
    DIVERGENT = "divergent"


def phase(v: Float[Tensor, " m"], w: Float[Tensor, " m"], x: Float[Tensor, " N"], y: Float[Tensor, " N"]) -> Phase:
    """Early, late or divergent: c/θ* below 1/3, from 1/3 to 1, above 1, with c = ⟨w,v⟩ and θ* = yx/σ².

    Late is where (c - θ*)(3c - θ*) ≤ 0, so that λ₂ ≥ 0. Singh et al. (2026), App. C and eq. (122), whose inequalities
    hold for θ* > 0 only; a target θ* = 0 has no late phase but the solution c = 0 itself.

    >>> one = torch.ones(1)
    >>> str(phase(one, one, one, 2 * one))
    'late'
    """
    v, w, x, y = _scalar_regression(v, w, x, y)
    sigma2, c = float(x.square().mean()), float(w @ v)
    if not sigma2:
        raise ArgumentError(
            "All inputs are zero.",
            "Then the best slope θ* = yx/σ² is not defined.",
            "Give at least one x that is not zero.",
        )
    target = float((y * x).mean()) / sigma2
    if (c - target) * (3 * c - target) <= 0:
        return Phase.LATE
    return Phase.EARLY if target and c / target < 1 / 3 else Phase.DIVERGENT


def invariant_bulk(v: Float[Tensor, " m"], w: Float[Tensor, " m"]) -> tuple[Float[Tensor, "n a"], Float[Tensor, "n b"]]:
    """The subspaces (u; u), u ⟂ w + v, and (u; -u), u ⟂ w - v, that gradient descent never enters nor turns.

    Orthonormal columns, in coordinates (v, w). θ and its gradient are orthogonal to both, with momentum and weight
    decay too, but not under Adam; their eigenvalues are +δx and -δx at every step. Where w = ∓v the first (second)
    has dimension m. Singh et al. (2026), Cor 3.1.

    >>> plus, minus = invariant_bulk(torch.ones(3), torch.zeros(3))
    >>> plus.shape, minus.shape
    (torch.Size([6, 2]), torch.Size([6, 2]))
    """
    v, w = vector("v", v), vector("w", w)
    check_lengths(v=v, w=w)
    spaces = [complement(u[:, None] if u.any() else u[:, None][:, :0], len(u) - bool(u.any())) for u in (w + v, w - v)]
    return ROOT * torch.cat([spaces[0], spaces[0]]), ROOT * torch.cat([spaces[1], -spaces[1]])


def relu_network(
    v: Float[Tensor, " m"],
    w: Float[Tensor, " m"],
    x: Float[Tensor, " N"],
    y: Float[Tensor, " N"],
    *,
    slope: float = 0.0,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of f(x) = ⟨w, φ(v x)⟩, φ (leaky) ReLU: that of a linear network in each of the cells v > 0 and v < 0.

    With S± = (1/N) Σ x² and D± = (1/N) Σ (f - y)x over ±x > 0, cell + has bulk ±(D₊ + slope·D₋) and cell - has
    ±(slope·D₊ + D₋). A leaky ReLU couples the outliers of the cells. Units with v = 0 are in neither cell: autograd
    takes φ'(0) = slope, and where that is zero they add two zeros each ("v = 0"). Singh et al. (2026), eq. (3) and Thm
    3.4, with the scaling of eq. (62)-(67) corrected; not in the papers for slope ≠ 0.

    >>> v, w = torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1.0, 2.0, 1.0])
    >>> relu_network(v, w, torch.tensor([1.0, -1.0]), torch.zeros(2))["cell +, bulk +"].value
    2.0
    """
    v, w, x, y = _scalar_regression(v, w, x, y)
    residuals = _outputs(v, w, x, slope) - y
    sides = [_moments(x * side, residuals) for side in (x > 0, x < 0)]
    cells = {"cell +": (v > 0, (1.0, slope)), "cell -": (v < 0, (slope, 1.0)), "v = 0": (v == 0, (slope, slope))}
    occupied = {name: cell for name, cell in cells.items() if cell[0].any() and any(cell[1])}
    pairs = [_pair(v, w, f"{name}, ", members) for name, (members, _) in occupied.items()]
    slopes = torch.tensor([pattern for _, pattern in occupied.values()], dtype=torch.float64).reshape(-1, 2)
    S, D = (torch.tensor(moment, dtype=torch.float64) for moment in zip(*sides, strict=True))
    lines = (
        pair_lines(pairs, slopes @ (0.0 * D if gauss_newton else D), (slopes * S) @ slopes.T, 2 * len(w))
        if pairs
        else []
    )
    dead = (v == 0).nonzero()[:, 0] if not slope else torch.zeros(0, dtype=torch.int64)
    return ClosedForm([*lines, coordinates("v = 0", torch.cat([dead, dead + len(v)]), 2 * len(v))])


def _outputs(v: Tensor, w: Tensor, x: Tensor, slope: float) -> Tensor:
    """f(x) by its two slopes, ⟨w₊,v₊⟩ + slope·⟨w₋,v₋⟩ right of zero: no N × m matrix is formed."""
    plus, minus = (w @ v.clamp(min=0)), (w @ v.clamp(max=0))
    return torch.where(x > 0, (plus + slope * minus) * x, (slope * plus + minus) * x)


def _one_pair(v: Tensor, w: Tensor, slope: Tensor, curvature: Tensor) -> ClosedForm:
    pair = Pair("", w, v, torch.arange(2 * len(w)))
    return ClosedForm(pair_lines([pair], slope.reshape(1), curvature.reshape(1, 1), 2 * len(w)))


def _pair(v: Tensor, w: Tensor, name: str, members: Tensor) -> Pair:
    rows = members.nonzero()[:, 0]
    return Pair(name, w[rows], v[rows], torch.cat([rows, rows + len(v)]))


def _moments(x: Tensor, residuals: Tensor) -> tuple[Tensor, Tensor]:
    """σ² = mean x² and δx = mean δ·x."""
    return x.square().mean(), (residuals * x).mean()


def _scalar_regression(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    v, w, x, y = vector("v", v), vector("w", w), vector("x", x), vector("y", y)
    check_lengths(v=v, w=w)
    check_lengths(x=x, y=y)
    return v, w, x, y
