"""Symmetric operators known by their products, their algebra, and the curvature matrices of a risk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from . import progress
from .engine import CurvatureProduct, Info, Path, candidates, paths
from .errors import ArgumentError
from .risk import Risk
from .spectrum import Eigenpairs

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator  # importing it takes longer than all of ritz

Scalar = int | float | np.number | Tensor  # a tensor without dimensions
COLUMNS = 64  # of a matrix multiplied at a time
SINGULAR = 16  # roundings of the largest eigenvalue, below which another is not told from zero
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
    factor: Float[Tensor, "n r"] | None = None  # A = U Uᵀ, where that is known
    inverse: Callable[[float], Operator] | None = None  # damping λ ↦ (A + λ)⁻¹, where that is known
    inform: Callable[[], Info] | None = None  # what `info` tells, where products have something to tell
    room: Callable[[], float] | None = None  # bytes that a solver may take beside the products; None: no limit is known

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ArgumentError(
                f"An operator in {self.dtype} was given.",
                "Vectors that are to be orthogonal need float32 at least: with less, Lanczos stops after a step.",
                "Convert a matrix: matrix.float().",
                "Wrap cheaper products: Operator(lambda V: product(V.bfloat16()).float(), n, torch.float32, device).",
            )

    def __repr__(self) -> str:
        return f"Operator(n = {self.size:,}, {str(self.dtype).removeprefix('torch.')}, {self.device})"

    def __matmul__(self, V: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        self._check(V)
        return self.matmat(V) if V.ndim == 2 else self.matmat(V[:, None])[:, 0]

    def __add__(self, other: Operator | Scalar) -> Operator:
        if isinstance(other, Operator):
            self._check_same_space(other)
            return self._changed(lambda V: self @ V + other @ V)
        if not _is_scalar(other):
            return NotImplemented
        shift, known = _finite(other), self.inverse
        inverse = None if known is None else lambda damping: known(damping + shift)
        return self._changed(lambda V: self @ V + shift * V, inverse=inverse)

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
        factor = self.factor * scale**0.5 if self.factor is not None and scale >= 0 else None
        inverse = None if known is None or not scale else lambda damping: known(damping / scale) / scale
        return self._changed(lambda V: scale * (self @ V), factor, inverse)

    __rmul__ = __mul__

    def __truediv__(self, scalar: Scalar) -> Operator:
        if not _is_scalar(scalar):
            return NotImplemented
        return self * (1.0 / float(scalar) if scalar else math.inf)

    @property
    def info(self) -> Info | None:
        """How products are computed and how far they may be off; None where nothing is known.

        Asking before the first product makes the choice that the first product would.
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
        _check_square(tuple(matrix.shape))
        if matrix.dtype not in (torch.float32, torch.float64):
            raise ArgumentError(
                f"A matrix in {matrix.dtype} was given.",
                "Operators are real, in float32 or float64.",
                "Convert it: matrix.double().",
            )
        operator = Operator(
            lambda V: matrix @ V,
            len(matrix),
            matrix.dtype,
            matrix.device,
            inverse=lambda damping: _solved(matrix, damping),
        )
        asymmetry = float((matrix - matrix.T).abs().max()) if len(matrix) else 0.0
        scale = float(matrix.abs().max()) if len(matrix) else 0.0
        if not asymmetry <= 100 * torch.finfo(matrix.dtype).eps * len(matrix) * scale:
            raise ArgumentError(
                f"The matrix is not symmetric: max |A - Aᵀ| = {asymmetry:.3g}, max |A| = {scale:.3g}.",
                "Every algorithm here relies on real eigenvalues and orthogonal eigenvectors.",
                "Pass (A + A.T) / 2 if the difference is rounding.",
            )
        return operator

    @staticmethod
    def from_scipy(linear_operator: Any) -> Operator:
        """Wrap a symmetric `scipy.sparse.linalg.LinearOperator` or an array, sparse or not. Products run on the CPU.

        Two products with random vectors check the symmetry, uᵀAv = vᵀAu.
        """
        from scipy.sparse.linalg import aslinearoperator

        wrapped = aslinearoperator(linear_operator)
        _check_square(wrapped.shape)
        if np.issubdtype(wrapped.dtype, np.complexfloating):
            raise ArgumentError(
                f"A SciPy operator in {wrapped.dtype} was given.",
                "Operators are real; dropping the imaginary part would give another one.",
                "Wrap its real part, if that is what you mean.",
            )
        dtype = torch.float32 if wrapped.dtype == np.float32 else torch.float64

        def product(V: Tensor) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(wrapped.matmat(V.cpu().numpy()))).to(V)

        operator = Operator(product, wrapped.shape[0], dtype, torch.device("cpu"))
        _check_symmetry(operator)
        return operator

    def _changed(
        self,
        matmat: Callable[[Tensor], Tensor],
        factor: Tensor | None = None,
        inverse: Callable[[float], Operator] | None = None,
    ) -> Operator:
        """Another matrix in the same space, made of this one's products."""
        return replace(self, matmat=matmat, factor=factor, inverse=inverse)

    def _check(self, V: Tensor) -> None:
        if not isinstance(V, Tensor):
            raise ArgumentError(
                f"An operator was multiplied with a {type(V).__name__}.",
                "A product takes a tensor: a vector (n,) or columns (n, k).",
                "Convert arrays with torch.as_tensor; in SciPy, use A.to_scipy().",
            )
        if V.ndim not in (1, 2) or V.shape[0] != self.size:
            raise ArgumentError(
                f"An operator of size {self.size} was multiplied with shape {tuple(V.shape)}.",
                "A product takes a vector (n,) or columns (n, k).",
                "Transpose the columns, or flatten a parameter-shaped vector in named_parameters() order.",
            )
        if V.dtype != self.dtype:
            raise ArgumentError(
                f"An operator in {self.dtype} was multiplied with a tensor in {V.dtype}.",
                "A silent conversion would hide what precision the result has.",
                f"Convert the tensor: V.to({self.dtype}).",
            )
        if V.device != self.device:
            raise ArgumentError(
                f"An operator on {self.device} was multiplied with a tensor on {V.device}.",
                "A silent copy in every product would be slow.",
                f"Move the tensor: V.to({str(self.device)!r}).",
            )

    def _check_same_space(self, other: Operator) -> None:
        if (self.size, self.dtype, self.device) != (other.size, other.dtype, other.device):
            raise ArgumentError(
                f"Operators of size {self.size} ({self.dtype}, {self.device}) and {other.size} "
                f"({other.dtype}, {other.device}) were combined.",
                "A sum needs both in the same space, precision and place.",
                "Build both from the same Risk, or from matrices of the same shape, dtype and device.",
            )


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor) and value.ndim == 0)


