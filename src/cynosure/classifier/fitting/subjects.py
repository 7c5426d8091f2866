"""Subjects: terms that stand among the same words, found in the training texts alone.

1. Counts of a word and its neighbours (1/k at distance k <= 5, among the distinct words of a text)
   become positive pointwise mutual information, its singular vectors word vectors (Levy and
   Goldberg 2014). A term's vector is the mean of its words', common words counted little (Arora et
   al. 2017).
2. Spherical k-means parts the terms into subjects. No label is looked at.
3. The weights of each subject and tendency are rounded to levels of their own.

A grade is then one level of one subject with one sign, and `levels.placed` puts it at

    (u, c sqrt(1-u^2), sqrt(1-c^2) sqrt(1-u^2) w),   w in R^(d-2) the unit vector of its subject.

Its cosine with the anchor's axis still falls with |u|: the anchor silences the weak as in the
plane, the terms heard gather by subject and tendency, and a follower has its leader's first
coordinate from the start, so the decision is the same exact sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, final

import numpy as np

from ..model.plane import Plane
from ..text.vocabulary import Vocabulary
from .levels import MOST_LEVELS, Graded, edges, sorted_sums, told_apart

if TYPE_CHECKING:
    from .placement import Task

_LEVELS = 12  # of a subject and sign on average: with many more, every word leads alone
_WINDOW, _NEIGHBOURS, _AXES = 5, 4000, 64  # of the word vectors
_COMMON = 1e-3  # a word of this share of all counts half in the vector of a term
_CENTRED = 8000  # terms that the centres are found from
_STARTS, _ROUNDS = 3, 30  # of k-means
_QUIET = 0.25  # weights below this share of their spread are neutral


@final
@dataclass(frozen=True, eq=False)
class Subjects:
    """`subject` (terms,) of each term; `towards` (subjects, d - 2), the side of each subject."""

    subject: np.ndarray
    towards: np.ndarray

    @classmethod
    def of(cls, task: Task, count: int) -> Subjects:
        """At most `count` subjects of a task's terms, for tokens in R^dim."""
        vectors = term_vectors(task)
        rarity = np.log((1.0 + task.weight.sum()) / (1.0 + task.df)) + 1.0
        centres = _centres(vectors, task.df * rarity**2, count, task.seed)
        subject = np.argmax(vectors @ centres.T, axis=1).astype(np.int16)
        return cls(subject, _sides(centres, task.dim - 2))

    @property
    def most_levels(self) -> int:
        """Of |weight|: each can have two signs, and each subject's and sign's are rounded up."""
        many = len(self.towards)
        return min(_LEVELS * many, MOST_LEVELS - many)

    def graded(self, s: np.ndarray, df: np.ndarray, levels: int) -> Graded:
        """Grades within subjects: 2 x levels of them, and never none of a subject and sign."""
        spread = max(float(np.sqrt((df @ s**2) / max(df.sum(), 1e-300))), 1e-12)
        loud = np.abs(s) >= _QUIET * spread
        cells = []
        for t in range(len(self.towards)):
            for sign in (1.0, -1.0):
                rows = np.flatnonzero((self.subject == t) & (sign * s > 0) & loud)
                if len(rows):
                    size, mass = np.abs(s[rows]), df[rows]
                    off = mass @ (size - mass @ size / mass.sum()) ** 2
                    # levels as the cube root: the least sum of mass x width^2 / levels^2
                    cells.append((t, sign, rows, float(np.cbrt(off))))
        every = max(sum(share for *_, share in cells), 1e-300)
        grade, value, side = np.zeros(len(s), np.intp), [np.zeros(1)], [np.zeros(1, np.intp)]
        for t, sign, rows, share in cells:
            many = max(1, int(2 * levels * share / every))
            level, at = _levels(np.abs(s[rows]), df[rows], many)
            grade[rows] = sum(map(len, value)) + level
            value.append(sign * at)
            side.append(np.full(len(at), t))
        values = np.concatenate(value)
        size, level = _snapped(np.abs(values))
        towards = self.towards[np.concatenate(side)]
        return Graded(grade, np.sign(values) * size, level, towards)


def term_vectors(task: Task) -> np.ndarray:
    """(terms, axes): unit vectors of the terms, the mean of all taken out."""
    spelled = task.spelled.tocsr()
    words = spelled.shape[1]
    single = np.diff(spelled.indptr) == 1
    word = np.full(spelled.shape[0], -1)
    word[single] = spelled.indices[spelled.indptr[:-1][single]]
    at = word[task.documents.indices]
    text = task.documents.text[at >= 0]
    often = np.bincount(at[at >= 0], task.weight[text], words)
    vectors = _word_vectors(at[at >= 0], text, task.weight, often, task.seed)
    rarity = _COMMON / (_COMMON + often / max(often.sum(), 1e-300))
    out = _unit(spelled @ (rarity[:, None] * _unit(vectors)))
    weight = task.df * (np.log((1.0 + task.weight.sum()) / (1.0 + task.df)) + 1.0) ** 2
    return _unit(out - weight @ out / weight.sum())


