"""Public functions refuse what their annotations forbid, and take the numbers of numpy for Python's."""

import gc
import pickle
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

import ritz
from ritz.arguments import bare, guarded
from ritz.errors import ArgumentError, NumericalError, OutOfMemoryError, RitzError

pytestmark = pytest.mark.usefixtures("unchecked")


class Paced(Protocol):
    def after(self) -> int: ...


def taken(hint, value, level=1):
    """What a function with one parameter of this annotation gets."""

    def function(value):
        return value

    function.__annotations__ = {"value": hint}
    return guarded(function, level)(value)


def pair(a: Float[Tensor, "n k"], b: Float[Tensor, " n"]) -> None: ...


FITTING = [
    *[(int, 3), (float, 3), (float, 0.5), (bool, True), (str, "a"), (int | None, None), (Any, object)],
    *[(Literal["a", 3], 3), (Callable[[int], int], len), (Path | str, Path("a")), (Sequence[int], [1, 2])],
    *[(Mapping[str, float], {"a": 1.0}), (tuple[float, ...], (1.0, 2.0)), (tuple[int, str], (1, "a"))],
    *[(Float[Tensor, "n n"], torch.eye(2)), (Int[Tensor, " n"], torch.ones(2).long()), (Iterable[int], range(3))],
    *[(torch.device | str, "cpu"), (Float[Tensor, "..."], torch.ones(0)), (float, float("inf"))],
    (Mapping[str, Float[Tensor, " n"]], {"a": torch.ones(2), "b": torch.ones(3)}),  # each of a size of its own
]
WRONG = [
    *[(int, 3.0), (int, True), (int, None), (int, 2**70), (float, "a"), (float, True), (float, 10**400), (bool, 1)],
    *[(float, float("nan")), (str, 3), (Literal["a", 3], "b"), (Literal["a"], []), (Callable[[int], int], 3)],
    *[(Sequence[int], "ab"), (Sequence[int], [1.5]), (Iterable[int], torch.tensor(1.0)), (Mapping[str, float], [1.0])],
    *[(tuple[int, str], (1,)), (tuple[int, str], (1, "a", 2))],
    *[(Mapping[str, float], {"a": "b"}), (tuple[int, str], (1, 2)), (torch.device | str, "nowhere"), (Path | str, 3)],
    *[
        (Float[Tensor, "n n"], torch.ones(2, 3)),
        (Float[Tensor, " n"], [1.0]),
        (Float[Tensor, " n"], torch.ones(2).long()),
    ],
    *[(Int[Tensor, " n"], torch.ones(2)), (Bool[Tensor, " n"], torch.ones(2)), (Float[Tensor, " n"], np.ones(2))],
    *[(Float[Tensor, " n"], torch.ones(2, device="meta")), (Float[Tensor, " n"], torch.ones(2).to_sparse())],
    *[(Paced, b"a"), (ritz.Risk, ritz.Risk), (torch.Generator | None, 0)],
]


@pytest.mark.parametrize("hint, value", FITTING)
def test_what_an_annotation_allows_comes_through_as_it_is(hint, value):
    assert taken(hint, value) is value


@pytest.mark.parametrize("hint, value", WRONG)
def test_what_it_forbids_is_refused_with_what_why_and_a_way_out(hint, value):
    with pytest.raises(ArgumentError, match="value is") as caught:
        taken(hint, value)
    assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_a_refusal_names_every_kind_that_would_do():
    with pytest.raises(ArgumentError, match=r"value is 5\.\nIt must be a Tensor, a Mapping or a Module") as caught:
        taken(Tensor | Mapping[str, Tensor] | torch.nn.Module, 5)
    array, module = "Pass a tensor: torch.as_tensor(...) of an array.", "Pass a torch.nn.Module, such as the model."
    assert caught.value.ways_out == (array, "Pass a dict.", module)


