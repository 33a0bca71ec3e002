"""Kronecker-factored curvature: against dense factors from hooks and autograd, curvlinops, and G itself where exact."""

import pytest
import torch
from curvlinops import KFACLinearOperator
from torch import nn
from torch.nn import functional as F

from ritz.errors import ArgumentError, DataError, ModelError
from ritz.factored import cfac, kfac, khatri_rao_cfac, khatri_rao_kfac, kronecker, kronecker_products
from ritz.factored.second_moments import factored_layers, passes
from ritz.layers.capture import Layers
from ritz.layers.linear import LinearLayer, linear_layers
from ritz.operators import gauss_newton
from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy
from tests.factored.networks import (
    LABELS,
    MODELS,
    OPTIONS,
    WEIGHT,
    built,
    close,
    dense_factors,
    factors_of_example,
    idle_risk,
    in_order_of_theta,
    masses_of,
    risk_of,
    unequal,
)
from tests.zoo import case


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_factors_are_those_of_hooks_and_autograd(name, options):
    risk, model, x = risk_of(name, **options)
    by_kfac, by_cfac = kfac(risk), cfac(risk)
    masses = masses_of(risk, LABELS, options)
    for layer in by_kfac.layers:
        count, Phi, D = dense_factors(model, layer, x, LABELS, masses, risk.total_weight)
        close(by_kfac.layers[layer].operator.dense(), in_order_of_theta(D.sum(0), Phi.sum(0) / count.sum()))
        parts = [in_order_of_theta(D[c], Phi[c] / count[c]) for c in range(3) if count[c] > 0]
        close(by_cfac.layers[layer].operator.dense(), torch.stack(parts).sum(0))


def test_factors_of_classes_average_to_those_of_all():
    risk, _, _ = risk_of("cnn", weight=WEIGHT)
    by_kfac, by_cfac = kfac(risk), cfac(risk)
    for name, layer in by_cfac.layers.items():
        ((errors, features),) = by_kfac.layers[name].factors
        assert float(layer.weights.sum()) == pytest.approx(1.0)
        close(torch.einsum("c,cop->op", layer.weights, layer.errors), errors)
        close(torch.einsum("c,cde->de", layer.weights, layer.features), features)


# curvlinops ----------------------------------------------------------------------------------------------------------


def by_curvlinops(model, x, labels, kind, *, separate):
    parameters = list(model.parameters())
    options = {"fisher_type": "type-2", "kfac_approx": kind, "separate_weight_and_bias": separate}
    K = KFACLinearOperator(model, nn.CrossEntropyLoss(), parameters, unequal(x, labels), **options)
    return K @ torch.eye(K.shape[0], dtype=torch.float64)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("name", ["mlp", "cnn", "tokens"])
def test_kfac_is_that_of_curvlinops(name, joint):
    risk, model, x = risk_of(name)
    close(kfac(risk, joint=joint).operator.dense(), by_curvlinops(model, x, LABELS, "expand", separate=not joint))


@pytest.mark.parametrize("name", ["mlp", "cnn", "tokens"])
def test_diagonal_blocks_across_layers_are_the_reduced_ones_of_curvlinops(name):
    risk, model, x = risk_of(name)
    ours, theirs = khatri_rao_kfac(risk).operator.dense(), by_curvlinops(model, x, LABELS, "reduce", separate=False)
    first = 0
    for layer in kfac(risk).layers.values():
        block = slice(first, first + layer.size)
        close(ours[block, block], theirs[block, block])
        first += layer.size
    assert first == risk.size


# Where it is exact ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"weight": WEIGHT, "label_smoothing": 0.1}])
def test_cfac_is_the_gauss_newton_block_at_one_example_per_class(options):
    risk, _, _ = risk_of("mlp", labels=torch.tensor([2, 0, 1]), **options)
    found = cfac(risk)
    for name, layer in found.layers.items():
        close(layer.operator.dense(), gauss_newton(risk.restricted_to(f"{name}.*")).dense())
    assert float((kfac(risk).operator.dense() - found.operator.dense()).norm()) > 0.1 * float(
        found.operator.dense().norm()
    )


def test_cfac_of_a_convolution_at_one_position_is_exact_too():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3, 3)).double()
        x = torch.randn(3, 2, 3, 3).double()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.tensor([1, 2, 0])))
    close(cfac(risk).layers["0"].operator.dense(), gauss_newton(risk.restricted_to("0.*")).dense())


def test_weights_and_biases_apart_are_exact_on_the_diagonal_alone():
    risk, _, _ = risk_of("mlp", labels=torch.tensor([2, 0, 1]))
    G = gauss_newton(risk.restricted_to("0.*")).dense()
    G[:20, 20:] = G[20:, :20] = 0.0
    close(cfac(risk, joint=False).layers["0"].operator.dense(), G)


