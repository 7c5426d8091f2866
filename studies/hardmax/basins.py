"""A certified atlas: where one more token would end up, for every place it could start.

A probe token is put on each pixel beside fixed tokens, all of them move, and the pixel gets the
colour of the leader that the probe is *proved* to tend to. Inside a polytope whose vertices all
lead, the basins are the cells of a power diagram,

    argmax_v <A x, v> = argmin_v (|x - v|_A^2 - |v|_A^2)

(arXiv 2508.09628, docs/mathematics.md B18). See: there the colours fill the drawn cells exactly.
Where a vertex of the hull does not lead, the probe chases a moving token first and the boundaries
bend and split; the zoom shows where. White: the probe leads, which it does wherever it is outside
all discs with a diameter [0, z_i]. Grey: its limit is proved and is no leader. Black: nothing is
proved.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.analysis.probes import NO_LEADER, OPEN, OWN, basins

TITLE = "Basins: a certified atlas of where a token ends up"
Box = tuple[float, float, float, float]  # left, right, bottom, top


@dataclass(frozen=True)
class Params:
    """Pixels per side, step, layers before the slower proof is tried, Gaussian tokens, and zoom.

    `alphas` are the steps set beside alpha, on a picture of `coarse` pixels a side.
    """

    pixels: int = 480
    alpha: float = 0.5
    layers: int = 60
    n: int = 14
    seed: int = 4
    zoom: float = 0.15  # side of the zoom, share of the picture's
    alphas: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 10.0)
    coarse: int = 120


QUICK = Params(pixels=90, alphas=(0.1, 0.5, 2.0), coarse=24)


class Atlas(NamedTuple):
    """Pixels of one start: the token each tends to (or OWN, NO_LEADER, OPEN), its power cell."""

    name: str
    z: np.ndarray
    box: Box
    label: np.ndarray  # (pixels, pixels), row = second coordinate
    cell: np.ndarray
    inside: np.ndarray  # pixels of the polytope of the fixed tokens
    li: cy.analysis.Limit

    @property
    def proved(self) -> np.ndarray:
        return self.label != OPEN

    @property
    def agree(self) -> float | None:
        """Share of the pixels in the polytope whose limit is proved and is their power cell's."""
        seen = self.inside & self.proved
        return float((self.label == self.cell)[seen].mean()) if seen.any() else None


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Three starts, a zoom, and the same starts at other alphas."""
    sensible = min(p.pixels, p.coarse) >= 8 and p.n >= 3 and 0 < p.zoom < 1 and len(p.alphas) > 0
    st.require(sensible, "pixels and coarse >= 8, n >= 3, 0 < zoom < 1, some alphas", p)
    starts = _starts(p)
    every = [(p, name, z, _box(z)) for name, z in starts.items()]
    atlases: list[Atlas] = st.kept_each(_atlas, every, st.part(progress, 0, 0.6), list(starts))
    (progress or st.silent)(0.6, "zoom")
    whole = atlases[1]
    zoom = st.kept(_atlas, p, f"zoom into: {whole.name}", whole.z, _window(p, whole))
    axes = {"start": tuple(starts), "alpha": p.alphas}
    swept = st.over_grid(_at_alpha, p, axes, st.part(progress, 0.8, 1))
    shown = [*atlases, zoom]
    return st.report_of(
        p,
        _summary(p, shown, swept),
        controls=_controls(p, swept),
        tables=[_table(shown)],
        checks={atlases[0].name: [_check(atlases[0])]},
        figures=[st.Picture.of("Basins", _figure, shown)],
    )


def _box(z: np.ndarray) -> Box:
    """A square around every disc with a diameter [0, z_i]: outside of all of them the probe leads.

    A probe x does not lead iff <x, z_i - x> >= 0 for some i, that is |x - z_i/2| <= |z_i|/2.
    """
    size = np.linalg.norm(z, axis=1, keepdims=True)
    reach = 1.04 * max(float(((np.abs(z) + size) / 2).max()), float(np.abs(z).max()))
    return -reach, reach, -reach, reach


def _starts(p: Params) -> dict[str, np.ndarray]:
    pentagon = cy.configurations.polygon(5, interior=4, seed=p.seed)
    pentagon[:5] *= np.array([1.0, 1.1, 0.95, 1.05, 0.9])[:, None]  # no two corners alike
    return {
        "every vertex leads": pentagon,
        "emerging leader (G1)": cy.configurations.golden("G1"),
        f"{p.n} Gaussian tokens": cy.configurations.gaussian(p.n, 2, p.seed),
    }


def _centres(pixels: int, box: Box) -> np.ndarray:
    """The centres of the pixels, row by row from below, (pixels^2, 2)."""
    corners = (np.linspace(a, b, pixels + 1)[:-1] for a, b in (box[:2], box[2:]))
    centres = (x + (x[1] - x[0]) / 2 for x in corners)
    return np.stack(np.meshgrid(*centres), axis=-1).reshape(-1, 2)


def _atlas(p: Params, name: str, z: np.ndarray, box: Box) -> Atlas:
    probe = _centres(p.pixels, box)
    dynamics = cy.PureAttention(alpha=p.alpha)
    label = basins(dynamics, z, probe, layers=p.layers)
    li = cy.limit(dynamics, z)
    cell = li.leaders[(probe @ li.points[li.leaders].T).argmax(axis=1)]
    pixels = (x.reshape(p.pixels, p.pixels) for x in (label, cell, li.polytope.contains(probe)))
    return Atlas._make((name, z, box, *pixels, li))


def _window(p: Params, atlas: Atlas) -> Box:
    """A square around the pixel with the most different limits, inside the polytope."""
    reach = max(2, round(p.zoom * p.pixels / 2))
    most, centre = -1, (p.pixels // 2, p.pixels // 2)
    tried = range(reach, p.pixels - reach, max(1, reach // 3))
    for r, c in ((r, c) for r in tried for c in tried if atlas.inside[r, c]):
        near = (slice(r - reach, r + reach + 1), slice(c - reach, c + reach + 1))
        odd = int((atlas.label[near] != atlas.cell[near])[atlas.inside[near]].sum())
        variety = len(np.unique(atlas.label[near])) * (2 * reach + 1) ** 2 + odd
        if variety > most:
            most, centre = variety, (r, c)
    left, right, bottom, top = atlas.box
    half = (right - left) * p.zoom / 2
    x = left + (right - left) * (centre[1] + 0.5) / p.pixels
    y = bottom + (top - bottom) * (centre[0] + 0.5) / p.pixels
    return x - half, x + half, y - half, y + half


def _check(atlas: Atlas) -> cy.theorems.Check:
    """Power cells, as a formula and as basins, where every vertex of the hull leads."""
    seen = atlas.inside & atlas.proved
    wrong = int((atlas.label != atlas.cell)[seen].sum())
    x = np.random.default_rng(0).uniform(*atlas.box[:2], (2000, 2))
    v = atlas.li.points[atlas.li.leaders]
    power = np.linalg.norm(x[:, None] - v, axis=-1) ** 2 - (v**2).sum(axis=1)
    scores = x @ v.T
    second, first = np.sort(scores, axis=1)[:, -2:].T
    clear = first - second > 1e-12
    differ = int((power.argmin(axis=1) != scores.argmax(axis=1))[clear].sum())
    total = int(seen.sum()) + int(clear.sum())
    check = st.all_of(
        "basins",
        "docs/mathematics.md B18; arXiv 2508.09628",
        "where all vertices of the hull lead, the basin of a vertex inside it is its power cell; "
        "argmax_v <x, v> is argmin_v (|x - v|^2 - |v|^2)",
        total - wrong - differ,
        total,
        **{"pixels": int(seen.sum()), "other limit": wrong, "other cell": differ},
    )
    if set(cy.hull(atlas.z).index.tolist()) == set(np.flatnonzero(atlas.li.born == 0).tolist()):
        return check
    return replace(check, applies=False, holds=None)


def _at_alpha(p: Params, start: str, alpha: float) -> st.Cell:
    """One start at one alpha: pixels of the polytope, and of the hull of the fixed tokens, which is
    the same for every alpha; the share of the proved ones that end in their power cell."""
    z = _starts(p)[start]
    other = replace(p, pixels=p.coarse, alpha=alpha)
    atlas = _atlas(other, start, z, _box(z))
    hull = cy.hull(z).contains(_centres(p.coarse, atlas.box)).reshape(atlas.label.shape)
    right = float((atlas.label == atlas.cell)[hull & atlas.proved].mean())
    polytope = {"pixels": int(atlas.inside.sum()), "agree": atlas.agree}
    whole = {"start_pixels": int(hull.sum()), "start_agree": right}
    return st.Cell(name=start, alpha=alpha, leaders=len(atlas.li.leaders), **polytope, **whole)


def _controls(p: Params, swept: list[st.Cell]) -> list[st.Comparison]:
    """The first start keeps to its cells at every alpha; of the others a share is one alpha's."""
    out = []
    for k, (name, of) in enumerate(st.grouped(swept, "name").items()):
        seen = "alpha " + ", ".join(f"{c.alpha:g}: {c.start_agree:.2%}" for c in of)
        least = min(c.start_agree for c in of)
        claim = "Where every vertex leads, every pixel of the hull ends in its power cell."
        told = ("alpha, which it does not mention", f"{name}: {seen}", least == 1)
        if k:
            claim = f"{name}: not every pixel ends in its power cell."
            varied = f"alpha; the picture is of {p.alpha:g}"
            most = max(c.start_agree for c in of)
            told = (varied, f"pixels of the hull of the tokens: {seen}", most < 1)
        out.append(st.Comparison(claim, *told))
    return out


