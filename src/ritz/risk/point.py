"""A point of parameter space: θ, by parameters and as one vector, with the network as a function of θ."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import ArgumentError, PrecisionWarning, warn_user
from .batches import Batch, naming_batch
from .model import further_names, output_tensor
from .network import Network
from .original import Original
from .parameters import as_pairs, fewest_globs, matching_names, other_tensors, other_theta, tensors, trainable
from .precision import in_precision
from .randomness import untouched_randomness

ROUNDED = 64  # times ε: how far kernels for batches of different sizes round apart, and more, for kinks are few


class Point:
    """θ as one flat vector, and f(θ, x): the network near θ, where all tensors that are not part of θ stay as they are.

    `at`, `restricted_to` and `converted` return other points; this one stays where it is.
    """

    theta: Float[Tensor, " n"]
    shapes: dict[str, torch.Size]  # of the parameters in θ, in its order
    network: Network

    def __init__(self, original: Original, parameters: str | Sequence[str]) -> None:
        model = original.model
        self._further_names = further_names(model)  # of parameters that several modules share
        self._output_dims: int | None = None  # of outputs of several examples, once some were seen
        names = matching_names(trainable(model), parameters, self._further_names)
        self._select(tensors(model, names), names)
        self.take_modules(original)

    def take_modules(self, original: Original) -> None:
        """Build the network from the user's modules as they are now."""
        self.network = Network.of(original, self.tensors(), list(self.shapes))

    def tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers of the model, by name."""
        return self._with_constants(as_pairs(piece) for piece in self.unflatten(self.theta))

    def leaves(self) -> list[Tensor]:
        """θ by parameters, that autograd can differentiate with respect to: views, but for pairs at odd places."""
        return [as_pairs(piece).detach().requires_grad_() for piece in self.unflatten(self.theta)]

    def fixed(self) -> list[Tensor]:
        """θ by parameters, where nothing is differentiated with respect to them."""
        return [leaf.detach() for leaf in self.leaves()]

    def unflatten(self, vector: Float[Tensor, " n"]) -> list[Tensor]:
        """Split a vector like θ into parameter-shaped views."""
        if vector.shape != self.theta.shape:
            raise ArgumentError(
                f"A tensor of shape {tuple(vector.shape)} was to be split.",
                f"The parameters of the risk are {self.theta.numel():,} numbers.",
                "Pass a vector like risk.theta, such as a column of eigenvectors: pairs.vectors[:, 0].",
            )
        pieces = vector.split([shape.numel() for shape in self.shapes.values()])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes.values(), strict=True)]

    def flatten(self, pieces: Iterable[Tensor | None]) -> Float[Tensor, " n"]:
        """Join parameter-shaped tensors to a vector like θ; a parameter that was not used contributes zeros."""
        zeros = (self.theta.new_zeros(shape) for shape in self.shapes.values())
        used = (zero if piece is None else piece for piece, zero in zip(pieces, zeros, strict=True))
        return torch.cat([piece.to_dense().reshape(-1) for piece in used])  # gradients of embeddings may be sparse

    def outputs(self, parameters: Sequence[Tensor], batch: Batch) -> Tensor:
        """f(θ, x) on one batch, for parameters in the order and shapes of `shapes`."""
        if not torch.is_grad_enabled():
            parameters = [parameter.detach() for parameter in parameters]
        with naming_batch("the model on", batch):
            result = self.network(self._with_constants(parameters), batch.inputs)
            z = output_tensor(result, len(batch), self._output_dims)
        if z.dtype == torch.float32:  # in a risk in float64, after x.float() inside
            z = z.to(self.theta.dtype)
        if self._output_dims is None and len(batch) > 1:
            self._output_dims = z.ndim
        return z if torch.is_grad_enabled() else z.detach()

    def fixed_outputs(self, batch: Batch) -> Tensor:
        """f(θ, x) at this θ."""
        return self.outputs(self.fixed(), batch)

    def restricted_to(self, parameters: str | Sequence[str]) -> Point:
        """The same values, of which fewer are part of θ: those that match a glob, or one of several."""
        known = self.tensors()
        own = {name: known[name] for name in self.shapes}
        return self._holding(known, matching_names(own, parameters, self._further_names))

    def globs_without(self, names: Collection[str]) -> list[str]:
        """Globs that `restricted_to` takes for all parameters in θ but these."""
        return fewest_globs(self.shapes, [name for name in self.shapes if name not in names], self._further_names)

    def at(self, theta: Tensor | Mapping[str, Tensor] | nn.Module) -> Point:
        """The same network at other values: a vector like θ, or tensors by name, or all of another module."""
        if isinstance(theta, Tensor):
            return self.moved(other_theta(theta, self.theta, self.shapes))
        further = {**self._further_names, **further_names(self.network.module, "_buffers")}
        return self._holding(other_tensors(theta, self.tensors(), self.shapes, further), list(self.shapes))

    def moved(self, theta: Float[Tensor, " n"]) -> Point:
        """The same network at another vector θ, which is kept as it is."""
        point = copy.copy(self)
        point.theta = theta
        point.network = self.network.holding(point.tensors(), point.shapes)
        return point

    def rounded_otherwise(self) -> Point:
        """The same network at a θ whose numbers all differ by a few last digits, up or down at random.

        Of a network that computes in less than the precision of θ, by a last digit there.
        """
        generator = torch.Generator(self.theta.device).manual_seed(0)
        up = torch.rand(self.theta.shape, generator=generator, device=self.theta.device) < 0.5
        lowest = 0.0 if self.network.lowest is None else torch.finfo(self.network.lowest[0]).eps
        change = max(ROUNDED * torch.finfo(self.theta.dtype).eps, lowest)
        return self.moved(self.theta.addcmul(self.theta, torch.where(up, 1, -1).to(self.theta), value=change))

    def roundings(self, batch: Batch) -> Iterator[Tensor]:
        """f(θ, x), and that where θ is rounded otherwise, from the same random state."""
        for point in (self, self.rounded_otherwise()):
            with untouched_randomness(self.theta.device):
                yield point.fixed_outputs(batch)

    def copied(self) -> Point:
        """The same point, with a vector θ of its own; the network is shared."""
        point = copy.copy(self)
        point.theta = self.theta.clone()
        return point

    def converted(self, dtype: torch.dtype, device: torch.device) -> Point:
        """The same values in another precision or on another device, where the network is to be examined once more."""
        moved = {name: t.to(device, in_precision(t, dtype)) for name, t in self.tensors().items()}
        point = self._holding(moved, list(self.shapes))
        point.network.unsettled()
        return point

    def settle(self) -> None:
        """After the first evaluation, keep what it showed about the model, and warn where that limits results."""
        self.network.settle()
        if self.network.lowest is not None:
            dtype, function = self.network.lowest
            warn_user(
                f"The model computes in {dtype} inside (first in {function}), though its parameters are "
                f"{self.theta.dtype}: derivatives are only as accurate as the lower of the two.",
                PrecisionWarning,
            )

    def _with_constants(self, parameters: Iterable[Tensor]) -> dict[str, Tensor]:
        return {**self._constants, **dict(zip(self.shapes, parameters, strict=True))}

    def _select(self, tensors: dict[str, Tensor], names: list[str]) -> None:
        """Make θ of the named tensors, and constants of the others."""
        self.shapes = {name: tensors[name].shape for name in names}
        self.theta = torch.cat([tensors[name].reshape(-1) for name in names])
        self._constants = {name: tensor for name, tensor in tensors.items() if name not in self.shapes}

    def _holding(self, tensors: dict[str, Tensor], names: list[str]) -> Point:
        """The point of these tensors, of which the named ones are θ."""
        point = copy.copy(self)
        point._select(tensors, names)
        point.network = self.network.holding(point.tensors(), point.shapes)
        return point
