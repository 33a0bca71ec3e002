"""`ritz verify` runs every result, reports what it found, and can say no."""

import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from ritz import checks as verify
from ritz import theory
from ritz.checks import singh2026
from ritz.checks.check import Check
from ritz.checks.draws import normal, scale, whole, width
from ritz.checks.oracles import dense_gauss_newton, dense_hessian
from ritz.checks.papyan2020_oracles import any_labels
from ritz.cli import app
from ritz.cli.verification import table
from tests.seeds import seeded

ROOT = Path(__file__).parents[2]


def wrong_by(relative):
    """A check whose closed form is off by a relative error."""
    return Check(
        "wrong",
        "nobody",
        "eq (0)",
        lambda generator: (normal(generator, 3),),
        lambda w: theory.ClosedForm([theory.Group("a", float(w @ w) * (1 + relative)), theory.Group("b", 0.0, 2)]),
        lambda w: torch.outer(w, w),
        lambda generator: {"w = 0": (torch.zeros(3, dtype=torch.float64),)},
    )


def test_every_check_holds_on_random_draws():
    found = list(verify.rows(draws=5, generator=seeded()))
    assert len(found) == len(verify.all_checks()) >= 17
    assert [row.result for row in found if not row.passed] == []
    assert all(row.draws >= 5 and row.paper and row.equation for row in found)


def check_named(result):
    return next(check for check in verify.all_checks() if check.result == result)


def test_a_log_spectrum_holds_where_two_magnitudes_are_close():
    values = torch.tensor([-1.0422, -0.9393, 1.0437], dtype=torch.float64)  # a width of a quarter of the grid's step
    assert verify.deviation(check_named("log spectrum"), (values.diag(), 3, 0)).small


def test_the_range_is_checked_before_the_last_step():
    # with n steps the residual is zero but for rounding, which a recursion without a basis lets grow
    check = check_named("Normalization")
    assert all(steps < len(A) for A, steps, _ in (check.draw(seeded(seed)) for seed in range(200)))


def test_a_run_checks_the_same_whatever_ran_before():
    first, second = (seeded(7), seeded(7))
    runs = [[any_labels(generator)[0] for _ in range(count)] for generator, count in ((first, 3), (second, 7))]
    assert [id(one) for one in runs[0]] == [id(one) for one in runs[1][:3]]
    assert runs[1][5] is runs[1][0] and len(set(map(id, runs[1]))) == 5
    assert any_labels(first)[0] is runs[1][3]  # and it goes on where it was


def test_no_two_results_have_the_same_name():
    names = [(check.paper, check.result) for check in verify.all_checks()]
    assert len(set(names)) == len(names)


def test_a_wrong_formula_fails():
    (row,) = verify.rows([wrong_by(1e-8)], draws=3, generator=seeded())
    assert not row.passed and 0.5e-8 < row.values < 2e-8
    assert row.worst.startswith("draw") and row.vectors is None and row.draws == 4
    (row,) = verify.rows([wrong_by(1e-14)], draws=3, generator=seeded())
    assert row.passed


def test_eigenvectors_that_are_not_orthonormal_fail():
    same = lambda count: torch.full((2, count), 0.5**0.5, dtype=torch.float64)
    closed_form = lambda: theory.ClosedForm([theory.Group("a", 1.0, 2, same)])
    check = Check("skew", "nobody", "eq (0)", lambda _: (), closed_form, lambda: torch.eye(2, dtype=torch.float64))
    assert not verify.deviation(check, ()).small


def test_the_table_has_a_line_for_each_result():
    rows = list(verify.rows([singh2026.CHECKS[0], wrong_by(0.1)], draws=2, generator=seeded()))
    lines = table(rows).splitlines()
    assert len(lines) == 3 and "Thm 3.1-3.3" in lines[1] and "FAILS" not in lines[1]
    assert lines[2].endswith("FAILS") and "nobody" in lines[2]


def test_the_command_prints_the_table_and_its_seed(monkeypatch):
    monkeypatch.setattr("ritz.checks.table.all_checks", lambda: singh2026.CHECKS[:2])
    result = CliRunner().invoke(app, ["verify", "--draws", "2", "--seed", "3"])
    assert result.exit_code == 0 and "linear network, G" in result.output and "seed 3" in result.output
    assert CliRunner().invoke(app, ["verify", "--draws", "2"]).exit_code == 0


def test_the_command_fails_where_a_result_does(monkeypatch):
    monkeypatch.setattr("ritz.checks.table.all_checks", lambda: (wrong_by(0.1),))
    result = CliRunner().invoke(app, ["verify", "--draws", "2", "--seed", "3"])
    assert result.exit_code == 1 and "FAILS" in result.output and "--seed 3" in result.output


def test_oracles_are_flat_in_the_order_given():
    a, B = normal(seeded(), 2), normal(seeded(1), 2, 3)
    H = dense_hessian(lambda a, B: (a @ B).square().sum() / 2, a, B)
    assert_close(H[:2, :2], B @ B.T)
    assert_close(H[2:, 2:], torch.kron(torch.outer(a, a), torch.eye(3, dtype=torch.float64)))
    G = dense_gauss_newton(lambda a, B: a @ B, a, B)
    assert_close(3 * G[:2, :2], B @ B.T)


@pytest.mark.parametrize("seed", range(20))
def test_draws_stay_in_their_range(seed):
    generator = seeded(seed)
    assert 1e-3 <= scale(generator) <= 1e3
    assert 1 <= whole(generator, 1, 3) <= 3
    assert 2 <= width(generator, 2, 9) <= 9


def test_every_row_of_the_errata_links_to_a_test_that_exists():
    links = re.findall(r"\(\.\./(tests/\w+/\w+\.py)#:~:text=(\w+)\)", (ROOT / "docs" / "errata.md").read_text())
    assert len(links) > 30
    missing = [name for file, name in links if f"def {name}(" not in (ROOT / file).read_text()]
    assert missing == []