def test_a_refusal_of_what_a_container_holds_speaks_of_that():
    with pytest.raises(ArgumentError, match=r"It holds 'zero'\. It must be a Tensor"):
        taken(Tensor | Mapping[str, Tensor], {"a": "zero"})


@pytest.mark.parametrize(
    "hint, value, same", [(int, np.int32(3), 3), (float, np.float32(0.5), 0.5), (bool, np.bool_(True), True)]
)
def test_numbers_of_numpy_become_those_of_python(hint, value, same):
    assert taken(hint, value) == same and type(taken(hint, value)) is hint


@pytest.mark.parametrize(
    "hint, value, same",
    [
        (tuple[float, float], (np.float32(0.5), 1), (0.5, 1)),
        (Sequence[int], [np.int64(3), 2], [3, 2]),
        (Mapping[str, float | None], {"a": np.float64(0.5), "b": None}, {"a": 0.5, "b": None}),
    ],
)
def test_numbers_of_numpy_become_those_of_python_within_what_holds_them(hint, value, same):
    fitting = taken(hint, value)
    types = [list(map(type, x.values() if isinstance(x, dict) else x)) for x in (fitting, same)]
    assert fitting == same and type(fitting) is type(same) and types[0] == types[1]


@pytest.mark.parametrize(
    "value", [torch.tensor([1.0, float("nan")]), torch.tensor([float("inf")]), torch.ones(2).half()]
)
def test_where_numbers_must_be_finite_tensors_are_looked_through(value):
    assert taken(Float[Tensor, " n"], value) is value
    with pytest.raises(ArgumentError):
        taken(Float[Tensor, " n"], value, 2)


def test_one_name_of_an_axis_is_one_size_in_a_call():
    guarded(pair)(torch.ones(3, 2), torch.ones(3))
    with pytest.raises(ArgumentError, match=r"b is a tensor of shape \(2,\)"):
        guarded(pair)(torch.ones(3, 2), torch.ones(2))


def test_what_has_an_operator_is_refused_with_the_way_to_it():
    risk = ritz.Risk(torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss(), (torch.eye(2), torch.arange(2)))
    with pytest.raises(ArgumentError, match=r"A is a Kronecker.[\s\S]*kfac\(risk\).operator"):
        ritz.trace(ritz.kfac(risk))
    with pytest.raises(ArgumentError, match="spectrum is an Operator"):
        ritz.plot.density(ritz.plot.panels()[1][0], ritz.kfac(risk).operator)


def test_what_has_values_or_a_name_is_refused_with_the_way_to_them():
    pairs = ritz.eigenpairs(ritz.Operator.from_matrix(torch.eye(3)), 1)
    with pytest.raises(ArgumentError, match=r"Pass its \.values"):
        ritz.plot.scree(ritz.plot.panels()[1][0], pairs)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    risk = ritz.Risk(model, torch.nn.MSELoss(), (torch.ones(4, 2), torch.ones(4, 1)))
    with pytest.raises(ArgumentError, match="Pass its name in the model"):
        risk.restricted_to(model[0])


def test_of_several_annotations_the_refusal_names_what_was_nearest():
    with pytest.raises(ArgumentError, match=r"must have the shape \(n, k\)"):
        taken(Float[Tensor, "n k"] | ritz.Eigenpairs | None, torch.ones(2))


@pytest.mark.parametrize(
    "error, kind",
    [
        (torch.linalg.LinAlgError("not converged"), NumericalError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OutOfMemoryError),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), OutOfMemoryError),
        (RuntimeError("unable to mmap 8 bytes from file </x>: Cannot allocate memory (12)"), OutOfMemoryError),
        (RuntimeError("numel: integer multiplication overflow"), OutOfMemoryError),
        (MemoryError(), OutOfMemoryError),
        (ValueError("the word out of memory"), ValueError),  # of a user's own
        (NotImplementedError("Cannot copy out of meta tensor; no data!"), ArgumentError),
        (NotImplementedError("\"svd\" not implemented for 'Half'"), NotImplementedError),  # by what a user gave
        (NotImplementedError("mine"), NotImplementedError),
        (RuntimeError("mine"), RuntimeError),
    ],
)
def test_words_of_pytorch_for_memory_and_decompositions_become_our_own(error, kind):
    def fails():
        raise error

    with pytest.raises(kind) as caught:
        guarded(fails)()
    assert isinstance(caught.value, RitzError) or caught.value is error


