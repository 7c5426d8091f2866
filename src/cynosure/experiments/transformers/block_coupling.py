"""Coupling of layers by their Jacobians (arXiv 2407.07810), consecutive ones and others.

J_k is the derivative of what layer k adds to a token with respect to that token, along the path of
a sentence, and m_K(J_k, J_l) says how far their leading singular vectors are from common ones: 0 is
perfect coupling, about 1 none. That *consecutive* layers couple means little by itself: layers that
are not consecutive are the null model, and so is the same architecture before training. See the
first figure, m_K by distance of the layers.

A layer repeated on its own output must couple perfectly once its tokens stop, and hardmax attention
once the sets C_i stop changing: in both cases the two Jacobians are then one matrix. Neither is
evidence that clustering couples layers; see the column of displaced states, where nothing clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import cynosure as cy

from ...pretrained.chapters import table_of
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...pretrained.jacobians import block_jacobians, coupling
from ...pretrained.untrained import untrained
from .._frame import Progress, report_of, require, silent
from ._layer_pairs import Pair, above_zero, gaps, mean_of, pairs_of, said, spread, token_interval

TITLE = "Coupling of layers, consecutive and not"
NEAR = 0.05  # clusters are counted at this share of the root-mean-square token length
HARDMAX_LAYERS = 30


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `tokens` of the text and of `second` are followed, with K singular vectors, and with those of
    `others` to see that K does not matter; `layer` is repeated `times` times and read at `states`
    of them. `hardmax` random tokens of the plane make the exact case."""

    model: str = ""
    text: str = "The ending is wonderful."
    second: str = "Prices of grain fell by a third after the harvest."
    tokens: int = 4
    K: int = 10
    others: tuple[int, ...] = (3, 30)
    layer: int = 1
    times: int = 60
    states: int = 8
    hardmax: int = 40
    seed: int = 0


QUICK = Params(tokens=2, others=(3,), times=12, states=2, hardmax=15)


