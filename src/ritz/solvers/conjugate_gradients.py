"""Conjugate gradients for several right-hand sides at once, until all are solved or a curvature is not positive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..errors import NumericalError, check_finite
from ..operators import Operator
from .vectors import check_range, dots, norms

FLAT = 10  # roundings of ‖p‖‖Ap‖ below which the curvature pᵀAp is not positive
DIVERGENCE = 1e4  # growth of a residual that no positive definite matrix can cause in this precision


@dataclass
class System:
    """A x = b for rows x and b, with M⁻¹ of a preconditioner M; it counts its products."""

    A: Operator
    inverse: Callable[[Tensor], Tensor] | None = None  # of columns
    num_products: int = 0
    scale: float = 0.0  # the largest ‖A v‖/‖v‖ of all products; zero with a preconditioner, which has another measure

    def product(self, rows: Float[Tensor, "p n"]) -> Float[Tensor, "p n"]:
        """(A Vᵀ)ᵀ, to be read only: it may be its own argument."""
        AV = (self.A @ rows.T).T
        if not self.num_products:
            check_range(AV)
        self.num_products += len(rows)
        if self.inverse is None:
            self.scale = max(self.scale, float((norms(AV) / norms(rows)).nan_to_num(0.0).max()))
        return AV

    def preconditioned(self, R: Float[Tensor, "p n"]) -> tuple[Float[Tensor, "p n"], Float[Tensor, " p"]]:
        """Z = M⁻¹R and rᵀz, which is positive; the rows themselves where there is no preconditioner."""
        Z = R if self.inverse is None else self.inverse(R.T).T
        rho, lengths = dots(R, Z), norms(R)
        check_finite(float(lengths.sum()))
        if not bool(((rho > 0) | (lengths == 0)).all()):
            raise NumericalError(
                f"The preconditioner gives rᵀM⁻¹r = {float(rho.min()):.3g} for a residual r of norm "
                f"{float(lengths[rho.argmin()]):.3g}.",
                "Conjugate gradients and MINRES need a preconditioner that is positive definite.",
                "Add damping: solve(A, b, damping=..., preconditioner=kfac(risk)) inverts kfac(risk) + damping.",
                "Leave the preconditioner out.",
            )
        return Z, rho


def conjugate_gradients(
    system: System, X: Float[Tensor, "p n"], R: Float[Tensor, "q n"], rows: list[int], goals: list[float], steps: int
) -> bool:
    """Improve these rows of X in place from their residuals R, which are overwritten, until ‖r‖ ≤ goal.

    False where A is not positive definite: a direction has no positive curvature, or a residual diverges.
    """
    Z, rho = system.preconditioned(R)
    P, least, rounding = Z.clone(), norms(R), FLAT * torch.finfo(X.dtype).eps
    for _ in range(steps):
        AP = system.product(P)
        curvature = dots(P, AP)
        check_finite(float(curvature.sum()))
        if bool((curvature <= rounding * norms(P) * norms(AP)).any()):
            return False
        alpha = rho / curvature
        add_rows(X, rows, alpha, P)
        R.addcmul_(alpha[:, None].to(R), AP, value=-1)
        del AP
        lengths = norms(R)
        least = torch.minimum(least, lengths)
        if not bool((lengths <= DIVERGENCE * least).all()):
            return False
        unsolved = lengths > torch.tensor(goals, dtype=torch.float64, device=X.device)
        if not bool(unsolved.all()):
            rows, goals = kept(rows, unsolved), kept(goals, unsolved)
            R, P, rho, least = (t[unsolved] for t in (R, P, rho, least))
        if not rows:
            return True
        Z, new = system.preconditioned(R)
        P.mul_((new / rho)[:, None].to(P)).add_(Z)
        rho = new
    return True


def add_rows(
    X: Float[Tensor, "p n"], rows: list[int], factors: Float[Tensor, " q"], moves: Float[Tensor, "q n"]
) -> None:
    """Add to some rows their moves times a factor, without a copy."""
    most = torch.finfo(X.dtype).max  # PyTorch refuses larger factors; an x that needs them has no fresh residual
    for row, factor, move in zip(rows, factors.clamp(-most, most).tolist(), moves, strict=True):
        X[row].add_(move, alpha=factor)


def kept(items: list, chosen: Bool[Tensor, " q"]) -> list:
    """The chosen items."""
    return [item for item, keep in zip(items, chosen.tolist(), strict=True) if keep]