def test_out_of_memory_says_what_was_asked_for_and_the_way_out():
    A = ritz.Operator(lambda V: V, 1_000_000, torch.float64, torch.device("cpu"))
    with pytest.raises(OutOfMemoryError, match=r"it asked for 7,450,580.6 GiB in one piece") as caught:
        ritz.spectral_density(A, num_probes=1_000_000_000, num_steps=1000)
    assert isinstance(caught.value, MemoryError) and "num_probes=1000000000, num_steps=1000" in str(caught.value)
    assert "Ask for less" in str(caught.value)
    assert ritz.spectral_density(A, num_probes=1, num_steps=2).size == A.size  # with less, there is a result


def test_a_full_gpu_says_what_did_not_fit():
    def product(V):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 1.00 GiB free.")

    with pytest.raises(OutOfMemoryError, match=r"eigenpairs ran out of memory: it asked for 20.00 GiB"):
        ritz.eigenpairs(ritz.Operator(product, 1000, torch.float64, torch.device("cpu")), 2)


def test_a_method_that_runs_out_of_memory_is_named_with_its_class():
    class Matrix:
        def __init__(self, size):
            if size > 2:
                raise MemoryError("out of memory")

        @guarded
        def dense(self):
            raise MemoryError("out of memory")

    Matrix.__init__ = guarded(Matrix.__init__)
    with pytest.raises(OutOfMemoryError, match=r"^Matrix\.dense ran out of memory"):
        Matrix(2).dense()
    with pytest.raises(OutOfMemoryError, match=r"^Matrix ran out of memory"):
        Matrix(3)


def test_a_number_beyond_all_floats_is_refused_where_it_is_ours_alone():
    with pytest.raises(NumericalError, match="too large for a float"):
        ritz.theory.sharpness_terms(*[c * torch.ones(1).double() for c in (1e200, 1, 1, 1)])
    with pytest.raises(OverflowError) as caught:
        ritz.spectral_density(ritz.Operator(lambda V: V * 10.0**400, 3, torch.float64, torch.device("cpu")))
    assert not isinstance(caught.value, RitzError)


def test_a_guarded_function_is_the_one_of_its_module_and_has_its_bare_form():
    import pickle

    assert pickle.loads(pickle.dumps(ritz.hessian)) is ritz.hessian
    assert bare(ritz.hessian) is not ritz.hessian and bare(len) is len
    assert guarded(ritz.hessian) is ritz.hessian


def two_networks():
    return ritz.lab.ensemble.Ensemble.of([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])


