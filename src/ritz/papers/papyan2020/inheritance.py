"""Figure 2, a schematic in the paper, measured: class means of features and errors make those of gradients, G and H.

ritz run papyan2020.fig2 --preset paper --device cuda
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from torch import Tensor

from ... import plot
from ...classes import ClassDecomposition, backpropagated_errors, class_decomposition, features
from ...errors import OutOfMemoryError
from ...operators import gauss_newton, hessian
from ...record import Picture, Record
from ...risk import Risk
from ...solvers import eigenpairs
from ..frame.figure import Context, Figure
from ..frame.pictures import write_title
from ..frame.statements import at_least, at_most, each
from .networks import Place, sweep_on_shelf
from .paper import says
from .pictures import network_in_words
from .setting import NUM_CLASSES, SMALL, TINY, Piece, check_ten_classes
from .spectra import risk_of

C = NUM_CLASSES
MLP = Piece("mlp")
_FEW = 1e-3  # tolerance of the eigenvectors, relative


@dataclass(frozen=True)
class Config:
    """An MLP at the end of its training, and the examples over which its means are taken."""

    network: Piece = MLP
    num_examples: int | None = 10_000  # open: of 50,000


def run(config: Config, context: Context) -> dict[str, Any]:
    """One record: alignments of the means by layer, and of the eigenvectors of G and H."""
    (record,) = sweep_on_shelf(alignments, [config], context)
    return {**record.arrays, **record.scalars}


def alignments(config: Config, *, place: Place) -> dict[str, Any]:
    """Cosines of g_c with h_c ⊗ δ_c by class and layer, and overlaps of the largest eigenvectors of G and H."""
    check_ten_classes(config.network)
    risk, identity = risk_of(config.network, None, "train", place, num_examples=config.num_examples)
    classes = class_decomposition(risk)
    if classes.class_means is None or classes.cross_means is None:
        raise OutOfMemoryError(
            f"The means of the gradients are {C**2} vectors of {risk.size:,} numbers.",
            "They are compared with products of other means, and do not fit into memory.",
            "Take a machine with more memory, or a narrower network: --set network.width=256",
        )
    by_class, by_pair, whole, layers = _cosines(risk, classes)
    G, H = (eigenpairs(A(risk), C, tolerance=_FEW, block_size=C) for A in (gauss_newton, hessian))
    basis = torch.linalg.qr(classes.class_means.T.double()).Q
    overlap = (H.vectors.double().T @ G.vectors.double()).square()
    return {
        "class_cosines": by_class,
        "cross_cosines": by_pair,
        "whole_cosines": whole,
        "in_class_means": (basis.T @ G.vectors.double()).square().sum(0).cpu(),
        "overlap": overlap.cpu(),
        **_tables(risk, classes),
        "layers": layers,
        "identity": identity,
    }


def _cosines(risk: Risk, classes: ClassDecomposition) -> tuple[Tensor, Tensor, Tensor, list[str]]:
    """⟨g, δhᵀ⟩/‖g‖‖δ‖‖h‖ of the class means, of the cross-class means, and of the former over all layers at once."""
    h, delta = features(risk), backpropagated_errors(risk)
    products, squares, others, names = [], [], [], []
    for layer, rows, shape in _weights(risk):
        x, e = h[layer].class_means[:, : shape[1]], delta[layer].class_means
        g = _rows(classes.class_means, rows, shape)
        products.append(torch.einsum("co,cod,cd->c", e, g, x))
        squares.append((g.square().sum((1, 2)), e.square().sum(1) * x.square().sum(1)))
        gc = _rows(classes.cross_means, rows, shape)
        ec = delta[layer].cross_means
        inner = torch.einsum("cko,ckod,cd->ck", ec, gc, x)
        others.append(inner / (gc.square().sum((2, 3)) * ec.square().sum(2) * x.square().sum(1)[:, None]).sqrt())
        names.append(layer)
    own = torch.stack([p / (a * b).sqrt() for p, (a, b) in zip(products, squares, strict=True)])
    lengths = [torch.stack(side).sum(0) for side in zip(*squares, strict=True)]
    whole = torch.stack(products).sum(0) / (lengths[0] * lengths[1]).sqrt()
    return own.cpu(), torch.stack(others).cpu(), whole.cpu(), names


def _rows(means: Tensor | None, rows: slice, shape: torch.Size) -> Tensor:
    assert means is not None
    part = means[..., rows].double()
    return part.view(*part.shape[:-1], *shape)


def _weights(risk: Risk) -> list[tuple[str, slice, torch.Size]]:
    """The weight of every linear layer: its name, where it lies in θ, and its shape."""
    places: list[tuple[str, slice, torch.Size]] = []
    first = 0
    for name, shape in risk.shapes.items():
        rows = slice(first, first := first + shape.numel())
        if name.endswith("weight") and len(shape) == 2:
            places.append((name.removesuffix(".weight"), rows, shape))
    return places


def _tables(risk: Risk, classes: ClassDecomposition) -> dict[str, Tensor]:
    """Cosines between classes, of features, errors and gradients, in the last layer but one."""
    layer, rows, shape = _weights(risk)[-2 if len(_weights(risk)) > 1 else -1]
    h, e = features(risk)[layer].class_means[:, : shape[1]], backpropagated_errors(risk)[layer].class_means
    g = _rows(classes.class_means, rows, shape).flatten(1)
    return {f"table_{name}": _angles(rows).cpu() for name, rows in (("features", h), ("errors", e), ("gradients", g))}


def _angles(rows: Tensor) -> Tensor:
    unit = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-300)
    return unit @ unit.T


def draw(record: Record) -> Picture:
    """Cosines between the classes: features times errors make gradients, entry by entry; and H against G."""
    figure, axes = plot.panels(5, width=2.2, height=2.3)
    h, e, g = (record.arrays[f"table_{name}"] for name in ("features", "errors", "gradients"))
    titles = ("features $h_c$", "errors $δ_c$", "products of both cosines", "gradients $g_c$")
    for ax, table, title in zip(axes, (h, e, h * e, g), titles, strict=False):
        image = _table(ax, table, title, -1.0)
    figure.colorbar(image, ax=axes[:-1], shrink=0.7, pad=0.01, ticks=(-1, 0, 1))
    overlap = _table(axes[-1], record.arrays["overlap"], "cos² of eigenvectors", 0.0)
    figure.colorbar(overlap, ax=axes[-1], shrink=0.7, pad=0.02, ticks=(0, 1))
    axes[-1].set(xlabel="the C largest of G", ylabel="the C largest of H")
    axes[0].set(xlabel="classes", ylabel="classes")
    figure.suptitle(
        f"{network_in_words(record.config['network'])}: cosines between the class means, last layer but one", fontsize=9
    )
    return figure


def _table(ax: Axes, table: np.ndarray, title: str, low: float) -> AxesImage:
    image = ax.imshow(table, vmin=low, vmax=1.0, cmap="RdBu_r" if low < 0 else "viridis")
    ax.set(xticks=[], yticks=[])
    write_title(ax, title, size=8)
    return image


def by_layer(name: str) -> Callable[[Record], dict[str, float]]:
    """The median cosine of every layer."""

    def medians(record: Record) -> dict[str, float]:
        rows = record.arrays[name].reshape(len(record.arrays[name]), -1)
        return {f"layer {index + 1}": float(np.nanmedian(row)) for index, row in enumerate(rows)}

    return medians


def table_error(record: Record) -> float:
    """The largest difference of the gradients' cosines from the product of features' and errors'."""
    h, e, g = (record.arrays[f"table_{name}"] for name in ("features", "errors", "gradients"))
    return float(np.abs(h * e - g).max())


