"""The command `ritz`."""

from .commands import app

__all__ = ["app", "main"]


def main() -> None:
    """The entry point of the command."""
    app(prog_name="ritz")
