"""The idealised flow of a real head, run for a long time (arXiv 2305.05465, as for ALBERT).

x_i' = sum_j P_ij V x_j with the A and V of a trained head, biases left out (a causal head without
its mask, a rotary one at offset 0), seen at its own growth: y_i = exp(-l1 t) x_i. For a good triple
the coordinates f1*(y_i) along the leading eigenvector end at most at three values, {a, 0, b}: see
the lines meet. Few values are no mark of a good triple, though: heads that are not good, Gaussian
matrices and uniform attention end with as few. See the table "Heads beside null models".

Then all heads of a layer together, x_i' = sum_h V_h sum_j P^h_ij x_j, with tokens held on the
sphere as a norm would: there, see how soon all tokens are one, beside Gaussian heads and uniform
attention.

The paper's heads 5 and 14, counted from 1, are 4 and 13 here, where heads are counted from 0:
`cynosure run head_flow --model FOLDER --set only=4,13` with ALBERT-xlarge-v2 in FOLDER.
Trap: time is in units of 1/l1. Some heads do not remember their start: see the column "twin".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.examples import ONE_THREAD
from cynosure.pretrained.reading.head_flows import TWIN, decay, growth_rate, head_run
from cynosure.theorems import Hypothesis

from ._crowds import Crowd, alone, crowd_controls, crowd_summary, crowd_table, crowds_of
from ._head_ends import (
    COUNTS,
    GAUSSIAN,
    GOOD,
    NEAR,
    OTHER,
    UNIFORM,
    Ends,
    Row,
    end_controls,
    ends_table,
    grouped,
    uniform_row,
    values_of,
)
from ._models import TEXTS, Measured, models_of, read_as, side_by_side
from ._null_heads import is_good, named_heads, random_head

TITLE = "The flow of a real head (MiniLM's, where no other model is named)"
GROWN = 1e6  # tokens this many times longer than at the start carry f1* in their rounding only
FORGETS = 0.01  # a run whose twin ends this far away does not remember its start
STEP_ERROR = 1e-5  # of RK4 at the steps used here, in the same unit


@dataclass(frozen=True)
class Params:
    """`model` and `only` as in head_spectra. `time` and `dt` in units of 1/l1; `heads` bounds how
    many heads are run (0: all), `drawn` how many good triples are drawn; `tokens` random ones
    beside the text. Good triples start from `starts` draws of these; `nulls` Gaussian heads are run
    like the heads. `together` is the time for which all heads of a layer run together (0: not at
    all), in units of one over the largest eigenvalue of the sum of their V."""

    model: str = ""
    only: str = ""
    text: str = TEXTS[0]
    time: float = 12.0
    dt: float = 0.2
    heads: int = 12
    drawn: int = 2
    tokens: int = 16
    starts: int = 2
    nulls: int = 6
    together: float = 15.0
    seed: int = 0


QUICK = Params(time=10.0, dt=0.25, heads=2, drawn=1, tokens=10, starts=2, nulls=1, together=5.0)


@ONE_THREAD
def run(p: Params, progress: cy.study.Progress | None = None) -> cy.study.Report:
    """Every head alone from the text and from random tokens; the good triples drawn."""
    say = progress or cy.study.silent
    sensible = min(p.time, p.dt) > 0 <= min(p.heads, p.together, p.nulls)
    sensible = sensible and min(p.drawn, p.tokens, p.starts) >= 1
    cy.study.require(
        sensible, "time, dt > 0, heads, together, nulls >= 0, drawn, tokens, starts >= 1", p
    )
    say(0.0, "model")
    models = models_of(p.model, p.text, "albert")
    return side_by_side(p, models, partial(_measured, p), say, _bars)


def _measured(p: Params, m: cy.pretrained.Transformer, say: cy.study.Progress) -> Measured:
    trace = m.trace(read_as(m, p.text))
    heads = [head for layer in m.distinct_layers for head in m.heads(layer)]
    good = {head.name for head in heads if is_good(head)}
    named = named_heads(heads, p.only)
    chosen = sorted(named, key=lambda head: head.name not in good)[: p.heads or len(named)]
    every = [
        (head, start, z0, p.time, p.dt, done < p.drawn and start in ("text", "random"))
        for done, head in enumerate(chosen)
        for start, z0 in _starts(p, trace, head, p.starts if head.name in good else 1).items()
    ]
    found = cy.study.kept_each(
        _one, every, cy.study.part(say, 0.1, 0.6), [args[0].name for args in every]
    )
    runs, checks, pictures = [row for row, _, _ in found], {}, []
    for (head, start, *_), (row, check, tr) in zip(every, found, strict=True):
        if check is not None:
            checks[f"{head.name}, {start}"] = [check]
        if tr is not None:
            words = trace.words if start == "text" else None
            pictures.append(_picture(head, row, replace(tr, words=words)))
    say(0.6, "null models")
    ends = grouped([*runs, *_null_runs(p, trace, chosen)])
    say(0.75, "all heads together")
    crowds = _all_together(p, m, trace, {head.layer for head in chosen})
    judged = [check for (check,) in checks.values() if check.applies]
    summary = f"{m.name}: {len(good)} of {len(heads)} heads are good triples. "
    together = [crowd_table(crowds)] if crowds else []
    report = cy.study.report_of(
        p,
        summary + _summary(p, runs, judged, crowds),
        controls=[*end_controls(ends), *crowd_controls(crowds)],
        tables=[ends_table(ends), _table(runs), *together],
        checks=checks,
        figures=pictures,
    )
    few = {e.group: f"{e.within(2)} of {e.heads}" for e in ends if e.start == "text"}
    clusters = {
        said: [r["clusters of y"] for r in runs if r["group"] == said and r["start"] == "text"]
        for said in (GOOD, OTHER)
    }
    facts = {
        "good triples": len(good),
        "three values hold": f"{sum(bool(c.holds) for c in judged)} of {len(judged)}",
        **{f"at most 2 values: {g}": few.get(g) for g in (GOOD, OTHER, GAUSSIAN, UNIFORM)},
        **{f"clusters of y: {g}": float(np.median(n)) if n else None for g, n in clusters.items()},
        **{f"one cluster together: {k}": f"{a} of {b}" for k, (a, b) in alone(crowds).items()},
    }
    return Measured(report, facts, ends)


def _bars(names: list[str], drawn: list[list[Ends]]) -> cy.study.Picture:
    """Share of heads, by group, whose flow from the text ends with one value, with at most two."""
    figure, axes = cy.plot.sheet(1, len(names), 4.2, 3.4)
    blue, orange, *_ = cy.plot.PALETTE
    for ax, name, ends in zip(axes[0], names, drawn):
        mine = [e for e in ends if e.start == "text" and e.heads]
        at = np.arange(len(mine))
        for k, colour, label in ((2, orange, "at most two values"), (1, blue, "one value")):
            shares = [e.within(k) / e.heads for e in mine]
            ax.barh(at, shares, color=colour, height=0.3 * k, label=label)
        ax.set_yticks(at, [f"{e.group} ({e.heads})" for e in mine], fontsize=8)
        ax.set(xlim=(0, 1), xlabel="share of the heads")
        ax.invert_yaxis()
        ax.set_title(name, fontsize=cy.plot.TITLE, loc="left")
    cy.plot.legend_below(axes[0, 0])
    caption = (
        "Flows of single heads from the text: how many distinct values f1* has at the end. In "
        "brackets the number of heads that can be counted."
    )
    return cy.study.Picture("How the flows of heads end", caption, figure)


def three_values(head: cy.pretrained.Head, tr: cy.Trajectory) -> cy.theorems.Check:
    """The statement of B26 on a run with fixed steps: f1* stays in its range, ends at a, 0 or b.

    f_i' = l1 (sum_j P_ij f_j - f_i) for f = f1*, so once P stands still f arrives like e^{-l1 t},
    which tells from the last step how far it has still to go.
    """
    lead = head.leading
    assert lead is not None  # a good triple has one
    f = tr.values @ lead.dual
    size = float(np.abs(f[0]).max()) or 1.0
    span = lead.value * float(tr.t[-1] - tr.t[-2])
    to_go = float(np.abs(f[-1] - f[-2]).max() / np.expm1(span)) / size
    end = f[-1]
    away = np.minimum(np.abs(end), np.minimum(end - end.min(), end.max() - end)).max() / size
    inward = np.minimum(f[:-1].max(1) - f[1:].max(1), f[1:].min(1) - f[:-1].min(1)).min() / size
    tol = 10 * to_go + STEP_ERROR
    margin = min(tol - float(away), STEP_ERROR + float(inward))
    still = Hypothesis("values of f1* stand still (estimated distance to go)", to_go <= NEAR, to_go)
    applies = still.holds and tr.status.code == "done"
    return cy.theorems.Check(
        theorem="three values",
        reference="B26: arXiv 2305.05465, lemma on three hyperplanes",
        statement="good triple: f1*(y_i) stays in its range and tends to at most {a, 0, b}",
        applies=applies,
        holds=margin >= 0 if applies else None,
        margin=margin if applies else float("nan"),
        tol=tol,
        witness={"a": float(end.min()), "b": float(end.max()), "away": float(away)},
        hypotheses=(Hypothesis("good triple", True, lead.gap), still),
        arithmetic="float64",
    )


def _starts(
    p: Params, trace: cy.pretrained.Trace, head: cy.pretrained.Head, draws: int = 1
) -> dict[str, np.ndarray]:
    """What the attention of the head's layer is given, and `draws` times random tokens."""
    out = {"text": trace.seen[head.layer].astype(np.float64)}
    for k in range(draws):
        rng = np.random.default_rng([p.seed, head.layer, head.index, *([k] if k else [])])
        name = f"random {k + 1}" if k else "random"
        out[name] = rng.standard_normal((p.tokens, head.Q.shape[1]))
    return out


