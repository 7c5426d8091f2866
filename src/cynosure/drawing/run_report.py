"""report(): one page on one run, from its trajectory: pictures, layers, limits, theorem checks.

The page stays small whatever the run: tables are cut after some rows, pictures draw a sample of
many tokens, and both say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ..analysis.clustering import clusters
from ..analysis.leaders import can_lead, roles
from ..analysis.limits import Limit
from ..analysis.limits import limit as prove
from ..analysis.polytope import hull
from ..analysis.spectra import LimitingObject, recognise
from ..simulation.trajectory import Trajectory
from ..theorems import Check
from ..theorems import check as judge
from .report import Picture, Report
from .tables import Table

__all__ = ["fingerprint", "report"]

MOST_STATES = 40  # rows of the table by layer
MOST_ROWS = 200  # rows of a table of tokens, leaders or clusters
MOST_DRAWN = 1500  # tokens in a picture, besides the leaders
MOST_COORDINATES = 8  # of a token in a table; entries of a matrix are cut at its square
CLUSTER_TOL = 1e-3  # tokens closer than this share of the largest coordinate are one cluster
PROOF_WORK = 1_000_000  # tokens times layers spent on a proof that was not handed over
MOST_IN_SPACE = 1500  # tokens of R^3 whose hull is computed at every state of a table
TAME = 1e100  # beyond, squares leave the floats: such states have no size and are not drawn


def report(
    trajectory: Trajectory,
    limit: Limit | None = None,
    checks: Iterable[Check] | None = None,
    *,
    title: str = "",
    command: str = "",
    inputs: Mapping[str, Any] | None = None,
) -> Report:
    """One page on one run: what it was, how it went, who leads, where tokens end, what is proved.

    A hardmax run from layer 0 gets the certified limit of every token with the rule that proves
    it in words; `limit` is computed when it is not handed over, unless no limit can be proved for
    the dynamics. Other runs get the clusters of their last state and what `recognise` calls it.
    `checks` are all theorems unless given. `inputs` are names and values for the table of
    parameters (where the tokens came from, for instance), `command` the line that repeats it all.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.PureAttention(), [[2.0, 0.0], [1.0, 0.5], [0.0, 1.0]], layers=5)
    >>> page = cy.report(tr)
    >>> page.title, [table.title for table in page.tables]
    ('3 tokens of dimension 2', ['Layer by layer', 'Leaders', 'Limits'])
    >>> page.tables[2].rows[1][2]
    'follows a leader: token 0, proved at layer 0'
    """
    if trajectory.z.ndim != 3:
        raise ValueError(
            f"report: expected one configuration, z of shape (saved, n, d); got "
            f"{tuple(trajectory.z.shape)}. Report trajectory.select(b)"
        )
    layers = trajectory.made_by.hardmax_layers if can_lead(trajectory) else None
    if limit is None and layers is not None and layers.normalised:
        work = max(100, PROOF_WORK // trajectory.z.shape[1])
        z0 = trajectory.values[0]
        limit = prove(trajectory.made_by, z0, mask=trajectory.mask, max_layers=work)
    end = None if can_lead(trajectory) else recognise(trajectory)
    n, d = len(_real(trajectory)), trajectory.z.shape[-1]
    return Report(
        title=title or f"{_count(n, 'token')} of dimension {d}",
        summary="\n\n".join(_summary(trajectory, limit, end)),
        params=_params(trajectory) | dict(inputs or {}),
        tables=tuple(_tables(trajectory, limit, end)),
        checks={"this run": tuple(judge(trajectory) if checks is None else checks)},
        figures=tuple(_figures(trajectory, limit)),
        command=command,
    )


def fingerprint(values: np.ndarray) -> str:
    """SHA-256 of the numbers themselves (little-endian float64, row by row)."""
    return hashlib.sha256(np.asarray(values).astype("<f8").tobytes()).hexdigest()


def _real(trajectory: Trajectory) -> np.ndarray:
    """Indices of the tokens that are no padding."""
    every = np.arange(trajectory.z.shape[1])
    return every if trajectory.mask is None else every[trajectory.mask]


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


# --- text ----------------------------------------------------------------------------------------


def _summary(
    trajectory: Trajectory, limit: Limit | None, end: LimitingObject | None
) -> Iterable[str]:
    status, last = trajectory.status, trajectory.t[-1]
    flow = trajectory.in_time
    span = f"Time 0 to {last:g}" if flow else _count(int(last), "layer")
    name = "a given run" if trajectory.dynamics is None else type(trajectory.dynamics).__name__
    n, d = len(_real(trajectory)), trajectory.z.shape[-1]
    yield f"{span} of {name} on {_count(n, 'token')} of dimension {d}."
    how = f"{status.code}: {status.message} {status.advice}".rstrip()
    if status.failed:
        how = f"The run failed; this page shows it up to where it stopped. {how}"
    yield how[:1].upper() + how[1:]
    if limit is not None:
        yield _limit_sentence(limit, n)
    if end is not None:
        yield f"The last state: {end}."
    for note in status.notes:
        yield f"Note: {note}"


def _limit_sentence(limit: Limit, n: int) -> str:
    open_ = len(limit.undecided)
    text = (
        f"Limits at infinite depth: {n - open_} of {n} proved after "
        f"{_count(limit.layers, 'layer')}; {_count(len(limit.leaders), 'leader')}; "
        f"arithmetic: {limit.arithmetic}."
    )
    if not open_:
        return text
    return (
        f"{text} The limits of {_count(open_, 'token')} are undecided: their rows hold the last "
        "layer computed. More layers may decide them; if A is not symmetric positive definite "
        "there may be no limit."
    )


def _params(trajectory: Trajectory) -> dict[str, Any]:
    """The model with its parameters, the size of the run, and a hash of its tokens."""
    model: Any = trajectory.dynamics
    given: dict[str, Any] = {"dynamics": "unknown" if model is None else type(model).__name__}
    if is_dataclass(model):
        given |= {f.name: _said(getattr(model, f.name)) for f in fields(model) if f.init}
    given["time" if trajectory.in_time else "layers"] = trajectory.t[-1].item()
    if trajectory.stepper is not None:
        given["stepper"] = str(trajectory.stepper)
    _, n, d = trajectory.z.shape
    given |= {"n": n, "d": d, "states saved": len(trajectory)}
    return given | {"tokens_sha256": fingerprint(trajectory.values[0])}


def _said(value: Any) -> str:
    """A parameter in one line: small matrices in full, objects with their fields."""
    if isinstance(value, np.ndarray):
        small = value.size <= MOST_COORDINATES**2
        return str(value.tolist()) if small else " x ".join(map(str, value.shape)) + " matrix"
    if is_dataclass(value):
        inner = ", ".join(
            f"{f.name} = {_said(getattr(value, f.name))}" for f in fields(value) if f.init
        )
        return f"{type(value).__name__}({inner})"
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value))
    return str(value)


# --- tables --------------------------------------------------------------------------------------


def _tables(
    trajectory: Trajectory, limit: Limit | None, end: LimitingObject | None
) -> Iterable[Table]:
    yield _by_layer(trajectory)
    if limit is not None:
        yield _leaders(trajectory, limit)
        yield _limits(trajectory, limit)
    else:
        if end is not None:
            yield _clusters_at_end(trajectory, end)
        yield _last_state(trajectory, end)


def _by_layer(trajectory: Trajectory) -> Table:
    """Leaders, clusters and size of the hull at some of the saved states."""
    values, d = trajectory.values[:, _real(trajectory)], trajectory.z.shape[-1]
    flow = trajectory.in_time
    born = roles(trajectory).born if can_lead(trajectory) else None
    hulls = d < 3 or (d == 3 and values.shape[1] <= MOST_IN_SPACE)
    size = f"{('width', 'area', 'volume')[d - 1]} of the hull" if hulls else "radius"
    rows = []
    for at in _some(len(values), MOST_STATES):
        k, z = trajectory.t[at].item(), values[at].astype(np.float64)
        led = () if born is None else (int(((born >= 0) & (born <= k)).sum()),)
        rows.append((k, *led, _clusters_in(z, values[0]), _size(z, hulls)))
    notes = [f"Tokens within {CLUSTER_TOL:g} of the largest coordinate make a cluster."]
    if not hulls:
        notes.append("The radius is the largest distance of a token from the mean of all.")
    if len(rows) < len(values):
        notes.append(f"Shown are {len(rows)} of {len(values)} saved states.")
    columns = ("time" if flow else "layer", *(() if born is None else ("leaders",)))
    name = "Time by time" if flow else "Layer by layer"
    return Table(name, (*columns, "clusters", size), tuple(rows), " ".join(notes))


def _clusters_in(z: np.ndarray, first: np.ndarray) -> int:
    """Tokens that grow are compared with their own size, those that contract with the start's."""
    scale = max(float(np.abs(z).max()), float(np.abs(first).max()))
    return clusters(z, CLUSTER_TOL * scale).count


