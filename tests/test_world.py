"""Who may touch the world: files, standard output, global seeds, the environment, pictures."""

import ast

import pytest

from tests.house_map import ORDER
from tests.source import calls, code, every_module, imports, modules, packages

DRAWS = {"plot", "papers"}
FILES = {"open", "save", "savez", "savetxt", "tofile", "write_text", "write_bytes", "read_text", "read_bytes"}
OURS = {"self.save", "record.save", "record.write_arrays", "record.read_arrays"}
GLOBAL = {"print", "torch.manual_seed", "torch.seed", "torch.set_rng_state", "random.seed", "np.random.seed"}
BELOW_LAB = ORDER["ritz"][: ORDER["ritz"].index("lab")]
every_module_below_lab = pytest.mark.parametrize("parts", list(modules(folders=BELOW_LAB)))


@every_module
def test_only_pictures_import_matplotlib(parts):
    assert parts[0] in DRAWS or "matplotlib" not in set(packages(code(parts)))


@pytest.mark.parametrize("parts", list(modules(folders=["theory"])))
def test_theory_knows_only_spectra(parts):
    others = {other[0] for other, _ in imports(parts, code(parts), ORDER)}
    assert others <= {"theory", "spectrum", "errors", "arguments"}


@every_module_below_lab
def test_below_the_lab_only_record_touches_files(parts):
    if parts == ("risk", "memory"):  # which asks the system what is free
        return
    assert parts[0] == "record" or not {c for c in calls(code(parts)) if c.split(".")[-1] in FILES} - OURS


@every_module_below_lab
def test_below_the_lab_nothing_prints_seeds_or_reads_the_environment(parts):
    assert not GLOBAL & calls(code(parts))
    text = ast.unparse(code(parts))
    assert "os.environ" not in text and "os.getenv" not in text


def test_the_rules_can_say_no():
    tree = ast.parse("import matplotlib.pyplot\nprint(1)\nnp.save('a', 1)")
    assert "matplotlib" in set(packages(tree)) and GLOBAL & calls(tree) and "np.save" in calls(tree) - OURS
