"""Many networks of one architecture as one: their parameters stacked, so that one operation serves them all."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ...errors import ArgumentError, DataError, ModelError
from ...record import model_identity
from ..training.batches import Data
from ..training.scores import AnyLoss, mean_loss


@dataclass(frozen=True, eq=False)
class Ensemble:
    """B networks of one architecture, with parameters of B × their own shape, in the order of `named_parameters()`.

    Training changes the parameters in place. `model` is the architecture alone: its own weights are not used.

    >>> networks = Ensemble.of([nn.Linear(2, 1) for _ in range(3)])
    >>> len(networks), networks.size, networks.outputs(torch.zeros(5, 2)).shape
    (3, 3, torch.Size([3, 5, 1]))
    """

    model: nn.Module = field(repr=False)
    parameters: dict[str, Float[Tensor, "B ..."]] = field(repr=False)
    buffers: dict[str, Tensor] = field(repr=False)

    @classmethod
    def of(cls, networks: Iterable[nn.Module], *, device: torch.device | str | None = None) -> Ensemble:
        """Stack networks that differ in their parameters and buffers alone; they stay as they are."""
        networks = list(networks)
        _check_alike(networks)
        parameters = _stacked([dict(network.named_parameters()) for network in networks])
        buffers = _stacked([dict(network.named_buffers()) for network in networks])
        own = (*networks[0].named_parameters(), *networks[0].named_buffers())
        empty = {name: torch.empty_like(value, device="meta") for name, value in own}
        stacked = cls(_with(networks[0], empty).eval(), parameters, buffers)
        return stacked if device is None else stacked.to(device)

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    @property
    def size(self) -> int:
        """n, the number of parameters of one network."""
        return sum(parameter[0].numel() for parameter in self.parameters.values())

    @property
    def flat(self) -> Float[Tensor, "B n"]:
        """All parameters of each network in a row, as `Risk` orders them: a copy."""
        return torch.cat([parameter.flatten(1) for parameter in self.parameters.values()], 1)

    @property
    def matrices(self) -> list[Float[Tensor, "B _ _"]]:
        """The weight matrices, layer by layer; biases are none."""
        return [parameter for parameter in self.parameters.values() if parameter.ndim == 3]

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(iter(self.parameters.values())).device

    def to(self, place: torch.device | str | torch.dtype) -> Ensemble:
        """A copy on another device or in another precision; counts and masks among the buffers stay what they are."""
        parameters = {name: parameter.to(place, copy=True) for name, parameter in self.parameters.items()}
        return Ensemble(self.model, parameters, {name: _moved(buffer, place) for name, buffer in self.buffers.items()})

    def part(self, which: slice | Int[Tensor, " b"]) -> Ensemble:
        """Some of the networks: a view for a slice, else a copy."""
        parameters = {name: parameter[which] for name, parameter in self.parameters.items()}
        return Ensemble(self.model, parameters, {name: buffer[which] for name, buffer in self.buffers.items()})

    def network(self, index: int) -> nn.Module:
        """One network as a module of its own, in eval mode."""
        self._check_index(index)
        state = {**self.parameters, **self.buffers}
        return _with(self.model, {name: value[index].clone() for name, value in state.items()})

    def rows(self, theta: Float[Tensor, "B n"]) -> dict[str, Tensor]:
        """Flat parameters as the architecture names them."""
        if tuple(theta.shape) != (len(self), self.size):
            raise ArgumentError(
                f"theta has the shape {tuple(theta.shape)}.",
                f"There are {len(self)} networks of {self.size} parameters.",
                "Pass one row for each network, as `flat` has them.",
            )
        pieces = theta.split([parameter[0].numel() for parameter in self.parameters.values()], 1)
        return {
            name: piece.view(parameter.shape)
            for (name, parameter), piece in zip(self.parameters.items(), pieces, strict=True)
        }

    def _check_index(self, index: int) -> None:
        if not -len(self) <= index < len(self):
            raise ArgumentError(
                f"Network {index} was requested.", f"There are {len(self)}.", "Count from 0, or from the end with -1."
            )

    def outputs(self, x: Tensor, *, each: bool = False) -> Float[Tensor, "B N ..."]:
        """The outputs of each network for the inputs, or with `each`, for its own inputs (B × N × …)."""
        if x.ndim < 1 + each or (each and len(x) != len(self)):
            raise ArgumentError(
                f"x has the shape {tuple(x.shape)}, with each={each}.",
                f"Inputs are rows, the same for all of the {len(self)} networks or, with each=True, a set for each.",
                f"Pass x of shape (N, …), or ({len(self)}, N, …) with each=True.",
            )
        call = vmap(lambda p, b, x: functional_call(self.model, (p, b), (x,)), in_dims=(0, 0, 0 if each else None))
        outputs: Tensor = call(self.parameters, self.buffers, x.to(self.device))
        return outputs


class LinearNetwork(nn.Module):
    """x ↦ m_LW_L … m_1W_1x, without biases.

    >>> LinearNetwork([torch.eye(2)], multipliers=[3.0])(torch.ones(1, 2)).tolist()
    [[3.0, 3.0]]
    """

    def __init__(self, weights: Sequence[Float[Tensor, "_ _"]], multipliers: Sequence[float]) -> None:
        super().__init__()
        self.weights, self.multipliers = nn.ParameterList(nn.Parameter(W) for W in weights), tuple(multipliers)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        for factor, W in zip(self.multipliers, self.weights, strict=True):
            x = factor * (x @ W.T)
        return x


def linear(weights: Sequence[Float[Tensor, "B _ _"]], multipliers: Sequence[float] | None = None) -> Ensemble:
    """Linear networks as an ensemble, from their stacked weights (of `linear_descent`, say), which they share.

    >>> networks = linear([torch.ones(5, 3, 2), torch.ones(5, 1, 3)])
    >>> len(networks), networks.size
    (5, 9)
    """
    count = len(weights)
    scales = [1.0] * count if multipliers is None else [float(factor) for factor in multipliers]
    if len(scales) != count or len({len(W) for W in weights}) != 1:
        raise ArgumentError(
            f"Weights {[tuple(W.shape) for W in weights]} were given with multipliers {scales}.",
            "Each layer is a stack of B matrices with one multiplier, and B is the same for all.",
            "Stack the weights layer by layer, B × out × in.",
        )
    model = LinearNetwork([torch.empty_like(W[0], device="meta") for W in weights], scales)
    return Ensemble(model, {f"weights.{layer}": W.detach() for layer, W in enumerate(weights)}, {})


def losses(ensemble: Ensemble, loss: AnyLoss, data: Data, *, each: bool = False) -> Float[Tensor, " B"]:
    """The mean loss of each network on the data; with `each`, of every network on its own (B × N × …).

    >>> networks = linear([torch.tensor([[[1.0]], [[2.0]]])])
    >>> losses(networks, nn.MSELoss(), (torch.ones(1, 1), torch.zeros(1, 1)))
    tensor([1., 4.])
    """
    with torch.no_grad():
        return losses_at(ensemble, ensemble.parameters, loss, on_device(ensemble, data, each), each)


def losses_at(
    ensemble: Ensemble, parameters: dict[str, Tensor], loss: AnyLoss, data: Data, each: bool
) -> Float[Tensor, " B"]:
    """The mean loss of each network as a function of the parameters, to be differentiated.

    The networks are independent: the gradient of the sum holds the gradient of each, and likewise every product with
    the Hessian.
    """
    own = 0 if each else None

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return mean_loss(loss, functional_call(ensemble.model, (parameters, buffers), (x,)), y)

    values: Tensor = vmap(one, in_dims=(0, 0, own, own))(parameters, ensemble.buffers, *data)
    return values


def on_device(ensemble: Ensemble, data: Data, each: bool) -> Data:
    """The data on the networks' device, checked to be one set, or one for each network."""
    x, y = data
    axis = 1 if each else 0
    if each and (len(x) != len(ensemble) or len(y) != len(ensemble)):
        raise DataError(
            f"{len(x)} sets of inputs and {len(y)} of targets were given for {len(ensemble)} networks.",
            "With each=True every network has its own data, counted by the first dimension.",
            "Stack one set for each network, or leave `each` out where all share one.",
        )
    if x.shape[axis] != y.shape[axis] or x.shape[axis] == 0:
        raise DataError(
            f"There are {x.shape[axis]} inputs and {y.shape[axis]} targets.",
            "Every example needs one input and one target, and there must be at least one example.",
            "Check how the data were cut; data for each network have shape B × N × …, and need each=True.",
        )
    return x.to(ensemble.device), y.to(ensemble.device)


