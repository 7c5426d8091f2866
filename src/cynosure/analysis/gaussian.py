"""Self-attention of infinitely many tokens with a Gaussian law: an equation for its two moments.

Softmax attention tilts what it looks at. Against tokens of law N(m, S) the query x sees the mean of
the law with density e^{<A x, y>} more, which is again Gaussian: m + S A x. So x' = V (m + S A x)
is affine, a Gaussian stays one, and

    m' = V (m + S A m),   S' = V S A S + S A^T S V^T                  (docs/mathematics.md B35)

(arXiv 2501.18322 studies this closure.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, final

import numpy as np

from .._display import Shown
from .._types import Array, as_array, as_generator, as_matrix

_OUT = 1e9  # a covariance grown by this factor is on its way to infinity


class Moments(NamedTuple):
    """Mean (times, d) and covariance (times, d, d) at the times t."""

    t: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class GaussianFlow(Shown):
    """The mean-field limit of `EuclideanFlow` from tokens of law N(mean, covariance).

    A is that of the scores <A x_i, x_j>, V the value matrix, None for the identity.

    Trap: finitely many tokens never grow faster than e^{|V| t}, whatever happens here. Where the
    `tilt` is above 1, attention looks beyond the farthest token (B35); with V = I that is from half
    a unit of time before `blow_up` on.

    Examples
    --------
    >>> flow = GaussianFlow([0.0], [[0.5]])
    >>> round(flow.blow_up, 12)
    1.0
    >>> flow.solve([0.0, 0.5]).covariance[:, 0, 0].round(6).tolist()
    [0.5, 1.0]
    """

    mean: Array
    covariance: Array
    A: Array | None = None
    V: Array | None = None

    def __post_init__(self) -> None:
        m = np.atleast_1d(as_array(self.mean, "mean", "numbers (d,)"))
        S = as_matrix(self.covariance, "covariance")
        if S is None or m.ndim != 1 or S.shape != (len(m), len(m)) or not np.isfinite(m).all():
            raise ValueError(
                "GaussianFlow: expected a finite mean (d,) and a covariance (d, d), got shapes "
                f"{m.shape} and {np.shape(self.covariance)}"
            )
        size = float(np.abs(S).max(initial=0.0))
        if np.abs(S - S.T).max() > 1e-9 * size or np.linalg.eigvalsh(S)[0] < -1e-9 * size:
            raise ValueError(
                "covariance: expected a symmetric matrix without negative eigenvalues, got "
                f"eigenvalues {np.linalg.eigvals(S)}; estimate it by np.cov(z.T)"
            )
        object.__setattr__(self, "mean", m)
        object.__setattr__(self, "covariance", (S + S.T) / 2)
        for name in ("A", "V"):
            M = as_matrix(getattr(self, name), name)
            if M is not None and M.shape != S.shape:
                raise ValueError(f"{name}: expected {S.shape} as the covariance, got {M.shape}")
            object.__setattr__(self, name, M)

    @classmethod
    def of(cls, z: Array, A: Array | None = None, V: Array | None = None) -> GaussianFlow:
        """From tokens (n, d): their mean, and their covariance with divisor n."""
        x = np.asarray(z, dtype=np.float64)
        return cls(x.mean(axis=0), np.cov(x.T, bias=True).reshape(x.shape[1], -1), A, V)

    @property
    def tilt(self) -> float:
        """The norm of S^{1/2} A S^{1/2}: how far, in standard deviations, attention looks from a
        query one of them away. Above 1 the closure is not what finitely many tokens do (B35)."""
        return tilt(self.covariance, self.A)

    @property
    def blow_up(self) -> float | None:
        """When the covariance becomes infinite, inf if it does not; None where no formula is known.

        For V = v I and symmetric A: S = (S_0^{-1} - 2 v t A)^{-1}, and t = 1/(2 v a) with a the
        largest eigenvalue of S_0^{1/2} A S_0^{1/2} (the least, for v < 0).
        """
        A, V = self._forms
        if not (np.array_equal(V, V[0, 0] * np.eye(len(V))) and np.array_equal(A, A.T)):
            return None
        root = _root(self.covariance)
        pace = float((V[0, 0] * np.linalg.eigvalsh(root.T @ A @ root)).max())
        return 1 / (2 * pace) if pace > 0 else inf

    @property
    def _forms(self) -> tuple[np.ndarray, np.ndarray]:
        plain = np.eye(len(self.mean))
        return plain if self.A is None else self.A, plain if self.V is None else self.V

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n independent tokens of the law at the start, (n, d)."""
        root = _root(self.covariance)
        return self.mean + as_generator(seed).standard_normal((n, len(root))) @ root.T

    def solve(self, times: Array) -> Moments:
        """Mean and covariance at increasing times from 0 on; a ValueError past the blow-up."""
        from scipy.integrate import solve_ivp

        t = np.atleast_1d(np.asarray(times, dtype=np.float64))
        increasing = t.size > 0 and t.ndim == 1 and t[0] >= 0 and (np.diff(t) >= 0).all()
        if not increasing or not np.isfinite(t).all():
            raise ValueError(f"times: expected finite increasing times >= 0, got {times!r}")
        d, (A, V) = len(self.mean), self._forms
        bound = _OUT * max(float(np.abs(self.covariance).max()), 1e-300)

        def velocity(_: float, y: np.ndarray) -> np.ndarray:
            m, S = y[:d], y[d:].reshape(d, d)
            half = V @ S @ A @ S
            return np.concatenate([V @ (m + S @ A @ m), (half + half.T).ravel()])

        def out(_: float, y: np.ndarray) -> float:
            return float(np.abs(y[d:]).max()) - bound

        out.terminal = True  # type: ignore[attr-defined]
        start = np.concatenate([self.mean, self.covariance.ravel()])
        if t[-1] == 0:
            y = np.repeat(start[:, None], len(t), axis=1)
        else:
            how = {"rtol": 1e-11, "atol": 1e-14, "events": out, "t_eval": t}
            found = solve_ivp(velocity, (0.0, t[-1]), start, "DOP853", **how)
            if found.status != 0:
                end = found.t_events[0][0] if len(found.t_events[0]) else found.t[-1]
                raise ValueError(
                    f"times: the covariance becomes infinite at about t = {end:.6g}, before "
                    f"t = {t[-1]:g}; ask for earlier times"
                )
            y = found.y
        return Moments(t, y[:d].T, y[d:].T.reshape(-1, d, d))


def tilt(covariance: np.ndarray, A: np.ndarray | None = None) -> float:
    """The norm of S^{1/2} A S^{1/2}; None stands for A = I."""
    root = _root(covariance)
    return float(np.linalg.norm(root.T @ root if A is None else root.T @ A @ root, 2))


def _root(S: np.ndarray) -> np.ndarray:
    """R with R R^T = S."""
    values, axes = np.linalg.eigh(S)
    return axes * np.sqrt(values.clip(0))
