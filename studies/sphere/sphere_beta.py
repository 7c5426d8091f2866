"""Attention on the sphere against the inverse temperature: one cluster, sooner or later.

For d >= 3 and every beta >= 0 almost every start ends in a single point (arXiv 2312.10794, Theorem
6.1; for d = 2 proved later). What beta changes is the waiting time: see the paper's phase diagrams
(n = 32 uniform tokens), the share of pairs that have met by time t, with the curve on which n
equiangular tokens would meet; it is sharp in high dimension, where random tokens are all but
orthogonal, and no guide in low dimension. On S^2 large beta lingers in clusters, in how many
depends on the start.

Last, where the normalisation stands: after the attention, as on the sphere (post-norm), or before
it (pre-norm, `PreNormFlow`). See 1 - r, r the mean cosine, fall like e^{-2t} and like t^{-2} (B34).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems.sphere import equiangular, hemisphere_probability

TITLE = "The sphere against beta: when tokens meet"


@dataclass(frozen=True)
class Params:
    """Grid of beta and times for the diagram; a pair has met when its cosine is >= 1 - `met`;
    pre-norm is followed up to the time `long`. Controls: `other_n` tokens in the largest d, the
    clusters of `more` starts on S^2, the decays at `other_beta` and from a second start."""

    n: int = 32
    d: tuple[int, ...] = (2, 8, 32, 128)
    most_beta: float = 10.0
    betas: int = 41
    time: float = 30.0
    dt: float = 0.2
    starts: int = 8
    met: float = 1e-3
    drawn: tuple[float, ...] = (1.0, 4.0, 9.0)
    show: tuple[float, ...] = (0.0, 1.0, 4.0, 15.0, 60.0)
    long: float = 1000.0
    other_n: tuple[int, ...] = (16, 64)
    more: int = 20
    other_beta: tuple[float, ...] = (0.0, 3.0)
    seed: int = 0


QUICK = Params(
    d=(2, 32), betas=5, time=10.0, dt=0.25, starts=2, other_n=(16,), more=3, other_beta=(0.0,)
)


class Decay(NamedTuple):
    """1 - mean cosine of the tokens over time, for one place of the normalisation."""

    norm: str
    t: np.ndarray
    gap: np.ndarray
    beta: float = 1.0

    @property
    def exponent(self) -> float:
        """Fitted late in the run: -d log(1 - r)/dt for post-norm, -d log(1 - r)/d log t else."""
        t, post = self.t, self.norm == "post-norm"
        late = (t > t[-1] / 2) & (self.gap > 1e-18) if post else t > t[-1] / 10
        clock = t[late] if post else np.log(t[late])
        return float(-np.polyfit(clock, np.log(self.gap[late]), 1)[0])


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The phase diagrams, the runs on S^2, and both places of the normalisation."""
    over = st.measuring(p, progress)
    st.require(min(p.n, p.betas, *p.d) >= 2 and p.starts >= 1, "n, d, betas >= 2, starts >= 1", p)
    shares = over(_share, {"n": (p.n,), "d": p.d, "beta": _betas(p)}, 0.7)
    met = dict(zip(p.d, np.reshape(shares, (len(p.d), p.betas, -1))))  # d -> (betas, times)
    drawn = over(_on_s2, {"beta": p.drawn}, 0.75)
    runs = {f"beta = {beta:g}": tr for beta, tr in zip(p.drawn, drawn)}
    norms = {"norm": tuple(_LAWS), "beta": (1.0, *p.other_beta), "start": (0, 1)}
    every = over(_decay, norms, 0.8)
    decays = [every[0], every[len(every) // 2]]  # beta = 1 from the first start
    other = over(_other_n, {"n": p.other_n, "beta": _betas(p)[::4]})
    counts = over(_ends, {"clusters, beta": p.drawn})
    checks = {name: cy.check(tr, only=("B30",)) for name, tr in runs.items()}
    checks["pre-norm and post-norm"] = [_rate(c) for c in decays]
    figures = (
        st.Picture.of("Phase diagram", _draw_met, p, met),
        st.Picture.of("Tokens on the sphere", _spheres, p, runs),
        st.Picture.of("Pre-norm and post-norm", _draw_norms, p, decays),
    )
    text, tables = _summary(p, met, dict(zip(runs, counts)), decays), _tables(p, met)
    controls = _comparisons(p, met, other, dict(zip(p.drawn, counts)), every)
    return st.report_of(p, text, controls=controls, tables=tables, checks=checks, figures=figures)


_LAWS = {"post-norm": "1 - r falls like e^(-2t)", "pre-norm": "1 - r falls like t^(-2)"}


def _betas(p: Params) -> list[float]:
    return [float(beta) for beta in np.linspace(0, p.most_beta, p.betas)]


def _times(p: Params) -> np.ndarray:
    return np.linspace(0, p.time, 121)


def _other_n(p: Params, n: int, beta: float) -> float | None:
    """When half of the pairs have met, over when n equiangular tokens would; None past the end."""
    half = _first(_times(p), _share(p, n, max(p.d), beta) >= 0.5)
    meet = _meeting_time(p, beta, n)
    return half / meet if half is not None and meet is not None else None


def _share(p: Params, n: int, d: int, beta: float) -> np.ndarray:
    """The share of pairs that have met at each time; all starts in one batch."""
    z0 = np.stack([cy.configurations.sphere(n, d, p.seed + s) for s in range(p.starts)])
    flow = cy.SphereFlow(cy.Softmax(beta))
    x = cy.simulate(flow, z0, times=_times(p), stepper=cy.simulation.RK4(p.dt)).values
    i, j = np.triu_indices(n, 1)
    cosines = x @ x.swapaxes(-1, -2)
    return (cosines[..., i, j] >= 1 - p.met).mean(axis=(1, 2))


def _meeting_time(p: Params, beta: float, n: int | None = None) -> float | None:
    """When equiangular tokens from r = 0 have met; None past the diagram."""
    t = np.linspace(0, p.time, 3001)
    return _first(t, equiangular(0.0, t, n or p.n, beta) >= 1 - p.met)


def _first(t: np.ndarray, reached: np.ndarray) -> float | None:
    """The first time at which something is reached that stays so; None if it is not."""
    return float(t[np.argmax(reached)]) if reached[-1] else None


def _on_s2(p: Params, beta: float) -> cy.Trajectory:
    z0 = cy.configurations.sphere(p.n, 3, p.seed)
    flow, times = cy.SphereFlow(cy.Softmax(beta)), np.linspace(0, max(p.show), 241)
    return cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-9))


