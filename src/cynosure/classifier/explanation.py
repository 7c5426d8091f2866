"""Explanation: the model's own computation on one text, word by word and leader by leader.

With z_i the places of the tokens after the last layer, v and b the decoder, w_i = 1 for the words
and w_0 = m for the anchor, W their sum,

    decision = b + sum_i w_i < v, z_i > / W,

so the contribution of a word is < v, z_i > / W, that of a leader is the sum over its cluster, and
nothing is left over. It is the prediction itself: no sampling, the same on every run.

Words that follow the anchor are silent. `enough` are the others: what was read, and decided.
`overturn` is another question: which words, struck out, turn the verdict when the rest is read
again, and the reader goes on to weaker words.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from .._files import write_atomically
from ..analysis.leaders import roles
from ..drawing.page import page
from ..simulation.trajectory import Trajectory
from .clusters import Leader, Word, clusters, followed_leader
from .documents import Documents
from .model import Model, Plane
from .striking import Reader, Span, spans, words_of
from .subjects import subject_names
from .text import Vocabulary
from .view import plane_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Explanation", "Leader", "Word", "explain", "row_of"]

NEUTRAL = "(neutral)"
_PAGE = Path(__file__).with_name("explanation.html")  # its body; its own rules are in the .css


@final
@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a text got its decision. `leaders` come by size of contribution; their contributions and
    `intercept` add up to `decision`, the log-odds of `label`; with more than two classes its logit
    in their common softmax, where `rival` is the largest of the others and `rest` their sum (as the
    logarithm of their exponentials). `prior` is the decision without any known word, `count` is m:
    how often the anchor counts."""

    text: str
    label: str
    other: str
    decision: float
    intercept: float
    probability: float
    leaders: tuple[Leader, ...]
    note: str
    trajectory: Trajectory
    v: np.ndarray
    prior: float
    count: float
    reader: Reader
    row: int
    struck: frozenset[str] = frozenset()
    rival: float = 0.0
    rest: float = 0.0
    takes_ties: bool = False

    def __repr__(self) -> str:
        what = f"{self.prediction!r}, log-odds of {self.label!r} {self.decision:+.3f}"
        return f"Explanation({what}, {len(self.leaders)} leaders of {self.n} tokens)"

    @property
    def prediction(self) -> str:
        """The side of the boundary the text is on: `label` or `other`; on it, the first class."""
        lead = self.decision - self.rival
        return self.label if lead > 0 or (self.takes_ties and lead == 0) else self.other

    def reversed(self, probability: float) -> Explanation:
        """The same text for `other`: each number with the other sign, and that probability."""

        def turned(w: Word) -> Word:
            return replace(w, score=0.0 - w.score, contribution=0.0 - w.contribution)

        leaders = tuple(
            replace(
                leader,
                score=0.0 - leader.score,
                contribution=0.0 - leader.contribution,
                followers=tuple(map(turned, leader.followers)),
            )
            for leader in self.leaders
        )
        return replace(
            self,
            label=self.other,
            other=self.label,
            decision=0.0 - self.decision,  # no -0.0
            intercept=0.0 - self.intercept,
            probability=probability,
            leaders=leaders,
            v=0.0 - self.v,
            prior=0.0 - self.prior,
            takes_ties=not self.takes_ties,
        )

    @property
    def words(self) -> tuple[Word, ...]:
        """Every term of the text, the leaders' own included, in order of appearance."""
        every = [
            w for leader in self.leaders
            for w in (
                Word(
                    leader.text, leader.offsets, leader.score, leader.score / self.total,
                    leader.token,
                ),
                *leader.followers,
            )
        ]  # fmt: skip
        return tuple(sorted((w for w in every if w.offsets), key=lambda w: w.offsets[0]))

    @property
    def read(self) -> tuple[Word, ...]:
        """The terms that do not follow the anchor: those with a say, the weightiest first."""
        silent = next((x for x in self.leaders if self._silences(x)), None)
        quiet = set() if silent is None else {silent.token, *(w.token for w in silent.followers)}
        loud = (w for w in self.words if w.token not in quiet)
        return tuple(sorted(loud, key=lambda w: (-abs(w.contribution), w.token)))

    @staticmethod
    def _silences(leader: Leader) -> bool:
        return 0 in {leader.token, *(w.token for w in leader.followers)}

    @property
    def enough(self) -> tuple[str, ...]:
        """The words that were read and decide, in order of weight: those of the terms with a say.
        A word behind a negator brings its negator."""
        named = (
            word
            for w in self.read
            for a, b in w.offsets
            for word in words_of(self.reader.vocabulary, self.text, w.text, a, b)
        )
        return tuple(dict.fromkeys(named))

    @cached_property
    def overturn(self) -> tuple[str, ...]:
        """Words whose deletion, the rest read again, turns the verdict; () if none were found."""
        return self.reader.overturn(self.text, self.struck)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The flat list: what was read, overlapping terms as one, largest contribution first."""
        return spans(self.text, ((w.text, w.offsets, w.contribution) for w in self.read))

    @property
    def n(self) -> int:
        """Number of tokens, the anchor included."""
        return int(self.trajectory.z.shape[1])

    @property
    def total(self) -> float:
        """W: the words, and the anchor as often as it counts."""
        return self.n - 1 + self.count

    def gradient_times_token(self) -> np.ndarray:
        """w_j <v, E_j> of each token, which sum to decision - intercept: gradient times input.

        w = (m, 1, ..., 1) M_{K-1} ... M_0 / W, M_k = rho I + eta P_k: the sets C_i hold still
        almost everywhere, so this is the gradient of the decision in the first layer's tokens.
        """
        trajectory = self.trajectory
        alpha = trajectory.made_by.exact_alpha
        assert alpha is not None
        step, ro = float(alpha), roles(trajectory)
        w = np.full(trajectory.z.shape[1], 1.0 / self.total)
        w[0] *= self.count
        for k in range(len(trajectory.t) - 2, -1, -1):
            w = (w + step * (w @ np.asarray(ro.followed(k).weights()))) / (1 + step)
        return w * (trajectory.values[0] @ self.v)

    def without(self, *positions: int) -> float:
        """The decision if the words of the clusters at these positions of `leaders` were deleted:
        what is left is read again. The anchor itself stays."""
        gone = {
            token
            for i in positions
            for token in (self.leaders[i].token, *(w.token for w in self.leaders[i].followers))
        }
        index = self.reader.vocabulary.index
        kept = [index[w.text] for w in self.words if w.token not in gone]
        left = Documents(np.array([0, len(kept)]), np.array(kept, np.int32))
        decision = float(self.reader.model.read(left).decision[0, self.row])
        return decision if self._sign > 0 else 0.0 - decision

    @property
    def _sign(self) -> int:
        """-1 where the numbers are those of the first of two classes, which the model negates."""
        return -1 if self.takes_ties else 1

    @property
    def _anchor(self) -> float:
        """The anchor's own contribution; 0 for placed words."""
        return float(self.trajectory.values[-1][0] @ self.v) * self.count / self.total

    def to_dict(self) -> dict[str, Any]:
        def word(w: Word | Leader) -> dict[str, Any]:
            return {
                "text": w.text, "offsets": [list(o) for o in w.offsets], "score": w.score,
                "contribution": w.contribution,
            }  # fmt: skip

        return {
            "text": self.text,
            "label": self.label,
            "other": self.other,
            "decision": self.decision,
            "intercept": self.intercept,
            "prior": self.prior,
            "probability": self.probability,
            "note": self.note,
            "enough": list(self.enough),
            "overturn": list(self.overturn),
            "spans": [
                {
                    "text": span.text, "offsets": [list(o) for o in span.offsets],
                    "contribution": span.contribution, "terms": list(span.terms),
                }
                for span in self.spans
            ],
            "leaders": [
                {
                    **word(leader),
                    "share": leader.share,
                    **({"subject": leader.subject} if leader.subject else {}),
                    "followers": list(map(word, leader.followers)),
                }
                for leader in self.leaders
            ],
        }  # fmt: skip

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def to_html(self) -> str:
        """One self-contained page: words in place, a bar per leader, the plane with its trails."""
        data = json.dumps({**self.to_dict(), **plane_view(self)}, ensure_ascii=False)
        safe = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        body, css = (_PAGE.with_suffix(kind).read_text("utf-8") for kind in (".html", ".css"))
        title = f"{self.label} {self.decision:+.3f}"
        return page(title, body.replace("__DATA__", safe), css)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.to_html())}" width="100%" height="640"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page (.html) or the numbers (.json)."""
        path = Path(path)
        if path.suffix not in (".html", ".json"):
            raise ValueError(f"{path}: expected a name ending in .html or .json")
        text = self.to_html() if path.suffix == ".html" else self.to_json(indent=1)
        return write_atomically(path, lambda stream: stream.write(text.encode()))

    def plot(self, ax: Axes | None = None, *, top: int = 12) -> Axes:
        """A bar per leader, the largest contributions first."""
        from ..drawing.plot import new_axes

        ax = new_axes(ax)
        shown = self.leaders[:top][::-1]
        colours = ["#0072B2" if leader.contribution >= 0 else "#D55E00" for leader in shown]
        ax.barh(range(len(shown)), [leader.contribution for leader in shown], color=colours)
        names = [f"{leader.text} (+{len(leader.followers)})" for leader in shown]
        ax.set_yticks(range(len(shown)), names)
        ax.axvline(0.0, color="#222222", linewidth=0.8)
        ax.set_xlabel(f"contribution to the log-odds of {self.label}")
        ax.set_title(f"{self.label} {self.decision:+.3f} (intercept {self.intercept:+.3f})")
        return ax


