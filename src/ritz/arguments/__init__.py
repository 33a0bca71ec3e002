"""Arguments of public functions, checked against their annotations; a misfit is refused with a reason and a remedy."""

from .annotations import Misfit, accepted, resolved
from .guards import bare, guard, guarded

__all__ = ["Misfit", "accepted", "bare", "guard", "guarded", "resolved"]
