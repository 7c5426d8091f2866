"""Where the normalisation stands: five places, one family of speeds (arXiv 2510.22026, 2512.01868).

Post-norm, pre-norm, peri-norm, nGPT and mixed (post, then pre) turn directions by the same vector
at different speeds 1/s (docs/mathematics.md B37). See the spread 1 - r of uniform tokens, r the
mean cosine: it ends like e^{-2t} where lengths are kept at 1, and like t^{-2} where they grow. And
the first layer: outputs brought to length 1 (nGPT, peri) begin faster, by up to sqrt(n), since the
attention of spread tokens is short.

The exponent 2 belongs to full attention and V = I. V = 2I doubles the exponent of post-norm, and an
antisymmetric part of V changes that of nGPT. Under causal attention the second token has half of
its weight on itself, and the exponent is 1 in every scheme: the control.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Places of the normalisation: five speeds"
SCHEMES = ("post", "nGPT", "pre", "peri", "mixed")
VALUES = ("2I", "I + antisymmetric")
GROWING = ("pre", "peri", "mixed")  # schemes in which lengths grow


@dataclass(frozen=True)
class Params:
    """n tokens uniform on the sphere of R^d, `starts` starts; followed to `short` where the end is
    exponential, to `long` where it is a power. Varied, two starts each: `betas`, `ns`, `ds`,
    and V; and `causal` tokens under causal attention."""

    n: int = 16
    d: int = 8
    beta: float = 1.0
    tau: float = 2.0
    starts: int = 6
    short: float = 15.0
    long: float = 30_000.0
    betas: tuple[float, ...] = (0.0, 3.0)
    ns: tuple[int, ...] = (3, 48)
    ds: tuple[int, ...] = (2, 32)
    causal: int = 4
    first: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)
    seed: int = 0


QUICK = Params(n=4, d=3, starts=2, long=300.0, betas=(0.0,), ns=(3,), ds=(2,), first=(2, 16))


class Decay(NamedTuple):
    """1 - mean cosine over time, in one scheme from one start."""

    scheme: str
    attention: str
    n: int
    d: int
    beta: float
    V: str
    seed: int
    t: np.ndarray
    gap: np.ndarray

    @property
    def exponent(self) -> float:
        """-d log(1 - r)/dt late in the run, or -d log(1 - r)/d log t where lengths grow."""
        t, gap = self.t, self.gap
        if self.scheme in GROWING:
            late = t > t[-1] / 10
            return float(-np.polyfit(np.log(t[late]), np.log(gap[late]), 1)[0])
        late = (gap < 1e-6) & (gap > 1e-14)
        return float(-np.polyfit(t[late], np.log(gap[late]), 1)[0]) if late.sum() > 3 else np.nan

    @property
    def arrived(self) -> bool:
        """At large beta tokens may wait in clusters, and nothing has begun to fall."""
        return bool(self.gap[-1] < (1e-3 if self.scheme in GROWING else 1e-8))


def value_of(V: str, d: int) -> np.ndarray | None:
    """One of VALUES: None for I, which all other runs have."""
    turn = np.triu(np.random.default_rng(0).standard_normal((d, d)), 1) / np.sqrt(d)
    return {"I": None, "2I": 2 * np.eye(d), "I + antisymmetric": np.eye(d) + turn - turn.T}[V]


def flow_of(
    scheme: str, beta: float, tau: float = 2.0, causal: bool = False, V: np.ndarray | None = None
) -> cy.dynamics.Flow:
    rule: cy.attention.Attention = cy.Softmax(beta)
    if causal:
        rule = cy.attention.Causal(rule)
    if scheme == "mixed":
        return cy.dynamics.MixedNormFlow(rule, V, tau=tau)
    kinds = {"post": cy.SphereFlow, "nGPT": cy.dynamics.NGPTFlow, "pre": cy.dynamics.PreNormFlow}
    return kinds.get(scheme, cy.dynamics.PeriNormFlow)(rule, V)


def gap_of(x: np.ndarray) -> np.ndarray:
    """1 - mean cosine of tokens (*b, n, d): 1 - |mean direction|^2, from distances to the mean."""
    u = x / np.linalg.norm(x, axis=-1, keepdims=True)
    away = u - u.mean(axis=-2, keepdims=True)
    return (away**2).sum(axis=-1).mean(axis=-1)


def _decay(
    p: Params, scheme: str, attention: str, n: int, d: int, beta: float, V: str, seed: int
) -> Decay:
    flow = flow_of(scheme, beta, p.tau, attention == "causal", value_of(V, d))
    if scheme in GROWING:
        times = np.append(0, np.geomspace(0.05, p.long, 120))
    else:
        times = np.linspace(0, (2 if attention == "causal" else 1) * p.short, 121)
    z0 = cy.configurations.sphere(n, d, p.seed + seed)
    x = cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-9, 1e-12)).values
    return Decay(scheme, attention, n, d, beta, V, seed, times, gap_of(x))


def _first(p: Params, scheme: str, n: int) -> st.Cell:
    """-d/dt log(1 - r) at t = 0, per start, and what orthogonal tokens would have."""
    flow, seen = flow_of(scheme, p.beta, p.tau), []
    for s in range(p.starts):
        x = cy.configurations.sphere(n, max(p.first), p.seed + s)
        h = 1e-6  # all schemes have smooth velocities
        before, after = (gap_of(x + sign * h * flow.velocity(x, 0.0)) for sign in (-1, 1))
        seen.append(float(np.log(before / after) / (2 * h)))
    own = np.exp(p.beta)
    q = 1 / (own + n - 1)
    size = q * np.sqrt(own**2 + n - 1)
    expected = 2 * q / (size if scheme in ("nGPT", "peri") else 1.0)
    return st.Cell(scheme=scheme, n=n, seen=seen, expected=expected)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The decays from several starts, varied, and the speed of the first layer."""
    over = st.measuring(p, progress)
    st.require(min(p.n, p.d, p.starts) >= 2 and p.long >= 100, "n, d, starts >= 2, long >= 100", p)
    base: dict[str, tuple[Any, ...]] = {"scheme": SCHEMES, "attention": ("full",), "n": (p.n,)}
    base |= {"d": (p.d,), "beta": (p.beta,), "V": ("I",)}
    starts, two = tuple(range(p.starts)), (0, 1)
    decays = over(_decay, {**base, "seed": starts}, 0.4)
    varied = [
        *over(_decay, {**base, "beta": p.betas, "seed": two}, 0.6),
        *over(_decay, {**base, "n": p.ns, "seed": two}, 0.7),
        *over(_decay, {**base, "d": p.ds, "seed": two}, 0.8),
    ]
    valued = st.over_grid(_decay, p, {**base, "V": VALUES, "seed": two})
    causal = {**base, "attention": ("causal",), "n": (p.causal,), "seed": two}
    masked = over(_decay, causal, 0.9)
    first = over(_first, {"scheme": SCHEMES[:4], "n": p.first})
    checks = [
        st.at_most(
            f"{scheme}: rate",
            "docs/mathematics.md B37",
            f"{scheme}: 1 - r falls like {_law(scheme)}",
            max(abs(c.exponent - 2) for c in decays if c.scheme == scheme),
            0.1,
        )
        for scheme in SCHEMES
    ]
    columns = st.columns("scheme, attention, n, d, beta, V, seed, exponent")
    columns |= {"1 - r at the end": lambda c: float(c.gap[-1]), "arrived": "arrived"}
    speeds = st.columns("scheme, n, speed = mean seen, orthogonal tokens = expected")
    note = "Exponent of e^(-t) for post and nGPT, of 1/t for the others; late in the run."
    return st.report_of(
        p,
        _summary(p, decays),
        controls=[*_comparisons(p, decays, varied, masked, first), _by_value(decays, valued)],
        tables=[
            st.Table.of("How 1 - r falls", [*decays, *varied, *valued, *masked], columns, note),
            st.Table.of("Speed of the first layer", first, speeds),
        ],
        checks={"rates": checks},
        figures=[st.Picture.of("Five places", _draw, p, decays, masked, first)],
    )


