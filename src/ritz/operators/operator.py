"""A symmetric matrix that is known by its products alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .. import progress
from ..engine import Info
from ..errors import ArgumentError, NumericalError, OperatorError, check_instance, kind_of
from ..record.cards import card
from ..spectrum.matrices import check_square, check_symmetric

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator  # importing it takes longer than all of ritz

Scalar = int | float | np.number | Tensor  # a tensor without dimensions
COLUMNS = 64  # columns of a matrix that are multiplied at a time
SINGULAR = 16  # an eigenvalue below this many roundings of the largest may be zero
ASYMMETRY = 1e-5  # |uᵀAv - vᵀAu| / ‖u‖‖Av‖: above the rounding of float32 products, far below 1/√n of a real one


@dataclass(frozen=True, repr=False)
class Operator:
    """A symmetric n × n matrix A known only through its products A V.

    Operators form a vector space with shifts: `A + B`, `A - B`, `2 * A`, `-A` and `A + μ` (the identity
    times μ, as weight decay adds it) are operators. `A @ V` takes a vector (n,) or k columns (n, k).

    >>> A = Operator.from_matrix(torch.diag(torch.tensor([1.0, 2.0])))
    >>> A, A @ torch.ones(2), (2 * A + 10) @ torch.ones(2)
    (Operator(n = 2, float32, cpu), tensor([1., 2.]), tensor([12., 14.]))
    """

    matmat: Callable[[Tensor], Tensor]  # of shape (n, k), column by column
    size: int
    dtype: torch.dtype
    device: torch.device
    _: KW_ONLY
    factor: Float[Tensor, "n r"] | None = None  # A = U Uᵀ, where that is known
    inverse: Callable[[float], Operator] | None = None  # damping λ ↦ (A + λ)⁻¹, where that is known
    inform: Callable[[], Info] | None = None  # returns `info`, where it is known how products are computed
    room: Callable[[], float] | None = None  # bytes a solver may use besides the products; None: no limit is known
    rough: Operator | None = None  # nearly the same matrix, with cheaper products, where there is one
    semidefinite: bool = False  # whether it is known that no eigenvalue is negative
    name: str | None = None  # which matrix it is, where that is known: the function that made it
    __array_ufunc__: ClassVar[None] = None  # else numpy takes it for a number: array + A is an array of operators

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", _numbered(torch.device(self.device)))
        if self.rough is not None:
            self._check_same_space(self.rough)
        if self.dtype not in (torch.float32, torch.float64):
            raise ArgumentError(
                f"An operator in {self.dtype} was given.",
                "Vectors that are to be orthogonal need float32 at least: with less, Lanczos stops after a step.",
                "Convert a matrix: matrix.float().",
                "Wrap cheaper products: Operator(lambda V: product(V.bfloat16()).float(), n, torch.float32, device).",
            )

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name}: "
        return f"Operator({name}n = {self.size:,}, {str(self.dtype).removeprefix('torch.')}, {self.device})"

    def _repr_html_(self) -> str:
        """HTML for a notebook: its size, and how products are computed where that is known."""
        facts: dict[str, object] = {
            "size": f"{self.size:,} × {self.size:,}",
            "dtype": self.dtype,
            "device": self.device,
        }
        title = "Operator" if self.name is None else f"Operator: {self.name}"
        return card(title, facts | ({} if self.inform is None else {"products": "known by A.info, once made"}))

    def __matmul__(self, V: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        self._check(V)
        columns = V if V.ndim == 2 else V[:, None]
        product = self.matmat(columns)
        _check_product(columns, product)
        AV = product if V.ndim == 2 else product[:, 0]
        return AV.detach()  # solvers write into it, which autograd could not follow

    def __add__(self, other: Operator | Scalar) -> Operator:
        if isinstance(other, Operator):
            self._check_same_space(other)
            known = self.rough is not None or other.rough is not None
            rough = (self.rough or self)._sum(other.rough or other) if known else None
            return replace(self._sum(other), rough=rough)
        if not _is_scalar(other):
            return NotImplemented
        shift, solve = _finite(other), self.inverse
        return self._with_products(
            partial(_shifted, self, shift),
            inverse=None if solve is None else partial(_inverse_of_shifted, solve, shift),
            rough=None if self.rough is None else self.rough + shift,
            semidefinite=self.semidefinite and shift >= 0,
        )

    __radd__ = __add__

    def __neg__(self) -> Operator:
        return -1.0 * self

    def __sub__(self, other: Operator | Scalar) -> Operator:
        return self + -other

    def __rsub__(self, other: Scalar) -> Operator:
        return -self + other

    def __mul__(self, scalar: Scalar) -> Operator:
        if not _is_scalar(scalar):
            return NotImplemented
        scale, known = _finite(scalar), self.inverse
        return self._with_products(
            partial(_scaled, self, scale),
            factor=self.factor * scale**0.5 if self.factor is not None and scale >= 0 else None,
            inverse=None if known is None or not scale else partial(_inverse_of_scaled, known, scale),
            rough=None if self.rough is None else self.rough * scale,
            semidefinite=self.semidefinite and scale >= 0,
        )

    __rmul__ = __mul__

    def __truediv__(self, scalar: Scalar) -> Operator:
        if not _is_scalar(scalar):
            return NotImplemented
        return self * (1.0 / float(scalar) if scalar else math.inf)

    @property
    def shape(self) -> torch.Size:
        """(n, n), as of a matrix."""
        return torch.Size((self.size, self.size))

    @property
    def info(self) -> Info | None:
        """How products are computed and how accurate they are; None where nothing is known.

        Asking before the first product triggers the choice of a path that the first product would make.
        """
        return self.inform() if self.inform is not None else None

    def dense(self) -> Float[Tensor, "n n"]:
        """The matrix itself, from n products. For tests and small models."""
        unit = torch.eye(self.size, dtype=self.dtype, device=self.device)
        matrix = torch.empty_like(unit)
        with progress.bar("Columns", total=self.size) as bar:
            for columns, rows in zip(matrix.split(COLUMNS, dim=1), unit.split(COLUMNS), strict=True):
                columns.copy_(self @ rows.T)
                bar.advance(len(rows))
        return matrix

    def to_scipy(self) -> LinearOperator:
        """A `scipy.sparse.linalg.LinearOperator` in this operator's own precision."""

        from scipy.sparse.linalg import LinearOperator

        def product(V: np.ndarray) -> np.ndarray:
            columns = torch.from_numpy(np.ascontiguousarray(V)).to(self.device, self.dtype)
            return (self @ columns).cpu().numpy()

        dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
        return LinearOperator(
            (self.size, self.size), matvec=product, rmatvec=product, matmat=product, rmatmat=product, dtype=dtype
        )

    @staticmethod
    def from_matrix(matrix: Float[Tensor, "n n"] | np.ndarray) -> Operator:
        """Wrap an explicit symmetric matrix, a tensor or a NumPy array."""
        matrix = torch.from_numpy(np.ascontiguousarray(matrix)) if isinstance(matrix, np.ndarray) else matrix
        check_instance(Tensor, "Pass a tensor or a NumPy array.", matrix=matrix)
        matrix = matrix.detach()
        check_symmetric(matrix)
        return Operator(
            partial(torch.matmul, matrix),
            len(matrix),
            matrix.dtype,
            matrix.device,
            inverse=partial(_solved, matrix),
        )

    @staticmethod
    def from_scipy(linear_operator: Any) -> Operator:
        """Wrap a symmetric `scipy.sparse.linalg.LinearOperator` or an array, sparse or not. Products run on the CPU.

        Two products with random vectors check the symmetry, uᵀAv = vᵀAu.
        """
        from scipy.sparse.linalg import aslinearoperator

        try:
            wrapped = aslinearoperator(linear_operator)
        except TypeError as error:
            raise ArgumentError(
                f"A {type(linear_operator).__name__} was to be wrapped.",
                "SciPy cannot make a LinearOperator of it.",
                "Pass a scipy.sparse.linalg.LinearOperator, a sparse matrix or a NumPy array.",
            ) from error
        check_square(wrapped.shape)
        if np.issubdtype(wrapped.dtype, np.complexfloating):
            raise ArgumentError(
                f"A SciPy operator in {wrapped.dtype} was given.",
                "Operators are real; dropping the imaginary part would give another one.",
                "Wrap only its real part, if that is what you mean.",
            )
        dtype = torch.float32 if wrapped.dtype == np.float32 else torch.float64

        operator = Operator(partial(_scipy_product, wrapped), wrapped.shape[0], dtype, torch.device("cpu"))
        check_symmetry(operator)
        return operator

    def _with_products(
        self,
        matmat: Callable[[Tensor], Tensor],
        *,
        factor: Tensor | None = None,
        inverse: Callable[[float], Operator] | None = None,
        rough: Operator | None = None,
        semidefinite: bool = False,
    ) -> Operator:
        """Another matrix on the same space, made of products with this one; what is not given is not known of it."""
        known: dict[str, Any] = {"factor": factor, "inverse": inverse, "rough": rough, "semidefinite": semidefinite}
        return replace(self, matmat=matmat, **known, name=None)

    def _sum(self, other: Operator) -> Operator:
        """The sum; its `room` is the smaller of both, its `info` that of the first operator that has one."""
        rooms = [one.room for one in (self, other) if one.room is not None]
        return replace(
            self._with_products(partial(_added, self, other), semidefinite=self.semidefinite and other.semidefinite),
            inform=other.inform if self.inform is None else self.inform,
            room=partial(_smallest, rooms) if len(rooms) > 1 else next(iter(rooms), None),
        )

    def _check(self, V: Tensor) -> None:
        if not isinstance(V, Tensor):
            raise ArgumentError(
                f"An operator was multiplied by {kind_of(V)}.",
                "A product needs a tensor: a vector (n,) or columns (n, k).",
                "Convert arrays with torch.as_tensor; in SciPy, use A.to_scipy().",
                "Join tensors that are one for each parameter: torch.cat([v.flatten() for v in vectors]).",
            )
        if V.ndim not in (1, 2) or V.shape[0] != self.size:
            raise ArgumentError(
                f"An operator of size {self.size} was multiplied by a tensor of shape {tuple(V.shape)}.",
                "A product takes a vector (n,) or columns (n, k).",
                "Transpose the columns, or flatten a parameter-shaped vector in named_parameters() order.",
            )
        if V.dtype != self.dtype:
            raise ArgumentError(
                f"An operator in {self.dtype} was multiplied by a tensor in {V.dtype}.",
                "A silent conversion would hide what precision the result has.",
                f"Convert the tensor: V.to({self.dtype}).",
            )
        if V.device != self.device:
            raise ArgumentError(
                f"An operator on {self.device} was multiplied by a tensor on {V.device}.",
                "A silent copy in every product would be slow.",
                f"Move the tensor: V.to({str(self.device)!r}).",
            )
        if V.numel() and not math.isfinite(torch.linalg.vector_norm(V, math.inf)):  # which takes no memory
            raise NumericalError(
                "An operator was multiplied by a tensor with entries that are NaN or infinite.",
                "Every entry of the product would be NaN or infinite too.",
                "Look at what made it: (~V.isfinite()).nonzero() lists them.",
            )

    def _check_same_space(self, other: Operator) -> None:
        if (self.size, self.dtype, self.device) != (other.size, other.dtype, other.device):
            raise ArgumentError(
                f"Operators of size {self.size} ({self.dtype}, {self.device}) and {other.size} "
                f"({other.dtype}, {other.device}) were combined.",
                "Both must act on the same space, with the same dtype and device.",
                "Build both from the same Risk, or from matrices of the same shape, dtype and device.",
            )


