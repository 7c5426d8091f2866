"""B40: the roles on record are those of exact layers: who leads since when, who follows whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.followed import Followed, History
from .checks import Part, exactly, need, statement
from .motion import MotionRun

_has_history = need(
    "hardmax layers with a history of roles",
    lambda run: run.hardmax is not None and run.trajectory.history is not None,
)


def _wrong_roles(run: MotionRun, history: History) -> tuple[np.ndarray, np.ndarray]:
    """Tokens whose recorded birth is wrong; those whose recorded leader, or since when, is wrong.

    Tokens that meet after layer 0 (A not definite) are one from then on (docs/mathematics.md C4).
    """
    n = len(run.real)
    told, settled = history.leader[run.real], history.settled_at[run.real]
    place = np.full(run.trajectory.values.shape[1], -1)
    born, since, right = np.full(n, -1), np.full(n, -1), np.zeros(n, dtype=bool)
    for k, layer in enumerate(run.exact):
        leads = layer.leads
        born[(born < 0) & leads] = k
        one = np.array([s[0] if len(s) == 1 else -1 for s in layer.sets])
        goal = one[layer.label]
        at = np.unique(layer.label, return_index=True)[1][goal]  # a token there, if there is one
        new = (since < 0) & (goal >= 0) & leads[at]
        place[run.real] = layer.label
        since[new], right[new] = k, (place[told] == goal)[new]
    if not run.whole:
        later = run.again.history
        assert later is not None
        born = np.where((born < 0) & (later.born >= len(run.exact)), later.born, born)
    wrong = (since >= 0) & ((told < 0) | ~right | (settled != since))
    wrong |= (since < 0) & (told >= 0) & (run.whole | (settled < len(run.exact)))
    return history.born[run.real] != born, wrong


def _wrong_sets(run: MotionRun, history: History) -> np.ndarray:
    """(layers, n): the recorded C_i is not the exact one, compared as sets of tokens."""
    place = np.full(run.trajectory.values.shape[1], -1)
    wrong = np.zeros((len(run.exact), len(run.real)), dtype=bool)
    for k, layer in enumerate(run.exact):
        place[run.real] = layer.label
        recorded, count = history.followed(k), np.bincount(layer.label)
        rows = np.unique(layer.label, return_index=True)[1]
        bad = [
            not _same_set(recorded, int(run.real[i]), layer.sets[c], place, count)
            for c, i in enumerate(rows.tolist())
        ]
        wrong[k] = np.array(bad)[layer.label]
    return wrong


def _same_set(
    recorded: Followed, i: int, labels: np.ndarray, place: np.ndarray, count: np.ndarray
) -> bool:
    """Does the record say that token i follows exactly the tokens with these labels?"""
    c = recorded.label[i]
    classes = recorded.indices[recorded.indptr[c] : recorded.indptr[c + 1]]
    told = np.unique(place[recorded.first[classes]])
    size = int(recorded.count[classes].sum())
    return np.array_equal(told, labels) and size == int(count[labels].sum())


@statement(
    MotionRun,
    "B40",
    "docs/mathematics.md B40; Definition 1.1 of arXiv 2407.01602",
    "born is the first layer with C_i = {i}; leaders and recorded sets are those of exact layers",
    (_has_history,),
)
def roles_of_states(run: MotionRun) -> list[Part]:
    """The history of a run against layers in integers, for any A and whatever layers were saved.

    Trap: sets of stored, rounded states lose leaders and invent them; only layer 0 is read.
    """
    history = run.trajectory.history
    assert history is not None
    born, leader = _wrong_roles(run, history)
    tokens: Any = {"token": run.real}
    parts = [
        exactly("born", born, "token", **tokens),
        exactly("leader", leader, "token", **tokens),
        exactly("padding has no role", np.delete(history.born, run.real) >= 0, "padding"),
        Part("tokens compared", float(born.size), 0.0, {"layers_in_integers": len(run.exact)}),
    ]
    if history.records:
        parts.append(exactly("C_i", _wrong_sets(run, history), "layer", "token", **tokens))
    return parts
