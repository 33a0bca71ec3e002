"""What may be passed to a public function, by its own annotations; all else is refused with what, why and a way out."""

from .annotations import Misfit, accepted, resolved
from .guards import bare, guard, guarded

__all__ = ["Misfit", "accepted", "bare", "guard", "guarded", "resolved"]