def _law(scheme: str) -> str:
    return "t^(-2)" if scheme in GROWING else "e^(-2t)"


def _exponents(group: list[Decay]) -> list[float]:
    return [c.exponent for c in group if c.arrived]


def _summary(p: Params, decays: list[Decay]) -> str:
    rates = []
    for scheme in SCHEMES:
        found = [c.exponent for c in decays if c.scheme == scheme]
        rates.append(f"{scheme} {st.told(found, 4)}")
    return (
        f"Fitted exponents of 1 - r over {p.starts} starts of {p.n} tokens, of e^(-t) for post and "
        f"nGPT, of 1/t for the others: {'; '.join(rates)}. Theory, for V = I: 2."
    )


def _comparisons(
    p: Params, decays: list[Decay], varied: list[Decay], masked: list[Decay], first: list[st.Cell]
) -> list[st.Comparison]:
    out = []
    for scheme in SCHEMES:
        group = [c for c in varied if c.scheme == scheme]
        found = _exponents(group)
        other = [c.exponent for c in masked if c.scheme == scheme]
        out.append(
            st.Comparison(
                f"{scheme}, V = I: 1 - r falls like {_law(scheme)}",
                f"beta = {', '.join(f'{b:g}' for b in p.betas)}, n = "
                f"{', '.join(map(str, p.ns))}, d = {', '.join(map(str, p.ds))}; causal attention",
                f"exponents {min(found):.3f} to {max(found):.3f} in the {len(found)} of "
                f"{len(group)} runs that have arrived; causal: "
                + ", ".join(f"{x:.3f}" for x in other),
                max(abs(x - 2) for x in found) < 0.15 and max(abs(x - 1) for x in other) < 0.15,
            )
        )
    near = [abs(np.mean(c.seen) / c.expected - 1) for c in first]
    big = [c for c in first if c.n >= 16]
    ratio = [
        np.mean(fast.seen) / np.mean(slow.seen)
        for fast in big
        for slow in big
        if fast.n == slow.n and (fast.scheme, slow.scheme) in (("nGPT", "post"), ("peri", "pre"))
    ]
    out.append(
        st.Comparison(
            "outputs of length 1 begin faster, by 1/|a|",
            f"n = {', '.join(map(str, p.first))}; orthogonal tokens as the null model",
            f"off by {max(near):.1%} of the speed of orthogonal tokens at most; from n = 16 on "
            f"{min(ratio):.2f} to {max(ratio):.2f} times as fast",
            bool(max(near) < 0.25 and min(ratio) > 1.5),
        )
    )
    return out


