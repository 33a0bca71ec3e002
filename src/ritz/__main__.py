"""`python -m ritz`: the same as the command `ritz`."""

from .cli import main

if __name__ == "__main__":
    main()
