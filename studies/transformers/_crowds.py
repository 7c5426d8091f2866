"""All heads of a layer together, on the sphere, beside heads that know nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.head_flows import TOGETHER, sphere_run

from ._head_ends import GAUSSIAN, UNIFORM
from ._null_heads import random_head, uniform_head

TRAINED = "trained heads"


class Crowd(NamedTuple):
    """How the tokens end when all heads of a layer act together, and when they became one."""

    layer: int
    heads: str
    start: str
    clusters: int
    mean_cosine: float | None
    step: float
    when: float | None
    tokens: int


def crowds_of(
    heads: Sequence[cy.pretrained.Head],
    starts: Mapping[str, np.ndarray],
    time: float,
    nulls: bool,
    seed: int,
) -> list[Crowd]:
    """The sum of all heads of a layer on the sphere, and of its null models if asked."""
    layer, rng = heads[0].layer, np.random.default_rng([seed, heads[0].layer])
    kinds: dict[str, Sequence[cy.pretrained.Head]] = {TRAINED: heads}
    if nulls:
        kinds[GAUSSIAN] = [random_head(head, rng) for head in heads]
        kinds[UNIFORM] = [uniform_head(head) for head in heads]
    runs = [(kind, start) for kind in kinds for start in starts]
    ends = cy.study.kept_each(
        sphere_run, [(tuple(kinds[kind]), starts[at], time) for kind, at in runs]
    )
    out = []
    for (kind, start), (end, when) in zip(runs, ends, strict=True):
        seen = (end["clusters"], end["mean_cosine"], end["step"])
        out.append(Crowd(layer, kind, start, *seen, when, len(starts[start])))
    return out


def alone(crowds: Sequence[Crowd]) -> dict[str, tuple[int, int]]:
    """For each kind of heads: runs that end in a single cluster, and runs."""
    groups = cy.study.grouped(crowds, "heads").items()
    return {kind: (sum(x.clusters == 1 for x in mine), len(mine)) for kind, mine in groups}


def crowd_summary(crowds: Sequence[Crowd]) -> str:
    said = "; ".join(f"{kind} {one} of {n}" for kind, (one, n) in alone(crowds).items())
    return f"All heads of a layer together, on the sphere, that end in a single cluster: {said}."


def crowd_controls(crowds: Sequence[Crowd]) -> list[cy.study.Comparison]:
    """Is it the training that brings the tokens together?"""
    ends = alone(crowds)
    if len(ends) < 2:
        return []
    intervals = {kind: cy.study.wilson(*pair) for kind, pair in ends.items()}
    low = intervals[TRAINED][0]
    return [
        cy.study.Comparison(
            "That all heads of a layer bring the tokens together is the work of training.",
            "Gaussian heads of the same shapes and norms, uniform attention",
            f"runs that end in a single cluster: {cy.study.shares(ends)}",
            all(low > high for kind, (_, high) in intervals.items() if kind != TRAINED),
        )
    ]


def crowd_table(crowds: Sequence[Crowd]) -> cy.study.Table:
    columns = {name: name for name in ("layer", "heads", "start", "clusters", "tokens")} | {
        "mean cosine": "mean_cosine",
        f"mean cosine > {TOGETHER:g} at": "when",
    }
    note = (
        "x_i' = sum_h V_h sum_j P^h_ij x_j, projected on the sphere, scores those of tokens of the "
        "model's length; clusters at 1 % of it. Time in units of one over the largest |eigenvalue| "
        "of sum_h V_h; a last step that is not small is a cluster that moves. Null models in "
        "every other layer."
    )
    return cy.study.Table.of("All heads of a layer together", list(crowds), columns, note)
