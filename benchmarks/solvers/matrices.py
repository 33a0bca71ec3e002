"""Matrices of known spectrum: four that are made up, the demo's Hessian, a VGG11's G through its Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy.fft import dct, idct
from torch import Tensor, nn

import ritz
from ritz.cli import demo
from ritz.factored.gram import Gram
from ritz.lab.data import digits

SIZE = 4000  # of the synthetic ones
DAMPING = 1e-3  # of the largest eigenvalue, for log-determinants
CACHE = Path("out/solvers")  # what took long to compute exactly


@dataclass(frozen=True)
class Matrix:
    """A symmetric matrix by its products in float32, with its exact spectrum."""

    title: str
    product: Callable[[Tensor], Tensor]  # (n, k) to (n, k)
    size: int
    device: torch.device
    values: Tensor  # distinct lines, ascending, in float64 on the CPU
    counts: Tensor  # their multiplicities

    @property
    def scale(self) -> float:
        """max|λ|."""
        return float(self.values.abs().max())

    @property
    def damping(self) -> float:
        """μ with A + μ positive definite: 1e-3 of the largest eigenvalue; 1.2 |λ_min| where that is negative."""
        return max(DAMPING * self.scale, -1.2 * float(self.values[0]))

    def largest(self, k: int) -> Tensor:
        """The k largest eigenvalues, descending."""
        ends = self.values.flip(0), self.counts.flip(0).long()
        return ends[0].repeat_interleave(ends[1])[:k]

    def sum(self, f: Callable[[Tensor], Tensor]) -> float:
        """Σ f(λ) over all n eigenvalues."""
        return float((self.counts * f(self.values)).sum())


def outliers_and_zeros(device: torch.device) -> Matrix:
    """Ten outliers, a power-law tail, a bulk, and zeros for one half: what a trained classifier's looks like."""
    outliers, tail = torch.linspace(1.0, 0.2, 10), 0.1 * torch.arange(1.0, 491.0) ** -1.0
    bulk, zeros = 2e-4 * torch.linspace(0.01, 1.0, 1500), torch.zeros(2000)
    return _rotated("10 outliers, tail, bulk, half zeros", torch.cat([outliers, tail, bulk, zeros]), device)


def inverse_squares(device: torch.device) -> Matrix:
    """1/k²."""
    return _rotated("1/k²", torch.arange(1.0, SIZE + 1).double() ** -2, device)


def two_bulks(device: torch.device) -> Matrix:
    """Two semicircles with a gap, one of them negative; no outlier at all."""
    angle = torch.linspace(-torch.pi / 2, torch.pi / 2, 10**5, dtype=torch.float64)
    below = 0.5 + (angle + angle.sin() * angle.cos()) / torch.pi  # the semicircle's distribution function at sin(angle)
    levels = (torch.arange(SIZE // 2) + 0.5) / (SIZE // 2)
    bulk = angle.sin()[torch.searchsorted(below, levels.double())]
    return _rotated("two bulks with a gap, indefinite", torch.cat([-1 + 0.3 * bulk, 2 + 0.5 * bulk]), device)


def clustered_outliers(device: torch.device) -> Matrix:
    """Three clusters of four outliers, 1e-3 apart, over a uniform bulk."""
    clusters = [centre - 1e-3 * torch.arange(4.0) for centre in (1.0, 0.8, 0.6)]
    return _rotated("clustered outliers", torch.cat([*clusters, torch.linspace(0, 0.1, SIZE - 12)]), device)


def demo_hessian(device: torch.device) -> Matrix:
    """The dense Hessian of the network that `ritz demo` trains: n = 5,018."""

    def exact() -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        data = digits(generator=generator)
        H = ritz.hessian(ritz.Risk(demo.classifier(data, generator), nn.CrossEntropyLoss(), data.train)).dense()
        H = (H + H.T) / 2
        return {"matrix": H, "values": torch.linalg.eigvalsh(H.double())}

    kept = _cached("demo", exact)
    H = kept["matrix"].to(device)
    counts = torch.ones(len(H), dtype=torch.float64)
    return Matrix("demo, H", lambda V: H @ V, len(H), device, kept["values"], counts)


def vgg11(device: torch.device, *, base: int = 64, num_examples: int = 340) -> Matrix:
    """G of a VGG11 with 28M parameters; its spectrum is that of its Gram matrix, and zeros."""
    risk = _vgg_risk(device, base, num_examples)
    kept = _cached(f"vgg11-{base}-{num_examples}", lambda: {"values": Gram.of(risk).eigenvalues()})
    lines = torch.cat([kept["values"], torch.zeros(1, dtype=torch.float64)])
    counts = torch.ones_like(lines)
    counts[-1] = risk.size - len(kept["values"])
    order = lines.argsort()
    G = ritz.gauss_newton(risk)
    title = f"VGG11, G, {risk.size:,} parameters, {num_examples} examples"
    return Matrix(title, lambda V: G @ V, risk.size, device, lines[order], counts[order])


def small_vgg11(device: torch.device) -> Matrix:
    """A VGG11 with a 32nd of the channels, on 64 examples."""
    return vgg11(device, base=2, num_examples=64)


MATRICES: dict[str, Callable[[torch.device], Matrix]] = {
    "outliers": outliers_and_zeros,
    "squares": inverse_squares,
    "bulks": two_bulks,
    "clusters": clustered_outliers,
    "demo": demo_hessian,
    "small-vgg": small_vgg11,
    "vgg": vgg11,
}


def _rotated(title: str, lines: Tensor, device: torch.device) -> Matrix:
    """S Cᵀ diag(λ) C S with the cosine transform C and random signs S: eigenvectors without any preferred axis."""
    generator = torch.Generator().manual_seed(1)
    values = lines.double().sort().values
    order = torch.randperm(len(values), generator=generator)
    diagonal = values[order].float()[:, None].numpy()
    signs = (2 * torch.randint(2, (len(values), 1), generator=generator) - 1).float().numpy()

    def product(V: Tensor) -> Tensor:
        mixed = diagonal * dct(signs * V.cpu().numpy(), axis=0, norm="ortho")
        return torch.from_numpy(signs * idct(mixed, axis=0, norm="ortho")).to(V)

    distinct, counts = values.float().double().unique(return_counts=True)
    return Matrix(title, product, len(values), device, distinct, counts.double())


def _vgg_risk(device: torch.device, base: int, num_examples: int) -> ritz.Risk:
    """Random images; the batch norms' statistics are those of the images, as training would leave them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_examples, 3, 32, 32, generator=generator).to(device)
    y = (torch.arange(num_examples) % 10).to(device)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = _vgg(base).to(device)
        model(x)
    return ritz.Risk(model.eval(), nn.CrossEntropyLoss(), (x, y))


def _vgg(base: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = 3
    for after in (base, 0, 2 * base, 0, 4 * base, 4 * base, 0, 8 * base, 8 * base, 0, 8 * base, 8 * base, 0):
        if after:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after, momentum=None), nn.ReLU()]
            before = after
        else:
            layers.append(nn.MaxPool2d(2))
    wide = 64 * base
    head = [
        layer for a in (before, wide) for layer in (nn.Linear(a, wide), nn.BatchNorm1d(wide, momentum=None), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(wide, 10))


def _cached(name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    path = CACHE / f"{name}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(compute(), path)
    return dict(torch.load(path, weights_only=True))
