"""Papyan (2019) and (2020), formulas and algorithms: the printed form fails, the corrected one holds. docs/errata.md.

The example, E, is a trained network: 100 images of digits, few of them 0, 1 or 2, and two layers 64-12-10 with tanh.
"""

from functools import cache

import pytest
import torch
from pytest import approx
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import ritz
from ritz import classes, factored
from ritz.checks.draws import normal
from ritz.checks.oracles import dense_hessian
from ritz.checks.papyan2020_oracles import Classifier, factors, parts
from ritz.lab import data
from ritz.solvers.densities import spectral_range
from ritz.solvers.eigen import subspace_iteration
from ritz.spectrum import Spectrum
from tests.seeds import seeded

C = 10


def relative(A, B):
    """How far A is from B, in the norm of B."""
    return float((A - B).norm() / B.norm())


@cache
def trained(balanced=False):
    """E after 60 steps; or the same network on ten images a class."""
    x, y = data.digits(generator=seeded()).train
    if balanced:
        keep = torch.cat([(y == c).nonzero()[:10, 0] for c in range(C)])
    else:
        keep = ((y > 2) | (torch.arange(len(y)) % 4 == 0)).nonzero()[:100, 0]
    start = normal(seeded(), 12, 64, scale=1 / 8), normal(seeded(1), C, 12, scale=12**-0.5)
    return fitted(Classifier(start, x[keep].double().flatten(1), y[keep]), steps=60)


def fitted(one, steps, decay=0.0, rate=0.3):
    leaves = [W.clone().requires_grad_() for W in one.weights]
    optimizer = torch.optim.SGD(leaves, lr=rate, momentum=0.9, weight_decay=decay)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(one.outputs(tuple(leaves)), one.labels).backward()
        optimizer.step()
    return Classifier(tuple(W.detach() for W in leaves), one.x, one.labels)


def means(rows, w, labels):
    """v_{c,c'}, v_c over c' ≠ c, and their weights, for classes that all have examples."""
    cross = torch.stack([torch.einsum("nk,nkq->kq", w[labels == c], rows[labels == c]) for c in range(C)])
    weights = torch.stack([w[labels == c].sum(0) for c in range(C)])
    others = weights * (1 - torch.eye(C).double())
    cross = cross / weights[:, :, None]
    centres = torch.einsum("ck,ckq->cq", others, cross) / others.sum(1, keepdim=True)
    return cross, centres, others


def cross_part(rows, w, labels, *, printed):
    """Σ_{c≠c'} w_cc' (v_cc' - v_c)(v_cc' - v_c)ᵀ; as printed v_c' is subtracted."""
    cross, centres, others = means(rows, w, labels)
    deviations = cross - (centres[None] if printed else centres[:, None])
    return torch.einsum("ck,ckq,ckr->qr", others, deviations, deviations)


# The decomposition of G


def test_sec_1_8_averages_the_loss_over_cross_classes():
    one = trained()
    y = torch.eye(C).double()[one.labels]
    log_p = one.probabilities.log()
    loss = float(cross_entropy(one.outputs(one.weights), one.labels))
    assert float(-(y * log_p).mean()) == approx(loss / C)  # printed: Ave over i, c and c'
    assert float(-(y * log_p).sum(1).mean()) == approx(loss)


def test_eq_1_1_averages_over_the_class_that_it_is_the_mean_of():
    one = trained(balanced=True)
    g = one.gradients
    of_class = torch.stack([g[one.labels == c].mean((0, 1)) for c in range(C)])
    printed = g.mean((0, 1)).expand(C, -1)  # Ave over i, c and c': the same for all classes
    assert relative(printed, of_class) == approx(0.961, abs=1e-3)
    assert_close(of_class, torch.stack([g[one.labels == c].mean(0).mean(0) for c in range(C)]))


def test_eq_6_2_needs_other_weights_where_classes_have_unequal_sizes():
    one = trained()
    counts = one.labels.bincount(minlength=C)
    w = one.probabilities / (counts[one.labels].double() * C)[:, None]  # printed: p/(nC), n that of the class
    printed = torch.einsum("nk,nkq,nkr->qr", w, one.gradients, one.gradients)
    assert relative(printed, one.gauss_newton) == approx(5.16, abs=0.01)
    exact = torch.einsum("nk,nkq,nkr->qr", one.cross_weights, one.gradients, one.gradients)
    assert relative(exact, one.gauss_newton) < 1e-14