def _word_vectors(
    word: np.ndarray, text: np.ndarray, weight: np.ndarray, often: np.ndarray, seed: int
) -> np.ndarray:
    """(words, axes) from words in their order, and the text of each."""
    from scipy.sparse import coo_array, csr_array
    from sklearn.utils.extmath import randomized_svd

    words = len(often)
    near = np.argsort(-often, kind="stable")[:_NEIGHBOURS]
    column = np.full(words, -1)
    column[near] = np.arange(len(near))
    total = csr_array((words, len(near)))
    for away in range(1, _WINDOW + 1):
        same = text[:-away] == text[away:]
        first, second, own = word[:-away][same], word[away:][same], weight[text[away:][same]]
        for here, there in ((first, second), (second, first)):
            known = column[there] >= 0
            pairs = (here[known], column[there[known]])
            total = total + coo_array((own[known] / away, pairs), total.shape).tocsr()
    found = total.tocoo()
    row, col = found.coords
    by_word, by_column = (np.bincount(i, found.data, n) for i, n in zip((row, col), total.shape))
    context = by_column**0.75  # rare neighbours say less than their information
    chance = by_word[row] * context[col] / max(context.sum(), 1e-300)
    information = np.log(found.data / chance)
    seen = information > 0
    ppmi = csr_array((information[seen], (row[seen], col[seen])), total.shape)
    axes = min(_AXES, *total.shape)
    left, size, _ = randomized_svd(ppmi, axes, n_iter=3, random_state=seed)
    return left * np.sqrt(size)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def _centres(vectors: np.ndarray, weight: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Unit centres of at most `count` clusters: the best of some starts of spherical k-means."""
    top = np.sort(np.argsort(-weight, kind="stable")[:_CENTRED])
    x, w = vectors[top], weight[top]
    best, highest = x[:1], -np.inf
    for start in range(_STARTS):
        draw = np.random.default_rng((seed, start))
        centres = x[draw.choice(len(x), size=1, p=w / w.sum())]
        while len(centres) < count:  # k-means++: far from those chosen
            far = w * np.maximum(1.0 - (x @ centres.T).max(axis=1), 0.0)
            if far.sum() <= 1e-9 * w.sum():
                break
            centres = np.vstack((centres, x[draw.choice(len(x), size=1, p=far / far.sum())]))
        for _ in range(_ROUNDS):
            member = np.eye(len(centres))[np.argmax(x @ centres.T, axis=1)] * w[:, None]
            moved = member.T @ x
            moved = _unit(np.where(np.linalg.norm(moved, axis=1)[:, None] > 0, moved, centres))
            if np.array_equal(moved, centres):
                break
            centres = moved
        score = float(w @ (x @ centres.T).max(axis=1))
        if score > highest:
            best, highest = centres, score
    return best


def _sides(centres: np.ndarray, axes: int) -> np.ndarray:
    """Unit vectors (subjects, axes): like subjects on like sides, none on another's.

    The centres on their first principal axes, pushed apart until neighbours are some way off."""
    many = len(centres)
    if axes == 1:
        return np.where(np.arange(many) % 2, -1.0, 1.0)[:, None]
    _, _, principal = np.linalg.svd(centres - centres.mean(axis=0), full_matrices=False)
    side = np.zeros((many, axes))
    some = min(axes, len(principal))
    side[:, :some] = centres @ principal[:some].T
    side = _unit(side)
    side = _unit(side + 1e-2 * np.random.default_rng(0).normal(size=side.shape))  # none are equal
    for step in np.linspace(0.1, 0.0, 300):
        gap = side[:, None] - side[None]
        square = (gap**2).sum(axis=2)
        np.fill_diagonal(square, np.inf)
        push = (gap / np.maximum(square, 1e-9)[..., None] ** 1.5).sum(axis=1)
        side = _unit(side + step * _unit(push))
    return side


def _levels(size: np.ndarray, mass: np.ndarray, many: int) -> tuple[np.ndarray, np.ndarray]:
    """(level of each, values): Lloyd's algorithm on sizes > 0, from quantiles."""
    order, ranked, total, moment = sorted_sums(size, mass)
    middle = (np.arange(many) + 0.5) / many * total[-1]
    value = np.unique(np.interp(middle, total[1:], ranked))
    for _ in range(40):
        edge = edges(ranked, value)
        full = np.diff(total[edge]) > 0
        edge = np.concatenate((edge[:-1][full], edge[-1:]))
        moved = np.diff(moment[edge]) / np.diff(total[edge])
        if np.array_equal(moved, value):
            break
        value = moved
    level = np.empty(len(size), np.intp)
    level[order] = np.repeat(np.arange(len(value)), np.diff(edges(ranked, value)))
    return level, value


def _snapped(size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of grades, those too close to be told apart made equal, and their ranks; 0 is first."""
    kept = np.unique(size)
    kept = kept[told_apart(kept)]
    rank = np.searchsorted(kept, size, side="right") - 1
    return kept[rank], rank


@lru_cache(maxsize=8)
def subject_names(plane: Plane, vocabulary: Vocabulary, words: int = 3) -> tuple[str, ...]:
    """Subjects by the terms that say most in them: document frequency times squared weight."""
    if plane.subject is None:
        return ()
    weight = plane.embedding @ plane.v[0]
    says = vocabulary.df * weight**2
    order = np.argsort(-says, kind="stable")
    out = []
    for t in range(int(plane.subject.max()) + 1):
        mine = order[plane.subject[order] == t][:words]
        out.append(", ".join(vocabulary.terms[j] for j in mine.tolist()))
    return tuple(out)
