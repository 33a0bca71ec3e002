"""How a product with curvature is computed: fast, because the matrix does not change from one product to the next."""
