"""The blocks G^l of every layer of one trained MLP: spectra beside KFAC and CFAC, and means as products of means."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...classes.layers.passes import class_layers, class_passes
from ...factored import cfac, kfac
from ...factored.kronecker import Layer
from ...layers.linear import columns
from ...operators import Operator
from ...risk import Risk
from ...risk.class_terms import as_outputs
from ...solvers import eigenpairs, spectral_density
from . import gradients
from .layer_structure import Layers, weights_risk
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
    risk, identity = weights_risk(Layers(measurement.piece, measurement.num_examples), place)
    factors = {"KFAC": kfac(risk).layers, "CFAC": cfac(risk).layers}
    result: dict[str, Any] = {}
    for index, name in enumerate(layer_names(risk), 1):
        own = rows(risk, name)
        result |= {f"{index}/products/{key}": value for key, value in mean_products(own).items()}
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


@dataclass(frozen=True, eq=False)
class Rows:
    """What one layer sees of every example: the features that enter it, and its errors for each would-be label."""

    name: str
    features: Tensor  # (N, d)
    errors: Tensor  # (C, N, o)
    weights: Tensor  # w_{i,c'}, (N, C)
    labels: Tensor

    @property
    def block(self) -> Operator:
        """G^l = Σ w (δδᵀ) ⊗ (φφᵀ) as an operator, without another pass through the network. Eq. (7.4)."""
        phi, delta, w = self.features, self.errors, self.weights.T
        (_, o), d = delta.shape[1:], phi.shape[1]

        def matmat(V: Tensor) -> Tensor:
            total = torch.empty_like(V)
            for k in range(V.shape[1]):
                inner = phi @ V[:, k].view(o, d).T  # (N, o)
                along = torch.einsum("cno,no->cn", delta, inner) * w
                total[:, k] = (torch.einsum("cn,cno->no", along, delta).T @ phi).flatten()
            return total

        return Operator(matmat, o * d, phi.dtype, phi.device)


def rows(risk: Risk, layer: str) -> Rows:
    """The rows of one layer, in the precision of the risk."""
    layers, linear, count = class_layers(risk.restricted_to(f"{layer}.weight"), "Rows of a layer")
    features, errors, weights, labels = [], [], [], []
    for _, forward, own in class_passes(layers, linear, "Rows"):
        cotangents = as_outputs(risk, torch.stack([own.errors(column) for column in range(count)]), forward.z)
        own_errors = [linear[0].errors(forward, e)[:, :, 0] for _, e in columns(risk, forward, cotangents)]
        features.append(linear[0].features(forward)[:, 0].to(risk.dtype))
        errors.append(torch.cat(own_errors).to(risk.dtype))
        weights.append(own.weights.to(risk.dtype))
        labels.append(own.labels)
    return Rows(layer, torch.cat(features), torch.cat(errors, 1), torch.cat(weights), torch.cat(labels))


def layer_names(risk: Risk) -> list[str]:
    """The linear layers of the risk, first to last."""
    return [name.removesuffix(".weight") for name in risk.shapes]


def mean_products(own: Rows) -> dict[str, float]:
    """How far g_c is from δ_c φ_cᵀ and g_cc' from δ_cc' φ_cᵀ: √(Σ w ‖difference‖² / Σ w ‖g‖²). Sec. 7.12.

    φ_c is the plain mean, as printed; with the weights of g_c it is the "weighted" one.
    """
    sums = {name: torch.zeros(2, dtype=torch.float64) for name in ("class", "class, weighted", "cross")}
    for members, weights, phi, delta in _by_class(own):
        w = weights.sum(0)
        others = [k for k in range(C) if k != members and float(w[k]) > 0]
        if not others:
            continue
        mixed = torch.einsum("nk,kno->no", weights[:, others], delta[others]) / w[others].sum()
        plain, g = phi.mean(0), mixed.T @ phi
        weighted = (weights[:, others].sum(1) / w[others].sum()) @ phi
        _add(sums["class"], w[others].sum(), g, torch.outer(mixed.sum(0), plain))
        _add(sums["class, weighted"], w[others].sum(), g, torch.outer(mixed.sum(0), weighted))
        for k in others:
            one = weights[:, k, None] * delta[k] / w[k]
            _add(sums["cross"], w[k], one.T @ phi, torch.outer(one.sum(0), plain))
    return {name: float((off / whole).sqrt()) for name, (off, whole) in sums.items()}


def _by_class(own: Rows) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    for label in own.labels.unique().tolist():
        members = own.labels == label
        yield label, own.weights[members].double(), own.features[members].double(), own.errors[:, members].double()


def _add(total: Tensor, weight: Tensor, g: Tensor, guess: Tensor) -> None:
    total += torch.stack([weight * (g - guess).square().sum(), weight * g.square().sum()]).cpu()
