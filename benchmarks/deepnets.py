"""The time and memory of the figures of trained networks, one piece of work after the other on an idle machine.

python -m benchmarks.deepnets --gpu --data-dir FOLDER     VGG11 and the eight-layer MLP on CIFAR-10, as in the papers
python -m benchmarks.deepnets                             the same at a size for two cores, on digits
python -m benchmarks.deepnets --gpu --only density        pieces of work with these words; others stay in the file

The networks are trained briefly: times hardly depend on how long. What is done is written after every piece.
"""

from __future__ import annotations

import argparse
import json
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

from ritz.papers.papyan2020 import gradients, layer_blocks, layer_structure
from ritz.papers.papyan2020.gradients import Exact, Network
from ritz.papers.papyan2020.layer_blocks import Blocks
from ritz.papers.papyan2020.layer_structure import Layers
from ritz.papers.papyan2020.networks import Place, epochs, trained_network, training, untrained
from ritz.papers.papyan2020.setting import NUM_CLASSES, Piece, Training, examples
from ritz.papers.papyan2020.spectra import Measurement, Method, spectrum
from ritz.spectrum import Spectrum

from .timing import clear_memory, commit, device_of, machine, memory_peak, report, timed

VGG11 = Piece("vgg11", "cifar10", training=Training(num_epochs=20, rates=(0.03,), num_errors=2))
MLP = replace(VGG11, network="mlp")
MEASURED = replace(VGG11, per_class=500, training=replace(VGG11.training, num_epochs=60))  # on the images of a density
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


def rows(small: bool, place: Place, only: str) -> Iterator[dict[str, Any]]:
    """The pieces of work that have these words in their names, each with its seconds and its peak of memory."""
    results = dict[str, Any]()
    for work, task in works(small, place, results).items():
        if only in work:
            yield {"work": work, **task()}


def works(small: bool, place: Place, results: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """All pieces of work by their names; what is needed again goes to the results."""
    measured, mlp = SMALL_NETWORKS if small else (MEASURED, MLP)
    trained, method = (measured if small else VGG11), SMALL_METHOD if small else METHOD
    count, sampled = (SMALL_GRAM, SMALL_BLOCKS) if small else (GRAM, BLOCKS)

    def row(task: Callable[..., Any], config: Any) -> Callable[[], dict[str, Any]]:
        return lambda: _row(task, config, place, results)

    def hessian(outliers: int = NUM_CLASSES, **changes: Any) -> Measurement:
        return Measurement(measured, measured.num_epochs, "train", "H", outliers, replace(method, **changes))

    rough, exact = hessian(precision="high"), hessian(precision="highest")
    few = hessian(0, num_steps=SHARED_STEPS, precision="highest")
    return {
        **{
            name: work
            for piece in (trained, mlp)
            for name, work in {
                f"training of {piece.title}, {piece.num_epochs} epochs": row(training, piece),
                f"an epoch of {piece.title}": partial(_epoch, piece, place),
            }.items()
        },
        f"density of H, {NUM_CLASSES} certified outliers, TF32 tangents": row(spectrum, rough),
        f"density of H, {NUM_CLASSES} certified outliers, float32": row(spectrum, exact),
        "distance between both densities": lambda: _distance(results, place, rough, exact),
        f"exact spectrum of G and all knockouts, {count} examples": row(
            gradients.exact, Exact(Network(measured, measured.num_epochs, count))
        ),
        "features, errors and weights of the MLP": row(layer_structure.structure, Layers(mlp)),
        "G, KFAC and CFAC of its layers": row(layer_blocks.blocks, Blocks(mlp, sampled)),
        f"{SHARED_STEPS} Lanczos steps of H, float32": row(spectrum, few),
        f"{SHARED_STEPS} Lanczos steps of H, float32, by curvlinops": row(partial(_peer, method=few.method), measured),
    }


def _row(task: Callable[..., Any], config: Any, place: Place, results: dict[str, Any]) -> dict[str, Any]:
    if isinstance(config, Measurement):  # its network is trained before
        trained_network(config.piece, None, place)
    clear_memory(place.device)
    result, seconds = timed(lambda: task(config, place=place), place.device)
    results[str(config)] = result
    products = {name: result[name] for name in ("products", "rough_products") if name in (result or ())}
    return {"seconds": seconds, "peak_gb": memory_peak(place.device) / 1e9, **products}


def _epoch(piece: Piece, place: Place) -> dict[str, Any]:
    """The seconds of an epoch after the first, in which the step is captured; the data are on the device."""
    model, train_set, _ = untrained(piece, place)
    pauses = epochs(piece, model, train_set, piece.training.rates[0])
    next(pauses)
    return {"seconds": timed(lambda: list(islice(pauses, EPOCHS)), place.device)[1] / EPOCHS}


def _distance(results: dict[str, Any], place: Place, *both: Measurement) -> dict[str, Any]:
    """W₁ over the range of the second; a density that was left out is computed."""
    found = (results.get(str(config)) or spectrum(config, place=place) for config in both)
    one, other = (Spectrum(r["nodes"], r["weights"], r["size"], r["resolution"]) for r in found)
    low, high = other.range
    return {"relative": one.wasserstein(other) / (high - low)}


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
    parser.add_argument("--only", default="", help="words in the names of the pieces of work")
    options = parser.parse_args()
    device = device_of(gpu=options.gpu)
    earlier = json.loads(options.out.read_text())["rows"] if options.out and options.out.exists() else []
    facts = {row["work"]: row for row in earlier}
    with TemporaryDirectory() as shelf:
        for row in rows(not options.gpu, Place(device, options.data_dir, Path(shelf)), options.only):
            facts[row["work"]] = {**row, "commit": commit()}
            report({**machine(device), "rows": list(facts.values())}, options.out)


if __name__ == "__main__":
    main()
