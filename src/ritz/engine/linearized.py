"""The network on one batch, linearised at θ: its derivatives as linear maps.

What does not depend on the vector is done once. The graph of Jᵀu or of ∇R is kept, and a product is a backward pass
through it: 6 matrix products per layer for H and E, 4 for G, where a gradient costs 3. The floors are therefore 2 and
4/3 gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge

from ..errors import ModelError, first_line
from ..foreign_errors import is_out_of_memory
from ..risk import Risk
from ..risk.batches import Batch, of_one
from .graph_bytes import graph_bytes
from .pieces import pieces_of, tangents_of
from .rules import EfficientRules

Rows = Float[Tensor, "k n"]  # vectors of parameter space
Outputs = Float[Tensor, "k ..."]  # vectors of output space, each with the shape of the outputs z


class DoesNotApply(RuntimeError):
    """A way to differentiate that does not work for this model."""


class Linearized(ABC):
    """f and R on one batch, linearised at θ. Sums over its terms, not yet divided by the risk's weight.

    All vectors passed in one call go through together. Results in parameter space are added to `into` if it is given,
    so that a product over many batches holds one vector and not two.
    """

    frees = False  # whether the next product is the last, which then frees what it has used

    def __init__(self, risk: Risk, batch: Batch) -> None:
        self.risk, self.batch = risk, batch
        self.z: Tensor  # f(θ, x), without its history

    @abstractmethod
    def jvp(self, V: Rows) -> Outputs:
        """J V."""

    @abstractmethod
    def vjp(self, U: Outputs, into: Rows | None = None) -> Rows:
        """Jᵀ U."""

    @abstractmethod
    def hessian(self, V: Rows, into: Rows | None = None) -> Rows:
        """∇²R V."""

    @abstractmethod
    def functional(self, V: Rows, into: Rows | None = None) -> Rows:
        """Σ_k u_k ∇²f_k V with u = ∂ℓ/∂z: one pass, no difference H - G."""

    def kept_bytes(self) -> int:
        """The bytes that it holds as long as it lives."""
        return 0

    def zeros(self, count: int) -> Rows:
        """`count` vectors of parameter space, all zero."""
        return self.risk.theta.new_zeros(count, self.risk.size)


def nowhere_zero(z: Tensor) -> Tensor:
    """A vector like the outputs but without zeros, at which some of PyTorch's derivatives are NaN."""
    return torch.linspace(1, 2, z.numel(), dtype=z.dtype, device=z.device).view(z.shape)


