"""Words gathered around the leaders they follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from ...analysis.leaders import roles
from ...simulation.trajectory import Trajectory


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

    @property
    def tokens(self) -> frozenset[int]:
        """The leader and its followers."""
        return frozenset((self.token, *(w.token for w in self.followers)))

    def __repr__(self) -> str:
        return f"Leader({self.text!r}, {self.contribution:+z.3f}, {len(self.followers)} followers)"


def followed_leader(trajectory: Trajectory) -> np.ndarray:
    """The leader each token belongs to; one that still moves belongs where its targets lead."""
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


def leaders_of(words: list[Word], owner: np.ndarray) -> tuple[Leader, ...]:
    """A leader with its followers for each owner, the largest contribution first."""
    members: dict[int, list[Word]] = {}
    for word, lead in zip(words, owner.tolist()):
        members.setdefault(lead, []).append(word)
    out = []
    for lead, cluster in members.items():
        head, sum_ = words[lead], sum(w.contribution for w in cluster)
        followers = (w for w in cluster if w.token != lead)
        placed = tuple(sorted(followers, key=lambda w: (w.offsets or ((-1, -1),))[0]))
        share = len(cluster) / len(words)
        out.append(Leader(head.text, head.offsets, share, head.score, sum_, placed, lead))
    return tuple(sorted(out, key=lambda x: (-abs(x.contribution), x.token)))