def _finite(scalar: Scalar) -> float:
    if not math.isfinite(scalar):
        raise ArgumentError(
            f"An operator was combined with the number {float(scalar)}, or divided by zero.",
            "Every product would be NaN or infinite.",
            "Use a finite number, and do not divide by zero.",
        )
    return float(scalar)


def reciprocal(values: Float[Tensor, "..."], damping: float) -> Float[Tensor, "..."]:
    """1 / (λᵢ + damping) for all eigenvalues of a matrix, unless it is singular to rounding."""
    inverse = 1 / (values + _finite(damping))
    steepest, largest = (float(v.abs().amax()) if v.numel() else 0.0 for v in (inverse, values))
    if steepest * largest < 1 / (SINGULAR * torch.finfo(values.dtype).eps):
        return inverse
    enough = (0.01 * largest or 1.0) - 1.1 * min(0.0, float(values.min()))
    raise ArgumentError(
        f"A + {damping:g} was to be inverted; of the eigenvalues of A, up to {largest:.3g}, one is {-damping:g}.",
        "It is singular, or so near to it that rounding would decide the result.",
        f"Pass a larger damping: for A itself, {enough:.3g} is enough.",
    )


def _solved(matrix: Float[Tensor, "n n"], damping: float) -> Operator:
    values, vectors = torch.linalg.eigh(matrix)
    inverse = (vectors * reciprocal(values, damping)) @ vectors.T
    return Operator.from_matrix((inverse + inverse.T) / 2)


