"""Explanation: the model's own computation on one text, word by word and leader by leader.

With z_i the places of the tokens after the last layer, v and b the decoder, w_i = 1 for the words
and w_0 = m for the anchor, W their sum,

    decision = b + sum_i w_i < v, z_i > / W,

so the contribution of a word is < v, z_i > / W, that of a leader is the sum over its cluster, and
nothing is left over. It is the prediction itself: no sampling, the same on every run.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from .._files import write_atomically
from ..analysis.leaders import roles
from ..drawing.page import page
from ..simulation.trajectory import Trajectory
from .model import Model
from .text import Vocabulary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Explanation", "Leader", "Word", "explain", "plane_view"]

NEUTRAL = "(neutral)"
_PAGE = Path(__file__).with_name("explanation.html")  # its body; its own rules are in the .css


@final
@dataclass(frozen=True)
class Word:
    """A term of the text: where it stands, what it scores at the end, whom it follows.

    `offsets` index the original string; `score` = <v, z>, `contribution` = score / W. The anchor,
    the neutral token every text has, appears as "(neutral)" without offsets; it counts m times.
    """

    text: str
    offsets: tuple[tuple[int, int], ...]
    score: float
    contribution: float
    token: int


@final
@dataclass(frozen=True)
class Leader:
    """A leader with its cluster: share of the tokens, score of the leader, their contribution."""

    text: str
    offsets: tuple[tuple[int, int], ...]
    share: float
    score: float
    contribution: float
    followers: tuple[Word, ...]
    token: int

    def __repr__(self) -> str:
        return f"Leader({self.text!r}, {self.contribution:+.3f}, {len(self.followers)} followers)"


@final
@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a text got its decision. `leaders` come by size of contribution; their contributions and
    `intercept` add up to `decision`, the log-odds of `label` (against the other classes). `prior`
    is the decision without any known word, `count` is m: how often the anchor counts."""

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
    takes_ties: bool = False

    def __repr__(self) -> str:
        what = f"{self.prediction!r}, log-odds of {self.label!r} {self.decision:+.3f}"
        return f"Explanation({what}, {len(self.leaders)} leaders of {self.n} tokens)"

    @property
    def prediction(self) -> str:
        """The side of the boundary the text is on: `label` or `other`; on it, the first class."""
        ahead = self.decision > 0 or (self.takes_ties and self.decision == 0)
        return self.label if ahead else self.other

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
        """The decision if the words of the clusters at these positions of `leaders` were deleted.

        Exact for clusters that nobody left on the way and that a word leads, or the anchor: the
        other tokens never looked at them. The anchor itself stays.
        """
        gone = set(positions)
        words, moved = self.n - 1, 0.0
        for i in gone:
            leader = self.leaders[i]
            tokens = {leader.token, *(w.token for w in leader.followers)}
            words -= len(tokens - {0})
            moved += leader.contribution - (self._anchor if 0 in tokens else 0.0)
        if not words:
            return self.prior
        left = self.decision - self.intercept - moved
        return self.intercept + left * self.total / (words + self.count)

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
            "leaders": [
                {
                    **word(leader),
                    "share": leader.share,
                    "followers": list(map(word, leader.followers)),
                }
                for leader in self.leaders
            ],
        }

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


def explain(
    text: str,
    vocabulary: Vocabulary,
    model: Model,
    row: int,
    label: str,
    other: str,
    probability: float,
    struck: frozenset[str] = frozenset(),
) -> Explanation:
    """The explanation of decision `row` of `model` on `text`, without the words `struck`."""
    where: dict[int, list[tuple[int, int]]] = {}
    for place in vocabulary.locate(text):
        if struck.isdisjoint(vocabulary.terms[place.term].split(" ")):
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
        leaders = _clusters(words, _followed_leader(trajectory))
        decision = b + float(np.dot(weight, score)) / total
    else:
        b = decision = float(plane.prior[r])
        note = "No known word in this text: the decision is the prior of the training texts."
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
    )


def _followed_leader(trajectory: Trajectory) -> np.ndarray:
    """The leader each token belongs to; one still on its way belongs where its targets lead."""
    history = trajectory.history
    assert history is not None
    owner = history.leader.copy()
    open_ = np.flatnonzero(owner < 0)
    if len(open_):
        target = roles(trajectory).followed(int(trajectory.t[-1])).target
        for i in open_.tolist():
            seen, j = {i}, i
            while owner[j] < 0 and int(target[j]) not in seen:
                j = int(target[j])
                seen.add(j)
            owner[i] = owner[j] if owner[j] >= 0 else j
    return owner


def _clusters(words: list[Word], owner: np.ndarray) -> tuple[Leader, ...]:
    members: dict[int, list[Word]] = {}
    for word, lead in zip(words, owner.tolist()):
        members.setdefault(lead, []).append(word)
    out = []
    for lead, cluster in members.items():
        head = words[lead]
        followers = sorted(
            (w for w in cluster if w.token != lead), key=lambda w: (w.offsets or ((-1, -1),))[0]
        )
        out.append(
            Leader(
                text=head.text,
                offsets=head.offsets,
                share=len(cluster) / len(words),
                score=head.score,
                contribution=sum(w.contribution for w in cluster),
                followers=tuple(followers),
                token=lead,
            )
        )
    return tuple(sorted(out, key=lambda x: (-abs(x.contribution), x.token)))


def plane_view(ex: Explanation) -> dict[str, Any]:
    """Tokens by layer in the two directions worth drawing: along v, and the widest one across."""
    z = ex.trajectory.values
    size = float(np.linalg.norm(ex.v))
    along = ex.v / size if size else np.eye(len(ex.v))[0]
    rest = z - (z @ along)[..., None] * along
    if z.shape[-1] == 1:
        across = np.zeros_like(along)
    elif z.shape[-1] == 2:
        across = np.array([-along[1], along[0]])
    else:
        across = np.linalg.svd(rest.reshape(-1, z.shape[-1]), full_matrices=False)[2][0]
    view = np.stack((z @ along, z @ across), axis=-1)
    cluster = np.zeros(z.shape[1], dtype=int)
    for c, leader in enumerate(ex.leaders):
        for token in (leader.token, *(w.token for w in leader.followers)):
            cluster[token] = c
    return {
        "layers": np.round(view, 9).tolist(),
        "cluster": cluster.tolist(),
        "names": [NEUTRAL, *(ex.trajectory.words or ())[1:]],
        "count": ex.count,
        "tie": ex.label if ex.takes_ties else ex.other,
        "anchor": ex._anchor if ex.leaders else 0.0,
        "boundary": -ex.intercept / size if size else None,
        "tokens": {
            "offsets": [[w.token, a, b, w.contribution] for w in ex.words for a, b in w.offsets]
        },
    }
