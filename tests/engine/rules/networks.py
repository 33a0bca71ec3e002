"""H, G and E of small networks by their operators, against PyTorch's own derivatives or central differences."""

import torch
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import ritz
from ritz.testing import check_operator
from tests.engine.curvature import RULES, class_targets, path_name


def check_curvature(model, x, *, twin=None, differences=False, path=RULES):
    """Products with H, G, E on the path of the rules are those of the dense matrices of the model, or of its twin."""
    model = drawn(model)
    risk = ritz.Risk(model, ritz.CrossEntropy(), (x, class_targets(model(x).shape)))
    expected = dense_matrices(twin or model, risk, x, differences)
    for operator, matrix in zip((ritz.hessian, ritz.gauss_newton, ritz.functional_hessian), expected, strict=True):
        A = operator(risk)
        check_operator(A, matrix, tolerance=1e-6 if differences else None)
        assert path_name(A) == path


def drawn(model):
    """The model in float64 in evaluation mode, its parameters and statistics drawn from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            buffer.data = torch.randn(buffer.shape, generator=generator, dtype=torch.float64)
            buffer.data = buffer.exp() if "var" in name else buffer
    return model.double().eval()


def dense_matrices(model, risk, x, differences):
    """H, G and H - G of the mean cross-entropy; H by double backward, or from differences of the gradient."""

    def outputs(theta):
        tensors = dict(zip(risk.shapes, risk.unflatten(theta), strict=True))
        with sdpa_kernel(SDPBackend.MATH):
            return functional_call(model, tensors, (x,)).flatten(0, -2)

    y = class_targets(model(x).shape).flatten()
    loss = lambda theta: F.cross_entropy(outputs(theta), y)
    theta = risk.theta.clone()
    H = _differences(loss, theta) if differences else hessian(loss, theta)
    J, z = jacobian(outputs, theta), outputs(theta).detach()
    B = hessian(lambda z: F.cross_entropy(z, y), z)
    G = torch.einsum("ian,iajb,jbm->nm", J, B, J)
    return H, G, H - G


def _differences(loss, theta, step=1e-5):
    slopes = lambda t: torch.autograd.grad(loss(t.requires_grad_()), t)[0]
    columns = [slopes(theta + step * e) - slopes(theta - step * e) for e in torch.eye(len(theta), dtype=theta.dtype)]
    return torch.stack(columns, 1) / (2 * step)
