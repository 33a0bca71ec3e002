"""Data in every form users have them, and what is refused as data."""

import itertools
from collections import UserDict
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import ritz
from ritz import Risk
from ritz.errors import DataError, ModelError, NumericalError, OutOfMemoryError
from tests.risk.problem import (
    CE,
    INF,
    NAN,
    C,
    D,
    Examples,
    Folder,
    N,
    check_against_pytorch,
    check_refusal,
    network,
    with_value,
)
from tests.risk.unchanged import nothing_changes
from tests.zoo import case, unequal_batches


class Stream(IterableDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __iter__(self):
        return zip(self.x, self.y, strict=True)


FORMS = {
    "tensors": lambda x, y: (x, y),
    "list of tensors": lambda x, y: [x, y],
    "TensorDataset": TensorDataset,
    "Dataset": Examples,
    "IterableDataset": Stream,
    "DataLoader": lambda x, y: DataLoader(Examples(x, y), batch_size=4),
    "shuffled DataLoader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True),
    "list of batches": unequal_batches,
    "tuple of two batches": lambda x, y: tuple(unequal_batches(x, y)),
    "list of lists": lambda x, y: [list(pair) for pair in unequal_batches(x, y)],
    "custom re-iterable": lambda x, y: Folder(unequal_batches(x, y)),
    "with an empty batch": lambda x, y: [(x[:7], y[:7]), (x[:0], y[:0]), (x[7:], y[7:])],
    "one example each": lambda x, y: [(x[i : i + 1], y[i : i + 1]) for i in range(N)],
    "list of examples": lambda x, y: [Examples(x, y)[i] for i in range(N)],
    "list of examples as arrays": lambda x, y: list(zip(x.numpy(), y.numpy(), strict=True)),
    "labels in int32": lambda x, y: (x, y.int()),
}


READ_ANEW = [(form, 0) for form in FORMS if "shuffled" not in form]  # such a loader is refused, see below


@pytest.mark.parametrize("form, memory", [*((form, None) for form in FORMS), *READ_ANEW])
def test_data_in_every_form_give_the_same_risk(form, memory, x, y):
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), FORMS[form](x, y), memory=memory)
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))
    assert (risk.num_examples, risk.num_terms, risk.total_weight) == (N, N, N)
    reference = Risk(model, nn.CrossEntropyLoss(), (x, y))
    v = torch.ones(risk.size, dtype=torch.float64)
    assert_close(ritz.hessian(risk) @ v, ritz.hessian(reference) @ v)


def test_many_examples_are_cut_into_batches(generator):
    x = torch.randn(1100, D, generator=generator, dtype=torch.float64)
    y = torch.randint(C, (1100,), generator=generator)
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    assert [len(batch) for batch in risk.batches] == [512, 512, 76]
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


def test_data_larger_than_memory_are_read_at_every_pass(x, y):
    model, folder = network(), Folder(unequal_batches(x, y))
    risk = Risk(model, nn.CrossEntropyLoss(), folder, memory=0)
    before = folder.passes
    risk.gradient()
    H = ritz.hessian(risk)
    v = torch.ones(risk.size, dtype=torch.float64)
    assert_close(H @ v, H @ v)
    assert folder.passes >= before + 3


def test_data_that_fit_are_read_twice_and_never_again(x, y):
    folder = Folder(unequal_batches(x, y))
    risk = Risk(network(), nn.CrossEntropyLoss(), folder)
    _ = risk.gradient(), risk.labels, ritz.hessian(risk) @ torch.ones(risk.size, dtype=torch.float64)
    assert folder.passes == 2


def test_a_loader_that_shuffles_data_larger_than_memory_is_refused(x, y):
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    with pytest.raises(DataError, match="another order"):
        Risk(network(), nn.CrossEntropyLoss(), loader, memory=0)


def test_a_loader_with_a_generator_of_its_own_gets_it_back_as_it_was(x, y):
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True, generator=generator)
    model = network()
    check_against_pytorch(Risk(model, nn.CrossEntropyLoss(), loader), model, F.cross_entropy(model(x), y))
    assert torch.equal(generator.get_state(), before)


