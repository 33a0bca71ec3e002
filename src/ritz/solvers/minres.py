"""MINRES for several right-hand sides at once: the least residual in every Krylov space, for A of any signs."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .conjugate_gradients import System, add_rows, kept
from .vectors import dots, norms, rounding

STALL = 4  # steps in which a residual falls by √eps, unless it is already the least
SETTLED = 3  # √eps times ‖A‖‖r‖, below which ‖A r‖ may be zero: in both cases a longer x would gain nothing
SURELY = 0.75  # the power of eps, times ‖A‖‖r‖, below which one step that gains nothing shows that it is zero


def minres(
    system: System, X: Float[Tensor, "p n"], R: Float[Tensor, "q n"], rows: list[int], goals: list[float], steps: int
) -> None:
    """Improve these rows of X in place from their residuals R, until ‖r‖ ≤ goal or no step makes r smaller.

    Paige and Saunders (1975); the residuals themselves are updated by r ← s² r - φ c q, since a norm alone does not
    give the norm of a preconditioned one.
    """
    state = _Recursion(system, R)
    for _ in range(steps):
        factors, settled = state.step(system)
        add_rows(X, rows, factors, state.newer)
        unsolved = (norms(state.R) > torch.tensor(goals, dtype=torch.float64, device=X.device)) & ~settled
        rows, goals = kept(rows, unsolved), kept(goals, unsolved)
        if not rows:
            return
        if not bool(unsolved.all()):
            state.keep(unsolved)


class _Recursion:
    """The last two Lanczos vectors and search directions, the residuals, and the rotations of every right-hand side."""

    def __init__(self, system: System, R: Float[Tensor, "p n"]) -> None:
        self.R, self.current, self.previous = R, R.clone(), torch.zeros_like(R)
        self.older, self.newer = torch.zeros_like(R), torch.zeros_like(R)  # search directions
        self.Z, rho = system.preconditioned(self.current)
        self.beta = self.phi = rho.sqrt()
        self.before, self.dbar, self.epsilon, self.sine = (torch.zeros_like(rho) for _ in range(4))
        self.scale = torch.full_like(rho, system.scale)  # earlier rounds have seen more of A than a last residual shows
        self.cosine, self.past = -torch.ones_like(rho), rho.new_full((len(rho), STALL), math.inf)
        self.nothing = torch.full_like(rho, rounding(system.A))

    def keep(self, rows: Bool[Tensor, " p"]) -> None:
        """Go on with some of the right-hand sides alone."""
        self.__dict__ = {name: part[rows] for name, part in self.__dict__.items()}

    def step(self, system: System) -> tuple[Float[Tensor, " p"], Bool[Tensor, " p"]]:
        """One product for each: how much of `newer` is added to x, and where no step can make the residual smaller."""
        V = self.Z / _column(self.beta, self.Z)
        Y = system.product(V).clone(memory_format=torch.contiguous_format)
        ratio = torch.where(self.before > 0, self.beta / self.before, 0.0)
        Y.addcmul_(_column(ratio, Y), self.previous, value=-1)
        alpha = dots(V, Y)
        Y.addcmul_(_column(alpha / self.beta, Y), self.current, value=-1)
        self.previous, self.current = self.current, Y
        self.Z, rho = system.preconditioned(Y)
        return self._rotate(V, alpha, rho.clamp(min=0).sqrt())

    def _rotate(self, V: Float[Tensor, "p n"], alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        """The next rotation that makes the tridiagonal matrix triangular, and the updates that follow from it."""
        old, delta = self.epsilon, self.cosine * self.dbar + self.sine * alpha
        gbar = self.sine * self.dbar - self.cosine * alpha
        self.epsilon, self.dbar, gamma = self.sine * beta, -self.cosine * beta, torch.hypot(gbar, beta)
        self.scale = torch.maximum(self.scale, torch.maximum(gamma, alpha.abs()))
        eps, gain = torch.finfo(V.dtype).eps, torch.hypot(gbar, self.dbar)  # ‖A r‖/‖r‖
        stalls, exhausted = self.phi[:, None] >= (1 - math.sqrt(eps)) * self.past, beta <= self.nothing * self.scale
        settled = (gain <= SETTLED * math.sqrt(eps) * self.scale) & stalls[:, 0]
        settled |= (gain <= eps**SURELY * self.scale) & stalls[:, -1]
        settled |= torch.minimum(gain, gamma) <= self.nothing * self.scale
        self.past = torch.cat([self.past[:, 1:], self.phi[:, None]], dim=1)
        safe = torch.where(settled, 1.0, gamma)
        self.cosine, self.sine = gbar / safe, beta / safe
        factors, self.phi = torch.where(settled, 0.0, self.cosine * self.phi), self.sine * self.phi
        W = self.older.mul_(_column(-old, V)).add_(V).addcmul_(_column(delta, V), self.newer, value=-1)
        self.older, self.newer = self.newer, W.div_(_column(safe, V))
        along = torch.where(settled | exhausted, 0.0, self.phi * self.cosine / torch.where(exhausted, 1.0, beta))
        self.R.mul_(_column(torch.where(settled, 1.0, self.sine.square()), V))
        self.R.addcmul_(_column(along, V), self.current, value=-1)
        self.before, self.beta = self.beta, beta
        return factors, settled | exhausted


def _column(factors: Float[Tensor, " p"], rows: Float[Tensor, "p n"]) -> Float[Tensor, "p 1"]:
    return factors[:, None].to(rows)
