"""The parts of G and their means as dense matrices, written from the definitions alone."""

import torch

PARTS = ("between_class", "cross_class", "own_class", "within")


class Dense:
    """Every gradient g_{i,c,c'} as a row, every mean and every part, by loops over the definitions."""

    def __init__(self, J, z, labels, masses, total):
        terms, C = z.shape
        others = z.log_softmax(-1).exp()[:, None].repeat(1, C, 1)  # (t, c', k)
        diagonal = torch.arange(C)
        others[:, diagonal, diagonal] = 0.0
        errors = others.clone()
        errors[:, diagonal, diagonal] = -others.sum(-1)  # p - 1, of full relative precision
        self.C, self.labels = C, labels
        self.g = torch.einsum("tck,tkn->tcn", errors, J)
        self.w = masses[:, None] * z.softmax(-1) / total
        n = J.shape[-1]
        self.cross_weights, self.cross_means = J.new_zeros(C, C), J.new_zeros(C, C, n)
        self.class_weights, self.class_means = J.new_zeros(C), J.new_zeros(C, n)
        for c in range(C):
            mine = [i for i in range(terms) if labels[i] == c and masses[i] > 0]
            for k in range(C):
                self.cross_weights[c, k] = sum(self.w[i, k] for i in mine)
                if self.cross_weights[c, k] > 0:
                    self.cross_means[c, k] = sum(self.w[i, k] / self.cross_weights[c, k] * self.g[i, k] for i in mine)
            self.class_weights[c] = sum(self.cross_weights[c, k] for k in range(C) if k != c)
            if self.class_weights[c] > 0:
                shares = self.cross_weights[c] / self.class_weights[c]
                self.class_means[c] = sum(shares[k] * self.cross_means[c, k] for k in range(C) if k != c)
        self.parts = self._parts(masses)

    def _parts(self, masses):
        rows = {name: [torch.zeros_like(self.class_means[0])] for name in PARTS}
        self.traces = {name: torch.zeros_like(self.class_weights) for name in PARTS}

        def add(name, c, weight, vector):
            rows[name].append(weight.sqrt() * vector)
            self.traces[name][c] += weight * vector.square().sum()

        for c in range(self.C):
            add("between_class", c, self.class_weights[c], self.class_means[c])
            add("own_class", c, self.cross_weights[c, c], self.cross_means[c, c])
            for k in range(self.C):
                if k != c:
                    add("cross_class", c, self.cross_weights[c, k], self.cross_means[c, k] - self.class_means[c])
        for i, c in enumerate(self.labels.tolist()):
            for k in range(self.C):
                if masses[i] > 0:
                    add("within", c, self.w[i, k], self.g[i, k] - self.cross_means[c, k])
        return {name: torch.stack(vectors).T @ torch.stack(vectors) for name, vectors in rows.items()}
