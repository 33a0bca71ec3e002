"""What experiments need around the measurement: data, training."""
