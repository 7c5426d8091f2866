"""Coupling of consecutive layers by their Jacobians (arXiv 2407.07810), against clusters.

J_k is the derivative of what layer k adds to a token with respect to that token, along the path of
a sentence, and m_K(J_k, J_{k+1}) says how far their leading singular vectors are from common ones:
0 is perfect coupling, about 1 none. A layer repeated on its own output must couple perfectly once
its tokens stop: see the second figure. For hardmax attention this happens in finite depth and
exactly, from the layer on at which the sets C_i stop changing: see the check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import cynosure as cy

from ...pretrained import cosines
from ...pretrained.chapters import table_of
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...pretrained.jacobians import block_jacobians, coupling
from .._frame import Progress, report_of, require, silent

TITLE = "Coupling of consecutive layers, and clusters"
NEAR = 0.05  # clusters are counted at this share of the root-mean-square token length
HARDMAX_LAYERS = 30


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id; empty: MiniLM if it is installed, else random weights.
    `tokens` of the text are followed, with K singular vectors; `layer` is repeated `times` times
    and read at `states` of them. `hardmax` random tokens of the plane make the exact case."""

    model: str = ""
    text: str = "The ending is wonderful."
    tokens: int = 3
    K: int = 10
    layer: int = 1
    times: int = 60
    states: int = 8
    hardmax: int = 40
    seed: int = 0


QUICK = Params(tokens=1, times=12, states=3, hardmax=15)


