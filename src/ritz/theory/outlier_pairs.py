"""Two-layer linear networks whose outliers pair up to tr H / D: white inputs, orthogonal layers, or a bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import ArgumentError
from .arguments import check_lengths, check_sizes, matrix, vector
from .bases import complement, from_complement, in_complement, unit
from .closed_form import ClosedForm, Group, eigenlines
from .inner_products import Pair, embedded, pair_lines
from .two_layer_compression import two_layer_linear

TOLERANCE = 1e-12  # how well an assumption must hold, relative: ten times less than the error that is promised


def bias_network(
    v: Float[Tensor, " m"],
    b: Float[Tensor, " m"],
    w: Float[Tensor, " m"],
    x: Float[Tensor, " N"],
    y: Float[Tensor, " N"],
    *,
    gauss_newton: bool = False,
) -> ClosedForm:
    """H of f(x) = ⟨w, v x + b⟩, coordinates (v, b, w): a pair, a triple, bulk ±ρ (m - 2 each) and 0 (m - 1).

    ρ² = δx² + δ². These names hold under the assumptions of Singh et al. (2026), Thm B.1 and eq. (68): ⟨v,b⟩ = 0, ‖v‖ =
    ‖b‖, inputs of mean 0 and variance 1, targets of mean 0 and uncorrelated with the inputs, m ≥ 2; dropping any one
    breaks them. Otherwise the spectrum is that of the compressed network, named as in `two_layer_linear`: exact for any
    weights and data.

    >>> v, b, w = torch.eye(3)
    >>> bias_network(v, b, w, torch.tensor([1.0, -1.0]), torch.zeros(2)).size
    9
    """
    v, b, w, x, y = (vector(name, given) for name, given in (("v", v), ("b", b), ("w", w), ("x", x), ("y", y)))
    check_lengths(v=v, b=b, w=w)
    check_lengths(x=x, y=y)
    V, X = torch.stack([v, b], 1), torch.stack([x, torch.ones_like(x)], 1)
    columns = torch.arange(3 * len(w)).reshape(3, -1)
    rows = torch.cat([columns[:2].T.flatten(), columns[2]])  # of v and b interleaved, then of w
    if not gauss_newton and len(w) > 1 and not any(_violations(V, w, X, y, uncorrelated=True)):
        form = paired_outliers(V, w, X, y)
    else:
        form = two_layer_linear(V, w[None], X, y[:, None], gauss_newton=gauss_newton)
    return ClosedForm(embedded(line, rows, len(rows)) for line in form.groups)


def paired_outliers(
    V: Float[Tensor, "m d"], w: Float[Tensor, " m"], X: Float[Tensor, "N d"], y: Float[Tensor, " N"]
) -> ClosedForm:
    """H of f(x) = ⟨w, V x⟩ for orthogonal V, white inputs and E[yx] ∥ Vᵀw: a pair with λ₁ + λ₂ = tr H / D, exactly.

    If VᵀV = νI, XᵀX/N = σ²I and E[yx] = κVᵀw, then with C = ‖Vᵀw‖, d = (σ² - κ)C and a = σ²(ν + ‖w‖²) the pair solves
    λ² - aλ - d² - 2σ²dC = 0, the triple λ³ - aλ² - d²λ + σ²‖w‖²d² = 0 (D - 1 times each); bulk ±d (m - D each), zeros
    (m - 1)(D - 1). Coordinates (V, w). This proves the hypothesis of Singh et al. (2026), Sec. 4.1, under these
    assumptions; Thm B.1 is D = 2 with κ = 0. Not in the papers for D > 2.

    >>> V, w, X = torch.eye(3, 2), torch.tensor([1.0, 0.0, 0.0]), torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> form = paired_outliers(V, w, X, torch.zeros(2))
    >>> round(form["pair 1"].value + form["pair 2"].value, 9), round(float(form.eigenvalues().sum()) / 2, 9)
    (2.0, 2.0)
    """
    V, w, X, y = matrix("V", V), vector("w", w), matrix("X", X), vector("y", y)
    check_lengths(V=V, w=w)
    check_lengths(X=X, y=y)
    check_sizes(f"V of shape {tuple(V.shape)} is applied to X of shape {tuple(X.shape)}", X.shape[1], V.shape[1])
    _check_assumptions(V, w, X, y)
    sector = _Sector.of(V, w, X, y)
    return ClosedForm([*sector.scalar(), *sector.triples(), sector.zeros()])


@dataclass(frozen=True, eq=False)
class _Sector:
    """The invariant subspaces of `paired_outliers`: dV in the columns E = (c/‖c‖, its complement), c = Vᵀw.

    Along E₁ the network is f = ⟨w, v₁⟩ with v₁ = V E₁, a scalar linear network; along each other column q = V Eₖ/√ν is
    orthogonal to w, and (dV Eₖ ∥ w, dw ∥ q, dV E₁ ∥ q) closes on itself.
    """

    w: Tensor
    E: Tensor  # d × d, orthogonal
    Q: Tensor  # m × d, orthonormal columns V E/√ν
    nu: float
    sigma2: float
    d: float

    @classmethod
    def of(cls, V: Tensor, w: Tensor, X: Tensor, y: Tensor) -> _Sector:
        D, nu = V.shape[1], float(V.square().sum()) / V.shape[1]
        c = V.T @ w
        first = unit(c)[:, None]
        E = torch.cat([first, complement(first, D - 1)], 1)
        top = unit(w)[:, None]
        Q = V @ E / nu**0.5 if nu else torch.cat([top, complement(top, D - 1)], 1)
        delta = (X @ c - y) @ X / len(X)
        return cls(w, E, Q, nu, float(X.square().sum()) / X.numel(), float(delta @ E[:, 0]))

    def scalar(self) -> list[Group]:
        """The pair and the bulk: along E₁, the scalar network of w and v₁ in the complement of all q."""
        others = self.Q[:, 1:]
        w, v = in_complement(others, torch.stack([self.w, self.nu**0.5 * self.Q[:, 0]], 1)).unbind(1)
        whole = Pair("", w, v, torch.arange(2 * len(w)))
        slope, curvature = (torch.tensor(number, dtype=torch.float64) for number in ([self.d], [[self.sigma2]]))
        lines = pair_lines([whole], slope, curvature, 2 * len(w))

        def lifted(small: Callable[[int], Tensor]) -> Callable[[int], Tensor]:
            return lambda count: self._vectors(*(from_complement(others, half) for half in small(count).chunk(2)), k=0)

        return [
            replace(line, name=line.name.replace("outlier", "pair"), basis=lifted(line.basis))
            for line in lines
            if line.basis is not None
        ]

    def triples(self) -> list[Group]:
        D, W = self.E.shape[1], float(self.w @ self.w)
        cross = self.sigma2 * (self.nu * W) ** 0.5
        M = [[self.sigma2 * W, cross, 0.0], [cross, self.sigma2 * self.nu, self.d], [0.0, self.d, 0.0]]
        lines = eigenlines(torch.tensor(M, dtype=torch.float64), "triple", lambda Z: Z)
        return [replace(line, multiplicity=D - 1, basis=self._triple(line.basis)) for line in lines if line.basis]

    def zeros(self) -> Group:
        """dV Eₖ ⟂ w for k > 1."""
        m, D = self.Q.shape

        def basis(count: int) -> Tensor:
            U = complement(unit(self.w)[:, None], min(count, m - 1))
            return torch.cat([self._vectors(U, 0 * U, k=k) for k in range(1, D)], 1)[:, :count]

        return Group("zero", 0.0, (m - 1) * (D - 1), basis)

    def _triple(self, small: Callable[[int], Tensor]) -> Callable[[int], Tensor]:
        def basis(count: int) -> Tensor:
            (a,), (b,), (c,) = small(1).tolist()
            W, q = unit(self.w)[:, None], self.Q.split(1, 1)
            columns = [
                self._vectors(a * W, b * q[k], k=k) + self._vectors(c * q[k], 0 * W, k=0) for k in range(1, count + 1)
            ]
            return torch.cat([self._vectors(W[:, :0], W[:, :0], k=0), *columns], 1)

        return basis

    def _vectors(self, A: Tensor, dw: Tensor, *, k: int) -> Tensor:
        """Columns with dV = A Eₖᵀ and dw, flat and row-major."""
        return torch.cat([torch.einsum("mc,d->mdc", A, self.E[:, k]).flatten(0, 1), dw])


def _violations(V: Tensor, w: Tensor, X: Tensor, y: Tensor, *, uncorrelated: bool = False) -> list[str]:
    """Which assumptions of the paired outliers do not hold, with what was measured."""
    gram, S, c, moment = V.T @ V, X.T @ X / len(X), V.T @ w, y @ X / len(X)
    first = unit(c)
    left = moment if uncorrelated or not c.any() else moment - (first @ moment) * first
    size = float(S.diag().mean() * (gram.diag().mean() + w @ w) + (S @ c - moment).norm())  # that of the largest line
    departures = {
        "VᵀV is not νI": _unevenness(gram),
        "XᵀX/N is not σ²I": _unevenness(S),
        "E[yx] is not 0" if uncorrelated else "E[yx] is not parallel to Vᵀw": float(left.norm()) / (size or 1.0),
    }
    return [f"{what} (by {how:.1e}, relative)" for what, how in departures.items() if not how <= TOLERANCE]


def _unevenness(A: Tensor) -> float:
    """max |A - tr(A)/D I| relative to the largest entry."""
    mean = A.diag().mean()
    return float((A - mean * torch.eye(len(A)).to(A)).abs().max() / (A.abs().max() or 1.0))


def _check_assumptions(V: Tensor, w: Tensor, X: Tensor, y: Tensor) -> None:
    broken = _violations(V, w, X, y)
    if V.shape[0] < V.shape[1]:
        broken.append(f"the width {V.shape[0]} is below the number of inputs {V.shape[1]}")
    if broken:
        raise ArgumentError(
            f"The paired outliers are not exact here: {'; '.join(broken)}.",
            "They need orthogonal columns of equal norm, white inputs, and targets that follow them along Vᵀw alone.",
            "theory.two_layer_linear(V, w[None], X, y[:, None]) is exact for any weights and data.",
        )
