"""Class structure of the gradients: the parts of the Gauss-Newton matrix."""
