"""Which tokens reach the last one: the profile of retrieval, and what is lost in the middle.

A causal mask alone makes early tokens count more: with even rows, and tokens that move by a share
eta, token j reaches the last one with the entry (n, j) of ((1 - eta) I + eta C)^L, C_ij = 1/i for
j <= i. It falls with j and rises only at the last token itself (after arXiv 2605.09213, which has
the kinetic limit). A trained model adds what it learned about places. See the curves: each token
moved a little, how far the last one moves. What stands in the middle is lost where both ends are
above it.

Beside it stand the same architecture before training, the words in another order (is it the places
or the words?), and even attention. A model without a mask is the control of the mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.pretrained.reading.examples import ONE_THREAD
from cynosure.pretrained.reading.weights import untrained

from ._models import TEXTS, Measured, models_of, read_as, side_by_side

TITLE = "Which tokens reach the last one: lost in the middle"
MOVED = 0.01  # of its length: how far a token is moved
KINDS = ("trained", "untrained", "another order")


@dataclass(frozen=True)
class Params:
    """`model`: folders or hub ids with commas; empty: MiniLM, else random weights. `texts` texts of
    at most `tokens` tokens; `eta` is the step of the even attention."""

    model: str = ""
    texts: int = 6
    tokens: int = 64
    eta: float = 0.5
    seed: int = 0


QUICK = Params(texts=2, tokens=16)


class Profile(NamedTuple):
    """How far the last token moves when token j is moved, `reach[j]`, shares of all but itself."""

    kind: str
    text: int
    reach: np.ndarray

    @property
    def quarters(self) -> np.ndarray:
        """Mean of each quarter of the text, in units of the mean."""
        means = np.array([x.mean() for x in np.array_split(self.reach, 4)])
        return means * len(self.reach)

    @property
    def dip(self) -> float:
        """The middle half in units of the lower end: below 1 the middle is lost."""
        first, second, third, last = self.quarters
        return float((second + third) / 2 / min(first, last))


@ONE_THREAD
def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Every model on every text, beside its null models."""
    sensible = 1 <= p.texts <= len(TEXTS) and p.tokens >= 9 and 0 < p.eta < 1
    st.require(sensible, f"1 <= texts <= {len(TEXTS)}, tokens >= 9, 0 < eta < 1", p)
    say = progress or st.silent
    say(0.0, "model")
    models = models_of(p.model, " ".join(TEXTS), "llama")
    return side_by_side(p, models, partial(_measured, p), say, _drawn)


def even(n: int, layers: int, eta: float) -> np.ndarray:
    """What reaches the last of n tokens under even causal attention; the last entry is its own."""
    row, C = np.eye(n)[-1], np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    for _ in range(layers):
        row = (1 - eta) * row + eta * row @ C
    return row


def reach_of(m: cy.pretrained.Transformer, ids: list[int], seed: int) -> np.ndarray:
    """How far the last token moves after the last layer when each other one is moved a little."""
    z = m.trace(ids).z[0]
    still, noise = m.trace(z).z[-1, -1], np.random.default_rng(seed).standard_normal(z.shape)
    noise *= (
        MOVED * np.linalg.norm(z, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1)[:, None]
    )
    out = []
    for j in range(len(z) - 1):
        moved = z.copy()
        moved[j] += noise[j].astype(z.dtype)
        out.append(float(np.linalg.norm(m.trace(moved).z[-1, -1] - still)))
    return np.array(out) / sum(out)


