"""The cost of a closed form as width and samples grow, against the dense Hessian where that can be formed.

python -m benchmarks.theory [--points 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import grad, jacfwd

from ritz import theory

from .timing import seconds as seconds_once

DENSE = 2_000  # parameters up to which the dense Hessian is formed and diagonalised
ENTRIES = 10**8  # numbers that its tangents may hold at once: 0.8 GB
REPEATS = 3
CPU = torch.device("cpu")


def seconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """The shortest of several runs."""
    return min(seconds_once(run, CPU) for _ in range(repeats))


def dense_eigenvalues(outputs: Callable[..., Tensor], targets: Tensor, *weights: Tensor) -> Tensor:
    """All eigenvalues of the autograd Hessian of Σ ‖f - y‖²/2N."""
    sizes = [W.numel() for W in weights]

    def loss(theta: Tensor) -> Tensor:
        parts = (part.view_as(W) for part, W in zip(theta.split(sizes), weights, strict=True))
        return (outputs(*parts) - targets).square().sum() / (2 * len(targets))

    return torch.linalg.eigvalsh(jacfwd(grad(loss))(torch.cat([W.flatten() for W in weights])))


def linear_network(width: int, samples: int) -> tuple[float, float | None]:
    """Seconds of the closed form and of the dense route for f = ⟨w, v⟩x."""
    v, w, x, y = (torch.randn(n, dtype=torch.float64) for n in (width, width, samples, samples))

    def dense() -> Tensor:
        return dense_eigenvalues(lambda v, w: (w @ v) * x, y, v, w)

    fits = 2 * width <= DENSE and 2 * width * samples <= ENTRIES
    return seconds(lambda: theory.linear_network(v, w, x, y)), seconds(dense, 1) if fits else None


def two_layer_linear(width: int, samples: int, size: int = 10) -> tuple[float, float | None]:
    """Closed form and dense Hessian of f = W₂W₁x with `size` inputs and outputs."""
    shapes = ((width, size), (size, width), (samples, size), (samples, size))
    W1, W2, X, Y = (torch.randn(*shape, dtype=torch.float64) for shape in shapes)

    def dense() -> Tensor:
        return dense_eigenvalues(lambda A, B: X @ A.T @ B.T, Y, W1, W2)

    fits = 2 * size * width <= DENSE and 2 * size * width * width * samples <= ENTRIES
    return seconds(lambda: theory.two_layer_linear(W1, W2, X, Y)), seconds(dense, 1) if fits else None


def relu_network(width: int, samples: int) -> tuple[float, float | None]:
    """Closed form and dense Hessian of f = Σⱼ wⱼ max(0, vⱼx)."""
    v, w, x, y = (torch.randn(n, dtype=torch.float64) for n in (width, width, samples, samples))

    def dense() -> Tensor:
        return dense_eigenvalues(lambda v, w: torch.outer(x, v).relu() @ w, y, v, w)

    fits = 2 * width <= DENSE and 2 * width * width * samples <= ENTRIES
    return seconds(lambda: theory.relu_network(v, w, x, y)), seconds(dense, 1) if fits else None


def self_attention(width: int, samples: int) -> tuple[float, float | None]:
    """Closed form and dense Hessian of one head of `width` on a sequence of `samples` positions, and their scores."""
    w_q, w_k = (torch.randn(width, dtype=torch.float64) for _ in range(2))
    x, y = (torch.randn(samples, dtype=torch.float64) for _ in range(2))

    def outputs(w_v: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
        return w_v * ((torch.outer(x, x) * (w_q @ w_k) / width**0.5).softmax(1) @ x)

    def dense() -> Tensor:
        return dense_eigenvalues(outputs, y, torch.tensor(0.7, dtype=torch.float64), w_q, w_k)

    fits = 2 * width + 1 <= DENSE and (2 * width + 1) * samples**2 <= ENTRIES
    return seconds(lambda: theory.self_attention(0.7, w_q, w_k, x, y)), seconds(dense, 1) if fits else None


CASES: Sequence[tuple[str, Callable[[int, int], tuple[float, float | None]], Sequence[tuple[int, int]], int]] = (
    (
        "linear_network",
        linear_network,
        [(100, 100), (1000, 100), (10**4, 100), (10**6, 100), (100, 10**6), (10**6, 10**6)],
        2,
    ),
    (
        "relu_network",
        relu_network,
        [(100, 100), (500, 100), (10**4, 100), (10**6, 100), (100, 10**6), (10**6, 10**6)],
        2,
    ),
    (
        "self_attention",
        self_attention,
        [(100, 100), (500, 100), (10**4, 100), (10**6, 100), (100, 1000), (100, 4000)],
        2,
    ),
    (
        "two_layer_linear, D = K = 10",
        two_layer_linear,
        [(25, 100), (100, 100), (1000, 100), (10**4, 100), (10**5, 100), (100, 10**5), (10**5, 10**5)],
        20,
    ),
)


def main() -> None:
    """Print one table: seconds by width and number of samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, help="only the first so many points of each closed form")
    options = parser.parse_args()
    torch.manual_seed(0)
    linear_network(2, 2)  # the first use of forward mode compiles
    print(
        f"one thread: {torch.get_num_threads() == 1}; best of {REPEATS}; the dense route once, up to {DENSE} parameters"
    )
    print(f"{'closed form':<30}{'width':>9}{'samples':>9}{'parameters':>12}{'formula':>12}{'dense':>12}")
    for name, case, points, per_unit in CASES:
        for width, samples in points[: options.points]:
            formula, dense = case(width, samples)
            shown = "-" if dense is None else f"{dense:.3g} s"
            size = per_unit * width + (case is self_attention)  # w_v is one more
            print(f"{name:<30}{width:>9}{samples:>9}{size:>12}{formula * 1e3:>9.2f} ms{shown:>12}")


if __name__ == "__main__":
    main()