def row_of(ex: Explanation) -> dict[str, Any]:
    """An explanation as a row of a table: numbers, and lists of words."""
    ahead = ex.prediction == ex.label
    return {
        "text": ex.text,
        "label": ex.prediction,
        "probability": ex.probability if ahead else 1.0 - ex.probability,
        "decision": ex.decision,
        "evidence": bool(ex.leaders),
        "enough": list(ex.enough),
        "overturn": list(ex.overturn),
        "spans": [{"text": span.text, "contribution": span.contribution} for span in ex.spans],
    }


def _subjects(plane: Plane, vocabulary: Vocabulary, terms: np.ndarray) -> tuple[str, ...]:
    """Subjects of the anchor, which has none, and of the terms; () in a model without them."""
    if plane.subject is None:
        return ()
    names = subject_names(plane, vocabulary)
    return ("", *(names[t] for t in plane.subject[terms].tolist()))


def explain(
    text: str,
    vocabulary: Vocabulary,
    model: Model,
    row: int,
    label: str,
    other: str,
    probability: float,
    others: np.ndarray | None = None,
    struck: frozenset[str] = frozenset(),
) -> Explanation:
    """The explanation of decision `row` of `model` on `text`, without the words `struck`.

    `others` are the decisions of the other classes, where they share a softmax."""
    where: dict[int, list[tuple[int, int]]] = {}
    for place in vocabulary.locate(text, struck):
        where.setdefault(place.term, []).append((place.start, place.stop))
    terms = np.fromiter(where, np.intp, len(where))
    p, r = model.locate(row)
    plane = model.planes[p]
    names = tuple(vocabulary.terms[j] for j in where)
    trajectory = model.carry(p, terms, names)
    v, b = plane.v[r], float(plane.b[r])
    total = len(terms) + plane.count
    score = trajectory.values[-1] @ v
    note = ""
    leaders: tuple[Leader, ...] = ()
    if len(terms):
        spans = [(), *(tuple(s) for s in where.values())]
        weight = [plane.count] + [1.0] * len(terms)
        words = [
            Word(name, span, x, x * w / total, i)
            for i, (name, span, x, w) in enumerate(
                zip((NEUTRAL, *names), spans, score.tolist(), weight)
            )
        ]
        leaders = clusters(words, followed_leader(trajectory), _subjects(plane, vocabulary, terms))
        decision = b + float(np.dot(weight, score)) / total
    else:
        b = decision = float(plane.prior[r])
        note = (
            "No evidence: no known word in this text; the decision is the prior of the training "
            "texts."
        )
    return Explanation(
        text=text,
        label=label,
        other=other,
        decision=decision,
        intercept=b,
        probability=probability,
        leaders=leaders,
        note=note,
        trajectory=trajectory,
        v=v,
        prior=float(plane.prior[r]),
        count=plane.count,
        reader=Reader(vocabulary, model),
        row=row,
        struck=struck,
        rival=0.0 if others is None else float(others.max()),
        rest=0.0 if others is None else float(np.logaddexp.reduce(others)),
    )
