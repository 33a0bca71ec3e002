"""Logistic regression on the canonical classification model: Papyan (2020), Sec. 8, against its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from ritz import theory
from ritz.checks import papyan2020
from ritz.checks.draws import normal
from ritz.checks.oracles import dense_hessian
from ritz.errors import ArgumentError
from ritz.theory.logistic_regression import class_curvatures
from tests.draws import patient
from tests.seeds import real, seeded

CHECKS = {check.result: check for check in papyan2020.CHECKS}
seeds = st.integers(0, 2**32 - 1)
classes, signals = st.integers(3, 8), st.floats(0.1, 30)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("result", list(CHECKS))
def test_closed_forms_hold_with_three_thousand_parameters(result, seed):
    """G = Z Λ Zᵀ with Z orthogonal, on random vectors."""
    generator = seeded(seed)
    unequal = [torch.rand(10, generator=generator).double() * 0.9, torch.rand(10, generator=generator).double()]
    inputs = (300, 10, 3.0, 0.2) if result == "CCM" else (300, 10, 3.0, unequal[0], unequal[1] / unequal[1].sum())
    form, G = CHECKS[result].closed_form(*inputs), CHECKS[result].oracle(*inputs)
    Z = torch.cat([form.eigenvectors(group) for group in form.groups], 1)
    values = torch.cat([torch.full((g.multiplicity,), g.value, dtype=torch.float64) for g in form.groups])
    v = normal(generator, 3000, 8)
    assert_close(Z @ (Z.T @ v), v, atol=1e-10, rtol=0)
    assert_close(Z @ (values[:, None] * (Z.T @ v)), G @ v, atol=1e-10 * form.scale, rtol=0)


def test_multiplicities_are_those_of_the_theorem():
    form = theory.logistic_ccm(12, 5, 2.0, 0.3)
    assert [(g.name, g.multiplicity) for g in form.groups] == [
        ("outliers", 5),
        ("mini-bulk", 15),
        ("bulk", 28),
        ("zero", 12),
    ]


def test_the_definition_is_the_hessian_of_cross_entropy():
    """x xᵀ averaged exactly: t e_c ± √D e_d in place of Gaussians has the same second moments."""
    D, C, t, alpha = 4, 3, 1.7, 0.4
    log_p = torch.full((C, C), alpha / (C - 1)).double().fill_diagonal_(1 - alpha).log()
    noise = torch.cat([torch.eye(D), -torch.eye(D)]).double() * D**0.5
    H = torch.zeros(C * D, C * D).double()
    for c in range(C):
        x = t * torch.eye(D).double()[c] + noise
        # logits that are log p_c at W = 0, and vary with W as W x does
        H += (
            dense_hessian(
                lambda W, c=c, x=x: cross_entropy(log_p[c] + x @ W.T, torch.full((2 * D,), c)),
                torch.zeros(C, D).double(),
            )
            / C
        )
    assert_close(H, papyan2020.expected_fisher(D, C, t, alpha))


def test_a_sample_comes_near_its_expectation():
    D, C, t, alpha, N = 6, 3, 2.0, 0.3, 20_000
    U, G = class_curvatures(C, real(alpha).expand(C)), torch.zeros(C * D, C * D).double()
    for c in range(C):
        x = t * torch.eye(D).double()[c] + normal(seeded(c), N, D)
        G += torch.kron(U[c], x.T @ x / N) / C
    form = theory.logistic_ccm(D, C, t, alpha)
    assert_close(torch.linalg.eigvalsh(G), form.eigenvalues(), atol=0.03 * form.scale, rtol=0)


@patient
@given(classes, signals, st.floats(0.01, 0.99))
def test_three_eigenvalues_give_the_misclassification(C, t, share):
    alpha = share * (1 - 1 / C)
    form = theory.logistic_ccm(C + 3, C, t, alpha)
    values = [form[name].value for name in ("outliers", "mini-bulk", "bulk")]
    assert theory.ccm_error_rate(*values, C) == approx(alpha, abs=1e-6)
    gaps = theory.ccm_gaps(C, t, alpha)
    assert gaps.outliers_to_mini_bulk == approx(values[0] / values[1])
    assert gaps.outliers_to_bulk == approx(values[0] / values[2])
    assert gaps.mini_bulk_to_bulk == approx(values[1] / values[2])


@pytest.mark.parametrize("alpha", [1e-6, 1e-12, 1e-15])
def test_error_rates_for_each_class_are_as_exact_as_one_for_all_however_small(alpha):
    one, each = (theory.logistic_ccm(6, 4, 2.0, rate).eigenvalues() for rate in (alpha, [alpha] * 4))
    assert_close(each, one, rtol=0, atol=1e-13 * float(one.max()))


@patient
@given(classes, signals, st.floats(0.05, 0.9))
def test_all_gaps_grow_with_the_signal(C, t, share):
    weak, strong = theory.ccm_gaps(C, t, share * (1 - 1 / C)), theory.ccm_gaps(C, 1.1 * t, share * (1 - 1 / C))
    assert strong.outliers_to_mini_bulk > weak.outliers_to_mini_bulk
    assert strong.outliers_to_bulk > weak.outliers_to_bulk and strong.mini_bulk_to_bulk > weak.mini_bulk_to_bulk


REFUSED = {
    "one class": lambda: theory.logistic_ccm(4, 1, 1.0, 0.0),
    "more classes than inputs": lambda: theory.logistic_ccm(3, 4, 1.0, 0.1),
    "worse than guessing": lambda: theory.logistic_ccm(4, 4, 1.0, 0.8),
    "proportions that do not sum to one": lambda: theory.logistic_ccm(4, 2, 1.0, 0.1, proportions=[0.5, 0.6]),
    "too few proportions": lambda: theory.logistic_ccm(4, 3, 1.0, 0.1, proportions=[0.5, 0.5]),
    "lines that coincide": lambda: theory.ccm_error_rate(1.0, 1.0, 1.0, 3),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_bad_input_says_what_was_seen_why_and_the_ways_out(call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.seen and caught.value.why and caught.value.ways_out


# Errata: the printed form fails, the corrected one holds. See docs/errata.md.


def test_the_class_curvatures_have_rank_one_less_than_printed():
    U = class_curvatures(4, real(0.3).expand(4))
    assert [int(torch.linalg.matrix_rank(U[c])) for c in range(4)] == [3] * 4  # printed: C = 4
    assert int(torch.linalg.matrix_rank(torch.block_diag(*U))) == 12  # printed: C² = 16
    assert float((U @ torch.ones(4).double()).abs().max()) < 1e-16


def test_lemma_b_2_has_one_letter_for_two_and_a_wrong_eigenvalue_in_its_proof():
    a, b, c, d, C = 3.0, 0.5, 0.2, 1.0, 5
    A = torch.full((C - 1, C - 1), c).double().fill_diagonal_(d)
    assert float(torch.linalg.eigvalsh(A)[-1]) == approx(d + c * (C - 2))  # printed: d + c(C - 1)
    B = torch.zeros(C, C).double()
    B[0, 0], B[0, 1:], B[1:, 0], B[1:, 1:] = a, b, b, A
    two = torch.linalg.eigvalsh(torch.tensor([[a, b * (C - 1) ** 0.5], [b * (C - 1) ** 0.5, d + c * (C - 2)]]).double())
    assert_close(torch.linalg.eigvalsh(B), torch.cat([two, real(d - c).expand(C - 2)]).sort().values, atol=1e-6, rtol=0)
    tilde = torch.ones(C).double()
    tilde[0] = 0
    assert float(tilde.norm()) == approx((C - 1) ** 0.5)  # printed: √C


def test_the_proof_of_lemma_8_1_lacks_a_signal_and_the_noise_term():
    t, e, z, U = 3.0, real(1, 0, 0), normal(seeded(), 3), class_curvatures(3, real(0.3).expand(3))[0]
    x = t * e + z
    sides = [(t * t, e, e), (t, e, z), (t, z, e), (1.0, z, z)]
    whole = sum(factor * torch.kron(torch.outer(p, q), U) for factor, p, q in sides)
    assert_close(torch.kron(torch.outer(x, x), U), whole)
    printed = sum(f * torch.kron(torch.outer(p, q), U) for f, p, q in [(t * t, e, e), (t, e, z), (1.0, z, e)])
    assert float((torch.kron(torch.outer(x, x), U) - printed).norm() / whole.norm()) == approx(0.44, abs=0.01)


def test_the_gap_of_the_mini_bulk_follows_misclassification_through_the_signal_alone():
    """At fixed t a larger error rate moves the mini-bulk away from the bulk, the outliers towards it."""
    good, bad = theory.ccm_gaps(10, 5.0, 0.1), theory.ccm_gaps(10, 5.0, 0.5)
    assert bad.outliers_to_mini_bulk < good.outliers_to_mini_bulk and bad.outliers_to_bulk < good.outliers_to_bulk
    assert bad.mini_bulk_to_bulk == approx(2.7308, abs=1e-4) and good.mini_bulk_to_bulk == approx(2.3235, abs=1e-4)


@pytest.mark.parametrize(("alpha", "lines"), [(0.75, [0.5, 0.5, 0.25]), (0.0, [0.0, 0.0, 0.0])])
def test_outliers_are_no_larger_than_the_mini_bulk_at_either_end_of_the_error_rates(alpha, lines):
    """Def. 8.2 has 1/C ≤ 1 - α ≤ 1 with both ends; the order of the three groups takes neither."""
    C, s = 4, 4.0
    spread = alpha / (C - 1) * (2 - alpha * C / (C - 1))
    printed = [alpha / (C - 1) * s * (1 - alpha) + spread, alpha / (C - 1) * s / C + spread, spread]
    assert printed == approx(lines)
    values = torch.linalg.eigvalsh(papyan2020.expected_fisher(6, C, s**0.5, alpha)).flip(0)
    assert values[[0, C, C * (C - 1)]].tolist() == approx(lines, abs=1e-12)


def test_lemma_8_1_takes_probabilities_that_do_not_depend_on_the_noise():
    """A softmax of the very x that it multiplies has another expectation: examples near the boundary carry G."""
    C, D, t, count = 3, 5, 2.0, 20_000
    labels = torch.arange(count) % C
    x = t * torch.eye(D).double()[labels] + normal(seeded(), count, D)
    p = torch.softmax(2 * x[:, :C], 1)
    Us = class_curvatures(C, (1 - p.gather(1, labels[:, None]).mean()).expand(C))  # of symmetric ones, as large
    lemma = torch.kron(torch.eye(D).double(), Us.mean(0))
    lemma[: C * C, : C * C] += t * t / C * torch.block_diag(*Us)
    off = {}
    for name, U in {"own": torch.diag_embed(p) - p[:, :, None] * p[:, None, :], "symmetric": Us[labels]}.items():
        G = torch.einsum("ni,nj,nab->iajb", x, x, U).reshape(D * C, D * C) / count
        off[name] = float((G - lemma).norm() / lemma.norm())
    assert off["symmetric"] < 0.03 and off["own"] == approx(0.63, abs=0.01)
