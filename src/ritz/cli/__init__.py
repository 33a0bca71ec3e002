"""The command `ritz`."""

from . import paper_commands
from .commands import app

__all__ = ["app", "main", "paper_commands"]


def main() -> None:
    """The entry point of the command."""
    app(prog_name="ritz")
