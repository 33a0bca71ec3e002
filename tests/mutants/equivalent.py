"""Mutants that no test can tell from the original, each with the reason: by file, and the line as it is after."""

EQUIVALENT = {
    (
        "solvers/ritz_pairs.py",
        'return torch.cat([order[0::2], order[1::2]]) if which <= "both" else order',
    ): "`both` is the first of all words in the alphabet",
    (
        "solvers/copies.py",
        "pace = 2 * (2 * (self._values - (low + high) / 2).abs() / max(high - low, 1e-300)).clamp(min= 0).acosh()",
    ): "inside the bulk the pace is then NaN instead of 0, and what is missing, which is positive where there is a "
    "doubt, is below neither",
}
