"""The parts of G as dense matrices, from the Jacobian of every term."""

import torch

from ritz.factored.gram_parts import PARTS
from tests.zoo import OUTPUTS, whole


def dense_parts(found, risk):
    """The parts of G from the Jacobian of every term, as the paper defines them."""
    outputs = whole(risk, found)
    z = outputs(risk.theta).reshape(-1, OUTPUTS)
    J = torch.func.jacrev(outputs)(risk.theta).reshape(len(z), OUTPUTS, -1)
    p, labels = z.softmax(-1), torch.cat([batch.targets.flatten() for batch in risk.batches])
    loss = risk.loss
    weight = torch.ones(OUTPUTS).double() if loss.weight is None else loss.weight.double()
    mass = (1 - loss.label_smoothing) * weight[labels] + loss.label_smoothing * weight.mean()
    mass[labels == loss.ignore_index] = 0.0
    w = mass[:, None] * p / risk.total_weight
    g = torch.einsum("nkq,nck->ncq", J, p[:, None] - torch.eye(OUTPUTS).double())  # for every would-be label
    parts = {part: torch.zeros(risk.size, risk.size).double() for part in PARTS}
    G = torch.einsum("nc,ncq,ncs->qs", w, g, g)
    for c in range(OUTPUTS):
        rows, others = labels == c, [d for d in range(OUTPUTS) if d != c]
        sums, totals = torch.einsum("nc,ncq->cq", w[rows], g[rows]), w[rows].sum(0)
        if totals.sum() == 0:
            continue
        mean, total = sums[others].sum(0) / totals[others].sum(), totals[others].sum()
        parts["between_class"] += total * torch.outer(mean, mean)
        for d in range(OUTPUTS):
            cross = sums[d] / totals[d]
            offset = cross if d == c else cross - mean
            parts["own_class" if d == c else "cross_class"] += totals[d] * torch.outer(offset, offset)
    parts["within"] = G - sum(parts.values())
    return G, parts
