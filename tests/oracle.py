"""The hardmax layer in plain rationals: slow, simple, the judge of every fast path."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cynosure.engine.kernels import Candidates


def exact(rows):
    """Rows of floats or rationals as tuples of Fractions."""
    return [tuple(Fraction(x) for x in row) for row in rows]


def score(A, x, y):
    ax = x if A is None else tuple(sum(a * b for a, b in zip(row, x, strict=True)) for row in A)
    return sum(a * b for a, b in zip(ax, y, strict=True))


def followed(z, A=None):
    """C_i for every token, as the definition says: no classes, no floats, no pruning."""
    out = []
    for x in z:
        scores = [score(A, x, y) for y in z]
        best = max(scores)
        out.append([j for j, s in enumerate(scores) if s == best])
    return out


def layer(z, alpha, A=None):
    """One layer z_i + eta (m_i - z_i), and the sets it used."""
    sets = followed(z, A)
    eta = Fraction(alpha) / (1 + Fraction(alpha))
    d = len(z[0])
    new = []
    for x, members in zip(z, sets, strict=True):
        mean = [sum(z[j][c] for j in members) / len(members) for c in range(d)]
        new.append(tuple(a + eta * (m - a) for a, m in zip(x, mean, strict=True)))
    return new, sets


def run(z0, alpha, layers, A=None):
    """States z^0..z^layers and the sets C^0..C^{layers-1}."""
    z, states, sets = exact(z0), [exact(z0)], []
    for _ in range(layers):
        z, c = layer(z, alpha, A)
        states.append(z)
        sets.append(c)
    return states, sets


def born(states, sets):
    """First layer at which a token follows only tokens equal to itself, -1 if never."""
    out = [-1] * len(states[0])
    for k, c in enumerate(sets):
        for i, members in enumerate(c):
            if out[i] < 0 and all(states[k][j] == states[k][i] for j in members):
                out[i] = k
    return out


def reference_candidates(q, z, slack, *, runner_up=False):
    """C_i = {j : <q_i, z_j> >= max_l <q_i, z_l> - slack_i}, by looking at every score.

    The only kernel whose rightness is obvious: the others are compared with it on sets.
    """
    nq, m = len(q), len(z)
    best = np.empty(nq, np.intp)
    counts = np.empty(nq, np.intp)
    gap = np.empty(nq if runner_up else 0)
    rows = []
    step = max(1, 2**20 // m)
    for start in range(0, nq, step):
        block = slice(start, min(start + step, nq))
        scores = q[block] @ z.T
        best[block] = scores.argmax(axis=1)
        top = scores.max(axis=1)
        near = scores >= (top - slack[block])[:, None]
        counts[block] = near.sum(axis=1)
        rows.append(near.nonzero()[1])
        if runner_up:
            gap[block] = top - np.where(near, -np.inf, scores).max(axis=1)
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.intp)
    return Candidates(best, indptr, np.concatenate([*rows, np.empty(0, np.intp)]), gap)
