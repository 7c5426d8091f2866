"""Coupling of layers by their Jacobians (arXiv 2407.07810), consecutive ones and others.

J_k is the derivative of what layer k adds to a token with respect to that token, along the path of
a sentence, and m_K(J_k, J_l) says how far their leading singular vectors are from common ones: 0 is
perfect coupling, about 1 none. That *consecutive* layers couple means little by itself: layers that
are not consecutive are the null model, and so is the same architecture before training. See the
first panel, m_K by distance of the layers.

A layer repeated on its own output must couple perfectly once its tokens stop: the two Jacobians are
then one matrix. That is no evidence that clustering couples layers; see the displaced states, where
nothing clusters. In an ALBERT all layers are one, and only its tokens differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import cynosure as cy
from cynosure.pretrained.pages.chapters import table_of
from cynosure.pretrained.reading.examples import ONE_THREAD
from cynosure.pretrained.reading.jacobians import block_jacobians, coupling
from cynosure.pretrained.reading.weights import untrained

from ._layer_pairs import (
    Pair,
    above_zero,
    gaps,
    mean_of,
    pairs_of,
    said,
    spread,
    token_interval,
    value_of,
)
from ._models import TEXTS, Measured, models_of, side_by_side, starts_of

TITLE = "Coupling of layers, consecutive and not"
NEAR = 0.05  # clusters are counted at this share of the root-mean-square token length


@dataclass(frozen=True)
class Params:
    """`model`: folders or hub ids with commas; empty: MiniLM, else random weights. Of two texts the
    first `length` tokens pass the first `layers` layers, and `tokens` of them are followed, with K
    singular vectors, and with those of `others` to see that K does not matter; `layer` is repeated
    `times` times and read at `states` of them."""

    model: str = ""
    length: int = 8
    layers: int = 8
    tokens: int = 2
    K: int = 10
    others: tuple[int, ...] = (3, 30)
    layer: int = 1
    times: int = 60
    states: int = 8
    seed: int = 0


QUICK = Params(length=5, layers=4, others=(3,), times=12, states=2)
Row: TypeAlias = dict[str, Any]  # of one of the tables


@ONE_THREAD
def run(p: Params, progress: cy.study.Progress | None = None) -> cy.study.Report:
    """The layers of every model in turn, and one of its layers repeated."""
    say = progress or cy.study.silent
    sensible = min(p.tokens, p.K, p.states, p.length - 1, p.layers - 1, p.times - 1) >= 1
    said_ = "tokens, K, states >= 1, length, layers, times >= 2, layer >= 0"
    cy.study.require(sensible and p.layer >= 0, said_, p)
    say(0.0, "model")
    return side_by_side(p, models_of(p.model), partial(_measured, p), say, _drawn)


def _measured(p: Params, m: cy.pretrained.Transformer, say: cy.study.Progress) -> Measured:
    say(0.1, "pairs of layers")
    texts, fixed = starts_of(m, TEXTS[:2], 0, p.length), (p.layers, p.tokens, p.K, p.others, p.seed)
    pairs = pairs_of(m, texts, "trained", *fixed)
    say(0.4, "before training")
    pairs += pairs_of(untrained(m, p.seed), texts, "untrained", *fixed)
    say(0.8, "one layer repeated")
    repeated = _repeated(m, texts[0], p)
    near, far = (mean_of(pairs, "trained", "m", close) for close in (True, False))
    bare, bare_far = (mean_of(pairs, "trained", "traceless", close) for close in (True, False))
    fresh = mean_of(pairs, "untrained", "m", True)
    last = repeated[-1]
    summary = (
        f"{m.name}: m_{p.K} of consecutive layers is {near:.2f} on average, of others {far:.2f} "
        f"(0: same singular vectors, about 1: none); {bare:.2f} and {bare_far:.2f} once the "
        f"multiple of the identity in each Jacobian is taken away. Before training it is "
        f"{fresh:.2f}. Layer {p.layer} repeated: from {repeated[0]['m']:.2f} with "
        f"{repeated[0]['clusters']} clusters to {last['m']:.2g} with {last['clusters']} after "
        f"{last['state']} times; states displaced at random: {last['displaced']:.2g}."
    )
    facts = {
        "consecutive": near,
        "others": far,
        "turned copy": mean_of(pairs, "trained", "turned"),
        "consecutive, without trace": bare,
        "others, without trace": bare_far,
        "consecutive, before training": fresh,
        "without trace, before training": mean_of(pairs, "untrained", "traceless", True),
        "distant minus consecutive": said(gaps(pairs, "trained", "m")),
        "repeated, last state": last["m"],
        "displaced": last["displaced"],
    }
    report = cy.study.report_of(
        p,
        summary,
        controls=_controls(p, pairs, repeated),
        tables=_tables(p, pairs, repeated),
        figures=[_drawn([m.name], [(pairs, repeated)])],
    )
    return Measured(report, facts, (pairs, repeated))


def _controls(p: Params, pairs: list[Pair], repeated: list[Row]) -> list[cy.study.Comparison]:
    near, far = (mean_of(pairs, "trained", "m", close) for close in (True, False))
    gap, bare = gaps(pairs, "trained", "m"), gaps(pairs, "trained", "traceless")
    turned = mean_of(pairs, "trained", "turned")
    fresh = [mean_of(pairs, "untrained", key, True) for key in ("m", "traceless")]
    trained = mean_of(pairs, "trained", "traceless", True)
    others = [gaps(pairs, "trained", str(i)) for i in range(len(p.others))]
    last, closer = repeated[-1], sum(x["m"] < x["displaced"] for x in repeated)
    return [
        cy.study.Comparison(
            "Consecutive layers couple more than a random turn would.",
            "the second Jacobian times a random rotation",
            f"m_{p.K}: consecutive {near:.2f}, turned {turned:.2f}",
            near < turned - 0.1,
        ),
        cy.study.Comparison(
            "Most of this coupling comes from being consecutive.",
            "layers that are not consecutive; both without the multiple of the identity as well",
            f"m_{p.K}: consecutive {near:.2f}, others {far:.2f}, difference {said(gap)}; "
            f"without trace {said(bare)}",
            far - near > 0.5 * (turned - near),
        ),
        cy.study.Comparison(
            "Near layers couple a little more than distant ones, whatever K.",
            f"K = {', '.join(map(str, p.others))}",
            "difference, distant minus consecutive: "
            + "; ".join(f"K = {K} {said(x)}" for K, x in zip(p.others, others)),
            all(above_zero(x) for x in (gap, *others)),
        ),
        cy.study.Comparison(
            "Training couples consecutive layers.",
            "the same architecture with fresh random weights",
            f"m_{p.K} trained {near:.2f}, untrained {fresh[0]:.2f}; without the multiple of the "
            f"identity, which a norm gives by itself, {trained:.2f} and {fresh[1]:.2f}",
            near < fresh[0] and trained < fresh[1],
        ),
        cy.study.Comparison(
            "In a layer repeated, clusters couple it with itself.",
            "the same states displaced at random by as much as the step, where nothing clusters",
            f"m_{p.K} at the last state {last['m']:.2g}, displaced {last['displaced']:.2g}; "
            f"smaller than displaced at {closer} of {len(repeated)} states",
            closer == len(repeated) and last["m"] < 0.5 * last["displaced"],
        ),
    ]


# --- one layer repeated --------------------------------------------------------------------------


def _count(z: np.ndarray) -> int:
    scale = float(np.sqrt((z.astype(np.float64) ** 2).sum(axis=1).mean())) or 1.0
    return cy.clusters(z / scale, NEAR).count


def _repeated(m: cy.pretrained.Transformer, text: np.ndarray, p: Params) -> list[Row]:
    """m_K of the same layer at consecutive states, at some times on a logarithmic scale.

    `displaced`: the second state is the first one moved at random, each token as far as its step.
    """
    draw = np.random.default_rng(p.seed)
    tr = m.iterate(text, p.layer, p.times)
    tokens, z = spread(tr, p.tokens), tr.values

    times = np.geomspace(1, len(tr) - 1, p.states).round().astype(int) - 1
    out = []
    for k in np.unique(times).tolist():
        noise = draw.standard_normal(z[k].shape)
        length = np.linalg.norm(z[k + 1] - z[k], axis=1, keepdims=True)
        moved = z[k] + noise * (length / np.linalg.norm(noise, axis=1, keepdims=True))
        states = (z[k], z[k + 1], moved.astype(z.dtype))
        one, two, apart = (block_jacobians(m, x, p.layer, tokens) for x in states)
        values, null = ([coupling(a, b, p.K) for a, b in zip(one, other)] for other in (two, apart))
        row = {"state": k, "next": k + 1, "clusters": _count(z[k])}
        row["step"] = float(np.linalg.norm(z[k + 1] - z[k]) / np.linalg.norm(z[k]))
        row |= {"m": float(np.mean(values)), "largest": float(np.max(values))}
        out.append(row | {"displaced": float(np.mean(null))})
    return out


def _tables(p: Params, pairs: list[Pair], repeated: list[Row]) -> list[cy.study.Table]:
    again = {"state": "state", "next": "next", "m": f"m_{p.K}", "largest": "largest"}
    again |= {"clusters": "clusters", "step": "relative step", "displaced": "displaced as far"}
    chosen = (
        "Mean and largest over the tokens chosen. Displaced: the same with the second state drawn "
        "at random, as far from the first."
    )
    return [_distances(p, pairs), table_of(f"Layer {p.layer} repeated", repeated, again, chosen)]


def _distances(p: Params, pairs: list[Pair]) -> cy.study.Table:
    def mean(what: str) -> Callable[[list[Pair]], float]:
        return lambda group: float(np.mean([value_of(x, what) for x in group]))

    columns: dict[str, Any] = {
        "weights": lambda group: group[0].weights,
        "distance": lambda group: group[0].distance,
        "pairs": len,
        f"m_{p.K}": mean("m"),
        "95 % from": lambda group: token_interval(group)[0],
        "to": lambda group: token_interval(group)[1],
        "without trace": mean("traceless"),
        "of a turned copy": mean("turned"),
        **{f"m_{K}": mean(str(i)) for i, K in enumerate(p.others)},
    }
    note = (
        "Distance 1 are consecutive layers. Without trace: both Jacobians less their multiple of "
        "I, which couples by itself (a norm that comes last, as in BERT, gives one). Turned copy: "
        "the second Jacobian times a random rotation; a value as large means no coupling. The "
        "interval is over tokens, whose pairs are averaged first."
    )
    groups = list(cy.study.grouped(pairs, "weights", "distance").values())
    return cy.study.Table.of("Layers by their distance", groups, columns, note)


def _drawn(names: list[str], drawn: list[tuple[list[Pair], list[Row]]]) -> cy.study.Picture:
    figure, axes = cy.plot.sheet(2, len(names), 4.6, 3.4)
    blue, orange, *_ = cy.plot.PALETTE
    for top, ax, name, (pairs, rows) in zip(*axes, names, drawn):
        _draw_distances(top, pairs)
        x = [r["next"] for r in rows]
        ax.plot(x, [r["m"] for r in rows], "o-", color=blue, ms=4, label="m_K")
        moved, grey = [r["displaced"] for r in rows], cy.plot.GREY
        ax.plot(x, moved, "x:", color=grey, ms=5, label="m_K, displaced as far")
        ax.plot([], [], "s--", color=orange, ms=3, label="clusters (right)")
        ax.legend(frameon=False, fontsize=cy.plot.TICK, loc="best")
        ax.set(xlabel="times run", xscale="log", ylabel="m_K")
        other = ax.twinx()
        other.plot(x, [r["clusters"] for r in rows], "s--", color=orange, ms=3)
        other.spines[:].set_visible(False)
        other.tick_params(labelsize=cy.plot.TICK, length=0)
        ax.set_ylim(bottom=0)
        other.set_ylim(bottom=0)
        for at, title in ((top, "pairs of layers"), (ax, "one layer repeated")):
            at.set_title(f"{name}: {title}", fontsize=cy.plot.TITLE, loc="left")
    caption = (
        "Above: pairs of layers by their distance, mean over tokens with its 95 % interval; the "
        "null models are layers that are not consecutive, and the model before training. Below: "
        "one layer on its own output, and beside it the same states displaced at random by as much "
        "as a step."
    )
    return cy.study.Picture("Coupling of layers", caption, figure)


def _draw_distances(ax: Any, pairs: list[Pair]) -> None:
    """Mean m_K by distance for both sets of weights, as it is and without the trace."""
    blue, orange, *_ = cy.plot.PALETTE
    for weights, colour in (("trained", blue), ("untrained", orange)):
        for what, style in (("m", "o-"), ("traceless", "s--")):
            mine = [x for x in pairs if x.weights == weights]
            by = dict(sorted(cy.study.grouped(mine, "distance").items()))
            mean, away = [np.mean([getattr(x, what) for x in of]) for of in by.values()], [*by]
            label = weights if what == "m" else f"{weights}, without trace"
            ax.plot(away, mean, style, color=colour, ms=4, label=label)
            if what == "m":
                ends = [token_interval(of) for of in by.values()]
                ax.fill_between(away, *zip(*ends), color=colour, alpha=0.15, lw=0)
    turned = float(np.mean([x.turned for x in pairs]))
    ax.axhline(turned, color=cy.plot.GREY, lw=1, ls=":", label="turned copy: no coupling")
    ax.set(xlabel="distance of the layers (1: consecutive)", ylabel="m_K", ylim=(0, None))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=cy.plot.TICK, loc="lower right")