def _size(z: np.ndarray, hulls: bool) -> float | None:
    """Width, area or volume of the hull, or else the radius about the mean of all tokens."""
    if np.abs(z).max() > TAME:
        return None
    if not hulls:
        return float(np.linalg.norm(z - z.mean(axis=0), axis=1).max())
    body = hull(z)
    return body.volume if body.dim == z.shape[1] else 0.0


def _leaders(trajectory: Trajectory, limit: Limit) -> Table:
    """The leaders with how many tokens tend to them, the most followed first."""
    tending = limit.follows[_real(trajectory)]
    leaders, members = np.unique(tending[tending >= 0], return_counts=True)
    order = np.argsort(-members, kind="stable")
    rows = tuple(
        (i, *_word(trajectory, i), int(limit.born[i]), m, _token(limit.points[i]))
        for i, m in zip(leaders[order][:MOST_ROWS].tolist(), members[order].tolist())
    )
    columns = ("leader", *_word_column(trajectory), "leads since layer", "tokens that end there")
    notes = [] if len(rows) == len(leaders) else [f"The first {len(rows)} of {len(leaders)}."]
    others = len(tending) - int(members.sum())
    if others:
        notes.append(f"{_count(others, 'token')} tied or undecided: see the limits.")
    return Table("Leaders", (*columns, "where"), rows, " ".join(notes))


