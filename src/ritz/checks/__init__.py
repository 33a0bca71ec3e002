"""What `ritz verify` runs: every closed form against a dense oracle, on fresh draws and on the degenerate cases."""

from .check import Check, Deviation, deviation
from .table import DRAWS, Row, all_checks, rows

__all__ = ["DRAWS", "Check", "Deviation", "Row", "all_checks", "deviation", "rows"]
