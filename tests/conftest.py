import gc
import os

import jaxtyping
from jaxtyping import install_import_hook

import tests.shapes

hook = install_import_hook("ritz", "tests.shapes.checked")
jaxtyping.jaxtyped = tests.shapes.as_the_hook_asks

import pytest
import torch

gc.disable()  # until all tests are collected: of what that makes, nearly all stays


def pytest_collection_finish():
    """What the modules of all tests made stays to the end: the collector need not look through it again and again.

    What tests leave is small, and need not be looked at as often as usual.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """What a test draws without a generator, the weights of its layers too, is the same in whatever order tests run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def unawaited():
    """What is written is not awaited on the disk, thousands of times: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def unchecked(monkeypatch):
    """As users run it: annotations are not checked, so that ritz itself has to refuse what does not fit."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
