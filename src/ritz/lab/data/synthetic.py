"""Synthetic data sets and matrices: those of the papers' experiments with known answers.

Everything is drawn in float64 on the generator's device and then rounded to `dtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import ArgumentError, check_number, check_positive, check_whole
from .examples import Examples


def gaussian_regression(
    num_examples: int,
    num_inputs: int,
    num_outputs: int = 1,
    *,
    generator: torch.Generator,
    W: Float[Tensor, "k d"] | None = None,
    sigma_x: float = 1.0,
    noise: float = 0.1,
    dtype: torch.dtype = torch.float32,
) -> Examples:
    """y = Wx + ε with x ~ N(0, σₓ²I) and ε ~ N(0, noise²I).

    Singh et al. (2026), D.1.3, where W is "a fixed matrix" and the noise has variance 0.01; unless given, W has entries
    N(0, 1/D). Targets without inputs (D.1.1, Fig. 7) are those of W = 0 and noise = 1.

    >>> W, generator = torch.tensor([[1.0, -1.0]]), torch.Generator().manual_seed(0)
    >>> x, y = gaussian_regression(5, 2, W=W, noise=0.0, generator=generator)
    >>> bool(torch.allclose(y[:, 0], x[:, 0] - x[:, 1]))
    True
    """
    check_counts(num_examples=num_examples, num_inputs=num_inputs, num_outputs=num_outputs)
    check_number(sigma_x=sigma_x, noise=noise)
    if W is None:
        W = _normal(generator, num_outputs, num_inputs) / num_inputs**0.5
    elif W.shape != (num_outputs, num_inputs):
        raise ArgumentError(
            f"W has shape {tuple(W.shape)}.",
            f"It maps {num_inputs} inputs to {num_outputs} outputs, y = Wx.",
            f"Give it the shape ({num_outputs}, {num_inputs}).",
        )
    x = sigma_x * _normal(generator, num_examples, num_inputs)
    y = x @ W.to(x).T + noise * _normal(generator, num_examples, num_outputs)
    return Examples(x.to(dtype), y.to(dtype))


def teacher(
    network: Callable[[Tensor], Tensor],
    num_examples: int,
    num_inputs: int,
    *,
    generator: torch.Generator,
    noise: float = 0.1,
    dtype: torch.dtype = torch.float32,
) -> Examples:
    """y = network(x) + ε with x ~ N(0, I) and ε ~ N(0, noise²I): data from a teacher for a student to learn.

    Singh et al. (2026), D.1.3 has "a single layer ReLU random teacher": `models.mlp((d, width, d), …)`.
    The network is called with inputs of `dtype`.

    >>> x, y = teacher(torch.relu, 5, 2, noise=0.0, generator=torch.Generator().manual_seed(0))
    >>> bool((y == x.relu()).all())
    True
    """
    check_counts(num_examples=num_examples, num_inputs=num_inputs)
    check_number(noise=noise)
    x = _normal(generator, num_examples, num_inputs).to(dtype)
    with torch.no_grad():
        y = network(x)
    return Examples(x, y + noise * _normal(generator, *y.shape).to(y))


def decorrelated(
    num_examples: int, num_inputs: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Examples:
    """Inputs and a target with empirical means 0, variances 1 and correlations 0, exactly: (X, y)ᵀ(X, y)/N = I.

    Orthonormal columns beside a constant one, times √N. Singh et al. (2026), D.1.2, where N is 102 or 152: with up to
    150 inputs, a target and the constant, 152 is the least that there can be.

    >>> x, y = decorrelated(6, 2, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(x.T @ x / 6, torch.eye(2), atol=1e-6))
    True
    """
    check_counts(num_examples=num_examples, num_inputs=num_inputs)
    if num_examples < num_inputs + 2:
        raise ArgumentError(
            f"{num_examples} examples of {num_inputs} decorrelated inputs and a target were requested.",
            "N examples span N orthogonal directions, and the mean takes one of them.",
            f"Ask for at least {num_inputs + 2} examples.",
        )
    ones = torch.ones(num_examples, 1, dtype=torch.float64, device=generator.device)
    Q = torch.linalg.qr(torch.cat([ones, _normal(generator, num_examples, num_inputs + 1)], 1)).Q
    columns = (num_examples**0.5 * Q[:, 1:]).to(dtype)
    return Examples(columns[:, :-1].contiguous(), columns[:, -1:].contiguous())


def normalized(
    num_examples: int, num_inputs: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Examples:
    """Gaussian inputs and a target, each with empirical mean 0 and variance 1, correlated as chance has it.

    The second data set of Singh et al. (2026), D.1.2.

    >>> x, y = normalized(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> bool(torch.allclose(x.square().mean(0), torch.ones(2, dtype=x.dtype)))
    True
    """
    check_counts(num_examples=num_examples, num_inputs=num_inputs)
    if num_examples < 2:
        raise ArgumentError(
            "One example was to be normalised.", "A single number has no variance.", "Ask for two or more."
        )
    columns = _normal(generator, num_examples, num_inputs + 1)
    columns = (columns - columns.mean(0)) / columns.std(0, correction=0)
    return Examples(columns[:, :-1].to(dtype).contiguous(), columns[:, -1:].to(dtype).contiguous())


def wedge(
    num_examples: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
) -> Examples:
    """y = |x| on [-1, 1]: equally spaced, or uniform with a generator; x and y are (N, 1).

    Singh et al. (2026), Fig. 8 uses a "wedge dataset" that it does not define. This is our reading of the name.

    >>> x, y = wedge(3)
    >>> x.flatten().tolist(), y.flatten().tolist()
    ([-1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    """
    check_counts(num_examples=num_examples)
    if generator is None:
        x = torch.linspace(-1, 1, num_examples, dtype=torch.float64)
    else:
        x = 2 * torch.rand(num_examples, generator=generator, dtype=torch.float64, device=generator.device) - 1
    return Examples(x[:, None].to(dtype), x.abs()[:, None].to(dtype))


def reversed_sequences(
    num_sequences: int, length: int = 2, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Examples:
    """Sequences x ~ N(0, I) of shape (b, n), and the same backwards as targets (b, n, 1), as `SelfAttention` has them.

    Singh et al. (2026), App. D.2, which does not say how x is drawn.

    >>> x, y = reversed_sequences(4, length=3, generator=torch.Generator().manual_seed(0))
    >>> x.shape, bool((y[..., 0] == x.flip(1)).all())
    (torch.Size([4, 3]), True)
    """
    check_counts(num_sequences=num_sequences, length=length)
    x = _normal(generator, num_sequences, length).to(dtype)
    return Examples(x, x.flip(1)[..., None])


def gaussian_mixture(
    num_inputs: int,
    num_classes: int,
    *,
    per_class: int | Sequence[int],
    separation: float,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> Examples:
    """x = μ_c + z with z ~ N(0, I) and class means μ_c ~ N(0, separation²/D · I), so that ‖μ_c‖ ≈ separation.

    >>> x, y = gaussian_mixture(3, 2, per_class=2, separation=1.0, generator=torch.Generator().manual_seed(0))
    >>> x.shape, y.tolist()
    (torch.Size([4, 3]), [0, 0, 1, 1])
    """
    check_counts(num_inputs=num_inputs, num_classes=num_classes)
    check_number(separation=separation)
    means = separation * _normal(generator, num_classes, num_inputs) / num_inputs**0.5
    return _mixture(means, per_class, generator, dtype)


def canonical_classification(
    num_inputs: int,
    num_classes: int,
    snr: float,
    *,
    per_class: int | Sequence[int],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> Examples:
    """x = t e_c + z with z ~ N(0, I): the canonical classification model CCM(D, C), t being `snr`.

    Papyan (2020), Def. 8.1. `theory.logistic_ccm` has the spectrum of G.

    >>> x, y = canonical_classification(3, 2, snr=5.0, per_class=(1, 2), generator=torch.Generator().manual_seed(0))
    >>> x.shape, y.tolist()
    (torch.Size([3, 3]), [0, 1, 1])
    """
    check_counts(num_inputs=num_inputs, num_classes=num_classes)
    check_number(snr=snr)
    if num_inputs < num_classes:
        raise ArgumentError(
            f"{num_classes} canonical class means were requested in {num_inputs} dimensions.",
            "Each class has a coordinate axis of its own.",
            "Take at least as many inputs as classes.",
        )
    means = snr * torch.eye(num_classes, num_inputs, dtype=torch.float64, device=generator.device)
    return _mixture(means, per_class, generator, dtype)


def spiked_matrix(
    size: int = 2000,
    spikes: Sequence[float] = (5.0, 4.0, 3.0),
    *,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "n n"]:
    """Y = diag(5, 4, 3, 0, …) + ZZᵀ/n, Z ~ N(0, 1) of shape n × n. Papyan (2020), Fig. 15a.

    >>> Y = spiked_matrix(100, (50.0,), generator=torch.Generator().manual_seed(0))
    >>> [round(float(value)) for value in torch.linalg.eigvalsh(Y)[-2:]]
    [4, 51]
    """
    check_counts(size=size)
    for spike in spikes:
        check_number(spikes=spike)
    if len(spikes) > size:
        raise ArgumentError(
            f"{len(spikes)} spikes were requested in a matrix of {size} rows.",
            "Each takes a place of its own on the diagonal.",
            "Take a larger matrix.",
        )
    Z = _normal(generator, size, size)
    Y = Z @ Z.T / size
    Y.diagonal()[: len(spikes)] += torch.tensor(spikes, dtype=torch.float64, device=Y.device)
    return Y.to(dtype)


def pareto_matrix(
    size: int = 500,
    num_columns: int = 1000,
    *,
    index: float = 1.0,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "n n"]:
    """Y = ZZᵀ/m, Z of shape n × m with Pareto entries, P(z > s) = s⁻ᵅ for s ≥ 1: a power law. Papyan (2020), Fig. 15b.

    There Z is 500 × 1000 and Y is said to be 1000 × 1000; it is 500 × 500.

    >>> Y = pareto_matrix(3, 5, generator=torch.Generator().manual_seed(0))
    >>> Y.shape, bool((Y >= 1).all())
    (torch.Size([3, 3]), True)
    """
    check_counts(size=size, num_columns=num_columns)
    if not index > 0:
        raise ArgumentError(
            f"A Pareto distribution of index {index} was requested.",
            "Its tail s⁻ᵅ falls only where the index is positive.",
            "Pass a positive index, such as the paper's index=1.",
        )
    uniform = 1 - torch.rand(size, num_columns, generator=generator, dtype=torch.float64, device=generator.device)
    Z = uniform ** (-1 / index)  # 1 - rand is never zero
    return (Z @ Z.T / num_columns).to(dtype)


def check_counts(**counts: int) -> None:
    """Refuse sizes that are not positive whole numbers."""
    check_whole(**counts)
    check_positive("It counts what is to be drawn.", **counts)


def _mixture(
    means: Float[Tensor, "c d"], per_class: int | Sequence[int], generator: torch.Generator, dtype: torch.dtype
) -> Examples:
    counts = [per_class] * len(means) if isinstance(per_class, int) else list(per_class)
    if len(counts) != len(means) or min(counts) < 0 or not sum(counts):
        raise ArgumentError(
            f"Classes of {counts} examples were requested.",
            f"There are {len(means)} classes, and at least one example must be drawn.",
            "Give one number for all classes, or one for each, none of them negative.",
        )
    y = torch.arange(len(means), device=means.device).repeat_interleave(torch.tensor(counts, device=means.device))
    return Examples((means[y] + _normal(generator, len(y), means.shape[1])).to(dtype), y)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64, device=generator.device)