def _ends(p: Params, beta: float) -> list[int]:
    """Clusters at the last time shown, from many starts on S^2."""
    z0 = np.stack([cy.configurations.sphere(p.n, 3, p.seed + s) for s in range(p.more)])
    flow, times = cy.SphereFlow(cy.Softmax(beta)), [0.0, max(p.show)]
    ends = cy.simulate(flow, z0, times=times, stepper=cy.simulation.RK4(p.dt)).values[-1]
    return [_count(z) for z in ends]


def _decay(p: Params, norm: str, beta: float, start: int) -> Decay:
    z0 = cy.configurations.sphere(p.n, 3, p.seed + start)
    post = norm == "post-norm"
    flow: cy.dynamics.Flow = (cy.SphereFlow if post else cy.dynamics.PreNormFlow)(cy.Softmax(beta))
    times = np.linspace(0, 20, 161) if post else np.append(0, np.geomspace(0.1, p.long, 160))
    x = cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-10, 1e-13)).values
    u = x / np.linalg.norm(x, axis=-1, keepdims=True)
    apart = u[:, :, None] - u[:, None]  # 1 - <u, v> = |u - v|^2 / 2, without cancellation
    return Decay(norm, times, (apart**2).sum(axis=-1).mean(axis=(1, 2)) / 2, beta)


def _rate(c: Decay) -> cy.theorems.Check:
    reference, claim = "arXiv 2512.01868, rates; docs/mathematics.md B34", _LAWS[c.norm]
    return st.at_most(f"{c.norm} rate", reference, f"{c.norm}: {claim}", abs(c.exponent - 2), 0.1)


