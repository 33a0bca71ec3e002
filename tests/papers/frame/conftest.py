"""Fixtures: a paper of our own."""

from tests.papers.paper_of_squares import folder

__all__ = ["folder"]
