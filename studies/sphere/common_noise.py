"""Noise that all tokens share: tokens meet, or end in two antipodal groups.

Random value matrices act on every token alike (`NoisySphere`, arXiv 2601.21942). The angle of two
tokens is then a diffusion whose law does not know the dimension, and antipodes attract with
positive probability iff sigma^2 > 2/(1 + e^{2 beta}) (docs/mathematics.md B36). See how often two
orthogonal tokens end as antipodes, over beta and sigma, with the exact threshold and the exact
probabilities; and n tokens, which end in one group or in two antipodal ones, the smaller of which
cannot be too small: its threshold is higher. Beside it, noise of its own for every token, under
which nothing meets for good.

Trap: at the threshold pairs take for ever to decide, and a layer of length dt has a drift of its
own; undecided pairs are counted, and the layers are also made half as long.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems import noise as law

TITLE = "Common noise: meeting or antipodes"
NOISES = ("common", "own")


@dataclass(frozen=True)
class Params:
    """`pairs` runs of two tokens of cosine `r` for each beta and sigma, d = `d`; the cut at `cut`
    also in dimensions `dims`, from cosines `rs` and with half the step. `runs` runs of n tokens.
    What is below the threshold is also followed to the time `late`."""

    beta: tuple[float, ...] = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0)
    sigma: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.1, 1.3)
    d: int = 3
    r: float = 0.0
    pairs: int = 300
    dt: float = 0.02
    time: float = 16.0
    late: float = 96.0
    cut: float = 1.0
    dims: tuple[int, ...] = (2, 8)
    rs: tuple[float, ...] = (-0.6, 0.6)
    n: tuple[int, ...] = (4, 16, 32)
    runs: int = 100
    seed: int = 0


QUICK = Params(
    beta=(0.0, 2.0), sigma=(0.2, 0.7, 1.0), pairs=60, dt=0.05, time=4.0, late=8.0,
    dims=(2,), rs=(0.6,), n=(4,), runs=20,
)  # fmt: skip


class Pairs(NamedTuple):
    """Where many pairs, each with noise of its own drawing, are at the end."""

    beta: float
    sigma: float
    d: int
    r: float
    dt: float
    phi: np.ndarray  # log tan(theta/2) of every pair

    @property
    def antipodal(self) -> int:
        return int((self.phi > 0).sum())

    @property
    def share(self) -> float:
        return self.antipodal / len(self.phi)

    @property
    def undecided(self) -> int:
        return int((np.abs(self.phi) < 3).sum())

    @property
    def apart(self) -> float:
        """The share with |cosine| < 0.99: neither together nor opposite."""
        return float((np.abs(np.tanh(self.phi)) < 0.99).mean())

    @property
    def exact(self) -> float:
        return law.antipodal_probability(self.r, self.beta, self.sigma)

    @property
    def tail(self) -> float:
        """log10 of how probable so large a distance from the law is, at most."""
        pair, doubt = law.PairLaw(self.beta, self.sigma), (1 + self.sigma**2) ** 2 * self.dt
        return min(law.tail_of_ends(pair, float(-np.arctanh(self.r)), self.phi, doubt))


def layer(x: np.ndarray, noise: np.ndarray, beta: float, sigma: float, dt: float) -> np.ndarray:
    """A layer of `NoisySphere` for tokens (b, n, d), `noise` being G_k x_i."""
    y = x + dt * cy.Softmax(beta).pull(x) + sigma * dt**0.5 * noise
    return y / np.linalg.norm(y, axis=-1, keepdims=True)


def follow(
    x: np.ndarray, beta: float, sigma: float, dt: float, time: float, noise: str, seed: list[int]
) -> np.ndarray:
    """Tokens (b, n, d) at the end; each of the b runs has its own draws."""
    rng, (b, _, d), common = np.random.default_rng(seed), x.shape, noise == "common"
    for _ in range(round(time / dt)):
        drawn = x @ rng.standard_normal((b, d, d)) if common else rng.standard_normal(x.shape)
        x = layer(x, drawn, beta, sigma, dt)
    return x


def _phi(x: np.ndarray) -> np.ndarray:
    """log tan(theta/2) = log(|x - y|/|x + y|) of pairs (b, 2, d)."""
    with np.errstate(divide="ignore"):
        away, sum_ = x[:, 0] - x[:, 1], x[:, 0] + x[:, 1]
        return np.log(np.linalg.norm(away, axis=1)) - np.log(np.linalg.norm(sum_, axis=1))


def _pairs(
    p: Params, beta: float, sigma: float, d: int, r: float, halves: int, time: float
) -> Pairs:
    x = np.zeros((p.pairs, 2, d))
    x[:, 0, 0], x[:, 1, 0], x[:, 1, 1] = 1, r, (1 - r * r) ** 0.5
    dt = p.dt / 2**halves
    seed = [p.seed, d, halves, round(1000 * beta), round(1000 * sigma), round(1000 * r) + 1000]
    return Pairs(beta, sigma, d, r, dt, _phi(follow(x, beta, sigma, dt, time, "common", seed)))


def _crowd(p: Params, n: int, sigma: float, time: float) -> st.Cell:
    """Many runs of n uniform tokens: the share of the smaller group, nan where there are not at
    most two groups, opposite ones; runs that end in one group and in two."""
    x = np.stack([cy.configurations.sphere(n, p.d, p.seed + s) for s in range(p.runs)])
    x = follow(x, p.cut, sigma, p.dt, time, "common", [p.seed, n, round(1000 * sigma)])
    cosine = np.einsum("bnd,bd->bn", x, x[:, 0])
    share = (cosine < 0).mean(axis=1)
    settled = (np.abs(cosine) > 0.99).all(axis=1)
    smaller = np.where(settled, np.minimum(share, 1 - share), np.nan)
    one, two = int((smaller == 0).sum()), int((smaller > 0).sum())
    return st.Cell(n=n, sigma=sigma, smaller=smaller, one=one, two=two)


def _own(p: Params, sigma: float, d: int) -> np.ndarray:
    """Cosines of pairs at the end, each token in noise of its own."""
    x = np.zeros((4 * p.pairs, 2, d))
    x[:, 0, 0] = x[:, 1, 1] = 1
    x = follow(x, p.cut, sigma, p.dt, min(p.time, 10.0), "own", [p.seed, d, round(1000 * sigma)])
    return np.einsum("bd,bd->b", x[:, 0], x[:, 1])


def stationary(r: np.ndarray, beta: float, sigma: float, d: int) -> np.ndarray:
    """The density of r in noise of its own for every token: (1-r^2)^{(d-3)/2} e^{2 int w/sigma^2}.

    int w dr = log(1 + e^{beta (r-1)})/beta, and r/2 for beta = 0.
    """
    weight = r / 2 if beta == 0 else np.log1p(np.exp(beta * (r - 1))) / beta
    raw = (1 - r * r) ** ((d - 3) / 2) * np.exp(2 * weight / sigma**2)
    return raw / np.trapezoid(raw, r)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The diagram of pairs, the cut with its variations, n tokens, noise of its own."""
    over = st.measuring(p, progress)
    largest = (1 + max(p.sigma) ** 2) ** 2 * p.dt
    st.require(min(p.sigma) > 0 and largest <= 0.25, "sigma > 0, (1 + sigma^2)^2 dt <= 1/4", p)
    quiet = {s**2 <= law.antipodal_threshold(b) for b in p.beta for s in p.sigma}
    st.require(len(quiet) == 2, "some beta and sigma on both sides of the threshold", p)
    axes = {"beta": p.beta, "sigma": p.sigma, "d": (p.d,), "r": (p.r,), "halves": (0,)}
    axes["time"] = (p.time,)
    grid = over(_pairs, axes, 0.4)
    axes["beta"] = (p.cut,)
    cut = over(_pairs, {**axes, "d": (p.d, *p.dims)}, 0.5)
    fine = over(_pairs, {**axes, "halves": (1,)}, 0.6)
    other = over(_pairs, {**axes, "r": p.rs}, 0.7)
    crowds = over(_crowd, {"n": p.n, "sigma": p.sigma, "time": (p.time,)}, 0.85)
    later = st.Cell(
        pairs=st.kept_each(
            _pairs, [(p, c.beta, c.sigma, p.d, p.r, 0, p.late) for c in _below(grid)]
        ),
        crowds=over(_crowd, {"n": p.n[:2], "sigma": _quiet(p), "time": (p.late,)}, 0.95),
    )
    own = over(_own, {"sigma": (0.5, 1.0), "d": (p.d,)})
    every = [*grid, *cut, *fine, *other]
    worst = min(every, key=lambda c: c.tail)
    check = st.at_most(
        "common noise, many pairs",
        "docs/mathematics.md B36, `tail_of_ends`",
        "the pairs that end as antipodes are as many as the law says: no tail below 1e-6",
        -worst.tail,
        6,
        beta=worst.beta,
        sigma=worst.sigma,
        d=worst.d,
    )
    return st.report_of(
        p,
        _summary(p, grid, crowds, later),
        controls=_comparisons(p, grid, cut, fine, other, crowds, later, own),
        tables=_tables(every, crowds),
        checks={"all pairs": [check]},
        figures=[st.Picture.of("Meeting or antipodes", _draw, p, grid, cut, fine, crowds, own)],
    )