def _check_symmetry(A: Operator) -> None:
    V = torch.randn(A.size, 2, generator=torch.Generator().manual_seed(0), dtype=A.dtype)
    AV = A @ V
    asymmetry, scale = float((V[:, 0] @ AV[:, 1] - V[:, 1] @ AV[:, 0]).abs()), float(V.norm() * AV.norm())
    if not asymmetry <= ASYMMETRY * scale:
        raise ArgumentError(
            f"The operator is not symmetric: |uᵀAv - vᵀAu| = {asymmetry:.3g} for random u, v; ‖u‖‖Av‖ = {scale:.3g}.",
            "Every algorithm here relies on real eigenvalues and orthogonal eigenvectors.",
            "Wrap its symmetric part (A + A.T) / 2, or A.T @ A.",
        )


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ArgumentError(
            f"A matrix of shape {shape} was given.",
            "An operator is symmetric, so its matrix is square.",
            "For a rectangular J, study J.T @ J or J @ J.T.",
        )


def low_rank(U: Float[Tensor, "n r"], values: Float[Tensor, " r"] | None = None) -> Operator:
    """The low-rank operator U diag(values) Uᵀ; without values, U Uᵀ.

    Its `factor` is known where the values are non-negative, so that it can be projected out exactly. Its `inverse` is
    that of Woodbury, written in eigenvectors: (A + λ)⁻¹ = 1/λ - Q diag(sᵢ / λ(sᵢ + λ)) Qᵀ.

    >>> low_rank(torch.tensor([[1.0], [2.0]])).dense()
    tensor([[1., 2.],
            [2., 4.]])
    """
    if U.ndim != 2 or (values is not None and (values.shape != U.shape[1:] or values.dtype != U.dtype)):
        given = None if values is None else (tuple(values.shape), values.dtype)
        raise ArgumentError(
            f"U of shape {tuple(U.shape)} in {U.dtype} and values {given} were given.",
            "U has a column, in the same precision, for each value.",
            "Pass U of shape (n, r) and values of shape (r,).",
        )
    scaled = U if values is None else U * values
    factor: Tensor | None = U
    if values is not None:
        factor = U * values.sqrt() if bool((values >= 0).all()) else None

    def inverse(damping: float) -> Operator:
        Q, R = torch.linalg.qr(U)
        s, W = torch.linalg.eigh(R @ (R if values is None else R * values).T)
        if len(s) == len(U):  # nothing is orthogonal to all columns
            return low_rank(Q @ W, reciprocal(s, damping))
        outside = float(reciprocal(torch.cat([s, s.new_zeros(1)]), damping)[-1])
        return low_rank(Q @ W, -s * outside / (s + damping)) + outside

    return Operator(lambda V: scaled @ (U.T @ V), len(U), U.dtype, U.device, factor, inverse)


def deflated(A: Operator, vectors: Float[Tensor, "n k"] | Eigenpairs) -> Operator:
    """(I - Q Qᵀ) A (I - Q Qᵀ): A on the orthogonal complement of the columns of Q, zero on their span.

    The columns, or the vectors of the Eigenpairs, must be orthonormal. The result has k eigenvalues zero that A does
    not have; `spectral_density` removes them from the count (Papyan 2020, Sec. D.3 leaves them in).

    >>> A = Operator.from_matrix(torch.diag(torch.tensor([5.0, 2.0])))
    >>> deflated(A, torch.tensor([[1.0], [0.0]])).dense()
    tensor([[0., 0.],
            [0., 2.]])
    """
    Q = orthonormal_columns(A, vectors)

    def project(V: Tensor) -> Tensor:
        return V - Q @ (Q.T @ V)

    return replace(A, matmat=lambda V: project(A @ project(V)), factor=None, inverse=None)


def orthonormal_columns(A: Operator, vectors: Float[Tensor, "n k"] | Eigenpairs) -> Float[Tensor, "n k"]:
    """The columns, once it is sure that they lie in the operator's space and are orthonormal there."""
    Q = vectors.vectors if isinstance(vectors, Eigenpairs) else vectors
    if Q.ndim != 2 or (len(Q), Q.dtype, Q.device) != (A.size, A.dtype, A.device):
        raise ArgumentError(
            f"Vectors of shape {tuple(Q.shape)} in {Q.dtype} on {Q.device} were given for {A!r}.",
            "They are columns (n, k) in the operator's own precision and place.",
            "Compute them with eigenpairs(A, k) of this operator, or convert them with .to(A.device, A.dtype).",
        )
    overlap = Q.T @ Q - torch.eye(Q.shape[1], dtype=Q.dtype, device=Q.device)
    if Q.numel() and not float(overlap.abs().max()) <= torch.finfo(Q.dtype).eps ** 0.5:
        raise ArgumentError(
            f"The columns are not orthonormal: max |QᵀQ - I| = {float(overlap.abs().max()):.3g}.",
            "I - Q Qᵀ would be no projection.",
            "Pass the vectors of eigenpairs, or torch.linalg.qr(vectors).Q.",
        )
    return Q


