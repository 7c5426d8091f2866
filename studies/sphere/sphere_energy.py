"""The energy of attention on the sphere with several heads, and with a feed-forward part.

One head with V = A symmetric climbs the energy sum_ij exp(beta <A x_i, x_j>), which is why tokens
gather (arXiv 2312.10794). Several heads (arXiv 2604.01978, 2605.04279): without the softmax
denominator they climb the sum of their energies, whatever their number. With it each head divides
by its own Z_i, and nothing forces the sum to rise. See the left panel: in how many runs it falls.

A feed-forward part x -> sum_k c_k relu(<a_k, x>) a_k is a gradient as well (arXiv 2601.21366), and
attention with it has an energy too. See the right panel: it keeps tokens apart, so that they end in
several points. The control is a feed-forward part whose outer weights have nothing to do with the
inner ones, as in a trained layer; another is the part alone, without attention.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "The energy of several heads and of a feed-forward part on the sphere"
FALLS = 1e-9  # relative fall of the energy over a step above which it is no rounding
TOGETHER = 0.05  # tokens closer than this are one cluster
STILL = 1e-3  # largest velocity of a token at rest
CLIMB, SOFTMAX = "V = A, no denominator", "V = A, softmax"
SWAPPED, RANDOM = "V of another head, softmax", "random A and V, softmax"
TIED, FREE = "gradient", "random outer weights"


@dataclass(frozen=True)
class Params:
    """`draws` runs of n tokens in dimension d to `time` with `steps` steps, for each number of
    `heads`; then one head with A = I beside a feed-forward part of `inner` units and each of the
    `strengths`."""

    heads: tuple[int, ...] = (1, 2, 4, 8)
    strengths: tuple[float, ...] = (0.3, 1.0, 3.0)
    draws: int = 40
    n: int = 16
    d: int = 3
    inner: int = 8
    beta: float = 2.0
    time: float = 30.0
    steps: int = 300
    seed: int = 0


QUICK = Params(heads=(1, 2), strengths=(1.0,), draws=4, time=5.0, steps=50)


@dataclass(frozen=True, eq=False)
class Layer(cy.dynamics.Flow):
    """x' = the part along the sphere of sum_h V_h sum_j P^h_ij x_j + w relu(a x), many at once.

    A, V: (runs, heads, d, d); a: (runs, units, d), w: (runs, d, units). Without `softmax` P^h_ij is
    exp(beta <A_h x_i, x_j>) / n, in units of its largest value.
    """

    A: np.ndarray = field(default_factory=lambda: np.zeros((1, 0, 2, 2)))
    V: np.ndarray = field(default_factory=lambda: np.zeros((1, 0, 2, 2)))
    a: np.ndarray = field(default_factory=lambda: np.zeros((1, 0, 2)))
    w: np.ndarray = field(default_factory=lambda: np.zeros((1, 2, 0)))
    beta: float = 1.0
    softmax: bool = True

    def weighed(self, x: np.ndarray) -> np.ndarray:
        """exp(beta (<A_h x_i, x_j> - max |A|)), (runs, heads, n, n): in units of each run."""
        scores = np.einsum("bhkl,bil,bjk->bhij", self.A, x, x, optimize=True)
        largest = np.linalg.norm(self.A, 2, axis=(-2, -1)).max(axis=-1, initial=0.0)
        return np.exp(self.beta * (scores - largest[:, None, None, None]))

    def velocity(self, z: Any, t: float, *, mask: Any = None) -> Any:
        x = self.retract(z)
        P = self.weighed(x)
        P = P / P.sum(axis=-1, keepdims=True) if self.softmax else P / x.shape[-2]
        y = np.einsum("bhkl,bhij,bjl->bik", self.V, P, x, optimize=True)
        y += np.maximum(x @ np.swapaxes(self.a, -1, -2), 0) @ np.swapaxes(self.w, -1, -2)
        return y - (x * y).sum(axis=-1, keepdims=True) * x

    def retract(self, z: Any) -> Any:
        return z / np.linalg.norm(z, axis=-1, keepdims=True)

    def energy(self, x: np.ndarray) -> np.ndarray:
        """What the layer climbs where V = A and no denominator divides, one for each run."""
        heads = self.weighed(x).mean(axis=(-1, -2)).sum(axis=-1) / (2 * self.beta)
        inner = np.maximum(x @ np.swapaxes(self.a, -1, -2), 0) ** 2
        share = np.einsum("bdk,bkd->bk", self.w, self.a) / (self.a**2).sum(axis=-1)
        return heads + (inner.mean(axis=-2) * share).sum(axis=-1) / 2


class Ended(NamedTuple):
    """`draws` runs of one kind: energies by time (times, draws), clusters, velocity at the end."""

    kind: str
    size: float  # heads, or the strength of the feed-forward part
    energies: np.ndarray
    clusters: np.ndarray
    velocity: np.ndarray

    @property
    def falls(self) -> tuple[int, int]:
        """Runs in which the energy falls at some time, of all."""
        step = np.diff(self.energies, axis=0) / np.abs(self.energies[:-1]).clip(1e-300)
        return int((step < -FALLS).any(axis=0).sum()), step.shape[1]

    @property
    def apart(self) -> tuple[int, int]:
        """Runs that end in more than one cluster, of all."""
        return int((self.clusters > 1).sum()), len(self.clusters)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Heads of four kinds, then attention with and without feed-forward parts."""
    say = progress or st.silent
    sensible = min(p.draws, p.n, p.d, p.inner, p.steps, *p.heads) >= 1 and min(p.time, p.beta) > 0
    st.require(sensible, "draws, n, d, inner, steps, heads >= 1, time, beta > 0", p)
    kinds = [(kind, h) for kind in (CLIMB, SOFTMAX, SWAPPED, RANDOM) for h in p.heads]
    heads = st.kept_each(_heads, [(p, *which) for which in kinds], st.part(say, 0.0, 0.6))
    parts = [("attention alone", 0.0)]
    parts += [(f"{a}, {kind}", s) for s in p.strengths for kind in (TIED, FREE)
              for a in ("attention", "no attention")]  # fmt: skip
    mixed = st.kept_each(_mixed, [(p, *x) for x in parts], st.part(say, 0.6, 1.0))
    both = {f"{e.kind}, {e.size:g}": e for e in mixed}
    falls = {f"{e.kind}, {e.size:g} heads": e.falls for e in heads if e.size > 1}
    climbs = [e for e in heads if e.kind == CLIMB]
    one = [e.falls for e in heads if e.kind == SOFTMAX and e.size == 1]
    tied = [e for e in mixed if e.kind == f"attention, {TIED}"]
    free = [e for e in mixed if e.kind == f"attention, {FREE}"]
    moving = {kind: (sum(int((e.velocity > STILL).sum()) for e in group), p.draws * len(group))
              for kind, group in ((TIED, tied), (FREE, free))}  # fmt: skip
    alone = both["attention alone, 0"].apart
    summary = (
        "Several heads that divide by their own softmax denominators do not climb the sum of their "
        f"energies: it falls at some time in these runs: {_told(falls, SOFTMAX)}. Without "
        f"denominator it falls in {sum(e.falls[0] for e in climbs)} of "
        f"{p.draws * len(climbs)}. Attention alone ends in more than one cluster in {alone[0]} of "
        f"{alone[1]} runs; with a feed-forward part that is a gradient in "
        + "; ".join(f"{e.apart[0]} (strength {e.size:g})" for e in tied)
        + "."
    )
    controls = [
        st.Comparison(
            "Heads with V = A climb the sum of their energies, however many there are.",
            "the same heads with softmax denominators; V of another head; random A and V",
            st.shares({CLIMB: _sum(climbs), **falls}),
            _sum(climbs)[0] == 0,
        ),
        st.Comparison(
            "That the sum falls comes from several denominators.",
            "one head with softmax",
            f"falls in {one[0][0] if one else 0} of {p.draws} runs of one head; "
            + _told(falls, SOFTMAX),
            bool(one) and one[0][0] == 0 < sum(v[0] for k, v in falls.items() if SOFTMAX in k),
        ),
        st.Comparison(
            "A feed-forward part keeps tokens apart that attention brings together.",
            "attention alone; the feed-forward part alone",
            st.shares({name: e.apart for name, e in both.items()}),
            all(st.wilson(*e.apart)[0] > st.wilson(*alone)[1] for e in tied),
        ),
        st.Comparison(
            "They come to rest because the part is a gradient.",
            "outer weights drawn on their own, of the same norms",
            f"still moving: {st.shares(moving)}",
            st.wilson(*moving[FREE])[0] > st.wilson(*moving[TIED])[1],
        ),
    ]
    columns: dict[str, Any] = {
        "kind": "kind",
        "heads, or strength": "size",
        "runs": lambda e: e.falls[1],
        "energy falls": lambda e: e.falls[0],
        "more than one cluster": lambda e: e.apart[0],
        "clusters, mean": lambda e: float(e.clusters.mean()),
        "still moving": lambda e: int((e.velocity > STILL).sum()),
    }
    table = st.Table.of("How the runs end", [*heads, *mixed], columns)
    return st.report_of(
        p, summary, controls=controls, tables=[table], figures=[_drawn(heads, mixed)]
    )