def _below(grid: list[Pairs]) -> list[Pairs]:
    return [c for c in grid if c.sigma**2 <= law.antipodal_threshold(c.beta)]


def _quiet(p: Params) -> tuple[float, ...]:
    """The sigma below the threshold of equal groups, and the next one."""
    below = [s for s in p.sigma if s**2 <= law.antipodal_threshold(p.cut)]
    return p.sigma[: len(below) + 1]


def _too_small(p: Params, crowds: list[st.Cell]) -> tuple[int, int]:
    """Ends in two groups below the threshold of their shares, and ends in two groups."""
    ends = [(c.sigma**2, s) for c in crowds for s in c.smaller[c.smaller > 0].tolist()]
    return sum(v <= law.antipodal_threshold(p.cut, s) for v, s in ends), len(ends)


def _summary(p: Params, grid: list[Pairs], crowds: list[st.Cell], later: st.Cell) -> str:
    below = _below(grid)
    above = [c for c in grid if c not in below]
    off = max(abs(c.share - c.exact) for c in above)
    lost, total = sum(c.antipodal for c in below), sum(len(c.phi) for c in below)
    two = "; ".join(
        f"n = {n}: {', '.join(f'{c.two} at {c.sigma:g}' for c in crowds if c.n == n)}" for n in p.n
    )
    return (
        f"Below the threshold sigma^2 = 2/(1 + e^(2 beta)) {lost} of {total} pairs are opposite at "
        f"t = {p.time:g} and {sum(c.antipodal for c in later.pairs)} at t = {p.late:g}; above it "
        f"the share is within {off:.3f} of the exact probability in {len(above)} cells of "
        f"{p.pairs} pairs.\n\nRuns of {p.runs} that end in two antipodal "
        f"groups, beta = {p.cut:g}, by sigma: {two}."
    )