def _table(atlases: list[Atlas]) -> st.Table:
    atlas: dict[str, Any] = {
        **{"start": "name", "pixels": "label.size", "proved": lambda a: a.proved.mean()},
        "not proved": lambda a: (~a.proved).sum(),
        "probe leads": lambda a: (a.label == OWN).mean(),
        "limit is no leader": lambda a: (a.label == NO_LEADER).sum(),
        "leaders without probe": lambda a: len(a.li.leaders),
        "basins inside": lambda a: len(np.unique(a.label[a.inside & (a.label >= 0)])),
        "in its power cell": "agree",
    }
    last = "The last column counts the proved pixels in the polytope of the fixed tokens' leaders."
    return st.Table.of("Atlas", atlases, atlas, last)


def _summary(p: Params, atlases: list[Atlas], swept: list[st.Cell]) -> str:
    pixels, proved = sum(a.label.size for a in atlases), sum(a.proved.sum() for a in atlases)
    told = "; ".join(f"{a.name}: {a.agree:.2%}" for a in atlases if a.agree is not None)
    shares = {name: [c.start_agree for c in of] for name, of in st.grouped(swept, "name").items()}
    ranges = "; ".join(f"{name}: {min(x):.1%} to {max(x):.1%}" for name, x in shares.items())
    flat = st.grouped((c for c in swept if c.pixels == 0), "name")
    segment = "".join(
        f" At alpha {', '.join(f'{c.alpha:g}' for c in of)} the polytope of {name} is a segment."
        for name, of in flat.items()
    )
    return (
        f"{proved} of {pixels} pixels have a proved limit. Share of the pixels inside the polytope "
        f"that end in their power cell, at alpha = {p.alpha:g}: {told}.\n\n"
        "The polytope itself may depend on alpha. The same share of the pixels in the hull of the "
        f"tokens at the start, for alpha from {min(p.alphas):g} to {max(p.alphas):g}: {ranges}."
        f"{segment}"
    )


