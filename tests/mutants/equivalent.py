"""Mutants that no test can tell from the original, each with the reason."""

EQUIVALENT: dict[str, str] = {}
