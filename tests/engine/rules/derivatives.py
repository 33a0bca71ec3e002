"""Derivatives with and without the rules."""

import itertools
from functools import partial

import torch
from torch.nn import functional as F
from torch.testing import assert_close

from ritz.engine.rules import EfficientRules

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def value_and_derivatives(function, leaves, *, active, second):
    """The value y, x̄ = Jᵀu, J t from the graph of u ↦ Jᵀu, and the derivative of Jᵀu along t with respect to leaves."""
    generator = torch.Generator().manual_seed(1)
    leaves = [leaf.detach().requires_grad_(leaf.requires_grad) for leaf in leaves]
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    if active:
        with EfficientRules(second=second) as mode:
            y = function(*leaves)
        assert mode.used == (active == "used")
    else:
        y = function(*leaves)
    u = torch.randn(y.shape, generator=generator, dtype=y.dtype).requires_grad_()
    tangents = [torch.randn(leaf.shape, generator=generator, dtype=y.dtype) for leaf in trained]
    gradient = torch.autograd.grad(y, trained, u, create_graph=True)
    inner = sum((g * t).sum() for g, t in zip(gradient, tangents, strict=True))
    targets = [u, *trained] if second else [u]
    results = torch.autograd.grad(inner, targets, allow_unused=True)
    mixed = [torch.zeros_like(t) if r is None else r for r, t in zip(results, targets, strict=True)]
    return y.detach(), [g.detach() for g in gradient], mixed


def check_rule(function, *leaves, used=True, reference=None):
    """With the rules, a function has the same value, bit by bit, and the same first and second derivatives."""
    active = "used" if used else "idle"
    for second in (True, False):
        expected = value_and_derivatives(reference or function, leaves, active=None, second=second)
        actual = value_and_derivatives(function, leaves, active=active, second=second)
        assert_close(actual[0], expected[0], rtol=0, atol=0 if reference is None else 1e-12)
        for a, b in zip(actual[1] + actual[2], expected[1] + expected[2], strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-11)


def frozen(tensor):
    return tensor.detach().requires_grad_(False)


def choices(tensors):
    """Every combination of trained and frozen tensors but the one that trains nothing."""
    for flags in itertools.product([True, False], repeat=len(tensors)):
        if any(flags):
            yield [tensor if flag else frozen(tensor) for tensor, flag in zip(tensors, flags, strict=True)]


def assert_batched_products_agree(function, *leaves):
    """Jᵀu and J t for three u and t together are those one by one."""
    generator = torch.Generator().manual_seed(4)
    with EfficientRules(second=False) as mode:
        y = function(*leaves)
    assert mode.used
    u = torch.zeros_like(y, requires_grad=True)
    gradient = torch.autograd.grad(y, leaves, u, create_graph=True)
    for outputs, inputs in (([y], leaves), (gradient, [u])):
        along = [torch.randn((3, *o.shape), generator=generator, dtype=y.dtype) for o in outputs]
        product = partial(torch.autograd.grad, outputs, inputs, retain_graph=True)
        together = product(along, is_grads_batched=True)
        for i in range(3):
            for a, b in zip(together, product([t[i] for t in along]), strict=True):
                assert_close(a[i], b, rtol=1e-10, atol=1e-12)
