"""Random numbers by example: uniform, independent, and the same in every batch."""

import pytest
import torch
from torch.testing import assert_close

import ritz
from ritz.risk.batches import joined
from ritz.risk.data_by_class import class_batches
from ritz.risk.noise import noise
from tests.risk.problem import C, D, N, network
from tests.zoo import unequal_batches

KEYS = torch.arange(4000)


def test_a_key_has_its_numbers_wherever_it_stands():
    whole = noise(KEYS, 3, (2, 5))
    assert whole.shape == (4000, 2, 5) and whole.dtype == torch.float64
    some = torch.tensor([3999, 0, 17, 17])
    assert torch.equal(noise(some, 3, (2, 5)), whole[some])
    assert torch.equal(noise(KEYS, 3, (3, 5))[:, :2], whole)  # more columns leave the first as they are


def test_the_numbers_are_uniform_and_never_zero_or_one():
    for seed in (0, 1, -1, 2**63 - 1, 2**64 + 5):
        u = noise(KEYS, seed, (250,)).flatten()  # a million
        assert float(u.min()) > 0 and float(u.max()) < 1
        counts = torch.histc(u, 100, 0, 1)
        chi_squared = float(((counts - 1e4) ** 2 / 1e4).sum())
        assert abs(chi_squared - 99) < 6 * (2 * 99) ** 0.5
        assert_close(u.mean(), torch.tensor(0.5).double(), rtol=0, atol=6 * 12**-0.5 * 1e-3)


@pytest.mark.parametrize("step", [1, 2, 64, 1024])
def test_keys_seeds_and_columns_are_independent(step):
    """Correlations of numbers and of their squares are those of chance: below six standard errors of 4000 pairs."""
    normal = lambda u: (u - u.mean()) / u.std()
    first = noise(KEYS, 0, (3,))
    others = {
        "keys": noise(KEYS + step, 0, (3,)),
        "seeds": noise(KEYS, step, (3,)),
        "columns": noise(KEYS, 0, (step + 6,))[:, -3:],
        "keys and columns": noise(KEYS + step, 0, (step + 6,))[:, -3:],
        "keys and seeds": noise(KEYS + step, -step, (3,)),
    }
    for name, other in others.items():
        for power in (1, 2):
            for a in range(3):
                for b in range(3):
                    u, v = ((t - 0.5) ** power for t in (first[:, a], other[:, b]))
                    assert abs(float((normal(u) * normal(v)).mean())) < 6 / 4000**0.5, (name, power, a, b)


def test_the_bits_of_neighbours_have_nothing_in_common():
    """Half of the first 32 bits differ between one key and the next, one seed and the next."""
    bits = lambda u: ((u[:, 0, None] * 2.0 ** torch.arange(1, 33).double()).floor() % 2).bool()
    u = bits(noise(KEYS, 0, (1,)))
    for other in (bits(noise(KEYS + 1, 0, (1,))), bits(noise(KEYS, 1, (1,)))):
        share = (u ^ other).double().mean(0)
        assert float((share - 0.5).abs().max()) < 6 * 0.5 / 4000**0.5


def keys_of(batches):
    return torch.cat([batch.keys for batch in batches])


def test_every_example_keeps_its_key(x, y):
    """The index of an example leads back to it, after joining, cutting, sorting by class and conversion."""
    data = unequal_batches(x, y)
    risk = ritz.Risk(network(), ritz.CrossEntropy(), [data[0], (x[:0], y[:0]), *data[1:]])
    batches = risk.batches
    forms = [
        batches, batches.joined(2), batches.first(5), batches.channels_last(), risk.to(torch.float32).batches,
        risk.first(9).batches, class_batches(risk), [joined(list(batches))],
        [batch.rows(torch.tensor([2, 0])) for batch in batches],
    ]  # fmt: skip
    for form in map(list, forms):
        for batch in form:
            assert_close(batch.inputs, x[batch.keys].to(batch.inputs.dtype))
            assert torch.equal(batch.targets, y[batch.keys])
    assert torch.equal(keys_of(batches), torch.arange(N))
    assert torch.equal(keys_of(class_batches(risk)).sort().values, torch.arange(N))


def test_keys_run_on_over_our_own_cuts_and_over_passes(generator):
    x, y = torch.randn(1100, D, generator=generator).double(), torch.randint(C, (1100,), generator=generator)
    for memory in (None, 0):
        risk = ritz.Risk(network(), ritz.CrossEntropy(), (x, y), memory=memory)
        for _ in range(2):
            assert torch.equal(keys_of(risk.batches), torch.arange(1100))