class ReverseMode(Linearized):
    """The network linearised by backward passes through kept graphs: with the efficient rules, or by PyTorch alone.

    A graph with rules serves derivatives of the `order` for which it was built; that of first order is smaller.
    """

    def __init__(self, risk: Risk, batch: Batch, order: int, *, rules: bool = False) -> None:
        super().__init__(risk, batch)
        self.order, self.by_rules = order, rules
        self._leaves, self._graphs = risk.leaves(), dict[str, _Graph]()
        self.outputs = self._forward(order) if rules else risk.outputs(self._leaves, batch)
        self.z = self.outputs.detach()

    def jvp(self, V: Rows) -> Outputs:
        """J V as the derivative of u ↦ Jᵀu along V: linear in u, so that its graph serves at any u."""
        if "jvp" not in self._graphs:
            self._u = nowhere_zero(self.z).requires_grad_()
            self._graphs["jvp"] = self._graph(self._u)
        return self._graphs["jvp"].to_input(self._u, tangents_of(self.risk, V), len(V), retain_graph=not self.frees)

    def vjp(self, U: Outputs, into: Rows | None = None) -> Rows:
        if not self.outputs.requires_grad:
            return self.zeros(len(U)) if into is None else into
        return self._backward([self.outputs], [U[0] if len(U) == 1 else U], len(U), into)

    def hessian(self, V: Rows, into: Rows | None = None) -> Rows:
        """∇²R V, by a second backward pass through the graph of ∇R."""
        if "hessian" not in self._graphs:
            loss, y = self.risk.loss, self.batch.targets
            u = OutputGradient.apply(self.outputs, loss.gradient(self.z, y), loss.curvature(self.z, y))
            self._graphs["hessian"] = self._graph(u)
        return self._second_backward("hessian", V, into)

    def functional(self, V: Rows, into: Rows | None = None) -> Rows:
        """Σ_k u_k ∇²f_k V, by a second backward pass through the graph of Jᵀu for fixed u."""
        if "functional" not in self._graphs:
            self._graphs["functional"] = self._graph(self.risk.loss.gradient(self.z, self.batch.targets))
        return self._second_backward("functional", V, into)

    def kept_bytes(self) -> int:
        """What its graphs have saved, plus a few tensors of the outputs' size, which a loss keeps."""
        roots = [edge.node for graph in self._graphs.values() for edge in graph.edges]
        saved = graph_bytes([self.outputs.grad_fn, *roots], [self.risk.theta, *self.batch.tensors()])
        return saved + 4 * self.z.untyped_storage().nbytes()

    def _forward(self, order: int) -> Tensor:
        with EfficientRules(second=order == 2) as mode:
            z = self.risk.outputs(self._leaves, self.batch)
        if not mode.used:
            raise DoesNotApply("no layer has a rule of its own")
        return z

    def _graph(self, u: Tensor) -> _Graph:
        """The graph of Jᵀu."""
        if not self.outputs.requires_grad:  # no output depends on θ
            return _Graph([])
        return _Graph(torch.autograd.grad(self.outputs, self._leaves, u, create_graph=True, allow_unused=True))

    def _second_backward(self, name: str, V: Rows, into: Rows | None) -> Rows:
        graph = self._graphs[name]
        if not graph.edges:
            return self.zeros(len(V)) if into is None else into
        return self._backward(graph.edges, graph.pieces(tangents_of(self.risk, V)), len(V), into)

    def _backward(self, roots: Sequence[Any], cotangents: Sequence[Tensor], count: int, into: Rows | None) -> Rows:
        if count == 1 and into is None and self.frees:
            return self._freeing_backward(roots, cotangents)
        into = self.zeros(count) if into is None else into
        self._add_backward(roots, cotangents, into)
        return into

    def _freeing_backward(self, roots: Sequence[Any], cotangents: Sequence[Tensor]) -> Rows:
        """The backward pass for a single vector, joined from its pieces only once the graph is freed."""
        try:
            torch.autograd.backward(roots, cotangents, inputs=self._leaves)
            return self.risk.flatten(leaf.grad for leaf in self._leaves)[None]
        finally:
            for leaf in self._leaves:
                leaf.grad = None

    def _add_backward(self, roots: Sequence[Any], cotangents: Sequence[Tensor], into: Rows) -> None:
        """Accumulate a single vector straight into `into`, so that no second one is formed; several are added."""
        if len(into) == 1:
            for leaf, piece in zip(self._leaves, self.risk.unflatten(into[0]), strict=True):
                leaf.grad = piece
            try:
                torch.autograd.backward(roots, cotangents, retain_graph=not self.frees, inputs=self._leaves)
            finally:
                for leaf in self._leaves:
                    leaf.grad = None
            return
        pieces = torch.autograd.grad(
            roots, self._leaves, cotangents, retain_graph=not self.frees, allow_unused=True, is_grads_batched=True
        )
        for target, piece in zip(pieces_of(self.risk, into), pieces, strict=True):
            if piece is not None:
                target += piece


