"""The house: who may import whom. `python -m tests.house_map` draws it into CONTRIBUTING.md."""

import ast

import pytest

from tests.house_map import house_map
from tests.source import ROOT, SOURCE, imports, modules

# Every folder with its files, low to high: what stands later imports what stands earlier, never the other way round.
HOUSE = """
ritz: errors progress record spectrum risk engine operators solvers layers factored classes theory plot testing checks
      analysis lab papers integrations cli __main__
record: files json_values arrays pictures locks origin claims records
risk: memory distributed precision randomness losses parameters model batches fingerprints data first_evaluation risk
      class_terms data_by_class
risk.losses: loss cross_entropy squared_error binary_cross_entropy by_autograd conversion
engine: agreement timing rules paths batching path_choice product
engine.rules: bilinear pointwise norms attention dispatch
solvers: vectors probes basis ritz_pairs thick_restart eigen lanczos_recursion densities traces ranks masses damping
      determinants conditioning
layers: uses readers capture linear jacobian_rows
factored: second_moments gram_parts gram_assembly gram kronecker_products kronecker khatri_rao
classes: scatter knockouts gradients layers lines
classes.gradients: pullback means term_gradients part_products decomposition
classes.layers: passes feature_structure error_structure weight_structure
classes.lines: shares knockout_spectra findings attributions
theory: bases closed_form comparison layer_products arguments inner_products laws assumptions deep_linear aligned_layers
      two_layer_compression single_output scalar_networks several_inputs outlier_pairs attention logistic_regression
plot: figures density_plots scree_plots scatter_plots
checks: draws oracles check linear2026 papyan2020 singh2026 singh2026_attention table
analysis: spectrum classes
analysis.spectrum: settings contents measurement forecasts pictures
analysis.classes: results layer_choice attribution_arrays layer_spectra kronecker_spectra measurement pictures
lab: data init models training ensemble workers sweeps
lab.data: examples sources archives images texts transforms synthetic
lab.models: build fully_connected attention convolutional transformers pretrained
lab.training: batches scores schedules rates series run_file loop one_network linear_networks
lab.ensemble: weights networks block_lanczos curvature training
papers: frame linear2026 singh2026 singh2024
papers.frame: statistics pictures statements accuracy figure overrides results registry
papers.linear2026: paper data networks setting curves imbalance_statements pictures closed_form along_training imbalance
papers.singh2026: paper trained_networks two_layer_coefficients correlations scale deep pairs relu evolution
      edge_of_stability attention_descent edge_by_reading attention_edge attention attention_sinks pretraining gpt
      gpt_sinks
papers.singh2024: poster
integrations: curvlinops
cli: options failures tables target spectrum demo classes claims papers verification commands
"""
ORDER = {
    name: files.split() for name, files in (line.split(":") for line in HOUSE.replace("\n   ", "").splitlines() if line)
}
every_module = pytest.mark.parametrize("parts, tree", list(modules()))


def above(mine, other):
    """Whether a module may import another: where their paths part, its own branch stands later."""
    for depth, (a, b) in enumerate(zip(mine, other, strict=False)):
        if a != b:
            order = ORDER[".".join(mine[:depth]) or "ritz"]
            return a == "__init__" or order.index(a) > order.index(b)
    return True


def test_the_house_is_as_it_is_written_here():
    folders = {path.parent for path in SOURCE.rglob("__init__.py")}
    for folder in folders:
        name = ".".join(folder.relative_to(SOURCE).parts) or "ritz"
        inside = {p.stem for p in folder.glob("*.py")} | {p.name for p in folder.iterdir() if p in folders}
        assert inside - {"__init__"} == set(ORDER[name]), name
    assert len(folders) == len(ORDER) and len([path for path in SOURCE.iterdir() if path.is_file()]) <= 8


@every_module
def test_imports_go_one_way(parts, tree):
    for other, name in imports(parts, tree, ORDER):
        assert other, f"{name} has a home of its own: the names of `ritz` itself are for users"
        assert above(parts, other), f"{'.'.join(parts)} must not import {'.'.join(other)}"
        assert not name.startswith("_") or other[0] == parts[0], f"{name} is private to {'.'.join(other)}"


def test_contributing_shows_this_map():
    assert house_map(ORDER) in (ROOT / "CONTRIBUTING.md").read_text(), "python -m tests.house_map draws it anew"


def test_the_rules_can_say_no():
    code = "from ..cli import app\nif x:\n    from ritz.lab import data\n    data._private\nimport ritz.engine"
    seen = set(imports(("risk", "precision"), ast.parse(code), ORDER))
    assert seen == {(("cli",), "app"), (("lab", "data"), ""), (("lab", "data"), "_private"), (("engine",), "")}
    assert not any(above(("risk", "precision"), other) for other, _ in seen)
    assert above(("engine", "product"), ("engine", "paths")) and above(("engine", "paths"), ("risk", "risk"))
