"""Networks that others wrote, and whether ritz is right on them (`make zoo`)."""