def _figure(atlases: list[Atlas]) -> Any:
    """Each pixel has the colour of the leader its probe tends to. Black lines: power cells of the
    final leaders (stars, where they lead); grey line: hull of the fixed tokens (dots: those that
    follow, at their start). First all vertices of the hull lead and colours fill the cells;
    elsewhere they do not. Last panel: the dashed square of the second, its busiest place, computed
    anew at full resolution; between a black line and the colour beside it the probe changes who
    leads, or follows a token on its way.
    """
    from matplotlib.patches import Rectangle

    grey, ink = cy.plot.GREY, cy.plot.INK
    figure, axes = cy.plot.sheet(2, 2, 4.9, 5.0)
    for ax, atlas in zip(axes.flat, atlases):
        _panel(ax, atlas)
    left, right, bottom, top = atlases[-1].box
    look: dict[str, Any] = {"fill": False, "ls": "--", "ec": ink, "lw": 1.4, "zorder": 6}
    frame = Rectangle((left, bottom), right - left, top - bottom, **look)
    frame.set_gid("zoom")
    axes[0, 1].add_patch(frame)
    open_, none = (any((a.label == x).any() for a in atlases) for x in (OPEN, NO_LEADER))
    key: dict[str, dict[str, Any]] = {
        "the probe leads": {"marker": "s", "mfc": "white", "mec": grey, "ms": 12},
        "leader": {"marker": "*", "mfc": grey, "mec": ink, "ms": 12},
        "follower": {"marker": "o", "mfc": "white", "mec": ink, "ms": 5},
        "power cells": {"ls": "-", "color": ink, "lw": 0.9},
        "hull of the tokens": {"ls": "-", "color": grey, "lw": 1.2},
        "zoom": {"ls": "--", "color": ink, "lw": 1.4},
        **({"limit proved, no leader": {"marker": "s", "color": grey, "ms": 12}} if none else {}),
        **({"not proved": {"marker": "s", "color": "black", "ms": 12}} if open_ else {}),
    }
    for label, entry in key.items():
        axes[0, 0].plot([], [], **{"ls": "", "label": label, **entry})
    cy.plot.legend_below(axes[0, 0])
    return figure


