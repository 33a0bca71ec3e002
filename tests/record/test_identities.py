"""What a computation belongs to: checksums of what it was given."""

import functools
import operator
import re
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ritz.errors import ArgumentError
from ritz.record.identities import digest, identity_of, model_identity

ENDS = (0, 2)


def test_one_entry_that_was_expanded_has_the_digest_of_its_value():
    assert digest(torch.tensor(0.5).expand(1)) == digest(torch.tensor([0.5]))


class Slotted:
    __slots__ = ("low",)

    def __init__(self, low):
        self.low = low


class Slotless:
    def __init__(self, low):
        self.low = low


class SlottedBelow(Slotted):
    __slots__ = ("high",)

    def __init__(self, low):
        super().__init__(low)
        self.high = 7


class Named(list):
    def __init__(self, entries, name):
        super().__init__(entries)
        self.name = name


class Table(dict):
    def __init__(self, default):
        super().__init__(a=1)
        self.default = default


@dataclass
class Setting:
    size: int


class FinerSetting(Setting):
    def __init__(self, step):
        super().__init__(3)
        self.step = step


def settled(setting):
    """One that has looked up something of itself."""
    setting.product
    return setting


class Lazy(Setting):
    @functools.cached_property
    def product(self):
        return 2 * self.size


def object_array(entry):
    return np.array([entry, "text"], dtype=object)


def factory(kind):
    return defaultdict(kind, {1: 2})


def compiled(text):
    return compile(text, "one.py", "eval")


ONE_AND_OTHER = {
    "slice": (slice, (0, 2), (2, 4)),
    "range": (range, (0, 2), (2, 4)),
    "path": (Path, ("data", "a"), ("data", "b")),
    "fraction": (Fraction, (1, 3), (2, 3)),
    "deque": (deque, ([1, 2],), ([1, 3],)),
    "length of a deque": (deque, ([1, 2], 2), ([1, 2], 3)),
    "slots": (Slotted, (1,), (2,)),
    "code": (compiled, ("1 + 1",), ("1 + 2",)),
    "slots of a base": (SlottedBelow, (1,), (2,)),
    "attribute of a list": (Named, ([1], "a"), ([1], "b")),
    "entries of a list of ours": (Named, ([1], "a"), ([2], "a")),
    "attribute of a dict": (Table, (1,), (2,)),
    "what a dict fills in": (factory, (int,), (float,)),
    "attribute beside a dataclass": (FinerSetting, (1,), (2,)),
    "getter": (operator.itemgetter, (0,), (1,)),
    "pattern": (re.compile, ("a",), ("b",)),
    "method of a text": (lambda text: text.join, ("a",), ("b",)),
    "array of objects": (object_array, (1,), (2,)),
    "source of randomness": (np.random.default_rng, (1,), (2,)),
}


@pytest.mark.parametrize("name", ONE_AND_OTHER)
def test_two_values_of_a_kind_are_told_apart_and_the_same_value_is_the_same(name):
    make, one, other = ONE_AND_OTHER[name]
    assert identity_of("x", make(*one)) == identity_of("x", make(*one))
    assert identity_of("x", make(*one)) != identity_of("x", make(*other))


def test_what_was_looked_up_of_a_value_does_not_change_it():
    path = Path("data", "a")
    hash(path), str(path), path.parts
    assert identity_of("x", path) == identity_of("x", Path("data", "a"))
    assert identity_of("x", settled(Lazy(3))) == identity_of("x", Lazy(3))


def test_a_reference_is_what_it_leads_to():
    one, same, other = Slotless(1), Slotless(1), Slotless(2)
    assert identity_of("x", weakref.ref(one)) == identity_of("x", weakref.ref(same))
    assert identity_of("x", weakref.ref(one)) != identity_of("x", weakref.ref(other))


def test_locks_hold_no_value_and_what_nobody_can_describe_is_refused():
    assert identity_of("x", threading.Lock()) == identity_of("x", threading.Lock())
    with pytest.raises(ArgumentError, match="generator cannot be identified"):
        identity_of("x", {"batches": (batch for batch in ())})


def test_a_constant_that_a_function_names_belongs_to_it(monkeypatch):
    cut = lambda z: z[slice(*ENDS)]
    before = identity_of("loss", cut)
    monkeypatch.setitem(globals(), "ENDS", (2, 4))
    assert identity_of("loss", cut) != before


class Windowed(nn.Linear):
    def __init__(self, window):
        super().__init__(4, 2)
        self.window = window


class Masked(nn.Linear):
    def __init__(self, mask):
        super().__init__(4, 2)
        self.register_buffer("mask", mask, persistent=False)


class Taught(nn.Linear):
    def __init__(self, teacher):
        super().__init__(4, 2)
        self.__dict__["teacher"] = teacher


@pytest.mark.parametrize(
    "kind, one, other",
    [
        (Windowed, slice(0, 2), slice(2, 4)),
        (Windowed, torch.zeros(4), torch.ones(4)),
        (Masked, torch.zeros(4), torch.ones(4)),
        (Taught, nn.ReLU(), nn.Tanh()),
    ],
)
def test_what_a_model_holds_beside_its_state_is_part_of_its_structure(kind, one, other):
    assert model_identity("model", kind(one)) == model_identity("model", kind(one))
    assert model_identity("model", kind(one)) != model_identity("model", kind(other))


def test_a_module_that_knows_its_parent_is_described_once():
    def family():
        torch.manual_seed(0)
        parent = nn.Sequential(nn.Linear(2, 2))
        parent[0].__dict__["parent"] = parent
        parent[0].family = [parent]
        return parent

    assert identity_of("model", family()) == identity_of("model", family())


def test_the_order_of_entries_is_part_of_a_mapping():
    assert identity_of("x", [OrderedDict(a=1, b=2)]) != identity_of("x", [OrderedDict(b=2, a=1)])


def test_lambdas_of_one_line_are_told_apart():
    once, twice = (lambda x: x), (lambda x: 2 * x)
    assert identity_of("loss", once) != identity_of("loss", twice)
