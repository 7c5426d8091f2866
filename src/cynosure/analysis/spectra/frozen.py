"""The master equation: the run with its attention matrix frozen (docs/mathematics.md E9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex, final

import numpy as np

from ...simulation.trajectory import Trajectory
from .matrices import Finding, attention_matrix

_DENSE = 256  # coordinates up to which e^{dt M (x) V} is formed


@final
@dataclass(frozen=True, eq=False)
class MasterEquation(Finding):
    """The run with P frozen at time t0 against the run itself (docs/mathematics.md E9).

    `error[s]` = |X(t_s) - predicted_s|_F / |X(t_s)|_F at the saved times t_s >= t0; `eigenvalues`
    are those of P(t0), `near_one` how many lie within 1e-6 of 1: as many as there are closed
    groups of tokens, so in the end the number of clusters.
    """

    t: np.ndarray
    predicted: np.ndarray
    error: np.ndarray
    eigenvalues: np.ndarray
    near_one: int


def freeze(trajectory: Trajectory, at: SupportsIndex = 0) -> MasterEquation:
    """Freeze P at the saved state number `at` and predict the rest by the linear equation.

        EuclideanFlow, UnnormalizedFlow   X' = P X V^T
        AttentionFlow, RescaledFlow       X' = (P - I) X V^T
        LeadingFlow                       X' = P X V^T - l1 X
        PureAttention                     X^{k+1} = ((1 - eta) I + eta P) X^k

    or what `Dynamics.frozen` answers. Exact while the sets C_i of a hardmax run do not change
    (docs/mathematics.md C3); elsewhere the error says how fast the attention matrix changes.
    """
    start, dynamics = int(at), trajectory.made_by
    z = trajectory.tokens
    t = np.asarray(trajectory.t[start:], dtype=np.float64)
    P = attention_matrix(dynamics, z[start], float(t[0]))
    equation = dynamics.frozen(P)
    if equation is None:
        raise ValueError(
            f"trajectory: no master equation for {type(dynamics).__name__}, which is not linear "
            "with its attention matrix held fixed, or does not say so (Dynamics.frozen)"
        )
    if trajectory.in_time:
        predicted = propagate(equation.M, equation.V, z[start], t - t[0])
        predicted *= np.exp(-equation.decay * (t - t[0]))[:, None, None]
    else:
        states = [z[start]]
        for steps in np.diff(t).astype(int).tolist():
            states.append(np.linalg.matrix_power(equation.M, steps) @ states[-1])
        predicted = np.stack(states)
    size = np.linalg.norm(z[start:], axis=(1, 2))
    error = np.linalg.norm(z[start:] - predicted, axis=(1, 2)) / np.where(size > 0, size, 1.0)
    values = np.linalg.eigvals(P)
    values = values[np.argsort(-np.abs(values), kind="stable")]
    return MasterEquation(t, predicted, error, values, int((np.abs(values - 1) < 1e-6).sum()))


def propagate(M: np.ndarray, V: np.ndarray | None, x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The solution of X' = M X V^T from x at t = 0, at the times given: (times, n, d).

    By e^{dt M (x) V}: formed where it is small, by its action alone where not. Never by the
    eigenvectors of V: those of a real head, of low rank, are a poor basis.
    """
    from scipy.linalg import expm

    dense = V is None or x.size <= _DENSE
    generator = M if V is None else np.kron(M, V) if dense else None
    out, t, step, one = [], 0.0, -1.0, np.eye(0)
    for time in np.asarray(times, dtype=np.float64).tolist():
        ahead = time - t
        if dense and abs(ahead - step) > 1e-14 * max(time, 1.0):
            step, one = ahead, expm(ahead * generator)
        if ahead != 0:
            if V is None:
                x = one @ x
            else:
                x = (one @ x.ravel()).reshape(x.shape) if dense else _act(M, V, ahead, x)
        out.append(x)
        t = time
    return np.stack(out)


def _act(M: np.ndarray, V: np.ndarray, s: float, x: np.ndarray) -> np.ndarray:
    """e^{s M (x) V} x by products alone, to rounding (Al-Mohy and Higham)."""
    from scipy.sparse.linalg import LinearOperator, expm_multiply

    generator = LinearOperator(
        (x.size, x.size),
        matvec=lambda y: s * (M @ y.reshape(x.shape) @ V.T).ravel(),
        rmatvec=lambda y: s * (M.T @ y.reshape(x.shape) @ V).ravel(),
        dtype=np.float64,
    )
    trace = s * float(np.trace(M) * np.trace(V))
    state = np.random.get_state()
    np.random.seed(0)  # SciPy estimates a norm at random: the same last digits each time
    try:
        return np.asarray(expm_multiply(generator, x.ravel(), traceA=trace)).reshape(x.shape)
    finally:
        np.random.set_state(state)
