"""Small networks with unbalanced labels, and the dense Kronecker factors of their layers, from hooks and autograd."""

import torch
from torch import nn
from torch.nn import functional as F

from ritz.risk import Risk

LABELS = torch.tensor([0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0])  # unbalanced
WEIGHT = torch.tensor([0.5, 2.0, 1.5], dtype=torch.float64)


class Tokens(nn.Module):
    """A linear layer shared over tokens, then a mean: one term for each example."""

    def __init__(self):
        super().__init__()
        self.shared, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.shared(x)).mean(1))


class Twice(nn.Module):
    """One layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


def mlp():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), (4,)


def cnn():
    convolutions = [nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 2, stride=2), nn.GELU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(8, 3)), (2, 4, 4)


MODELS = {"mlp": mlp, "cnn": cnn, "tokens": lambda: (Tokens(), (5, 3)), "twice": lambda: (Twice(), (4,))}


def built(name, count=11):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, shape = MODELS[name]()
        return model.double(), torch.randn(count, *shape, dtype=torch.float64)


def unequal(x, y):
    return [(x[:7], y[:7]), (x[7:], y[7:])]


def risk_of(name, *, labels=LABELS, **options):
    model, x = built(name, len(labels))
    return Risk(model, nn.CrossEntropyLoss(**options), unequal(x, labels)), model, x


# Dense factors, from hooks -------------------------------------------------------------------------------------------


def seen(model, module, x):
    """The outputs for one example, and (inputs, output) of every use of a module."""
    found = []
    handle = module.register_forward_hook(lambda _, inputs, output: found.append((inputs[0], output)))
    z = model(x[None])
    handle.remove()
    return z, found


def as_rows(module, inputs, error):
    """Features and errors of one use: (T, d), (T, o)."""
    if isinstance(module, nn.Conv2d):
        patches = F.unfold(inputs, module.kernel_size, module.dilation, module.padding, module.stride)
        return patches[0].T, error[0].flatten(1).T
    return inputs.reshape(-1, inputs.shape[-1]), error.reshape(-1, error.shape[-1])


def factors_of_example(model, module, x):
    """φ with its one, (T, d + 1); p; and δ for every would-be label, (C, T, o)."""
    z, found = seen(model, module, x)
    p = z[0].softmax(0).detach()
    features, errors = [], []
    for inputs, output in found:
        rows = []
        for c in range(len(p)):
            u = p - F.one_hot(torch.tensor(c), len(p))
            (error,) = torch.autograd.grad(z, output, u[None], retain_graph=True)
            phi, delta = as_rows(module, inputs.detach(), error)
            rows.append(delta)
        features.append(torch.cat([phi, torch.ones(len(phi), 1).double()], 1))
        errors.append(torch.stack(rows))
    return torch.cat(features), p, torch.cat(errors, 1)


def dense_factors(model, name, x, labels, masses, total_weight):
    """Σ a over positions, Σ a φφᵀ and Σ w δδᵀ for every class."""
    count, Phi, D = torch.zeros(3).double(), 0, 0
    hot = F.one_hot(labels, 3).double()
    for i, a in enumerate(masses):
        phi, p, delta = factors_of_example(model, model.get_submodule(name), x[i])
        count += hot[i] * a * len(phi)
        Phi = Phi + torch.einsum("c,td,te->cde", hot[i] * a, phi, phi)
        D = D + torch.einsum("c,k,kto,ktp->cop", hot[i] * a / total_weight, p, delta, delta)
    return count, Phi, D


def in_order_of_theta(errors, features):
    """Δ ⊗ Φ, moved from the rows of [W b] to W, then b."""
    o, d = len(errors), len(features)
    order = torch.arange(o * d).view(o, d)
    order = torch.cat([order[:, :-1].flatten(), order[:, -1]])
    return torch.kron(errors.contiguous(), features.contiguous())[order][:, order]


def close(ours, dense):
    torch.testing.assert_close(ours, dense, rtol=1e-10, atol=1e-12 * float(dense.abs().max()))


OPTIONS = [{}, {"weight": WEIGHT}, {"weight": WEIGHT, "label_smoothing": 0.2, "reduction": "sum"}, {"ignore_index": 2}]


def masses_of(risk, labels, options):
    smoothing, weight = options.get("label_smoothing", 0.0), options.get("weight", torch.ones(3).double())
    masses = (1 - smoothing) * weight[labels] + smoothing * weight.mean()
    return torch.where(labels == options.get("ignore_index", -100), 0.0, masses)


class Idle(nn.Module):
    """A layer, and another one that no output depends on."""

    def __init__(self):
        super().__init__()
        self.unused, self.layer = nn.Linear(2, 2), nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


def idle_risk():
    """A risk of 21 parameters, of which the first six have no influence."""
    return Risk(Idle().double(), nn.CrossEntropyLoss(), (torch.randn(3, 4).double(), torch.tensor([0, 1, 2])))
