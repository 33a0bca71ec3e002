"""Random gradients whose second moment is the Hessian of the loss."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz.errors import NumericalError
from ritz.risk.losses import CrossEntropy
from ritz.risk.losses.conversion import loss_from
from ritz.risk.noise import noise
from tests.risk.losses.derivatives import CLASS_WEIGHTS, C, dense_hessian, refused

SAMPLES = 20_000
labels_of = lambda z: torch.arange(z[..., 0].numel()).view(z.shape[:-1]) % C
shares = lambda z: z.flip(0).sigmoid()

CASES = {
    "cross-entropy": (CrossEntropy(), (2, C), labels_of),
    "weights, smoothing, ignored": (
        CrossEntropy(CLASS_WEIGHTS, ignore_index=1, label_smoothing=0.2),
        (4, C),
        labels_of,
    ),
    "tokens": (CrossEntropy(), (2, 2, C), labels_of),
    "tokens, classes second": (nn.CrossEntropyLoss(), (2, C, 2), lambda z: labels_of(z.mT)),
    "probabilities": (CrossEntropy(), (2, C), lambda z: z.softmax(-1).flip(0)),
    "squared error": (ritz.SquaredError(), (2, C), torch.sin),
    "mean squared error": (nn.MSELoss(), (2, 2, C), torch.sin),
    "squared error of numbers": (ritz.SquaredError(), (4,), torch.sin),
    "binary": (ritz.BinaryCrossEntropy(), (2, C), shares),
    "binary, weighted": (nn.BCEWithLogitsLoss(CLASS_WEIGHTS, pos_weight=CLASS_WEIGHTS.flip(0)), (2, C), shares),
    "binary numbers": (ritz.BinaryCrossEntropy(), (4,), shares),
    "a callable": (lambda z, y: (z - y).pow(4).sum(-1) + (z.sum(-1) - 1) ** 2, (2, C), torch.sin),
    "a callable of numbers": (lambda z, y: (z - y).pow(4), (3,), torch.sin),
    "NLL of tokens": (nn.NLLLoss(), (2, C, 2), lambda z: labels_of(z.mT)),
    "linear": (lambda z, y: (z * y).sum(-1), (2, C), torch.sin),
}


@pytest.mark.parametrize("name", CASES)
def test_the_second_moment_is_the_hessian(name, normal):
    """Within a term, to six standard errors in every entry; the samples of two terms are independent."""
    given, shape, targets = CASES[name]
    loss, z = loss_from(given), normal(*shape)
    y = targets(z)
    many_z, many_y = (t.repeat(SAMPLES, *(1,) * (t.ndim - 1)) for t in (z, y))
    draws = noise(torch.arange(len(many_z)), 0, (loss.num_uniforms(z) // len(z),))
    samples = loss.sampled_gradient(many_z, many_y, draws).reshape(SAMPLES, -1)
    moments = samples[:, :, None] * samples[:, None, :]
    error = moments.std(0) / SAMPLES**0.5
    H = dense_hessian(lambda t: loss.terms(t, y).sum(), z)
    assert bool(((moments.mean(0) - H).abs() <= 6 * error + 1e-12).all())


@pytest.mark.parametrize("name", CASES)
def test_an_example_has_the_same_sample_in_every_batch(name, normal):
    given, shape, targets = CASES[name]
    loss, z = loss_from(given), normal(*shape)
    y, keys = targets(z), torch.arange(len(z))
    sample = lambda z, y, keys: loss.sampled_gradient(z, y, noise(keys, 1, (loss.num_uniforms(z) // len(z),)))
    whole = sample(z, y, keys)
    assert whole.shape == z.shape and whole.dtype == z.dtype
    assert_close(sample(z[1:], y[1:], keys[1:]), whole[1:])
    assert_close(sample(z.flip(0), y.flip(0), keys.flip(0)), whole.flip(0))


def test_a_sure_network_keeps_its_digits():
    z, y = torch.tensor([[40.0, 0.0, -3.0]]), torch.tensor([0])
    u = CrossEntropy().sampled_gradient(z, y, torch.tensor([0.5]))
    p = F.softmax(z.double(), -1)
    assert_close(u[0].double(), torch.stack([-p[0, 1] - p[0, 2], p[0, 1], p[0, 2]]), rtol=1e-5, atol=0)
    u = ritz.BinaryCrossEntropy().sampled_gradient(torch.tensor([40.0]), torch.tensor([1.0]), torch.tensor([0.5]))
    assert_close(u.double(), -torch.tensor([-40.0]).double().sigmoid(), rtol=1e-5, atol=0)


def test_a_loss_that_is_not_convex_has_no_samples(normal, labels):
    z = normal(7, C)
    for loss, y in [
        (loss_from(lambda a, b: a[:, 0] * a[:, 1]), z),
        (CrossEntropy(-CLASS_WEIGHTS), labels(7)),
        (ritz.BinaryCrossEntropy(weight=-CLASS_WEIGHTS), z.sigmoid()),
    ]:
        with refused(NumericalError, "convex"):
            loss.sampled_gradient(z, y, torch.full((21,), 0.3))