def test_across_layers_cfac_is_the_gauss_newton_matrix_at_one_example_per_class():
    risk, _, _ = risk_of("mlp", labels=torch.tensor([2, 0, 1]), weight=WEIGHT)
    G = gauss_newton(risk).dense()
    close(khatri_rao_cfac(risk).operator.dense(), G)
    assert float((khatri_rao_kfac(risk).operator.dense() - G).norm()) > 0.1 * float(G.norm())


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCEWithLogitsLoss(), lambda z, y: ((z - y) ** 4).sum(-1)])
def test_kfac_of_one_example_is_exact_for_any_convex_loss(loss):
    model, x = built("mlp", 1)
    risk = Risk(model, loss, (x, torch.full((1, 3), 0.3).double()))
    for name, layer in kfac(risk).layers.items():
        close(layer.operator.dense(), gauss_newton(risk.restricted_to(f"{name}.*")).dense())


def test_kfac_of_a_single_logit_without_a_class_dimension():
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)).double()
    risk = Risk(model, nn.BCEWithLogitsLoss(), (torch.randn(1, 4).double(), torch.ones(1).double()))
    close(kfac(risk).operator.dense(), gauss_newton(risk).dense())


@pytest.mark.parametrize("class_dim", [-1, 1])
def test_several_terms_of_an_example_do_not_mix(class_dim):
    shape = (5, 3) if class_dim == -1 else (3, 5)
    model = nn.Sequential(nn.Linear(4, 15), nn.Unflatten(1, shape)).double()
    loss = CrossEntropy(class_dim=class_dim, ignore_index=0)
    risk = Risk(model, loss, (torch.randn(1, 4).double(), torch.tensor([[2, 0, 1, 1, 2]])))
    close(kfac(risk).operator.dense(), gauss_newton(risk).dense())


@pytest.mark.parametrize(("build", "name"), [(kfac, "mlp"), (cfac, "mlp"), (kfac, "pixels")])
def test_the_last_layer_needs_no_pass_back(build, name, monkeypatch):
    risk = risk_of("mlp")[0].restricted_to("4.*") if name == "mlp" else _pixels().restricted_to("2.*")
    with monkeypatch.context() as patched:
        patched.setattr(LinearLayer, "returns_terms", lambda *_: False)
        expected = build(risk).operator.dense()
    monkeypatch.setattr(kronecker, "errors_of", None)
    close(build(risk).operator.dense(), expected)


def _pixels():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 4, 1)).double()
    x, y = torch.randn(5, 2, 6, 6).double(), torch.randint(4, (5, 4, 4))
    return Risk(model, nn.CrossEntropyLoss(ignore_index=2), unequal(x, y))


def test_a_term_across_the_channels_of_a_layer_goes_back():
    torch.manual_seed(0)
    risk = Risk(
        nn.Linear(3, 4).double(), CrossEntropy(class_dim=1), (torch.randn(1, 4, 3).double(), torch.ones(1, 4).long())
    )
    layer, forward = Layers.of(risk), Layers.of(risk).forward(next(iter(risk.batches)))
    assert not linear_layers(layer, "A test")[""].returns_terms(forward, 1)
    assert linear_layers(layer, "A test")[""].returns_terms(forward, -1)


def test_memory_counts_the_square_root_of_the_loss():
    torch.manual_seed(0)
    x, y = torch.randn(40, 2).double(), torch.arange(40) % 50
    model, seen = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 50)).double(), []
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y), memory=4 * 10 * 3 * 8 * 50**2)
    layers, linear = factored_layers(risk)
    for batch, *_ in passes(layers, linear, 1):
        seen.append(len(batch))
    assert sum(seen) == 40 and 5 <= max(seen) < 10


