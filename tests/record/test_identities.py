"""What a computation belongs to: checksums of what it was given."""

import torch

from ritz.record.identities import digest


def test_one_entry_that_was_expanded_has_the_digest_of_its_value():
    assert digest(torch.tensor(0.5).expand(1)) == digest(torch.tensor([0.5]))
