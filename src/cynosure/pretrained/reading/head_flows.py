"""The flow of theory under the A and V of real heads: one head alone, or all heads of a layer.

    x_i' = sum_j P_ij V x_j,   seen at its own growth: y_i = exp(-l1 t) x_i

Biases are left out. Time is in units of 1/l1, l1 the largest real part in the spectrum of V; of all
heads together, in units of one over the largest |eigenvalue| of the sum of their V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...attention import Heads, Softmax
from ...dynamics import Flow, SphereFlow
from ...simulation.loop import simulate
from ...simulation.steppers import RK4
from ...simulation.trajectory import Trajectory
from ..heads.head import Head
from .traces import cosines, settling

TWIN = 1e-10  # relative distance at which the twin of a run starts
TOGETHER = 0.99  # mean cosine of pairs from which tokens count as one crowd
PACE = 0.25  # RK4 steps for all heads together, in their unit of time


def growth_rate(head: Head) -> float:
    """l1, the largest real part in the spectrum of V (0 outside the head's range)."""
    top = max(float(head.V_eigenvalues.real.max()), 0.0)
    return top or float(np.abs(head.V_eigenvalues).max()) or 1.0


def head_run(head: Head, z0: np.ndarray, time: float, dt: float) -> tuple[Trajectory, float]:
    """The run, in steps of dt/l1 or shorter, and how far a twin ends that starts 1e-10 away. It is
    run inside what the head acts on; the rest of a token shrinks like e^{-l1 t}."""
    scale = growth_rate(head)
    stiff = max(1.0, float(np.abs(head.V_eigenvalues - scale).max()) / scale)
    B, small = head.basis, replace(head, causal=False).inside()
    noise = np.random.default_rng(0).standard_normal(z0.shape)
    u = np.stack([z0, z0 * (1 + TWIN * noise)]) @ B
    steps = int(np.ceil(time / (dt / stiff)))
    tr = _run(small.leading_flow(), u, time / scale, steps, saved=120)
    run, twin = tr.values[:, 0], tr.values[:, 1]
    shrunk = np.exp(-float(np.linalg.eigvals(small.V).real.max()) * tr.t)[:, None, None]
    y = run @ B.T + shrunk * (z0 - u[0] @ B.T)
    apart = float(np.linalg.norm(run[-1] - twin[-1]) / (np.linalg.norm(y[-1]) or 1.0))
    return replace(tr, z=y, dynamics=None), apart


def decay(head: Head, tr: Trajectory) -> float | None:
    """c where steps shrink like e^{-c l1 t}, over the second half and above rounding."""
    y = tr.values
    step = np.linalg.norm(np.diff(y, axis=0), axis=-1).max(axis=-1) / np.diff(tr.t)
    floor = 1e-12 * float(np.linalg.norm(y[-1], axis=-1).max()) / float(np.diff(tr.t)[-1])
    use = (step > floor) & (np.arange(len(step)) >= (step > floor).sum() // 2)
    if use.sum() < 3:
        return None
    return -float(np.polyfit(growth_rate(head) * tr.t[1:][use], np.log(step[use]), 1)[0])


def pace(heads: Sequence[Head]) -> float:
    return float(np.abs(np.linalg.eigvals(sum(head.V for head in heads))).max()) or 1.0


def sphere_run(
    heads: Sequence[Head], z0: np.ndarray, time: float
) -> tuple[dict[str, Any], float | None]:
    """Directions of the tokens under all heads, scores as if all had their mean length: `settling`
    of the run, and when the tokens have become one crowd."""
    length = np.linalg.norm(z0, axis=1, keepdims=True)
    beta = float((length**2).mean())
    rules = [Softmax(beta, head.A) for head in heads]
    flow = SphereFlow(Heads(rules, [head.V for head in heads], average=False))
    scale = pace(heads)
    tr = _run(flow, z0 / length, time / scale, int(np.ceil(time / PACE)), saved=60)
    mean = np.array([cosines(x).mean() if len(x) > 1 else 1.0 for x in tr.values])
    joined = np.flatnonzero(mean > TOGETHER)
    return settling(tr), float(tr.t[joined[0]]) * scale if len(joined) else None


def _run(flow: Flow, z0: np.ndarray, time: float, steps: int, saved: int) -> Trajectory:
    stepper, every = RK4(time / steps), max(1, steps // saved)
    return simulate(flow, z0, time=time, stepper=stepper, save_every=every, throw=False)
