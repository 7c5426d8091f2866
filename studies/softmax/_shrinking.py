"""V without an eigenvalue of positive real part: do the tokens x_i' = sum_j P_ij V x_j tend to 0?

V = -I brings every token to 0 like t^(-1/2) (docs/mathematics.md B28), and most such V do. But
nothing forces it. P(t) times V need not be stable where V is: a group of tokens that look at each
other in turn gives P eigenvalues off the real axis, which turn those of V, and a complex pair of V
close to the imaginary axis may be turned across it. Then x grows, attention hardens, and as hard
attention does not see the length of x, it goes on growing like e^{ct}. The part of
`value_spectrum` that counts how often, at two steps and from starts of several sizes.

Trap: how *fast* such tokens grow depends on the step. Under hard attention they change their minds
again and again, and a fixed step decides a little late. Whether they grow does not.
"""

from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st

__all__ = ["Descent", "WEAK", "comparisons", "descend", "table", "text"]

WEAK = 0.5  # a complex pair is weakly damped when -Re < WEAK |Im|
_STEP = 0.5  # of RK4, in units of 1/|l|, l the eigenvalue of V largest in modulus
FINER = 10  # times: weakly damped V are run again at this finer step


class Descent(NamedTuple):
    """The longest token over time, from one start at several sizes, under one such V."""

    d: int
    eigenvalues: np.ndarray
    sizes: tuple[float, ...]  # half the side of the box of starts; the first is the one reported
    t: np.ndarray  # in units of 1/|l|
    longest: np.ndarray  # (sizes, times)
    finer: np.ndarray | None  # the same at the finer step; None unless weakly damped

    @property
    def damping(self) -> float:
        """The least -Re/|Im| over the complex pairs of V; infinity without one."""
        pairs = self.eigenvalues[np.abs(self.eigenvalues.imag) > 1e-9]
        return float((-pairs.real / np.abs(pairs.imag)).min(initial=np.inf))

    @property
    def grows(self) -> bool:
        return bool(self.longest[0, -1] > self.longest[0, 0])

    def grows_at(self, size: int, finer: bool = False) -> bool:
        course = self.finer if finer else self.longest
        return course is not None and bool(course[size, -1] > course[size, 0])

    @property
    def exponent(self) -> float:
        """The fitted power of t in the longest token over the last decade."""
        late = self.t >= self.t[-1] / 10
        return float(np.polyfit(np.log(self.t[late]), np.log(self.longest[0, late]), 1)[0])


def descend(V: np.ndarray, z0: np.ndarray, sizes: tuple[float, ...], time: float) -> Descent:
    """z0 in the unit box, followed from every size to the time 30 `time` (in 1/|l|)."""
    values = np.linalg.eigvals(V)
    fastest = float(np.abs(values).max())
    times = np.append(0, np.geomspace(0.1, 30 * time, 60))
    starts = np.array(sizes)[:, None, None] * z0

    def longest(step: float) -> np.ndarray:
        flow, stepper = cy.dynamics.EuclideanFlow(V=V), cy.simulation.RK4(step / fastest)
        x = cy.simulate(flow, starts, times=times / fastest, stepper=stepper).values
        return np.linalg.norm(x, axis=-1).max(axis=-1).T

    one = Descent(len(V), values.astype(complex), sizes, times, longest(_STEP), None)
    return one._replace(finer=longest(_STEP / FINER)) if one.damping < WEAK else one


def _groups(found: list[Descent]) -> tuple[list[Descent], list[Descent], list[Descent]]:
    """Those that shrink, those that grow, and the weakly damped among all."""
    return (
        [c for c in found if not c.grows],
        [c for c in found if c.grows],
        [c for c in found if c.damping < WEAK],
    )


def text(found: list[Descent]) -> str:
    if not found:
        return "No V without an eigenvalue of positive real part was drawn."
    down, up, _ = _groups(found)
    most = max((c.longest[0, -1] / c.longest[0, 0] for c in up), default=0.0)
    return (
        f"Of {len(found)} V without an eigenvalue of positive real part {len(down)} let the tokens "
        f"shrink; under the other {len(up)} they grow"
        + (f", up to {most:.0e} times when we stop." if up else ".")
    )


def comparisons(found: list[Descent]) -> list[st.Comparison]:
    """To 0, like t^(-1/2); what grows grows at a finer step; it needs a weakly damped pair."""
    if not found:
        return []
    down, up, weak = _groups(found)
    out = [
        st.Comparison(
            "V without an eigenvalue of positive real part brings all tokens to 0",
            f"the longest token at the end against the start, {len(found)} random V",
            f"they grow under {st.counted(len(up), len(found))} of them",
            not up,
        )
    ]
    if down:
        exponents = np.array([c.exponent for c in down])
        low, high = np.quantile(exponents, (0.1, 0.9))
        half = float(np.median(exponents))
        out.append(
            st.Comparison(
                "where tokens shrink they do so like t^(-1/2), as under V = -I",
                "a decay e^(-ct), whose fitted power would go to -infinity over a decade",
                f"fitted powers over the last decade: median {half:.3f}, middle four fifths "
                f"{low:.2f} to {high:.2f}, n = {len(down)}",
                abs(half + 0.5) < 0.05,
            )
        )
    if weak:
        same = [c for c in weak if c.grows == c.grows_at(0, finer=True)]
        out.append(
            st.Comparison(
                "whether tokens grow is no artefact of the step",
                f"a {FINER} times finer step, all {len(weak)} V with a pair below {WEAK:g}",
                f"same answer for {st.counted(len(same), len(weak))}",
                len(same) == len(weak),
            )
        )
    strong = [c for c in found if c.damping >= WEAK]
    grown = {size: [c.grows_at(k) for c in weak] for k, size in enumerate(found[0].sizes)}
    other = sum(c.grows_at(k) for c in strong for k in range(len(c.sizes)))
    out.append(
        st.Comparison(
            "what grows has a weakly damped complex pair",
            f"V without one ({len(strong)}); starts of other sizes",
            f"without: {other} of {len(strong) * len(found[0].sizes)} runs grow; with: "
            + ", ".join(f"{sum(g)} of {len(g)} from size {size:g}" for size, g in grown.items()),
            other == 0 and any(any(g) for g in grown.values()),
        )
    )
    return out


def table(found: list[Descent]) -> st.Table:
    def pair(c: Descent) -> str:
        return ", ".join(
            f"{v.real:.3g}" if abs(v.imag) < 1e-9 else f"{v.real:.3g} ± {v.imag:.3g}i"
            for v in sorted(c.eigenvalues, key=lambda v: -v.real)
            if v.imag >= 0
        )

    columns: dict[str, Any] = {
        "d": "d",
        "eigenvalues of V": pair,
        "least -Re/|Im|": lambda c: c.damping if np.isfinite(c.damping) else None,
        "power of t": lambda c: None if c.grows else c.exponent,
        "end / start": lambda c: float(c.longest[0, -1] / c.longest[0, 0]),
        "finer step": lambda c: None if c.finer is None else float(c.finer[0, -1] / c.finer[0, 0]),
        "sizes from which it grows": lambda c: ", ".join(
            f"{size:g}" for k, size in enumerate(c.sizes) if c.grows_at(k)
        ),
    }
    note = (
        f"Longest token at t = {found[0].t[-1]:g}/|l| over that at the start, l the largest "
        f"eigenvalue; at a {FINER} times finer step where a pair has -Re < {WEAK:g} |Im|."
        if found
        else ""
    )
    return st.Table.of("V without an eigenvalue of positive real part", found, columns, note)