def test_the_gradient_has_the_other_sign():
    one = trained()
    printed = torch.einsum("nkq,nk->nq", one.jacobian, torch.eye(C).double()[one.labels] - one.probabilities)
    by_autograd = torch.cat([grad.flatten() for grad in one.layer_gradients()])
    assert relative(printed.mean(0), by_autograd) == approx(2.0)  # Jᵀ(y - p), App. A and Papyan (2019), eq (3)
    assert relative(-printed.mean(0), by_autograd) < 1e-13


def test_g_cross_is_centred_at_the_mean_of_its_own_class():
    one = trained()
    rows, w, G = one.gradients, one.cross_weights, one.gauss_newton
    own = parts(rows, w, one.labels)
    rest = own["between_class"] + own["within"] + own["own_class"]
    printed, right = (cross_part(rows, w, one.labels, printed=choice) for choice in (True, False))
    assert relative(rest + printed, G) == approx(1.03, abs=0.01)
    assert relative(rest + right, G) < 1e-14


def test_the_class_and_own_class_parts_have_one_range_so_that_c_eigenvalues_are_zero():
    one = trained()
    own = parts(one.gradients, one.cross_weights, one.labels)
    together = own["between_class"] + own["cross_class"] + own["own_class"]
    values = torch.linalg.eigvalsh(together).flip(0)
    count = C * (C - 1)  # Fig. 6: C + (C² - 2C) + C; C(C - 1) are not zero
    assert values[count - 1] > 1e-10 * values[0] and values[count : C * C].abs().max() < 1e-15 * values[0]
    factor = factors(one.gradients, one.cross_weights, one.labels)
    cosines = torch.nn.functional.cosine_similarity(factor["between_class"], factor["own_class"], dim=0)
    assert_close(cosines, -torch.ones(C).double())  # g_cc = -(w_c/w_cc) g_c
    assert classes.class_decomposition(one.risk).ranks == {
        "between_class": C,
        "cross_class": C * (C - 2),
        "own_class": C,
        "together": count,
    }


def test_the_mean_eigenvalue_of_g_within_c_divides_by_its_rank():
    one = trained(balanced=True)
    members, n = one.labels == 0, 10
    own = parts(one.gradients[members], one.cross_weights[members], one.labels[members])["within"]
    values = torch.linalg.eigvalsh(own)
    rank = int((values > 1e-14 * values.max()).sum())
    assert rank == 89  # Fig. 6 divides the trace by n = 10
    assert float(values.sum()) / n == approx(rank / n * float(values[values > 1e-14 * values.max()].mean()))


# Features, errors, weights, KFAC and CFAC


def test_the_class_part_of_features_needs_the_shares_of_the_classes():
    one = trained()
    phi, counts = one.features[1], one.labels.bincount(minlength=C).double()
    centres = torch.stack([phi[one.labels == c].mean(0) for c in range(C)])
    deviations = phi - centres[one.labels]
    Phi, within = phi.T @ phi / len(phi), deviations.T @ deviations / len(phi)
    assert relative(centres.T @ centres / C + within, Phi) == approx(0.355, abs=1e-3)  # printed: Ave over c
    assert relative((counts[:, None] / len(phi) * centres).T @ centres + within, Phi) < 1e-14
    own = classes.features(one.risk)["2"]
    assert_close(own.second_moment.dense(), Phi)


def test_delta_has_a_prefactor_too_many():
    one = trained(balanced=True)
    w, delta, N = one.cross_weights, one.errors[0], 10
    right = torch.einsum("nk,nko,nkp->op", w, delta, delta)
    assert relative(right / (N * C), right) == approx(0.99)  # printed: (1/(NC)) Σ w δδᵀ, with w = p/(NC) already
    assert_close(classes.backpropagated_errors(one.risk)["0"].second_moment.dense(), right)


def test_delta_cross_is_centred_at_the_mean_of_its_own_class():
    one = trained(balanced=True)
    w, delta = one.cross_weights, one.errors[0]
    own = parts(delta, w, one.labels)
    Delta = torch.einsum("nk,nko,nkp->op", w, delta, delta)
    rest = own["between_class"] + own["within"] + own["own_class"]
    printed, right = (cross_part(delta, w, one.labels, printed=choice) for choice in (True, False))
    assert relative(rest + printed, Delta) == approx(0.699, abs=1e-3)
    assert relative(rest + right, Delta) < 1e-14