def _inside(group: list[Pairs]) -> tuple[int, float]:
    """How many cells have the exact probability in the 95 % interval, and the largest distance."""
    found = [st.wilson(c.antipodal, len(c.phi)) for c in group]
    inside = sum(low <= c.exact <= high for c, (low, high) in zip(group, found))
    return inside, max(abs(c.share - c.exact) for c in group)


def _comparisons(
    p: Params,
    grid: list[Pairs],
    cut: list[Pairs],
    fine: list[Pairs],
    other: list[Pairs],
    crowds: list[st.Cell],
    later: st.Cell,
    own: list[np.ndarray],
) -> list[st.Comparison]:
    below = _below(grid)
    lost, total = sum(c.antipodal for c in below), sum(len(c.phi) for c in below)
    still = sum(c.antipodal for c in later.pairs)
    groups = {f"d = {d}": [c for c in cut if c.d == d] for d in (p.d, *p.dims)}
    groups |= {f"step {p.dt / 2:g}": fine}
    groups |= {f"from cosine {r:g}": [c for c in other if c.r == r] for r in p.rs}
    seen = {name: _inside(group) for name, group in groups.items()}
    # Wilson's interval misses 1 in 20, and a step is not 0: no cell may be beyond 1e-6
    tails = min(c.tail for group in groups.values() for c in group)
    same = [c for c in crowds if c.n in p.n[:2] and c.sigma in _quiet(p)]
    (small, ends), (small_late, ends_late) = (_too_small(p, g) for g in (same, later.crowds))
    equal = law.antipodal_threshold(p.cut)
    few, few_late = (sum(c.two for c in g if c.sigma**2 <= equal) for g in (same, later.crowds))
    spread = [float((np.abs(r) < 0.99).mean()) for r in own]
    shared = float(np.mean([c.apart for c in cut]))
    return [
        st.Comparison(
            "below the threshold antipodes do not last",
            f"beta and sigma, {len(below)} cells; {p.late / p.time:g} times as long",
            f"opposite at t = {p.time:g}: {st.counted(lost, total)}; at t = {p.late:g}: "
            f"{st.counted(still, total)}",
            still <= lost / 2 and still <= 1e-3 * total,
        ),
        st.Comparison(
            f"the law knows neither dimension nor step (beta = {p.cut:g})",
            "d, half the step, other cosines at the start",
            "; ".join(
                f"{name}: exact value in the 95 % interval in {inside} of {len(groups[name])}, "
                f"off by {off:.3f} at most"
                for name, (inside, off) in seen.items()
            ),
            tails > -6,
        ),
        st.Comparison(
            "two groups below the threshold of their shares do not last",
            f"n = {', '.join(map(str, p.n[:2]))}, sigma = "
            f"{', '.join(f'{s:g}' for s in _quiet(p))}; {p.late / p.time:g} times as long",
            f"below it at t = {p.time:g}: {small} of {ends} ends in two groups ({few} in noise too "
            f"weak for equal groups); at t = {p.late:g}: {small_late} of {ends_late} ({few_late})",
            few_late == 0 and small_late <= small / 2,
        ),
        st.Comparison(
            "common noise makes tokens meet or oppose each other",
            "noise of its own for every token, sigma = 0.5 and 1",
            "pairs with |cosine| < 0.99 at the end: "
            + ", ".join(f"{s:.2f} of them" for s in spread)
            + f"; common noise, every sigma and d: {shared:.2f}",
            shared < min(spread) / 2,
        ),
    ]