def _check_product(V: Tensor, AV: Any) -> None:
    """Refuse what a function of a user's returned for columns, unless it is like them."""
    if not isinstance(AV, Tensor):
        seen = f"a product with shape {tuple(V.shape)} is {kind_of(AV)}"
    elif AV.shape != V.shape:
        seen = f"a product with shape {tuple(V.shape)} has shape {tuple(AV.shape)}"
    elif (AV.dtype, AV.device) != (V.dtype, V.device):
        seen = f"an operator in {V.dtype} on {V.device} returned {AV.dtype} on {AV.device}"
    else:
        return
    raise OperatorError(
        seen,
        "A product has the shape, the dtype and the device of the columns that it was given.",
        "Correct the function that computes the operator's product: Operator(lambda V: product(V).to(V), ...).",
    )


def _shifted(A: Operator, shift: float, V: Tensor) -> Tensor:
    """(A + μ) V. Operators are made of named functions, not lambdas, so that they can be sent to another process."""
    return A @ V + shift * V


def _scaled(A: Operator, scale: float, V: Tensor) -> Tensor:
    return scale * (A @ V)


def _added(A: Operator, B: Operator, V: Tensor) -> Tensor:
    return A @ V + B @ V


def _smallest(rooms: list[Callable[[], float]]) -> float:
    return min([room() for room in rooms])  # a list: every room must be asked, for ranks agree on each of them together


