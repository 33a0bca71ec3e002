"""How an operator computes its products, and how accurately."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Info:
    """How an operator multiplies and how accurate that was seen to be; None stands for what was not measured.

    Everything but `seconds` is the same in every run with the same seeds on the same machine.
    """

    path: str  # the name of the path that was chosen
    disagreement: float | None  # relative to PyTorch's own second derivatives; None where there was nothing to compare
    tangent_error: float | None  # relative, of tangent_precision="high" against "highest"
    num_batches: int  # the number of pieces in which the data are processed
    columns: int | None  # how many vectors go through one pass together; None until several were multiplied
    kept_bytes: float  # kept between products
    seconds: float  # of a product in the trial, on at most 16 examples where these are independent
