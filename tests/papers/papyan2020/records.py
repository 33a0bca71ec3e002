"""Records of the figures with numbers that agree with the papers or contradict them."""

import numpy as np

from ritz.papers.frame.registry import figures
from ritz.papers.papyan2020 import (
    batch_norm,
    components,
    deflation,
    hessian_numbers,
    hessians,
    inheritance,
    knockouts,
    tail,
)
from tests.papers.singh2026.records import record_with

FIGURES = figures(["papyan2020.*", "papyan2019.*"])
TOP = np.linspace(20.0, 11.0, 10)  # C outliers


def entry(prefix, nodes, weights, *, values=(), outliers=0, size=10**6, steps=128, missed=0.0):
    """A spectrum under a prefix, as `spectra.named` puts it: the outliers first, of one eigenvalue each."""
    values, nodes, weights = (np.asarray(part, dtype=float) for part in (values, nodes, weights))
    apart = values[:outliers]
    bulk = weights * (1 - outliers / size) / weights.sum()
    return {
        f"{prefix}/nodes": np.concatenate([apart, nodes])[None],
        f"{prefix}/weights": np.concatenate([np.full(outliers, 1 / size), bulk])[None],
        f"{prefix}/values": values,
        f"{prefix}/residuals": np.full(len(values), missed * np.abs(values).max(initial=0.0)),
        f"{prefix}/facts": {"size": size, "resolution": 0.1, "outliers": outliers, "num_steps": steps},
    }


def certified(gap_at, factor=5.0):
    """Twenty eigenvalues that fall slowly but for one gap behind so many."""
    values = np.linspace(20.0, 11.0, 20)
    return np.where(np.arange(20) < gap_at, values, values / factor)


def hessian_entries(prefix, agree, *, scale=1.0):
    values = scale * certified(10 if agree else 4)
    bulk = ([-1.0, 0.0, 1.0], [0.02, 0.96, 0.02]) if agree else ([0.5, 1.0, 2.0], [0.1, 0.1, 0.8])
    nodes = scale * np.array(bulk[0])
    near = values[:10] if agree else values[:10] + 5.0
    plain = np.concatenate([nodes, near])
    missed = 0.0 if agree else 0.1
    return {
        **entry(
            f"{prefix}/deflated",
            nodes,
            bulk[1],
            values=values,
            outliers=10,
            steps=128 if agree else 4,
            missed=missed,
            size=28 * 10**6 if agree else 10**6,
        ),
        **entry(f"{prefix}/plain", plain, np.ones(len(plain)), steps=128),
    }


def hessian_record(agree):
    result = {"errors": {"mnist": {"last_train_error": 0.0, "last_test_error": 0.005 if agree else 0.5}}}
    for part in hessian_numbers.PARTS:
        larger = 10.0 if agree and part == "test" else 1.0
        result |= hessian_entries(f"mnist/{part}", agree, scale=larger)
    nodes, weights, values = [-1.0, 0.0, 1.0], [0.02, 0.96, 0.02], certified(10)
    for name, shift in (("tf32", 1.0), ("float32", 1.0 if agree else 2.0)):
        result |= entry(f"check/{name}", shift * np.array(nodes), weights, values=shift * values, outliers=10)
    factor = 1.0 if agree else 3.0
    result |= entry("check/whole", factor * np.array(nodes), weights, values=factor * values, outliers=10)
    return record_with(hessians.Config(("mnist",)), result)


def component_record(agree):
    """G with the outliers, E with the bulk, and the tails as they are said to be; or the other way round."""
    result = {"network": {}}
    G = certified(10)
    unit = np.array([-1.0, 0.0, 1.0])
    for part in hessian_numbers.PARTS:
        train = part == "train"
        if agree:
            H, ends = 1.01 * G, {"H": 1.0, "G": 0.1 if train else 1.0, "E": 1.0 if train else 0.8}
            masses = {"H": [1, 10, 1], "G": [1, 200, 1] if train else [1, 50, 1], "E": [1, 10, 1]}
        else:
            H, ends = np.where(np.arange(20) < 10, 3 * G, G - 2.0), {"H": 1.0, "G": 1.0 if train else 0.01, "E": 40.0}
            masses = {matrix: [1, 1, 1] for matrix in "HGE"}
        for matrix, values in (("H", H), ("G", G), ("E", ())):
            apart = {"values": values, "outliers": 0 if matrix == "E" else 10}
            result |= entry(f"{part}/{matrix}", ends[matrix] * unit, masses[matrix], **apart)
    return record_with(components.Config(), result)


