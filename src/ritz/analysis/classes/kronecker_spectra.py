"""The spectrum of every layer's Gauss-Newton block against those of its Kronecker factorisations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from ... import progress
from ...factored.gram import gram_spectrum
from ...factored.kronecker import Kronecker, cfac, kfac
from ...layers.linear import LinearLayer
from ...operators import gauss_newton
from ...risk import Classification, Risk
from ...solvers import spectral_density
from ...solvers.stages import Stages
from ...spectrum import Spectrum
from .layer_choice import names
from .results import Results, kept

STEPS, PROBES = 64, 4  # of quadratures
PRODUCTS = STEPS * PROBES + 100  # of one quadrature with its outliers
WORK = 4e12  # floating-point operations of one quadrature: some minutes on one core
BASIS = 100  # vectors that the search for outliers keeps
ATOMS, BINS = 1000, 1000  # of a spectrum that a record keeps
KINDS = ("G", "KFAC", "CFAC")


def measure(
    results: Results,
    risk: Risk,
    layers: list[LinearLayer],
    *,
    exact_rows: int,
    generator: torch.Generator,
    stages: Stages,
) -> None:
    """The spectra of G^l, KFAC and CFAC of every layer, each as a stage, and the distances between them."""
    linear = _decomposable(results, layers, exact_rows)
    by_class = _affordable(results, linear, risk)
    factorisations = {}
    if linear:
        factorisations["KFAC"] = results.attempt("KFAC", lambda: kfac(risk.restricted_to(names(linear))))
    if by_class:
        factorisations["CFAC"] = results.attempt("CFAC", lambda: cfac(risk.restricted_to(names(by_class))))
    compared = [layer for layer in linear if any(factorisations.values())]
    with progress.bar("Spectra of layers", total=len(compared)) as bar:
        for number, layer in enumerate(compared):
            bar.advance(0, layer=layer.name)
            files = stages.under(f"layer-{number}-G")
            block = partial(_block, risk, layer, exact_rows, generator, files)
            measure = partial(_measure_layer, risk, layer, factorisations, block, generator)
            results.join(kept(stages, f"layer-{number}", measure, generator))
            files.discard()
            bar.advance()


def _measure_layer(
    risk: Risk,
    layer: LinearLayer,
    factorisations: dict[str, Kronecker | None],
    block: Callable[[], Spectrum],
    generator: torch.Generator,
    results: Results,
) -> None:
    spectra = {"G": block()}
    spectra |= _factored(layer.name, factorisations, _options(risk, spectra["G"].size, generator))
    _note(results, layer.name, spectra)


def _decomposable(results: Results, layers: list[LinearLayer], exact_rows: int) -> list[LinearLayer]:
    plain = results.plain("KFAC and CFAC", layers)
    return results.fitting("KFAC and CFAC", plain, lambda layer: max(layer.inputs + 1, layer.outputs), exact_rows)


def _affordable(results: Results, layers: list[LinearLayer], risk: Risk) -> list[LinearLayer]:
    """The layers for which CFAC can be multiplied as often as a quadrature requires."""
    most = _largest_class(risk)
    dear = [layer for layer in layers if _work(layer, most) * risk.num_classes * PRODUCTS > WORK]
    if dear:
        left_out = ", ".join(layer.name for layer in dear)
        results.notes.append(f"CFAC: left out in {left_out}, where its spectrum would take minutes.")
    return [layer for layer in layers if layer not in dear]


def _largest_class(risk: Risk) -> int:
    """How many terms the largest class has, the same on all ranks."""
    labels = risk.labels[~cast(Classification, risk.loss).ignored(risk.labels)]
    return int(risk.sum_over_ranks(labels.bincount(minlength=risk.num_classes).double()).max())


def _work(layer: LinearLayer, examples: int) -> float:
    """Operations of Δ_c M Φ_c, with Φ_c of the rank that this many examples give it."""
    o, d = layer.outputs, layer.inputs + 1
    rank = min(d, layer.positions * examples)
    return 2.0 * o * min(d * (o + d), rank * (o + 2 * d))


def _block(risk: Risk, layer: LinearLayer, exact_rows: int, generator: torch.Generator, stages: Stages) -> Spectrum:
    """The spectrum of G^l: from its Gram matrix, else from its own; a quadrature where both are too large."""
    block = risk.restricted_to(names([layer]))
    rows = block.num_targets * (block.num_classes - 1)
    if rows <= exact_rows and block.group is None and block.separable:
        return gram_spectrum(block, dtype=block.dtype, checkpoint=stages.folder)
    G = gauss_newton(block)
    if block.size <= exact_rows:
        return Spectrum.of_matrix(G.dense())
    return spectral_density(G, checkpoint=stages.file("density"), **_options(block, block.size, generator))


def _options(risk: Risk, size: int, generator: torch.Generator) -> dict[str, Any]:
    """Options of a quadrature: the C largest eigenvalues are found separately, if there is room for the search."""
    outliers = risk.num_classes if 8.0 * BASIS * size < risk.common_memory() / 4 else 0
    return {"num_steps": STEPS, "num_probes": PROBES, "outliers": min(outliers, size // 4), "generator": generator}


def _factored(name: str, factorisations: dict[str, Kronecker | None], options: dict[str, Any]) -> dict[str, Spectrum]:
    return {
        kind: factorisation.layers[name].spectrum(**options)
        for kind, factorisation in factorisations.items()
        if factorisation is not None and name in factorisation.layers
    }


def _note(results: Results, name: str, spectra: dict[str, Spectrum]) -> None:
    exact = spectra["G"]
    mean, others = exact.moment(1), {kind: spectrum for kind, spectrum in spectra.items() if kind != "G"}
    numbers = {
        "num_parameters": exact.size,
        "resolutions": {kind: spectrum.resolution for kind, spectrum in spectra.items()},
        "largest": {kind: spectrum.range[1] for kind, spectrum in spectra.items()},
        "distances": {kind: s.wasserstein(exact) / mean for kind, s in others.items() if mean > 0},
    }
    curves = {}
    for kind, spectrum in spectra.items():
        curves[f"{kind}/nodes"], curves[f"{kind}/weights"] = coarse_atoms(spectrum)
    results.add("kronecker", name, curves, **numbers)


def coarse_atoms(spectrum: Spectrum) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a spectrum, reduced for a file: the 1,000 largest, and the others in 1,000 bins of log |λ|.

    A bin becomes an atom at the mean of its eigenvalues, so that mass and trace are preserved.
    """
    if spectrum.nodes.shape[1] <= ATOMS + BINS:
        return spectrum.nodes, spectrum.weights
    order = spectrum.nodes[0].abs().argsort(descending=True)  # exact spectra alone are that long, and have one row
    nodes, weights = spectrum.nodes[0, order], spectrum.weights[0, order]
    rest, mass = nodes[ATOMS:], weights[ATOMS:]
    u = (rest.abs() + spectrum.floor).log()
    place = ((u - u.min()) / (u.max() - u.min()).clamp(min=1e-300) * (BINS - 1)).round().long()
    masses, sums = (torch.zeros(BINS).double().index_add_(0, place, x) for x in (mass, mass * rest))
    used = masses > 0
    joined = torch.cat([nodes[:ATOMS], sums[used] / masses[used]]), torch.cat([weights[:ATOMS], masses[used]])
    return joined[0][None], joined[1][None]
