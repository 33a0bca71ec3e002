"""Solvers that were killed go on from their file to the same bits, and from no other file."""

import contextlib
import functools
import itertools
import os
import signal

import numpy as np
import pytest
import torch

import ritz
from ritz.errors import ConvergenceWarning, FileError
from ritz.record import checkpoints, read_arrays, write_arrays
from ritz.record.layouts import layout_of
from ritz.solvers import resumption
from ritz.solvers.stages import stages_of_risk

from .memory import with_room
from .spectra import linspace, with_eigenvalues

SIZE = 700  # above what is solved exactly
SOLVERS = {
    "eigenpairs": lambda A, **options: ritz.eigenpairs(A, 4, tolerance=1e-8, **options),
    "both ends, in blocks": lambda A, **options: ritz.eigenpairs(A, 4, which="both", block_size=2, **options),
    "density": lambda A, **options: ritz.spectral_density(A, num_steps=20, num_probes=9, **options),
    "trace": lambda A, **options: ritz.trace(A, num_products=100, **options),
    "exact trace": lambda A, **options: ritz.trace(A, num_products=SIZE, **options),
    "density with outliers": lambda A, **options: ritz.spectral_density(A, num_steps=12, outliers=2, **options),
}


class Killed(BaseException):
    """Not an Exception: nobody catches it."""


MATRIX = functools.cache(lambda: with_eigenvalues(torch.cat([linspace(-1, 1, SIZE - 6), linspace(2, 4, 6)])))


def operator(after=None):
    """A matrix of 700 rows; after so many products, no more."""
    A, left = MATRIX(), [after]

    def product(V):
        if left[0] is not None:
            left[0] -= V.shape[1]
            if left[0] < 0:
                raise Killed
        return A.matmat(V)

    return ritz.Operator(product, A.size, A.dtype, A.device)


def bits(result):
    if isinstance(result, ritz.Estimate):
        return [torch.tensor([result.value, result.standard_error, result.num_products], dtype=torch.float64)]
    return [tensor for tensor in vars(result).values() if isinstance(tensor, torch.Tensor)]


@pytest.fixture
def eager(monkeypatch):
    """Files are written before every step."""
    ticks = itertools.count(step=1000.0)
    monkeypatch.setattr(checkpoints, "SHARE", 0)
    monkeypatch.setattr(checkpoints, "monotonic", lambda: next(ticks))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_killed_again_and_again_gives_the_same_bits(tmp_path, name):
    whole = SOLVERS[name](operator(), checkpoint=tmp_path / "whole.npz", generator=torch.Generator().manual_seed(1))
    attempts, result, products = 0, None, 160 if name == "exact trace" else 16
    while result is None:
        try:
            source = torch.Generator().manual_seed(1)
            result = SOLVERS[name](
                operator(after=products),
                checkpoint=tmp_path / "killed.npz",
                generator=source,
            )
        except Killed:
            attempts += 1
            assert attempts < 100, "it does not get on"
    assert attempts > 1
    assert all(torch.equal(one, other) for one, other in zip(bits(result), bits(whole), strict=True))
    after = torch.Generator().manual_seed(1)
    again = SOLVERS[name](operator(after=1), checkpoint=tmp_path / "killed.npz", generator=after)  # is read alone
    assert all(torch.equal(one, other) for one, other in zip(bits(again), bits(whole), strict=True))
    assert torch.equal(after.get_state(), source.get_state())


@pytest.mark.usefixtures("eager")
def test_a_density_that_has_found_all_eigenvalues_is_read_to_the_same_bits(tmp_path):
    A = with_eigenvalues(linspace(-1, 1, 20))
    whole, again = (ritz.spectral_density(A, num_steps=30, checkpoint=tmp_path / "a.npz") for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(bits(again), bits(whole), strict=True))