def _stacked(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of the same name as one, whatever mode their networks are in; a copy."""
    return {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}


def _with(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the module with these parameters and buffers; a tensor shared under two names stays shared."""
    replaced: dict[int, Any] = {id(old): nn.Parameter(tensors[name]) for name, old in module.named_parameters()}
    replaced |= {id(old): tensors[name] for name, old in module.named_buffers()}
    return copy.deepcopy(module, replaced)


def _moved(buffer: Tensor, place: torch.device | str | torch.dtype) -> Tensor:
    stays = isinstance(place, torch.dtype) and not buffer.is_floating_point()
    return buffer.clone() if stays else buffer.to(place, copy=True)


def _check_alike(networks: Sequence[nn.Module]) -> None:
    """Refuse networks that cannot be computed as one: all like the first, which an ensemble can train."""
    if not networks:
        raise ArgumentError("No networks were given.", "An ensemble needs at least one.", "Give a list of modules.")
    _check_same_architecture(networks)
    _check_parameters(networks[0])
    _check_eval_mode(networks[0])


def _check_same_architecture(networks: Sequence[nn.Module]) -> None:
    shapes = [_shapes(network) for network in networks]
    if any(other != shapes[0] for other in shapes):
        raise ModelError(
            "The networks have parameters of different names or shapes.",
            "They are stacked and computed as one, so they must share an architecture.",
            "Make one ensemble for each architecture.",
        )
    other = next((network for network in networks if str(network) != str(networks[0])), None)
    if other is not None:
        raise ModelError(
            f"The networks have different layers: {networks[0]} and {other}.",
            "All would be computed as the first one is.",
            "Make one ensemble for each architecture.",
        )
    identity = model_identity("networks", networks[0])
    if any(model_identity("networks", network) != identity for network in networks[1:]):
        raise ModelError(
            "The networks differ in more than their parameters and buffers, such as in an attribute or a function.",
            "All would be computed as the first one is.",
            "Keep a tensor that differs as a buffer: self.register_buffer('scale', torch.tensor(2.0)).",
            "Give all networks the same precision and the same settings, or make an ensemble for each.",
        )


def _check_parameters(network: nn.Module) -> None:
    if not network.state_dict() or any(not parameter.requires_grad for parameter in network.parameters()):
        raise ModelError(
            "The networks have no parameters, or some of them are frozen.",
            "An ensemble trains and measures all parameters.",
            "Turn frozen parameters into buffers, or use `train` and `Risk` for one network at a time.",
        )


def _check_eval_mode(network: nn.Module) -> None:
    """Refuse layers that compute differently while a network is trained."""
    for part in network.modules():
        dropout = isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0
        if dropout or isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ModelError(
                f"The networks contain {part}.",
                "An ensemble computes in eval mode, even in training, so it would train a different network.",
                "Leave the layer out, or train one network at a time with `train`.",
            )


def _shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in network.state_dict().items()}