def test_cfac_has_a_factor_too_many():
    one = trained(balanced=True)
    one = Classifier(one.weights, one.x[::10], one.labels[::10])  # one example a class, where CFAC is G itself
    G = one.gauss_newton[768:, 768:]  # of the second layer
    delta, phi = one.errors[1], one.features[1]
    Delta = torch.einsum("nk,nko,nkp->nop", one.cross_weights, delta, delta)  # printed: (1/N) Σ w δδᵀ, N = 1
    kron = torch.stack([torch.kron(D.contiguous(), torch.outer(h, h)) for D, h in zip(Delta, phi, strict=True)])
    assert relative(kron.mean(0), G) == approx(1 - 1 / C)
    assert relative(C * kron.mean(0), G) < 1e-13
    assert_close(factored.cfac(one.risk.restricted_to("2.*")).operator.dense(), G)


def test_kfac_takes_the_features_that_enter_a_layer():
    one = trained()
    delta, N = one.errors[0], len(one.labels)
    Delta = torch.einsum("nk,nko,nkp->op", one.cross_weights, delta, delta)
    sizes = [torch.kron(Delta, (phi.T @ phi / N).contiguous()).shape[0] for phi in one.features]
    assert sizes == [12 * 64, 12 * 12]  # H^l ⊗ Δ^l of layer 1 has 144 rows, its weight 768 entries
    assert factored.kfac(one.risk).layers["0"].size == 12 * 64


def test_gradients_are_kronecker_products_in_the_order_in_which_weights_are_stacked():
    one = trained()
    phi, delta, g = one.features[0][0], one.errors[0][0, 3], one.gradients[0, 3, :768]
    assert relative(torch.kron(phi, delta), g) > 0.5  # eq (7.3) and (7.4), which stack columns
    assert relative(torch.kron(delta, phi), g) < 1e-14


