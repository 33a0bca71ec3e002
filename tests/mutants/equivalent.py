"""Mutants that no test can tell from the original, each with the reason: by file, and the line as it is after."""

EQUIVALENT = {
    (
        "solvers/ritz_pairs.py",
        'return torch.cat([order[0::2], order[1::2]]) if which <= "both" else order',
    ): "`both` is the first of all words in the alphabet",
    (
        "solvers/missed_pairs.py",
        "pace = 2 * (2 * (self._values - (low + high) / 2).abs() / max(high - low, 1e-300)).clamp(min= 0).acosh()",
    ): "inside the bulk the pace is then NaN instead of 0, and what is missing, which is positive where there is a "
    "doubt, is below neither",
    (
        "theory/aligned_layers.py",
        "total = total + (1 + (step * GOLDEN) % 2) * T.T @ T",
    ): "eigenvectors that all TᵀT share are those of their sum with any positive weights in no simple ratio",
}
