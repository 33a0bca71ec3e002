"""One self-attention head on sequences of scalars: f(x) = w_v A(x) x, A = softmax(x w_qᵀ w_k xᵀ/√d + bias).

The scores depend on the weights only through s = ⟨w_q,w_k⟩/√d, so that the loss is a function F(w_v, s), and the
Hessian in the coordinates (w_v, w_q, w_k) depends on four numbers: α = F_vv, β = F_vs/√d, γ = F_s/√d and ζ = F_ss/d.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.func import grad

from ..errors import ArgumentError
from .arguments import check_in_range, check_lengths, check_sizes, checked_loss, vector
from .closed_form import ClosedForm, Group, eigenlines
from .inner_products import Pair, embedded

PerSequence = Shaped[Tensor, "..."] | Sequence[Shaped[Tensor, "..."]] | None


@dataclass(frozen=True)
class AttentionScalars:
    """The four numbers that make the Hessian. Singh et al. (2026), Sec. 3.3.

    >>> w, x = torch.ones(1), torch.tensor([1.0, -1.0])
    >>> attention_scalars(1.0, 0 * w, w, x, x)
    AttentionScalars(alpha=0.0, beta=-1.0, gamma=-1.0, zeta=1.0)
    """

    alpha: float  # ‖m₁‖²/n
    beta: float  # (w_v m₁ + δ)ᵀ(x ⊙ m₂)/(n√d)
    gamma: float  # w_v δᵀ(x ⊙ m₂)/(n√d)
    zeta: float  # (w_v²‖x ⊙ m₂‖² + w_v δᵀ(x ⊙ x ⊙ m₃))/(n d)


@dataclass(frozen=True)
class AttentionBounds:
    """Bounds tr/3 ± ξ on the outliers, and what follows for the sharpness and the condition number.

    >>> bounds = AttentionBounds(centre=1.0, xi=2.0, gamma=0.5, has_bulk=True)
    >>> bounds.outliers, bounds.sharpness, bounds.condition_number
    ((-1.0, 3.0), (2.0, 3.0), 4.0)
    """

    centre: float  # tr H / 3
    xi: float
    gamma: float  # |γ|
    has_bulk: bool  # d > 1

    @property
    def outliers(self) -> tuple[float, float]:
        """tr/3 - ξ ≤ every outlier ≤ tr/3 + ξ. Singh et al. (2026), Thm 3.5, norms squared in ξ."""
        return self.centre - self.xi, self.centre + self.xi

    @property
    def largest_outlier(self) -> tuple[float, float]:
        """tr/3 + ξ/2 ≤ largest outlier ≤ tr/3 + ξ, always. Singh et al. (2026), Remark B.4."""
        return self.centre + self.xi / 2, self.centre + self.xi

    @property
    def sharpness(self) -> tuple[float, float]:
        """Bounds of λ_max(H) = max(largest outlier, |γ|), which always hold.

        Remark B.4 leaves the bulk out, which may be largest where ζ < 0; where ζ ≥ 0 both agree.
        """
        low, high = self.largest_outlier
        bulk = self.gamma if self.has_bulk else low
        return max(low, bulk), max(high, bulk)

    @property
    def condition_number(self) -> float:
        """κ(H) ≥ (2 tr + 3ξ)/(6|γ|), for every width; infinite where γ = 0. Singh et al. (2026), Remark 3.1."""
        return self.largest_outlier[0] / self.gamma if self.gamma else float("inf")


def self_attention(
    w_v: float | Float[Tensor, ""],
    w_q: Float[Tensor, " d"],
    w_k: Float[Tensor, " d"],
    x: Float[Tensor, "... n"] | Sequence[Float[Tensor, " _"]],
    y: Float[Tensor, "... n"] | Sequence[Float[Tensor, " _"]],
    *,
    scores_bias: PerSequence = None,
    mask: PerSequence = None,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of a head: bulk ±γ (d - 1 each) and three outliers eig (α, βp, βq; βp, ζp² + γ, ζpq; βq, ζpq, ζq² - γ).

    p = ‖w_k + w_q‖/√2, q = ‖w_k - w_q‖/√2; coordinates (w_v, w_q, w_k). `x` and `y` are one sequence (n,), several
    (b, n), or a list of sequences of any lengths: the loss is ½(f - y)², averaged over all positions. `scores_bias` is
    added to the scores, `mask` is true where a position may attend; both are (n, n) or broadcast to it, the same for
    all sequences or, with a list `x`, one for each. Singh et al. (2026), Thm 3.5, with the order of the columns,
    q and ξ corrected and with eigenvectors; Remark B.2 is the block of w_q and w_k, Remark B.3 the case γ = 0.

    >>> w, x = torch.ones(2), torch.tensor([1.0, -1.0])
    >>> self_attention(0.0, w, w, x, x).size
    5
    """
    scalars = attention_scalars(w_v, w_q, w_k, x, y, scores_bias=scores_bias, mask=mask, gauss_newton=gauss_newton)
    return _closed_form(scalars, vector("w_q", w_q), vector("w_k", w_k))


