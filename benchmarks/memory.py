"""The memory of products, eigenpairs and densities of large GPT-2s on a GPU, in vectors of n numbers, and their times.

    python -m benchmarks.memory [--model 1.5b] [--work product] [--out FILE]

Peaks are all that is allocated, the user's model included, as torch.cuda counts it, divided by 4n bytes. The plain
double backward is what PyTorch alone does for one product, rebuilt each time.
"""

from __future__ import annotations

import statistics
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import ritz

from . import resumable
from .networks import gpt2, tokens
from .problems import TokenCrossEntropy
from .timing import clear_memory, machine, memory_now, memory_peak, seconds, timed

TOKENS = {"1.5b": (2, 512), "774m": (1, 1024), "124m": (8, 512)}  # sequences, their length
LEAKS, REPETITIONS = 20, 5


class Bench:
    """One model with its data; every piece of work is measured alone, from the user's model to the result."""

    def __init__(self, model: str, device: torch.device, *, smoke: bool) -> None:
        torch.manual_seed(0)
        self.device, self.model = device, gpt2(model, device, smoke=smoke)
        self.batch = tokens(*TOKENS[model], device, smoke=smoke)
        self.size = sum(p.numel() for p in self.model.parameters())
        self.plain_gradient()  # loads the libraries, as training would have

    def vector(self) -> Tensor:
        """Made where it is needed: peaks of other work do not hold it."""
        generator = torch.Generator(self.device).manual_seed(2)
        return torch.randn(self.size, device=self.device, generator=generator)

    def vectors(self, allocated: float) -> float:
        return allocated / (4 * self.size)

    def peak(self, work: Callable[[], Any]) -> dict[str, float]:
        """Seconds and peak of one run."""
        clear_memory(self.device)
        taken = seconds(work, self.device)
        return {"seconds": taken, "peak_vectors": self.vectors(memory_peak(self.device))}

    def plain_loss(self) -> Tensor:
        return TokenCrossEntropy()(self.model(self.batch[0]), self.batch[1])

    def plain_gradient(self) -> None:
        torch.autograd.grad(self.plain_loss(), list(self.model.parameters()))

    def plain_product(self, v: Tensor) -> tuple[Tensor, ...]:
        """H v by PyTorch alone, parameter by parameter."""
        parameters = list(self.model.parameters())
        pieces = v.split([p.numel() for p in parameters])
        shaped = [piece.view_as(p) for piece, p in zip(pieces, parameters, strict=True)]
        with sdpa_kernel(SDPBackend.MATH):
            gradients = torch.autograd.grad(self.plain_loss(), parameters, create_graph=True)
            return torch.autograd.grad(gradients, parameters, shaped)

    def double_backward(self) -> dict[str, Any]:
        """H v by PyTorch alone, beside a gradient."""
        v = self.vector()
        self.plain_product(v)
        facts: dict[str, Any] = {"gradient": self.peak(self.plain_gradient), **self.peak(lambda: self.plain_product(v))}
        times = [seconds(lambda: self.plain_product(v), self.device) for _ in range(REPETITIONS)]
        return facts | {"seconds": statistics.median(times)}

    def hessian(self) -> ritz.Operator:
        return ritz.hessian(ritz.Risk(self.model, ritz.CrossEntropy(), [self.batch]))

    def product(self) -> dict[str, Any]:
        """Set-up with the first product, then later ones; how far they are from the plain double backward."""
        v = self.vector()
        clear_memory(self.device)
        H, building = timed(self.hessian, self.device)
        built = self.vectors(memory_now(self.device))
        first = self.peak(lambda: H @ v)
        kept = self.vectors(memory_now(self.device))
        later = self.peak(lambda: H @ v)
        times = [seconds(lambda: H @ v, self.device) for _ in range(REPETITIONS)]
        later["seconds"] = statistics.median(times)
        return {
            "risk_seconds": building, "risk_vectors": built, "first_product": first, "held_after_first_vectors": kept,
            "later_product": later, "set_up_products": (building + first["seconds"]) / later["seconds"],
            "info": _info(H), "error": self._error(v, H @ v),
        }  # fmt: skip

    def _error(self, v: Tensor, ours: Tensor) -> float:
        exact = self.plain_product(v)
        parts = ours.split([piece.numel() for piece in exact])
        differences = [(a.flatten() - b).norm() for a, b in zip(exact, parts, strict=True)]
        return float(torch.stack(differences).norm() / ours.norm())

    def eigenpairs(self) -> dict[str, Any]:
        """The three largest eigenpairs to 1e-2, from the model on."""
        pairs: list[ritz.Eigenpairs] = []
        facts: dict[str, Any] = self.peak(lambda: pairs.append(ritz.eigenpairs(self.hessian(), 3, tolerance=1e-2)))
        facts |= {"values": pairs[0].values.tolist(), "residuals": pairs[0].residuals.tolist()}
        return facts | {"converged": bool(pairs[0].converged.all()), "products": pairs[0].num_products}

    def density(self) -> dict[str, Any]:
        """A density of one probe and 32 steps, from the model on."""
        spectra: list[ritz.Spectrum] = []
        options = {"num_probes": 1, "num_steps": 32}
        facts: dict[str, Any] = self.peak(lambda: spectra.append(ritz.spectral_density(self.hessian(), **options)))
        return facts | {"lowest": float(spectra[0].nodes.min()), "highest": float(spectra[0].nodes.max())}

    def leak(self) -> dict[str, Any]:
        """What stays allocated after operators were built, used and dropped, one after the other."""
        v, held = self.vector(), []
        for _ in range(LEAKS):
            H = self.hessian()
            H @ v
            del H
            clear_memory(self.device)
            held.append(self.vectors(memory_now(self.device)))
        return {"operators": LEAKS, "held_vectors": held, "growth_vectors": held[-1] - held[0]}

    def curvlinops(self) -> dict[str, Any]:
        """The peak of a product by curvlinops."""
        from curvlinops import HessianLinearOperator

        parameters, loss, v = list(self.model.parameters()), TokenCrossEntropy(), self.vector()
        with sdpa_kernel(SDPBackend.MATH):
            H = HessianLinearOperator(self.model, loss, parameters, [self.batch], check_deterministic=False)
            H @ v
            facts: dict[str, Any] = self.peak(lambda: H @ v)
            times = [seconds(lambda: H @ v, self.device) for _ in range(REPETITIONS)]
        return facts | {"seconds": statistics.median(times)}