class ForwardMode(ReverseMode):
    """The network linearised by forward differentiation, for operations that have no double backward."""

    def __init__(self, risk: Risk, batch: Batch, order: int = 1) -> None:
        super().__init__(risk, batch, order)
        self._primals = tuple(leaf.detach() for leaf in self._leaves)

    def jvp(self, V: Rows) -> Outputs:
        along = lambda *tangent: torch.func.jvp(self._network, self._primals, tangent)[1]
        return self._mapped(along, V) if len(V) > 1 else self._mapped(along, V)[None]

    def hessian(self, V: Rows, into: Rows | None = None) -> Rows:
        def gradient(*parameters: Tensor) -> tuple[Tensor, ...]:
            z, pullback = torch.func.vjp(self._network, *parameters)[:2]
            return pullback(self.risk.loss.gradient(z, self.batch.targets))

        return self._derivative(gradient, V, into)

    def functional(self, V: Rows, into: Rows | None = None) -> Rows:
        u = self.risk.loss.gradient(self.z, self.batch.targets)
        return self._derivative(lambda *p: torch.func.vjp(self._network, *p)[1](u), V, into)

    def kept_bytes(self) -> int:
        return 0  # it keeps no graph

    def _network(self, *parameters: Tensor) -> Tensor:
        return self.risk.outputs(parameters, self.batch)

    def _derivative(self, gradient: Callable[..., tuple[Tensor, ...]], V: Rows, into: Rows | None) -> Rows:
        into = self.zeros(len(V)) if into is None else into
        results = self._mapped(lambda *tangent: torch.func.jvp(gradient, self._primals, tangent)[1], V)
        for target, piece in zip(pieces_of(self.risk, into), results, strict=True):
            target += piece
        return into

    def _mapped(self, along: Callable[..., Any], V: Rows) -> Any:
        pieces = tangents_of(self.risk, V)
        return along(*pieces) if len(V) == 1 else torch.func.vmap(along)(*pieces)


def pushforward(batch: Linearized, V: Rows) -> Outputs:
    """J V of a batch; where an operation has no double backward, by our rules or by forward differentiation."""
    failures: list[str] = []
    for other_way in (None, partial(ReverseMode, order=1, rules=True), ForwardMode):
        try:
            linearized = batch if other_way is None else other_way(batch.risk, batch.batch)
            return linearized.jvp(V)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            failures.append(first_line(error))
    raise ModelError(
        f"The network cannot be differentiated along a direction of θ. {'; '.join(failures)}",
        "Some operation in it has neither a derivative of its backward pass nor a forward derivative in PyTorch.",
        "Replace the operation by one that PyTorch can differentiate twice.",
        "Leave out the parameters that come before it: Risk(..., parameters=...).",
    )


def example_vjps(
    risk: Risk, batch: Batch, U: Float[Tensor, "N m ..."], names: Sequence[str]
) -> list[Float[Tensor, "N m q"]]:
    """Jᵢᵀ U of single examples for some parameters, all at once: m cotangents for each of N examples.

    Some of PyTorch's batching rules are silently wrong here: compare one example with its own `vjp`.
    """
    fixed = dict(zip(risk.shapes, (leaf.detach() for leaf in risk.leaves()), strict=True))

    def gradients(inputs: Any, target: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
        alone = Batch(of_one(inputs), target[None])
        network = lambda *own: risk.outputs(list({**fixed, **dict(zip(names, own, strict=True))}.values()), alone)[0]
        return torch.func.vmap(torch.func.vjp(network, *(fixed[name] for name in names))[1])(cotangents)

    pieces = torch.func.vmap(gradients)(batch.inputs, batch.targets, U)
    return [piece.reshape(*U.shape[:2], -1) for piece in pieces]


class OutputGradient(Function):
    """u = ∂ℓ/∂z as a function of z, differentiated by the loss's own Hessian product."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, gradient: Tensor, curvature: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.curvature = curvature
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> tuple[Tensor, None, None]:
        return ctx.curvature(tangent), None, None


class _Graph:
    """The graph of parameter-shaped tensors without their values, which are n numbers that no product needs."""

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self._connected = [t is not None and t.requires_grad for t in tensors]
        self.edges = [get_gradient_edge(t) for t in tensors if t is not None and t.requires_grad]

    def pieces(self, pieces: Sequence[Tensor]) -> list[Tensor]:
        """The parameter-shaped pieces whose tensors are connected to the graph."""
        return [piece for piece, connected in zip(pieces, self._connected, strict=False) if connected]

    def to_input(self, u: Tensor, pieces: list[Tensor], count: int, *, retain_graph: bool) -> Outputs:
        """The derivative of these tensors along the pieces, transposed, with respect to u."""
        if not self.edges:
            return u.new_zeros(count, *u.shape)
        batched = count > 1
        (result,) = torch.autograd.grad(
            self.edges, u, self.pieces(pieces), retain_graph=retain_graph, is_grads_batched=batched
        )
        return result if batched else result[None]