def power_law(exponent, prefactor, least):
    """Nodes whose density is prefactor · |λ|^exponent on both sides of zero, and the rest of all mass at zero."""
    x = np.geomspace(least, 1.0, 3000)
    mass = prefactor * x ** (exponent + 1) * np.log(x[1] / x[0])
    return np.concatenate([-x, x, [0.0]]), np.concatenate([mass, mass, [1 - 2 * mass.sum()]])


def tail_record(agree):
    seeds = (0, 1)
    result = {"test_errors": np.zeros(2)}
    for seed in seeds:
        nodes, weights = power_law(-2.7, 1.2e-4, 0.02) if agree else (np.linspace(0.1, 1.0, 40), np.ones(40))
        result |= entry(f"seed {seed}", nodes, weights, steps=201)
    nodes, weights = power_law(-2.2, 0.6e-4, 5e-4) if agree else (np.linspace(0.1, 1.0, 40), np.ones(40))
    result |= entry("long", nodes, weights, steps=201)
    return record_with(tail.Config(seeds=seeds), result)


def deflation_record(agree):
    result = {"last_errors": np.zeros((2, 2))}
    for seed in (0, 1):
        result |= hessian_entries(f"seed {seed}", agree)
    return record_with(deflation.Config(seeds=(0, 1)), result)


def pattern_record(agree):
    """Exact eigenvalues of G and of G_within, as Fig. 1 has them in print, or without any gap."""
    halves = (1.0, 0.3, 0.3, 0.1) if agree else (1.0, 0.5, 0.1, 0.05)  # with a gap, it is no bulk
    bulk = np.concatenate([np.linspace(*halves[:2], 1000), np.linspace(*halves[2:], 1000)])
    apart = [1000.0, *np.linspace(300, 200, 9), *np.linspace(50, 5, 90)] if agree else np.full(3000, 1.2)
    result = {"0/exact/facts": {"size": 10**6}}
    for name, values in (("G", [*apart, *bulk]), ("only_within", bulk), ("only_cross", apart), ("only_class", apart)):
        result |= {f"0/exact/{name}/nodes": np.array(values), f"0/exact/{name}/counts": np.ones(len(values))}
    return record_with(knockouts.PRESETS["smoke"], result)


def inheritance_record(agree):
    cosine, table = (0.99, np.eye(10)) if agree else (0.1, np.ones((10, 10)))
    result = {"class_cosines": np.full((3, 10), cosine), "cross_cosines": np.full((3, 10, 10), cosine)}
    result |= {"whole_cosines": np.full(10, cosine), "in_class_means": np.full(10, cosine)}
    result |= {"table_features": np.eye(10), "table_errors": table, "table_gradients": table}
    return record_with(inheritance.Config(), {**result, "overlap": cosine * np.eye(10), "layers": []})


def batch_norm_record(agree):
    """Outliers nearer to the rest with batch norm, and made of products of means; or further, and of nothing else."""
    result, heights = {}, (5.0, 50.0) if agree else (1.05, 1.0)  # with, and without
    for kind, height in zip(batch_norm.KINDS.values(), heights, strict=True):
        known, share = 0.99 if agree else 0.1, {"without": 0.8}.get(kind, 0.1 if agree else 0.9)
        result |= {f"0/{kind}/values": np.concatenate([np.full(10, height), np.ones(10)])}
        result |= {f"0/{kind}/global_share": np.full(8, share), f"0/{kind}/class_size": np.full(8, share)}
        result |= {f"0/{kind}/in_global": known, f"0/{kind}/in_class": known}
    return record_with(batch_norm.Config(seeds=(0,)), result)