Row: TypeAlias = dict[str, Any]  # of one of the tables


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The layers of the model in turn, one layer repeated, and hardmax attention."""
    say = progress or silent
    sensible = min(p.tokens, p.K, p.hardmax, p.states) >= 1 and p.times >= 2 and p.layer >= 0
    require(sensible, "tokens, K, hardmax, states >= 1, times >= 2, layer >= 0", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    say(0.1, "pairs of layers")
    texts, fixed = (p.text, p.second), (p.tokens, p.K, p.others, p.seed)
    pairs = pairs_of(m, texts, "trained", *fixed)
    say(0.4, "before training")
    pairs += pairs_of(untrained(m, p.seed), texts, "untrained", *fixed)
    say(0.6, "one layer repeated")
    repeated = _repeated(m, p)
    say(0.8, "hardmax")
    exact = _hardmax(p)
    check = _coupled(exact)
    say(0.9, "figures")
    caption = (
        "Left: pairs of layers by their distance, mean over tokens with its 95 % interval; the "
        "null models are layers that are not consecutive, and the model before training. Middle: "
        "one layer on its own output, and beside it the same states displaced at random by as much "
        "as a step. Right: hardmax attention, where m_K is 0 once the sets C_i are constant, since "
        "the layer is then one matrix."
    )
    return report_of(
        __name__,
        p,
        weights_note(m) + _summary(m.name, p, pairs, repeated, check),
        controls=_controls(p, pairs, repeated),
        tables=_tables(p, pairs, repeated, exact),
        checks={"hardmax": [check]},
        figures=[cy.Picture("Coupling of layers", caption, _draw(p, pairs, repeated, exact))],
    )


def _controls(p: Params, pairs: list[Pair], repeated: list[Row]) -> list[cy.Comparison]:
    near, far = (mean_of(pairs, "trained", "m", close) for close in (True, False))
    gap, bare = gaps(pairs, "trained", "m"), gaps(pairs, "trained", "traceless")
    turned = mean_of(pairs, "trained", "turned")
    fresh = [mean_of(pairs, "untrained", key, True) for key in ("m", "traceless")]
    trained = mean_of(pairs, "trained", "traceless", True)
    others = [gaps(pairs, "trained", str(i)) for i in range(len(p.others))]
    out = [
        cy.Comparison(
            "Consecutive layers couple more than a random turn would.",
            "the second Jacobian times a random rotation",
            f"m_{p.K}: consecutive {near:.2f}, turned {turned:.2f}",
            near < turned - 0.1,
        ),
        cy.Comparison(
            "Most of this coupling comes from being consecutive.",
            "layers that are not consecutive; both without the multiple of the identity as well",
            f"m_{p.K}: consecutive {near:.2f}, others {far:.2f}, difference {said(gap)}; "
            f"without trace {said(bare)}",
            far - near > 0.5 * (turned - near),
        ),
        cy.Comparison(
            "Near layers couple a little more than distant ones, whatever K.",
            f"K = {', '.join(map(str, p.others))}",
            "difference, distant minus consecutive: "
            + "; ".join(f"K = {K} {said(x)}" for K, x in zip(p.others, others)),
            all(above_zero(x) for x in (gap, *others)),
        ),
        cy.Comparison(
            "Training couples consecutive layers.",
            "the same architecture with fresh random weights",
            f"m_{p.K} trained {near:.2f}, untrained {fresh[0]:.2f}; without the multiple of the "
            f"identity, which a norm gives by itself, {trained:.2f} and {fresh[1]:.2f}",
            near < fresh[0] and trained < fresh[1],
        ),
    ]
    last = repeated[-1]
    displaced = [x for x in repeated if x["displaced"] is not None]
    closer = sum(x["m"] < x["displaced"] for x in displaced)
    out.append(
        cy.Comparison(
            "In a layer repeated, clusters couple it with itself.",
            "the same states displaced at random by as much as the step, where nothing clusters",
            f"m_{p.K} at the last state {last['m']:.2g}, displaced {last['displaced']:.2g}; "
            f"smaller than displaced at {closer} of {len(displaced)} states",
            closer == len(displaced) and last["m"] < 0.5 * last["displaced"],
        )
    )
    return out


def _summary(name: str, p: Params, pairs: list[Pair], repeated: list[Row], check: cy.Check) -> str:
    near, far = (mean_of(pairs, "trained", "m", close) for close in (True, False))
    bare, bare_far = (mean_of(pairs, "trained", "traceless", close) for close in (True, False))
    fresh = mean_of(pairs, "untrained", "m", True)
    first, last = repeated[0], repeated[-1]
    hardmax = "the sets C_i still change at the last layer."
    if check.applies:
        since = check.witness["constant from layer"]
        hardmax = f"0 from layer {since} on, where the sets C_i stay the same."
    return (
        f"{name}: m_{p.K} of consecutive layers is {near:.2f} on average, of others {far:.2f} (0: "
        f"same singular vectors, about 1: none in common); {bare:.2f} and {bare_far:.2f} once the "
        f"multiple of the identity in each Jacobian is taken away. Of the distance to 1, "
        f"{_share(near, far):.0%} is lost when layers are not consecutive and "
        f"{_share(near, bare):.0%} without that multiple. Before training m_{p.K} is {fresh:.2f}."
        f"\n\nLayer {p.layer} repeated: from "
        f"{first['m']:.2f} with {first['clusters']} clusters to {last['m']:.2g} with "
        f"{last['clusters']} after {last['state']} times; states displaced at random by as much as "
        f"a step have {last['displaced']:.2g}. Hardmax: {hardmax}"
    )


def _share(coupled: float, other: float) -> float:
    """How much of the distance of `coupled` to 1, no coupling, is lost in `other`."""
    return (other - coupled) / (1 - coupled) if coupled < 1 else 0.0


# --- one layer repeated, and hardmax attention ---------------------------------------------------


def _count(z: np.ndarray) -> int:
    scale = float(np.sqrt((z.astype(np.float64) ** 2).sum(axis=1).mean())) or 1.0
    return cy.clusters(z / scale, NEAR).count


def _repeated(m: cy.Transformer, p: Params) -> list[Row]:
    """m_K of the same layer at consecutive states, at some times on a logarithmic scale.

    `displaced`: the second state is the first one moved at random, each token as far as its step.
    """
    draw = np.random.default_rng(p.seed)
    tr = m.iterate(p.text, p.layer, p.times)
    tokens, z = spread(tr, p.tokens), tr.values

    times = np.geomspace(1, len(tr) - 1, p.states).round().astype(int) - 1
    out = []
    for k in np.unique(times).tolist():
        noise = draw.standard_normal(z[k].shape)
        length = np.linalg.norm(z[k + 1] - z[k], axis=1, keepdims=True)
        moved = z[k] + noise * (length / np.linalg.norm(noise, axis=1, keepdims=True))
        states = (z[k], z[k + 1], moved.astype(z.dtype))
        one, two, apart = (block_jacobians(m, x, p.layer, tokens) for x in states)
        values = [coupling(a, b, p.K) for a, b in zip(one, two)]
        null = float(np.mean([coupling(a, b, p.K) for a, b in zip(one, apart)]))
        step = float(np.linalg.norm(z[k + 1] - z[k]) / np.linalg.norm(z[k]))
        couplings = {"m": float(np.mean(values)), "largest": float(np.max(values))}
        where = {"state": k, "next": k + 1, "clusters": _count(z[k]), "step": step}
        where["displaced"] = null
        out.append(where | couplings)
    return out


def _hardmax(p: Params) -> list[Row]:
    """z^{k+1} = M_k z^k with M_k = (I + alpha P_k)/(1 + alpha): its Jacobian is M_k ⊗ I."""
    z0 = cy.configurations.gaussian(p.hardmax, 2, p.seed)
    tr = cy.simulate(cy.PureAttention(alpha=1.0), z0, layers=HARDMAX_LAYERS)
    roles, layers = cy.roles(tr), range(HARDMAX_LAYERS)
    M = [(np.eye(p.hardmax) + roles.followed(k).weights()) / 2 for k in (*layers, HARDMAX_LAYERS)]
    constant = max((k + 1 for k in layers if (M[k] != M[k + 1]).any()), default=0)
    near, K = NEAR * float(np.linalg.norm(z0, axis=1).mean()), min(p.K, p.hardmax)
    return [
        {
            "layer": k,
            "m": coupling(M[k], M[k + 1], K),
            "clusters": cy.clusters(tr.values[k], near).count,
            "constant": k >= constant,
        }
        for k in layers
    ]


def _coupled(exact: list[Row]) -> cy.Check:
    constant = [x for x in exact if x["constant"]]
    later, tol = max((x["m"] for x in constant), default=0.0), 1e-12
    first = constant[0]["layer"] if constant else len(exact)
    return cy.Check(
        theorem="coupling",
        reference="arXiv 2407.07810 for hardmax attention, arXiv 2407.01602",
        statement="layers are perfectly coupled, m_K = 0, once the sets C_i no longer change",
        applies=bool(constant),
        holds=later <= tol if constant else None,
        margin=tol - later,
        tol=tol,
        witness={"constant from layer": first, "m_K at layer 0": exact[0]["m"]},
        hypotheses=(),
        arithmetic="float64",
    )


def _tables(p: Params, pairs: list[Pair], repeated: list[Row], exact: list[Row]) -> list[cy.Table]:
    m, clusters = {"m": f"m_{p.K}"}, {"clusters": "clusters"}
    again = {"state": "state", "next": "next", **m, "largest": "largest", **clusters}
    again |= {"step": "relative step", "displaced": "displaced as far"}
    next_one = f"m_{min(p.K, p.hardmax)} with the next"
    hard = {"layer": "layer", "m": next_one, **clusters, "constant": "sets no longer change"}
    chosen = (
        "Mean and largest over the tokens chosen. Displaced: the same with the second state drawn "
        "at random, as far from the first."
    )
    return [
        _distances(p, pairs),
        _pairs_table(p, pairs),
        table_of(f"Layer {p.layer} repeated", repeated, again, chosen),
        table_of("Hardmax attention, alpha = 1", exact, hard),
    ]


def _distances(p: Params, pairs: list[Pair]) -> cy.Table:
    rows: list[tuple[Any, ...]] = []
    for weights, distance in dict.fromkeys((x.weights, x.distance) for x in pairs):
        mine = [x for x in pairs if (x.weights, x.distance) == (weights, distance)]
        values = np.array([x.m for x in mine])
        low, high = token_interval(mine)
        bare, turned = (float(np.mean([getattr(x, k) for x in mine])) for k in _NULLS)
        others = [float(np.mean([x.others[i] for x in mine])) for i in range(len(p.others))]
        rows.append(
            (weights, distance, len(mine), float(values.mean()), low, high, bare, turned, *others)
        )
    columns = (
        "weights", "distance", "pairs", f"m_{p.K}", "95 % from", "to", "without trace",
        "of a turned copy", *(f"m_{K}" for K in p.others),
    )  # fmt: skip
    note = (
        "Distance 1 are consecutive layers. Without trace: both Jacobians less their multiple of "
        "I, which couples by itself (a norm that comes last, as in BERT, gives one). Turned copy: "
        "the second Jacobian times a random rotation; a value as large means no coupling. The "
        "interval is over tokens, whose pairs are averaged first."
    )
    return cy.Table("Layers by their distance", columns, tuple(rows), note)


_NULLS = ("traceless", "turned")


def _pairs_table(p: Params, pairs: list[Pair]) -> cy.Table:
    columns: dict[str, Any] = {
        "weights": "weights",
        "layers": lambda x: f"{x.first}, {x.second}",
        "token": "token",
        "word": "word",
        f"m_{p.K}": "m",
        "without trace": "traceless",
        "of a turned copy": "turned",
    }
    return cy.Table.of("Pairs of layers", pairs, columns)


def _draw(p: Params, pairs: list[Pair], repeated: list[Row], exact: list[Row]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.6, 3.8)
    left, middle, right = axes[0]
    blue, orange, *_ = cy.plot.PALETTE
    _draw_distances(left, pairs)
    for ax, at, rows in ((middle, "next", repeated), (right, "layer", exact)):
        x = [r[at] for r in rows]
        ax.plot(x, [r["m"] for r in rows], "o-", color=blue, ms=4, label="m_K")
        if "displaced" in rows[0]:
            moved, grey = [r["displaced"] for r in rows], cy.plot.GREY
            ax.plot(x, moved, "x:", color=grey, ms=5, label="m_K, displaced as far")
            ax.legend(frameon=False, fontsize=cy.plot.TICK, loc="upper right")
        ax.set_ylabel("m_K", color=blue)
        other = ax.twinx()
        other.plot(x, [r["clusters"] for r in rows], "s--", color=orange, ms=3)
        other.set_ylabel("clusters", color=orange, fontsize=cy.plot.LABEL)
        other.spines[:].set_visible(False)
        other.tick_params(labelsize=cy.plot.TICK, length=0)
        ax.set_ylim(bottom=0)
        other.set_ylim(bottom=0)
    middle.set(xlabel="times run", xscale="log")
    right.set(xlabel="layer")
    titles = ("pairs of layers", f"layer {p.layer} repeated", "hardmax attention")
    for ax, title in zip((left, middle, right), titles):
        ax.set_title(title, fontsize=cy.plot.TITLE, loc="left")
    return figure


def _draw_distances(ax: Any, pairs: list[Pair]) -> None:
    """Mean m_K by distance for both sets of weights, as it is and without the trace."""
    blue, orange, *_ = cy.plot.PALETTE
    for weights, colour in (("trained", blue), ("untrained", orange)):
        for what, style in (("m", "o-"), ("traceless", "s--")):
            mine = [x for x in pairs if x.weights == weights]
            away = sorted({x.distance for x in mine})
            mean = [np.mean([getattr(x, what) for x in mine if x.distance == k]) for k in away]
            label = weights if what == "m" else f"{weights}, without trace"
            ax.plot(away, mean, style, color=colour, ms=4, label=label)
            if what == "m":
                ends = [token_interval([x for x in mine if x.distance == k]) for k in away]
                ax.fill_between(away, *zip(*ends), color=colour, alpha=0.15, lw=0)
    turned = float(np.mean([x.turned for x in pairs]))
    ax.axhline(turned, color=cy.plot.GREY, lw=1, ls=":", label="turned copy: no coupling")
    ax.set(xlabel="distance of the layers (1: consecutive)", ylabel="m_K", ylim=(0, None))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=cy.plot.TICK, loc="lower right")
