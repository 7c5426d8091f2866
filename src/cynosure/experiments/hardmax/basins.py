"""A certified atlas: where one more token would end up, for every place it could start.

A probe token is put on each pixel beside fixed tokens, all of them move, and the pixel gets the
colour of the leader that the probe is *proved* to tend to. Inside a polytope whose vertices all
lead, the basins are the cells of a power diagram,

    argmax_v <A x, v> = argmin_v (|x - v|_A^2 - |v|_A^2)

(arXiv 2508.09628, docs/mathematics.md B18). See: there the colours fill the drawn cells exactly.
Where a vertex of the hull does not lead, the probe chases a moving token first and the boundaries
bend and split; the zoom shows where. White: the probe leads. Grey: its limit is proved and is no
leader. Black: nothing is proved.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.limits import Limit, limit
from ...analysis.polytope import hull
from ...drawing.report import Picture, Report, Table
from ...dynamics import PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...theorems import Check
from .._frame import Progress, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Basins: a certified atlas of where a token ends up"
OWN, NO_LEADER, OPEN = -1, -2, -3  # the probe leads; its limit is no leader; nothing is proved
_BATCH = 8192


@final
@dataclass(frozen=True)
class Params:
    """Pixels per side, step, layers before the slower proof is tried, Gaussian tokens, and zoom."""

    pixels: int = 480
    alpha: float = 0.5
    layers: int = 60
    n: int = 14
    seed: int = 4
    zoom: float = 0.15  # side of the zoom, share of the picture's


QUICK = Params(pixels=90)


class Atlas(NamedTuple):
    """Pixels of one start: the token each tends to (or OWN, NO_LEADER, OPEN), its power cell."""

    name: str
    z: np.ndarray
    box: tuple[float, float, float, float]
    label: np.ndarray  # (pixels, pixels), row = second coordinate
    cell: np.ndarray
    inside: np.ndarray  # pixels of the polytope of the fixed tokens
    li: Limit

    @property
    def proved(self) -> np.ndarray:
        return self.label != OPEN

    @property
    def agree(self) -> float:
        """Share of the pixels in the polytope whose limit is proved and is their power cell's."""
        seen = self.inside & self.proved
        return float((self.label == self.cell)[seen].mean())


