"""Fixtures: a paper of our own, and pictures that are not rendered."""

from tests.cli.conftest import rendered, unrendered
from tests.papers.paper_of_squares import folder

__all__ = ["folder", "rendered", "unrendered"]
