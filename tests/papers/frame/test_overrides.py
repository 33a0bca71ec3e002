"""Single fields of a preset set anew."""

from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

from ritz.errors import ArgumentError
from ritz.papers.frame.overrides import differences, with_settings
from ritz.record import plain


@dataclass(frozen=True)
class Inside:
    depth: int = 2


@dataclass(frozen=True)
class Settings:
    epochs: int = 10
    rate: float = 0.1
    whiten: bool = False
    data: Literal["mnist", "cifar10"] = "mnist"
    level: Literal[0, 1] = 1
    limit: int | None = None
    norm: float | str = "auto"
    widths: tuple[int, ...] = (8, 8)
    range: tuple[float, int] = (0.5, 2)
    function: object = None
    inside: Inside = field(default_factory=Inside)


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("epochs=20", "epochs", 20),
        ("rate=1", "rate", 1.0),
        ("rate=1e-3", "rate", 1e-3),
        ("whiten=true", "whiten", True),
        ("whiten=False", "whiten", False),
        ("data=cifar10", "data", "cifar10"),
        ("level=0", "level", 0),
        ("limit=none", "limit", None),
        ("limit=5", "limit", 5),
        ("norm=2", "norm", 2.0),
        ("norm=auto=x", "norm", "auto=x"),
        ("widths=1, 2,3", "widths", (1, 2, 3)),
        ("widths=(4,)", "widths", (4,)),
        ("range=1,2", "range", (1.0, 2)),
    ],
)
def test_settings_are_read_by_the_type_of_their_field(text, name, value):
    found = getattr(with_settings(Settings(), [text]), name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "epochs=1.5",
        "epochs=",
        "rate=fast",
        "whiten=1",
        "data=svhn",
        "limit=some",
        "range=1",
        "range=1,2.5",
        "function=f",
        "widths=",
        "widths=()",
        "widths=1,,2",
        "rate=nan",
        "rate=inf",
        "inside=3",
        "inside.depth=deep",
    ],
)
def test_settings_of_another_type_are_refused(text):
    with pytest.raises(ArgumentError, match="is not"):
        with_settings(Settings(), [text])


def test_a_field_of_a_field_is_set_by_both_names():
    assert with_settings(Settings(), ["inside.depth=3", "epochs=1"]) == Settings(epochs=1, inside=Inside(3))
    for text in ("inside.width=3", "epochs.depth=3"):
        with pytest.raises(ArgumentError, match="there is no field"):
            with_settings(Settings(), [text])


def test_settings_can_be_told_from_a_config_and_make_it_again():
    texts = ["whiten=true", "limit=5", "widths=1,2,3", "inside.depth=3"]
    made = with_settings(replace(Settings(), function="f"), texts)
    assert differences(plain(made), replace(Settings(), function="f")) == texts


def test_a_message_names_types_in_words():
    with pytest.raises(ArgumentError, match="is not a list of int"):
        with_settings(Settings(), ["widths=x"])
    with pytest.raises(ArgumentError, match="is not int or none"):
        with_settings(Settings(), ["limit=x"])