def _count(z: np.ndarray) -> int:
    return cy.clusters(z, 0.1).count


def _summary(
    p: Params, met: dict[int, np.ndarray], counts: dict[str, list[int]], decays: list[Decay]
) -> str:
    ends = "; ".join(
        f"d = {d}: {share[0, -1]:.0%} of the pairs for beta = 0, {share[-1, -1]:.0%} for "
        f"beta = {p.most_beta:g}"
        for d, share in met.items()
    )
    last = "; ".join(
        f"{name}: {np.mean(found):.2g} ({min(found)} to {max(found)})"
        for name, found in counts.items()
    )
    post, pre = (c.exponent for c in decays)
    return (
        f"By t = {p.time:g} have met, in {p.starts} starts of {p.n} tokens: {ends}.\n\nClusters "
        f"on S^2 at t = {max(p.show):g}, mean and range over {p.more} starts: {last}.\n\n"
        f"Post-norm: 1 - r falls like e^(-{post:.3f} t); pre-norm: like t^(-{pre:.3f}). Theory: 2 "
        "and 2."
    )


def _against_line(p: Params, share: np.ndarray) -> list[float]:
    """When half of the pairs have met, over the equiangular time, for every beta that has both."""
    pairs = zip(
        (_first(_times(p), s >= 0.5) for s in share), map(partial(_meeting_time, p), _betas(p))
    )
    return [half / meet for half, meet in pairs if half is not None and meet is not None]


def _comparisons(
    p: Params,
    met: dict[int, np.ndarray],
    other: list[float | None],
    counts: dict[float, list[int]],
    decays: list[Decay],
) -> list[st.Comparison]:
    """The curve in other dimensions and for other n, clusters over starts, rates over beta."""
    ratios = {d: _against_line(p, share) for d, share in met.items()}
    off = {d: max(abs(r - 1) for r in found) for d, found in ratios.items() if found}
    varied = [abs(r - 1) for r in other if r is not None]
    low, high = min(off), max(off)
    spans = {beta: st.resampled(found) for beta, found in counts.items()}
    ends = [spans[beta] for beta in (min(counts), max(counts))]
    # at large beta tokens may still wait in clusters at the end, and nothing has begun to fall
    near = {norm: [c for c in decays if c.norm == norm and c.gap[-1] < 0.01] for norm in _LAWS}
    rates = {norm: [c.exponent for c in group] for norm, group in near.items()}
    return [
        st.Comparison(
            f"d = {high}: half of the pairs meet within 15 % of the equiangular time",
            f"lower d; n = {', '.join(map(str, p.other_n))} in d = {high}",
            "largest relative distance over beta, by d: "
            + ", ".join(f"{d}: {x:.2f}" for d, x in off.items())
            + f"; with other n: {max(varied, default=0.0):.2f} ({len(varied)} times)",
            off[high] < 0.15 and max(varied, default=0.0) < 0.15 and off[low] > 2 * off[high],
        ),
        st.Comparison(
            f"on S^2 larger beta has more clusters left at t = {max(p.show):g}",
            f"{p.more} starts, mean with 95 % bootstrap interval",
            "; ".join(
                f"beta = {beta:g}: {np.mean(found):.2g} ({spans[beta][0]:.2g} to "
                f"{spans[beta][1]:.2g})"
                for beta, found in counts.items()
            ),
            ends[0][1] < ends[1][0],
        ),
        *(
            st.Comparison(
                f"{norm}: {law}, once all tokens are near",
                f"beta = {', '.join(f'{b:g}' for b in (1.0, *p.other_beta))}, two starts each",
                f"fitted exponents {min(rates[norm]):.3f} to {max(rates[norm]):.3f} (theory 2) in "
                f"{len(rates[norm])} of {len(decays) // 2} runs; in the others tokens wait in "
                "clusters",
                max(abs(x - 2) for x in rates[norm]) < 0.1,
            )
            for norm, law in _LAWS.items()
        ),
    ]


