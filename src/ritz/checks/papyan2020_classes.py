"""Checks of Papyan (2020), Secs 3, 6 and 7: G, features, errors and weights by class, knockouts, KFAC and CFAC."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from .. import classes, factored
from ..factored.gram_parts import PARTS
from ..operators import Operator, gauss_newton, low_rank
from ..spectrum import Spectrum
from ..theory import ClosedForm, Group
from .check import Check, lines
from .papyan2020 import PAPER
from .papyan2020_oracles import POOL, Classifier, any_labels, factors, one_of_each, parts, unusual

RANK = 1e-12  # of the largest singular value: what is less is rounding
DECAY = 0.01  # of the weights: any positive number, which scales both sides


def atoms(spectra: Iterable[Spectrum]) -> ClosedForm:
    """A closed form from the eigenvalues of exact spectra."""
    return ClosedForm(
        Group(f"line {i + 1} of spectrum {k + 1}", value, round(weight * spectrum.size))
        for k, spectrum in enumerate(spectra)
        for i, (value, weight) in enumerate(zip(spectrum.nodes[0].tolist(), spectrum.weights[0].tolist(), strict=True))
    )


def dilation(W: Float[Tensor, "o d"]) -> Float[Tensor, "m m"]:
    """[0 W; Wᵀ 0], symmetric with the eigenvalues ±σ(W)."""
    o, d = W.shape
    return torch.cat([torch.cat([W.new_zeros(o, o), W], 1), torch.cat([W.T, W.new_zeros(d, d)], 1)])


def gradient_parts(one: Classifier) -> ClosedForm:
    """The four parts of G, and their sum."""
    own = classes.class_decomposition(one.risk)
    matrices = [getattr(own, part).dense() for part in PARTS]
    return lines([*matrices, torch.stack(matrices).sum(0)])


def gradient_parts_oracle(one: Classifier) -> Tensor:
    """The parts of G from the gradients of all examples, and G from the curvature of the loss."""
    return torch.block_diag(*parts(one.gradients, one.cross_weights, one.labels).values(), one.gauss_newton)


def class_means_alone(one: Classifier) -> ClosedForm:
    """G_class + G_own = Σ_c w_c (w_c + w_cc)/w_cc g_c g_cᵀ: own-class means are multiples of class means."""
    own = classes.class_decomposition(one.risk)
    assert own.class_means is not None  # there are few parameters
    w, diagonal = own.class_weights, own.own_weights
    factors = torch.where(diagonal > 0, w * (w + diagonal) / diagonal.clamp(min=torch.finfo(w.dtype).tiny), 0.0)
    return lines([torch.einsum("c,cq,cr->qr", factors, own.class_means, own.class_means)])


def class_means_oracle(one: Classifier) -> Tensor:
    """G_class + G_own from the gradients of all examples."""
    own = parts(one.gradients, one.cross_weights, one.labels)
    return own["between_class"] + own["own_class"]


def gram(one: Classifier) -> ClosedForm:
    """All eigenvalues of G from its Gram matrix."""
    return atoms([factored.gram_spectrum(one.risk)])


def subtracted(one: Classifier) -> ClosedForm:
    """The eigenvalues of G without each of its parts."""
    K = factored.Gram.of(one.risk)
    return atoms(K.spectrum(subtract=(part,)) for part in PARTS)


def subtracted_oracle(one: Classifier) -> Tensor:
    """G minus each of its parts."""
    own = parts(one.gradients, one.cross_weights, one.labels)
    return torch.block_diag(*(one.gauss_newton - own[part] for part in PARTS))


def projected(one: Classifier) -> ClosedForm:
    """G without the span of its class means, and of its cross-class means, too."""
    G, own = gauss_newton(one.risk), classes.class_decomposition(one.risk)
    return lines(
        classes.project(G, means).dense() for means in (own.between_class, _joined(own.between_class, own.cross_class))
    )


def projected_oracle(one: Classifier) -> Tensor:
    """(I - UUᵀ) G (I - UUᵀ) for the singular vectors U of these means."""
    means = factors(one.gradients, one.cross_weights, one.labels)
    both = torch.cat([means["between_class"], means["cross_class"]], 1)
    return torch.block_diag(*(_off(one.gauss_newton, columns) for columns in (means["between_class"], both)))


def projected_by_gram(one: Classifier) -> ClosedForm:
    """The eigenvalues of G without the span of its class means, through the Gram matrix."""
    return atoms([factored.gram_spectrum(one.risk, project=("between_class",))])


def projected_by_gram_oracle(one: Classifier) -> Tensor:
    """(I - UUᵀ) G (I - UUᵀ) for the singular vectors U of the class means."""
    return _off(one.gauss_newton, factors(one.gradients, one.cross_weights, one.labels)["between_class"])


def feature_parts(one: Classifier) -> ClosedForm:
    """Φ_class, Φ_within and Φ of every layer."""
    own = classes.features(one.risk)
    return lines(
        getattr(own[name], part).dense()
        for name in one.names()
        for part in ("between_class", "within", "second_moment")
    )


def feature_parts_oracle(one: Classifier) -> Tensor:
    """The parts of Φ from all features, with weights n_c/N."""
    return torch.block_diag(*(matrix for rows in one.features for matrix in _by_class(rows, one.labels)))


def error_parts(one: Classifier) -> ClosedForm:
    """The four parts of Δ of every layer, and Δ."""
    own = classes.backpropagated_errors(one.risk)
    return lines(getattr(own[name], part).dense() for name in one.names() for part in (*PARTS, "second_moment"))


def error_parts_oracle(one: Classifier) -> Tensor:
    """The parts of Δ from all errors, without a prefactor and with Δ_cross centred at δ_c."""
    w = one.cross_weights
    blocks = []
    for rows in one.errors:
        blocks += [*parts(rows, w, one.labels).values(), torch.einsum("nc,nco,ncp->op", w, rows, rows)]
    return torch.block_diag(*blocks)


def weight_parts(one: Classifier) -> ClosedForm:
    """W_class of every layer, and W_class + W_within, as matrices with the eigenvalues ±σ."""
    own = classes.weights(one.risk, weight_decay=DECAY)
    return lines(dilation(getattr(own[name], part)) for name in one.names() for part in ("between_class", "stationary"))


def weight_parts_oracle(one: Classifier) -> Tensor:
    """-(1/η) Σ_c (n_c/N) δ_c φ_cᵀ from the class means, and -∇R/η by autograd."""
    pairs = zip(_weights_of_means(one), one.layer_gradients(), strict=True)
    return torch.block_diag(*(dilation(W) for means, gradient in pairs for W in (means, -gradient / DECAY)))


def _weights_of_means(one: Classifier) -> list[Float[Tensor, "_ _"]]:
    """-(1/η) Σ_c (n_c/N) δ_c φ_cᵀ of every layer."""
    N, result = len(one.labels), []
    for delta, phi in zip(one.errors, one.features, strict=True):
        true = delta[torch.arange(N), one.labels]
        means = delta.new_zeros(delta.shape[2], phi.shape[1])
        for c in one.labels.unique():
            own = one.labels == c
            means += float(own.sum()) / N * torch.outer(true[own].mean(0), phi[own].mean(0))
        result.append(-means / DECAY)
    return result


def projected_weights(one: Classifier) -> ClosedForm:
    """W of every layer, whole and with its class part projected out, as matrices with the eigenvalues ±σ.

    Where as many classes as rows leave nothing, the whole is what rounding is compared with.
    """
    own = classes.weights(one.risk, weight_decay=DECAY)
    pairs = zip(one.weights, (own[name].between_class for name in one.names()), strict=True)
    return lines(dilation(A) for W, B in pairs for A in (W, classes.project(W, B, tolerance=RANK)))


def projected_weights_oracle(one: Classifier) -> Tensor:
    """W, and (I - BB⁺) W (I - B⁺B) by the pseudoinverse of the class part of each layer."""
    blocks = []
    for W, means in zip(one.weights, _weights_of_means(one), strict=True):
        inverse = torch.linalg.pinv(means, rtol=RANK)
        left, right = (torch.eye(len(P), dtype=W.dtype) - P for P in (means @ inverse, inverse @ means))
        blocks += [dilation(W), dilation(left @ W @ right)]
    return torch.block_diag(*blocks)


def kfac(one: Classifier) -> ClosedForm:
    """Δ ⊗ Φ of every layer."""
    return lines([factored.kfac(one.risk).operator.dense()])


def kfac_oracle(one: Classifier) -> Tensor:
    """Δ ⊗ Φ from the errors of each layer and the features that enter it."""
    w, N = one.cross_weights, len(one.labels)
    return torch.block_diag(
        *(
            torch.kron(torch.einsum("nc,nco,ncp->op", w, delta, delta).contiguous(), (phi.T @ phi / N).contiguous())
            for delta, phi in zip(one.errors, one.features, strict=True)
        )
    )


def cfac(one: Classifier) -> ClosedForm:
    """Σ_c (n_c/N) Δ_c ⊗ Φ_c of every layer."""
    return lines([factored.cfac(one.risk).operator.dense()])


def cfac_oracle(one: Classifier) -> Tensor:
    """Σ_c (n_c/N) Δ_c ⊗ Φ_c from the errors and features of each class."""
    return torch.block_diag(
        *(_sum_over_classes(one, delta, phi) for delta, phi in zip(one.errors, one.features, strict=True))
    )


def khatri_rao_cfac(one: Classifier) -> ClosedForm:
    """Σ_c (n_c/N) Δ_c ⊙ Φ_c over all layers at once."""
    return lines([factored.khatri_rao_cfac(one.risk).operator.dense()])


def gauss_newton_oracle(one: Classifier) -> Tensor:
    """G from the curvature of the loss."""
    return one.gauss_newton


def gauss_newton_blocks(one: Classifier) -> Tensor:
    """The diagonal blocks of G, one for each layer."""
    sizes = [W.numel() for W in one.weights]
    blocks = [row.split(sizes, 1)[i] for i, row in enumerate(one.gauss_newton.split(sizes))]
    return torch.block_diag(*blocks)


def _sum_over_classes(one: Classifier, delta: Float[Tensor, "N C o"], phi: Float[Tensor, "N d"]) -> Tensor:
    size = delta.shape[2] * phi.shape[1]
    total = delta.new_zeros(size, size)
    for c in one.labels.unique():
        own = one.labels == c
        count = float(own.sum())
        errors = torch.einsum("nc,nco,ncp->op", one.probabilities[own], delta[own], delta[own]) / count
        features = torch.einsum("nd,ne->de", phi[own], phi[own]) / count
        total += count / len(one.labels) * torch.kron(errors.contiguous(), features.contiguous())
    return total


def _by_class(rows: Float[Tensor, "N d"], labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Second moments between classes, within classes, and in total."""
    means = torch.stack([rows[labels == c].mean(0) for c in labels])
    between, within = means.T @ means / len(rows), (rows - means).T @ (rows - means) / len(rows)
    return between, within, rows.T @ rows / len(rows)