def test_inputs_as_a_dict_are_arguments_by_name():
    built = case("two_inputs")
    y = torch.arange(N) % C
    whole = Risk(built.model, ritz.CrossEntropy(), (built.inputs, y))
    cut = Risk(built.model, ritz.CrossEntropy(), unequal_batches(built.inputs, y))
    for risk in (whole, cut):
        check_against_pytorch(risk, built.model, F.cross_entropy(built.model(**built.inputs), y))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, input_ids, attention_mask):
        return {"logits": self.head(self.embed(input_ids) * attention_mask[..., None])}


@pytest.mark.parametrize("name", ["labels", "label", "targets", "target", "y"])
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_dict_of_inputs_and_targets_is_a_batch(name, kind, generator):
    ids, mask = torch.randint(7, (N, 5), generator=generator), torch.ones(N, 5).double()
    whole = {"input_ids": ids, "attention_mask": mask, name: ids.roll(-1, 1)}
    some = lambda rows: kind({key: value[rows] for key, value in whole.items()})
    model = Masked().double()
    value = lambda: F.cross_entropy(model(ids, mask)["logits"].mT, ids.roll(-1, 1))
    for data in ([some(slice(7)), some(slice(7, N))], kind(whole), DataLoader([some(i) for i in range(N)], 4)):
        if kind is UserDict and isinstance(data, DataLoader):
            continue  # PyTorch's own collation makes no batch of these
        check_against_pytorch(Risk(model, ritz.CrossEntropy(), data), model, value())


def test_a_list_of_dicts_with_one_label_each_is_a_data_set(x, y):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, pixels):
            return self.inner(pixels)

    model, data = Named(), [{"pixels": pixels, "label": int(label)} for pixels, label in zip(x, y, strict=True)]
    check_against_pytorch(Risk(model, CE, data), model, CE(model(x), y))
    check_against_pytorch(Risk(model, CE, data[:2]), model, CE(model(x[:2]), y[:2]))  # no pair of inputs and targets


def test_labels_that_the_model_would_see_are_refused_and_every_way_out_works(generator):
    ids = torch.randint(7, (N, 5), generator=generator)
    labels = ids.clone()
    labels[:, :2] = -100  # a prompt, which does not count
    batch, model = {"input_ids": ids, "attention_mask": torch.ones(N, 5).double(), "labels": labels}, Masked().double()
    for data in ([batch], batch):
        with pytest.raises(DataError, match="labels are its input_ids") as caught:
            Risk(model, ritz.CrossEntropy(), data)
        check_refusal(caught, DataError)
    shifted = F.pad(batch["labels"][:, 1:], (0, 1), value=-100)
    value = lambda targets: F.cross_entropy(model(ids, batch["attention_mask"])["logits"].mT, targets)
    assert "torch.nn.functional.pad(batch" in str(caught.value)
    risk = Risk(model, ritz.CrossEntropy(), [{**batch, "labels": shifted}])
    check_against_pytorch(risk, model, value(shifted))
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    check_against_pytorch(Risk(model, ritz.CrossEntropy(), [(inputs, labels)]), model, value(labels))


@pytest.mark.parametrize("masked", [0, 1])
def test_labels_of_masked_or_few_tokens_are_taken_as_they_are(masked, generator):
    ids, labels = torch.randint(6, (N, 5), generator=generator), torch.full((N, 5), -100)
    count = 30 if masked else 7  # of a masked model one token at least is another, of few all may be the same by chance
    labels.view(-1)[:count] = ids.view(-1)[:count]
    ids.view(-1)[:masked] = 6
    batch = {"input_ids": ids, "attention_mask": torch.ones(N, 5).double(), "labels": labels}
    assert Risk(Masked().double(), ritz.CrossEntropy(), [batch]).total_weight == count


def test_a_way_out_for_dicts_with_other_names(x, y):
    model = network()
    loader = [{"pixels": x, "outcome": y}]
    risk = Risk(model, CE, [({"input": batch["pixels"]}, batch["outcome"]) for batch in loader])
    check_against_pytorch(risk, model, F.cross_entropy(model(x), y))


