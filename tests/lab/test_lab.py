"""The lab's data and training, small as they are."""

import hashlib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from ritz import record
from ritz.lab import data
from ritz.lab.training import accuracy, train
from tests.seeds import seeded


def test_digits_are_split_without_overlap_and_standardised_on_the_training_part():
    digits = data.digits(generator=seeded(), dtype=torch.float64)
    assert (len(digits.train.x), len(digits.test.x)) == (1438, 359)
    assert_close(digits.train.x.mean(), torch.tensor(0.0, dtype=torch.float64), atol=1e-12, rtol=0)
    assert_close(digits.train.x.std(), torch.tensor(1.0, dtype=torch.float64))
    rows = torch.cat([digits.train.x, digits.test.x])
    assert len(rows.unique(dim=0)) == 1797  # all are different


def test_the_digits_are_those_that_were_published():
    """The SHA-256 of the pixels and then the labels, as bytes, from scikit-learn 1.9's copy of the same file."""
    arrays, _ = record.read_arrays(Path(data.__file__).with_name("digits.npz"))
    digest = hashlib.sha256(arrays["images"].tobytes() + arrays["labels"].tobytes()).hexdigest()
    assert digest == "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    assert arrays["images"].shape == (1797, 8, 8) and arrays["images"].max() == 16


def test_the_same_generator_gives_the_same_split():
    first, second, other = (data.digits(generator=seeded(s)).test.y for s in (0, 0, 1))
    assert_close(first, second)
    assert not torch.equal(first, other)


@pytest.fixture
def problem():
    """Two batches of different size of a linearly separable problem."""
    x = torch.randn(50, 3, dtype=torch.float64, generator=seeded())
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.1)).double()
    return model, (x, y)


def trained(model, examples, num_epochs, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    options = {"batch_size": 32, "generator": seeded()} | options
    return train(model, nn.CrossEntropyLoss(), examples, optimizer, num_epochs=num_epochs, **options)


def test_training_learns_and_pauses_in_eval_mode(problem):
    model, examples = problem
    epochs = []
    for epoch in trained(model, examples, 20):
        assert not model.training
        epochs.append(epoch)
    assert [e.epoch for e in epochs] == list(range(1, 21))
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    assert accuracy(model, examples) > 0.9


def test_the_loss_of_an_epoch_counts_every_example_once(problem):
    model, (x, y) = problem
    model[1].p = 0.0
    frozen = torch.optim.SGD(model.parameters(), lr=0.0)
    loss = nn.CrossEntropyLoss()
    (epoch,) = train(model, loss, (x, y), frozen, num_epochs=1, batch_size=32, generator=seeded())
    assert_close(epoch.loss, loss(model(x), y).item())


def test_a_diverged_training_says_so(problem):
    model, (x, y) = problem
    *_, last = trained(model, (x * torch.inf, y), 1)
    assert last.diverged
