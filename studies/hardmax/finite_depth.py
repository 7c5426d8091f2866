"""What a transformer of finite depth sees of the limit: 6 and 12 layers against infinitely many.

The theorem of arXiv 2407.01602 speaks of infinite depth, models have a dozen layers. See: of the
tokens that follow somebody at layer 0 most have a limit that can be proved there and then, fewer in
low dimension, among many tokens and for tokens that are not independent. How many layers the others
take depends on alpha and d. Nearly all leaders lead at layer 0. Distances shrink only by 1 + alpha
a layer: whether twelve layers are "converged" is a question of alpha. The words of the shipped
film-review classifier, placed so that few of a review lead, are measured beside random tokens.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Finite depth: how much of the limit a few layers see"
LAWS = ("gaussian", "ball", "words")
OTHERS: dict[str, Any] = {  # laws that are not independent or not centred: (n, d, generator)
    "random walk": lambda n, d, g: g.standard_normal((n, d)).cumsum(axis=0),
    "lattice": lambda n, d, g: g.integers(-8, 9, (n, d)).astype(float),
    "clusters": lambda n, d, g: (
        4 * g.standard_normal((8, d))[g.integers(0, 8, n)] + 0.3 * g.standard_normal((n, d))
    ),
}


@dataclass(frozen=True)
class Params:
    """Laws of the start, sizes, steps, starts per cell, layers; `marks` are the table's layers.

    The law "words" draws n words of the shipped film-review classifier (d = 2). `embeddings` may
    name a file of tokens (one per row): draws of n rows are measured beside the laws.
    Of the laws of OTHERS those of `others`, (d, n), are measured at every alpha.
    """

    laws: tuple[str, ...] = ("gaussian", "ball", "words")
    d: tuple[int, ...] = (2, 4, 8, 16)
    n: tuple[int, ...] = (16, 64, 256, 1024)
    alpha: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 10.0)
    starts: int = 10
    layers: int = 24
    marks: tuple[int, ...] = (6, 12)
    others: tuple[tuple[int, int], ...] = ((2, 256), (8, 256))
    seed: int = 0
    embeddings: str = ""


QUICK = Params(d=(2, 16), n=(16, 64), alpha=(0.1, 1.0, 10.0), starts=2, others=((2, 64),))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Limits and layers of every cell."""
    st.require(set(p.laws) <= set(LAWS), f"laws among {', '.join(LAWS)}", p)
    sensible = min(*p.d, *p.n, p.starts) >= 1 and all(0 <= k <= p.layers for k in p.marks)
    st.require(sensible, "d, n, starts >= 1, marks in 0..layers", p)
    drawn = _drawn(p)
    grid = list(product([law for law in p.laws if law not in drawn], p.d, p.n, p.alpha))
    for law, rows in drawn.items():
        grid += product([law], [rows.shape[1]], [n for n in p.n if n <= len(rows)], p.alpha)
    count = len(grid)
    grid += [(law, *size, a) for law, size, a in product(OTHERS, p.others, p.alpha)]
    said = [f"{law}, d = {d}, n = {n}, alpha = {alpha:g}" for law, d, n, alpha in grid]
    every = [(p, law, drawn.get(law), *rest) for law, *rest in grid]
    found: list[st.Cell] = st.kept_each(_curves, every, progress or st.silent, said)
    cells, others = found[:count], found[count:]
    statement = "a settled follower approaches its leader by the factor 1 + alpha every layer"
    slowest = 1 - min(c.slow for c in cells)  # relative
    rate = st.at_most("rate", "docs/mathematics.md B8", statement, slowest, 1e-6, cells=len(cells))
    z0 = cy.configurations.gaussian(40, 2, p.seed)
    one = cy.check(cy.simulate(cy.PureAttention(alpha=0.5), z0, layers=12))
    return st.report_of(
        p,
        _summary(p, cells),
        controls=[*_controls(p, cells), *_laws(p, cells, others)],
        tables=[_by_alpha(p, cells)],
        checks={"sweep": [rate], "gaussian, n = 40, d = 2": one},
        figures=[st.Picture.of("Against the layers", _picture, p, cells)],
    )


def _drawn(p: Params) -> dict[str, np.ndarray]:
    """Tokens to draw from, by the name of the law: trained ones, and those of a file."""
    rows = {}
    if "words" in p.laws:
        rows["words"] = cy.load_pretrained().model_.planes[0].embedding
    if p.embeddings:
        rows["embeddings"] = cy.configurations.read(p.embeddings)
    return rows