class Graph(nn.Module):
    """Averages over the neighbours of a node, then over the nodes of a graph."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(D, 5), nn.Linear(5, C)

    def forward(self, x, edge_index, graph):
        h = self.layer(x).tanh()
        h = h.index_add(0, edge_index[1], h[edge_index[0]])
        return self.head(h.new_zeros(int(graph.max()) + 1, 5).index_add(0, graph, h))


def graphs_in_batches(generator, counts):
    batches = []
    for graphs in counts:
        nodes = 4 * graphs
        edges = torch.randint(nodes, (2, 9), generator=generator)
        x = torch.randn(nodes, D, generator=generator, dtype=torch.float64)
        inputs = {"x": x, "edge_index": edges, "graph": torch.arange(nodes) // 4}
        batches.append((inputs, torch.randint(C, (graphs,), generator=generator)))
    return batches


@pytest.mark.parametrize("counts", [(3, 3, 1), (1, 1, 1)])
def test_inputs_that_are_not_counted_by_examples_stay_in_their_batch(generator, counts):
    model, batches = Graph().double(), graphs_in_batches(generator, counts)
    risk = Risk(model, ritz.CrossEntropy(), batches)
    assert not risk.separable and len(list(risk.batches.joined(3))) == 3
    parameters, v = list(model.parameters()), torch.ones(risk.size, dtype=torch.float64)
    value = lambda: sum(F.cross_entropy(model(**inputs), y, reduction="sum") for inputs, y in batches) / sum(counts)
    check_against_pytorch(risk, model, value())
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(value(), parameters, create_graph=True)])
    product = torch.cat([g.flatten() for g in torch.autograd.grad(slope.sum(), parameters)])
    assert_close(ritz.hessian(risk) @ v, product)


def test_graphs_without_room_are_not_cut(generator):
    class Short(Graph):
        def forward(self, x, edge_index, graph):
            if len(x) > 8:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().forward(x, edge_index, graph)

    with pytest.raises(OutOfMemoryError, match="no memory to evaluate the model on a batch of 4 examples"):
        Risk(Short().double(), CE, graphs_in_batches(generator, (4,)))
    assert Risk(Short().double(), CE, graphs_in_batches(generator, (2, 2))).num_terms == 4  # the way out


def test_the_first_graphs_are_whole_batches(generator):
    model, batches = Graph().double(), graphs_in_batches(generator, (3, 3, 1))
    risk = Risk(model, CE, batches)
    assert_close(risk.first(6).gradient(), Risk(model, CE, batches[:2]).gradient())
    for count, left in ((2, 2), (4, 1)):
        with pytest.raises(DataError, match=f"{left} of the 3 examples") as caught:
            risk.first(count)
        check_refusal(caught, DataError)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_inputs_in_less_precision_are_raised_to_that_of_the_parameters(dtype, x, y):
    model = network()
    risk = Risk(model, nn.CrossEntropyLoss(), (x.to(dtype), y))
    check_against_pytorch(risk, model, F.cross_entropy(model(x.to(dtype).double()), y))


def test_inputs_in_more_precision_are_rounded_to_that_of_the_parameters(x, y):
    model = network().float()
    risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
    assert risk.dtype == torch.float32 and risk.gradient().dtype == torch.float32
    assert risk.loss_value() == pytest.approx(F.cross_entropy(model(x.float()), y).item(), rel=1e-5)


class Complex(nn.Module):
    """Absolute values of complex features, which come rotated by a buffer."""

    def __init__(self):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(D, 4, 2)), nn.Linear(4, C)
        self.register_buffer("phases", torch.polar(torch.ones(D), torch.linspace(0, 1, D)))

    def forward(self, x):
        return self.out(((x * self.phases) @ torch.view_as_complex(self.weight)).abs())


@pytest.mark.parametrize("given", [torch.complex64, torch.complex128])
def test_complex_inputs_are_in_the_precision_of_the_parameters(given, y, generator):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Complex()
    x = torch.randn(N, D, dtype=torch.complex128, generator=generator)
    risk = Risk(model, CE, [(x[:7].to(given), y[:7]), (x[7:].to(given), y[7:])])
    assert risk.loss_value() == pytest.approx(F.cross_entropy(model(x.to(torch.complex64)), y).item(), rel=1e-5)
    double = risk.to(torch.float64)
    assert_close(double.gradient().float(), risk.gradient(), rtol=1e-4, atol=1e-5)
    assert ritz.gram_spectrum(risk).size == risk.size


def test_a_mask_of_minus_infinity_among_the_inputs_is_fine():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(D, C).double()

        def forward(self, x, mask):
            return (self.linear(x)[:, :, None] * x[:, None, :2].cumsum(-1) + mask[:, None]).softmax(-1)[..., 0]

    mask = torch.zeros(N, 2, dtype=torch.float64)
    mask[::2, 1] = float("-inf")
    data = [({"x": torch.ones(N, D, dtype=torch.float64), "mask": mask}, torch.arange(N) % C)]
    assert np.isfinite(Risk(Masked(), ritz.CrossEntropy(), data).loss_value())


HELD = {
    "tensors": lambda x, y: (x, y),
    "many tensors": lambda x, y: (x.repeat(60, 1), y.repeat(60)),
    "list of batches": lambda x, y: [(x, y), (x[:4], y[:4])],
    "dict": lambda x, y: [({"input": x}, y)],
    "custom re-iterable": lambda x, y: Folder([(x, y)]),
    "TensorDataset": TensorDataset,
    "loader without collation": lambda x, y: DataLoader([(x, y)], batch_size=None),
    "of lower precision": lambda x, y: (x.float(), y),
}


@pytest.mark.parametrize("form", HELD)
def test_what_a_user_does_to_tensors_afterwards_does_not_change_the_risk(form, x, y):
    data = HELD[form](x, y)
    risk = Risk(network(), CE, data)
    v = torch.ones(risk.size, dtype=torch.float64)
    before = ritz.hessian(risk) @ v, risk.gradient()
    tensors = data.tensors if form == "TensorDataset" else data if "tensors" in form or "of" in form else (x, y)
    for tensor in (x, y, *(t for t in tensors if isinstance(t, torch.Tensor))):
        tensor.zero_()
    assert_close((ritz.hessian(risk) @ v, risk.gradient()), before, rtol=1e-10, atol=1e-13)


class OneBuffer:
    """A reader that fills the same memory with every batch, as some do to spare allocations."""

    def __init__(self, batches, *, numpy):
        self.batches, self.numpy = batches, numpy

    def __iter__(self):
        memory = [tensor.numpy().copy() for tensor in self.batches[0]]
        tensors = [torch.from_numpy(array) for array in memory]
        for batch in self.batches:
            for array, tensor, values in zip(memory, tensors, batch, strict=True):
                np.copyto(array, values.numpy()) if self.numpy else tensor.copy_(values)
            yield tuple(tensors)


@pytest.mark.parametrize("numpy", [True, False])
@pytest.mark.parametrize("share", [0, 0.9, 2])  # of the data that memory holds: some graphs are kept, or all batches
def test_batches_that_come_in_the_same_memory_are_told_apart(numpy, share, generator):
    x, y = torch.randn(60, D, generator=generator, dtype=torch.float64), torch.arange(60) % C
    batches, model = list(zip(x.split(2), y.split(2), strict=True)), network()
    memory = share * (x.nbytes + y.nbytes)
    risk, reference = Risk(model, CE, OneBuffer(batches, numpy=numpy), memory=memory), Risk(model, CE, (x, y))
    v = torch.randn(risk.size, generator=generator, dtype=torch.float64)
    for own, other in ((risk, reference), (risk.first(7), reference.first(7))):
        A, expected = ritz.hessian(own), ritz.hessian(other) @ v
        for _ in range(2):  # the second by what is kept of the first
            assert_close(A @ v, expected)
    assert torch.equal(risk.labels, y)


def test_data_that_do_not_fit_and_change_are_noticed_at_the_next_pass(x, y):
    batches = unequal_batches(x, y)
    for data in (batches, Folder(batches), DataLoader(TensorDataset(x, y), 4), TensorDataset(x, y)):
        risk = Risk(network(), CE, data, memory=0)
        risk.gradient()
        x[9, 1] += 1e-12
        with pytest.raises(DataError, match=r"Batch [012] is not what it was") as caught:
            risk.gradient()
        check_refusal(caught, DataError)
        x[9, 1] -= 1e-12
    risk = Risk(network(), CE, batches, memory=0)
    y[0] = (y[0] + 1) % C
    with pytest.raises(DataError, match="Batch 0"):
        _ = ritz.hessian(risk) @ torch.ones(risk.size, dtype=torch.float64)


def test_batches_that_go_or_come_after_the_risk_was_built_are_noticed(x, y):
    batches = [*unequal_batches(x, y), (x[:2], y[:2])]
    risk = Risk(network(), CE, batches, memory=0)
    last = batches.pop()
    with pytest.raises(DataError, match="is missing"):
        risk.gradient()
    batches += [last, last]
    with pytest.raises(DataError, match="not what it was"):
        risk.gradient()
    assert Risk(network(), CE, batches).gradient().isfinite().all()  # the way out: they fit, and are copied


class Augmented(Examples):
    def __getitem__(self, index):
        return self.x[index] + 0.01 * torch.randn(D), int(self.y[index])


class Unlike:
    """Another number of examples at the second pass."""

    def __init__(self, batches):
        self.batches, self.count = batches, itertools.count(len(batches), -1)

    def __iter__(self):
        return iter(self.batches[: next(self.count)])


BAD_DATA = {
    "no examples": (lambda x, y: (x[:0], y[:0]), DataError, "no example"),
    "no batches": (lambda x, y: [], DataError, "no example"),
    "an empty loader": (lambda x, y: DataLoader(TensorDataset(x, y), 20, drop_last=True), DataError, "no example"),
    "labels too large": (lambda x, y: (x, y + 1), DataError, "Labels run from"),
    "labels too small": (lambda x, y: (x, y - 1), DataError, "Labels run from"),
    "a late bad label": (lambda x, y: [(x, y), (x[:1], y[:1] + C)], DataError, "Labels run from"),
    "float labels": (lambda x, y: (x, y.double()), DataError, r"y\.long\(\)"),
    "columns of labels": (lambda x, y: (x, y[:, None]), DataError, "The outputs have shape"),
    "fewer targets": (lambda x, y: (x, y[:-1]), DataError, "The first dimension of both counts"),
    "fewer targets in a batch": (lambda x, y: [(x, y), (x, y[:4])], DataError, "The outputs have shape"),
    "a target without dimensions": (lambda x, y: (x[0], y[0]), DataError, "a single example"),
    "a loader without batches": (lambda x, y: DataLoader(Examples(x, y), None), DataError, "a single example"),
    "inputs too wide": (lambda x, y: (torch.cat([x, x], 1), y), ModelError, "The model failed on batch 0"),
    "a late misfit": (lambda x, y: [(x, y), (x[:, :2], y)], ModelError, "The model failed on batch 1"),
    "inputs as integers": (lambda x, y: (x.long(), y), ModelError, "The model failed on batch 0"),
    "inputs with other names": (lambda x, y: ({"pixels": x}, y), ModelError, "The model failed on batch 0"),
    "inputs with NaN": (lambda x, y: (with_value(x, NAN), y), NumericalError, "batch 0, whose inputs hold such"),
    "batches with NaN": (lambda x, y: [(x, y), (with_value(x, NAN), y)], NumericalError, "batch 1, whose inputs"),
    "inputs with infinity": (lambda x, y: (with_value(x, INF) * torch.ones(D), y), None, ""),
    "all labels ignored": (lambda x, y: (x, y.fill_(-100)), DataError, "weight zero"),
    "no iterable": (lambda x, y: 3, DataError, "The data are an int"),
    "nothing": (lambda x, y: None, DataError, "The data are a NoneType"),
    "a number in a tensor": (lambda x, y: y[0], DataError, "The data are a Tensor"),
    "a generator": (lambda x, y: (b for b in [(x, y)]), DataError, "only once"),
    "a loader's iterator": (lambda x, y: iter(DataLoader(TensorDataset(x, y))), DataError, "only once"),
    "a zip": (lambda x, y: zip([x], [y], strict=True), DataError, "only once"),
    "no targets": (lambda x, y: (x, None), DataError, r"targets are a NoneType[\s\S]*torch.zeros\(len\(x\)\)"),
    "a data set of inputs": (lambda x, y: TensorDataset(x), DataError, "list of one entry"),
    "three tensors": (lambda x, y: (x, x, y), DataError, r"several inputs are a tuple or a dict: \(\(a, b\), y\)"),
    "triples": (lambda x, y: TensorDataset(x, y, y), DataError, "list of 3 entries"),
    "targets of two kinds": (lambda x, y: [(x, (y, x))], DataError, r"are a tuple[\s\S]*torch\.stack\(\(a, b\), -1\)"),
    "targets by name": (lambda x, y: [(x, {"y": y})], DataError, r"are a dict[\s\S]*let the loss take these apart"),
    "weights of examples": (lambda x, y: [(x, y, y)], DataError, r"3 entries[\s\S]*torch\.stack\(\(y, weight\), -1\)"),
    "objects": (lambda x, y: [slice(x, y)], DataError, r"is a slice[\s\S]*b\.y\) for b in loader"),
    "nested inputs by name": (lambda x, y: [({"obs": {"a": x}}, y)], DataError, "a Module around the model"),
    "inputs alone": (lambda x, y: [x, x, x], DataError, "Batch 0 is a Tensor"),
    "a dict of targets": (lambda x, y: (x, {"a": y, "b": y}), DataError,
                          r"The data are a tuple whose targets are a dict[\s\S]*targets\['a'\], targets\['b'\]"),
    "batches with a dict of targets": (lambda x, y: [(x, {"a": y})], DataError, "Batch 0 is a tuple whose targets are"),
    "objects as batches": (lambda x, y: [SimpleNamespace(x=x, y=y)], DataError, r"\(b.x, b.edge_index\), b.y"),
    "dicts without targets": (lambda x, y: [{"inputs": x, "outcome": y}], DataError, "entries inputs, outcome"),
    "dicts with two targets": (lambda x, y: [{"y": x, "labels": y}], DataError, "Exactly one"),
    "a dict of targets alone": (lambda x, y: {"labels": y}, DataError, "The data are a dict"),
    "a dict of lists": (lambda x, y: [{"input": [1, 2], "labels": y}], DataError, "hold a list"),
    "arrays": (lambda x, y: (x.numpy(), y.numpy()), DataError, "as_tensor"),
    "an array of inputs": (lambda x, y: (x.numpy(), y), DataError, "hold an ndarray"),
    "several inputs for a network of one": (lambda x, y: [((x, x), y)], ModelError, "The model failed on batch 0"),
    "a dict of one input": (lambda x, y: [{"pixels": x, "y": y}], ModelError, r"batch\['pixels'\], targets"),
    "sparse inputs": (lambda x, y: (x.to_sparse(), y), DataError, r"hold a sparse tensor[\s\S]*to_dense"),
    "sparse inputs by rows": (lambda x, y: (x.to_sparse_csr(), y), DataError, r"torch\.sparse_csr[\s\S]*to_dense"),
    "batches of sparse inputs": (lambda x, y: [(x.to_sparse(), y)], DataError, "hold a sparse tensor"),
    "nested inputs": (lambda x, y: (torch.nested.nested_tensor([x[:2], x[2:3]]), y[:2]), DataError, "to_padded_tensor"),
    "nothing as an input": (lambda x, y: [({"input": x, "mask": None}, y)], DataError, "Leave out what the model"),
    "a tuple that holds a list": (lambda x, y: [((x, [x]), y)], DataError, "hold a list"),
    "shuffled and dropped": (
        lambda x, y: DataLoader(TensorDataset(x, y), 4, drop_last=True, shuffle=True,
                                generator=torch.Generator().manual_seed(0)),  # else both drop the same once in 165
        DataError, "second pass"),
    "augmented": (lambda x, y: DataLoader(Augmented(x, y), 4), DataError, "second pass"),
    "augmented data set": (Augmented, DataError, "second pass"),
    "a shorter second pass": (lambda x, y: Unlike(unequal_batches(x, y)), DataError, "11 examples, then 7"),
    "an empty second pass": (lambda x, y: Unlike([(x, y)]), DataError, "11 examples, then 0"),
    "on another device": (lambda x, y: (x.to("meta"), y), DataError, "on cpu, the data on meta"),
    "targets on another device": (lambda x, y: [(x, y.to("meta"))], DataError, "on cpu, the data on meta"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused(name, x, y, unchecked):
    data, kind, message = BAD_DATA[name]
    model = network()
    if kind is None:  # tanh makes something finite of it
        assert np.isfinite(Risk(model, CE, data(x, y)).loss_value())
        return
    bad = data(x, y)
    with nothing_changes(model), pytest.raises(ritz.RitzError, match=message) as caught:
        Risk(model, CE, bad)
    check_refusal(caught, kind)


class OfTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(D, C), nn.Linear(D, C, bias=False)

    def forward(self, a, b):
        return self.left(a).tanh() * self.right(b)


class OfPair(OfTwo):
    def forward(self, pair):
        return super().forward(*pair)


class Pair(NamedTuple):
    """Two inputs with names, as a loader makes a batch of several."""

    a: torch.Tensor
    b: torch.Tensor


class OfFields(OfTwo):
    def forward(self, pair):
        return super().forward(pair.a, pair.b)


class OfAny(OfTwo):
    def forward(self, *inputs, **options):
        return super().forward(*inputs, **options)


PAIRS = {
    "tensors": lambda a, b, y: ((a, b), y),
    "a list of tensors": lambda a, b, y: ([a, b], y),
    "batches": lambda a, b, y: [((a[:7], b[:7]), y[:7]), ([a[7:], b[7:]], y[7:])],
    "a loader of pairs": lambda a, b, y: [([u, v], w) for u, v, w in DataLoader(TensorDataset(a, b, y), 4)],
}


NAMED = {
    "tensors": lambda a, b, y: (Pair(a, b), y),
    "a loader": lambda a, b, y: DataLoader([(Pair(u, v), w) for u, v, w in zip(a, b, y, strict=True)], 4),
}


@pytest.mark.parametrize("kind", [OfTwo, OfPair, OfFields])
@pytest.mark.parametrize("form", NAMED)
def test_inputs_in_a_named_tuple_keep_their_names(kind, form, x, y):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, plain = kind().double(), OfTwo().double()
    plain.load_state_dict(model.state_dict())
    a, b = x, x.flip(0)
    risk, expected = Risk(model, CE, NAMED[form](a, b, y)), Risk(plain, CE, ((a, b), y))
    check_against_pytorch(risk, plain, CE(plain(a, b), y))
    assert_close(ritz.hessian(risk).dense(), ritz.hessian(expected).dense())
    assert_close(ritz.gram_spectrum(risk).nodes, ritz.gram_spectrum(expected).nodes)


class Packed(nn.Module):
    """A recurrent network of sequences that come packed."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.GRU(D, 3, batch_first=True), nn.Linear(3, C)

    def forward(self, sequences):
        return self.head(self.recurrent(sequences)[1][-1])


