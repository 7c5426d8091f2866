"""report(): one page on one run, which stays small: tables are cut, pictures draw a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from .._types import fingerprint
from ..analysis.clustering import clusters
from ..analysis.findings import findings
from ..analysis.leaders import can_lead, roles
from ..analysis.limits import Limit
from ..analysis.spectra import LimitingObject
from ..engine.joining import RELATIVE_TOL, usual_tol
from ..simulation.trajectory import Trajectory
from ..theorems import Check
from ..theorems import check as judge
from .markers import evenly
from .report import Picture, Report
from .tables import Table

__all__ = ["report"]

MOST_STATES = 40  # rows of the table by layer
MOST_ROWS = 200  # rows of a table of tokens, leaders or clusters
MOST_DRAWN = 1500  # tokens in a picture, besides the leaders
MOST_COORDINATES = 8  # of a token in a table; entries of a matrix are cut at its square
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
    """Makes one page on one run: how it went, who leads, where tokens end, what is proved.

    Parameters
    ----------
    trajectory
        The run.
    limit
        Its proved limit. It is computed for hardmax runs from layer 0. Other runs get the clusters
        of their last state and what `recognise` calls it.
    checks
        The checks to show; all theorems by default.
    title
        The heading; made from the tokens by default.
    command
        The line that repeats the run.
    inputs
        Names and values for the table of parameters.

    Returns
    -------
    Report
        A notebook shows it, and `.save("report.html")` writes it.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.PureAttention(), [[2.0, 0.0], [1.0, 0.5], [0.0, 1.0]], layers=5)
    >>> page = cy.report(tr)
    >>> page.title, [table.title for table in page.tables]
    ('3 tokens of dimension 2', ['Layer by layer', 'Leaders', 'Limits'])
    >>> page.tables[2].rows[1][1]
    'follows a leader: token 0, proved at layer 0'
    """
    if trajectory.z.ndim != 3:
        raise ValueError(
            f"report: expected one configuration, z of shape (saved, n, d); got "
            f"{tuple(trajectory.z.shape)}. Report trajectory.select(b)"
        )
    found = findings(trajectory)
    if limit is None:
        limit = found.limit
    elif limit.exact_points is None:  # in rationals it may be that of other tokens
        found.limit = limit
    end = found.end
    n, d = len(trajectory.real), trajectory.z.shape[-1]
    return Report(
        title=title or f"{_count(n, 'token')} of dimension {d}",
        summary="\n\n".join(_summary(trajectory, limit, end)),
        params=_params(trajectory) | dict(inputs or {}),
        tables=tuple(_tables(trajectory, limit, end)),
        checks={"this run": tuple(judge(trajectory) if checks is None else checks)},
        figures=tuple(_figures(trajectory, limit)),
        command=command,
    )


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
    n, d = len(trajectory.real), trajectory.z.shape[-1]
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
    left = len(limit.undecided)
    text = (
        f"Limits at infinite depth: {n - left} of {n} proved after "
        f"{_count(limit.layers, 'layer')}; {_count(len(limit.leaders), 'leader')}; "
        f"arithmetic: {limit.arithmetic}."
    )
    if left:
        text += (
            f" The limits of {_count(left, 'token')} are undecided: their rows hold the last layer "
            "computed. More layers may decide them; if A is not symmetric positive definite there "
            "may be no limit."
        )
    return text


def _params(trajectory: Trajectory) -> dict[str, Any]:
    """The model with its parameters, the size of the run, and a hash of its tokens."""
    model: Any = trajectory.dynamics
    given: dict[str, Any] = {"dynamics": "unknown" if model is None else type(model).__name__}
    given |= _fields(model)
    given["time" if trajectory.in_time else "layers"] = trajectory.t[-1].item()
    if trajectory.stepper is not None:
        given["stepper"] = str(trajectory.stepper)
    _, n, d = trajectory.z.shape
    given |= {"n": n, "d": d, "states saved": len(trajectory)}
    return given | {"tokens_sha256": fingerprint(trajectory.values[0])}


def _fields(model: Any) -> dict[str, str]:
    made = fields(model) if is_dataclass(model) else ()
    return {f.name: _said(getattr(model, f.name)) for f in made if f.init}


def _said(value: Any) -> str:
    """A parameter in one line: small matrices in full, objects with their fields."""
    if isinstance(value, np.ndarray):
        small = value.size <= MOST_COORDINATES**2
        return str(value.tolist()) if small else " x ".join(map(str, value.shape)) + " matrix"
    if is_dataclass(value):
        inner = ", ".join(f"{name} = {x}" for name, x in _fields(value).items())
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
        return
    if end is not None:
        yield _clusters_at_end(trajectory, end)
    yield _last_state(trajectory, end)


def _by_layer(trajectory: Trajectory) -> Table:
    """Leaders, clusters and size of the hull at some of the saved states."""
    values, d = trajectory.tokens, trajectory.z.shape[-1]
    flow = trajectory.in_time
    born = roles(trajectory).born if can_lead(trajectory) else None
    hulls = d < 3 or (d == 3 and values.shape[1] <= MOST_IN_SPACE)
    measure = f"{('width', 'area', 'volume')[d - 1]} of the hull" if hulls else "radius"
    rows = []
    for at in evenly(len(values), MOST_STATES):
        k, z = trajectory.t[at].item(), values[at]
        led = () if born is None else (int(((born >= 0) & (born <= k)).sum()),)
        # Tokens that grow are compared with their own size, those that contract with the start's.
        count = clusters(z, max(usual_tol(z), usual_tol(values[0]))).count
        rows.append((k, *led, count, _size(trajectory, at, z, hulls)))
    notes = [f"Tokens within {RELATIVE_TOL:g} of the longest make a cluster."]
    if not hulls:
        notes.append("The radius is the largest distance of a token from the mean of all.")
    if len(rows) < len(values):
        notes.append(f"Shown are {len(rows)} of {len(values)} saved states.")
    columns = ("time" if flow else "layer", *(() if born is None else ("leaders",)))
    name = "Time by time" if flow else "Layer by layer"
    return Table(name, (*columns, "clusters", measure), tuple(rows), " ".join(notes))


def _size(trajectory: Trajectory, row: int, z: np.ndarray, hulls: bool) -> float | None:
    """Width, area or volume of the hull of the saved state number `row`, or the radius."""
    if np.abs(z).max() > TAME:
        return None
    if not hulls:
        return float(np.linalg.norm(z - z.mean(axis=0), axis=1).max())
    found, d = findings(trajectory), z.shape[1]
    body = found.hull(row)
    return float(np.ldexp(body.volume, d * found.exponent)) if body.dim == d else 0.0


def _leaders(trajectory: Trajectory, limit: Limit) -> Table:
    """The leaders with how many tokens tend to them, the most followed first."""
    tending = limit.follows[trajectory.real]
    members = _largest(tending[tending >= 0])
    rows = tuple(
        (i, *_word(trajectory, i), int(limit.born[i]), m, _token(limit.points[i]))
        for i, m in members[:MOST_ROWS]
    )
    columns = ("leader", *_word(trajectory), "leads since layer", "tokens that end there")
    notes = [] if len(rows) == len(members) else [f"The first {len(rows)} of {len(members)}."]
    others = int((tending < 0).sum())
    if others:
        notes.append(f"{_count(others, 'token')} tied or undecided: see the limits.")
    return Table("Leaders", (*columns, "where"), rows, " ".join(notes))


def _limits(trajectory: Trajectory, limit: Limit) -> Table:
    real = trajectory.real
    points: Any = limit.points if limit.exact_points is None else limit.exact_points
    rows = tuple(
        (i, *_word(trajectory, i), limit.in_words(i), _token(points[i]), float(limit.margin[i]))
        for i in real[:MOST_ROWS].tolist()
    )
    columns = ("token", *_word(trajectory), "how the limit is known", "limit")
    note = "The smallest gap is between the best and the next score, before the token settled."
    note += _cut(len(rows), len(real), limit.points.shape[1], "`cynosure limit --out` writes all.")
    return Table("Limits", (*columns, "smallest gap"), rows, note)


def _clusters_at_end(trajectory: Trajectory, end: LimitingObject) -> Table:
    real = trajectory.real
    labels, z = end.labels[real], trajectory.values[-1][real]
    members = _largest(labels)
    rows = tuple((c, m, _token(z[labels == c].mean(axis=0))) for c, m in members[:MOST_ROWS])
    note = "" if len(rows) == len(members) else f"The first {len(rows)} of {len(members)}."
    return Table("Clusters at the end", ("cluster", "tokens", "mean of its tokens"), rows, note)


def _last_state(trajectory: Trajectory, end: LimitingObject | None) -> Table:
    real, z = trajectory.real, trajectory.values[-1]
    number = (roles(trajectory).born if end is None else end.labels).tolist()
    rows = tuple(
        (i, *_word(trajectory, i), number[i] if number[i] >= 0 else None, _token(z[i]))
        for i in real[:MOST_ROWS].tolist()
    )
    name = "leads since layer" if end is None else "cluster"
    columns = ("token", *_word(trajectory), name, "where")
    note = _cut(len(rows), len(real), z.shape[1], "`cynosure simulate --json` gives all.")
    return Table("The last state", columns, rows, note.strip())


def _largest(labels: np.ndarray) -> list[tuple[int, int]]:
    """(label, how many have it), the commonest first."""
    found, members = np.unique(labels, return_counts=True)
    order = np.argsort(-members, kind="stable")
    return list(zip(found[order].tolist(), members[order].tolist()))


def _word(trajectory: Trajectory, i: int | None = None) -> tuple[str, ...]:
    """The column of the words, or the word of token i; nothing where tokens are no words."""
    words = trajectory.words
    return () if words is None else ("word" if i is None else words[i],)


def _token(x: Any) -> tuple:
    """The first coordinates of a token, as numbers a table knows how to write."""
    return tuple(c if not isinstance(c, np.generic) else float(c) for c in x[:MOST_COORDINATES])


def _cut(rows: int, n: int, d: int, whole: str) -> str:
    """What a table of tokens leaves out, in words."""
    text = f" Shown are the first {rows} of {n} tokens; {whole}" if rows < n else ""
    if d > MOST_COORDINATES:
        text += f" Of {d} coordinates the first {MOST_COORDINATES} are shown."
    return text


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
    real = trajectory.real
    hardmax = can_lead(trajectory)
    if len(real) <= MOST_DRAWN or (hardmax and trajectory.history is None):
        return trajectory, note
    chosen = np.zeros(trajectory.z.shape[1], dtype=bool)
    chosen[real[evenly(len(real), MOST_DRAWN)]] = True
    if hardmax:  # the mask hides tokens; who leads stands in the history and stays true
        chosen[roles(trajectory).leaders] = True
        sample = replace(trajectory, mask=chosen)
    else:
        sample = replace(trajectory, z=trajectory.z[:, chosen], mask=None, words=None)
    return sample, f"{note} Drawn are {int(chosen.sum())} of {len(real)} tokens."