def test_weights_are_made_of_class_means_at_a_stationary_point_alone():
    one, decay = trained(balanced=True), 0.05
    start = Classifier((normal(seeded(4), 5, 16, scale=0.25), normal(seeded(5), C, 5)), one.x[:, ::4], one.labels)
    leaves = [W.clone().requires_grad_() for W in start.weights]
    optimizer = torch.optim.LBFGS(leaves, max_iter=150, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def risk():
        optimizer.zero_grad()
        norms = sum(W.square().sum() for W in leaves)
        loss = cross_entropy(start.outputs(tuple(leaves)), start.labels) + decay / 2 * norms
        loss.backward()
        return loss

    optimizer.step(risk)
    still = Classifier(tuple(W.detach() for W in leaves), start.x, start.labels)
    residuals = [classes.weights(net.risk, weight_decay=decay)["0"].residual for net in (start, still)]
    assert residuals[0] == approx(19.1, abs=0.1) and residuals[1] < 1e-3


def test_all_singular_vectors_leave_nothing_of_a_projected_matrix():
    one = trained()
    own = classes.weights(one.risk, weight_decay=0.01)["0"]
    W, B = one.weights[0], own.between_class
    U, _, Vh = torch.linalg.svd(B)  # "all left and right singular vectors"
    printed = (torch.eye(12) - U @ U.T) @ W @ (torch.eye(64) - Vh.T @ Vh)
    assert float(printed.norm()) < 1e-13
    left = classes.project(W, B)
    assert float(W.norm()) == approx(10.29, abs=0.01) and float(left.norm()) == approx(1.43, abs=0.01)
    assert int(torch.linalg.matrix_rank(B)) == C
    assert float((left @ B.T).norm()) < 1e-10 and float((B.T @ left).norm()) < 1e-10


def test_the_projection_of_a_matrix_that_is_not_symmetric_has_two_readings():
    A, B = torch.eye(2).double(), torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double()
    plus = torch.linalg.pinv(B)
    off = torch.eye(2).double() - B @ plus
    square = off @ A @ off  # the first definition, of square matrices
    assert_close(square, torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double())
    assert_close(classes.project(A, B), torch.zeros(2, 2).double())  # the second: rows by B⁺B


def test_the_rest_of_the_hessian_is_no_wishart_matrix():
    one = trained()
    x, labels = one.x[:40, ::4], one.labels[:40]
    weights = normal(seeded(2), 3, 16), normal(seeded(3), C, 3)
    small = Classifier(weights, x, labels)
    H = dense_hessian(lambda a, b: cross_entropy(small.outputs((a, b)), labels), *weights)
    values = torch.linalg.eigvalsh(H - small.gauss_newton)
    assert float(values[0]) == approx(-1.519, abs=1e-3) and float(values[-1]) == approx(0.501, abs=1e-3)
    # a Wishart matrix has no negative eigenvalue; a Wigner matrix has


def test_eigenvalues_of_a_sum_interlace_for_a_summand_of_rank_one():
    one = trained()
    H, G = (matrix(one.risk).dense() for matrix in (ritz.hessian, ritz.gauss_newton))
    upper = lambda A: torch.linalg.eigvalsh(A).flip(0)[:30]
    interlaced = lambda h, g: float(((h[1:] <= g[:-1]) & (g[:-1] <= h[:-1])).double().mean())
    assert interlaced(upper(H), upper(G)) == approx(5 / 29) and interlaced(upper(G), upper(H)) == 0.0

    e = normal(seeded(4), len(G))  # Cauchy's theorem: one summand has rank one
    assert interlaced(upper(G + 1e-3 * torch.outer(e, e)), upper(G)) == 1.0
    moved = float((upper(H) - upper(G)).abs().max())  # and Weyl's, for any
    assert moved == approx(0.0085, abs=1e-4) and moved <= torch.linalg.matrix_norm(H - G, 2)


# Algorithms


def symmetric(n, seed=0):
    Q = torch.linalg.qr(normal(seeded(seed), n, n)).Q
    values = torch.cat([torch.linspace(-1, 1, n - 2), torch.tensor([5.0, -8.0])]).double()
    return (Q * values) @ Q.T


def test_alg_1_divides_by_the_length_of_a_vector_that_it_does_not_have():
    A = torch.eye(3).double()
    v = torch.ones(3).double()
    T = ritz.lanczos(ritz.Operator.from_matrix(A), v[:, None], 3, keep_basis=True)  # β = 0 after one step
    assert T.diagonal.shape == (1, 1) and float(T.residual[0]) == 0.0 and bool(torch.isfinite(T.diagonal).all())
    w = A @ (v / v.norm()) - v / v.norm()
    assert bool(torch.isnan(w / w.norm()).any())  # as printed, without an end where β = 0


def test_alg_2_throws_away_the_number_that_alg_4_needs():
    A = symmetric(60)
    T = ritz.lanczos(ritz.Operator.from_matrix(A), normal(seeded(), 60, 1), 12, keep_basis=True)
    (theta,), (y,) = T.eigh()
    Q = T.basis[0]
    residuals = (A @ Q @ y - Q @ y * theta).norm(dim=0)
    assert_close(residuals, float(T.residual[0]) * y[-1].abs())  # β_M |y[M]|: β_M is not in T_M
    assert float(residuals.max()) == approx(0.239, abs=1e-3)
    with pytest.raises(RuntimeError):
        (A - theta[0] * torch.eye(60)) @ y[:, 0]  # Alg. 4 as printed: 60 rows, 12 numbers


def test_alg_3_has_to_be_scaled_back_with_its_density_and_its_width():
    values = torch.linspace(-3, 7, 40).double()
    A = ritz.Operator.from_matrix(values.diag())
    low, high = spectral_range(A, num_steps=30)
    d, c, M = (high - low) / 2, (high + low) / 2, 30
    sigma = 2 / ((M - 1) * (8 * torch.tensor(3.0).log()) ** 0.5)
    T = ritz.lanczos(A, normal(seeded(), 40, 1), M)
    nodes, weights = T.quadrature()
    t = torch.linspace(-1.5, 1.5, 4000).double()
    phi = (
        torch.exp(-0.5 * ((t[:, None] - (nodes[0] - c) / d) / sigma) ** 2)
        @ weights[0]
        / (sigma * (2 * torch.pi) ** 0.5)
    )
    assert float(torch.trapezoid(phi, d * t + c)) == approx(d, rel=1e-3)  # points scaled back, the density not
    assert float(torch.trapezoid(phi / d, d * t + c)) == approx(1.0, rel=1e-3)
    ours = Spectrum(nodes, weights, 40).density(d * t + c, d * float(sigma))
    assert_close(ours, phi / d, rtol=1e-5, atol=1e-9)


def test_the_log_spectrum_with_the_factor_one_over_theta_is_no_density_of_logarithms():
    Z = data.pareto_matrix(generator=seeded(), dtype=torch.float64)
    values = torch.linalg.eigvalsh(Z).clamp(min=1e-300)
    spectrum = Spectrum.of_eigenvalues(values)
    floor, width = 1e-12, 0.2
    u = torch.linspace(float(values.log().min()) - 2, float(values.log().max()) + 2, 4000).double()
    q = spectrum.log_density(u, width=width, floor=floor)
    kernels = torch.exp(-0.5 * ((u[:, None] - values.log()) / width) ** 2) / (width * (2 * torch.pi) ** 0.5)
    printed = (kernels / values).mean(1)
    assert float(torch.trapezoid(q, u)) == approx(1.0, rel=1e-6)
    assert float(torch.trapezoid(printed, u)) == approx(float((1 / values).mean()), rel=1e-6)
    assert float((1 / values).mean()) == approx(1.63e-3, abs=1e-5)


def test_the_logarithm_of_both_ends_is_no_range_of_an_indefinite_matrix():
    values = torch.tensor([-2.0, -1e-3, 1e-4, 1.0]).double()
    low, high = sorted(abs(end) for end in (-2.0, 1.0))  # log|λ_min|, log|λ_max| as printed: from 1 to 2
    inside = (values.abs() >= low) & (values.abs() <= high)
    assert int(inside.sum()) == 2  # of four
    spectrum = Spectrum.of_eigenvalues(values)
    u = spectrum.log_grid(floor=1e-5)
    assert float(u[0]) < float(torch.tensor(1e-4).log()) and float(u[-1]) > float(torch.tensor(2.0).log())


def test_alg_5_returns_lengths_that_are_no_eigenvalues():
    A = symmetric(60)
    generator = seeded()
    Q = torch.linalg.qr(normal(generator, 60, 2)).Q
    for _ in range(3):
        V = A @ Q
        Q = torch.linalg.qr(V).Q
    printed = V.norm(dim=0)
    pairs = subspace_iteration(ritz.Operator.from_matrix(A), 2, 200)
    assert printed.tolist() == approx([6.239, 6.972], abs=1e-3)  # after three sweeps, and never a sign
    assert_close(pairs.values, torch.tensor([-8.0, 5.0]).double(), atol=1e-9, rtol=0)


def test_a_sweep_of_alg_5_costs_c_products():
    calls, A = [], symmetric(60)

    def counted(V):
        calls.append(V.shape[1])
        return A @ V

    subspace_iteration(ritz.Operator(counted, 60, torch.float64, torch.device("cpu")), 4, 7)
    assert sum(calls) == 4 * 7  # O(T C N p) and QR O(T C² p); printed is O(T C² N p)


def test_a_deflated_operator_has_zeros_of_its_own():
    A = torch.cat([torch.linspace(1, 2, 58), torch.tensor([5.0, 8.0])]).double().diag()
    pairs = ritz.eigenpairs(ritz.Operator.from_matrix(A), 2)
    left = A - (pairs.vectors * pairs.values) @ pairs.vectors.T
    assert int((torch.linalg.eigvalsh(left).abs() < 1e-9).sum()) == 2  # C of p: a line at zero that A does not have
    spectrum = ritz.spectral_density(ritz.Operator.from_matrix(A), num_steps=58, outliers=2)
    assert float(spectrum.nodes.min()) > 0.99


def test_a_matrix_of_500_rows_has_500_eigenvalues():
    assert data.pareto_matrix(generator=seeded()).shape == (500, 500)  # printed: 1000 × 1000 of Z 500 × 1000


def test_the_bound_of_alg_4_is_no_guarantee():
    values = torch.cat([torch.linspace(-1, 1, 1999), torch.tensor([1.5])]).double()
    A, missed = ritz.Operator(lambda V: values[:, None] * V, 2000, torch.float64, torch.device("cpu")), 0
    for seed in range(40):
        T = ritz.lanczos(A, normal(seeded(seed), 2000, 1), 5)
        (theta,), (y,) = T.eigh()
        low, high = (theta[k] + sign * T.residual[0] * y[-1, k].abs() for k, sign in ((0, -1), (-1, 1)))
        missed += int(high + 0.05 * (high - low) < 1.5)  # with the margin τ = 0.05
    assert 15 <= missed <= 25  # of 40 starts


def test_reorthogonalisation_takes_no_more_products():
    calls, A = [], symmetric(60)

    def counted(V):
        calls.append(V.shape[1])
        return A @ V

    operator = ritz.Operator(counted, 60, torch.float64, torch.device("cpu"))
    for keep_basis in (False, True):
        calls.clear()
        ritz.lanczos(operator, normal(seeded(), 60, 1), 12, keep_basis=keep_basis)
        assert sum(calls) == 12  # O(M N p) and at most O(M² p) beside it; printed is O(M² N p)