# Across layers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 3])
def test_blocks_across_layers_are_kronecker_products_of_joint_moments(groups):
    risk, model, x = risk_of("mlp")
    names, blocks = ["0", "2", "4"], {}
    masses = F.one_hot(LABELS, 3).double().T if groups == 3 else torch.ones(1, len(LABELS)).double()
    rows = [[factors_of_example(model, model.get_submodule(n), xi) for xi in x] for n in names]
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            blocks[i, j] = 0
            for a in masses:
                pairs = list(zip(a, left, right, strict=True))
                Phi = sum(w * f.T @ g for w, (f, _, _), (g, _, _) in pairs) / a.sum()
                D = sum(w * torch.einsum("c,cto,ctp->op", p, d, e) for w, (_, p, d), (_, _, e) in pairs) / len(x)
                blocks[i, j] = blocks[i, j] + torch.einsum("op,de->odpe", D, Phi)
    ours = (khatri_rao_kfac if groups == 1 else khatri_rao_cfac)(risk)
    V = torch.randn(risk.size, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    matrices = [
        torch.cat([v[w].view(o, -1, 2), v[b].view(o, 1, 2)], 1)
        for v, w, b, o in ((V, slice(0, 20), slice(20, 25), 5), (V, slice(25, 45), slice(45, 49), 4),
                           (V, slice(49, 61), slice(61, 64), 3))
    ]  # fmt: skip
    product = []
    for i in range(3):
        M = sum(torch.einsum("odpe,pek->odk", blocks[i, j], matrices[j]) for j in range(3))
        product += [M[:, :-1].flatten(0, 1), M[:, -1]]
    close(ours.operator @ V, torch.cat(product))
    assert float(torch.linalg.eigvalsh(ours.operator.dense()).min()) > -1e-14


# Operators and spectra -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [kfac, cfac])
def test_the_whole_is_block_diagonal_in_the_order_of_theta(build):
    risk, _, _ = risk_of("cnn")
    found = build(risk)
    close(found.operator.dense(), torch.block_diag(*[layer.operator.dense() for layer in found.layers.values()]))


def test_a_bias_before_its_weight_keeps_its_place():
    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias, self.weight = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3, 4))

        def forward(self, x):
            return F.linear(x, self.weight, self.bias)

    x, y = torch.randn(3, 4).double(), torch.tensor([0, 1, 2])
    risk = Risk(Reversed().double(), nn.CrossEntropyLoss(), (x, y))
    found = cfac(risk)
    close(found.operator.dense(), gauss_newton(risk).dense())
    close(found.layers[""].operator.dense(), gauss_newton(risk).dense())


@pytest.mark.parametrize("part", ["0.weight", "0.bias"])
def test_theta_may_hold_only_weights_or_only_biases(part):
    risk, _, _ = risk_of("mlp", labels=torch.tensor([0, 1, 2]))
    restricted = risk.restricted_to(part)
    close(cfac(restricted).operator.dense(), gauss_newton(restricted).dense())


@pytest.mark.parametrize("build", [kfac, cfac, khatri_rao_kfac, khatri_rao_cfac])
def test_spectra_are_those_of_the_dense_matrices(build):
    risk, _, _ = risk_of("cnn")
    found = build(risk)
    ours, dense = found.spectrum(), torch.linalg.eigvalsh(found.operator.dense())
    assert ours.resolution is None and ours.size == risk.size
    torch.testing.assert_close(ours.nodes[0].sort().values, dense, rtol=1e-9, atol=1e-13 * float(dense[-1]))


@pytest.mark.parametrize("build", [cfac, khatri_rao_cfac])
def test_a_sum_over_many_parameters_has_a_quadrature(build, monkeypatch):
    for module in (kronecker, kronecker_products):
        monkeypatch.setattr(module, "DENSE", 30)  # so that small layers are exact and large ones are not
    risk, _, _ = risk_of("cnn")
    found = build(risk)
    ours, dense = found.spectrum(num_steps=12, num_probes=400), torch.linalg.eigvalsh(found.operator.dense())
    assert ours.resolution is not None and ours.size == risk.size and ours.num_probes == 400
    assert ours.range[1] == pytest.approx(float(dense[-1]), rel=1e-3)
    errors = [float(ours.standard_error(lambda s, d=degree: s.moment(d))) for degree in (1, 2)]
    for degree, error in zip((1, 2), errors, strict=True):
        assert abs(ours.moment(degree) - float((dense**degree).mean())) < 4 * error


@pytest.mark.parametrize("build", [kfac, cfac, khatri_rao_kfac, khatri_rao_cfac])
def test_factorisations_multiply_as_operators_do(build):
    risk, _, _ = risk_of("cnn")
    found = build(risk)
    V = torch.randn(risk.size, 2, generator=torch.Generator().manual_seed(0), dtype=risk.dtype)
    close(found @ V, found.operator.dense() @ V)
    close(found @ V[:, 0], (found @ V)[:, 0])
    for layer in found.layers.values() if isinstance(found.layers, dict) else ():
        close(layer @ V[: layer.size], layer.operator.dense() @ V[: layer.size])


def test_factors_of_few_examples_are_multiplied_as_thin_ones():
    generator = torch.Generator().manual_seed(0)
    rows = lambda count, width: torch.randn(count, width, generator=generator, dtype=torch.float64)
    (D, Phi), M = (X.T @ X for X in (rows(5, 4), rows(3, 9))), rows(4, 9)[..., None]
    thin, thick = (
        kronecker_products.thin(D, Phi, False),
        kronecker_products.thin(D, Phi + torch.eye(9), False),
    )
    assert thin[2] and thin[1].shape == (9, 3) and not thick[2]
    torch.testing.assert_close(
        kronecker_products.product([thin], M)[..., 0], D @ M[..., 0] @ Phi, rtol=1e-12, atol=1e-12
    )


