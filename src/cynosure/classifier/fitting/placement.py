"""Placed: terms placed on the half circle by a convex fit, and read as far as a text needs.

1. Two convex fits on presence of terms, one scaled by the naive-Bayes log-ratio (NB-SVM, Wang and
   Manning 2012), one by inverse document frequency, give a weight s_j per term, their mean; the
   second alone where it does better on texts held out, as with few texts. They are fitted with
   dropout, and where reading stops early again on what is read of the texts (`convex`).
2. The weights are rounded to grades, which become directions of the plane (`levels`).
3. kappa says how far a text is read: its strong terms, until they outweigh what the weak ones could
   say. The anchor's length does it (`plane`), so it is the attention layers that silence the weak.

Within a grade all directions are equal, so its longest token leads: each grade heard in a text is
one cluster, led by its most telling term, and all others follow the anchor. Several classes are
read together (`together`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Real
from typing import Any, final

import numpy as np

from ..model.model import Model
from ..model.plane import Plane
from ..text.documents import Documents
from .convex import (
    AGAIN,
    decoders,
    linear,
    log_ratio,
    loss,
    losses,
    read_again,
    turned,
    weights,
)  # fmt: skip
from .held_out import Folds, HeldOut, Sums, sums
from .levels import MOST_LEVELS, graded, placed
from .together import JOINT_LEVELS, Joint, losses_of, model_of

_GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # of C
_KAPPAS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, float("inf"))
_FLAT = 1.001  # losses of C as good as the least
_COSTS, _SHARED, _ALIKE = 0.125, 0.005, 0.002  # of what a text tells: more than a budget may cost,
# in one plane and in several that share a softmax; no difference
MOST_DIMENSIONS = 4096
AUTO_WORDS = 14
_MANY, _SOME = 10_000, 1000  # texts of the second largest class from which it may cost that much


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What a fit is given: texts as sets of terms, their class numbers y, how often each counts
    (`weight`, and in `df`, the document frequencies); `spelled` (terms, words) sparse, 1 where a
    term has a word; `turns` for `convex.turned`, or None; at most `leaders` leaders and `words`
    words read (None: any number) a text on average, more words where that costs much and is not
    `strict`; tokens in R^dim, `layers` layers with step `alpha`."""

    documents: Documents
    y: np.ndarray
    weight: np.ndarray
    df: np.ndarray
    spelled: Any
    turns: tuple[np.ndarray, np.ndarray] | None
    classes: int
    dim: int
    leaders: float | int
    words: float | int | None
    alpha: float | int
    layers: int
    seed: int
    strict: bool = True
    notes: list[str] = field(default_factory=list)  # what a fit has to say about itself

    def prior(self, c: int) -> float:
        """Log-odds of class c against the rest, from the weights."""
        inside = float(self.weight[self.y == c].sum())
        return float(np.log(inside) - np.log(float(self.weight.sum()) - inside))

    def share(self, c: int) -> float:
        """Log of the share of class c, from the weights."""
        return float(np.log(self.weight[self.y == c].sum() / self.weight.sum()))

    def folds(self, parts: Sequence[Any], final: Any, levels: int, kappa: float) -> Folds:
        """The sums of the texts of `parts`, and of those seen, as the layers leave them: after any
        number of layers a little is left of what was not read."""
        left = (1.0 / (1.0 + float(self.alpha))) ** self.layers

        def of(part: Any, documents: Documents, weight: np.ndarray) -> Sums:
            read, whole = (part.sums(levels, k, documents) for k in (kappa, float("inf")))
            return Sums((1.0 - left) * read + left * whole, documents.sizes, weight)

        away = tuple(of(part, part.held.documents, part.held.weight) for part in parts)
        *seen, last = (of(p, p.held.seen, p.held.seen_weight) for p in (*parts, final))
        return Folds(away, tuple(seen), last)

    def ordered(self) -> Task:
        """The same texts in an order of their own: by class, then by their terms."""
        terms = [self.documents[i].tolist() for i in range(len(self.y))]
        key = list(zip(self.y.tolist(), terms, self.weight.tolist(), strict=True))
        rows = np.array(sorted(range(len(key)), key=key.__getitem__), dtype=np.intp)
        documents = self.documents.take(rows)
        return replace(self, documents=documents, y=self.y[rows], weight=self.weight[rows])


class Fit(abc.ABC):
    """A way to find a model's embedding and decoder."""

    @abc.abstractmethod
    def model(self, task: Task) -> Model:
        """Fit. Two classes give one decision row (class 1), more give one row per class."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Name and parameters, as JSON can hold them."""