def attention_product(
    w_v: float | Float[Tensor, ""],
    w_q: Float[Tensor, " d"],
    w_k: Float[Tensor, " d"],
    loss: Callable[[Tensor, Tensor], Tensor],
) -> ClosedForm:
    """H of F(w_v, s), s = ⟨w_q,w_k⟩/√d, for any twice smooth F: any activation in place of the softmax, any loss.

    Not in the papers in this generality.

    >>> w = torch.ones(2)
    >>> attention_product(1.0, w, w, lambda w_v, s: w_v**2 + s**2).size
    5
    """
    w_q, w_k = vector("w_q", w_q), vector("w_k", w_k)
    check_lengths(w_q=w_q, w_k=w_k)
    root = len(w_q) ** 0.5
    at = (torch.as_tensor(w_v, dtype=torch.float64, device=w_q.device).reshape(()), (w_q @ w_k) / root)
    loss = checked_loss(loss)
    by_v, by_s = grad(loss, 0), grad(loss, 1)
    scalars = AttentionScalars(
        float(grad(by_v, 0)(*at)),
        float(grad(by_v, 1)(*at)) / root,
        float(by_s(*at)) / root,
        float(grad(by_s, 1)(*at)) / root**2,
    )
    return _closed_form(scalars, w_q, w_k)


def attention_bounds(
    w_v: float | Float[Tensor, ""],
    w_q: Float[Tensor, " d"],
    w_k: Float[Tensor, " d"],
    x: Float[Tensor, "... n"] | Sequence[Float[Tensor, " _"]],
    y: Float[Tensor, "... n"] | Sequence[Float[Tensor, " _"]],
    *,
    scores_bias: PerSequence = None,
    mask: PerSequence = None,
) -> AttentionBounds:
    """tr/3 ± ξ, ξ = ⅔√(3γ² + 6γζ⟨w_k,w_q⟩ + 3(β² - αζ)N + (ζN + α)²), N = ‖w_k‖² + ‖w_q‖².

    The square root is √(3/2) times the norm of the traceless part of the reduced matrix: never imaginary. Singh et al.
    (2026), Thm 3.5, Remark 3.1 and Remark B.4, with their true conditions.

    >>> w, x = torch.ones(2), torch.tensor([1.0, -1.0])
    >>> low, high = attention_bounds(0.5, w, w, x, x).outliers
    >>> low <= self_attention(0.5, w, w, x, x)["outlier 1"].value <= high
    True
    """
    scalars = attention_scalars(w_v, w_q, w_k, x, y, scores_bias=scores_bias, mask=mask)
    M = _reduced(scalars, _pair(vector("w_q", w_q), vector("w_k", w_k)))
    centre = float(M.trace()) / 3
    traceless = M - centre * torch.eye(3, dtype=M.dtype)
    xi = (2 / 3) ** 0.5 * float(traceless.norm())
    return AttentionBounds(centre, xi, abs(scalars.gamma), len(w_q) > 1)


