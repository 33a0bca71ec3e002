"""Networks with one output: all eigenvalues of Hessians that would not fit into memory, exactly, from the range of H.

The curvature of a network with one output acts on few directions of each layer. In their orthonormal coordinates H is
a matrix of some hundred rows, however many parameters there are, and all other eigenvalues are zero, exactly. Four
linear layers of width 150 with 150 inputs have 67,650 parameters, and here 1,047 coordinates. Everything is for a stack
of networks, with their data. Not in the papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from .arguments import check_sizes, stacked
from .layer_products import products_after, products_before

Stacks = Sequence[Float[Tensor, "B _ _"]]


@dataclass(frozen=True)
class Spectra:
    """The eigenvalues of each network's Hessian that may differ from zero, ascending, and how many zeros there are.

    >>> one = torch.ones(5, 1, 1).double()  # five networks, of two parameters each
    >>> relu_spectra(one, one, one, one).values.shape
    torch.Size([5, 2])
    """

    values: Float[Tensor, "B q"]
    zeros: int

    @property
    def size(self) -> int:
        """n, the number of parameters of one network."""
        return self.values.shape[1] + self.zeros


def linear_spectra(weights: Stacks, X: Float[Tensor, "B N d"], y: Float[Tensor, "B N 1"]) -> Spectra:
    """spec H of f(x) = W_L ⋯ W₁x with one output, squared error, in the coordinates dW_ℓ = u a_ℓᵀ + b_ℓᵀvᵀ.

    With r = E[(f - y)x], a_ℓ = W_{ℓ-1} ⋯ W₁r and b_ℓ = W_L ⋯ W_{ℓ+1}: the gradient of f is b_ℓᵀ(W_{ℓ-1} ⋯ W₁x)ᵀ, and
    the functional Hessian is the second derivative of W_L ⋯ W₁r, which meets a layer as b_ℓ dW_ℓ or as dW_ℓ a_ℓ only.

    >>> W, X = torch.eye(3)[None].double(), torch.eye(3)[None].double()
    >>> spectra = linear_spectra([W, W[:, :1]], X, torch.zeros(1, 3, 1).double())
    >>> spectra.size, spectra.zeros
    (12, 4)
    """
    weights, X, y = stacked(weights), X.detach().double(), y.detach().double()
    for i, W in enumerate(weights, 1):
        check_sizes(f"W{i} {tuple(W.shape)} and X {tuple(X.shape)} are of as many networks", len(W), len(X))
    check_sizes(f"The last layer {tuple(weights[-1].shape)} is compared with y", weights[-1].shape[-2], 1)
    check_sizes(f"W1 {tuple(weights[0].shape)} is applied to X {tuple(X.shape)}", X.shape[-1], weights[0].shape[-1])
    Q, rows = torch.linalg.qr(X / X.shape[-2] ** 0.5)  # no more of them than inputs
    targets = Q.mT @ y / X.shape[-2] ** 0.5
    before, after = products_before(weights), products_after(weights)
    r = (rows @ (after[0] @ weights[0]).mT - targets).mT @ rows  # B × 1 × d
    frames = [_frame((P @ r.mT)[..., 0]) for P in before]
    J = torch.cat([_slopes(rows @ P.mT, b, frame) for P, b, frame in zip(before, after, frames, strict=True)], -1)
    H = J.mT @ J
    places = _places(weights)
    for i, j in combinations(range(len(weights)), 2):
        length = frames[i].first.mT @ before[i] @ r.mT  # of a_i, with the sign that its unit vector has got
        block = length * _cross(weights, after, frames, i, j)
        u = slice(places[i].start, places[i].start + weights[i].shape[-2])
        H[:, places[j], u] += block
        H[:, u, places[j]] += block.mT
    size = sum(W[0].numel() for W in weights)
    return Spectra(torch.linalg.eigvalsh(H), size - H.shape[-1])


def relu_spectra(
    W: Float[Tensor, "B m d"], w: Float[Tensor, "B 1 m"], X: Float[Tensor, "B N d"], y: Float[Tensor, "B N 1"]
) -> Spectra:
    """spec H of f(x) = ⟨w, φ(Wx)⟩, φ ReLU, squared error: at most N + 2m of its m(d + 1) eigenvalues are not zero.

    Within W, H reaches the N gradients of the outputs and, through w_j, the vector Σᵢ (f - y)ᵢ φ'ᵢⱼ xᵢ of each unit.

    >>> W, X = torch.eye(3)[None].double(), torch.eye(3)[None].double()
    >>> spectra = relu_spectra(W, W[:, :1], X, torch.zeros(1, 3, 1).double())
    >>> spectra.size, spectra.zeros
    (12, 3)
    """
    W, w, X, y = (given.detach().double() for given in (W, w, X, y))
    count, (m, d) = X.shape[-2], W.shape[-2:]
    hidden = X @ W.mT
    active = (hidden > 0).to(X)
    residuals = (hidden * active) @ w.mT - y
    moved = torch.einsum("bnj,bnd->bnjd", active * w, X).flatten(2).mT / count**0.5  # gradients with respect to W
    single = torch.einsum("bnj,bnd->bjd", active * residuals, X) / count
    own = torch.diag_embed(single.mT).permute(0, 2, 3, 1).reshape(len(X), m, m * d).mT
    R = torch.linalg.qr(torch.cat([moved, own], -1), mode="r").R
    G, E = R[..., :count], R[..., count:]
    features = hidden * active / count**0.5
    across = G @ features + E
    H = torch.cat([torch.cat([G @ G.mT, across], -1), torch.cat([across.mT, features.mT @ features], -1)], -2)
    return Spectra(torch.linalg.eigvalsh(H), m * (d + 1) - H.shape[-1])


@dataclass(frozen=True)
class _Frame:
    """A unit vector and an orthonormal basis of what is orthogonal to it."""

    first: Float[Tensor, "B n 1"]
    rest: Float[Tensor, "B n k"]


def _frame(a: Float[Tensor, "B n"]) -> _Frame:
    """The frame of a; that of the first axis if a = 0."""
    axis = torch.zeros_like(a)
    axis[:, 0] = 1.0
    first = torch.where(a.norm(dim=-1, keepdim=True) > 0, a, axis)
    Q = torch.linalg.qr(first[..., None], mode="complete").Q
    return _Frame(Q[..., :1], Q[..., 1:])


def _slopes(Z: Tensor, b: Float[Tensor, "B 1 p"], frame: _Frame) -> Float[Tensor, "B q c"]:
    """The derivatives of the outputs along u and v of one layer, Z being what the layer sees."""
    return torch.cat([(Z @ frame.first) * b, b.norm(dim=-1, keepdim=True) * (Z @ frame.rest)], -1)


def _cross(weights: Stacks, after: Sequence[Tensor], frames: Sequence[_Frame], i: int, j: int) -> Tensor:
    """b_j dW_j (W_{j-1} ⋯ W_{i+1}) u_i, as a matrix from u_i to (u_j, v_j)."""
    M, b = products_before(weights[i + 1 : j + 1])[-1], after[j]
    return torch.cat([b.mT @ (frames[j].first.mT @ M), b.norm(dim=-1, keepdim=True) * (frames[j].rest.mT @ M)], -2)


def _places(weights: Stacks) -> list[slice]:
    """Where the coordinates (u, v) of each layer stand: as many as it has outputs and inputs, less one."""
    ends = torch.tensor([sum(W.shape[-2:]) - 1 for W in weights]).cumsum(0).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