def _inverse_of_shifted(inverse: Callable[[float], Operator], shift: float, damping: float) -> Operator:
    return inverse(damping + shift)


def _inverse_of_scaled(inverse: Callable[[float], Operator], scale: float, damping: float) -> Operator:
    return inverse(damping / scale) / scale


def _scipy_product(wrapped: Any, V: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(wrapped.matmat(V.cpu().numpy()))).to(V)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 0)


def _finite(scalar: Scalar) -> float:
    if not math.isfinite(scalar):
        raise ArgumentError(
            f"An operator was combined with the number {float(scalar)}, or divided by zero.",
            "Every product would be NaN or infinite.",
            "Use a finite number, and do not divide by zero.",
        )
    return float(scalar)


def reciprocal(values: Float[Tensor, "..."], damping: float) -> Float[Tensor, "..."]:
    """1 / (λᵢ + damping) for all eigenvalues of a matrix; refuses a matrix that is singular to rounding."""
    inverse = 1 / (values + _finite(damping))
    steepest, largest = (float(v.abs().amax()) if v.numel() else 0.0 for v in (inverse, values))
    if steepest * largest < 1 / (SINGULAR * torch.finfo(values.dtype).eps):
        return inverse
    enough = (0.01 * largest or 1.0) - 1.1 * min(0.0, float(values.min()))
    raise ArgumentError(
        f"A + {damping:g} was to be inverted, but {0.0 - damping:g} is an eigenvalue of A (max |λ| = {largest:.3g}).",
        "The sum is singular, or so near to it that rounding would decide the result.",
        f"Pass a larger damping: for A itself, {enough:.3g} is enough.",
    )


