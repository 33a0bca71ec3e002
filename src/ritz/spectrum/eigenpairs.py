"""Approximate eigenpairs with their residuals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .. import record
from .estimate import digits_within
from .file_checks import check_count, check_kind, check_numbers, reading
from .lines_shown import lines_card

DOUBT = 0.01  # a chance of having missed an eigenvalue below this counts as ruled out


@dataclass(frozen=True, repr=False, eq=False)
class Eigenpairs:
    """Approximate eigenpairs A vᵢ ≈ λᵢ vᵢ with residuals ‖A vᵢ - λᵢ vᵢ‖, the requested end first.

    The residual comes from a fresh product, so A as multiplied has an eigenvalue that near to λᵢ.

    >>> pairs = ritz.eigenpairs(ritz.Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0, 9.0]))), 2)
    >>> pairs
    Eigenpairs(2 of 3, 3 products, a basis of 3)
                 9  ± ...
                 2  ± ...
    >>> pairs.vectors.shape, pairs.converged
    (torch.Size([3, 2]), tensor([True, True]))
    """

    values: Float[Tensor, " k"]
    vectors: Float[Tensor, "n k"]
    residuals: Float[Tensor, " k"]
    converged: Bool[Tensor, " k"]  # residual at most tolerance · max|λ|
    num_products: int = 0
    basis_size: int | None = None  # the most vectors that the search kept, including these; None: there was no search
    num_rough_products: int = 0  # how many of the products were with a cheaper approximation of the operator
    doubts: Float[Tensor, " k"] | None = None  # a bound on the chance that another eigenvalue as far out was missed

    def __len__(self) -> int:
        return len(self.values)

    def save(self, path: str | Path) -> Path:
        """Write to an npz file; `Eigenpairs.load` reads it back to the same bits, on the CPU."""
        return record.write_arrays(path, *self.state())

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Its arrays, and all other facts."""
        names = ("values", "vectors", "residuals", "converged", *(() if self.doubts is None else ("doubts",)))
        arrays = {name: getattr(self, name).detach().cpu().numpy() for name in names}
        counts = {name: getattr(self, name) for name in ("num_products", "basis_size", "num_rough_products")}
        return arrays, {
            "kind": "Eigenpairs",
            "size": len(self.vectors),
            "has_doubts": self.doubts is not None,
            **counts,
        }

    @classmethod
    def load(cls, path: str | Path) -> Eigenpairs:
        """Read what `save` wrote."""
        arrays, header = record.read_arrays(path)
        check_kind(path, header, "Eigenpairs")
        with reading(path):
            return cls.of_state({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, header)

    @classmethod
    def of_state(cls, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> Eigenpairs:
        """The pairs with this state; ValueError or KeyError if no pairs can have it."""
        products, basis, rough = (header[name] for name in ("num_products", "basis_size", "num_rough_products"))
        check_count(num_products=products, basis_size=0 if basis is None else basis, num_rough_products=rough)
        n, k = tensors["vectors"].shape
        size, doubted = header.get("size", n), header.get("has_doubts", "doubts" in tensors)  # older files have neither
        if size != n or type(doubted) is not bool or doubted != ("doubts" in tensors):
            raise ValueError(f"it has vectors of {n:,} numbers, not {size!r:.80}, or doubts: {doubted!r:.80}")
        doubts = {name: tensors[name] for name in ("doubts",) if name in tensors}
        check_numbers((k,), values=tensors["values"], residuals=tensors["residuals"], **doubts)
        check_numbers((n, k), vectors=tensors["vectors"])
        if tensors["converged"].dtype != torch.bool or tensors["converged"].shape != (k,):
            raise ValueError(f"converged is {tensors['converged'].dtype} {tuple(tensors['converged'].shape)}")
        return cls(**tensors, num_products=products, basis_size=basis, num_rough_products=rough)

    def _repr_html_(self) -> str:
        """HTML for a notebook: a row for each, with its residual."""
        columns: dict[str, list[str]] = {
            "rank": [str(rank) for rank in range(1, len(self) + 1)],
            "eigenvalue": [
                digits_within(*row) for row in zip(self.values.tolist(), self.residuals.tolist(), strict=True)
            ],
            "residual": [f"{residual:.1e}" for residual in self.residuals.tolist()],
            "": ["" if good else "not converged" for good in self.converged.tolist()],
        }
        title = f"{len(self)} of {len(self.vectors):,} eigenpairs, {self.num_products:,} products"
        return lines_card(title, columns, sentences=self._doubtful())

    def __repr__(self) -> str:
        rows = zip(self.values.tolist(), self.residuals.tolist(), self.converged.tolist(), strict=True)
        lines = [f"{digits_within(v, r):>14}  ± {r:<10.2g}{'' if ok else '  not converged'}" for v, r, ok in rows]
        basis = "" if self.basis_size is None else f", a basis of {self.basis_size}"
        rough = f", {self.num_rough_products} of them rough" if self.num_rough_products else ""
        head = f"Eigenpairs({len(self)} of {len(self.vectors)}, {self.num_products} products{rough}{basis})"
        return "\n".join([head, *lines, *(f"  {sentence}" for sentence in self._doubtful())])

    def _doubtful(self) -> list[str]:
        """What is to be said of copies that may have been missed; nothing where none is likely."""
        doubtful = 0 if self.doubts is None else int((self.doubts > DOUBT).sum())
        copies = f"{doubtful} of them may have further copies: equal eigenvalues that were missed (see `doubts`)"
        return [copies] if doubtful else []
