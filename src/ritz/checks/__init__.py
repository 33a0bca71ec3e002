"""The checks of `ritz verify`: every closed form against a dense oracle, on random and degenerate inputs."""

from .check import Check, Deviation, deviation
from .table import DRAWS, Row, all_checks, rows

__all__ = ["DRAWS", "Check", "Deviation", "Row", "all_checks", "deviation", "rows"]
