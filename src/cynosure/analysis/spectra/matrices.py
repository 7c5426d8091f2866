"""Spectra of A, V and P; how far (Q, K, V) is from the hypotheses of the theorems."""

from __future__ import annotations

import abc
from dataclasses import dataclass, fields
from math import sqrt
from typing import Any, final

import numpy as np

from ..._display import Shown
from ..._types import Array, as_matrix, as_numpy
from ...dynamics import Dynamics, EuclideanFlow

SAME = 1e-8  # eigenvalues closer than this, relative to the largest, are one eigenvalue


class Finding(Shown, abc.ABC):
    """What a reading returns: a frozen record that can be written out."""

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values for JSON; complex numbers as [real, imaginary]."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value.item() if isinstance(value, np.generic) else value


@final
@dataclass(frozen=True, eq=False)
class Spectrum(Finding):
    """Eigenvalues of M by decreasing modulus; those of its symmetric part, ascending.

    `inertia` counts positive, zero and negative eigenvalues of the symmetric part, which is what
    the sign of <Mx, x> sees; `antisymmetric_share` is |M - M^T|_F / (2 |M|_F), 0 for symmetric M.
    """

    eigenvalues: np.ndarray
    symmetric_eigenvalues: np.ndarray
    inertia: tuple[int, int, int]
    rank: int
    antisymmetric_share: float


def spectrum(M: Array) -> Spectrum:
    """The spectrum of a square matrix (A, V, or the attention matrix P)."""
    m = square(M, "M")
    values = np.linalg.eigvals(m)
    symmetric = np.linalg.eigvalsh((m + m.T) / 2)
    size = float(np.linalg.norm(m))
    zero = len(m) * np.finfo(float).eps * max(float(np.abs(symmetric).max()), 1e-300)
    above, below = int((symmetric > zero).sum()), int((symmetric < -zero).sum())
    return Spectrum(
        values[np.argsort(-np.abs(values), kind="stable")],
        symmetric,
        (above, len(m) - above - below, below),
        int(np.linalg.matrix_rank(m)),
        float(np.linalg.norm(m - m.T) / (2 * size)) if size else 0.0,
    )


def epsilon_rank(P: Array, eps: float = 1e-6) -> int:
    """The number of singular values above eps times the largest: the rank of P up to eps.

    By Eckart-Young no matrix of smaller rank is nearer to P (in operator norm) than eps |P|.
    """
    values = np.linalg.svd(square(P), compute_uv=False)
    return int((values > eps * values[0]).sum())


@final
@dataclass(frozen=True, eq=False)
class GoodTriple(Finding):
    """How far (Q, K, V) is from each hypothesis of arXiv 2305.05465; a positive margin means met.

    Good triple: the leading eigenvalue l1 of V is real (`imaginary` = |Im l1| is 0), positive
    (`leading`), simple and dominant (`gap` = l1 - |l2| > 0), with <Q f, K f> = `alignment` > 0 on
    its unit eigenvector f. `dual` is f1*, with f1*(f) = 1.

    With multiplicity (`paranormal`): V = l I on its `multiplicity`-dimensional leading eigenspace
    (`defect` = 0 when l has no Jordan block) and `rest_gap` = l - (next modulus) > 0, while Q^T K
    is symmetric (`asymmetry` = 0) positive definite (`definiteness`, its least eigenvalue).
    """

    leading: complex
    imaginary: float
    gap: float
    alignment: float
    eigenvector: np.ndarray
    dual: np.ndarray
    multiplicity: int
    defect: int
    rest_gap: float
    asymmetry: float
    definiteness: float
    holds: bool
    paranormal: bool


def good_triple(
    Q: Array | None = None, K: Array | None = None, V: Array | None = None, *, d: int | None = None
) -> GoodTriple:
    """Test the hypotheses on (Q, K, V); None is the identity, and `d` is needed if all are."""
    flow = EuclideanFlow(Q, K, V)
    A, v = flow.A, flow.V
    size = len(v) if v is not None else len(A) if A is not None else d
    if size is None:
        raise ValueError("d: Q, K and V are all identities; say of which dimension, d=...")
    A = np.eye(size) if A is None else A
    v = np.eye(size) if v is None else v
    values, vectors = np.linalg.eig(v)
    order = np.lexsort((-values.real, -np.round(np.abs(values), 12)))
    values, vectors = values[order], vectors[:, order]
    leading = complex(values[0])
    scale = max(float(np.abs(values).max()), np.finfo(float).tiny)
    same = np.abs(values - leading) <= SAME * scale
    rest = np.abs(values[~same])
    f = _real_unit(vectors[:, 0])
    left, left_vectors = np.linalg.eig(v.T)
    dual = _real_unit(left_vectors[:, int(np.argmin(np.abs(left - leading)))])
    pairing = float(dual @ f)
    multiplicity = int(same.sum())
    rank = np.linalg.matrix_rank(v - leading * np.eye(size), tol=sqrt(SAME) * scale)
    gap = leading.real - float(np.abs(values[1])) if size > 1 else leading.real
    rest_gap = leading.real - (float(rest.max()) if len(rest) else 0.0)
    alignment = float(f @ A @ f)
    definiteness = float(np.linalg.eigvalsh((A + A.T) / 2)[0])
    asymmetry = float(np.linalg.norm(A - A.T))
    real_positive = abs(leading.imag) <= SAME * scale and leading.real > 0
    simple = multiplicity == 1 and gap > SAME * scale
    defect = max(0, multiplicity - (size - int(rank)))
    symmetric = asymmetry <= 1e-12 * float(np.linalg.norm(A))
    return GoodTriple(
        leading=leading,
        imaginary=abs(leading.imag),
        gap=gap,
        alignment=alignment,
        eigenvector=f,
        dual=dual / pairing if abs(pairing) > 1e-12 else dual,
        multiplicity=multiplicity,
        defect=defect,
        rest_gap=rest_gap,
        asymmetry=asymmetry,
        definiteness=definiteness,
        holds=bool(real_positive and simple and alignment > 0),
        paranormal=bool(
            real_positive and not defect and rest_gap > 0 and symmetric and definiteness > 0
        ),
    )


def attention_matrix(dynamics: Dynamics, z: Array, t: float = 0.0) -> np.ndarray:
    """P at the tokens z and time t of a run of `dynamics`, as a NumPy array (*b, n, n)."""
    return as_numpy(dynamics.weights(z, float(t)))


def square(P: Array, name: str = "P") -> np.ndarray:
    """P as a square float64 matrix, or what is wrong with it."""
    m = as_matrix(P, name)
    if m is None:
        raise ValueError(f"{name}: expected a square matrix, got None")
    return m


def _real_unit(vector: np.ndarray) -> np.ndarray:
    """The real part of an eigenvector turned to be as real as it can, of length 1."""
    real = (vector * np.exp(-1j * np.angle(vector[np.argmax(np.abs(vector))]))).real
    return real / np.linalg.norm(real)
