"""Every rule tried both ways: on records that agree with what is said, and on records that contradict it."""


def missing_verdicts(figure, records):
    """The statements of a figure that no record makes a yes, or none a no, each with the verdict that is missing.

    Records are of the size of the paper's preset: a rule that only a longer sweep could pass cannot be passed.
    """
    missing = []
    for statement in figure.statements:
        claims = [claim for claim in map(statement.claim, records) if claim is not None]
        seen = {claim.verdict for claim in claims}
        missing += [(statement.statement, verdict) for verdict in ("yes", "no") if verdict not in seen]
        assert all(claim.why for claim in claims if claim.verdict != "yes"), statement.statement
    return missing