def _joined(*matrices: Operator) -> Operator:
    """The sum of low-rank matrices, with its factor."""
    return low_rank(torch.cat([A.factor for A in matrices if A.factor is not None], 1))


def _off(A: Float[Tensor, "n n"], columns: Float[Tensor, "n k"]) -> Float[Tensor, "n n"]:
    """(I - UUᵀ) A (I - UUᵀ) with U the left singular vectors whose singular value is not rounding."""
    U, values, _ = torch.linalg.svd(columns, full_matrices=False)
    U = U[:, values > RANK * values.max()]
    rest = torch.eye(len(A), dtype=A.dtype) - U @ U.T
    return rest @ A @ rest


_of = partial(Check, paper=PAPER, draw=any_labels, degenerate=unusual, most_draws=POOL)
_of_one_each = partial(Check, paper=PAPER, draw=one_of_each, most_draws=POOL)
_generic = partial(Check, paper=PAPER, draw=any_labels, most_draws=POOL)  # with ranks that do not depend on rounding

CHECKS = (
    _of("G by class", equation="eq. (6.2)-(6.4)", closed_form=gradient_parts, oracle=gradient_parts_oracle),
    _of("G of class means", equation="eq. (6.4), new", closed_form=class_means_alone, oracle=class_means_oracle),
    _of("Gram spectrum", equation="Sec. 6, new", closed_form=gram, oracle=gauss_newton_oracle),
    _of("knockouts, subtracted", equation="Def. 3.1", closed_form=subtracted, oracle=subtracted_oracle),
    _generic("knockouts, projected", equation="Def. 3.2", closed_form=projected, oracle=projected_oracle),
    _generic(
        "knockouts, Gram", equation="Def. 3.2, new", closed_form=projected_by_gram, oracle=projected_by_gram_oracle
    ),
    _of("features by class", equation="Sec. 7.4", closed_form=feature_parts, oracle=feature_parts_oracle),
    _of("errors by class", equation="Sec. 7.7", closed_form=error_parts, oracle=error_parts_oracle),
    _of("weights by class", equation="Sec. 7.13", closed_form=weight_parts, oracle=weight_parts_oracle),
    _generic("knockouts, weights", equation="Def. 3.2", closed_form=projected_weights, oracle=projected_weights_oracle),
    _of("KFAC", equation="Def. 7.1", closed_form=kfac, oracle=kfac_oracle),
    _of("CFAC", equation="Def. 7.2", closed_form=cfac, oracle=cfac_oracle),
    _of_one_each("CFAC, one example each", equation="Def. 7.2, new", closed_form=cfac, oracle=gauss_newton_blocks),
    _of_one_each("CFAC, all layers", equation="eq. (7.8)", closed_form=khatri_rao_cfac, oracle=gauss_newton_oracle),
)
