"""An optimiser with the settings of a kind of network."""

import torch
from torch import nn

from ...errors import ArgumentError


def adamw(
    model: nn.Module, learning_rate: float, *, weight_decay: float = 0.1, betas: tuple[float, float] = (0.9, 0.95)
) -> torch.optim.AdamW:
    """AdamW as GPT is trained with it: weight decay for matrices and embeddings, none for biases and norms.

    The defaults are those of nanoGPT (Karpathy 2022), which Singh et al. (2026), D.1.5 follow; it warms up for 2,000
    steps, falls to a tenth (`Cosine(2000)`) and clips gradients at 1.

    >>> [group["weight_decay"] for group in adamw(nn.Linear(2, 1), 1e-3).param_groups]
    [0.1, 0.0]
    """
    if not all(0 <= beta < 1 for beta in betas) or not (learning_rate >= 0 and weight_decay >= 0):
        raise ArgumentError(
            f"learning_rate={learning_rate}, weight_decay={weight_decay} and betas={betas} were given.",
            "Rates and decay cannot be negative, and each of the betas must lie in 0 ≤ β < 1.",
            "Leave betas and weight_decay out, and pass a rate such as 1e-3.",
        )
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    others = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=betas)