def _limits(trajectory: Trajectory, limit: Limit) -> Table:
    real = _real(trajectory)
    points: Any = limit.points if limit.exact_points is None else limit.exact_points
    rows = tuple(
        (
            i,
            *_word(trajectory, i),
            limit.in_words(i),
            _token(points[i]),
            float(limit.margin[i]),
        )
        for i in real[:MOST_ROWS].tolist()
    )
    columns = ("token", *_word_column(trajectory), "how the limit is known", "limit")
    note = "The smallest gap is between the best and the next score, before the token settled."
    note += _cut(len(rows), len(real), limit.points.shape[1], "`cynosure limit --out` writes all.")
    return Table("Limits", (*columns, "smallest gap"), rows, note)


def _clusters_at_end(trajectory: Trajectory, end: LimitingObject) -> Table:
    real = _real(trajectory)
    labels, z = end.labels[real], trajectory.values[-1][real]
    numbers, members = np.unique(labels, return_counts=True)
    order = np.argsort(-members, kind="stable")
    rows = tuple(
        (c, m, _token(z[labels == c].mean(axis=0)))
        for c, m in zip(numbers[order][:MOST_ROWS].tolist(), members[order].tolist())
    )
    note = "" if len(rows) == len(numbers) else f"The first {len(rows)} of {len(numbers)}."
    return Table("Clusters at the end", ("cluster", "tokens", "mean of its tokens"), rows, note)


