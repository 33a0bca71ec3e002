"""The data of a risk class by class: every example once, whatever the type of its label."""

import pytest
import torch
from torch import nn

import ritz
from ritz.risk.data_by_class import class_batches


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("tokens", [False, True])
def test_labels_of_any_integer_type_belong_to_their_own_class(dtype, tokens):
    y = torch.tensor([156, 44, 156, 3, 44, 44]).to(dtype)
    x = torch.linspace(-1, 1, 12).double().reshape(6, 2)
    x, y = (x.reshape(3, 2, 2), y.reshape(3, 2)) if tokens else (x, y)
    risk = ritz.Risk(nn.Linear(2, 301).double(), ritz.CrossEntropy(), [(x[:2], y[:2]), (x[2:], y[2:])])
    assert risk.num_terms == 6
    assert sum(len(batch) for batch in class_batches(risk)) == len(x)
    assert {int(label) for batch in class_batches(risk, only=156) for label in batch.targets.flatten()} >= {156}
    assert not list(class_batches(risk, only=300))  # 44 where a byte has no room for it
