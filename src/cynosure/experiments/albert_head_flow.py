"""The idealised flow of a real head, run for a long time (arXiv 2305.05465, as for ALBERT).

x_i' = sum_j P_ij V x_j with the A and V of a trained head, biases left out, seen at its own growth:
y_i = exp(-l1 t) x_i. For a good triple the coordinates f1*(y_i) along the leading eigenvector end
at most at three values, {a, 0, b}: see the lines meet. Other heads make no such promise; the table
has them all. Beside each run: how long the attention of the start predicts it (master equation).

Trap: time is in units of 1/l1, and an adaptive stepper can stall on stiff heads, hence RK4.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np

from ..clustering import clusters
from ..pretrained import Trace, Transformer
from ..pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ..pretrained.heads import Head
from ..report import Picture, Report, Table
from ..simulation import simulate
from ..steppers import RK4
from ..theorems import Check, Hypothesis
from ..trajectory import Trajectory
from . import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "The flow of a real head"
NEAR = 1e-3  # values of f1* closer than this times the largest at the start count as one
STEP_ERROR = 1e-5  # of RK4 at the steps used here, in the same unit


@final
@dataclass(frozen=True)
class Params:
    """`model` as in albert_spectra. `time` and `dt` in units of 1/l1; `heads` bounds how many heads
    are run (0: all), `drawn` how many good triples are drawn; `tokens` random ones beside the text.
    """

    model: str = ""
    text: str = "The film was slow but the ending is wonderful."
    time: float = 15.0
    dt: float = 0.05
    heads: int = 0
    drawn: int = 3
    tokens: int = 32
    seed: int = 0


QUICK = Params(time=10.0, dt=0.25, heads=2, drawn=1, tokens=10)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every head alone from the text and from random tokens; the good triples drawn."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.time <= 0 or p.dt <= 0 or p.heads < 0 or p.drawn < 1 or p.tokens < 1:
        raise ValueError(
            "albert_head_flow: time and dt are positive, heads from 0, drawn and tokens from 1; "
            f"got {p}"
        )
    say(0.0, "model")
    return _measure(p, example_transformer(p.model, p.text, "albert"), say)


@ONE_THREAD
def _measure(p: Params, m: Transformer, say: Progress) -> Report:
    trace = m.trace(p.text)
    found = [head for layer in m.distinct_layers for head in m.heads(layer)]
    good = {head.name for head in found if _is_good(head)}
    order = sorted(found, key=lambda head: head.name not in good)
    chosen = order[: p.heads or len(order)]
    rows, checks, pictures = [], {}, []
    for done, head in enumerate(chosen):
        say(0.1 + 0.8 * done / len(chosen), head.name)
        starts = {"text": _text_tokens(trace, head), "random": _random(p, head)}
        for name, z0 in starts.items():
            tr = replace(_flow(p, head, z0), words=trace.words if name == "text" else None)
            rows.append(_row(head, name, tr, head.name in good))
            if head.name in good:
                checks[f"{head.name}, {name}"] = (three_values(head, tr),)
            if done < p.drawn:
                pictures.append(_picture(head, name, tr, head.name in good))
    say(0.9, "master equation")
    frozen, table = _master(p, chosen[0], _text_tokens(trace, chosen[0]))
    say(1.0, "done")
    return Report(
        TITLE,
        weights_note(m) + _summary(p, m.name, len(found), len(good), rows, checks),
        asdict(p),
        (_table(rows), table),
        checks,
        (*pictures, frozen),
        command="cynosure run albert_head_flow",
    )


def _is_good(head: Head) -> bool:
    return next(h.holds for h in head.hypotheses() if h.name == "good triple")


def three_values(head: Head, tr: Trajectory) -> Check:
    """B26 on a run with fixed steps: f1* stays in its range and ends at a, 0 or b.

    f_i' = l1 (sum_j P_ij f_j - f_i) for f = f1*, so once P stands still f arrives like e^{-l1 t},
    which tells from the last step how far it has still to go.
    """
    lead = head.leading
    assert lead is not None  # a good triple has one
    f = tr.values @ lead.dual
    size = float(np.abs(f[0]).max()) or 1.0
    span = lead.value * float(tr.t[-1] - tr.t[-2])
    left = float(np.abs(f[-1] - f[-2]).max() / np.expm1(span)) / size
    end = f[-1]
    away = np.minimum(np.abs(end), np.minimum(end - end.min(), end.max() - end)).max() / size
    inward = np.minimum(f[:-1].max(1) - f[1:].max(1), f[1:].min(1) - f[:-1].min(1)).min() / size
    tol = 10 * left + STEP_ERROR
    margin = min(tol - float(away), STEP_ERROR + float(inward))
    still = Hypothesis("values of f1* stand still (estimated distance to go)", left <= NEAR, left)
    applies = still.holds and tr.status.code == "done"
    return Check(
        theorem="B26",
        reference="arXiv 2305.05465, lemma on three hyperplanes",
        statement="good triple: f1*(y_i) stays in its range and tends to at most {a, 0, b}",
        applies=applies,
        holds=margin >= 0 if applies else None,
        margin=margin if applies else float("nan"),
        tol=tol,
        witness={"a": float(end.min()), "b": float(end.max()), "away": float(away)},
        hypotheses=(Hypothesis("good triple", True, lead.gap), still),
        arithmetic="float64",
    )


def _text_tokens(trace: Trace, head: Head) -> np.ndarray:
    """What the attention of the head's layer is given, in float64."""
    return trace.seen[head.layer].astype(np.float64)


