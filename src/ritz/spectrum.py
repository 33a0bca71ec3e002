"""What algorithms and theory return: spectra, eigenpairs and estimates, each with what it knows of its own error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from . import record
from .errors import ArgumentError, NumericalError, check_positive

EPS = torch.finfo(torch.float64).eps
KAPPA = 3.0  # a Gaussian has fallen to 1/κ half a spacing away; Papyan (2020), Sec. D.2
LOG_KAPPA = 1.04  # the paper takes "a different value" for logarithms and does not say which; curvlinops takes this one
STEPS = 128  # resolution lent to exact spectra, which have none: that of Papyan (2020), Sec. D.2
QUADRATURE_ZERO = 16 * torch.finfo(torch.float32).eps  # |λ|/max|λ| that float32 products cannot tell from zero
CHUNK = 2**22  # entries of a kernel matrix held at a time: 32 MB


@dataclass(frozen=True, repr=False, eq=False)
class Spectrum:
    """A probability measure Σₖ wₖ δ(λ - λₖ) on the line, averaged over p independent probes.

    Exact eigenvalues (one probe), Lanczos quadratures and closed forms are all of this kind, zeros included, and
    can be drawn and compared alike. `resolution` is the spacing that a quadrature resolves; it sets the default
    Gaussian width. Held in float64 on the CPU.

    >>> spectrum = ritz.Spectrum.of_eigenvalues(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([97, 2, 1]))
    >>> spectrum
    Spectrum(100 eigenvalues, exact: λ from 0 to 5, mean 0.07, root mean square 0.5196, zeros 0.97)
    >>> outliers, bulk = spectrum.split(1)
    >>> outliers, bulk.zero_mass()
    (tensor([5.], dtype=torch.float64), 0.979...)
    """

    nodes: Float[Tensor, "p k"]
    weights: Float[Tensor, "p k"]  # not negative; each row sums to one
    size: int  # n, the number of eigenvalues
    resolution: float | None = None  # None: the atoms are exact

    def __post_init__(self) -> None:
        for name in ("nodes", "weights"):
            object.__setattr__(self, name, getattr(self, name).detach().to("cpu", torch.float64))
        _check_measure(self.nodes, self.weights)
        check_positive("It counts the eigenvalues.", size=self.size)

    @classmethod
    def of_eigenvalues(
        cls, values: Float[Tensor, " k"], multiplicity: Shaped[Tensor, " k"] | None = None, *, probes: int = 1
    ) -> Spectrum:
        """The exact spectrum with these eigenvalues; a multiplicity of one each unless given."""
        counts = torch.ones(len(values)) if multiplicity is None else multiplicity
        counts = counts.to("cpu", torch.float64)
        nodes, weights = values[None].expand(probes, -1), (counts / counts.sum())[None].expand(probes, -1)
        return cls(nodes, weights, round(float(counts.sum())))

    @classmethod
    def of_matrix(cls, matrix: Float[Tensor, "n n"]) -> Spectrum:
        """The exact spectrum of a small symmetric matrix."""
        return cls.of_eigenvalues(torch.linalg.eigvalsh(matrix.to(torch.float64)))

    @property
    def num_probes(self) -> int:
        """p, the number of independent probes."""
        return len(self.nodes)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest node that carries mass."""
        support = self.nodes[self.weights > 0]
        return float(support.min()), float(support.max())

    @property
    def floor(self) -> float:
        """size · eps · max|λ|: below it an eigenvalue is zero to rounding. Never zero itself."""
        return self.size * EPS * self._scale

    @property
    def width(self) -> float:
        """Default Gaussian width σ: g_σ(half a spacing) = g_σ(0)/κ. Papyan (2020), Alg. 3, in units of λ."""
        low, high = self.range
        spacing = self.resolution or (high - low) / (STEPS - 1) or self._scale / (STEPS - 1)
        return max(spacing, 1e4 * EPS * self._scale) / math.sqrt(8 * math.log(KAPPA))  # a width that float64 resolves

    def log_width(self, floor: float | None = None) -> float:
        """Default Gaussian width in u = log(|λ| + floor): as `width`, for the range of u."""
        low, high = self._log_range(floor)
        steps = STEPS if self.resolution is None else max(self.nodes.shape[1], 2)
        return (high - low) / (steps - 1) / math.sqrt(8 * math.log(LOG_KAPPA))

    def density(self, x: Float[Tensor, " g"], width: float | None = None) -> Float[Tensor, " g"]:
        """ρ(x) = Σₖ wₖ g_σ(x - λₖ), which integrates to one. Papyan (2020), Alg. 3, de-normalised."""
        return self._smoothed(x, self.nodes, self.width if width is None else width)

    def log_density(
        self, u: Float[Tensor, " g"], *, width: float | None = None, floor: float | None = None
    ) -> Float[Tensor, " g"]:
        """q(u) = Σₖ wₖ g_σ(u - log(|λₖ| + floor)): the density of u = log(|λ| + floor), with ∫ q du = 1.

        Papyan (2020), Sec. C.7 and Papyan (2019), eq. (7), without the factor 1/θ: with it, it is no density of log|λ|.
        """
        epsilon = self._log_floor(floor)
        return self._smoothed(u, (self.nodes.abs() + epsilon).log(), self.log_width(floor) if width is None else width)

    def grid(self, num_points: int = 2000, *, width: float | None = None) -> Float[Tensor, " g"]:
        """Points λ that show the whole density: the range and four widths on either side."""
        low, high = self.range
        margin = 4 * (self.width if width is None else width)
        return torch.linspace(low - margin, high + margin, num_points, dtype=torch.float64)

    def log_grid(
        self, num_points: int = 2000, *, width: float | None = None, floor: float | None = None
    ) -> Float[Tensor, " g"]:
        """Points u = log(|λ| + floor) that show the whole log-density, from a true zero upwards."""
        low, high = self._log_range(floor)
        margin = 4 * (self.log_width(floor) if width is None else width)
        return torch.linspace(low - margin, high + margin, num_points, dtype=torch.float64)

    def cdf(self, x: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        """F(x), the mass of (-∞, x]."""
        nodes, order = self.nodes.flatten().sort()
        mass = self.weights.flatten()[order].cumsum(0) / self.num_probes
        below = torch.searchsorted(nodes, x.to(nodes), right=True)
        return torch.cat([mass.new_zeros(1), mass])[below].clamp(max=1.0)

    def moment(self, degree: int) -> float:
        """∫ λᵈ dμ = tr(Aᵈ)/n; exact for each probe's measure while d < 2m."""
        return float((self.weights * self.nodes**degree).sum(1).mean())

    def wasserstein(self, other: Spectrum) -> float:
        """W₁ = ∫ |F - G| dλ, in the units of the eigenvalues."""
        x = torch.cat([self.nodes.flatten(), other.nodes.flatten()]).sort().values
        return float(((self.cdf(x) - other.cdf(x)).abs()[:-1] * x.diff()).sum())

    def zero_mass(self, tolerance: float | None = None) -> float:
        """Fraction of eigenvalues with |λ| ≤ tolerance.

        By default the tolerance is `floor` where the atoms are exact, and 2e-6 max|λ|, the rounding of float32
        products, for a quadrature.
        """
        if tolerance is None:
            tolerance = self.floor if self.resolution is None else max(self.floor, QUADRATURE_ZERO * self._scale)
        return float((self.weights * (self.nodes.abs() <= tolerance)).sum(1).mean())

    def standard_error(self, statistic: Callable[[Spectrum], Tensor | float]) -> Tensor:
        """Monte Carlo error of a statistic of the measure: std over the probes / √p."""
        if self.num_probes < 2:
            raise ArgumentError(
                "A standard error was asked of a spectrum with one probe.",
                "One probe has no scatter; an exact spectrum has no Monte Carlo error at all.",
                "For a quadrature, pass num_probes=2 or more to spectral_density.",
            )
        rows = (self._row(i) for i in range(self.num_probes))
        values = torch.stack([torch.as_tensor(statistic(row), dtype=torch.float64) for row in rows])
        return values.std(0) / self.num_probes**0.5

    def split(self, outliers: int) -> tuple[Float[Tensor, " outliers"], Spectrum]:
        """The eigenvalues of largest magnitude, largest first, and the spectrum of all others.

        Each outlier is an atom of mass 1/n known to every probe, as in exact spectra and those of
        `spectral_density(A, outliers=k)`; a plain quadrature has no such atoms and is refused.
        """
        if not 0 <= outliers < self.size:
            raise ArgumentError(
                f"{outliers} outliers of {self.size} eigenvalues were asked for.",
                "There must be a bulk left, and a count is not negative.",
                f"Ask for 0 to {self.size - 1}.",
            )
        order = self.nodes.abs().argsort(dim=1, descending=True, stable=True)
        nodes, counts = self.nodes.gather(1, order), self.weights.gather(1, order) * self.size
        taken = torch.minimum(counts, (outliers - counts.cumsum(1) + counts).clamp(min=0))
        values = [row.repeat_interleave(count.round().long()) for row, count in zip(nodes, taken, strict=True)]
        self._check_atoms(taken, values, outliers)
        bulk = (counts - taken).clamp(min=0)
        return values[0], Spectrum(nodes, bulk / bulk.sum(1, keepdim=True), self.size - outliers, self.resolution)

    def save(self, path: str | Path) -> Path:
        """Write to an npz file; `Spectrum.load` reads it back to the same bits."""
        header = {"kind": "Spectrum", "size": self.size, "resolution": self.resolution}
        return record.write_arrays(path, {"nodes": self.nodes.numpy(), "weights": self.weights.numpy()}, header)

    @classmethod
    def load(cls, path: str | Path) -> Spectrum:
        """Read what `save` wrote."""
        arrays, header = record.read_arrays(path)
        _check_kind(path, header, "Spectrum")
        nodes, weights = (torch.from_numpy(arrays[name]) for name in ("nodes", "weights"))
        return cls(nodes, weights, header["size"], header["resolution"])

    def __repr__(self) -> str:
        low, high = self.range
        kind = "exact" if self.resolution is None else f"{self.num_probes} probes × {self.nodes.shape[1]} nodes"
        return (
            f"Spectrum({self.size} eigenvalues, {kind}: λ from {low:.4g} to {high:.4g}, "
            f"mean {self.moment(1):.4g}, root mean square {self.moment(2) ** 0.5:.4g}, zeros {self.zero_mass():.3g})"
        )

    @property
    def _scale(self) -> float:
        return max(map(abs, self.range)) or 1.0

    def _log_floor(self, floor: float | None) -> float:
        check_positive("A logarithm needs a positive floor.", floor=floor)
        return self.floor if floor is None else floor

    def _log_range(self, floor: float | None) -> tuple[float, float]:
        epsilon = self._log_floor(floor)
        return math.log(epsilon), math.log(self._scale + epsilon)

    def _row(self, index: int) -> Spectrum:
        rows = slice(index, index + 1)
        return Spectrum(self.nodes[rows], self.weights[rows], self.size, self.resolution)

    def _smoothed(self, x: Tensor, centres: Tensor, width: float) -> Tensor:
        check_positive("A Gaussian needs a positive width.", width=width)
        centres, weights = centres.flatten() / width, self.weights.flatten()
        points = x.to(centres) / width
        rows = [
            torch.exp(-0.5 * (piece[:, None] - centres).square_()) @ weights
            for piece in points.split(max(1, CHUNK // len(centres)))
        ]
        return torch.cat([points.new_zeros(0), *rows]) / (self.num_probes * width * math.sqrt(2 * math.pi))

    def _check_atoms(self, taken: Tensor, values: list[Tensor], outliers: int) -> None:
        whole = bool(((taken - taken.round()).abs() <= 1e-6).all()) and all(len(row) == outliers for row in values)
        if not whole or any(not torch.allclose(row, values[0], atol=0.0) for row in values):
            raise ArgumentError(
                f"This quadrature does not hold {outliers} outliers as atoms of mass 1/n.",
                "Its largest nodes carry random masses, and several may stand for one eigenvalue.",
                f"spectral_density(A, outliers={outliers}) finds and certifies them first.",
            )


@dataclass(frozen=True, repr=False, eq=False)
class Eigenpairs:
    """Approximate eigenpairs A vᵢ ≈ λᵢ vᵢ with residuals ‖A vᵢ - λᵢ vᵢ‖, the requested end first.

    The residual comes from a fresh product, so A as multiplied has an eigenvalue that near to λᵢ.

    >>> pairs = ritz.eigenpairs(ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 9.0]))), 2)
    >>> pairs
    Eigenpairs(2 of 3, 3 products, a basis of 3)
                 9  ± ...
                 2  ± ...
    >>> pairs.vectors.shape, pairs.converged
    (torch.Size([3, 2]), tensor([True, True]))
    """

    values: Float[Tensor, " k"]
    vectors: Float[Tensor, "n k"]
    residuals: Float[Tensor, " k"]
    converged: Bool[Tensor, " k"]  # residual at most tolerance · max|λ|
    num_products: int = 0
    basis_size: int | None = None  # vectors that the search kept at most, these among them; None: there was none
    num_rough_products: int = 0  # how many of the products were with a cheaper operator, nearly the same

    def __len__(self) -> int:
        return len(self.values)

    def save(self, path: str | Path) -> Path:
        """Write to an npz file; `Eigenpairs.load` reads it back to the same bits, on the CPU."""
        names = ("values", "vectors", "residuals", "converged")
        arrays = {name: getattr(self, name).detach().cpu().numpy() for name in names}
        counts = {name: getattr(self, name) for name in ("num_products", "basis_size", "num_rough_products")}
        return record.write_arrays(path, arrays, {"kind": "Eigenpairs", **counts})

    @classmethod
    def load(cls, path: str | Path) -> Eigenpairs:
        """Read what `save` wrote."""
        arrays, header = record.read_arrays(path)
        _check_kind(path, header, "Eigenpairs")
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        products, rough = header["num_products"], header.get("num_rough_products", 0)
        return cls(**tensors, num_products=products, basis_size=header.get("basis_size"), num_rough_products=rough)

    def __repr__(self) -> str:
        rows = zip(self.values.tolist(), self.residuals.tolist(), self.converged.tolist(), strict=True)
        lines = [f"{v:>14.6g}  ± {r:<10.2g}{'' if ok else '  not converged'}" for v, r, ok in rows]
        basis = "" if self.basis_size is None else f", a basis of {self.basis_size}"
        rough = f", {self.num_rough_products} of them rough" if self.num_rough_products else ""
        head = f"Eigenpairs({len(self)} of {len(self.vectors)}, {self.num_products} products{rough}{basis})"
        return "\n".join([head, *lines])


@dataclass(frozen=True, init=False, repr=False)
class Estimate:
    """A number with its standard error and what it cost; asking for an error that is not known raises.

    >>> estimate = ritz.Estimate(12.3456, 0.05, 100)
    >>> estimate
    12.35 ± 0.05 (100 products)
    >>> float(estimate), estimate.standard_error
    (12.3456, 0.05)
    """

    value: float
    num_products: int
    _error: float | None

    def __init__(self, value: float, standard_error: float | None, num_products: int) -> None:
        object.__setattr__(self, "value", float(value))
        object.__setattr__(self, "num_products", int(num_products))
        object.__setattr__(self, "_error", None if standard_error is None else float(standard_error))

    @property
    def has_error(self) -> bool:
        """Whether `standard_error` is known: it takes two probes."""
        return self._error is not None

    @property
    def standard_error(self) -> float:
        """The standard error of `value`; with one probe there is none."""
        if self._error is None:
            raise ArgumentError(
                f"A standard error was asked of an estimate from one probe ({self.value:.4g}).",
                "One probe has no scatter to measure the error by.",
                "Allow more probes or products.",
            )
        return self._error

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        products = f"{self.num_products} product{'s' * (self.num_products != 1)}"
        if self._error is None:
            return f"{self.value:.4g} ({products}, error unknown)"
        return f"{_with_error(self.value, self._error)} ({products})"


def _with_error(value: float, error: float) -> str:
    """The value to the digit that its error reaches."""
    if not (math.isfinite(value) and math.isfinite(error) and error > 1e-9 * abs(value)):
        return f"{value:.9g} ± {error:.1g}"
    size = max(abs(value), error)
    exponent = math.floor(math.log10(size)) if not 1e-3 <= size < 1e6 else 0
    decimals = max(0, exponent - math.floor(math.log10(error)))
    digits = f"{value / 10**exponent:.{decimals}f} ± {error / 10**exponent:.{decimals}f}"
    return f"({digits})e{exponent:+03d}" if exponent else digits


def _check_measure(nodes: Tensor, weights: Tensor) -> None:
    if nodes.ndim != 2 or nodes.shape != weights.shape or nodes.numel() == 0:
        raise ArgumentError(
            f"Nodes of shape {tuple(nodes.shape)} and weights of shape {tuple(weights.shape)} were given.",
            "A spectrum has one row of atoms for each probe, and a weight for each atom.",
            "Spectrum.of_eigenvalues(values) takes plain eigenvalues.",
        )
    if not bool(nodes.isfinite().all() and weights.isfinite().all()):
        raise NumericalError(
            "A spectrum has NaN or infinite nodes or weights.",
            "No density, moment or distance exists.",
            "Check the operator: (A @ v).isfinite().all() for a random v.",
        )
    if bool((weights < 0).any()) or float((weights.sum(1) - 1).abs().max()) > 1e-6:
        raise ArgumentError(
            f"The weights lie between {float(weights.min()):.3g} and {float(weights.max()):.3g}; "
            f"their rows sum to {float(weights.sum(1).min()):.6g} to {float(weights.sum(1).max()):.6g}.",
            "Each row is a probability measure: not negative, with sum one.",
            "Divide the weights by their sum.",
        )


def _check_kind(path: str | Path, header: dict, kind: str) -> None:
    if header.get("kind") != kind:
        raise ArgumentError(
            f"{path} holds {header.get('kind', 'something else')}, not {kind}.",
            "Its arrays mean something else.",
            f"Load a file that {kind}.save wrote.",
        )
