"""The learned sentiment model beside its null models: no attention, and a bag of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...classifier.soft_model import Schedule, SoftLayers
from ._matrices import kind_of, network
from ._models import LAYERS, Fitted, called
from ._null_models import above, bag_of_words, blockwise, said
from ._reviews import Split
from ._training import evaluate, one_thread, train


class Null(NamedTuple):
    """A model on the test reviews (means over seeds, one entry per review): which it has right.

    `hard` with its hardmax layers, `bare` the same weights with 0 layers, `trained` the same words
    trained with 0 layers, `linear` logistic regression; `same` is the share of verdicts that do not
    change when the layers are left out.
    """

    dim: int
    tokens: int
    kind: str
    seeds: int
    hard: np.ndarray
    bare: np.ndarray
    same: float
    trained: np.ndarray
    linear: np.ndarray

    @property
    def name(self) -> str:
        return called(self.dim, self.tokens, self.kind)


def null_model(fits: Sequence[Fitted], schedule: Schedule) -> Null:
    """The null models of one dimension; `fits` are its models, one for each seed."""
    history, _, data = fits[0]
    verdicts = [_with_and_without(weights, data) for _, weights, _ in fits]
    truth = data.test.y
    trained = [
        _depth_0(data, int(history["dim"]), replace(schedule, seed=schedule.seed + k))
        for k in range(len(fits))
    ]
    return Null(
        dim=int(history["dim"]),
        tokens=int(history["tokens"]),
        kind=kind_of(fits[0][1]),
        seeds=len(fits),
        hard=np.mean([layers == truth for layers, _ in verdicts], axis=0),
        bare=np.mean([none == truth for _, none in verdicts], axis=0),
        same=float(np.mean([layers == none for layers, none in verdicts])),
        trained=np.mean([x == truth for x in trained], axis=0),
        linear=(_linear(data) == truth).astype(float),
    )


@one_thread()
def _with_and_without(weights: Mapping[str, Any], data: Split) -> tuple[np.ndarray, np.ndarray]:
    """Verdicts on the test reviews with hardmax layers and with none, by the same weights."""
    import torch

    w = {k: torch.as_tensor(np.asarray(x), dtype=torch.float32) for k, x in weights.items()}
    kind = kind_of(w)
    with_, without = (evaluate(w, data.test, network(kind, k, 0.0)) for k in (LAYERS, 0))
    return with_ > 0, without > 0


_linear = lru_cache(maxsize=4)(bag_of_words)  # models with another A have the same null models


@lru_cache(maxsize=16)
@one_thread()
def _depth_0(data: Split, dim: int, schedule: Schedule) -> np.ndarray:
    """Verdicts of the model trained with 0 layers, at the epoch that is best on data.held."""
    bare = SoftLayers(0)
    *_, last = train(data, dim, bare, schedule)
    return evaluate(last.best, data.test, bare) > 0


def null_controls(nulls: Sequence[Null]) -> list[cy.Comparison]:
    """Is the accuracy, and its growth with d, the work of attention?"""
    out = []
    for x in nulls:
        trained, linear = x.hard - x.trained, x.hard - x.linear
        out.append(
            cy.Comparison(
                f"{x.name}: attention makes the model more accurate.",
                f"the same words trained with 0 layers, {x.seeds} seeds of each; logistic "
                "regression",
                f"{x.hard.mean():.4f}; 0 layers {x.trained.mean():.4f}, difference {said(trained)};"
                f" logistic regression {x.linear.mean():.4f}, difference {said(linear)}; by blocks "
                f"of {len(x.hard)} test reviews",
                above(trained) and above(linear),
            )
        )
    same = float(np.mean([x.same for x in nulls]))
    gain, bare = (float(np.mean([getattr(x, k).mean() for x in nulls])) for k in ("hard", "bare"))
    out.append(
        cy.Comparison(
            "The layers decide.",
            "the same weights read with 0 layers",
            f"{same:.1%} of the verdicts stay; accuracy {gain:.4f} with, {bare:.4f} without",
            any(above(x.hard - x.bare) for x in nulls),
        )
    )
    plain = [x for x in nulls if x.kind == "I"]
    if len({x.dim for x in plain}) > 1:
        out.append(_growth(plain))
    return out + _trained_matrices(plain, nulls)


def _trained_matrices(plain: Sequence[Null], nulls: Sequence[Null]) -> list[cy.Comparison]:
    """Each model with a trained A beside the one with A = I."""
    out = []
    for x in nulls:
        same = [p for p in plain if (p.dim, p.tokens) == (x.dim, x.tokens)]
        if x.kind != "I" and same:
            gain, seeds = x.hard - same[0].hard, min(x.seeds, same[0].seeds)
            out.append(
                cy.Comparison(
                    f"{x.name}: training A makes the model more accurate.",
                    f"the same words and schedule with A = I, {seeds} seeds of each",
                    f"{x.hard.mean():.4f}, with A = I {same[0].hard.mean():.4f}, difference "
                    f"{said(gain)}" + ("" if seeds > 1 else "; one seed of each decides nothing"),
                    seeds > 1 and above(gain),
                )
            )
    return out


def _growth(nulls: Sequence[Null]) -> cy.Comparison:
    low, high = (pick(nulls, key=lambda x: (x.dim, x.tokens)) for pick in (min, max))
    mine, none = high.hard.mean() - low.hard.mean(), high.trained.mean() - low.trained.mean()
    gains = [x.hard - x.trained for x in (high, low)]
    alike = len(gains[0]) == len(gains[1])
    return cy.Comparison(
        "Accuracy grows with d because more words can lead.",
        "the same words trained with 0 layers",
        f"from {low.name} to {high.name}: {mine:+.4f} with layers, {none:+.4f} with none"
        + (f", difference {said(gains[0] - gains[1])}" if alike else ""),
        bool(mine > 0 and alike and above(gains[0] - gains[1])),
    )


def null_table(nulls: Sequence[Null]) -> cy.Table:
    columns: dict[str, Any] = {
        "d": "dim",
        "A": "kind",
        "n": "tokens",
        "seeds": "seeds",
        "test reviews": lambda x: len(x.hard),
        "hardmax": lambda x: float(x.hard.mean()),
        "95 % from": lambda x: blockwise(x.hard)[0],
        "to": lambda x: blockwise(x.hard)[1],
        "same weights, 0 layers": lambda x: float(x.bare.mean()),
        "verdicts that stay": "same",
        "trained with 0 layers": lambda x: float(x.trained.mean()),
        "logistic regression": lambda x: float(x.linear.mean()),
        "hardmax minus 0 layers": lambda x: float((x.hard - x.trained).mean()),
        "from": lambda x: blockwise(x.hard - x.trained)[0],
        "to ": lambda x: blockwise(x.hard - x.trained)[1],
    }
    note = (
        "All on the same words and test reviews, means over seeds; epochs and regularisation are "
        "chosen on held-out blocks of the training part. Intervals by blocks of consecutive "
        "reviews."
    )
    return cy.Table.of("Beside no attention and a bag of words", list(nulls), columns, note)