def _tables(p: Params, met: dict[int, np.ndarray]) -> list[st.Table]:
    half = tuple(
        (beta, _meeting_time(p, beta), *(_first(_times(p), s[b] >= 0.5) for s in met.values()))
        for b, beta in enumerate(_betas(p))
    )
    columns = ("beta", "equiangular", *(f"half met, d = {d}" for d in p.d))
    empty = "Times; empty: later than the diagram."
    # starts in a hemisphere have a proof with a rate: how many starts are such
    dims = (2, 3, *(d for d in p.d if d > 3))
    wendel = tuple((d, p.n, hemisphere_probability(p.n, d)) for d in dims)
    note = "Wendel: 2^(1-n) sum over k < d of C(n-1, k). B30 needs this to happen by some time."
    return [
        st.Table("When half of the pairs have met", columns, half, empty),
        st.Table("Starts in an open hemisphere", ("d", "n", "probability"), wendel, note),
    ]


def _draw_met(p: Params, met: dict[int, np.ndarray]) -> Any:
    """Share of pairs of tokens with cosine above 1 - `met` by time t, mean over random starts. The
    line: when n exactly orthogonal tokens would meet (B31); the higher the dimension, the closer.
    """
    smooth = np.linspace(0, p.most_beta, 101)
    fine = np.array([_meeting_time(p, float(beta)) for beta in smooth], dtype=float)
    figure, (axes,) = cy.plot.sheet(1, len(met), 3.2, 3.3, sharey=True)
    look: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": 1, "shading": "nearest"}
    for ax, (d, share) in zip(axes, met.items()):
        image = ax.pcolormesh(_times(p), _betas(p), share, **look)
        ax.plot(fine, smooth, color=cy.plot.PALETTE[1], lw=2)
        ax.set(xlim=(0, p.time), ylim=(0, p.most_beta), xlabel="time t")
        ax.set_title(f"d = {d}, n = {p.n}", fontsize=cy.plot.LABEL)
    axes[0].set_ylabel(r"inverse temperature $\beta$")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("pairs that have met", size=cy.plot.LABEL)
    return figure


def _spheres(p: Params, runs: dict[str, cy.Trajectory]) -> Any:
    """Uniform tokens on S^2 (seen from outside, the far side pale), several beta and times."""
    view = np.linalg.qr(np.array([[1.0, 0.4, 0.3], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]))[0]
    colours = dict(zip(runs, cy.plot.PALETTE))

    def draw(ax: Any, name: str, z: np.ndarray) -> None:
        x, y, depth = (z @ view).T
        alpha = np.where(depth >= 0, 1.0, 0.25)
        ax.scatter(x, y, s=18, color=colours[name], alpha=alpha, linewidths=0)

    return cy.plot.globes(runs, p.show, draw)


def _draw_norms(p: Params, decays: list[Decay]) -> Any:
    """1 - mean cosine of uniform tokens on S^2, beta = 1. Left: post-norm falls like e^(-2t),
    dashed. Right: pre-norm falls like t^(-2), dashed, because |x| grows like t and slows turning.
    """
    figure, ((left, right),) = cy.plot.sheet(1, 2, 4.6, 3.5)
    for colour, c in zip(cy.plot.PALETTE, decays):
        left.semilogy(c.t, c.gap, color=colour, label=c.norm)
        right.loglog(c.t[1:], c.gap[1:], color=colour, label=c.norm)
    (_, t, post, _), (_, s, pre, _) = decays
    k = int(np.argmax(t >= 10))
    law: dict[str, Any] = {"ls": "--", "color": cy.plot.INK, "lw": 0.9}
    left.semilogy(t, post[k] * np.exp(-2 * (t - t[k])), label="$e^{-2t}$", **law)
    right.loglog(s[1:], pre[-1] * (s[1:] / s[-1]) ** -2.0, label="$t^{-2}$", **law)
    left.set(xlim=(0, 20), ylim=(1e-18, 3), xlabel="time t", ylabel="$1 - r$")
    right.set(ylim=(1e-8, 3), xlim=(0.1, p.long), xlabel="time t", ylabel="$1 - r$")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure
