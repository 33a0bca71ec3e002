"""The spectra of G^l, KFAC and CFAC of every layer of one trained MLP, with how well their outliers align."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...factored import cfac, kfac
from ...factored.kronecker import Layer
from ...operators import Operator
from ...record import Record
from ...solvers import eigenpairs, spectral_density
from ...spectrum import Spectrum
from . import gradients, layers
from .networks import Place
from .setting import NUM_CLASSES, Piece

C = NUM_CLASSES
LINES = C * (C - 1)  # outliers and mini-bulk
KINDS = ("G", "KFAC", "CFAC")
_TOLERANCE = 1e-5  # relative to the largest: the mini-bulk, which is compared too, lies decades below it
_MAX_PRODUCTS = 1200


@dataclass(frozen=True)
class Blocks:
    """The blocks of all layers of a trained network."""

    piece: Piece
    num_examples: int | None = 10_000
    num_steps: int = 128
    num_probes: int = 2


def blocks(measurement: Blocks, *, place: Place) -> dict[str, Any]:
    """The largest C(C - 1) eigenvalues of each matrix, the density of the rest, and g_c against h_c ⊗ δ_c."""
    start = time.perf_counter()
    risk, identity = layers.weights_risk(layers.Layers(measurement.piece, measurement.num_examples), place)
    factors = {"KFAC": kfac(risk).layers, "CFAC": cfac(risk).layers}
    result: dict[str, Any] = {}
    for index, name in enumerate(layers.layer_names(risk), 1):
        own = layers.rows(risk, name)
        result |= {f"{index}/products/{key}": value for key, value in layers.mean_products(own).items()}
        matrices: dict[str, Operator] = {"G": own.block, "CFAC": factors["CFAC"][name].operator}
        for kind, A in matrices.items():
            result |= {f"{index}/{kind}/{key}": value for key, value in _spectrum(A, measurement).items()}
        result |= {f"{index}/KFAC/{key}": value for key, value in _product_spectrum(factors["KFAC"][name]).items()}
    return result | {"identity": identity, "seconds_of_blocks": time.perf_counter() - start}


def _spectrum(A: Operator, measurement: Blocks) -> dict[str, Any]:
    """The largest eigenvalues with certificates, and the quadrature of the rest in bins."""
    generator, count = torch.Generator().manual_seed(0), min(LINES, A.size // 2)
    pairs = eigenpairs(
        A,
        count,
        tolerance=_TOLERANCE,
        max_products=_MAX_PRODUCTS,
        block_size=min(C, count),
        generator=generator,
    )
    spectrum = spectral_density(
        A,
        num_steps=measurement.num_steps,
        num_probes=measurement.num_probes,
        outliers=pairs,
        generator=generator,
    )
    counts = spectrum.weights.flatten() * A.size / spectrum.num_probes
    nodes, counts = gradients.binned(spectrum.nodes.flatten(), counts)
    values = pairs.values.double().cpu().clamp(min=0)
    return {"top": values, "nodes": nodes, "counts": counts, "size": A.size, "resolution": spectrum.resolution}


def _product_spectrum(layer: Layer) -> dict[str, Any]:
    """The exact spectrum of KFAC: all products of the eigenvalues of its factors."""
    spectrum = layer.spectrum()
    values: Tensor = spectrum.nodes[0].sort(descending=True).values
    nodes, counts = gradients.gathered(values)
    top = values[: min(LINES, len(values) // 2)]
    return {"top": top, "nodes": nodes, "counts": counts, "size": len(values), "resolution": None}


def spectrum_of(record: Record, prefix: str) -> Spectrum:
    """The spectrum of a matrix of a layer, from the arrays under a prefix."""
    nodes, counts = (torch.as_tensor(np.asarray(record.arrays[f"{prefix}/{part}"])) for part in ("nodes", "counts"))
    size, resolution = (record.scalars[f"{prefix}/{part}"] for part in ("size", "resolution"))
    return Spectrum(nodes[None], (counts / counts.sum())[None], int(size), resolution)


def distance(record: Record, prefix: str, kind: str, first: int, last: int) -> float:
    """The mean |ln| of the ratio of eigenvalues of KFAC or CFAC and of G^l, from one rank to another."""
    a, b = (np.asarray(record.arrays[f"{prefix}/{name}/top"])[first:last] for name in (kind, "G"))
    count = min(len(a), len(b))
    floor = 1e-12 * max(a.max(initial=0.0), b.max(initial=0.0), 1e-300)
    return float(np.abs(np.log(np.maximum(a[:count], floor) / np.maximum(b[:count], floor))).mean())
