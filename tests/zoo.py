"""Small networks of every kind the engine must get right, each with inputs and three outputs per term."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ritz.risk import Risk

OUTPUTS = 3


@dataclass(frozen=True)
class Case:
    model: nn.Module
    inputs: Tensor | dict[str, Tensor]
    shape: tuple[int, ...]  # of the outputs


class ResidualBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4)
        self.shortcut = nn.Conv2d(2, 4, 1, stride=2, bias=False)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x):
        h = self.norm2(self.conv2(F.silu(self.norm1(self.conv1(x)))))
        return self.head(F.relu(h + self.shortcut(x)).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, OUTPUTS)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])


class Transformer(nn.Module):
    """One pre-norm block over tokens, with embeddings tied to the outputs."""

    def __init__(self):
        super().__init__()
        self.tokens, self.qkv, self.out = nn.Embedding(OUTPUTS, 4), nn.Linear(4, 12), nn.Linear(4, 4)
        self.norm1, self.norm2 = nn.LayerNorm(4), nn.LayerNorm(4)
        self.mlp = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
        self.readout = nn.Linear(4, OUTPUTS, bias=False)
        self.readout.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        q, k, v = (t.unflatten(-1, (2, 2)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.readout(x + self.mlp(self.norm2(x)))


class PartlyTrained(nn.Module):
    """A frozen first layer, and a layer that no output depends on."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, OUTPUTS)
        self.unused, self.scale = nn.Linear(2, 2), nn.Parameter(torch.tensor(1.5))
        self.first.weight.requires_grad_(False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))) * self.scale


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, OUTPUTS), nn.Linear(3, OUTPUTS)

    def forward(self, a, b):
        return torch.sigmoid(self.left(a)) * self.right(b)


class Centred(nn.Module):
    """A layer that looks across the batch, so that no example is by itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def mlp() -> Case:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, OUTPUTS))
    return Case(model, torch.randn(11, 4), (11, OUTPUTS))


def cnn() -> Case:
    layers = [nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 2), nn.GELU()]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(2), nn.Linear(2, OUTPUTS))
    return Case(_evaluated(model), torch.randn(11, 2, 4, 4), (11, OUTPUTS))


def residual() -> Case:
    return Case(_evaluated(ResidualBlock()), torch.randn(11, 2, 4, 4), (11, OUTPUTS))


def recurrent() -> Case:
    return Case(Recurrent(), torch.randn(11, 3, 2), (11, OUTPUTS))


def transformer() -> Case:
    return Case(Transformer(), torch.randint(OUTPUTS, (11, 4)), (11, 4, OUTPUTS))


def partly_trained() -> Case:
    return Case(PartlyTrained(), torch.randn(11, 4), (11, OUTPUTS))


def two_inputs() -> Case:
    return Case(TwoInputs(), {"a": torch.randn(11, 2), "b": torch.randn(11, 3)}, (11, OUTPUTS))


CASES: dict[str, Callable[[], Case]] = {
    f.__name__: f for f in (mlp, cnn, residual, recurrent, transformer, partly_trained, two_inputs)
}


def case(name: str) -> Case:
    """The named case in float64, from a fixed seed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = CASES[name]()
        built.model.double()
        inputs = {k: v.double() for k, v in built.inputs.items()} if isinstance(built.inputs, dict) else built.inputs
        inputs = inputs if isinstance(inputs, dict) or not inputs.is_floating_point() else inputs.double()
        return Case(built.model, inputs, built.shape)


def pieces(value, *bounds):
    """Rows of a tensor or of every tensor of a dict."""
    rows = slice(*bounds)
    return {k: v[rows] for k, v in value.items()} if isinstance(value, dict) else value[rows]


def unequal_batches(inputs, targets):
    return [(pieces(inputs, 0, 7), targets[:7]), (pieces(inputs, 7, None), targets[7:])]


def whole(risk: Risk, case: Case):
    """f(θ) on all inputs at once, for dense differentiation."""
    frozen = {n: p.detach() for n, p in case.model.named_parameters() if n not in risk.shapes}

    def outputs(theta):
        tensors = {**frozen, **dict(zip(risk.shapes, risk.unflatten(theta), strict=True))}
        args = ((), case.inputs) if isinstance(case.inputs, dict) else ((case.inputs,),)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return functional_call(case.model, tensors, *args)

    return outputs


def dense_hessian(function, theta):
    """Forward over reverse: reverse-mode Jacobians of a layer norm's gradient are wrong in some PyTorch releases."""
    return torch.func.jacfwd(torch.func.grad(function))(theta)


def _evaluated(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()