IDENTITY = ritz.Operator.from_matrix(torch.eye(3))
ANSWERED = {
    "axes None": lambda: ritz.plot.density(None, ritz.Spectrum.of_eigenvalues(torch.ones(2))),
    "knockout of unequal lengths": lambda: ritz.plot.knockout(
        ritz.plot.panels()[1][0], torch.ones(2), torch.ones(3), top=1
    ),
    "an axis beyond all floats": lambda: ritz.plot.counts(
        ritz.plot.panels()[1][0], ritz.Spectrum.of_eigenvalues(torch.ones(2)), floor=1.0, width=1e12
    ),
    "a quadrature without probes": lambda: ritz.solvers.LanczosQuadrature(IDENTITY).tridiagonal(),
    "fewer steps than there are": lambda: ritz.lanczos(
        ritz.Operator.from_matrix(torch.diag(torch.arange(4.0))), torch.ones(4, 1), 3
    ).padded(1),
    "a closed form against a number": lambda: ritz.theory.compare(
        ritz.theory.ClosedForm([ritz.theory.Group("a", 1.0)]), 3
    ),
    "a closed form against a vector": lambda: ritz.theory.compare(
        ritz.theory.ClosedForm([ritz.theory.Group("a", 1.0)]), torch.ones(1)
    ),
    "a network with two outputs": lambda: ritz.theory.linear_spectra(
        [torch.ones(1, 2, 2)], torch.ones(1, 3, 2), torch.ones(1, 3, 1)
    ),
    "memory of half a call": lambda: ritz.solvers.memory_needed(
        ritz.eigenpairs, ritz.Operator.from_matrix(torch.eye(3))
    ),
    "a picture of arrays": lambda: ritz.record.write_picture("a.npz", ritz.plot.panels()[0]),
    "means that do not forget": lambda: ritz.lab.training.adamw(torch.nn.Linear(2, 1), 0.1, betas=(0.5, 2.0)),
    "the third of two networks": lambda: two_networks().network(2),
    "weights of no network": lambda: two_networks().rows(torch.ones(2, 4)),
    "a head that is not there": lambda: ritz.lab.models.attention_on_first_token(
        ritz.lab.models.gpt(ritz.lab.models.GPTConfig(5, 4, 1, 8, 2), generator=torch.Generator()),
        torch.tensor([[0, 1]]),
        heads=(2,),
    ),
    "a name with a zero": lambda: ritz.record.discard("a\0b"),
    "an eigenvalue infinitely often": lambda: ritz.Spectrum.of_eigenvalues(
        torch.ones(2), torch.tensor([1.0, float("inf")])
    ),
    "an eigenvalue 2i times": lambda: ritz.Spectrum.of_eigenvalues(torch.ones(1), torch.tensor([2j])),
    "the title of another record": lambda: ritz.analysis.spectrum.title_of(ritz.Record("a", "b", {}, {}, {})),
    "the products of another record": lambda: ritz.analysis.spectrum.num_products(ritz.Record("a", "b", {}, {}, {})),
    "a layer that a record has not": lambda: ritz.analysis.spectrum.spectrum_of(
        ritz.Record("a", "b", {}, {}, {"fc/nodes": np.ones((1, 1)), "fc/weights": np.ones((1, 1))}), "fc"
    ),
    "inputs of three networks for two": lambda: two_networks().outputs(torch.ones(3, 5, 2), each=True),
    "an input for two networks": lambda: two_networks().outputs(torch.ones(2), each=True),
    "a number for two networks": lambda: two_networks().outputs(torch.tensor(1.0)),
    "vectors that are NaN": lambda: ritz.low_rank(torch.tensor([[1.0], [float("nan")]])),
    "values that are infinite": lambda: ritz.low_rank(torch.ones(2, 1), torch.tensor([float("inf")])),
    "a curve without width": lambda: ritz.plot.comparison(
        ritz.plot.panels()[1][0], {"a": ritz.Spectrum.of_eigenvalues(torch.ones(2))}, width=5e-324
    ),
    "a whisker from top to bottom": lambda: ritz.plot.screes(
        ritz.plot.panels()[1][0], {"a": torch.ones(2)}, whisker=(1.0, 0.25)
    ),
    "negative residuals": lambda: ritz.plot.scree(ritz.plot.panels()[1][0], torch.ones(2), residuals=-torch.ones(2)),
    "a law of no nodes": lambda: ritz.theory.laws.semicircle().spectrum(-1),
    "a name of 600 bytes": lambda: ritz.spectral_density(IDENTITY, checkpoint="é" * 300),
    "a layer that was not measured": lambda: ritz.analysis.comparison.Entry.of(
        ritz.Record("a", "b", {}, {"layers": {}}, {}), layer="fc"
    ),
    "norms of nothing": lambda: ritz.lab.ensemble.norms(torch.ones(0, 0)),
    "a comparison of nothing": lambda: ritz.plot.comparison(ritz.plot.panels()[1][0], {}),
    "classes infinitely far apart": lambda: ritz.theory.ccm_gaps(2, float("inf"), 0.5),
    "no panels": lambda: ritz.plot.small_multiples(0),
    "norms in half precision": lambda: ritz.lab.ensemble.norms(torch.ones(2, 2).half()),
    "panels of many light years": lambda: ritz.plot.small_multiples(2, size=1e308),
    "a picture of one dot per inch": lambda: ritz.record.write_picture("a.png", ritz.plot.panels()[0], dpi=1),
    "half a state": lambda: ritz.record.Checkpoint("a.npz", {}).keep(dict, last=True),
    "the matrix of another operator": lambda: ritz.testing.check_operator(IDENTITY, torch.eye(2)),
    "a network on the data of two": lambda: ritz.theory.linear_spectra(
        [torch.ones(1, 1, 2)], torch.ones(2, 3, 2), torch.ones(2, 3, 1)
    ),
    "error rates of two of three classes": lambda: ritz.theory.logistic_ccm(4, 3, 1.0, [0.1, 0.2]),
    "weights that cannot be squared": lambda: ritz.theory.sharpness_terms(
        *[c * torch.ones(1).double() for c in (1e200, 1, 1, 1)]
    ),
    "more samples than memory": lambda: ritz.solvers.hutchinson(IDENTITY, num_products=2**60),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_every_call_that_the_fuzz_saw_end_raw_is_answered(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RitzError) as caught:
        ANSWERED[name]()
    assert caught.value.seen and caught.value.why and caught.value.ways_out


WITHOUT_ANSWER = {
    "a closed form against half a matrix": lambda: ritz.theory.compare(
        ritz.theory.ClosedForm([ritz.theory.Group("a", 1.0), ritz.theory.Group("b", 2.0)]),
        torch.tensor([[1.0, 5.0], [0.0, 2.0]]),
    ),
    "more residuals than inputs": lambda: ritz.theory.balanced_linear(
        torch.ones(1), (1, 3, 2), 1.0, residuals=torch.ones(2)
    ),
    "residuals beyond all widths": lambda: ritz.theory.balanced_linear(
        torch.ones(1), (1, 1, 1), 1.0, residuals=torch.ones(2)
    ),
    "a moment of degree -1 in an interval": lambda: ritz.Spectrum.of_eigenvalues(torch.arange(3.0)).interval(-1),
    "a moment of degree True in an interval": lambda: ritz.Spectrum.of_eigenvalues(torch.ones(2)).interval(True),
    "eigenvalues that are there in part": lambda: ritz.Spectrum.of_eigenvalues(torch.ones(2), torch.tensor([0.4, 0.8])),
    "an error rate of no classes": lambda: ritz.theory.ccm_error_rate(3.0, 2.0, 1.0, 0),
    "an error rate of one class": lambda: ritz.theory.ccm_error_rate(3.0, 2.0, 1.0, 1),
    "an error rate from an infinite line": lambda: ritz.theory.ccm_error_rate(float("inf"), 2.0, 1.0, 3),
    "lines of classes infinitely far apart": lambda: ritz.theory.logistic_ccm(5, 3, float("inf"), 0.1),
}


@pytest.mark.parametrize("name", WITHOUT_ANSWER)
def test_questions_without_an_answer_are_refused_and_not_given_a_number(name):
    with pytest.raises(RitzError) as caught:
        WITHOUT_ANSWER[name]()
    assert caught.value.seen and caught.value.why and caught.value.ways_out


def test_a_power_law_has_no_density_below_zero():
    law = ritz.theory.laws.PowerLaw(0.5, 1.0, 1.0, (1.0, 2.0))
    density = law.density(torch.tensor([-1.0, 0.0, 4.0, float("nan")]))
    assert density[:3].tolist() == [0.0, 0.0, 0.5] and density[3].isnan()


def test_pictures_take_values_that_gradients_follow():
    ax = ritz.plot.panels()[1][0]
    assert ritz.plot.stems(ax, torch.ones(2, requires_grad=True), 1.0, 0.1) is ax


def test_alignments_and_spectra_take_weights_of_either_precision():
    W, V = torch.eye(2), 2 * torch.eye(2).double()
    assert ritz.lab.ensemble.alignments(W, V).spectral.item() == 2.0
    one = torch.ones(1, 1, 1)
    assert torch.equal(
        ritz.theory.relu_spectra(one, one.double(), one, one).values,
        ritz.theory.relu_spectra(*[one.double()] * 4).values,
    )


def test_linear_networks_are_trained_on_data_that_gradients_follow():
    X = torch.ones(2, 1, requires_grad=True)
    descent = lambda X: ritz.lab.training.linear_descent([torch.ones(1, 1)], X, 0 * X, learning_rate=0.5, num_epochs=2)
    assert [pause.loss for pause in descent(X)] == [pause.loss for pause in descent(X.detach())]


def test_arguments_that_were_passed_do_not_stay_in_memory():
    """The vectors of a search are many: whoever drops them has their memory again at once, without a collection."""
    gc.disable()
    try:
        value = torch.zeros(3)
        kept = weakref.ref(value)
        taken(int | Float[Tensor, " n"], value)
        del value
        assert kept() is None
    finally:
        gc.enable()


def test_a_function_whose_arguments_are_refused_is_not_called():
    calls = []

    @guarded
    def write(path: str, count: int) -> None:
        calls.append(path)

    with pytest.raises(ArgumentError, match="count"):
        write("a", "many")
    assert calls == []


def test_an_operator_that_is_not_its_matrix_is_refused_and_fails_a_test():
    with pytest.raises(RitzError, match="larger tolerance") as caught:
        ritz.testing.check_operator(IDENTITY, 2 * torch.eye(3))
    assert isinstance(caught.value, AssertionError)
    ritz.testing.check_operator(IDENTITY, 2 * torch.eye(3), tolerance=2.0)


def test_adamw_takes_numbers_of_numpy():
    optimizer = ritz.lab.training.adamw(torch.nn.Linear(2, 1), 0.1, betas=(np.float32(0.5), 0.75))
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.75)


