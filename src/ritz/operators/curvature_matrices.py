"""The curvature matrices of a risk as operators over θ, and its tangent kernel as one over the outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..engine import Curvature, CurvatureProduct, Linearized, LinearizedRisk
from ..engine.curvatures import (
    FISHER,
    FUNCTIONAL,
    GAUSS_NEWTON,
    HESSIAN,
    TANGENT_MAPS,
    Contribution,
    Samples,
    monte_carlo,
)
from ..engine.linearized_risk import BACK
from ..errors import ArgumentError
from ..risk import Risk
from ..risk.batches import Batch
from .algebra import low_rank
from .operator import Operator


def curvature(risk: Risk, kind: Curvature, name: str | None = None) -> Operator:
    """The operator of any curvature matrix, from the contribution of one batch; `name` is shown.

    >>> from ritz.engine.curvatures import GAUSS_NEWTON
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), (torch.eye(2), torch.zeros(2, 1)))
    >>> curvature(risk, GAUSS_NEWTON) @ torch.ones(2)
    tensor([1., 1.])
    """
    product = CurvatureProduct(risk, kind)
    A = Operator(
        product,
        risk.size,
        risk.dtype,
        risk.device,
        inform=_reader_of(product, "info"),
        room=_reader_of(product, "room"),
        semidefinite=kind.order == 1 and risk.loss.is_convex,  # Jᵀ M J, M being the loss's Hessian or a sum of squares
        name=name,
    )
    rough = product.rough
    return A if rough is None else replace(A, rough=replace(A, matmat=rough))


def _reader_of(thing: Any, name: str) -> Callable[[], Any]:
    """A function that reads the attribute when called; unlike a lambda, it can be sent to another process."""
    return partial(getattr, thing, name)


def hessian(risk: Risk) -> Operator:
    """H = ∇²R(θ): Papyan (2019), eq. (1).

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> hessian(risk).dense()  # XᵀX / N
    tensor([[0.5000, 0.0000],
            [0.0000, 2.0000]])
    """
    return curvature(risk, HESSIAN, "hessian")


def gauss_newton(risk: Risk) -> Operator:
    """G = Σᵢ Jᵢᵀ ∂²tᵢ/∂z² Jᵢ / Σ wᵢ, with Jᵢ = ∂f(θ, xᵢ)/∂θ: the curvature of the loss alone.

    For a softmax or squared-error loss it is the Fisher information (Papyan's "FIM"); where the loss is convex
    it is positive semi-definite. linear2026, eq. (3).

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> torch.equal(gauss_newton(risk).dense(), hessian(risk).dense())  # where f is linear in θ
    True
    """
    return curvature(risk, GAUSS_NEWTON, "gauss_newton")


def functional_hessian(risk: Risk) -> Operator:
    """E = H - G = Σᵢ Σ_k ∂tᵢ/∂z_k ∇²f_k(θ, xᵢ) / Σ wᵢ: the curvature of the network, at the price of one product.

    Papyan (2019), eq. (2), where its name is H.

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> functional_hessian(risk) @ torch.ones(2)  # where f is linear in θ
    tensor([0., 0.])
    """
    return curvature(risk, FUNCTIONAL, "functional_hessian")


def empirical_fisher(risk: Risk) -> Operator:
    """F = Σᵢ wᵢ gᵢ gᵢᵀ / Σ wᵢ, with gᵢ = ∇ℓᵢ: the second moment of the per-term gradients, none of which is formed.

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> g = risk.gradient()
    >>> torch.allclose(empirical_fisher(risk).dense(), g[:, None] * g)  # of one term
    True
    """
    return curvature(risk, FISHER, "empirical_fisher")


def monte_carlo_fisher(risk: Risk, *, num_samples: int = 1, generator: torch.Generator | None = None) -> Operator:
    """G with the curvature of the loss replaced by samples: Σᵢ Σₛ Jᵢᵀ uᵢₛuᵢₛᵀ Jᵢ / S Σ wᵢ, E[uuᵀ] = ∂²tᵢ/∂z².

    For cross-entropy, u is the error of a label drawn from the network's own probabilities: the Fisher information of
    Martens (2020), by sampling. The samples belong to the examples, so that every product uses the same ones; the
    mean over seeds is `gauss_newton(risk)`.

    Args:
        risk: Its loss is convex.
        num_samples: Samples for each term; the error falls with their square root.
        generator: Source of the seed; without it, a new generator with seed 0.

    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> risk = Risk(model, torch.nn.BCEWithLogitsLoss(), (torch.ones(1, 1), torch.zeros(1, 1)))
    >>> A = monte_carlo_fisher(risk, num_samples=400)
    >>> abs(float((A @ torch.ones(1)) / (gauss_newton(risk) @ torch.ones(1))) - 1) < 0.2
    True
    """
    return curvature(risk, monte_carlo(Samples.drawn(num_samples, generator)), "monte_carlo_fisher")


def gradient_covariance(risk: Risk) -> Operator:
    """Σᵢ wᵢ (gᵢ - ḡ)(gᵢ - ḡ)ᵀ / Σ wᵢ, with gᵢ = ∇ℓᵢ and their mean ḡ: the noise of a stochastic gradient of one term.

    For a loss with reduction "sum", nothing is divided: Σᵢ wᵢ (gᵢ - ḡ)(gᵢ - ḡ)ᵀ.

    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.ones(2, 1)
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> gradient_covariance(Risk(model, torch.nn.MSELoss(), (x, y))).dense()
    tensor([[ 1., -2.],
            [-2.,  4.]])
    """
    second_moment, gradient = empirical_fisher(risk), risk.gradient()[:, None]
    share = risk.total_weight / risk.sum_of_weights if risk.sum_of_weights else 0.0  # of ∇R∇Rᵀ; 1 for a mean
    covariance = second_moment - low_rank(gradient, gradient.new_tensor([share]))
    known = second_moment.semidefinite  # of the covariance, too, as no weight is negative
    return replace(covariance, semidefinite=known, name="gradient_covariance")


def ntk(risk: Risk) -> Operator:
    """J Jᵀ, the empirical neural tangent kernel: an operator over all outputs of all examples, in their order.

    Its size is the number N·K of outputs z; its rows are in the order of `z.flatten()`, one batch after the other.
    Neither J nor the kernel is formed. For the mean of squared errors, its eigenvalues over N are those of G.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> ntk(Risk(torch.nn.Linear(2, 1, bias=False), torch.nn.MSELoss(), (x, torch.zeros(2, 1)))).dense()
    tensor([[1., 0.],
            [0., 4.]])
    """
    _check_one_rank(risk)
    product = _Kernel(risk)
    return Operator(
        product,
        product.size,
        risk.dtype,
        risk.device,
        inform=_reader_of(product.linearized, "info"),
        room=_reader_of(risk, "memory"),
        semidefinite=True,
        name="ntk",
    )


class _Kernel:
    """U ↦ J Jᵀ U: one pass over all batches for v = Jᵀ U, a second one for J v."""

    def __init__(self, risk: Risk) -> None:
        self.risk, self.linearized = risk, LinearizedRisk(risk, TANGENT_MAPS)
        leaves = [leaf.detach() for leaf in risk.leaves()]
        with risk.numerics(), torch.no_grad():
            self.size = sum(risk.outputs(leaves, batch).numel() for batch in risk.batches)

    def __call__(self, U: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
        rows = U.T.contiguous()
        return self.linearized.within_memory(lambda: self._product(rows)).T

    def _product(self, U: Float[Tensor, "k m"]) -> Float[Tensor, "k m"]:
        back, result = U.new_zeros(len(U), self.risk.size), torch.zeros_like(U)
        self._for_each(lambda batch, rows: self._back(batch, self._outputs(U, rows, batch), back))
        self._for_each(lambda batch, rows: self._add_outputs(batch, back, self._outputs(result, rows, batch)))
        return result

    def _for_each(self, use: Callable[[Linearized, slice], None]) -> None:
        """Call `use` with every batch and the rows of the kernel that belong to it."""
        start = 0

        def advance(_: Batch, contribution: Contribution) -> None:
            nonlocal start
            rows = slice(start, start + contribution.linearized.z.numel())
            start = rows.stop
            use(contribution.linearized, rows)

        self.linearized.for_each(advance)

    def _outputs(self, U: Float[Tensor, "k m"], rows: slice, batch: Linearized) -> Tensor:
        return U[:, rows].unflatten(1, batch.z.shape)

    def _back(self, batch: Linearized, U: Tensor, into: Float[Tensor, "k n"]) -> None:
        self.linearized.add(batch.vjp, U, into, BACK)

    def _add_outputs(self, batch: Linearized, V: Float[Tensor, "k n"], into: Tensor) -> None:
        self.linearized.add(lambda rows, target: target.add_(batch.jvp(rows)), V, into)


def _check_one_rank(risk: Risk) -> None:
    if risk.group is not None:
        raise ArgumentError(
            "The kernel of a risk that is divided over ranks was requested.",
            "Its rows lie on different ranks, but a product needs all of them on one.",
            "Build the risk on one rank with all data: Risk(..., group=None).",
        )