def _start(law: str, rows: np.ndarray | None, n: int, d: int, seed: int) -> np.ndarray:
    if law in OTHERS:
        return OTHERS[law](n, d, np.random.default_rng(seed))
    if rows is not None:
        return rows[np.random.default_rng(seed).choice(len(rows), n, replace=False)]
    return getattr(cy.configurations, law)(n, d, seed)


def _curves(p: Params, law: str, rows: np.ndarray | None, d: int, n: int, alpha: float) -> st.Cell:
    """Curves over the layers 0..layers, one row per start."""
    dynamics = cy.PureAttention(alpha=alpha)
    k = np.arange(p.layers + 1)[:, None]
    settled, followers, led, away, hulls = (np.full((p.starts, len(k)), np.nan) for _ in range(5))
    slow, certified, first = 1.0, 0, np.zeros(p.starts)
    for s in range(p.starts):
        z0 = _start(law, rows, n, d, p.seed + s)
        li = cy.limit(dynamics, z0)
        z = cy.simulate(dynamics, z0, layers=p.layers).values
        longest = np.linalg.norm(z0, axis=1).max()
        gaps = np.linalg.norm(z - li.points, axis=-1)
        known, follows = (li.settled_at >= 0) & (li.settled_at <= k), li.born != 0
        settled[s], first[s] = known.mean(axis=1), 1 - follows.mean()
        if follows.any():
            followers[s] = known[:, follows].mean(axis=1)
        led[s] = (li.born[li.leaders] <= k).mean(axis=1)
        away[s] = gaps.max(axis=1) / longest
        if d <= 4 and n <= 256:
            hulls[s] = [_to_hull(zk, li.polytope) / longest for zk in z]
        slow = min(slow, _slowest(gaps / longest, li, alpha))
        certified += li.certified
    return st.Cell(
        **{"law": law, "d": d, "n": n, "alpha": alpha},
        settled=settled,  # share of tokens whose limit is proved
        followers=followers,  # of those that do not lead at layer 0; NaN where all lead
        led=led,  # |L_k| / |L|
        led_first=first,  # share of the tokens that lead at layer 0, one number per start
        away=away,  # max |z_i^k - limit| / max |z^0|
        hull=hulls,  # Hausdorff distance of K_k and K / max |z^0|; NaN where not computed
        slow=slow,
        certified=certified,
    )


def _to_hull(z: np.ndarray, body: cy.analysis.Polytope) -> float:
    """Hausdorff distance of K_k and K, which lies inside; projects only tokens beyond a facet."""
    excess = z @ body.equations[:, :-1].T + body.equations[:, -1]
    flat = np.abs(z @ body.affine_equations[:, :-1].T + body.affine_equations[:, -1])
    far = z[(np.hstack([excess, flat]) > 1e-14 * body.size).any(axis=1)]
    return float(body.distance(far).max()) if len(far) else 0.0


def _slowest(gaps: np.ndarray, li: cy.analysis.Limit, alpha: float) -> float:
    """min of rho gap_k / gap_{k+1}, while gaps are no rounding; below 1: slower than the rate."""
    now, then = gaps[:-1] / (1 + alpha), gaps[1:]
    later = np.arange(len(now))[:, None] >= np.where(li.settled_at < 0, len(now), li.settled_at)
    seen = later & (li.follows >= 0) & (then > 1e-9)
    return float((now[seen] / then[seen]).min()) if seen.any() else 1.0


def _mean(cells: list[st.Cell], curve: str, k: int) -> float | None:
    """The mean of a curve at layer k over the runs that have one; None where none has."""
    values = np.concatenate([getattr(c, curve)[:, k] for c in cells])
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _told(cells: list[st.Cell], curve: str, k: int) -> str:
    """The mean with its interval by starts: runs of one start at several alpha are not apart."""
    groups = st.grouped(cells, "law", "d", "n").values()
    means = [np.mean([getattr(c, curve)[:, k] for c in of], axis=0) for of in groups]
    values = np.concatenate(means)[np.isfinite(np.concatenate(means))]
    if not len(values):
        return "none"
    low, high = st.resampled(values)
    starts = f"{len(values)} starts"
    if low == high:
        return f"{values.mean():.2%} (every one of {starts})"
    return f"{values.mean():.2%} (95 %: {low:.2%} to {high:.2%}, {starts})"


def _near(cells: list[st.Cell], k: int) -> tuple[int, int]:
    """Runs with every token within 1 % of its limit at layer k, and all that move."""
    away = np.concatenate([c.away[c.away[:, 0] > 0, k] for c in cells])
    return int((away < 0.01).sum()), len(away)


