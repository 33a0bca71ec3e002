"""A watch over what no call may change: the model, PyTorch's settings, the random state."""

import contextlib
import copy

import numpy as np
import torch

import ritz


def settings_of_pytorch():
    backends = torch.backends
    kinds = [
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.cudnn.rnn,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
    ]
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        [kind.fp32_precision for kind in kinds],
        [backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic],
        [
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
            backends.mha.get_fastpath_enabled(),
        ],
    )


def state_of(model):
    named = [*model.named_parameters(), *model.named_buffers()]
    return {
        "tensors": {name: (t.data_ptr(), t._version, t.requires_grad, t.detach().clone()) for name, t in named},
        "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
        "training": {name: module.training for name, module in model.named_modules()},
        "attributes": {name: set(vars(module)) for name, module in model.named_modules()},
    }


@contextlib.contextmanager
def nothing_changes(model):
    before, weights, flags = state_of(model), copy.deepcopy(model.state_dict()), settings_of_pytorch()
    randomness, numpy_randomness = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        after = state_of(model)
        assert after["training"] == before["training"] and after["attributes"] == before["attributes"]
        assert settings_of_pytorch() == flags
        assert torch.equal(torch.get_rng_state(), randomness)
        assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_randomness, strict=True))  # noqa: NPY002
        for name, (pointer, version, flag, value) in before["tensors"].items():
            assert after["tensors"][name][:3] == (pointer, version, flag), name
            assert torch.equal(after["tensors"][name][3], value), name
        for name, gradient in before["gradients"].items():
            assert (gradient is None) == (after["gradients"][name] is None)
            assert gradient is None or torch.equal(after["gradients"][name], gradient)
        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name])


def everything(risk):
    v = torch.ones(risk.size, 5, dtype=risk.dtype)
    for operator in (ritz.hessian, ritz.gauss_newton, ritz.functional_hessian, ritz.empirical_fisher):
        _ = operator(risk) @ v
    _ = risk.loss_value(), risk.gradient(), risk.labels, risk.num_classes
    _ = risk.first(3).gradient()
    first_name = next(iter(risk.shapes))
    _ = ritz.hessian(risk.restricted_to(first_name)) @ v[: risk.shapes[first_name].numel(), 0]
    _ = ritz.eigenpairs(ritz.hessian(risk), 1)
    _ = ritz.spectral_density(ritz.gauss_newton(risk), num_steps=3, num_probes=1)