def _tables(pairs: list[Pairs], crowds: list[st.Cell]) -> list[st.Table]:
    columns = st.columns("beta, sigma, d, r, dt, antipodal = share")
    columns |= st.interval(lambda c: (c.antipodal, len(c.phi)))
    columns |= st.columns("exact, undecided")
    many: dict[str, Any] = {
        **st.columns("n, sigma, one, two"),
        "neither": lambda c: len(c.smaller) - c.one - c.two,
        "least share": lambda c: float(c.smaller[c.smaller > 0].min()) if c.two else None,
    }
    note = "Ends with all tokens within 8 degrees of one line; share of the smaller group."
    return [
        st.Table.of("Pairs", pairs, columns),
        st.Table.of("Many tokens", crowds, many, note),
    ]


def _draw(
    p: Params,
    grid: list[Pairs],
    cut: list[Pairs],
    fine: list[Pairs],
    crowds: list[st.Cell],
    own: list[np.ndarray],
) -> Any:
    """Top left: share of pairs of orthogonal tokens that end as antipodes; white: the threshold
    sigma^2 = 2/(1 + e^(2 beta)). Top right: the cut at one beta, measured in several dimensions and
    with half the step (bars: 95 %), against the exact law (line) and threshold (dotted). Bottom
    left: n uniform tokens, runs that end in two antipodal groups. Bottom right, the null model:
    noise of its own for every token; cosines stay spread as the stationary law says.
    """
    figure, ((first, second), (third, last)) = cy.plot.sheet(2, 2, 4.8, 3.6)
    share = np.reshape([c.share for c in grid], (len(p.beta), len(p.sigma))).T
    look: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": 0.5, "shading": "nearest"}
    image = first.pcolormesh(p.beta, p.sigma, share, **look)
    line = np.linspace(min(p.beta), max(p.beta), 200)
    edge = [law.antipodal_threshold(float(b)) ** 0.5 for b in line]
    first.plot(line, edge, color="white", lw=2)
    figure.colorbar(image, ax=first, pad=0.02).set_label("antipodal", size=cy.plot.LABEL)
    first.set(xlabel=r"$\beta$", ylabel=r"noise $\sigma$")
    first.set_title("two tokens", loc="left", fontsize=cy.plot.LABEL)
    smooth = np.linspace(min(p.sigma), max(p.sigma), 120)
    exact = [law.antipodal_probability(p.r, p.cut, float(s)) for s in smooth]
    second.plot(smooth, exact, color=cy.plot.INK, lw=1.2, label="exact law")
    groups = {f"d = {d}": [c for c in cut if c.d == d] for d in (p.d, *p.dims)}
    groups["half the step"] = fine
    for k, (name, group) in enumerate(groups.items()):
        rate, ends = [c.share for c in group], [st.wilson(c.antipodal, len(c.phi)) for c in group]
        at = np.array([c.sigma for c in group]) + 0.012 * (k - 1.5)
        how: dict[str, Any] = {"fmt": "o", "ms": 3.5, "capsize": 2, "color": cy.plot.PALETTE[k]}
        second.errorbar(at, rate, np.abs(np.array(ends).T - rate), label=name, **how)
    for ax in (second, third):
        ax.axvline(law.antipodal_threshold(p.cut) ** 0.5, color=cy.plot.GREY, ls=":")
    second.set(xlabel=r"noise $\sigma$", ylabel="share of antipodal pairs")
    second.set_title(rf"two tokens, $\beta$ = {p.cut:g}", loc="left", fontsize=cy.plot.LABEL)
    second.legend(frameon=False, fontsize=cy.plot.LABEL - 1)
    ends_ = lambda c: st.wilson(c.two, len(c.smaller))  # noqa: E731
    two = lambda c: c.two / len(c.smaller)  # noqa: E731
    st.curves(third, crowds, "sigma", two, "n", ends=ends_, label="n = {}")
    third.set(xlabel=r"noise $\sigma$", ylabel="two antipodal groups", ylim=(-0.03, 1.03))
    third.set_title(rf"n tokens, $\beta$ = {p.cut:g}", loc="left", fontsize=cy.plot.LABEL)
    third.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    r = np.linspace(-0.999, 0.999, 400)
    for colour, sigma, found in zip(cy.plot.PALETTE, (0.5, 1.0), own):
        drawn: dict[str, Any] = {"range": (-1, 1), "density": True, "color": colour, "alpha": 0.35}
        last.hist(found, 40, label=rf"$\sigma$ = {sigma:g}", **drawn)
        last.plot(r, stationary(r, p.cut, sigma, p.d), color=colour)
    last.set(xlabel="cosine of a pair at the end", ylabel="density")
    last.set_title("noise of its own for every token", loc="left", fontsize=cy.plot.LABEL)
    last.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    return figure