def _panel(ax: Any, a: Atlas) -> None:
    """The pixels, the power cells of the leaders, and the fixed tokens."""
    from matplotlib.colors import to_rgb

    leaders = a.li.leaders.tolist()
    ends = [i for i in np.unique(a.label).tolist() if i >= 0]
    order = [i for i in leaders if i in ends] + [i for i in ends if i not in leaders]
    colours = {i: cy.plot.PALETTE[k % len(cy.plot.PALETTE)] for k, i in enumerate(order)}
    colours |= {OPEN: "black", NO_LEADER: cy.plot.GREY, OWN: "white"}
    image = np.empty((*a.label.shape, 3))
    for end, colour in colours.items():
        image[a.label == end] = to_rgb(colour)
    ax.imshow(image, origin="lower", extent=a.box, interpolation="nearest", alpha=0.75)
    x, y = (np.linspace(*ends, 201) for ends in (a.box[:2], a.box[2:]))
    scores = np.stack(np.meshgrid(x, y), axis=-1) @ a.li.points[leaders].T
    for k in range(len(leaders)):  # ahead of the best of the others: above 0 in its cell
        ahead = scores[..., k] - np.delete(scores, k, axis=-1).max(axis=-1)
        if ahead.min() < 0 < ahead.max():
            ax.contour(ahead, [0.0], colors=cy.plot.INK, linewidths=0.9, extent=a.box)
    ring = cy.hull(a.z).ordered()
    ax.plot(*np.vstack([ring, ring[:1]]).T, color=cy.plot.GREY, lw=1.2)
    follow = np.setdiff1d(np.arange(len(a.z)), leaders)
    ax.plot(*a.z[follow].T, "o", mfc="white", mec=cy.plot.INK, ms=4.5)
    for i in leaders:
        star = {"mfc": colours.get(i, "white"), "mec": cy.plot.INK, "ms": 14, "mew": 0.8}
        ax.plot(*a.li.points[i], "*", **star)
    ax.set(xlim=a.box[:2], ylim=a.box[2:], aspect="equal", title=a.name)
    ax.set(xlabel="$z_1$", ylabel="$z_2$")
    ax.grid(False)