def attention_moments(
    A: Float[Tensor, "*B n n"], x: Float[Tensor, "*B n"]
) -> tuple[Float[Tensor, "*B n"], Float[Tensor, "*B n"], Float[Tensor, "*B n"]]:
    """m₁ = A x and the central moments m₂, m₃ = Σⱼ A_ij (xⱼ - m₁ᵢ)^{2, 3} of what each position attends to.

    Of one sequence in float64 on the CPU; of many heads or sequences at once on their device. Singh et al. (2026),
    Def. B.1.

    >>> attention_moments(torch.full((2, 2), 0.5), torch.tensor([1.0, 3.0]))[1]
    tensor([1., 1.], dtype=torch.float64)
    """
    if A.shape != (*x.shape, x.shape[-1]):
        raise ArgumentError(
            f"An attention matrix of shape {tuple(A.shape)} was given for a sequence of {x.shape[-1]}.",
            "Row i holds the weights with which position i looks at all positions.",
            f"Give a tensor of shape {(*x.shape, x.shape[-1])} whose rows sum to one.",
        )
    x = vector("x", x) if x.ndim == 1 else x.detach()
    A = A.detach().to(x)
    m1 = (A @ x[..., None])[..., 0]
    apart = x[..., None, :] - m1[..., :, None]
    m2, m3 = (A * apart.square()).sum(-1), (A * apart**3).sum(-1)
    if x.ndim == 1:
        check_in_range(torch.stack([m2, m3]), "Moments of the attention")
    return m1, m2, m3


def attention_scalars(
    w_v: float | Float[Tensor, ""],
    w_q: Float[Tensor, " d"],
    w_k: Float[Tensor, " d"],
    x: Float[Tensor, "... n"] | Sequence[Float[Tensor, " _"]],
    y: Float[Tensor, "... n"] | Sequence[Float[Tensor, " _"]],
    *,
    scores_bias: PerSequence = None,
    mask: PerSequence = None,
    gauss_newton: bool = False,
) -> AttentionScalars:
    """α, β, γ, ζ of the Hessian, or of G: then without residuals, so that γ = 0.

    These are averages over all positions of all sequences. Singh et al. (2026), Sec. 3.3; not in the paper for G and
    for batches.

    >>> w, x = torch.ones(2), torch.tensor([1.0, -1.0])
    >>> attention_scalars(1.0, 0 * w, w, x, x).alpha
    0.0
    """
    w_q, w_k = vector("w_q", w_q), vector("w_k", w_k)
    check_lengths(w_q=w_q, w_k=w_k)
    value, d = float(w_v), len(w_q)
    xs, ys = _sequences("x", x), _sequences("y", y)
    check_lengths(x=torch.empty(len(xs)), y=torch.empty(len(ys)))
    biases, masks = _per_sequence(scores_bias, x, len(xs)), _per_sequence(mask, x, len(xs))
    s = (w_q @ w_k) / d**0.5
    sums = sum(_sums(value, s, *each, gauss_newton) for each in zip(xs, ys, biases, masks, strict=True))
    check_in_range(torch.as_tensor(sums), "Entries of the Hessian")
    alpha, beta, gamma, zeta = (torch.as_tensor(sums) / sum(map(len, xs))).tolist()
    return AttentionScalars(alpha, beta / d**0.5, gamma / d**0.5, zeta / d)


def _sums(
    w_v: float, s: Tensor, x: Tensor, y: Tensor, bias: Tensor | None, mask: Tensor | None, gauss_newton: bool
) -> Tensor:
    """n·(F_vv, F_vs, F_s, F_ss) of one sequence: ∂m₁/∂s = x ⊙ m₂ and ∂²m₁/∂s² = x ⊙ x ⊙ m₃."""
    check_sizes("a sequence and its targets differ in length", len(y), len(x))
    m1, m2, m3 = attention_moments(_attention(s, x, bias, mask), x)
    delta = torch.zeros_like(y) if gauss_newton else w_v * m1 - y
    slope, bend = x * m2, x * x * m3
    return torch.stack(
        [m1 @ m1, (w_v * m1 + delta) @ slope, w_v * (delta @ slope), w_v * w_v * (slope @ slope) + w_v * (delta @ bend)]
    )


