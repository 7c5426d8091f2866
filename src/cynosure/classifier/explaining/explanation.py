"""Explanation: the model's own computation on one text, word by word and leader by leader.

With z_i the places of the tokens after the last layer, v and b the decoder, w_i = 1 for the words
and w_0 = m for the neutral token, W their sum,

    decision = b + sum_i w_i < v, z_i > / W,

so the contribution of a word is < v, z_i > / W, and that of a leader the sum over its cluster.
Words that follow the neutral token add nothing; `enough` are the others. `overturn` tells
which words, struck out, turn the verdict when the rest is read again, down to weaker words.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..._exports import guarded
from ..._files import write_atomically
from ...analysis.leaders import roles
from ...drawing.page import page
from ...simulation.trajectory import Trajectory
from ..text.documents import Documents
from .deletion import Span, TextModel, spans, words_of
from .leaders import Leader, Word, followed_leader, leaders_of
from .page_data import plane_view
from .passages import Passage, bracketed, passages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEUTRAL = "(neutral)"
NOTHING = (
    "No evidence: no known word in this text; the decision is the prior of the training texts."
)
_PAGE = Path(__file__).with_name("explanation.html")  # its body; its own rules are in the .css


@guarded
@final
@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a text got its decision. `leaders` come by size of contribution; their contributions and
    `intercept` add up to `decision`, the log-odds of `label`; with more than two classes its logit
    in their common softmax, where `rival` is the largest of the others and `rest` their sum (as the
    logarithm of their exponentials). `evidence` says whether any term was read. `prior` is the
    decision without any known word, `count` is m: how often the neutral token counts."""

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
    text_model: TextModel
    row: int
    struck: frozenset[str]
    rival: float
    rest: float
    takes_ties: bool
    evidence: bool

    def __repr__(self) -> str:
        return f"Explanation({self.headline}, {len(self.leaders)} leaders of {self.n} tokens)"

    @property
    def verdict(self) -> str | None:
        """The predicted label; None where no term was read and nothing speaks for a label."""
        return self.prediction if self.evidence else None

    @property
    def sure(self) -> float:
        """The probability of the predicted side."""
        return self.probability if self.prediction == self.label else 1.0 - self.probability

    @property
    def log_odds(self) -> float:
        """Of the predicted side, against everything else."""
        odds = self.decision - self.rest
        return odds if self.prediction == self.label else 0.0 - odds

    @property
    def headline(self) -> str:
        """The verdict with its probability and log-odds, if any term was read."""
        if not self.evidence:
            return "no verdict: no word of this text is evidence"
        return f"{self.prediction} {100 * self.sure:.1f} %, log-odds {self.log_odds:+z.3f}"

    @property
    def prediction(self) -> str:
        """The side of the boundary the text is on: `label` or `other`; on it, the first class."""
        lead = self.decision - self.rival
        return self.label if lead > 0 or (self.takes_ties and lead == 0) else self.other

    @property
    def words(self) -> tuple[Word, ...]:
        """Every term of the text, the leaders' own included, in order of appearance."""
        own = (
            Word(x.text, x.offsets, x.score, x.score / self.total, x.token) for x in self.leaders
        )
        every = (*own, *(w for leader in self.leaders for w in leader.followers))
        return tuple(sorted((w for w in every if w.offsets), key=lambda w: w.offsets[0]))

    @property
    def read(self) -> tuple[Word, ...]:
        """The terms that do not follow the neutral token, the weightiest first."""
        quiet = next((x.tokens for x in self.leaders if 0 in x.tokens), frozenset())
        loud = (w for w in self.words if w.token not in quiet)
        return tuple(sorted(loud, key=lambda w: (-abs(w.contribution), w.token)))

    @property
    def enough(self) -> tuple[str, ...]:
        """The words of the terms that were read, in order of weight. A word behind a negator
        brings its negator."""
        named = (
            word
            for w in self.read
            for a, b in w.offsets
            for word in words_of(self.text_model.vocabulary, self.text, w.text, a, b)
        )
        return tuple(dict.fromkeys(named))

    @cached_property
    def overturn(self) -> tuple[str, ...]:
        """Words whose deletion, the rest read again, turns the verdict; () if none were found."""
        return self.text_model.overturn(self.text, self.struck)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The flat list: what was read, overlapping terms as one, largest contribution first."""
        return spans(self.text, ((w.text, w.offsets, w.contribution) for w in self.read))

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The text divided among the words read, in order. Their contributions, the rest of the
        terms and the intercept add up to the decision."""
        tokenizer = replace(self.text_model.vocabulary.tokenizer, negation=False)
        places = [(a, b) for _, a, b in tokenizer.words(self.text) if a >= 0]
        return passages(self.text, places, ((w.offsets, w.contribution) for w in self.read))

    @property
    def marked(self) -> str:
        """The text with its passages in brackets, each with its contribution."""
        return bracketed(self.text, self.passages)

    @property
    def n(self) -> int:
        """Number of tokens, the neutral one included."""
        return int(self.trajectory.z.shape[1])

    @property
    def total(self) -> float:
        """W: the words, and the neutral token as often as it counts."""
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
        what is left is read again. The neutral token stays."""
        gone = {token for i in positions for token in self.leaders[i].tokens}
        index = self.text_model.vocabulary.index
        kept = [index[w.text] for w in self.words if w.token not in gone]
        left = Documents(np.array([0, len(kept)]), np.array(kept, np.int32))
        decision = float(self.text_model.model.read(left).decision[0, self.row])
        return 0.0 - decision if self.takes_ties else decision  # of the first of two classes

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
            "text": self.text, "label": self.label, "other": self.other,
            "decision": self.decision, "intercept": self.intercept, "prior": self.prior,
            "probability": self.probability, "verdict": self.verdict, "note": self.note,
            "enough": list(self.enough), "overturn": list(self.overturn),
            "spans": [
                {"text": span.text, "offsets": [list(o) for o in span.offsets],
                 "contribution": span.contribution, "terms": list(span.terms)}
                for span in self.spans
            ],
            "passages": [passage.to_dict() for passage in self.passages],
            "leaders": [
                {
                    **word(leader), "share": leader.share,
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
        title = self.headline
        return page(title, body.replace("__DATA__", safe), css)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.to_html())}" width="100%" height="640"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page (.html) or the numbers (.json)."""
        return saved(path, {".html": self.to_html, ".json": lambda: self.to_json(indent=1)})

    def plot(self, ax: Axes | None = None, *, top: int = 12) -> Axes:
        """A bar per leader, the largest contributions first."""
        from ...drawing.plot import new_axes

        ax = new_axes(ax)
        shown = self.leaders[:top][::-1]
        colours = ["#0072B2" if leader.contribution >= 0 else "#D55E00" for leader in shown]
        ax.barh(range(len(shown)), [leader.contribution for leader in shown], color=colours)
        names = [f"{leader.text} (+{len(leader.followers)})" for leader in shown]
        ax.set_yticks(range(len(shown)), names)
        ax.axvline(0.0, color="#222222", linewidth=0.8)
        ax.set_xlabel(f"contribution to the log-odds of {self.label}")
        ax.set_title(f"{self.headline} (intercept {self.intercept:+z.3f})")
        return ax