@pytest.mark.parametrize("before, after", [(24, 12), (12, 24), (16, 4)])
def test_a_density_goes_on_where_there_is_another_room(tmp_path, before, after):
    density = lambda A, **options: ritz.spectral_density(A, num_steps=20, num_probes=8, **options)
    with pytest.raises(Killed):
        density(with_room(operator(after=40), before), checkpoint=tmp_path / "x.npz")
    result, whole = density(with_room(operator(), after), checkpoint=tmp_path / "x.npz"), density(operator())
    assert result.num_probes == 8 and result.num_products == 160
    assert result.wasserstein(whole) < 1e-6


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["eigenpairs", "density", "trace"])
def test_the_file_of_a_search_holds_few_vectors(tmp_path, name):
    for after in (10, 20, 30):
        with pytest.raises(Killed):
            SOLVERS[name](operator(after), checkpoint=tmp_path / f"{after}.npz")
        arrays, _ = read_arrays(tmp_path / f"{after}.npz")
        vectors = sum(array.size // SIZE for array in arrays.values() if array.shape[-1:] == (SIZE,))
        assert 0 < vectors <= (2 * 4 if name == "eigenpairs" else 0) + 12


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "other, what",
    [
        (lambda A, path: ritz.eigenpairs(A, 5, tolerance=1e-8, checkpoint=path), "settings"),
        (lambda A, path: ritz.eigenpairs(2 * A, 4, tolerance=1e-8, checkpoint=path), "operator"),
        (
            lambda A, path: ritz.eigenpairs(A, 4, tolerance=1e-8, checkpoint=path, generator=torch.Generator()),
            "generator",
        ),
        (lambda A, path: ritz.spectral_density(A, num_steps=9, checkpoint=path), "solver"),
        (lambda A, path: ritz.trace(A, checkpoint=path), "solver"),
    ],
)
def test_a_file_of_another_computation_is_refused_with_what_differs(tmp_path, other, what):
    path = tmp_path / "x.npz"
    with pytest.raises(Killed):
        ritz.eigenpairs(operator(30), 4, tolerance=1e-8, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(FileError, match=f"different .*{what}"):
        other(operator(), path)
    assert path.read_bytes() == before


@pytest.fixture
def as_on_a_gpu(monkeypatch, eager):
    """Products are known to rounding alone: sums are not the same from run to run."""
    monkeypatch.setattr(resumption, "_repeats", lambda A: False)


def noisy(A, relative, seed):
    """The operator with other rounding in every product, in float32."""
    source = torch.Generator().manual_seed(seed)
    product = lambda V: A.matmat(V.double()) * (1 + relative * torch.randn(V.shape, generator=source))
    return ritz.Operator(lambda V: product(V).float(), A.size, torch.float32, A.device)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_an_operator_is_known_to_its_rounding_where_products_do_not_repeat(tmp_path):
    path, search = tmp_path / "x.npz", lambda A: ritz.eigenpairs(A, 4, checkpoint=path)
    with pytest.raises(Killed):
        search(noisy(operator(15), 1e-6, 0))
    first = search(noisy(operator(), 1e-6, 1))
    for seed in range(2, 40):
        assert torch.equal(search(noisy(operator(after=1), 1e-6, seed)).vectors, first.vectors)  # is read alone


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("other", [lambda A: -A, lambda A: 1.002 * A, lambda A: A + 0.01, lambda A: 0 * A])
@pytest.mark.parametrize("after", [15, None])
def test_another_operator_is_another_where_products_do_not_repeat(tmp_path, other, after):
    path, search = tmp_path / "x.npz", lambda A: ritz.eigenpairs(A, 4, checkpoint=path)
    with contextlib.suppress(Killed):
        search(noisy(operator(after), 1e-6, 0))
    before = path.read_bytes()
    with pytest.raises(FileError, match="different operator"):
        search(other(noisy(operator(), 1e-6, 1)))
    assert path.read_bytes() == before


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("numbers", [None, [], [1.0], "text", [float("nan")] * 9])
def test_a_file_that_does_not_tell_its_operator_is_refused(tmp_path, numbers):
    path = tmp_path / "x.npz"
    with pytest.raises(Killed):
        SOLVERS["eigenpairs"](operator(30), checkpoint=path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, "operator": numbers})
    with pytest.raises(FileError, match=r"different operator|is damaged"):
        SOLVERS["eigenpairs"](operator(), checkpoint=path)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_stages_are_known_to_rounding_where_products_do_not_repeat(tmp_path):
    x, y, linear = torch.linspace(-1, 1, 18).view(6, 3).sin(), torch.arange(6) % 2, torch.nn.Linear(3, 2)

    def pairs(layer, found):
        model = torch.nn.Sequential(linear, layer).eval()
        risk = ritz.Risk(model, torch.nn.CrossEntropyLoss(), [(x[:4], y[:4]), (x[4:], y[4:])])
        compute = lambda: ritz.eigenpairs(ritz.gauss_newton(risk), 2) if found else pytest.fail("it is known")
        return stages_of_risk(tmp_path, risk).pairs("pairs", compute, torch.device("cpu"))

    assert torch.equal(pairs(torch.nn.Tanh(), True).vectors, pairs(torch.nn.Tanh(), False).vectors)
    with pytest.raises(FileError, match="different operator"):
        pairs(torch.nn.Sigmoid(), True)


