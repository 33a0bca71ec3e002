"""Fixtures: the computations that the poster shares."""

from tests.papers.singh2026.conftest import computed

__all__ = ["computed"]