def run(p: Params, progress: Progress | None = None) -> Report:
    """Three starts and a zoom."""
    say = progress or silent
    if p.pixels < 8 or p.n < 3 or not 0 < p.zoom < 1:
        raise ValueError(f"basins: pixels >= 8, n >= 3 and 0 < zoom < 1; got {p}")
    atlases = []
    for done, (name, z) in enumerate(_starts(p).items()):
        say(0.25 * done, name)
        reach = 1.15 * float(np.abs(z).max())
        atlases.append(kept(_atlas, p, name, z, (-reach, reach, -reach, reach)))
    say(0.75, "zoom")
    whole = atlases[1]
    zoom = kept(_atlas, p, f"zoom into: {whole.name}", whole.z, _window(p, whole))
    say(0.95, "figures")
    figures = (
        Picture("Basins", _CAPTION, _figure(atlases, window=zoom.box)),
        Picture("Zoom", _ZOOM, _figure([zoom], side=6.2)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary([*atlases, zoom]),
        asdict(p),
        (_table([*atlases, zoom]),),
        {atlases[0].name: _checks(atlases[0])},
        figures,
        command="cynosure run basins",
    )


_CAPTION = (
    "Each pixel has the colour of the leader its probe tends to; a probe on a white pixel leads "
    "itself. Black lines: power cells of the final leaders (stars, where they lead); grey line: "
    "hull of the fixed tokens (dots: those that follow, at their start). Left all vertices of the "
    "hull lead and colours fill the cells; in the others they do not. Dashed: the zoom."
)
_ZOOM = (
    "The busiest place of the second start, recomputed at full resolution. See the colours cross "
    "the black lines: between a line and the colour beside it the probe changes who leads, or "
    "follows a token that is itself on its way."
)


def _starts(p: Params) -> dict[str, np.ndarray]:
    pentagon = configurations.polygon(5, interior=4, seed=p.seed)
    pentagon[:5] *= np.array([1.0, 1.1, 0.95, 1.05, 0.9])[:, None]  # no two corners alike
    return {
        "every vertex leads": pentagon,
        "emerging leader (G1)": configurations.golden("G1"),
        f"{p.n} Gaussian tokens": configurations.gaussian(p.n, 2, p.seed),
    }


def _atlas(p: Params, name: str, z: np.ndarray, box: tuple[float, float, float, float]) -> Atlas:
    x, y = (np.linspace(a, b, p.pixels + 1)[:-1] for a, b in (box[:2], box[2:]))
    half = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2  # centres of the pixels
    probe = np.stack(np.meshgrid(x + half[0], y + half[1]), axis=-1).reshape(-1, 2)
    dynamics = PureAttention(alpha=p.alpha)
    label = np.concatenate(
        [
            _labels(p, dynamics, z, probe[start : start + _BATCH])
            for start in range(0, len(probe), _BATCH)
        ]
    )
    li = limit(dynamics, z)
    cell = li.leaders[(probe @ li.points[li.leaders].T).argmax(axis=1)]
    inside = li.polytope.contains(probe)
    shape = (p.pixels, p.pixels)
    return Atlas(name, z, box, label.reshape(shape), cell.reshape(shape), inside.reshape(shape), li)


def _labels(p: Params, dynamics: PureAttention, z: np.ndarray, probe: np.ndarray) -> np.ndarray:
    """What is proved about each probe: rule S from the batch, the other rules one by one."""
    start = np.concatenate([np.tile(z, (len(probe), 1, 1)), probe[:, None]], axis=1)
    tr = simulate(dynamics, start, layers=p.layers, save_every=p.layers)
    assert tr.history is not None
    label = tr.history.leader[:, -1]
    label = np.where(label < 0, OPEN, label)  # also where it is settled on no leader: see below
    for i in np.flatnonzero(label == OPEN):
        li = limit(dynamics, start[i], max_layers=20 * p.layers)
        if li.settled_at[-1] >= 0:
            label[i] = li.follows[-1] if li.follows[-1] >= 0 else NO_LEADER
    return np.where(label == len(z), OWN, label)


def _window(p: Params, atlas: Atlas) -> tuple[float, float, float, float]:
    """A square around the pixel with the most different limits, inside the polytope."""
    reach = max(2, round(p.zoom * p.pixels / 2))
    best, centre = -1, (p.pixels // 2, p.pixels // 2)
    step = max(1, reach // 3)
    for r in range(reach, p.pixels - reach, step):
        for c in range(reach, p.pixels - reach, step):
            if not atlas.inside[r, c]:
                continue
            part = (slice(r - reach, r + reach + 1), slice(c - reach, c + reach + 1))
            odd = int((atlas.label[part] != atlas.cell[part])[atlas.inside[part]].sum())
            found = len(np.unique(atlas.label[part])) * (2 * reach + 1) ** 2 + odd
            if found > best:
                best, centre = found, (r, c)
    left, right, bottom, top = atlas.box
    width = (right - left) * p.zoom / 2
    x = left + (right - left) * (centre[1] + 0.5) / p.pixels
    y = bottom + (top - bottom) * (centre[0] + 0.5) / p.pixels
    return x - width, x + width, y - width, y + width


def _checks(atlas: Atlas) -> tuple[Check, ...]:
    """Power cells, as a formula and as basins, where every vertex of the hull leads."""
    leads = set(atlas.li.leaders[atlas.li.born[atlas.li.leaders] == 0].tolist())
    vertices = set(hull(atlas.z).index.tolist())
    seen = atlas.inside & atlas.proved
    wrong = int((atlas.label != atlas.cell)[seen].sum())
    x = np.random.default_rng(0).uniform(*atlas.box[:2], (2000, 2))
    v = atlas.li.points[atlas.li.leaders]
    power = np.linalg.norm(x[:, None] - v, axis=-1) ** 2 - (v**2).sum(axis=1)
    scores = x @ v.T
    gap = np.sort(scores, axis=1)
    clear = gap[:, -1] - gap[:, -2] > 1e-12
    differ = int((power.argmin(axis=1) != scores.argmax(axis=1))[clear].sum())
    applies = vertices == leads

    def judged(statement: str, wrong: int, applies: bool, witness: dict[str, Any]) -> Check:
        return Check(
            "B18",
            "docs/mathematics.md B18; arXiv 2508.09628",
            statement,
            applies=applies,
            holds=wrong == 0 if applies else None,
            margin=-float(wrong),
            tol=0.0,
            witness=witness,
            hypotheses=(),
            arithmetic="float64",
        )

    return (
        judged(
            "where all vertices of the hull lead, the basin of a vertex inside it is its power "
            "cell; argmax_v <x, v> is argmin_v (|x - v|^2 - |v|^2)",
            wrong + differ,
            applies,
            {"pixels": int(seen.sum()), "other limit": wrong, "other cell": differ},
        ),
    )


def _table(atlases: list[Atlas]) -> Table:
    rows = tuple(
        (
            a.name,
            a.label.size,
            float(a.proved.mean()),
            int((~a.proved).sum()),
            float((a.label == OWN).mean()),
            int((a.label == NO_LEADER).sum()),
            len(a.li.leaders),
            len(np.unique(a.label[a.inside & (a.label >= 0)])),
            a.agree if (a.inside & a.proved).any() else None,
        )
        for a in atlases
    )
    columns = (
        "start",
        "pixels",
        "proved",
        "not proved",
        "probe leads",
        "limit is no leader",
        "leaders without probe",
        "basins inside",
        "in its power cell",
    )
    note = "The last column counts the proved pixels in the polytope of the fixed tokens' leaders."
    return Table("Atlas", columns, rows, note)


def _summary(atlases: list[Atlas]) -> str:
    pixels, proved = sum(a.label.size for a in atlases), sum(a.proved.sum() for a in atlases)
    told = "; ".join(f"{a.name}: {a.agree:.2%}" for a in atlases if (a.inside & a.proved).any())
    return (
        f"{proved} of {pixels} pixels have a proved limit. Share of the pixels inside the polytope "
        f"that end in their power cell: {told}. Where every vertex leads, the power cells are the "
        f"basins; elsewhere a probe that starts in one cell may end in another, because it follows "
        f"a token that is itself on its way, or because the probe changes who leads."
    )


def _scores(a: Atlas) -> np.ndarray:
    """<x, v> on a 201 x 201 grid over the picture for each leader v: the last axis."""
    x, y = (np.linspace(*ends, 201) for ends in (a.box[:2], a.box[2:]))
    return np.stack(np.meshgrid(x, y), axis=-1) @ a.li.points[a.li.leaders].T


def _figure(
    atlases: list[Atlas],
    side: float = 4.6,
    window: tuple[float, float, float, float] | None = None,
) -> Any:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    from ...drawing.plot import GREY, INK, PALETTE

    figure = Figure(figsize=(side * len(atlases), side + 0.5), layout="constrained")
    for ax, a in zip(figure.subplots(1, len(atlases), squeeze=False)[0], atlases):
        order = [int(i) for i in np.unique(a.label) if i >= 0]
        order = [i for i in a.li.leaders.tolist() if i in order] + [
            i for i in order if i not in a.li.leaders
        ]
        colour = {i: PALETTE[k % len(PALETTE)] for k, i in enumerate(order)}
        values = [OPEN, NO_LEADER, OWN, *order]
        index = np.searchsorted(np.sort(values), a.label)
        table = {OPEN: "black", NO_LEADER: "#BBBBBB", OWN: "white", **colour}
        colours = [table[v] for v in sorted(values)]
        ax.imshow(
            index,
            origin="lower",
            extent=a.box,
            cmap=ListedColormap(colours),
            vmin=-0.5,
            vmax=len(colours) - 0.5,
            interpolation="nearest",
            alpha=0.75,
        )
        scores = _scores(a)
        for k in range(len(a.li.leaders)):  # ahead of the best of the others: above 0 in its cell
            ahead = scores[..., k] - np.delete(scores, k, axis=-1).max(axis=-1)
            if ahead.min() < 0 < ahead.max():
                ax.contour(ahead, [0.0], colors=INK, linewidths=0.9, extent=a.box)
        ring = hull(a.z).ordered()
        ax.plot(*np.vstack([ring, ring[:1]]).T, color=GREY, lw=1.2)
        follow = np.setdiff1d(np.arange(len(a.z)), a.li.leaders)
        ax.plot(*a.z[follow].T, "o", mfc="white", mec=INK, ms=4.5)
        for i in a.li.leaders.tolist():
            star = colour.get(i, "white")
            ax.plot(*a.li.points[i], "*", mfc=star, mec=INK, ms=14, mew=0.8)
        ax.set(xlim=a.box[:2], ylim=a.box[2:], aspect="equal", title=a.name)
        ax.set(xlabel="$z_1$", ylabel="$z_2$")
        ax.tick_params(labelsize=8)
    if window is not None and len(atlases) > 1:
        left, right, bottom, top = window
        frame = Rectangle((left, bottom), right - left, top - bottom, fill=False, ls="--", ec=INK)
        figure.axes[1].add_patch(frame)
    entries: list[Any] = [
        Patch(fc="white", ec=GREY, label="the probe leads"),
        Line2D([], [], marker="*", ls="", mfc=GREY, mec=INK, ms=12, label="leader"),
        Line2D([], [], marker="o", ls="", mfc="white", mec=INK, ms=5, label="follower"),
        Line2D([], [], color=INK, lw=0.9, label="power cells"),
        Line2D([], [], color=GREY, lw=1.2, label="hull of the tokens"),
    ]
    if any((a.label == NO_LEADER).any() for a in atlases):
        entries.append(Patch(fc="#BBBBBB", label="limit proved, no leader"))
    if any((a.label == OPEN).any() for a in atlases):
        entries.append(Patch(fc="black", label="not proved"))
    columns = len(entries) if len(atlases) > 1 else 3
    figure.legend(handles=entries, loc="outside lower center", ncols=columns, frameon=False)
    return figure