def gone(name):
    return lambda arrays, header: (arrays if name in arrays else header).pop(name)


def kind(name, dtype):
    return lambda arrays, header: arrays.update({name: arrays[name].astype(dtype)})


def array(name, change):
    return lambda arrays, header: arrays.update({name: change(np.array(arrays[name]))})


def fact(name, value):
    return lambda arrays, header: header.update({name: value})


def doubled(values):
    return np.concatenate([values, values])


def with_nan(values):
    values.flat[values.size // 2] = np.nan
    return values


def tilted(rows):
    return rows + 0.1 * rows[::-1]


def entry(place, value):
    def change(values):
        values[place] = value
        return values

    return change


DAMAGE = {
    ("eigenpairs", 30): [
        *(gone("H"), gone("certificates"), kind("basis", np.complex64), kind("H", np.float32), kind("B", np.float32)),
        *(array("basis", with_nan), array("basis", lambda rows: rows[:, :-1]), array("basis", doubled)),
        *(array("basis", tilted), array("H", entry((0, 1), 0.5)), array("B", doubled)),
        *(array("H", lambda _: np.array(["text"])), lambda arrays, _: arrays.update(seen=np.zeros(4))),
        *(fact("num_products", -3), fact("num_products", 1.5), fact("num_products", 3), fact("block_size", 0)),
        *(fact("locked", True), fact("locked", 99), fact("scale", float("nan")), fact("scale", 10**30)),
        *(fact("certificates", 3), fact("suspect", None), fact("over", "text"), fact("has_seen", True)),
    ],
    ("density", 130): [
        *(gone("0/residual"), kind("alpha", np.float32), array("0/diagonal", lambda values: values[:, :-1])),
        *(array("beta", doubled), array("current", doubled), array("current", lambda rows: 2 * rows)),
        *(array("alpha", entry((0, 0), 1e3)), array("beta", entry((0, 0), -0.1)), array("alpha", entry((-1, 0), 1.0))),
        *(fact("runs", []), fact("runs", [[6, 21]]), fact("count", 20), fact("count", -1), fact("probes", 4)),
    ],
    ("trace", 60): [
        *(array("samples", lambda values: values[:-1]), array("samples", doubled), kind("samples", np.complex64)),
        *(array("rows", tilted), array("energies", with_nan), gone("rows"), fact("is_whole", None)),
        *(fact("is_whole", False), fact("block", 1.5), fact("count", 13), fact("samples", 10**30), fact("energies", 3)),
    ],
    ("eigenpairs", None): [
        *(kind("values", np.float32), array("vectors", doubled), gone("doubts"), fact("num_products", 0)),
        *(fact("basis_size", None), fact("size", 699), array("converged", doubled), gone("generator")),
    ],
    ("density", None): [
        *(gone("reach"), kind("nodes", np.float32), array("generator", lambda state: state[:-1])),
        *(lambda arrays, header: header["facts"].update(size=699), gone("facts")),
        *(lambda arrays, header: header["facts"].update(num_products=0),),
    ],
    ("trace", None): [
        *(fact("value", 10**30), fact("value", None), fact("standard_error", None), fact("standard_error", -1.0)),
        *(fact("num_products", 101), gone("generator")),
    ],
}


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """The files of solvers that ended after so many products, or were over."""
    folder, files = tmp_path_factory.mktemp("files"), {}
    ticks = itertools.count(step=1000.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "SHARE", 0)
        patch.setattr(checkpoints, "monotonic", lambda: next(ticks))
        for name, after in DAMAGE:
            files[name, after] = folder / f"{name}-{after}.npz"
            with contextlib.suppress(Killed):
                SOLVERS[name](operator(after), checkpoint=files[name, after])
    return files


@pytest.mark.parametrize("which, damage", [(which, damage) for which, ways in DAMAGE.items() for damage in ways])
def test_a_file_that_no_computation_writes_is_refused_and_left_alone(tmp_path, left_behind, which, damage):
    """Its writer knows the format: the file agrees with itself."""
    arrays, header = read_arrays(left_behind[which])
    damage(arrays, header)
    path = write_arrays(tmp_path / "x.npz", arrays, {**header, "layout": layout_of(arrays)})
    before, source = path.read_bytes(), torch.Generator().manual_seed(0)
    state = source.get_state()
    with pytest.raises(FileError, match="is damaged"):
        SOLVERS[which[0]](operator(), checkpoint=path, generator=source)
    assert path.read_bytes() == before and torch.equal(source.get_state(), state)


@pytest.mark.usefixtures("eager")
def test_a_search_goes_on_from_each_of_its_files(tmp_path, monkeypatch):
    """Copies of eigenvalues, sought to a tolerance out of reach: rows are set aside that are not quite alone."""
    d = torch.cat([linspace(-1, 1, 585), torch.tensor([3.0, 4.0, -3.0]).repeat_interleave(5)]).float()[:, None]
    u = torch.randn(600, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    u = (u / u.norm()).float()
    reflected = lambda V: V - 2 * u * (u.T @ V)
    A = ritz.Operator(lambda V: reflected(d * reflected(V)), 600, torch.float32, torch.device("cpu"))
    options = {"which": "magnitude", "tolerance": 1e-10, "max_products": 60}
    search = lambda path: ritz.eigenpairs(A, 3, checkpoint=path, **options)
    keep, copies = checkpoints.Checkpoint.keep, []

    def copying(file, state, *, last=False):
        keep(file, state, last=last)
        copies.append(file.path.read_bytes())

    with monkeypatch.context() as patch, pytest.warns(ConvergenceWarning):
        patch.setattr(checkpoints.Checkpoint, "keep", copying)
        whole = search(tmp_path / "whole.npz")
    for number, content in enumerate(copies[10:-1:11]):
        (tmp_path / f"{number}.npz").write_bytes(content)
        with pytest.warns(ConvergenceWarning):
            result = search(tmp_path / f"{number}.npz")
        assert all(torch.equal(one, other) for one, other in zip(bits(result), bits(whole), strict=True))


@pytest.mark.parametrize("which", DAMAGE)
def test_a_file_that_was_read_and_written_again_is_as_good(tmp_path, left_behind, which):
    path = write_arrays(tmp_path / "x.npz", *read_arrays(left_behind[which]))
    whole = SOLVERS[which[0]](operator(), checkpoint=tmp_path / "whole.npz")
    result = SOLVERS[which[0]](operator(), checkpoint=path)
    assert all(torch.equal(one, other) for one, other in zip(bits(result), bits(whole), strict=True))


@pytest.mark.parametrize("num_products", [1, 7, 40, 200, 400])
def test_a_kept_trace_is_right_to_its_error(tmp_path, num_products):
    A, truth = operator(), 18.0
    estimate = ritz.trace(A, num_products=num_products, checkpoint=tmp_path / "x.npz")
    assert estimate.num_products == num_products
    assert estimate.has_error == (num_products > 1)
    if num_products > 1:
        assert abs(estimate.value - truth) < 4 * estimate.standard_error
    if num_products >= 200:  # the largest are taken exactly
        assert estimate.standard_error < ritz.solvers.hutchinson(A, num_products=num_products).standard_error


def test_a_kept_trace_ends_at_its_tolerance(tmp_path):
    A = operator() + 10.0
    estimate = ritz.trace(A, tolerance=0.01, checkpoint=tmp_path / "x.npz")
    assert estimate.num_products < 256 and estimate.standard_error <= 0.01 * estimate.value
    assert estimate.value == pytest.approx(7018, rel=0.03)


@pytest.mark.usefixtures("eager")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_for_good_loses_nothing(tmp_path):
    path = tmp_path / "x.npz"
    child = os.fork()
    if not child:
        try:
            SOLVERS["eigenpairs"](operator(30), checkpoint=path)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    result = SOLVERS["eigenpairs"](operator(), checkpoint=path)
    whole = SOLVERS["eigenpairs"](operator(), checkpoint=tmp_path / "whole.npz")
    assert all(torch.equal(one, other) for one, other in zip(bits(result), bits(whole), strict=True))