def test_data_of_two_precisions_are_compressed_in_the_better_one():
    X, Y = torch.arange(6.0).view(3, 2), torch.arange(3.0).view(3, 1).double()
    for mixed, exact in zip(
        ritz.lab.training.compressed(X, Y), ritz.lab.training.compressed(X.double(), Y), strict=True
    ):
        assert torch.equal(mixed, exact)


class Room:
    @classmethod
    def of(cls, tolerance):
        raise TypeError("of its own")


MISCALLS = [
    (lambda H: ritz.eigenpairs(H, 2, seed=0), "pass generator=torch.Generator"),
    (lambda H: ritz.eigenpairs(H, 2, tol=1e-3), "For tol, pass tolerance."),
    (lambda H: ritz.eigenpairs(H, 2, maxiter=9), "For maxiter, pass max_products."),
    (lambda H: ritz.eigenpairs(H), "Pass what is missing."),
    (lambda H: ritz.trace(H, 100), "It takes A; by name tolerance, num_products"),
    (lambda H: ritz.trace(H, n_samples=9), "pass num_products."),
    (lambda H: ritz.spectral_density(H, colour=9), "Leave out colour."),
    (lambda H: ritz.Risk(1, 2, 3, 4), "It takes model, loss, data; by name parameters"),
    (lambda H: ritz.Risk(1, 2, 3, params="*"), "For params, pass parameters."),
    (lambda H: ritz.Risk(1, 2, 3, dtype="float64"), r"risk.to\(torch.float64\)"),
]


