"""What enters every layer of a network, and what comes back to it."""
