"""Lanczos recursions, and the spectra they are the quadratures of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import LinAlgError, eigh_tridiagonal
from torch import Tensor

from .. import progress
from ..errors import ArgumentError, check_finite, check_whole
from ..operators import Operator, orthonormal_columns
from ..spectrum import Eigenpairs, Spectrum
from .basis import gaussian, norms, product, rounding, source
from .eigen import eigenpairs

SLOWEST = 0.9  # ratio of two corrections beyond which their sum is not extrapolated
PATIENCE = 16  # steps between two looks at whether all probes have stopped: each makes a GPU wait


@dataclass(frozen=True)
class Tridiagonal:
    """Lanczos decompositions A Q = Q T + β r eₘᵀ, one for each of p start vectors; float64 on the CPU.

    Where a Krylov space is invariant before step m, the off-diagonal is zero from there on and the diagonal repeats
    its first entry, a point inside the spectrum that carries no weight.
    """

    diagonal: Float[Tensor, "p m"]
    off_diagonal: Float[Tensor, "p m-1"]
    residual: Float[Tensor, " p"]  # β
    basis: Float[Tensor, "p n m"] | None = None  # on the operator's device; zero columns after an invariant space

    def eigh(self) -> tuple[Float[Tensor, "p m"], Float[Tensor, "p m m"]]:
        """Ritz values, ascending, and the eigenvectors of T in columns."""
        pairs = [_tridiagonal_eigh(a.numpy(), b.numpy()) for a, b in zip(self.diagonal, self.off_diagonal, strict=True)]
        return torch.stack([values for values, _ in pairs]), torch.stack([S for _, S in pairs])

    def integral(self, f: Callable[[Tensor], Tensor]) -> Float[Tensor, " p"]:
        """∫ f by each probe's Gauss rule."""
        nodes, weights = self.quadrature()
        return (weights * f(nodes)).sum(1)

    def unresolved(self, f: Callable[[Tensor], Tensor]) -> float:
        """What more steps would change in the mean of ∫ f, if each doubling changed as much less as the last one did.

        A guess from the rules of m, m/2 and m/4 steps, and no bound; zero where every space is exhausted.
        """
        a, b, m = self.diagonal[:, 0], self.residual, self.diagonal.shape[1]
        if not bool(b.any()):
            return 0.0
        if m == 1:
            return abs(float((f(a + b) + f(a - b) - 2 * f(a)).mean())) / 2  # f'' β²/2
        last, half, quarter = (float(self.shortened(max(m // part, 1)).integral(f).mean()) for part in (1, 2, 4))
        change, before = abs(half - last), abs(quarter - half)
        ratio = min(change / before, SLOWEST) if before else SLOWEST
        return change * max(1.0, ratio / (1 - ratio))

    def shortened(self, num_steps: int) -> Tridiagonal:
        """The decompositions as they were after fewer steps, without a basis."""
        if num_steps >= self.diagonal.shape[1]:
            return self
        off = self.off_diagonal
        return Tridiagonal(self.diagonal[:, :num_steps], off[:, : num_steps - 1], off[:, num_steps - 1])

    def quadrature(self) -> tuple[Float[Tensor, "p m"], Float[Tensor, "p m"]]:
        """Nodes θ and weights y[1]² of the Gauss rule for Σᵢ (vᵀuᵢ)² δ(λ - λᵢ); exact for degrees below 2m."""
        nodes, S = self.eigh()
        weights = S[:, 0] ** 2
        return nodes, weights / weights.sum(1, keepdim=True)


def lanczos(A: Operator, starts: Float[Tensor, "n p"], num_steps: int, *, keep_basis: bool = False) -> Tridiagonal:
    """Tridiagonalise A on the Krylov space of each start vector: A Q = Q T + β r eₘᵀ.

    The p recursions run in step, so one pass over the data serves them all; they end early where every space has
    become invariant. With the basis, Q is orthogonal to rounding: Papyan (2020), Alg. 1, SlowLanczos. Without
    it, three vectors a probe are kept and eigenvalues may appear in T several times, which leaves the weights of
    the quadrature right: Alg. 2, FastLanczos.
    """
    _check_steps(A, starts, num_steps, keep_basis)
    return _completed(_Recursion.begun(A, starts, num_steps, keep_basis), A)


def spectral_density(
    A: Operator,
    *,
    num_steps: int = 128,
    num_probes: int = 8,
    outliers: int | Eigenpairs = 0,
    generator: torch.Generator | None = None,
) -> Spectrum:
    """The spectrum Σᵢ δ(λ - λᵢ)/n by stochastic Lanczos quadrature: E Σᵢ (vᵀuᵢ)² δ(λ - λᵢ) for v on the sphere.

    Three vectors a probe are kept; the range is that of the Ritz values. With outliers, that many certified
    eigenpairs of largest |λ|, or those given, are atoms of mass exactly 1/n, and the probes measure the rest on their
    orthogonal complement, so that the zeros of a deflated operator are never seen. Papyan (2020), Alg. 3 and Sec. C.8,
    which counts them. No more than n steps are made. Without a generator, a new one with seed 0 is used: two such calls
    share their probes.
    """
    generator = source(generator)
    count = len(outliers) if isinstance(outliers, Eigenpairs) else outliers
    _check_counts(A, num_steps, num_probes, count)
    pairs = outliers if isinstance(outliers, Eigenpairs) else None
    if pairs is not None:
        orthonormal_columns(A, pairs)
    if pairs is None and count:
        pairs = eigenpairs(A, count, which="magnitude", generator=generator)
    values = torch.zeros(0) if pairs is None else pairs.values.double().cpu()
    if count == A.size:
        return Spectrum.of_eigenvalues(values, probes=num_probes)
    probes = gaussian(A, num_probes, generator).T
    steps = min(num_steps, A.size - count)
    # A space this small is exhausted, and its last steps are right only in an orthogonal basis.
    keep_basis = steps == A.size - count
    state = _Recursion.begun(A, probes, steps, keep_basis, None if pairs is None else pairs.vectors.T)
    return _with_atoms(*_completed(state, A).quadrature(), values, A.size, steps)


def spectral_range(
    A: Operator, *, num_steps: int = 32, margin: float = 0.05, generator: torch.Generator | None = None
) -> tuple[float, float]:
    """An interval that should hold the spectrum: θ₁ - β|y₁[m]| to θₘ + β|yₘ[m]|, and `margin` of it on each side.

    No guarantee: an eigenvector that the start hardly contains is not seen. Papyan (2020), Alg. 4 and Sec. D.2 for the
    defaults; its residual ‖(A - θ)y‖ should read ‖(A - θ)V y‖ = β|y[m]|. Without a generator, one with seed 0 is used.
    """
    _check_counts(A, num_steps, 1, 0)
    start = gaussian(A, 1, source(generator))
    T = lanczos(A, start.T, min(num_steps, A.size), keep_basis=False)
    (theta,), (S,) = T.eigh()
    residuals = T.residual[0] * S[-1].abs()
    low, high = float((theta - residuals).min()), float((theta + residuals).max())
    return low - margin * (high - low), high + margin * (high - low)


@dataclass
class _Recursion:
    """The whole state of p recursions: three vectors a probe, or all of them, and their coefficients."""

    previous: Float[Tensor, "p n"]
    current: Float[Tensor, "p n"]
    alpha: Float[Tensor, "m p"]  # on the device, in float64
    beta: Float[Tensor, "m p"]
    scale: Float[Tensor, " p"]  # largest ‖A q‖
    basis: Float[Tensor, "p m n"] | None
    outside: Float[Tensor, "k n"] | None  # orthonormal; the recursion stays orthogonal to it
    count: int = 0

    @classmethod
    def begun(
        cls, A: Operator, starts: Tensor, num_steps: int, keep_basis: bool, outside: Tensor | None = None
    ) -> _Recursion:
        """Recursions about to make their first step."""
        rows = _complement(starts.T.to(A.device, A.dtype), outside)
        current = (rows / norms(rows)[:, None].to(rows)).contiguous()
        alpha = torch.zeros(num_steps, len(rows), dtype=torch.float64, device=A.device)
        basis = torch.zeros(len(rows), num_steps, A.size, dtype=A.dtype, device=A.device) if keep_basis else None
        return cls(torch.zeros_like(current), current, alpha, alpha.clone(), torch.zeros_like(alpha[0]), basis, outside)

    def step(self, A: Operator) -> None:
        """One product for every probe. A probe whose space is invariant has q = 0 from then on."""
        j, q = self.count, self.current
        if self.basis is not None:
            self.basis[:, j] = q
        w = product(A, q)
        self.scale = torch.maximum(self.scale, norms(w))
        if j:
            w = w - self.beta[j - 1, :, None].to(w) * self.previous
        self.alpha[j] = torch.linalg.vecdot(q, w).double()
        w = w - self.alpha[j, :, None].to(w) * q  # not in place: a product may be its own argument
        w = _complement(w, self.outside)  # here, not in A: the recursion itself would amplify what rounding lets in
        if self.basis is not None:
            w = _orthogonalised(w, self.basis[:, : j + 1])
        length = norms(w)
        self.beta[j] = torch.where(length > rounding(A) * self.scale, length, 0.0)
        factor = torch.where(self.beta[j] > 0, 1 / length, 0.0)
        self.previous, self.current, self.count = q, w * factor[:, None].to(w), j + 1

    def over(self) -> bool:
        """Whether every space is invariant; looked at now and then where looking makes the device wait."""
        if not self.count or (self.current.is_cuda and self.count % PATIENCE):
            return False
        check_finite(float(self.scale.sum()))
        return not bool(self.beta[self.count - 1].any())

    def result(self) -> Tridiagonal:
        """What has been found, read from the device once."""
        alpha, beta = self.alpha[: self.count].T.cpu(), self.beta[: self.count].T.cpu()
        check_finite(float(alpha.sum() + beta.sum()))
        live = torch.cat([torch.ones_like(beta[:, :1]), beta[:, :-1]], dim=1) > 0
        basis = None if self.basis is None else self.basis[:, : self.count].transpose(1, 2)
        return Tridiagonal(torch.where(live, alpha, alpha[:, :1]), beta[:, :-1], beta[:, -1], basis)


def _completed(state: _Recursion, A: Operator) -> Tridiagonal:
    """Step until the coefficients are full or every space is invariant."""
    num_steps, num_probes = state.alpha.shape
    with progress.bar("Lanczos", total=num_steps) as bar:
        while state.count < num_steps and not state.over():
            state.step(A)
            bar.advance(products=state.count * num_probes)
    return state.result()


def _complement(rows: Float[Tensor, "p n"], outside: Float[Tensor, "k n"] | None) -> Float[Tensor, "p n"]:
    """The rows without their components along orthonormal ones, to rounding."""
    if outside is not None:
        for _ in range(2):
            rows = rows - (rows @ outside.T) @ outside
    return rows


def _orthogonalised(w: Float[Tensor, "p n"], Q: Float[Tensor, "p j n"]) -> Float[Tensor, "p n"]:
    """w without its components along each probe's basis; twice is enough (Parlett 1998, Sec. 6.9)."""
    for _ in range(2):
        components = torch.bmm(Q, w[:, :, None])
        w = torch.baddbmm(w[:, None], components.transpose(1, 2), Q, alpha=-1)[:, 0]
    return w


def _tridiagonal_eigh(diagonal: np.ndarray, off_diagonal: np.ndarray) -> tuple[Tensor, Tensor]:
    """Eigenvalues and orthonormal eigenvectors of a symmetric tridiagonal matrix, in O(m²) where LAPACK manages."""
    scale = max(float(np.abs(diagonal).max()), float(np.abs(off_diagonal).max(initial=0.0))) or 1.0
    try:
        values, S = eigh_tridiagonal(diagonal / scale, off_diagonal / scale)
        if np.abs((S**2).sum(1) - 1).max() < 1e-8:  # rows of an orthogonal matrix
            return torch.from_numpy(values * scale), torch.from_numpy(S)
    except LinAlgError:
        pass  # relatively robust representations fail on rare clusters; the dense solver does not
    T = np.diag(diagonal / scale) + np.diag(off_diagonal / scale, 1) + np.diag(off_diagonal / scale, -1)
    values, S = np.linalg.eigh(T)
    return torch.from_numpy(values * scale), torch.from_numpy(S)


def _with_atoms(nodes: Tensor, weights: Tensor, values: Tensor, size: int, steps: int) -> Spectrum:
    """The measure of the bulk, of mass (n - k)/n, and k atoms of mass 1/n before it in every row."""
    share, atoms = len(values) / size, values.to(nodes).expand(len(nodes), -1)
    spread = float(nodes.max() - nodes.min()) / max(steps - 1, 1)
    resolution = spread or float(nodes.abs().max()) / max(steps, 2) or 1.0 / max(steps, 2)
    together = torch.cat([atoms, nodes], dim=1)
    masses = torch.cat([torch.full_like(atoms, 1 / size), weights * (1 - share)], dim=1)
    return Spectrum(together, masses, size, resolution)


def _check_steps(A: Operator, starts: Tensor, num_steps: int, keep_basis: bool) -> None:
    check_whole(num_steps=num_steps)
    most = A.size if keep_basis else None
    if num_steps < 1 or (most is not None and num_steps > most):
        raise ArgumentError(
            f"num_steps={num_steps} Lanczos steps were asked of an operator of size {A.size}.",
            "It takes one step at least, and no more than n vectors are orthogonal to each other.",
            f"Ask for 1 to {A.size}.",
        )
    usable = starts.ndim == 2 and starts.shape[0] == A.size and starts.shape[1] > 0
    if not usable or not bool((starts.isfinite().all(0) & (starts != 0).any(0)).all()):
        raise ArgumentError(
            f"Start vectors of shape {tuple(starts.shape)} were given for an operator of size {A.size}.",
            "They are columns (n, p), finite and not zero.",
            "Draw them with torch.randn(n, p, generator=generator, dtype=A.dtype).",
        )


def _check_counts(A: Operator, num_steps: int, num_probes: int, outliers: int) -> None:
    check_whole(num_steps=num_steps, num_probes=num_probes, outliers=outliers)
    if num_steps < 1 or num_probes < 1 or not 0 <= outliers <= A.size:
        raise ArgumentError(
            f"num_steps={num_steps}, num_probes={num_probes} and outliers={outliers} were given for size {A.size}.",
            "A quadrature takes one step and one probe at least; outliers are eigenvalues, 0 to n of them.",
            "The defaults are num_steps=128, num_probes=8, outliers=0.",
        )