def preconditioned(A: Operator, diagonal: Float[Tensor, " n"]) -> Operator:
    """D^½ A D^½ for a non-negative diagonal D: the curvature that a preconditioned optimiser sees.

    >>> A = Operator.from_matrix(torch.diag(torch.tensor([5.0, 2.0])))
    >>> preconditioned(A, torch.tensor([4.0, 1.0])) @ torch.ones(2)
    tensor([20.,  2.])
    """
    if (diagonal.shape, diagonal.dtype, diagonal.device) != ((A.size,), A.dtype, A.device):
        raise ArgumentError(
            f"A diagonal of shape {tuple(diagonal.shape)}, {diagonal.dtype}, {diagonal.device}, was given for {A!r}.",
            "It has one entry for each coordinate, in the operator's own precision and place.",
            "Flatten it in named_parameters() order and convert it with .to(A.device, A.dtype).",
        )
    usable = (diagonal >= 0) & torch.isfinite(diagonal)
    if not bool(usable.all()):
        raise ArgumentError(
            f"The preconditioner has {int((~usable).sum())} entries that are negative, infinite or NaN.",
            "D^½ would not be real.",
            "Pass the diagonal of a positive preconditioner, such as Adam's 1 / (sqrt(v) + eps).",
        )
    root = diagonal.sqrt()[:, None]
    return replace(A, matmat=lambda V: root * (A @ (root * V)), factor=None, inverse=None)


def hessian(risk: Risk) -> Operator:
    """H = ∇²R(θ): Papyan (2019), eq. (1).

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> hessian(risk).dense()  # XᵀX / N
    tensor([[0.5000, 0.0000],
            [0.0000, 2.0000]])
    """
    return _curvature(risk, candidates(paths.hessian_map, paths.hessian_forward))


def gauss_newton(risk: Risk) -> Operator:
    """G = Σᵢ Jᵢᵀ ∂²tᵢ/∂z² Jᵢ / Σ wᵢ, with Jᵢ = ∂f(θ, xᵢ)/∂θ: the curvature of the loss alone.

    For a softmax or squared-error loss it is the Fisher information (Papyan's "FIM"); where the loss is convex
    it is positive semi-definite. linear2026, eq. (3).

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> torch.equal(gauss_newton(risk).dense(), hessian(risk).dense())  # where f is linear in θ
    True
    """
    return _curvature(risk, candidates(paths.gauss_newton_map, paths.gauss_newton_forward))


def functional_hessian(risk: Risk) -> Operator:
    """E = H - G = Σᵢ Σ_k ∂tᵢ/∂z_k ∇²f_k(θ, xᵢ) / Σ wᵢ: the curvature of the network, at the price of one product.

    Papyan (2019), eq. (2), where its name is H.

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(2, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> functional_hessian(risk) @ torch.ones(2)  # where f is linear in θ
    tensor([0., 0.])
    """
    return _curvature(risk, candidates(paths.functional_map, paths.functional_forward))


def empirical_fisher(risk: Risk) -> Operator:
    """F = Σᵢ wᵢ gᵢ gᵢᵀ / Σ wᵢ, with gᵢ = ∇ℓᵢ: the second moment of the per-term gradients, none of which is formed.

    >>> import ritz
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1)
    >>> risk = Risk(torch.nn.Linear(2, 1, bias=False), ritz.SquaredError(), (x, y))
    >>> g = risk.gradient()
    >>> torch.allclose(empirical_fisher(risk).dense(), g[:, None] * g)  # of one term
    True
    """
    return _curvature(risk, candidates(paths.fisher_map, paths.fisher_forward))


def _curvature(risk: Risk, ways: list[Path]) -> Operator:
    return Operator(CurvatureProduct(risk, ways), risk.size, risk.dtype, risk.device)