def _by_value(decays: list[Decay], valued: list[Decay]) -> st.Comparison:
    """The exponents of every scheme under each V."""
    told, means = [], {}
    for V in ("I", *VALUES):
        for scheme in SCHEMES:
            found = _exponents([c for c in (*decays, *valued) if (c.V, c.scheme) == (V, scheme)])
            means[V, scheme] = float(np.mean(found)) if found else float("nan")
        told.append(f"{V}: " + ", ".join(f"{s} {means[V, s]:.2f}" for s in SCHEMES))
    return st.Comparison(
        "The exponent 2 belongs to V = I.",
        "V = 2I, and I with an antisymmetric part",
        "; ".join(told),
        abs(means["I", "post"] - 2) < 0.1 < abs(means["2I", "post"] - 2),
    )


def _draw(p: Params, decays: list[Decay], masked: list[Decay], first: list[st.Cell]) -> Any:
    """1 - mean cosine of uniform tokens. Left: lengths kept at 1, the end is e^(-2t) (dashed).
    Middle: lengths grow, the end is t^(-2) (dashed; pre ends under peri). Grey: causal attention,
    the control, with half the exponent. Right: speed of the first layer, -d log(1 - r)/dt at t = 0;
    lines: orthogonal tokens. Post and pre coincide there, as do nGPT and peri.
    """
    figure, ((left, middle, right),) = cy.plot.sheet(1, 3, 4.3, 3.6)
    colours = dict(zip(SCHEMES, cy.plot.PALETTE))
    named = set()
    for c in (*masked, *decays):
        ax = middle if c.scheme in GROWING else left
        plain = c.attention == "full"
        name = c.scheme if plain else "causal"
        label = None if (name, ax) in named else name
        named.add((name, ax))
        keep = (c.gap > 1e-14) & (c.t > 0)
        how = {"color": colours[c.scheme] if plain else cy.plot.GREY, "lw": 1.2}
        ax.plot(c.t[keep], c.gap[keep], label=label, alpha=1 if plain else 0.5, **how)
    law: dict[str, Any] = {"ls": "--", "color": cy.plot.INK, "lw": 1}
    t = np.linspace(1, p.short, 50)
    left.plot(t, np.exp(-2 * t), label="$e^{-2t}$", **law)
    left.set(yscale="log", xlabel="time t", ylabel="$1 - r$", ylim=(1e-14, 3))
    t = np.geomspace(5, p.long, 50)
    middle.plot(t, 10 * t**-2.0, label="$t^{-2}$", **law)
    middle.set(xscale="log", yscale="log", xlabel="time t", ylabel="$1 - r$")
    for scheme in SCHEMES[:4]:
        group = [c for c in first if c.scheme == scheme]
        mark = "o" if scheme in ("post", "nGPT") else "x"
        mean = [np.mean(c.seen) for c in group]
        at = [c.n for c in group]
        right.plot(at, mean, mark, color=colours[scheme], label=scheme, ms=6)
        right.plot(at, [c.expected for c in group], color=colours[scheme], lw=1)
    right.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="speed of the first layer")
    cy.plot.plain_log(right.xaxis)
    cy.plot.plain_log(right.yaxis)
    for ax in (left, middle, right):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL, loc="lower left")
    return figure
