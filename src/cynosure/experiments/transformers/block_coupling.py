"""Coupling of consecutive layers by their Jacobians (arXiv 2407.07810), against clusters.

J_k is the derivative of what layer k adds to a token with respect to that token, along the path of
a sentence, and m_K(J_k, J_{k+1}) says how far their leading singular vectors are from common ones:
0 is perfect coupling, about 1 none. A layer repeated on its own output must couple perfectly once
its tokens stop: see the second figure. For hardmax attention this happens in finite depth and
exactly, from the layer on at which the sets C_i stop changing: see the check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.leaders import roles
from ...drawing.report import Picture, Report, Table
from ...dynamics import PureAttention
from ...pretrained import Transformer, cosines
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...pretrained.jacobians import block_jacobians, coupling
from ...simulation import configurations
from ...simulation.loop import simulate
from ...theorems import Check
from .._frame import Progress, silent

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Coupling of consecutive layers, and clusters"
NEAR = 0.05  # clusters are counted at this share of the root-mean-square token length


@final
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


def run(p: Params, progress: Progress | None = None) -> Report:
    """The layers of the model in turn, one layer repeated, and hardmax attention."""
    say = progress or silent
    if min(p.tokens, p.K, p.hardmax, p.states) < 1 or p.times < 2 or p.layer < 0:
        raise ValueError(
            f"tokens, K, hardmax, states from 1 on, times from 2, layer from 0; got {p}"
        )
    say(0.0, "model")
    return _measure(p, example_transformer(p.model, p.text), say)


@ONE_THREAD
def _measure(p: Params, m: Transformer, say: Progress) -> Report:
    say(0.1, "layers in turn")
    depth = _in_turn(m, p)
    say(0.5, "one layer repeated")
    repeated = _repeated(m, p)
    say(0.8, "hardmax")
    exact, check = _hardmax(p)
    say(0.9, "figures")
    mean, bare = np.mean([row[3:5] for row in depth.rows] or [(np.nan, np.nan)], axis=0)
    first, last = repeated.rows[0], repeated.rows[-1]
    summary = (
        f"{weights_note(m)}{m.name}: m_{p.K} of consecutive layers is {mean:.2f} on average "
        f"(0: same singular vectors, about 1: none in common), and {bare:.2f} once the multiple of "
        f"the identity in each Jacobian is taken away. Layer {p.layer} repeated: from "
        f"{first[2]:.2f} with {first[4]} clusters to {last[2]:.2g} with {last[4]} after {last[0]} "
        "times. Hardmax: "
    ) + (
        f"0 from layer {check.witness['frozen from layer']} on, where the sets C_i stay the same."
        if check.applies
        else "the sets C_i still change at the last layer."
    )
    report = Report(
        TITLE,
        summary,
        asdict(p),
        (depth, repeated, exact),
        {"hardmax": (check,)},
        _figures(depth, repeated, exact),
        command="cynosure run block_coupling",
    )
    say(1.0, "done")
    return report


def _followed(words: Sequence[str] | None, n: int, most: int) -> list[int]:
    """Tokens spread over the text, special ones at its ends avoided where there are others."""
    inner = list(range(1, n - 1)) if words is not None and n > 2 else list(range(n))
    picks = np.linspace(0, len(inner) - 1, min(most, len(inner))).round().astype(int)
    return [inner[i] for i in np.unique(picks)]


def _count(z: np.ndarray) -> int:
    scale = float(np.sqrt((z.astype(np.float64) ** 2).sum(axis=1).mean())) or 1.0
    return clusters(z / scale, NEAR).count


def _in_turn(m: Transformer, p: Params) -> Table:
    trace = m.trace(p.text)
    words = trace.words or tuple(map(str, range(trace.z.shape[1])))
    tokens = _followed(trace.words, trace.z.shape[1], p.tokens)
    J = [block_jacobians(m, trace.z[k], k, tokens) for k in range(m.depth)]
    shuffled = np.random.default_rng(p.seed)
    rows = []
    for k in range(m.depth - 1):
        state = trace.z[k + 1]
        for i, t in enumerate(tokens):
            turned = np.linalg.qr(shuffled.standard_normal(J[k][i].shape))[0]
            rows.append(
                (
                    f"{k}, {k + 1}",
                    t,
                    words[t],
                    coupling(J[k][i], J[k + 1][i], p.K),
                    coupling(_traceless(J[k][i]), _traceless(J[k + 1][i]), p.K),
                    coupling(J[k][i], turned @ J[k + 1][i], p.K),
                    _count(state),
                    float(cosines(state).mean()),
                )
            )
    columns = (
        "layers", "token", "word", f"m_{p.K}", "without trace", "of a turned copy",
        "clusters between", "mean cosine between",
    )  # fmt: skip
    note = (
        "Without trace: both Jacobians less their multiple of I, which couples by itself (a norm "
        "that comes last, as in BERT, gives one). Turned copy: the second Jacobian times a random "
        "rotation; a value as large means no coupling."
    )
    return Table("Layers in turn", columns, tuple(rows), note)


def _traceless(J: np.ndarray) -> np.ndarray:
    return J - np.trace(J) / len(J) * np.eye(len(J))


def _repeated(m: Transformer, p: Params) -> Table:
    """m_K of the same layer at consecutive states, at some times on a logarithmic scale."""
    tr = m.iterate(p.text, p.layer, p.times)
    tokens = _followed(tr.words, tr.z.shape[1], p.tokens)
    z, last = tr.values, len(tr) - 2
    times = np.unique(np.geomspace(1, last + 1, p.states).round().astype(int) - 1)
    rows = []
    for k in times.tolist():
        first = block_jacobians(m, z[k], p.layer, tokens)
        then = block_jacobians(m, z[k + 1], p.layer, tokens)
        values = [coupling(a, b, p.K) for a, b in zip(first, then, strict=True)]
        length = np.linalg.norm(z[k])
        moved = float(np.linalg.norm(z[k + 1] - z[k]) / length)
        rows.append((k, k + 1, float(np.mean(values)), float(np.max(values)), _count(z[k]), moved))
    columns = ("state", "next", f"m_{p.K}", "largest", "clusters", "relative step")
    title = f"Layer {p.layer} repeated"
    return Table(title, columns, tuple(rows), "Mean and largest over the tokens followed.")


def _hardmax(p: Params) -> tuple[Table, Check]:
    """z^{k+1} = M_k z^k with M_k = (I + alpha P_k)/(1 + alpha): its Jacobian is M_k ⊗ I."""
    z0 = configurations.gaussian(p.hardmax, 2, p.seed)
    tr = simulate(PureAttention(alpha=1.0), z0, layers=30)
    sets = roles(tr)
    M = [(np.eye(p.hardmax) + sets.followed(k).weights()) / 2 for k in range(31)]
    K = min(p.K, p.hardmax)
    frozen = max((k + 1 for k in range(30) if (M[k] != M[k + 1]).any()), default=0)
    rows = []
    for k in range(30):
        groups = clusters(tr.values[k], NEAR * float(np.linalg.norm(z0, axis=1).mean())).count
        rows.append((k, coupling(M[k], M[k + 1], K), groups, k >= frozen))
    tol = 1e-12
    later = max((row[1] for row in rows if row[3]), default=0.0)
    check = Check(
        theorem="coupling",
        reference="arXiv 2407.07810 for hardmax attention, arXiv 2407.01602",
        statement="layers are perfectly coupled, m_K = 0, once the sets C_i no longer change",
        applies=frozen < 30,
        holds=later <= tol if frozen < 30 else None,
        margin=tol - later,
        tol=tol,
        witness={"frozen from layer": frozen, "m_K at layer 0": rows[0][1]},
        hypotheses=(),
        arithmetic="float64",
    )
    columns = ("layer", f"m_{K} with the next", "clusters", "sets no longer change")
    return Table("Hardmax attention, alpha = 1", columns, tuple(rows)), check


def _figures(depth: Table, repeated: Table, exact: Table) -> tuple[Picture, ...]:
    from ...drawing.plot import PALETTE
    from ...pretrained.pictures import grid

    axes = grid(1, 3, (13.0, 3.8))[0]
    pairs = list(dict.fromkeys(row[0] for row in depth.rows))
    place = [pairs.index(row[0]) for row in depth.rows]
    axes[0].plot(place, [r[3] for r in depth.rows], "o", color=PALETTE[0], label="m_K")
    others = (
        (4, "s", PALETTE[2], "without trace"),
        (5, "x", "#8C8C8C", "turned copy: no coupling"),
    )
    for column, marker, colour, label in others:
        axes[0].plot(place, [r[column] for r in depth.rows], marker, color=colour, label=label)
    axes[0].set_xticks(range(len(pairs)), pairs)
    axes[0].set(xlabel="layers", ylabel="m_K", title="layers in turn")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=8)
    state = [row[1] for row in repeated.rows]
    sides = (
        (axes[1], state, [r[2] for r in repeated.rows], [r[4] for r in repeated.rows]),
        (
            axes[2],
            [r[0] for r in exact.rows],
            [r[1] for r in exact.rows],
            [r[2] for r in exact.rows],
        ),
    )
    for ax, x, values, groups in sides:
        ax.plot(x, values, "o-", color=PALETTE[0], ms=4)
        ax.set_ylabel("m_K", color=PALETTE[0])
        other = ax.twinx()
        other.plot(x, groups, "s--", color=PALETTE[1], ms=3)
        other.set_ylabel("clusters", color=PALETTE[1])
        other.spines[:].set_visible(False)
        other.tick_params(labelsize=7.5, length=0)
        ax.set_ylim(bottom=0)
        other.set_ylim(bottom=0)
    axes[1].set(xlabel="times run", title=repeated.title, xscale="log")
    axes[2].set(xlabel="layer", title="hardmax attention")
    caption = (
        "Left: consecutive layers of the model, one dot per token followed. Middle: one layer on "
        "its own output. Right: hardmax attention, where coupling is perfect once the pattern is "
        "frozen."
    )
    return (Picture("Coupling and clusters", caption, axes[0].figure),)