@pytest.mark.parametrize("call, words", MISCALLS)
def test_a_call_that_does_not_fit_the_names_of_a_function_names_them(call, words):
    H = ritz.Operator.from_matrix(torch.eye(3))
    with pytest.raises(ArgumentError, match=words) as refused:
        call(H)
    assert isinstance(refused.value, TypeError)  # as Python's own: code that expects one still meets it
    pickle.loads(pickle.dumps(refused.value))


def test_a_type_error_inside_a_function_is_its_own():
    with pytest.raises(TypeError, match="of its own") as raised:
        guarded(Room.of.__func__)(Room, 1.0)
    assert not isinstance(raised.value, RitzError)


def test_a_list_of_layers_is_no_list_of_weights():
    with pytest.raises(ArgumentError, match=r"\[layer.weight for layer in model\]"):
        ritz.theory.balancedness(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)))


def test_parameters_instead_of_their_names_are_not_printed_number_by_number():
    model = torch.nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match=r"^parameters=\[a Parameter, …\] was given") as refused:
        ritz.Risk(model, torch.nn.CrossEntropyLoss(), None, parameters=list(model.parameters()))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("model.pt", "load_state_dict"),
        (Path("model.pt"), "load_state_dict"),
        ([torch.nn.Linear(2, 2), torch.nn.ReLU()], "nn.Sequential"),
        (torch.nn.Linear(2, 2).parameters(), "not model.parameters"),
        (list(torch.nn.Linear(2, 2).parameters()), "not model.parameters"),
        (torch.nn.functional.relu, "Wrap the function"),
    ],
    ids=["name", "path", "layers", "parameters", "list of parameters", "function"],
)
def test_what_is_no_module_has_a_way_to_one(wrong, words):
    with pytest.raises(RitzError, match=words):
        ritz.Risk(wrong, torch.nn.CrossEntropyLoss(), None)