@final
@dataclass(frozen=True)
class Placed(Fit):
    """Convex fit, then polar placement; see the module. Seconds, no gradient, deterministic.

    `C` is the inverse regularisation of the fits, `kappa` how sure a reading must be to stop (inf:
    never). None chooses them on `folds` blocks that are held out in turn: C by the loss, kappa as
    small as the budget of words allows. The same blocks calibrate the decoder. Blocks follow the
    order of the texts (neighbours are alike: reviews of one film), so that order matters a little.
    """

    C: float | int | None = None
    folds: int = 3
    kappa: float | int | None = None

    def describe(self) -> dict[str, Any]:
        return {"name": "placed", **self.get_params()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn asks for them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def set_params(self, **given: Any) -> Placed:
        """Set parameters by name; returns itself. In place, though frozen: scikit-learn sets
        parameters of parameters (`method__C`) that way, on its own copy."""
        for name, value in given.items():
            if name not in self.get_params():
                has = ", ".join(self.get_params())
                raise ValueError(f"Invalid parameter {name!r} for Placed; it has {has}")
            object.__setattr__(self, name, value)
        return self

    def model(self, task: Task) -> Model:
        if task.dim < 2:
            raise ValueError(f"dim: placing grades needs at least 2 dimensions, got {task.dim}")
        if task.dim > MOST_DIMENSIONS:
            raise ValueError(f"dim: expected at most {MOST_DIMENSIONS} dimensions, got {task.dim}")
        self._check()
        few = min(np.bincount(task.y, minlength=task.classes))
        if not self._training(np.arange(len(task.y)) < few, task.classes):
            task = task.ordered()
        x = task.documents.presence(len(task.df))
        x.sort_indices()  # once, not in every fit
        # one C for all classes, that of the largest: alike texts, and a fit for each C and class
        most = int(np.argmax(np.bincount(task.y, task.weight))) if task.classes > 2 else 1
        how = self._chosen(task, x, task.y == most, self._training(task.y == most, task.classes))
        return self._together(task, x, *how) if task.classes > 2 else self._alone(task, x, *how)

    def _check(self) -> None:
        for name in ("C", "kappa"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, Real) and float(given) > 0):
                raise ValueError(f"method.{name}: expected a number > 0, or None, got {given!r}")

    def _together(self, task: Task, x: Any, C: float, ratio: bool) -> Model:
        """Several classes that are read together, see `together`."""

        def fitted(rows: np.ndarray) -> np.ndarray:
            given = x[rows], task.weight[rows]
            s = np.zeros((x.shape[1], task.classes))
            df = given[0].T @ given[1]
            for c in range(task.classes):
                inside = task.y[rows] == c
                if inside.any() and not inside.all():
                    s[:, c] = weights(given[0], inside, given[1], C, task.seed, False, ratio)
                    if task.turns is not None:
                        side = log_ratio(given[0], inside, given[1])
                        s[:, c] = turned(s[:, c], *task.turns, side, df)
            return s - s.mean(axis=1, keepdims=True)

        every = np.ones(len(task.y), bool)
        whole = Joint(task, every, fitted(every))
        parts = [Joint(task, ~rows, fitted(rows)) for rows in self._training(task.y, 3)] or [whole]
        y = np.concatenate([part.y for part in parts])
        weight = np.concatenate([part.held.weight for part in parts])

        def counted(levels: int, at: float) -> np.ndarray:
            total = np.sum([part.counted(levels, at) for part in parts], axis=0)
            return total[:2] / total[2]

        def lost(levels: int, at: float) -> np.ndarray:
            return losses_of(task.folds(parts, whole, levels, at).means(None), y, weight)

        levels, kappa = _budgeted(task, counted, lost, weight, y, self.kappa, JOINT_LEVELS)
        return model_of(task, x, parts, whole, levels, kappa)

    def _alone(self, task: Task, x: Any, C: float, ratio: bool) -> Model:
        """Two classes, one plane."""
        inside, every = task.y == 1, np.ones(len(task.y), bool)
        folds = self._training(inside, 2)
        fits = [*folds, every]
        halves = [_halved(inside[rows]) for rows in fits]
        few = task.layers == 0 or any(half is None for half in halves)

        def fitted(rows: np.ndarray, half: np.ndarray | None) -> list[np.ndarray]:
            """Weights for a reader that stops early, and for one that reads on."""
            given = x[rows], inside[rows], task.weight[rows]
            found = (
                [weights(*given, C, task.seed, True, ratio)]
                if few or half is None
                else [*read_again(*given, C, task.seed, ratio, half)]
            )
            if task.turns is None:
                return found
            known = *task.turns, log_ratio(*given), given[0].T @ given[2]
            return [turned(s, *known) for s in found]

        away = [*(~rows for rows in folds), every]
        for found in zip(*map(fitted, fits, halves), strict=True):
            parts = [_Part(task, rows, inside, s) for rows, s in zip(away, found, strict=True)]
            final = parts[-1]
            parts = parts[:-1] or parts  # few texts, none held out: the decoder is overconfident
            levels, kappa = self._read(task, parts, final)
            if kappa <= AGAIN:
                break
        held = np.concatenate([part.inside for part in parts]).astype(np.intp)
        ((count, slope, b),) = decoders(task.folds(parts, final, levels, kappa), held)
        evidence = task.df * log_ratio(x, inside, task.weight) ** 2
        embedding, unit = placed(final.graded(levels), evidence, task.dim)
        v = np.zeros((1, task.dim))
        v[0, 0] = slope * unit
        prior = np.array([task.prior(1)])
        plane = Plane(embedding, np.eye(task.dim)[1], v, np.array([b]), prior, count, kappa)
        return Model((plane,), task.alpha, task.layers)

    def _read(self, task: Task, parts: list[_Part], final: _Part) -> tuple[int, float]:
        """(levels, kappa) at which two classes are read."""
        held = np.concatenate([part.inside for part in parts])
        weight = np.concatenate([part.held.weight for part in parts])

        def counted(levels: int, at: float) -> np.ndarray:
            """On texts held out and on all of them with the final weights."""
            rows = [part.counted(levels, at) for part in (final, *parts)]
            return np.maximum(*(r[:2] / r[2] for r in (rows[0], np.sum(rows[1:], axis=0))))

        def lost(levels: int, at: float) -> np.ndarray:
            return losses(task.folds(parts, final, levels, at).means(None)[:, 0], held, weight)

        y = held.astype(np.intp)
        return _budgeted(task, counted, lost, weight, y, self.kappa, MOST_LEVELS)

    def _chosen(
        self, task: Task, x: Any, inside: np.ndarray, folds: list[np.ndarray]
    ) -> tuple[float, bool]:
        """C, and whether log-ratios are used, by the loss on texts held out.

        C: from the middle of the grid as long as the loss falls, then down while it is nearly as
        low: fewer words are read. Many texts hold out enough with one fold."""
        if not folds:
            return float(self.C if self.C is not None else 1.0), False
        used = folds[:1] if len(inside) > 5000 else folds
        root, w = np.sqrt(task.documents.sizes + 1.0), task.weight
        away = np.concatenate([np.flatnonzero(~rows) for rows in used])
        tried: dict[float, tuple[float, float]] = {}

        def held_out(C: float) -> tuple[float, float]:
            """The loss with log-ratios, and without."""
            if C not in tried:
                rare: list[np.ndarray] = []
                both: list[np.ndarray] = []
                for rows in used:
                    given = x[rows], inside[rows], w[rows]
                    first, second = linear(*given, C, task.seed, dropout=False, ratio=True)
                    for s, out in ((first, rare), (first + second, both)):
                        mean = x @ s / root
                        out.append(mean[~rows] - w[rows] @ mean[rows] / w[rows].sum())
                one, other = (
                    loss(np.concatenate(out), inside[away], w[away]) for out in (both, rare)
                )
                tried[C] = one, other
            return tried[C]

        def at(k: int) -> float:
            return min(held_out(_GRID[k])) if 0 <= k < len(_GRID) else float("inf")

        if self.C is not None:
            C = float(self.C)
        else:
            best = len(_GRID) // 2
            for step in (1, -1):
                while at(best + step) < at(best):
                    best += step
            least = _FLAT * at(best)
            while at(best - 1) <= least:
                best -= 1
            C = _GRID[best]
        one, other = held_out(C)
        return C, one <= other

    def _training(self, y: np.ndarray, classes: int) -> list[np.ndarray]:
        """For each fold the mask of the texts outside it; no folds where a class has few texts. One
        of several classes may be rare: without folds the softmax would trust it too much."""
        many = np.unique(y, return_counts=True)[1]
        few = min(many.min(), len(y) - many.max())
        if len(many) > 2:  # the rare ones are not known to some folds
            few = np.sort(many)[len(many) // 2]
        if self.folds < 2 or few < (4 if classes == 2 else 1) * self.folds:
            return []
        runs = 1 if len(y) < 2500 or few < 10 * self.folds else 10
        fold = (_places(y) * runs * self.folds).astype(int) % self.folds
        return [fold != f for f in range(self.folds)]


def _places(y: np.ndarray) -> np.ndarray:
    """Where every text stands among those of its class, from 0 to 1."""
    place = np.empty(len(y))
    for c in np.unique(y):
        place[y == c] = np.arange((y == c).sum()) / (y == c).sum()
    return place


def _halved(inside: np.ndarray) -> np.ndarray | None:
    """The first half of each side, since blocks in turn would share films; None of too few."""
    return None if min(inside.sum(), (~inside).sum()) < 8 else _places(inside) < 0.5


@final
class _Part:
    """Texts held out, with a weight per term of fits that do not know them."""

    def __init__(self, task: Task, rows: np.ndarray, inside: np.ndarray, s: np.ndarray) -> None:
        self.held = HeldOut(task, rows, s)
        self.inside = inside[self.held.rows]
        self.graded = cache(lambda levels: graded(s, task.df, levels))
        self.sums = cache(self._sums)

    def _sums(self, levels: int, kappa: float, documents: Documents | None = None) -> np.ndarray:
        """The sums of the weights read (texts, 1), of the texts held out or of others."""
        documents, by = documents or self.held.documents, self.graded(levels)
        return sums(documents, by.weight[:, None], by.heard(documents, kappa))

    def counted(self, levels: int, kappa: float) -> np.ndarray:
        """Words named by the terms read, and leaders, of some of the texts; their weight."""
        by, few = self.graded(levels), self.held.few
        heard = by.heard(few, kappa)
        return self.held.counted(heard, by.leaders(few, heard))


def _budgeted(
    task: Task,
    counted: Callable[[int, float], np.ndarray],
    lost: Callable[[int, float], np.ndarray],
    weight: np.ndarray,
    y: np.ndarray,
    kappa: float | int | None,
    most_levels: int,
) -> tuple[int, float]:
    """(levels, kappa): as many levels, and read as far, as the budgets of leaders and words allow.

    `counted` gives the words and leaders of a text at such levels and kappa, `lost` the log-loss of
    every text held out, of class y, which counts `weight` times. Coarser levels are read in larger
    steps, so levels are compared each at the kappa its words allow."""

    def allowed(levels: int) -> float:
        if task.layers == 0:
            return float("inf")  # nothing is silenced without layers
        if kappa is not None:
            return float(kappa)
        if task.words is None or counted(levels, float("inf"))[0] <= task.words:
            return float("inf")
        low, high = 0.0, 16.0
        for _ in range(12):
            middle = (low + high) / 2
            fits = counted(levels, middle)[0] <= task.words
            low, high = (middle, high) if fits else (low, middle)
        return max(low, 1e-3)

    low, high = 1, most_levels + 1
    if counted(most_levels, allowed(most_levels))[1] <= task.leaders:
        low = most_levels
    while high - low > 1:
        levels = min(2 * low, (low + high) // 2)
        if counted(levels, allowed(levels))[1] > task.leaders:
            high = levels
        else:
            low = levels
    reach = allowed(low)
    if kappa is not None or not task.layers:
        return low, reach
    few = float(np.sort(np.bincount(y, weight))[-2])
    costs = _COSTS * min(1.0, few / _MANY)
    if task.classes > 2:
        costs = _SHARED * min(1.0, np.sqrt(few / _SOME))
    at = _stopping(lambda at: lost(low, at), weight, y, reach, task.strict, costs)
    task.notes.clear()
    if at > reach:
        task.notes.append(
            f"{task.words} words a text would cost over {costs:.1%} of what the texts tell: about "
            f"{counted(low, at)[0]:.0f} are read (words={task.words} keeps to the budget)"
        )
    return low, at


def _stopping(
    losses_at: Callable[[float], np.ndarray], weight: np.ndarray, y: np.ndarray,
    budget: float, strict: bool, costs: float,
) -> float:  # fmt: skip
    """kappa: as small as tells the classes apart as well as any within the budget.

    Well is judged by the log-loss on texts held out, since accuracy is too coarse on some hundred
    short texts, as a share of what the texts tell at all: the entropy of the classes less the least
    loss. Where the budget costs more than the share `costs` and is not `strict`, it is left: then
    kappa is as small as costs half of that."""
    tried = [k for k in sorted({*_KAPPAS, budget}) if k <= budget or not strict]
    lost = [losses_at(k) for k in tried]
    mean = np.array([weight @ one for one in lost]) / weight.sum()
    within = tried.index(budget) + 1
    best, allowed = int(mean.argmin()), int(mean[:within].argmin())
    share = np.bincount(y, weight) / weight.sum()
    share = share[share > 0]
    told = max(-float(share @ np.log(share)) - float(mean[best]), 0.0)
    if mean[allowed] - mean[best] > costs * told:
        return tried[int(np.argmax(mean <= mean[best] + costs / 2 * told))]
    return tried[int(np.argmax(mean <= mean[allowed] + _ALIKE * told))]
