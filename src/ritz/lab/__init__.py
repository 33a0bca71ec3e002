"""What experiments need around the measurement: data, networks, initialisations, training, many at once, sweeps."""