def _sum(group: list[Ended]) -> tuple[int, int]:
    return sum(e.falls[0] for e in group), sum(e.falls[1] for e in group)


def _told(falls: dict[str, tuple[int, int]], kind: str) -> str:
    mine = {k.removeprefix(f"{kind}, "): v for k, v in falls.items() if k.startswith(kind)}
    return "; ".join(f"{name} {a} of {b}" for name, (a, b) in mine.items())


# --- runs ----------------------------------------------------------------------------------------


def _heads(p: Params, kind: str, h: int) -> Ended:
    draw = np.random.default_rng([p.seed, h])
    G = draw.standard_normal((p.draws, h, p.d, p.d)) / np.sqrt(p.d)
    A = G if kind == RANDOM else (G + np.swapaxes(G, -1, -2)) / np.sqrt(2)
    V = draw.standard_normal(A.shape) / np.sqrt(p.d) if kind == RANDOM else A
    V = np.roll(A, 1, axis=1 if h > 1 else 0) if kind == SWAPPED else V
    return _ended(p, kind, h, Layer(A=A, V=V, beta=p.beta, softmax=kind != CLIMB, **_none(p)))


def _none(p: Params) -> dict[str, np.ndarray]:
    return {"a": np.zeros((p.draws, 0, p.d)), "w": np.zeros((p.draws, p.d, 0))}