Row: TypeAlias = dict[str, Any]  # of one of the three tables


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The layers of the model in turn, one layer repeated, and hardmax attention."""
    say = progress or silent
    sensible = min(p.tokens, p.K, p.hardmax, p.states) >= 1 and p.times >= 2 and p.layer >= 0
    require(sensible, "tokens, K, hardmax, states >= 1, times >= 2, layer >= 0", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    say(0.1, "layers in turn")
    depth = _in_turn(m, p)
    say(0.5, "one layer repeated")
    repeated = _repeated(m, p)
    say(0.8, "hardmax")
    exact = _hardmax(p)
    check = _coupled(exact)
    say(0.9, "figures")
    caption = (
        "Left: consecutive layers of the model, one dot per token chosen. Middle: one layer on "
        "its own output. Right: hardmax attention, where coupling is perfect once the sets C_i are "
        "constant."
    )
    drawing = _draw(p, depth, repeated, exact)
    return report_of(
        __name__,
        p,
        weights_note(m) + _summary(m.name, p, depth, repeated, check),
        tables=_tables(p, depth, repeated, exact),
        checks={"hardmax": [check]},
        figures=[cy.Picture("Coupling and clusters", caption, drawing)],
    )


def _summary(name: str, p: Params, depth: list[Row], repeated: list[Row], check: cy.Check) -> str:
    mean, bare = (np.mean([x[key] for x in depth] or np.nan) for key in ("m", "traceless"))
    first, last = repeated[0], repeated[-1]
    hardmax = "the sets C_i still change at the last layer."
    if check.applies:
        since = check.witness["constant from layer"]
        hardmax = f"0 from layer {since} on, where the sets C_i stay the same."
    return (
        f"{name}: m_{p.K} of consecutive layers is {mean:.2f} on average "
        f"(0: same singular vectors, about 1: none in common), and {bare:.2f} once the multiple of "
        f"the identity in each Jacobian is taken away. Layer {p.layer} repeated: from "
        f"{first['m']:.2f} with {first['clusters']} clusters to {last['m']:.2g} with "
        f"{last['clusters']} after {last['state']} times. Hardmax: {hardmax}"
    )


def _spread(run: cy.Trajectory, most: int) -> list[int]:
    """Tokens spread over the text, special ones at its ends avoided where there are others."""
    n = run.z.shape[1]
    first, last = (1, n - 2) if run.words is not None and n > 2 else (0, n - 1)
    picks = np.linspace(0, last - first, min(most, last - first + 1)).round().astype(int)
    return (first + np.unique(picks)).tolist()


def _count(z: np.ndarray) -> int:
    scale = float(np.sqrt((z.astype(np.float64) ** 2).sum(axis=1).mean())) or 1.0
    return cy.clusters(z / scale, NEAR).count


def _traceless(J: np.ndarray) -> np.ndarray:
    return J - np.trace(J) / len(J) * np.eye(len(J))


def _in_turn(m: cy.Transformer, p: Params) -> list[Row]:
    trace = m.trace(p.text)
    words = trace.words or tuple(map(str, range(trace.z.shape[1])))
    tokens = _spread(trace.trajectory, p.tokens)
    J = [block_jacobians(m, trace.z[k], k, tokens) for k in range(m.depth)]
    draw = np.random.default_rng(p.seed)

    out = []
    for k in range(m.depth - 1):
        z = trace.z[k + 1]
        between = {"clusters": _count(z), "cosine": float(cosines(z).mean())}
        for token, one, two in zip(tokens, J[k], J[k + 1]):
            turned = np.linalg.qr(draw.standard_normal(one.shape))[0]
            couplings = {
                "m": coupling(one, two, p.K),
                "traceless": coupling(_traceless(one), _traceless(two), p.K),
                "turned": coupling(one, turned @ two, p.K),
            }
            where = {"layers": f"{k}, {k + 1}", "token": token, "word": words[token]}
            out.append(where | couplings | between)
    return out


def _repeated(m: cy.Transformer, p: Params) -> list[Row]:
    """m_K of the same layer at consecutive states, at some times on a logarithmic scale."""
    tr = m.iterate(p.text, p.layer, p.times)
    tokens, z = _spread(tr, p.tokens), tr.values

    times = np.geomspace(1, len(tr) - 1, p.states).round().astype(int) - 1
    out = []
    for k in np.unique(times).tolist():
        one, two = (block_jacobians(m, z[j], p.layer, tokens) for j in (k, k + 1))
        values = [coupling(a, b, p.K) for a, b in zip(one, two)]
        step = float(np.linalg.norm(z[k + 1] - z[k]) / np.linalg.norm(z[k]))
        couplings = {"m": float(np.mean(values)), "largest": float(np.max(values))}
        where = {"state": k, "next": k + 1, "clusters": _count(z[k]), "step": step}
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


def _tables(p: Params, depth: list[Row], repeated: list[Row], exact: list[Row]) -> list[cy.Table]:
    note = (
        "Without trace: both Jacobians less their multiple of I, which couples by itself (a norm "
        "that comes last, as in BERT, gives one). Turned copy: the second Jacobian times a random "
        "rotation; a value as large means no coupling."
    )
    m, clusters = {"m": f"m_{p.K}"}, {"clusters": "clusters"}
    in_turn = {
        "layers": "layers", "token": "token", "word": "word", **m, "traceless": "without trace",
        "turned": "of a turned copy", "clusters": "clusters between",
        "cosine": "mean cosine between",
    }  # fmt: skip
    again = {"state": "state", "next": "next", **m, "largest": "largest", **clusters}
    again["step"] = "relative step"
    next_one = f"m_{min(p.K, p.hardmax)} with the next"
    hard = {"layer": "layer", "m": next_one, **clusters, "constant": "sets no longer change"}
    chosen = "Mean and largest over the tokens chosen."
    return [
        table_of("Layers in turn", depth, in_turn, note),
        table_of(f"Layer {p.layer} repeated", repeated, again, chosen),
        table_of("Hardmax attention, alpha = 1", exact, hard),
    ]


def _draw(p: Params, depth: list[Row], repeated: list[Row], exact: list[Row]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 4.3, 3.8)
    left, middle, right = axes[0]
    blue, orange, green, *_ = cy.plot.PALETTE
    pairs = list(dict.fromkeys(x["layers"] for x in depth))
    place = [pairs.index(x["layers"]) for x in depth]
    for key, marker, colour, label in (
        ("m", "o", blue, "m_K"),
        ("traceless", "s", green, "without trace"),
        ("turned", "x", cy.plot.GREY, "turned copy: no coupling"),
    ):
        left.plot(place, [x[key] for x in depth], marker, color=colour, label=label)
    left.set_xticks(range(len(pairs)), pairs)
    left.set(xlabel="layers", ylabel="m_K", title="layers in turn", ylim=(0, None))
    left.legend(frameon=False, fontsize=cy.plot.TICK)
    for ax, at, rows in ((middle, "next", repeated), (right, "layer", exact)):
        x = [r[at] for r in rows]
        ax.plot(x, [r["m"] for r in rows], "o-", color=blue, ms=4)
        ax.set_ylabel("m_K", color=blue)
        other = ax.twinx()
        other.plot(x, [r["clusters"] for r in rows], "s--", color=orange, ms=3)
        other.set_ylabel("clusters", color=orange, fontsize=cy.plot.LABEL)
        other.spines[:].set_visible(False)
        other.tick_params(labelsize=cy.plot.TICK, length=0)
        ax.set_ylim(bottom=0)
        other.set_ylim(bottom=0)
    middle.set(xlabel="times run", title=f"Layer {p.layer} repeated", xscale="log")
    right.set(xlabel="layer", title="hardmax attention")
    return figure
