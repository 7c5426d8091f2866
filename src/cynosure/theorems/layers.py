"""LayerRun: a run of normalised hardmax layers, opened for the statements B1..B19.

Tokens and A are scaled by powers of two so that their largest entries lie in [1/2, 1); slacks and
tolerances are in these units. With u the rounding unit of the stored states, w the widest set and R
the longest token, a stored layer is within

    step = (w + 16) u sqrt(d)    of the layer map applied to the stored layer before it, and within
    error = (K + 1) step         of the exact trajectory, since the layer map averages (C8).

Every tolerance is a Lipschitz constant of the statement times one of these two.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from .._types import definite
from .._types import positive as definite_part
from ..analysis.leaders import recomputed_history
from ..analysis.limits import Limit, limit
from ..analysis.polytope import Polytope
from ..dynamics import HardmaxLayers, PureAttention
from ..engine.followed import Followed, History
from .checks import Hypothesis, Reading, U, need, none

WORK = 1e8  # multiplications one check may spend; larger runs are sampled, with a fixed seed


@final
@dataclass(frozen=True, eq=False)
class LayerRun(Reading):
    """A trajectory opened for checking: scaled states of the real tokens, sets, limits."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr, alpha = self.trajectory, self.trajectory.made_by.exact_alpha
        layers = tr.made_by.hardmax_layers
        layered = layers is not None and layers.normalised
        step = () if alpha is None else (Hypothesis("alpha > 0", alpha > 0, float(alpha)),)
        right = Hypothesis.of("normalised layers of hardmax attention", layered)
        return self.alone, right, self.every_layer, self.steps, *step

    @property
    def hardmax(self) -> HardmaxLayers:
        """The layers of the run; `base` has asked whether they are hardmax layers."""
        layers = self.trajectory.made_by.hardmax_layers
        assert layers is not None
        return layers

    @cached_property
    def z(self) -> np.ndarray:
        """States (K + 1, n, d) of the real tokens, scaled by a power of two."""
        return np.ldexp(self.states, -self.found.exponent)

    @cached_property
    def A_given(self) -> np.ndarray:
        A = self.hardmax.attention.A
        return np.eye(self.d) if A is None else A

    @cached_property
    def A(self) -> np.ndarray:
        return np.ldexp(self.A_given, -self.exponent_A)

    @cached_property
    def exponent_A(self) -> int:
        return int(np.frexp(np.abs(self.A_given).max())[1])

    @property
    def layers(self) -> int:
        return len(self.z) - 1

    @cached_property
    def rho(self) -> float:
        return float(1 / (1 + self.hardmax.alpha))

    @property
    def eta(self) -> float:
        return float(self.hardmax.alpha / (1 + self.hardmax.alpha))

    @cached_property
    def history(self) -> History:
        """The run's own history; what it does not hold is computed again from layer 0."""
        own = self.trajectory.history
        whole = own if own is not None and own.records else recomputed_history(self.trajectory)
        told, real = own or whole, self.real
        assert whole.label is not None
        return replace(
            whole,
            born=told.born[real],
            settled_at=told.settled_at[real],
            label=whole.label[real],
        )

    @property
    def born(self) -> np.ndarray:
        return self.history.born

    @cached_property
    def label(self) -> np.ndarray:
        """Value class of each token."""
        return self.sets[0].label

    @cached_property
    def sets(self) -> list[Followed]:
        """The sets C_i by layer; layers at which nothing was searched share one object."""
        searched = {record.layer for record in self.history.records}
        out: list[Followed] = []
        for k in range(self.layers + 1):
            out.append(self.history.followed(k) if k in searched or not out else out[-1])
        return out

    def single(self, k: int) -> np.ndarray:
        """The first token of the one class that i follows at layer k; -1 if it follows several."""
        f = self.sets[k]
        one = np.diff(f.indptr) == 1
        return np.where(one, f.first[f.indices[f.indptr[:-1]]], -1)[f.label]

    def edges(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(i, j) for every class of i and every class of j in C_i, by their first tokens."""
        f = self.sets[k]
        return f.first.repeat(np.diff(f.indptr)), f.first[f.indices]

    @cached_property
    def limit(self) -> Limit:
        """The proved limits of layer 0, in the scaled units.

        Trap: scaling loses the digits of the smallest floats, and with them who leads; so the
        limits are those of the tokens as given, scaled afterwards.
        """
        found = self.found.limit
        if found is None or self.trajectory.mask is not None:  # one without padding
            layers = PureAttention(self.hardmax.attention, self.hardmax.alpha)
            found = limit(layers, self.states[0], deadline=self.found.deadline.left)
        return replace(found, points=np.ldexp(found.points, -self.found.exponent))

    # -- sizes and errors ---------------------------------------------------------------------

    @cached_property
    def R(self) -> float:
        return float(np.linalg.norm(self.z[0], axis=1).max())

    @cached_property
    def size_A(self) -> float:
        return float(np.linalg.norm(self.A))

    @cached_property
    def step(self) -> float:
        grain = float(np.finfo(self.trajectory.values.dtype).smallest_subnormal)
        size = float(np.abs(self.trajectory.values[0, self.real]).max(initial=grain))
        u = max(self.u, grain / size)
        widest = max(int(f.size.max()) for f in {id(f): f for f in self.sets}.values())
        return (widest + 16) * u * float(np.sqrt(self.d))

    @property
    def error(self) -> float:
        return (self.layers + 1) * self.step

    @property
    def end_error(self) -> float:
        """Error of a limit read off the last two layers, see `ends`."""
        return self.error + 2 * self.step / self.eta

    def score_error(self, error: float | None = None) -> float:
        """|computed - exact| of a score <A z_i, z_j> of tokens known to within `error`."""
        e = self.error if error is None else error
        return self.size_A * ((2 * self.d + 4) * U * self.R**2 + 2 * self.R * e + e * e)

    def form(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """<A x, y> along the last axis."""
        return ((x @ self.A.T) * y).sum(axis=-1)

    def norm(self, x: np.ndarray) -> np.ndarray:
        """|x|_A along the last axis."""
        return np.sqrt(self.form(x, x).clip(0))

    def norm_error(self, x: np.ndarray) -> np.ndarray:
        """What rounding does to `norm`: |sqrt(q + e) - sqrt(q)| <= e / max(sqrt(q), sqrt(e)).

        Much for a form that is nearly singular in the direction of x, a unit or two elsewhere.
        """
        e = (2 * self.d + 4) * U * self.size_A * (x * x).sum(axis=-1)
        return e / np.maximum(np.maximum(self.norm(x), np.sqrt(e)), 1e-300)

    @cached_property
    def squares(self) -> np.ndarray:
        """|z_i^k|_A^2, shape (K + 1, n)."""
        return np.stack([self.form(z, z) for z in self.z])

    # -- samples ------------------------------------------------------------------------------

    def sample(self, among: np.ndarray, cost: float | int) -> np.ndarray:
        """All of `among` if `cost` multiplications for each are affordable, else a seeded part."""
        most = max(8, int(WORK / max(cost, 1.0)))
        if len(among) <= most:
            return among
        return np.sort(np.random.default_rng(0).choice(among, most, replace=False))

    @cached_property
    def rows(self) -> np.ndarray:
        """The tokens looked at where a statement compares a token with all others."""
        return self.sample(np.arange(self.n), self.n * self.d * (self.layers + 1))

    def top(self, k: int, rows: np.ndarray, *, others: bool = False) -> np.ndarray:
        """M_i = max_l <A z_i, z_l> at layer k; with `others` over the other value classes only."""
        out = np.empty(len(rows))
        block = max(1, int(4e6) // self.n)
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            scores = (self.z[k, part] @ self.A.T) @ self.z[k].T
            if others:
                scores[self.label[part][:, None] == self.label] = -np.inf
            out[start : start + block] = scores.max(axis=1)
        return out

    @cached_property
    def tops(self) -> np.ndarray:
        """M_i of the sampled rows, shape (K + 1, rows)."""
        return np.stack([self.top(k, self.rows) for k in range(self.layers + 1)])

    def gaps(self, k: int, rows: np.ndarray) -> np.ndarray:
        """|z_i|_A^2 - max over other classes of <A z_i, z_j>: positive exactly when i leads."""
        top = self.top(k, rows, others=True)
        return self.squares[k, rows] - np.where(np.isinf(top), 0.0, top)

    @cached_property
    def straight(self) -> np.ndarray:
        """Tokens whose last step was along the line to their limit, and long enough to be one."""
        settled = self.history.settled_at
        return (settled >= 0) & (settled < self.layers) & (self.eta > 2.0**-40)

    @cached_property
    def ends(self) -> np.ndarray:
        """(z^K - rho z^{K-1}) / eta: the limit of a straight token, from the last two layers."""
        with np.errstate(over="ignore", invalid="ignore"):  # where no token is straight
            return (self.z[-1] - self.rho * self.z[-2]) / self.eta

    @cached_property
    def leaderless(self) -> np.ndarray:
        """Tokens whose proved limit is no leader."""
        return np.flatnonzero(self.limit.follows < 0)

    def outside(self, polytope: Polytope) -> np.ndarray:
        """Distances from the polytope of the limits that are no leader, each once."""
        points = np.unique(self.limit.points[self.leaderless], axis=0)
        return polytope.distance(points) if len(points) else np.empty(0)


def nearest(x: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The distance of each row of x from the nearest of the points."""
    if len(x) * points.size > 1e6:
        from scipy.spatial import cKDTree

        return cKDTree(points).query(x)[0]
    return np.sqrt(((x[:, None] - points) ** 2).sum(axis=2).min(axis=1, initial=np.inf))


symmetric = need(
    "A symmetric (largest |A - A^T|)", lambda run: np.abs(run.A_given - run.A_given.T).max(), none
)


def positive(run: LayerRun) -> Hypothesis:
    part = (run.A + run.A.T) / 2
    least, ok = float(np.ldexp(np.linalg.eigvalsh(part)[0], run.exponent_A)), False
    with suppress(np.linalg.LinAlgError):  # definite by less than rounding: there is no A-norm
        ok = len(np.linalg.cholesky(part)) > 0 and definite_part(run.A_given)
    return Hypothesis("symmetric part of A positive definite (least eigenvalue)", ok, least)


nonzero = need(
    "tokens non-zero (number of zero tokens)",
    lambda run: (run.states[0] == 0).all(axis=1).sum(),
    none,
)
several = need(
    "at least two distinct tokens (number)", lambda run: run.label.max() + 1, lambda n: n > 1
)
proved = need(  # without a definite A nothing need converge: do not try 100,000 layers to see it
    "every limit proved by limit() (number undecided)",
    lambda run: len(run.limit.undecided) if definite(run.A) else run.n,
    none,
)
SPD = (symmetric, positive)
THEOREM_1_1 = (symmetric, positive, nonzero, proved)