def _attention(s: Tensor, x: Tensor, bias: Tensor | None, mask: Tensor | None) -> Float[Tensor, "n n"]:
    scores = s * torch.outer(x, x)
    try:
        scores = scores if bias is None else scores + bias.detach().to(scores)
        scores = scores if mask is None else scores.masked_fill(~mask.bool().cpu(), -torch.inf)
    except RuntimeError as error:
        raise ArgumentError(
            f"The scores of a sequence of {len(x)} do not go with the bias or mask: {error}",
            "Both broadcast to (n, n): row i says how position i looks at all positions.",
            "With sequences of several lengths, pass x, y and the bias or mask as lists.",
        ) from None
    if scores.shape != (len(x), len(x)) or bool((scores == -torch.inf).all(1).any()):
        raise ArgumentError(
            f"The masked scores have shape {tuple(scores.shape)}" + ", or a row of them is empty.",
            "Every position must have something to look at, or its attention is not defined.",
            "Let each position see at least itself: mask = torch.ones(n, n).tril().bool().",
        )
    return scores.softmax(1)


def _pair(w_q: Tensor, w_k: Tensor) -> Pair:
    return Pair("", w_k, w_q, torch.arange(1, 2 * len(w_q) + 1))


def _reduced(scalars: AttentionScalars, pair: Pair) -> Float[Tensor, "3 3"]:
    """The Hessian in the directions w_v, (w_k + w_q; w_k + w_q), (w_k - w_q; w_q - w_k)."""
    alpha, beta, gamma, zeta = scalars.alpha, scalars.beta, scalars.gamma, scalars.zeta
    g = torch.tensor(pair.norms, dtype=torch.float64)
    M = torch.zeros(3, 3, dtype=torch.float64)
    M[0, 0] = alpha
    M[0, 1:] = M[1:, 0] = beta * g
    M[1:, 1:] = zeta * torch.outer(g, g) + torch.tensor([gamma, -gamma], dtype=torch.float64).diag()
    return M


def _closed_form(scalars: AttentionScalars, w_q: Tensor, w_k: Tensor) -> ClosedForm:
    pair, size = _pair(w_q, w_k), 2 * len(w_q) + 1

    def lift(Z: Tensor) -> Tensor:
        return torch.cat([Z[:1], pair.frame() @ Z[1:]])

    outliers = eigenlines(_reduced(scalars, pair), "outlier", lift)
    bulk = [
        Group("bulk +", scalars.gamma, len(w_q) - 1, lambda count: pair.bulk(1, count)),
        Group("bulk -", -scalars.gamma, len(w_q) - 1, lambda count: pair.bulk(-1, count)),
    ]
    return ClosedForm([*(embedded(line, pair.rows, size) for line in bulk), *outliers])


def _sequences(name: str, given: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if isinstance(given, Tensor) and given.ndim == 1:
        return [vector(name, given)]
    if (isinstance(given, Tensor) and given.ndim != 2) or not len(given):
        raise ArgumentError(
            f"{name} has shape {tuple(given.shape)}." if isinstance(given, Tensor) else f"{name} holds no sequence.",
            "A head of embedding dimension 1 reads sequences of numbers.",
            "Pass one sequence (n,), several (b, n), or a list of sequences.",
        )
    return [vector(name, sequence) for sequence in given]


def _per_sequence(given: PerSequence, x: Tensor | Sequence[Tensor], count: int) -> list[Tensor | None]:
    if given is None or isinstance(given, Tensor):
        return [given] * count
    check_sizes("the list of biases or masks and the list of sequences", len(given), count)
    return list(given)
