"""How many random cases a property of the theory is tried on: RITZ_DRAWS, 50 where it is not set."""

import os

from hypothesis import HealthCheck, settings

patient = settings(
    max_examples=int(os.environ.get("RITZ_DRAWS", 50)), deadline=None, suppress_health_check=list(HealthCheck)
)