def test_words_for_habits_of_other_libraries():
    H = ritz.Operator.from_matrix(torch.eye(3))
    with pytest.raises(ArgumentError, match=r"torch.cat\(\[v.flatten\(\) for v in vectors\]\)"):
        H @ [torch.ones(2), torch.ones(1)]
    with pytest.raises(ArgumentError, match="measured is an Eigenpairs"):
        ritz.theory.compare(ritz.theory.balanced_linear(torch.ones(1), (1, 1, 1), 1.0), ritz.eigenpairs(H, 1))
    x, y = torch.randn(6, 3), torch.nn.functional.one_hot(torch.arange(6) % 2)
    with pytest.raises(RitzError, match=r"y.argmax\(-1\)"):
        ritz.attribution(ritz.Risk(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), (x, y.float())))
    with pytest.raises(RitzError, match=r"nn.BCEWithLogitsLoss\(\)"):
        ritz.Risk(torch.nn.Linear(3, 2), torch.nn.BCELoss(), (10 * x, y.float()))


WAYS = [
    (
        lambda H, R: ritz.trace(H, generator=np.random.default_rng(0)),
        "It must be one of torch\\.",
    ),
    (lambda H, R: ritz.Operator(lambda V: V, 3, "float32", "cpu"), "Pass torch.float64 or torch.float32"),
    (lambda H, R: R.at({"model": {"weight": torch.ones(2)}, "epoch": 3}), r"file\['model'\]"),
    (lambda H, R: R.at(torch.nn.Linear), r"Make an instance: Linear\(\.\.\.\)"),
    (
        lambda H, R: ritz.Risk(R.model, torch.nn.MSELoss(), torch.utils.data.TensorDataset),
        "the class Tens",
    ),
]


@pytest.mark.parametrize("call, words", WAYS)
def test_what_is_nearly_right_has_a_way_of_its_own(call, words):
    model = torch.nn.Linear(3, 2)
    R = ritz.Risk(model, torch.nn.MSELoss(), (torch.ones(4, 3), torch.ones(4, 2)))
    with pytest.raises(RitzError, match=words):
        call(ritz.Operator.from_matrix(torch.eye(3)), R)