def error_angles(record: Record) -> float:
    """The mean |cos| between the class means of errors."""
    table = record.arrays["table_errors"]
    return float(np.abs(table[~np.eye(len(table), dtype=bool)]).mean())


STATEMENTS = (
    says(
        "h_c ⊗ δ_c approximates the class mean g_c of the gradients (median cosine, by layer).",
        where="Sec. 1.12, Fig. 2", measured=by_layer("class_cosines"), rule=each(at_least(0.9, partly=0.5)),
        expected=1.0, why="Features and errors of single examples vary together around their means.",
    ),
    says(
        "h_c ⊗ δ_{c,c'} approximates the cross-class mean g_{c,c'} (median cosine, by layer).",
        where="Sec. 1.12, Fig. 2", measured=by_layer("cross_cosines"), rule=each(at_least(0.9, partly=0.5)),
        expected=1.0, why="Features and errors of single examples vary together around their means.",
    ),
    says(
        "The Khatri-Rao product of h_c and δ_c approximates g_c over all layers at once (median cosine).",
        where="Sec. 1.12, Fig. 2", measured=lambda record: float(np.median(record.arrays["whole_cosines"])),
        rule=at_least(0.9, partly=0.5), expected=1.0, why="The layers where it does not hold have long gradients.",
    ),
    says(
        "Hence the angles between the g_c are those of features times those of errors (largest difference of cosines).",
        where="Fig. 2", measured=table_error, rule=at_most(0.1, partly=0.4), expected=0.0,
        why="The means of some classes are no such product.",
    ),
    says(
        "The class means of the gradients induce C outliers of G (mean ‖Pv‖² of its C largest eigenvectors).",
        where="Sec. 1.12, Fig. 2", measured=lambda record: float(record.arrays["in_class_means"].mean()),
        rule=at_least(0.9, partly=0.5), expected=1.0, why="The spread within classes turns them.",
    ),
    says(
        "Outliers of G induce those of the Hessian (mean share of its C largest eigenvectors in the span of G's).",
        where="Sec. 1.12, Fig. 2", measured=lambda record: float(record.arrays["overlap"].sum(1).mean()),
        rule=at_least(0.9, partly=0.5), expected=1.0, why="E turns them.",
    ),
    says(
        "The class means of errors are ultimately very close to orthogonal (mean |cos|, last layer but one).",
        where="Sec. 7.9", measured=error_angles, rule=at_most(0.1, partly=0.3), expected=0.0,
        why="Some classes have errors in common.",
    ),
)  # fmt: skip

PRESETS = {
    "paper": Config(),
    "laptop": Config(replace(SMALL, network="mlp", width=64, depth=8), 300),
    "smoke": Config(TINY, 20),
}
FIGURES = {
    "papyan2020.fig2": Figure(
        "papyan2020.fig2", "How class means of features and errors become outliers of G and H", PRESETS, run, draw,
        STATEMENTS,
    )
}  # fmt: skip