def _random(p: Params, head: Head) -> np.ndarray:
    rng = np.random.default_rng([p.seed, head.layer, head.index])
    return rng.standard_normal((p.tokens, head.Q.shape[1]))


def _rate(head: Head) -> float:
    """l1, the largest real part in the spectrum of V (0 outside the head's range)."""
    top = max(float(head.V_eigenvalues.real.max()), 0.0)
    return top or float(np.abs(head.V_eigenvalues).max()) or 1.0


def _flow(p: Params, head: Head, z0: np.ndarray) -> Trajectory:
    """Steps of dt/l1, shorter where the rest of the spectrum is larger than l1."""
    scale = _rate(head)
    stiff = max(1.0, float(np.abs(head.V_eigenvalues - scale).max()) / scale)
    flow = replace(head, causal=False).leading_flow()
    steps = int(np.ceil(p.time / (p.dt / stiff)))
    every = max(1, steps // 120)
    stepper = RK4(p.time / scale / steps)
    return simulate(flow, z0, time=p.time / scale, stepper=stepper, save_every=every, throw=False)


def _values(head: Head, tr: Trajectory) -> np.ndarray | None:
    """f1* of the tokens by time, or None when V has no real positive leading eigenvalue."""
    return None if head.leading is None else tr.values @ head.leading.dual


def _row(head: Head, name: str, tr: Trajectory, good: bool) -> tuple:
    f, y = _values(head, tr), tr.values[-1]
    scale = float(np.sqrt((y**2).sum(axis=1).mean())) or 1.0
    ends: Any = (None, None, None)
    if f is not None:
        groups = clusters(f[-1][:, None], NEAR * max(float(np.abs(f[0]).max()), 1e-300))
        ends = (groups.count, float(f[-1].min()), float(f[-1].max()))
    moved = float(np.abs(y - tr.values[-2]).max()) / scale
    return (
        head.name, name, good, _rate(head), tr.status.code, *ends,
        clusters(y / scale, 0.01).count, len(y), moved,
    )  # fmt: skip


def _table(rows: list[tuple]) -> Table:
    columns = (
        "head", "start", "good triple", "l1", "status", "values of f1*", "least", "largest",
        "clusters of y", "tokens", "last step",
    )  # fmt: skip
    note = (
        f"Values of f1* are counted at {NEAR:g} of the largest at the start, clusters of y at 1 % "
        "of the token length; – where V has no real positive eigenvalue. Biases and norms are left "
        "out: this is the flow of the theory, not of the model."
    )
    return Table("Every head alone", columns, tuple(rows), note)


def _summary(
    p: Params, name: str, heads: int, good: int, rows: list[tuple], checks: dict[str, tuple]
) -> str:
    mine = [row for row in rows if row[2]]
    most = max((row[5] for row in mine), default=None)
    judged = [c for group in checks.values() for c in group if c.applies]
    text = (
        f"{name}: {good} of {heads} heads are good triples. {len(rows)} runs to time {p.time:g}/l1."
    )
    if mine:
        text += (
            f" The {len(mine)} runs of good triples end with at most {most} distinct values of "
            f"f1*. The theorem allows three in the limit; in {len(judged)} runs f1* stands still, "
            "and "
            f"there it holds {sum(bool(c.holds) for c in judged)} times."
        )
    return text


def _picture(head: Head, name: str, tr: Trajectory, good: bool) -> Picture:
    from ..pretrained.pictures import grid, word_paths

    axes = grid(1, 2, (12.5, 5.4))[0]
    f = _values(head, tr)
    t = tr.t * _rate(head)
    if f is not None:
        axes[0].plot(t, f, lw=1.1)
        axes[0].axhline(0, color="#8C8C8C", lw=0.8, ls=":")
        axes[0].set_ylabel("f1*(y_i)", fontsize=9)
    else:
        axes[0].plot(t, np.linalg.norm(tr.values, axis=-1), lw=1.1)
        axes[0].set_ylabel("|y_i|", fontsize=9)
    axes[0].set_xlabel("time, in 1/l1", fontsize=9)
    _, left = word_paths(tr, axes[1])
    kind = "good triple" if good else "no good triple"
    start = "the tokens of the text" if name == "text" else "random tokens"
    lost = f" {left} words found no place." if left else ""
    caption = (
        f"From {start}. Left: the coordinate along the leading eigenvector of V. Right: y on two "
        f"principal directions, circles at the start, dots at the end.{lost}"
    )
    return Picture(f"{head.name} from {name} ({kind})", caption, axes[0].figure)


def _master(p: Params, head: Head, z0: np.ndarray) -> tuple[Picture, Table]:
    """The same flow in x, against X' = P X Vᵀ with P frozen at the start and half-way."""
    from ..pretrained.pictures import curves, grid

    scale = _rate(head)
    horizon = min(p.time, 4.0)  # x grows like e^{l1 t}
    head = replace(head, causal=False)
    times = np.linspace(0, horizon / scale, 11)
    tr = simulate(head.flow(), z0, times=times, stepper=RK4(0.05 / scale), throw=False)
    rows, lines = [], {}
    for at in (0, 5):
        x = tr.values[at:]
        P = head.attention().weights(x[0])
        said = frozen_attention(P, head, x[0], times[at:] - times[at])
        error = np.linalg.norm(x - said, axis=(1, 2)) / np.linalg.norm(x, axis=(1, 2))
        t = times[at:] * scale
        lines[f"P frozen at {t[0]:.2g}/l1"] = (t, error)
        rows += [(float(t[0]), *pair) for pair in zip(t.tolist(), error.tolist(), strict=True)]
    ax = grid(1, 1, (6.4, 3.6))[0, 0]
    curves(ax, lines, "relative error of the prediction")
    ax.set_xlabel("time, in 1/l1", fontsize=9)
    ax.legend(frameon=False, fontsize=8)
    caption = (
        f"{head.name} from the text: X' = P X Vᵀ with P frozen, against the run. Small as long as "
        "the attention of the start keeps its word."
    )
    columns = ("frozen at", "time", "relative error")
    return (
        Picture("Frozen attention", caption, ax.figure),
        Table(f"Frozen attention, {head.name}", columns, tuple(rows), "Times in units of 1/l1."),
    )


def frozen_attention(P: np.ndarray, head: Head, x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The solution of X' = P X Vᵀ from x at equally spaced times, (times, n, d).

    By the action of the exponential alone: V of a head has a large kernel, which makes its
    eigenvectors a poor basis.
    """
    from scipy.sparse.linalg import LinearOperator, expm_multiply

    V, shape = head.V, x.shape
    generator = LinearOperator(
        (x.size, x.size),
        matvec=lambda y: (P @ y.reshape(shape) @ V.T).ravel(),
        rmatvec=lambda y: (P.T @ y.reshape(shape) @ V).ravel(),
        dtype=np.float64,
    )
    trace = float(np.trace(P) * np.trace(V))
    grid = {"start": 0.0, "stop": float(times[-1]), "num": len(times), "endpoint": True}
    out = expm_multiply(generator, x.ravel(), traceA=trace, **grid)
    return np.asarray(out).reshape(len(times), *shape)
