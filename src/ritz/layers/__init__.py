"""What enters every layer of a network, with the errors that come back to it."""
