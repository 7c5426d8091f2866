"""Passages: the text divided among the words that were read, by a hardmax head over positions.

The head has one token per word of the text. With t_i the number of the word, raised by 1000 at each
clause break (punctuation, and "but" with its like), and unit vectors a_i with
<a_i, a_j> = exp(-.05 |t_i - t_j|), the tokens are

    w_i = (g, sqrt(1 - g^2) a_i),  g = .1,     z_i = 100 w_i if word i was read, w_i if not,

beside an anchor 30 e_1, and A = I. The leaders are the words read and the anchor. Any other word
follows the nearest word read in its clause, the later of two, or the anchor where none is within
reach: one pass over the words finds it. Followers add nothing to the decision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, final

NEAR, AXIS, READ, ANCHOR = 0.05, 0.1, 100.0, 30.0  # of the head, see above
REACH = math.floor(math.log((1 - AXIS**2) / (ANCHOR * AXIS / READ - AXIS**2)) / NEAR)
_STOPS = frozenset('.,;:()[]{}"“”„«»…—–。、，；：（）「」<')
_ENDS = frozenset("!?！？؟")
_TURNS = frozenset("but though although yet however".split())

Place = tuple[int, int]


@final
@dataclass(frozen=True)
class Passage:
    """A stretch text[start:stop], where the words `read` in it stand, and what they contribute."""

    text: str
    start: int
    stop: int
    contribution: float
    read: tuple[Place, ...]

    def to_dict(self) -> dict[str, Any]:
        """Its places and its contribution, as JSON can hold them."""
        places = [list(place) for place in self.read]
        return {"start": self.start, "stop": self.stop, "contribution": self.contribution,
                "read": places}  # fmt: skip


def clauses(text: str, places: Sequence[Place]) -> list[int]:
    """The number of the clause of each word, given where the words stand."""
    out: list[int] = []
    number, end, last = 0, 0, ""
    for a, b in places:
        gap, word = text[end:a], text[a:b].lower()
        ended = last in _ENDS and word not in _ENDS
        number += bool(out) and (ended or word in _TURNS or not _STOPS.isdisjoint(gap))
        out.append(number)
        end, last = b, word
    return out


def passages(
    text: str, places: Sequence[Place], read: Iterable[tuple[Sequence[Place], float]]
) -> tuple[Passage, ...]:
    """The passages of a text with words at `places`, in their order.

    `read` gives the places of each term that was read and its contribution, which is divided
    equally among them. Terms that overlap share a passage."""
    terms = sorted((place, x / len(offsets)) for offsets, x in read for place in offsets)
    first = {a: k for k, (a, _) in enumerate(places)}
    last = {b: k for k, (_, b) in enumerate(places)}
    group = [-1] * len(places)  # of each word read
    sums: list[float] = []
    reached = -1
    for (a, b), x in terms:
        if first[a] > reached:
            sums.append(0.0)
        sums[-1] += x
        reached = max(reached, last[b])
        group[first[a] : last[b] + 1] = [len(sums) - 1] * (last[b] + 1 - first[a])
    owner = _followed(group, clauses(text, places))
    out = []
    for g, members in groupby(range(len(places)), key=owner.__getitem__):
        mine = list(members)
        if g >= 0:
            start, stop = places[mine[0]][0], places[mine[-1]][1]
            heard = tuple(places[k] for k in mine if group[k] == g)
            out.append(Passage(text[start:stop], start, stop, sums[g], heard))
    return tuple(out)


def _followed(group: Sequence[int], clause: Sequence[int]) -> list[int]:
    """The group of the word that each word follows, -1 for the anchor's."""
    words = range(len(group))
    away = {}
    for step in (1, -1):
        here, distance, found = -1, REACH + 1, [0] * len(group)
        for k in words[::step]:
            distance = 0 if group[k] >= 0 else distance + 1 if clause[k] == here else REACH + 1
            here, found[k] = clause[k], distance
        away[step] = found
    out = []
    for k, before, behind in zip(words, away[1], away[-1]):
        near = k + behind if behind <= before else k - before
        out.append(group[near] if min(before, behind) <= REACH else -1)
    return out


def pieces(text: str, shown: Sequence[Passage]) -> list[tuple[str, Passage | None, bool]]:
    """The text cut into (characters, the passage they stand in, whether they were read)."""
    out: list[tuple[str, Passage | None, bool]] = []
    at = 0
    for passage in shown:
        out.append((text[at : passage.start], None, False))
        at = passage.start
        for a, b in passage.read:
            out += [(text[at:a], passage, False), (text[a:b], passage, True)]
            at = b
        out.append((text[at : passage.stop], passage, False))
        at = passage.stop
    out.append((text[at:], None, False))
    return [piece for piece in out if piece[0]]


def bracketed(text: str, shown: Sequence[Passage]) -> str:
    """The text with each passage in brackets, with its contribution."""
    out = []
    for passage, cut in groupby(pieces(text, shown), key=itemgetter(1)):
        said = "".join(characters for characters, *_ in cut)
        out.append(said if passage is None else f"[{said} {passage.contribution:+z.2f}]")
    return "".join(out)
