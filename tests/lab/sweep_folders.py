"""Helpers for tests of sweeps: configs, an environment for drivers, and what lies in a folder afterwards."""

import os
from pathlib import Path

import numpy as np

from tests.lab.sweep_tasks import Config

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}  # for drivers: this ritz, these tests
PATIENCE = 600  # seconds: processes that import torch take six here, and ten times that on a busy machine


def configs(folder="", count=4):
    return [Config(index, folder=str(folder)) for index in range(count)]


def assert_same(records, others):
    for one, other in zip(records, others, strict=True):
        assert (one.id, one.config, one.scalars) == (other.id, other.config, other.scalars)
        assert one.arrays.keys() == other.arrays.keys()
        for name in one.arrays:
            np.testing.assert_array_equal(one.arrays[name], other.arrays[name], strict=True)


def hidden(folder):
    """What lies in a sweep's folder beside its records."""
    return [path.name for path in folder.rglob(".*") if path.name != ".lock"]
