"""Class structure of layers: of what they see, of what comes back, of what they are made of."""