def _measured(p: Params, m: cy.pretrained.Transformer, say: st.Progress) -> Measured:
    draw, reader = np.random.default_rng(p.seed), m.tokenizer
    assert reader is not None  # or no text could be read
    fresh, found = untrained(m, p.seed), []
    for k in range(p.texts):
        say(k / p.texts, f"text {k}")
        text = " ".join(read_as(m, x) for x in (*TEXTS[k:], *TEXTS[:k]))
        ids = reader(text)["input_ids"][: min(p.tokens, m.max_tokens)]
        mixed = [ids[0], *draw.permutation(ids[1:-1]).tolist(), ids[-1]]
        for kind, model, read in zip(KINDS, (m, fresh, m), (ids, ids, mixed)):
            found.append(Profile(kind, k, reach_of(model, read, p.seed)))
    n = len(found[0].reach) + 1
    null = Profile("even attention", 0, even(n, m.depth, p.eta)[:-1])
    null = null._replace(reach=null.reach / null.reach.sum())
    by = st.grouped(found, "kind")
    dips = {kind: np.array([x.dip for x in of]) for kind, of in by.items()}
    told = {kind: f"{x.mean():.2f} ({x.min():.2f} to {x.max():.2f})" for kind, x in dips.items()}
    mask = "causal" if m.causal else "no mask"
    first = np.mean([x.reach[0] for x in by["trained"]])
    summary = (
        f"{m.name} ({mask}), texts of {n} tokens: the middle half reaches the last token "
        f"{told['trained']} times as far as the weaker end (below 1: lost in the middle); before "
        f"training {told['untrained']}, even attention {null.dip:.2f}. The first token alone has "
        f"{first:.0%} of what reaches it."
    )
    falls = bool((np.diff(null.reach) < 0).all())
    check = st.all_of(
        "even causal attention",
        "after arXiv 2605.09213",
        "what reaches the last token falls with the place of where it comes from",
        int(falls),
        1,
        tokens=n,
        layers=m.depth,
    )
    columns: dict[str, Any] = st.columns("weights = kind, text")
    columns |= {"first token": lambda x: float(x.reach[0]), "dip": "dip"}
    columns |= {f"quarter {k + 1}": lambda x, k=k: float(x.quarters[k]) for k in range(4)}
    note = "Shares of what reaches the last token; quarters in units of their mean."
    report = st.report_of(
        p,
        summary,
        controls=_controls(by, dips, told, null),
        tables=[st.Table.of("What reaches the last token", [*found, null], columns, note)],
        checks={"even attention": [check]},
        figures=[_drawn([m.name], [(by, null)])],
    )
    facts = {"mask": mask, "tokens": n, **{f"dip, {k}": x for k, x in told.items()}}
    facts |= {"dip, even attention": null.dip, "first token": float(first)}
    return Measured(report, facts, (by, null))


def _controls(
    by: dict[str, list[Profile]], dips: dict[str, np.ndarray], told: dict[str, str], null: Profile
) -> list[st.Comparison]:
    trained, fresh = dips["trained"], dips["untrained"]
    same = [
        float(np.corrcoef(np.log(a.reach), np.log(b.reach))[0, 1])
        for a, b in zip(by["trained"], by["another order"], strict=True)
    ]
    return [
        st.Comparison(
            "What stands in the middle reaches the last token least.",
            "both ends of the text; even attention under a causal mask",
            f"middle over the weaker end {told['trained']}; even attention {null.dip:.2f}",
            bool(trained.max() < 1),
        ),
        st.Comparison(
            "Training loses the middle, not the architecture.",
            "the same architecture before training",
            f"middle over the weaker end {told['trained']}; untrained {told['untrained']}",
            bool(trained.max() < min(1.0, fresh.min())),
        ),
        st.Comparison(
            "It is the places that decide, not the words.",
            "the same words in another order",
            f"correlation of the two profiles {min(same):.2f} to {max(same):.2f}; middle over the "
            f"weaker end {told['another order']}",
            min(same) > 0.8,
        ),
    ]


def _drawn(names: list[str], drawn: list[tuple[dict[str, list[Profile]], Profile]]) -> st.Picture:
    figure, axes = cy.plot.sheet(1, len(names), 4.8, 3.6)
    for ax, name, (by, null) in zip(axes[0], names, drawn):
        for (kind, of), colour in zip(by.items(), cy.plot.PALETTE):
            mean = np.mean([x.reach for x in of], axis=0)
            ax.plot(mean, "o-" if kind == KINDS[0] else "-", ms=3, color=colour, label=kind)
        ax.plot(null.reach, "--", color=cy.plot.GREY, label=null.kind)
        ax.set(xlabel="place of the token", yscale="log")
        ax.set_title(name, fontsize=cy.plot.TITLE, loc="left")
    axes[0, 0].set_ylabel("share of what reaches the last token")
    cy.plot.legend_below(axes[0, 0])
    caption = (
        "Each token moved by 1 % of its length: how far the last token moves after the last layer, "
        "mean over the texts. Dashed: even attention under a causal mask, in closed form."
    )
    return st.Picture("The profile of retrieval", caption, figure)