def _mixed(p: Params, kind: str, strength: float) -> Ended:
    draw = np.random.default_rng([p.seed, 1])
    a = draw.standard_normal((p.draws, p.inner, p.d))
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    w = np.swapaxes(a, -1, -2) * strength
    if FREE in kind:
        w = draw.standard_normal(w.shape)
        w *= strength / np.linalg.norm(w, axis=1, keepdims=True)
    heads = 0 if kind.startswith("no attention") else 1
    A = np.tile(np.eye(p.d), (p.draws, heads, 1, 1))
    part = {"a": a, "w": w} if strength else _none(p)
    return _ended(p, kind, strength, Layer(A=A, V=A, beta=p.beta, **part))


def _ended(p: Params, kind: str, size: float, layer: Layer) -> Ended:
    draw = np.random.default_rng([p.seed, 2])
    z = layer.retract(draw.standard_normal((p.draws, p.n, p.d)))
    tr = cy.simulate(layer, z, time=p.time, stepper=cy.simulation.RK4(p.time / p.steps))
    end = tr.z[-1]
    speed = np.linalg.norm(layer.velocity(end, p.time), axis=-1).max(axis=-1)
    counts = np.array([cy.clusters(x, TOGETHER).count for x in end])
    return Ended(kind, float(size), np.array([layer.energy(x) for x in tr.z]), counts, speed)


def _drawn(heads: list[Ended], mixed: list[Ended]) -> st.Picture:
    figure, axes = cy.plot.sheet(1, 2, 5.2, 3.8)
    left, right = axes[0]
    for kind, style in zip((CLIMB, SOFTMAX, SWAPPED, RANDOM), ("o-", "s-", "^--", "x:")):
        mine = [e for e in heads if e.kind == kind]
        share = [e.falls[0] / e.falls[1] for e in mine]
        left.plot([e.size for e in mine], share, style, ms=5, label=kind)
    left.set(xlabel="heads", ylabel="runs in which the energy falls", ylim=(-0.05, 1.05))
    left.set_title("several heads", fontsize=cy.plot.TITLE, loc="left")
    for kind, group in st.grouped(mixed, "kind").items():
        sizes = [e.size for e in group]
        right.plot(sizes, [float(e.clusters.mean()) for e in group], "o-", ms=5, label=kind)
    right.set(xlabel="strength of the feed-forward part", ylabel="clusters at the end, mean")
    right.set_title("with a feed-forward part", fontsize=cy.plot.TITLE, loc="left")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=cy.plot.TICK)
    caption = (
        "Left: share of the runs in which the sum of the energies of the heads falls at some time. "
        "Right: clusters at the end, mean over the runs; attention alone is at strength 0."
    )
    return st.Picture("Energy of heads, and points of rest", caption, figure)
