"""What is known of how an operator computes its products."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Info:
    """How an operator multiplies, with what was seen of its errors; None stands for what was not measured.

    Everything but `seconds` is the same in every run with the same seeds on the same machine.
    """

    path: str  # which of the ways to compute a product was taken
    disagreement: (
        float | None
    )  # relative, with PyTorch's own second derivatives; None where there was nothing to compare
    tangent_error: float | None  # relative, of tangent_precision="high" against "highest"
    num_batches: int  # the data are multiplied with in so many pieces
    columns: int | None  # how many vectors one pass takes together; None until several were multiplied
    kept_bytes: float  # held between products
    seconds: float  # of a product in the trial, which is on 16 examples at most where they are independent