WORK: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "double-backward": Bench.double_backward,
    "product": Bench.product,
    "eigenpairs": Bench.eigenpairs,
    "density": Bench.density,
    "curvlinops": Bench.curvlinops,
    "leak": Bench.leak,
}
DEFAULTS = [(m, w) for m in ("1.5b", "774m") for w in WORK if w != "leak"] + [("124m", "leak")]


def _info(H: ritz.Operator) -> dict[str, Any]:
    info = H.info
    return {} if info is None else dict(vars(info))


def main() -> None:
    """Measure, print and write."""
    parser = resumable.parser(__doc__)
    parser.add_argument("--model", nargs="*", choices=list(TOKENS), help="by default 1.5b and 774m, leaks with 124m")
    parser.add_argument("--work", nargs="*", choices=list(WORK), help="what to measure (default: everything)")
    parser.add_argument("--smoke", action="store_true", help="a tiny network on the CPU: does it run?")
    options = parser.parse_args()
    device = torch.device("cpu" if options.smoke else "cuda")
    torch.set_float32_matmul_precision("highest")
    results = resumable.Results(options.out, machine(device))
    plan = [(m, w) for m in options.model for w in options.work or WORK] if options.model else DEFAULTS
    plan = [(m, w) for m, w in plan if w in (options.work or WORK) and not results.has(m, w)]
    for model in dict.fromkeys(model for model, _ in plan):
        clear_memory(device)
        bench = Bench(model, device, smoke=options.smoke)
        for work in [w for m, w in plan if m == model]:
            size = "tiny" if options.smoke else "{} × {}".format(*TOKENS[model])
            row = {"model": model, "tokens": size, "n": bench.size, "work": work}
            results.add({**row, **_attempt(WORK[work], bench), "commit": options.commit})
        del bench


def _attempt(work: Callable[[Bench], dict[str, Any]], bench: Bench) -> dict[str, Any]:
    try:
        return work(bench)
    except Exception as error:
        traceback.print_exc()
        peak = bench.vectors(memory_peak(bench.device))
        return {"failure": f"{type(error).__name__}: {str(error).splitlines()[0]}", "peak_vectors": peak}


if __name__ == "__main__":
    main()
