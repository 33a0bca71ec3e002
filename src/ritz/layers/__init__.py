"""What enters every layer of a network, and the errors that come back to its output."""
