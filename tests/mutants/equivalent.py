"""Mutants that no test can tell from the original, each with the reason."""

EQUIVALENT = {
    "classes/gradients/means.py:70 ReplaceComparisonOperator_Eq_Is 0": "small integers are one object in CPython",
    "solvers/ritz_pairs.py:31 ReplaceComparisonOperator_Eq_LtE 1": "`both` is the first of all words in the alphabet",
    "theory/two_layer_compression.py:57 ReplaceBinaryOperator_Mul_Div 2": "all calls pass these as they did before",
}