def _null_runs(p: Params, trace: cy.pretrained.Trace, heads: list[cy.pretrained.Head]) -> list[Row]:
    """Gaussian heads in the place of some of the heads; uniform attention in that of all."""
    every = []
    for head in heads[:: max(1, len(heads) // p.nulls)][: p.nulls] if p.nulls else ():
        copy = random_head(head, np.random.default_rng([p.seed, head.layer, head.index, 0, 1]))
        starts = _starts(p, trace, head).items()
        every += [(copy, start, z0, p.time, p.dt, False) for start, z0 in starts]
    out = [row | {"group": GAUSSIAN} for row, _, _ in cy.study.kept_each(_one, every)]
    for head in heads:
        starts = _starts(p, trace, head).items()
        out += [uniform_row(head, start, z0, p.time) for start, z0 in starts]
    return out


def _all_together(
    p: Params, m: cy.pretrained.Transformer, trace: cy.pretrained.Trace, layers: set[int]
) -> list[Crowd]:
    """All heads of each layer on the sphere; in every other layer its null models too."""
    out = []
    for number, layer in enumerate(sorted(layers) if p.together else ()):
        heads, nulls = m.heads(layer), p.nulls > 0 and number % 2 == 0
        out += crowds_of(heads, _starts(p, trace, heads[0]), p.together, nulls, p.seed)
    return out


def _one(
    head: cy.pretrained.Head, start: str, z0: np.ndarray, time: float, dt: float, drawn: bool
) -> tuple[Row, cy.theorems.Check | None, cy.Trajectory | None]:
    """Row and check of one run; the run itself, which is large, only where it will be drawn."""
    tr, twin = head_run(head, z0, time, dt)
    row = _row(head, start, tr, twin)
    return row, three_values(head, tr) if row["good triple"] else None, tr if drawn else None


def _values(head: cy.pretrained.Head, tr: cy.Trajectory) -> np.ndarray | None:
    """f1* of the tokens by time, or None when V has no real positive leading eigenvalue."""
    return None if head.leading is None else tr.values @ head.leading.dual


def _row(head: cy.pretrained.Head, start: str, tr: cy.Trajectory, twin: float) -> Row:
    f, y = _values(head, tr), tr.values[-1]
    scale, before = (float(np.sqrt((x**2).sum(axis=1).mean())) or 1.0 for x in (y, tr.values[0]))
    end: Row = dict.fromkeys((*COUNTS, "least", "largest"))
    if f is not None and scale < GROWN * before:
        size = float(np.abs(f[0]).max())
        end = {name: values_of(f[-1], size, near) for name, near in COUNTS.items()}
        end |= {"least": float(f[-1].min()), "largest": float(f[-1].max())}
    good = is_good(head)
    return {
        "head": head.name,
        "start": start,
        "group": GOOD if good else OTHER,
        "good triple": good,
        "l1": growth_rate(head),
        "status": tr.status.code,
        **{name: end[name] for name in ("values of f1*", "least", "largest")},
        "clusters of y": cy.clusters(y / scale, 0.01).count,
        "tokens": len(y),
        "rate": decay(head, tr),
        "growth": scale / before,
        "last step": float(np.abs(y - tr.values[-2]).max()) / scale,
        "twin": twin,
        **{name: end[name] for name in ("finer", "coarser")},
    }


def _table(runs: list[Row]) -> cy.study.Table:
    note = (
        f"Values of f1* are counted at {NEAR:g} of the largest at the start, clusters of y at 1 % "
        "of the token length; – where V has no real positive eigenvalue. Rate c: steps of y shrink "
        "like e^{-c l1 t} in the second half; about 0: it circles or wanders. Growth: length of y, "
        "end over start; large where groups of tokens look at each other (P has an eigenvalue near "
        "-1) and V has one beyond -l1: f1* then drowns in rounding (–). Twin: relative distance at "
        f"the end to a run that starts {TWIN:g} away; above {FORGETS:g} rounding chooses the end."
    )
    hidden = ("group", "finer", "coarser")  # these are for the null models
    columns = {name: itemgetter(name) for name in runs[0] if name not in hidden}
    return cy.study.Table.of("Every head alone", runs, columns, note)


def _summary(
    p: Params, runs: list[Row], judged: list[cy.theorems.Check], crowds: list[Crowd]
) -> str:
    counts = [r["values of f1*"] or 0 for r in runs if r["good triple"]]
    seen = [n for r in runs if not r["good triple"] and (n := r["values of f1*"]) is not None]
    lost = dict.fromkeys(r["head"] for r in runs if r["twin"] > FORGETS)
    text = f"{len(runs)} runs to time {p.time:g}/l1."
    if counts:
        text += (
            f" The {len(counts)} runs of good triples end with at most {max(counts)} "
            f"distinct values of f1*. The theorem allows three in the limit; in {len(judged)} runs "
            f"f1* stands still, and there it holds {sum(bool(c.holds) for c in judged)} times."
        )
    if seen:
        few = sum(count <= 2 for count in seen)
        text += f" Of the runs of other heads that can be counted {few} of {len(seen)} end with at"
        text += " most 2, and uniform attention always with one."
    if lost:
        text += f"\n\n{len(lost)} heads do not remember their start: {', '.join(lost)}."
    return f"{text}\n\n{crowd_summary(crowds)}" if crowds else text


def _picture(head: cy.pretrained.Head, row: Row, tr: cy.Trajectory) -> cy.study.Picture:
    from cynosure.pretrained.pages.pictures import word_paths

    figure, axes = cy.plot.sheet(1, 2, 6.25, 5.4)
    left, right = axes[0]
    f = _values(head, tr)
    left.plot(tr.t * row["l1"], np.linalg.norm(tr.values, axis=-1) if f is None else f, lw=1.1)
    left.set(xlabel="time, in 1/l1", ylabel="|y_i|" if f is None else "f1*(y_i)")
    left.set_title("along the leading eigenvector", fontsize=cy.plot.TITLE, loc="left")
    right.set_title("the tokens y", fontsize=cy.plot.TITLE, loc="left")
    if f is not None:
        left.axhline(0, color=cy.plot.GREY, lw=0.8, ls=":")
    _, unplaced = word_paths(tr, right)
    kind = "good triple" if row["good triple"] else "no good triple"
    start = "the tokens of the text" if row["start"] == "text" else "random tokens"
    lost = f" {unplaced} words found no place." if unplaced else ""
    caption = (
        f"From {start}. Left: the coordinate along the leading eigenvector of V. Right: y on two "
        f"principal directions, circles at the start, dots at the end.{lost}"
    )
    return cy.study.Picture(f"{head.name} from {row['start']} ({kind})", caption, figure)
