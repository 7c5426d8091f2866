"""B15 and B16: what the matrix A can do: choose the leaders, or destroy them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..attention import Hardmax
from .checks import Part, directions, exactly, least, need, none, some, statement
from .convergence import hulls
from .layers import SPD, LayerRun, positive, several, symmetric
from .leadership import distances, firsts

_statement = partial(statement, LayerRun)


@_statement(
    "B15",
    "docs/mathematics.md B15",
    "some symmetric positive definite A makes z_i lead iff z_i is a vertex of conv(Z ∪ {0})",
    SPD,
)
def choosing_leaders(run: LayerRun) -> list[Part]:
    """Leaders are exposed by A z_i; for some vertices an A is built and tried (B15)."""
    leaders = run.sample(firsts(run, np.flatnonzero(run.born == 0)), run.n * run.d)
    gaps = np.minimum(run.gaps(0, leaders), run.squares[0, leaders])
    directions = np.random.default_rng(0).standard_normal((20, run.d))
    most = max(1, int(2e6 / (run.n * run.d)))
    built, refused = 0, []
    found, first = np.unique((run.z[0] @ directions.T).argmax(axis=0), return_index=True)
    for i, c in zip(found[:most].tolist(), directions[first]):
        A = _form_for(run.z[0], run.label, i, c)
        if A is not None:
            built += 1
            refused.append(not Hardmax(A).followed(run.z[0]).leads[i])
    where: Any = {"token": leaders, "built": built}
    return [
        least("leaders are exposed by A z_i", gaps, 2 * run.score_error(), "token", **where),
        exactly("the A built for a vertex makes it lead", refused, "trial"),
    ]


def _form_for(z: np.ndarray, label: np.ndarray, i: int, c: np.ndarray) -> np.ndarray | None:
    """An A that makes token i lead, from a direction c that exposes it; None if c does not."""
    rivals = np.concatenate([z[i] - z[label != label[i]], z[i : i + 1]])
    c = c / np.abs(c).max()
    t = float((rivals @ c).min())
    if t <= 1e-9:
        return None
    reach = np.linalg.norm(z[i]) * np.linalg.norm(rivals, axis=1).max()
    # symmetric to the last bit, and eps |<z_i, z_i - z_j>| <= t/2
    return t / (2 * reach) * np.eye(len(c)) + np.outer(c, c) / float(c @ z[i])


_not_symmetric = need("A not symmetric (largest |A - A^T|)", lambda run: symmetric(run).value, some)


@_statement(
    "B16",
    "docs/mathematics.md B16",
    "A not symmetric: hulls decrease, tokens never collide; leaders and growing norms may be lost",
    (_not_symmetric, positive, several),
)
def not_symmetric(run: LayerRun) -> list[Part]:
    """What remains true; the witness says what was lost in this run.

    A cycle of tokens that follow one another keeps their mean, and lasts only if that is 0 (B16).
    """
    norms = np.linalg.norm(run.z, axis=2)
    width = np.ptp(run.z, axis=1).max(axis=1)
    lost = {
        "leaders": int((run.born >= 0).sum()),
        "norms_decreased": bool((norms[1:] < norms[:-1] - 4 * run.error).any()),
        "width_last_over_first": float(width[-1] / width[0]),
        "mean_of_the_start": float(np.linalg.norm(run.z[0].mean(axis=0))),
    }
    # while the sets are a permutation of the tokens, their mean stands still
    cycles = [np.array_equal(np.sort(run.single(k)), np.arange(run.n)) for k in range(run.layers)]
    moved = np.linalg.norm(np.diff(run.z.mean(axis=1), axis=0), axis=1)
    still = least("mean of a cycle", np.where(cycles, -moved, 0.0), 2 * run.step, "layer")
    parts = [*hulls(run, run.A, run.step), *distances(run), still]
    return [replace(p, where={**p.where, **lost}) for p in parts]


_decided = need(
    "all limits read off the run (tokens left over)", lambda run: (~run.straight).sum(), none
)


@_statement(
    "B41",
    "docs/mathematics.md B41",
    "any A: each vertex v of K has max over K of <Av, y> = <Av, v>; A < 0: K is one point",
    (_decided,),
)
def vertices_of_any_form(run: LayerRun) -> list[Part]:
    """Vertices of the hull of the limits, found as maximisers in random directions.

    K lies inside the last hull: no direction reaches further in the limits than in the last layer.
    """
    ends, g = run.ends, 2 * run.score_error(run.end_error)
    c = directions(run.d)
    reach = ends @ c.T
    vertices = np.unique(reach.argmax(axis=0))
    score = (ends[vertices] @ run.A.T) @ ends.T
    own = score[np.arange(len(vertices)), vertices]
    inside = (run.z[-1] @ c.T).max(axis=0) - reach.max(axis=0)
    parts = [
        least("<Av, v> is largest", own - score.max(axis=1), g, "token", token=vertices),
        least("K in the last hull", inside, 4 * run.end_error, "direction", direction=c),
    ]
    if np.linalg.eigvalsh(run.A + run.A.T)[-1] < -1e-12:  # entries of A are about 1
        apart = np.linalg.norm(ends - ends[0], axis=1)
        parts.append(least("one point", -apart, 4 * run.end_error, "token"))
    return parts