def saved(path: str | os.PathLike[str], kinds: Mapping[str, Callable[[], str]]) -> Path:
    """Write what the ending of the name asks for."""
    path = Path(path)
    if path.suffix not in kinds:
        raise ValueError(f"{path}: expected a name ending in {' or '.join(kinds)}")
    text = kinds[path.suffix]()
    return write_atomically(path, lambda stream: stream.write(text.encode()))


def row_of(ex: Explanation) -> dict[str, Any]:
    """An explanation as a row of a table: numbers, and lists of words."""
    return {
        "text": ex.text, "label": ex.verdict, "probability": ex.sure if ex.evidence else None,
        "decision": ex.decision, "evidence": ex.evidence, **words_and_spans(ex),
    }  # fmt: skip


def words_and_spans(ex: Any) -> dict[str, Any]:
    """The columns of that row which explanations of any model have."""
    spans = [{"text": span.text, "contribution": span.contribution} for span in ex.spans]
    return {"enough": list(ex.enough), "overturn": list(ex.overturn), "spans": spans}


def explain(
    text: str,
    text_model: TextModel,
    row: int,
    sign: float,
    *,
    label: str,
    other: str,
    probability: float,
    others: np.ndarray | None,
    struck: frozenset[str],
    evidence: bool,
) -> Explanation:
    """The explanation of `sign` times decision `row` on `text`, without the words `struck`.

    `others` are the decisions of the other classes, where they share a softmax."""
    vocabulary, model = text_model.vocabulary, text_model.model
    where: dict[int, list[tuple[int, int]]] = {}
    for place in vocabulary.locate(text, struck):
        where.setdefault(place.term, []).append((place.start, place.stop))
    terms = np.fromiter(where, np.intp, len(where))
    p, r = model.locate(row)
    plane = model.planes[p]
    names = tuple(vocabulary.terms[j] for j in where)
    trajectory = model.carry(p, terms, names)
    v, b, prior = (sign * x[r] + 0.0 for x in (plane.v, plane.b, plane.prior))  # no -0.0
    total = len(terms) + plane.count
    score = trajectory.values[-1] @ v + 0.0
    leaders: tuple[Leader, ...] = ()
    if len(terms):
        weight = [plane.count] + [1.0] * len(terms)
        spans = [(), *map(tuple, where.values())]
        each = zip((NEUTRAL, *names), spans, score.tolist(), weight)
        words = [Word(name, at, x, x * w / total, i) for i, (name, at, x, w) in enumerate(each)]
        leaders = leaders_of(words, followed_leader(trajectory))
        decision = b + float(np.dot(weight, score)) / total
    else:
        b = decision = prior
    return Explanation(
        text=text, label=label, other=other, decision=float(decision), intercept=float(b),
        probability=probability, leaders=leaders, note="" if len(terms) else NOTHING,
        trajectory=trajectory, v=v, prior=float(prior), count=plane.count, text_model=text_model,
        row=row, struck=struck, rival=0.0 if others is None else float(others.max()),
        rest=0.0 if others is None else float(np.logaddexp.reduce(others)),
        takes_ties=sign < 0, evidence=evidence,
    )  # fmt: skip