def _controls(p: Params, cells: list[st.Cell]) -> list[st.Comparison]:
    k, last = p.marks[0], p.marks[-1]
    by_d, by_alpha = (st.grouped(cells, name) for name in ("d", "alpha"))
    shares = {
        key: (_mean(of, "followers", 0), _mean(of, "followers", k))
        for key, of in st.grouped(cells, "d", "alpha").items()
    }
    known = {key: x for key, x in shares.items() if x[0] is not None and x[1] is not None}
    led = [_mean(of, "led", 0) for of in by_d.values()]
    near = {alpha: _near(of, last) for alpha, of in by_alpha.items() if _near(of, last)[1]}
    within, moving = (sum(x) for x in zip(*near.values()))
    rates, rho = [a / b for a, b in near.values()], {a: (1 + a) ** -last for a in near}
    return [
        st.Comparison(
            f"At layer {k} nearly every follower (99 %) has a proved limit.",
            "followers only; by d and alpha; layer 0, before any layer is run",
            f"layer 0, layer {k}: "
            + "; ".join(
                f"d = {d}, alpha = {a:g}: {x:.1%}, {y:.1%}" for (d, a), (x, y) in known.items()
            ),
            bool(known) and all(y is not None and y >= 0.99 for _, y in known.values()),
        ),
        st.Comparison(
            "Nearly all leaders (99 %) lead at layer 0.",
            "d",
            "; ".join(f"d = {d}: {_told(of, 'led', 0)}" for d, of in by_d.items()),
            all(x is not None and x >= 0.99 for x in led),
        ),
        st.Comparison(
            f"Every token is within 1 % of its limit at layer {last} in {within} of {moving} "
            "runs in which anything moves.",
            "alpha",
            "; ".join(
                f"alpha = {a:g}: {st.counted(*x)}, (1 + alpha)^-{last} = {rho[a]:.1g}"
                for a, x in near.items()
            ),
            max(rates) - min(rates) < 0.1,
        ),
    ]