@pytest.mark.parametrize("in_order", [False, True])
def test_packed_sequences_stay_packed(in_order, generator, y):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Packed().double()
    x, lengths = torch.randn(N, 5, D, generator=generator, dtype=torch.float64), torch.arange(N) % 5 + 1
    lengths = lengths.sort(descending=True).values if in_order else lengths
    pack = lambda rows: pack_padded_sequence(x[rows], lengths[rows], batch_first=True, enforce_sorted=in_order)
    whole, cuts = pack(slice(None)), (slice(7), slice(7, None))
    risk = Risk(model, CE, [(pack(rows), y[rows]) for rows in cuts])
    check_against_pytorch(risk, model, CE(model(whole), y))
    assert_close(ritz.hessian(risk).dense(), ritz.hessian(Risk(model, CE, [(whole, y)])).dense())


class OfJagged(nn.Module):
    """The mean over each of several sequences, which come as a nested tensor."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(D, C).double()

    def forward(self, sequences):
        return torch.stack([self.linear(one).tanh().mean(0) for one in sequences.unbind()])


def test_jagged_sequences_are_taken_in_their_batches(generator, y):
    rows = [torch.randn(k % 4 + 1, D, generator=generator, dtype=torch.float64) for k in range(N)]
    nested = lambda few: torch.nested.nested_tensor(few, layout=torch.jagged)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = OfJagged()
    risk = Risk(model, CE, [(nested(rows[:7]), y[:7]), (nested(rows[7:]), y[7:])])
    check_against_pytorch(risk, model, CE(model(nested(rows)), y))
    with pytest.raises(DataError, match="2 of the 7 examples"):
        risk.first(2)
    read = Risk(model, CE, Folder([(nested(rows[:7]), y[:7]), (nested(rows[7:]), y[7:])]), memory=0)
    assert_close(ritz.hessian(read).dense(), ritz.hessian(risk).dense())


@pytest.mark.parametrize("kind", [OfTwo, OfPair, OfAny])
@pytest.mark.parametrize("form", PAIRS)
def test_a_tuple_of_inputs_is_what_the_model_takes(kind, form, x, y):
    model, reversed_x = kind().double(), x.flip(0)
    named = OfTwo().double()
    named.load_state_dict(model.state_dict())
    expected = Risk(named, CE, ({"a": x, "b": reversed_x}, y))
    risk = Risk(model, CE, PAIRS[form](x, reversed_x, y))
    assert risk.num_terms == len(x)
    assert_close(ritz.hessian(risk).dense(), ritz.hessian(expected).dense())
    if form == "batches":
        assert_close(ritz.gram_spectrum(risk).nodes, ritz.gram_spectrum(expected).nodes)
        assert_close(ritz.class_decomposition(risk).within_traces, ritz.class_decomposition(expected).within_traces)
        assert_close(ritz.hessian(risk.first(9)).dense(), ritz.hessian(expected.first(9)).dense())


def test_a_risk_in_another_precision_reads_its_own_tensors_through_a_closure(x, y):
    model = network().float()
    old = model.forward
    model.forward = lambda t: old(t)
    exact = Risk(model, CE, (x.float(), y)).to(torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # the risk does not ask it
    assert float(ritz.hessian(exact).dense().norm()) > 0 and exact.dtype == torch.float64


def test_a_dict_without_a_known_name_for_targets_is_answered_in_its_own_names():
    batch = {"wave": torch.randn(3, 4), "tags": torch.zeros(3, dtype=torch.long)}
    with pytest.raises(DataError, match=r"\[\(\{'wave': batch\['wave'\]\}, batch\['tags'\]\) for batch in loader\]"):
        Risk(nn.Linear(4, 3), nn.CrossEntropyLoss(), [batch])


def test_a_nan_is_found_in_its_tensor_and_example():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, a, b):
            return self.linear(a + b)

    a, b, y = torch.ones(7, 4), torch.ones(7, 4), torch.zeros(7, dtype=torch.int64)
    b[5, 2] = float("nan")
    batches = [({"a": a[:4], "b": b[:4]}, y[:4]), ({"a": a[4:], "b": b[4:]}, y[4:])]
    with pytest.raises(NumericalError, match=r"batch 1.*'b' of its example 1, which is example 5 of the data"):
        Risk(Sum(), nn.CrossEntropyLoss(), batches)
