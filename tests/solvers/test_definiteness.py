"""Without enough damping there is neither a log-determinant nor a condition number."""

import pytest
import torch

from ritz.errors import NumericalError
from ritz.solvers import condition_number, log_determinant

from .spectra import INDEFINITE, OUTLIERS, with_eigenvalues


@pytest.mark.parametrize("eigenvalues", [INDEFINITE, OUTLIERS * 0, torch.cat([torch.ones(5), torch.zeros(295)])])
def test_what_is_not_positive_definite_has_no_log_determinant_or_condition_number(eigenvalues, generator):
    A = with_eigenvalues(eigenvalues)
    for quantity in (log_determinant, condition_number):
        with pytest.raises(NumericalError, match="damping") as caught:
            quantity(A, generator=generator)
        assert caught.value.seen and caught.value.why and caught.value.ways_out
        assert quantity(A, damping=10.0, generator=generator).value > 0