def _laws(p: Params, cells: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    """The same shares for starts of other laws, of the same size."""
    out = []
    for d, n in p.others:
        plain = [c for c in cells if (c.law, c.d, c.n) == ("gaussian", d, n)]
        beside = st.grouped([c for c in (*plain, *others) if (c.d, c.n) == (d, n)], "law")
        seen = {law: _mean(of, "followers", 0) for law, of in beside.items()}
        known = [x for law, x in seen.items() if x is not None and law in OTHERS]
        base, marks = seen.get("gaussian"), (0, p.marks[0])
        if base is None or not known:
            continue
        told = (
            f"{law}: " + ", ".join(f"{_told(of, 'followers', k)} at layer {k}" for k in marks)
            for law, of in beside.items()
        )
        out.append(
            st.Comparison(
                f"d = {d}, n = {n}: the law of the start matters to what is proved at layer 0.",
                f"Gaussian tokens; {', '.join(OTHERS)}",
                f"followers with a proved limit: {'; '.join(told)}",
                max(abs(x - base) for x in known) > 0.02,
            )
        )
    return out


def _summary(p: Params, cells: list[st.Cell]) -> str:
    dims, marks, last = st.grouped(cells, "d"), (0, *p.marks), p.marks[-1]

    def known(of: list[st.Cell]) -> str:
        return ", ".join(f"{_told(of, 'followers', k)} at layer {k}" for k in marks)

    near = {a: _near(of, last) for a, of in st.grouped(cells, "alpha").items()}
    reached = [f"{st.counted(*x)} for alpha = {a:g}" for a, x in near.items() if x[1]]
    followers = np.mean([(1 - c.led_first).mean() for c in cells])
    words = [c for c in cells if c.law == "words"]
    tail = " Of words of the shipped film-review classifier that follow a limit is proved for "
    tail = f"{tail}{known(words)}." if words else ""
    return (
        f"{sum(c.certified for c in cells)} of {len(cells) * p.starts} runs are proved for every "
        f"token. For the laws {', '.join(dict.fromkeys(c.law for c in cells))}, "
        f"{followers:.0%} of the tokens follow somebody at layer 0. Of these a limit is "
        f"proved for: {'; '.join(f'd = {d}: {known(of)}' for d, of in dims.items())}. Whether "
        f"{last} layers are enough is a question of alpha: every token is within 1 % of its limit "
        f"at layer {last} in {'; '.join(reached)} (of the runs in which anything moves).{tail}"
    )


def _by_alpha(p: Params, cells: list[st.Cell]) -> st.Table:
    columns = (
        *("alpha", "layer", "tokens settled", "followers settled", "leaders present"),
        *("median distance", "largest distance", "largest hull distance", "(1+alpha)^-k"),
    )
    rows = []
    for alpha, k in product(p.alpha, (0, *p.marks)):
        of = [c for c in cells if c.alpha == alpha]
        away = np.array([c.away[:, k] for c in of])
        hulls = np.array([c.hull[:, k] for c in of])
        farthest = np.nanmax(hulls) if np.isfinite(hulls).any() else None
        distances = np.median(away), away.max(), farthest, (1 + alpha) ** -k
        known = (_mean(of, curve, k) for curve in ("settled", "followers", "led"))
        rows.append((alpha, k, *known, *distances))
    note = "Distances are shares of the longest token; hulls for d ≤ 4, n ≤ 256."
    return st.Table("What a finite depth sees, by alpha", columns, tuple(rows), note)


def _picture(p: Params, cells: list[st.Cell]) -> Any:
    """Top: tokens that follow somebody at layer 0 and whose limit is not proved yet, by d (mean
    over laws, n and alpha) and by alpha in the lowest dimension; curves end where none is left.
    Bottom left: final leaders that do not lead yet. Bottom right: the largest distance to the limit
    in all runs of an alpha (colours as above) and that of the hulls (d ≤ 4, n ≤ 256), as shares of
    the longest token: parallel to (1 + alpha)^-k once all tokens have settled.
    """
    k = np.arange(p.layers + 1)
    figure, axes = cy.plot.sheet(2, 2, 5, 3.4)
    by_d, by_alpha, leaders, away = axes.flat
    dims = st.grouped(cells, "d")
    lowest = st.grouped(dims[min(dims)], "alpha")
    for colour, (d, of) in zip(cy.plot.PALETTE, dims.items()):
        _line(by_d, of, "followers", colour, f"d = {d}")
        _line(leaders, of, "led", colour, f"d = {d}")
    every = st.grouped(cells, "alpha")
    for colour, (alpha, of) in zip(cy.plot.PALETTE[len(dims) :], every.items()):
        if alpha in lowest:
            _line(by_alpha, lowest[alpha], "followers", colour, f"alpha = {alpha:g}")
        away.plot(k, _positive(np.max([c.away.max(axis=0) for c in of], axis=0)), color=colour)
        if hulls := [c.hull for c in of if np.isfinite(c.hull).all()]:
            away.plot(k, _positive(np.max(np.concatenate(hulls), axis=0)), ":", color=colour)
        away.plot(k, (1.0 + alpha) ** -k, "--", color=colour, lw=0.8)
    by_d.set(ylabel="share of followers", title="not settled, by dimension")
    by_alpha.set(ylabel="share of followers", title=f"not settled, by step, d = {min(dims)}")
    leaders.set(ylabel="share of final leaders", title="do not lead yet, by dimension")
    away.set(ylabel="share of the longest token", title="distance to the limit, by step")
    for style, name in {"-": "tokens", ":": "hulls", "--": r"$(1+\alpha)^{-k}$"}.items():
        away.plot([], [], style, color=cy.plot.INK, label=name)
    for ax in axes.flat:
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
        ax.set(xlabel="layer $k$", xlim=(-0.5, p.layers + 0.5))
        if any(np.isfinite(np.asarray(line.get_ydata(), float)).any() for line in ax.get_lines()):
            ax.set_yscale("log")
        else:
            ax.set_yticks([])
    away.set_ylim(1e-14, 3)
    return figure


def _line(ax: Any, cells: list[st.Cell], curve: str, colour: str, label: str) -> None:
    """1 - the mean of a curve over the runs that have one; the legend tells where that is 0."""
    rows = np.concatenate([getattr(c, curve) for c in cells])
    rows = rows[np.isfinite(rows).all(axis=1)]
    y = _positive(1 - rows.mean(axis=0)) if len(rows) else np.full(rows.shape[1], np.nan)
    if np.isfinite(y).any():
        ax.plot(np.arange(len(y)), y, ".-", color=colour, label=label)
    else:
        ax.plot([], [], " ", label=f"{label}: none")


def _positive(y: np.ndarray) -> np.ndarray:
    """For a logarithmic axis: zero, and what is rounding, is left out."""
    return np.where(y > 1e-14, y, np.nan)
