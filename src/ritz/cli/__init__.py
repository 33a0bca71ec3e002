"""The command `ritz`."""

from . import paper_commands
from .commands import app
from .messages import accept_all_text

__all__ = ["app", "main", "paper_commands"]


def main() -> None:
    """The entry point of the command."""
    accept_all_text()
    app(prog_name="ritz")