def test_parameters_without_influence_have_a_block_of_zeros():
    risk = idle_risk()
    close(cfac(risk).operator.dense(), gauss_newton(risk).dense())
    assert kfac(risk).spectrum().size == risk.size
    assert kfac(risk).spectrum().zero_mass() == pytest.approx(1 - 2 * 3 / 21)  # Δ has rank 2, Φ rank 3


def test_memory_for_one_example_at_a_time_gives_the_same_factors():
    risk, model, x = risk_of("cnn")
    needed = sum(8 * (layer.errors.numel() + layer.features.numel()) for layer in kfac(risk).layers.values())
    needed += risk.batches.held_bytes()
    little = Risk(model, nn.CrossEntropyLoss(), unequal(x, LABELS), memory=needed)
    close(kfac(little).operator.dense(), kfac(risk).operator.dense())
    with pytest.raises(ArgumentError, match="GiB"):
        kfac(Risk(model, nn.CrossEntropyLoss(), unequal(x, LABELS), memory=needed - 1))


def test_an_empty_class_has_no_part_in_it():
    risk, _, _ = risk_of("mlp", labels=torch.tensor([0, 2]))
    found = cfac(risk).layers["0"]
    assert float(found.weights[1]) == 0.0 and not bool(found.errors[1].any()) and not bool(found.features[1].any())
    close(found.operator.dense(), gauss_newton(risk.restricted_to("0.*")).dense())


def test_a_network_that_is_sure_gives_finite_factors():
    model, x = built("mlp", 3)
    with torch.no_grad():
        model[4].weight.mul_(300)
    risk = Risk(model, nn.CrossEntropyLoss(), (x, torch.tensor([0, 1, 2])))
    G = gauss_newton(risk.restricted_to("4.*")).dense()
    assert 0 < float(G.abs().max()) < 1e-8
    close(cfac(risk).layers["4"].operator.dense(), G)
    assert bool(khatri_rao_cfac(risk).operator.dense().isfinite().all())


def test_float32_gives_the_same_to_its_precision():
    risk, model, x = risk_of("cnn")
    single = Risk(model.float(), nn.CrossEntropyLoss(), unequal(x.float(), LABELS))
    for build in (kfac, cfac, khatri_rao_kfac, khatri_rao_cfac):
        ours, exact = build(single).operator.dense(), build(risk).operator.dense()
        assert ours.dtype == torch.float32
        assert float((ours.double() - exact).norm()) < 1e-5 * float(exact.norm())


# Refused -------------------------------------------------------------------------------------------------------------


def zoo_risk(name, *, parameters="*"):
    found = case(name)
    targets = torch.arange(torch.Size(found.shape[:-1]).numel()).view(found.shape[:-1]) % 3
    return Risk(found.model, CrossEntropy(), (found.inputs, targets), parameters=parameters)


@pytest.mark.parametrize("name, layer", [("cnn", r"1 \(scale\), 7 \(scale\)"), ("recurrent", "gru")])
def test_other_layers_are_refused_by_name(name, layer):
    with pytest.raises(ModelError, match=layer):
        kfac(zoo_risk(name))


def test_grouped_convolutions_are_refused_by_name():
    with pytest.raises(ModelError, match=r"groups: conv2\."):
        kfac(zoo_risk("residual", parameters=["conv*", "head.*"]))


def test_tied_parameters_are_refused_by_name():
    with pytest.raises(ModelError, match=r"tokens"):
        kfac(zoo_risk("transformer", parameters=["tokens.*", "mlp.*"]))


def test_a_risk_may_be_restricted_to_what_is_linear():
    found = kfac(zoo_risk("transformer", parameters=["qkv.*", "out.*", "mlp.*"]))
    assert list(found.layers) == ["qkv", "out", "mlp.0", "mlp.2"]
    assert float(torch.linalg.eigvalsh(found.operator.dense()).min()) > -1e-14


@pytest.mark.parametrize("build", [cfac, khatri_rao_cfac])
def test_classes_need_labels_one_for_each_example(build):
    model, x = built("mlp")
    with pytest.raises(DataError, match="SquaredError"):
        build(Risk(model, nn.MSELoss(), (x, torch.zeros(11, 3).double())))
    with pytest.raises(DataError, match="several labels"):
        build(zoo_risk("transformer", parameters="mlp.*"))
