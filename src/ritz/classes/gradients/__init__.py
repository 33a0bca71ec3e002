"""Class structure of the gradients: the parts that the Gauss-Newton matrix is made of."""