def _solved(matrix: Float[Tensor, "n n"], damping: float) -> Operator:
    values, vectors = torch.linalg.eigh(matrix)
    inverse = (vectors * reciprocal(values, damping)) @ vectors.T
    return Operator.from_matrix((inverse + inverse.T) / 2)


def check_symmetry(A: Operator) -> None:
    """Refuse an operator by uᵀAv and vᵀAu of two random vectors."""
    V = torch.randn(A.size, 2, generator=torch.Generator().manual_seed(0), dtype=A.dtype).to(A.device)
    AV = A @ V
    asymmetry, scale = float((V[:, 0] @ AV[:, 1] - V[:, 1] @ AV[:, 0]).abs()), float(V.norm() * AV.norm())
    if not asymmetry <= ASYMMETRY * scale:
        raise ArgumentError(
            f"The operator is not symmetric: |uᵀAv - vᵀAu| = {asymmetry:.3g} for random u, v; ‖u‖‖Av‖ = {scale:.3g}.",
            "Every algorithm here relies on real eigenvalues and orthogonal eigenvectors.",
            "Wrap its symmetric part (A + A.T) / 2, or A.T @ A.",
        )


def _numbered(device: torch.device) -> torch.device:
    """The device with its index, as tensors on it report it: "cuda" becomes the current "cuda:0"; the CPU has none."""
    return torch.device("cpu") if device.type == "cpu" else torch.empty(0, device=device).device