def _last_state(trajectory: Trajectory, end: LimitingObject | None) -> Table:
    real, z = _real(trajectory), trajectory.values[-1]
    number = (roles(trajectory).born if end is None else end.labels).tolist()
    rows = tuple(
        (i, *_word(trajectory, i), number[i] if number[i] >= 0 else None, _token(z[i]))
        for i in real[:MOST_ROWS].tolist()
    )
    name = "leads since layer" if end is None else "cluster"
    columns = ("token", *_word_column(trajectory), name, "where")
    note = _cut(len(rows), len(real), z.shape[1], "`cynosure simulate --json` gives all.")
    return Table("The last state", columns, rows, note.strip())


def _word_column(trajectory: Trajectory) -> tuple[str, ...]:
    return () if trajectory.words is None else ("word",)


def _word(trajectory: Trajectory, i: int) -> tuple[str, ...]:
    return () if trajectory.words is None else (trajectory.words[i],)


def _token(x: Any) -> tuple:
    """The first coordinates of a token, as numbers a table knows how to write."""
    return tuple(c if not isinstance(c, np.generic) else float(c) for c in x[:MOST_COORDINATES])


def _cut(rows: int, n: int, d: int, whole: str) -> str:
    """What a table of tokens leaves out, in words."""
    text = f" Shown are the first {rows} of {n} tokens; {whole}" if rows < n else ""
    if d > MOST_COORDINATES:
        text += f" Of {d} coordinates the first {MOST_COORDINATES} are shown."
    return text


def _some(total: int, most: int) -> list[int]:
    """At most `most` of 0..total - 1, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(int)).tolist()


# --- pictures ------------------------------------------------------------------------------------


def _figures(trajectory: Trajectory, limit: Limit | None) -> Iterable[Picture]:
    from . import plot

    drawn, note = _drawable(trajectory)
    flow = trajectory.in_time
    what = "The tokens at some times" if flow else "The tokens at some layers"
    shaded = "; the last panel shades the hull of the leaders" if can_lead(trajectory) else ""
    yield Picture(what, f"Each panel is a state of the run{shaded}.{note}", plot.layers(drawn))
    if limit is not None and len(drawn) > 1 and (drawn.values[0] != limit.points).any():
        caption = (
            "Distance of each token from its limit, by layer. A token whose leader stands still "
            "approaches it at the dashed rate exactly."
        )
        figure = plot.convergence(drawn, limit).figure
        yield Picture("How fast tokens reach their limits", caption + note, figure)


def _drawable(trajectory: Trajectory) -> tuple[Trajectory, str]:
    """The run without huge states and, of many tokens, a sample with every leader; what is left."""
    tops = np.abs(trajectory.values).max(axis=(1, 2))
    tame = max(1, int(np.searchsorted(tops > TAME, True)))
    note = ""
    if tame < len(trajectory):
        note = f" States from {trajectory.t[tame]:g} on are too large to draw."
        trajectory = replace(trajectory, z=trajectory.z[:tame], t=trajectory.t[:tame])
    real = _real(trajectory)
    hardmax = can_lead(trajectory)
    if len(real) <= MOST_DRAWN or (hardmax and trajectory.history is None):
        return trajectory, note
    chosen = np.zeros(trajectory.z.shape[1], dtype=bool)
    chosen[real[_some(len(real), MOST_DRAWN)]] = True
    if hardmax:  # the mask hides tokens; who leads stands in the history and stays true
        chosen[roles(trajectory).leaders] = True
        sample = replace(trajectory, mask=chosen)
    else:
        sample = replace(trajectory, z=trajectory.z[:, chosen], mask=None, words=None)
    return sample, f"{note} Drawn are {int(chosen.sum())} of {len(real)} tokens."
