"""observe(): quantities along a run, state by state, as one xarray Dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from .._frames import dataset
from .._types import as_number, as_tokens
from ..engine.joining import usual_tol
from ..simulation.trajectory import Trajectory
from .clustering import bounded, clusters
from .leaders import can_lead, roles
from .spectra.rates import energy

Quantity: TypeAlias = Callable[[np.ndarray], Any]  # of the tokens (n, d)
Series: TypeAlias = Callable[[Trajectory, float | int | None], np.ndarray]  # run, tolerance
_Asked: TypeAlias = tuple[str, Series, str]


def effective_rank(z: Any) -> float:
    """exp of the entropy of the squared singular values of the tokens: 1 on a line through 0."""
    squares = np.linalg.svd(as_tokens(z, ndim=2).astype(np.float64), compute_uv=False) ** 2
    share = squares[squares > 0] / (squares.sum() or 1.0)
    return float(np.exp(-(share * np.log(share)).sum())) if len(share) else 0.0


def mean_cosine(z: np.ndarray) -> float:
    """Mean cosine of the pairs of tokens; NaN for fewer than two that are not 0."""
    length = np.linalg.norm(z, axis=1)
    unit = z[length > 0] / length[length > 0, None]
    m = len(unit)
    return float(((unit.sum(axis=0) ** 2).sum() - m) / (m * (m - 1))) if m > 1 else float("nan")


def order_parameter(z: np.ndarray) -> float:
    """|mean of z/|z||: 1 where all tokens point one way."""
    length = np.linalg.norm(z, axis=1, keepdims=True)
    return float(np.linalg.norm((z / np.where(length > 0, length, 1)).mean(axis=0)))


def diameter(z: np.ndarray) -> float:
    """Largest distance of two tokens."""
    squares = (z * z).sum(axis=1)
    apart = squares[:, None] + squares - 2 * z @ z.T
    i, j = np.unravel_index(int(apart.argmax()), apart.shape)
    return float(np.linalg.norm(z[i] - z[j]))


def spread(z: np.ndarray) -> float:
    """Root-mean-square distance of the tokens from their mean."""
    return float(np.sqrt(((z - z.mean(axis=0)) ** 2).sum(axis=1).mean()))


def observe(
    trajectory: Any, *what: str | Quantity, tol: float | int | None = None, **named: Quantity
) -> Any:
    """Evaluates quantities at every saved state of a run. Nothing is interpolated.

    Parameters
    ----------
    trajectory
        A run, or a batch of runs.
    *what
        Names from the list below, and functions of the real tokens (n, d) of one state that return
        a number or an array.
    tol
        The distance at which "clusters" joins tokens. By default a thousandth of the longest token
        of the start, once what is known to grow is divided out.
    **named
        Functions with a name of your own: `observe(run, norm=lambda z: abs(z).max())`.

    Returns
    -------
    xarray.Dataset
        Over layer or time, and over the batch.

    Notes
    -----
    - "clusters": how many there are, by the rule of `clusters`
    - "leaders": how many lead since this layer or before, from the exact sets of a hardmax run
    - "energy": mean of exp(beta (<x_i, x_j> - 1)), with the beta and the matrix A of the dynamics
    - "speed": largest motion of a token since the state before, per layer or unit of time
    - "diameter", "effective rank", "longest", "mean cosine", "order parameter", "spread"

    Examples
    --------
    >>> import cynosure as cy
    >>> run = cy.simulate(cy.PureAttention(), cy.configurations.figure2(2), layers=4)
    >>> cy.observe(run, "leaders", "clusters").leaders.values.tolist()
    [2, 3, 3, 3, 3]
    """
    trajectory = getattr(trajectory, "trajectory", trajectory)  # of a record that has one
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"observe: expected a Trajectory, got {type(trajectory).__name__}")
    if not what and not named:
        raise ValueError(f"observe: name what to observe; there are {', '.join(QUANTITIES)}")
    if tol is not None:
        tol = as_number(tol, "tol", "a finite distance, at least 0", lambda x: 0 <= x < np.inf)
    first = "time" if trajectory.in_time else "layer"
    shape = tuple(trajectory.z.shape[1:-2])
    parts = [trajectory.select(*at) for at in np.ndindex(shape)] if shape else [trajectory]
    batch = tuple(f"batch_{k}" for k in range(len(shape)))
    values, about = {}, {}
    for name, series, meaning in _named(what, named):
        if name in values:
            raise ValueError(f"observe: {name!r} is there twice")
        columns = [series(part, tol) for part in parts]
        if len({x.shape for x in columns}) > 1:
            raise ValueError(f"{name}: expected one shape in all of the batch, got several")
        stacked = np.stack(columns, axis=1).reshape(len(trajectory), *shape, *columns[0].shape[1:])
        own = tuple(f"{name}_{k}" for k in range(columns[0].ndim - 1))
        values[name] = ((first, *batch, *own), stacked)
        about[name] = meaning
    found = dataset(values, {first: trajectory.t}, {"made_by": repr(trajectory.made_by)})
    for name, meaning in about.items():
        found[name].attrs["long_name"] = meaning
    return found


def _named(what: tuple[str | Quantity, ...], named: dict[str, Quantity]) -> Iterator[_Asked]:
    """Name, what it is along a run, and what it is in words."""
    for one in what:
        if isinstance(one, str):
            name = one.replace("_", " ")
            if name not in QUANTITIES:
                raise ValueError(
                    f"observe: no quantity {one!r}; there are {', '.join(QUANTITIES)}, and any "
                    "function of the tokens (n, d)"
                )
            yield name.replace(" ", "_"), *QUANTITIES[name]
        elif callable(one):
            name = getattr(one, "__name__", type(one).__name__)
            if not name.isidentifier():
                raise ValueError("observe: name a lambda, observe(run, radius=lambda z: ...)")
            yield name, _each(one), name
        else:
            raise TypeError(f"observe: expected names and functions, got {one!r}")
    for name, function in named.items():
        yield name, _each(function), name


def _each(quantity: Quantity) -> Series:
    return lambda run, tol: np.stack([np.asarray(quantity(z)) for z in run.tokens])


def _clusters(run: Trajectory, tol: float | int | None) -> np.ndarray:
    states = bounded(run)
    near = usual_tol(states[0]) if tol is None else tol
    return np.array([clusters(z, near).count for z in states])


def _leaders(run: Trajectory, tol: float | int | None) -> np.ndarray:
    if not can_lead(run):
        raise ValueError(
            "observe: leaders are those of hardmax layers from layer 0, and this run is of "
            f"{type(run.made_by).__name__}; of softmax ask for 'clusters'"
        )
    found = roles(run)
    return np.array([len(found.led_at(int(k))) for k in run.t])


def _energy(run: Trajectory, tol: float | int | None) -> np.ndarray:
    attention: Any = run.made_by.attention
    while not hasattr(attention, "beta") and hasattr(attention, "attention"):
        attention = attention.attention  # of a causal one
    if not hasattr(attention, "beta"):
        raise ValueError(
            f"observe: the energy has the beta of a softmax, and {type(run.made_by).__name__} has "
            "none; ask for energy=lambda z: cy.spectra.energy(z, beta)"
        )
    z, form = run.tokens, run.made_by.score_matrix
    seen = z if form is None else z @ np.asarray(form).T
    return energy(z, float(attention.beta), seen)


def _speed(run: Trajectory, tol: float | int | None) -> np.ndarray:
    """NaN at the first state."""
    steps = np.linalg.norm(np.diff(run.tokens, axis=0), axis=-1).max(axis=-1)
    return np.concatenate([[np.nan], steps / np.diff(run.t)])


QUANTITIES: dict[str, tuple[Series, str]] = {
    "clusters": (_clusters, "number of clusters"),
    "diameter": (_each(diameter), "largest distance of two tokens"),
    "effective rank": (_each(effective_rank), "effective rank"),
    "energy": (_energy, "interaction energy"),
    "leaders": (_leaders, "tokens that lead"),
    "longest": (_each(lambda z: np.linalg.norm(z, axis=1).max()), "largest |z_i|"),
    "mean cosine": (_each(mean_cosine), "mean cosine of pairs"),
    "order parameter": (_each(order_parameter), "length of the mean direction"),
    "speed": (_speed, "largest motion of a token, per unit of time"),
    "spread": (_each(spread), "root-mean-square distance from the mean"),
}
