"""One problem on the CPU and on the device, and how results from both are compared."""

import copy
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import torch
from tests.zoo import OUTPUTS, case, unequal_batches
from torch import Tensor

from ritz.risk import Risk
from ritz.risk.losses import CrossEntropy

CPU = torch.device("cpu")
DEVICE = torch.device(os.environ.get("RITZ_TEST_DEVICE", "cuda"))
CLOSE = 1e-9  # relative, in float64


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def moved(data, place):
    """Tensors in lists, tuples and dicts, on another device."""
    if isinstance(data, Tensor):
        return data.to(place)
    if isinstance(data, dict):
        return {name: moved(value, place) for name, value in data.items()}
    return type(data)(moved(value, place) for value in data)


def classification(name="mlp"):
    """A small network in float64, a loss, and two batches of different size, on the CPU."""
    small = case(name)
    y = torch.randint(OUTPUTS, small.shape[:-1], generator=seeded(1))
    return small.model, CrossEntropy(), unequal_batches(small.inputs, y)


def risks(name="mlp", place=DEVICE, **options):
    """The risk on the CPU, and the one on the device with its data in the given place."""
    model, loss, batches = classification(name)
    there = Risk(copy.deepcopy(model).to(DEVICE), loss, moved(batches, place), **options)
    return Risk(model, loss, batches, **options), there


def assert_same(there, here, *, rtol=CLOSE, skip=()):
    """Results of the same computation: numbers, tensors, and everything that is made of them.

    Tensors are compared in the scale of their largest entry; fields in `skip` depend on signs of eigenvectors or time.
    """
    if isinstance(here, Tensor | np.ndarray):
        here, there = (torch.as_tensor(value).detach().cpu() for value in (here, there))
        assert here.shape == there.shape and here.dtype == there.dtype
        if here.is_floating_point():
            scale = float(here.abs().max()) if here.numel() else 1.0
            torch.testing.assert_close(there, here, rtol=0, atol=rtol * (scale or 1.0))
        else:
            assert torch.equal(there, here)
    elif isinstance(here, Mapping):
        assert list(here) == list(there)
        for name in here:
            if name not in skip:
                assert_same(there[name], here[name], rtol=rtol, skip=skip)
    elif is_dataclass(here):
        names = [field.name for field in fields(here) if field.name not in skip]
        assert_same(*({name: getattr(value, name) for name in names} for value in (there, here)), rtol=rtol, skip=skip)
    elif isinstance(here, list | tuple):
        assert len(here) == len(there)
        for one, other in zip(there, here, strict=True):
            assert_same(one, other, rtol=rtol, skip=skip)
    elif isinstance(here, float):
        assert abs(there - here) <= rtol * max(1.0, abs(here)) or (here != here and there != there)
    elif isinstance(here, int | str | bool | None):
        assert there == here
