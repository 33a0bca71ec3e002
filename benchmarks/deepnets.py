"""The time and memory of the figures of trained networks, one piece of work after the other on an idle machine.

python -m benchmarks.deepnets --gpu --data-dir FOLDER     VGG11 and the eight-layer MLP on CIFAR-10, as in the papers
python -m benchmarks.deepnets                             the same at a size for two cores, on digits

The networks are trained briefly: times hardly depend on how long. What is done is written after every piece.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from curvlinops import HessianLinearOperator
from curvlinops.papyan2020traces.spectrum import lanczos_approximate_spectrum
from torch import nn

from ritz.papers.papyan2020 import gradients, layer_blocks, layers
from ritz.papers.papyan2020.gradients import Exact, Network
from ritz.papers.papyan2020.layer_blocks import Blocks
from ritz.papers.papyan2020.layers import Layers
from ritz.papers.papyan2020.networks import Place, epochs, trained_network, training, untrained
from ritz.papers.papyan2020.setting import NUM_CLASSES, Piece, Training, examples
from ritz.papers.papyan2020.spectra import Measurement, Method, spectrum
from ritz.spectrum import Spectrum

from .timing import clear_memory, commit, device_of, machine, memory_peak, report, timed

VGG11 = Piece("vgg11", "cifar10", training=Training(num_epochs=20, rates=(0.03,), num_errors=2))
MLP = replace(VGG11, network="mlp")
SMALL = Training(num_epochs=20, batch_size=32, rates=(0.05,), num_errors=2)
SMALL_NETWORKS = (
    Piece("resnet18", "digits", 20, training=SMALL, narrow=16),
    Piece("mlp", "digits", 20, training=SMALL, width=64),
)
METHOD = Method(num_pairs=NUM_CLASSES, num_examples=5000)
SMALL_METHOD = replace(METHOD, num_steps=32, num_examples=100)
GRAM, SMALL_GRAM, BLOCKS, SMALL_BLOCKS = 1360, 60, 10_000, 100  # examples
EPOCHS = 4  # of which one is the mean
SHARED_STEPS = 16  # of 128 in a density: what both libraries do with the same products, from one vector


def rows(small: bool, place: Place) -> Iterator[dict[str, Any]]:
    """All pieces of work, each with its seconds and its peak of memory."""
    (network, mlp), method = (SMALL_NETWORKS, SMALL_METHOD) if small else ((VGG11, MLP), METHOD)
    row = partial(_row, place=place)
    for piece in (network, mlp):
        yield row(f"training of {piece.title}, {piece.num_epochs} epochs", training, piece)
        yield {"work": f"an epoch of it, {NUM_CLASSES * piece.per_class:,} examples", "seconds": _epoch(piece, place)}
    densities = []
    for name, precision in (("TF32 tangents", "high"), ("float32", "highest")):
        task = Measurement(network, network.num_epochs, "train", "H", method=replace(method, precision=precision))
        densities.append(row(f"density of H, {NUM_CLASSES} certified outliers, {name}", spectrum, task))
        yield densities[-1]
    yield {"work": "distance between both densities", "relative": _distance(*(one["result"] for one in densities))}
    count, sampled = (SMALL_GRAM, SMALL_BLOCKS) if small else (GRAM, BLOCKS)
    gram = Exact(Network(network, network.num_epochs, count))
    yield row(f"exact spectrum of G and all knockouts, {count} examples", gradients.exact, gram)
    yield row("features, errors and weights of the MLP", layers.structure, Layers(mlp))
    yield row("G, KFAC and CFAC of its layers", layer_blocks.blocks, Blocks(mlp, sampled))
    few = replace(method, num_steps=SHARED_STEPS, precision="highest")
    plain = Measurement(network, network.num_epochs, "train", "H", 0, few)
    yield row(f"{SHARED_STEPS} Lanczos steps of H, float32", spectrum, plain)
    yield row(f"{SHARED_STEPS} Lanczos steps of H, float32, by curvlinops", partial(_peer, method=few), network)


def _row(work: str, task: Callable[..., Any], config: Any, *, place: Place) -> dict[str, Any]:
    clear_memory(place.device)
    result, seconds = timed(lambda: task(config, place=place), place.device)
    return {"work": work, "seconds": seconds, "peak_gb": memory_peak(place.device) / 1e9, "result": result}


def _epoch(piece: Piece, place: Place) -> float:
    """The seconds of an epoch after the first, in which the step is captured; the data are on the device."""
    model, train_set, _ = untrained(piece, place)
    pauses = epochs(piece, model, train_set, piece.training.rates[0])
    next(pauses)
    return timed(lambda: list(islice(pauses, EPOCHS)), place.device)[1] / EPOCHS


def _distance(first: dict[str, Any], second: dict[str, Any]) -> float:
    """W₁ over the range of the second."""
    one, other = (Spectrum(r["nodes"], r["weights"], r["size"], r["resolution"]) for r in (first, second))
    low, high = other.range
    return one.wasserstein(other) / (high - low)


def _peer(piece: Piece, *, method: Method, place: Place) -> Any:
    """curvlinops' Lanczos recursion on the same Hessian from one vector; it has no search for outliers of its own."""
    model = trained_network(piece, None, place)
    data = examples(piece, "train", place.data_dir, place.device, num_examples=method.num_examples)
    batches = list(zip(data.x.split(1000), data.y.split(1000), strict=True))
    parameters = list(model.parameters())
    H = HessianLinearOperator(model, nn.CrossEntropyLoss(), parameters, batches, check_deterministic=False)
    return lanczos_approximate_spectrum(H, method.num_steps, num_repeats=1)


def main() -> None:
    """Measure, print and, with --out, write after every piece."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets")
    parser.add_argument("--out", type=Path, help="JSON to write, besides printing")
    options = parser.parse_args()
    device, facts = device_of(gpu=options.gpu), list[dict[str, Any]]()
    with TemporaryDirectory() as shelf:
        for row in rows(not options.gpu, Place(device, options.data_dir, Path(shelf))):
            facts.append({key: value for key, value in row.items() if key != "result"})
            report({**machine(device), "commit": commit(), "rows": facts}, options.out)


if __name__ == "__main__":
    main()
