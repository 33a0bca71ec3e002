"""The zoo: networks that others wrote, on which ritz is held against an oracle (`make zoo`)."""
