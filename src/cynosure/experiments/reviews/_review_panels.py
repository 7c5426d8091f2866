"""Reviews through the trained layers: panels and a moving picture, with the decision line."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ._matrices import matrix_of
from ._models import LAYERS, TrainedModel

_FRAMES, _PAUSE = 6, 12  # pictures from a layer to the next, and of the last one
_SIDE = 4.2  # inches


class Example(NamedTuple):
    """A review through the layers, and the share of each of its distinct words."""

    trajectory: cy.Trajectory
    weight: np.ndarray


def examples(m: TrainedModel) -> dict[str, Example]:
    """A positive and a negative test review that are decided rightly, surely and by few words."""
    out = {}
    for kind, sign in (("positive", 1.0), ("negative", -1.0)):
        right = (m.test.y == (sign > 0)) & (sign * m.hard.decision > 0)
        fits = right & (m.test.sizes >= 15) & (m.test.sizes <= 60)
        rows = np.flatnonzero(fits if fits.any() else right)
        if not len(rows):
            continue
        # not the surest: it has a dozen leaders; the one of the upper quarter with the fewest
        sure = rows[np.argsort(-sign * m.hard.decision[rows], kind="stable")]
        upper = sure[: max(1, len(sure) // 4)]
        row = int(upper[np.argmin(m.hard.leaders[upper])])
        terms, count = (x[row, : m.test.sizes[row]] for x in (m.test.terms, m.test.count))
        words = tuple(m.words[j] for j in terms)
        z0 = m.weights["embedding"][terms]
        dynamics = cy.PureAttention(cy.Hardmax(matrix_of(m.weights)), alpha=m.alpha)
        trajectory = cy.simulate(dynamics, z0, layers=LAYERS, words=words)
        out[kind] = Example(trajectory, count.astype(float) / count.sum())
    return out


def panels(m: TrainedModel, example: Example) -> Any:
    """Some layers side by side; in the plane with the decision line, the mean and the leaders."""
    trajectory, ink = example.trajectory, cy.plot.INK
    shown = (0, 1, 2, LAYERS)
    figure = cy.plot.layers(trajectory, show=shown)
    if trajectory.z.shape[-1] != 2:
        return figure
    figure.set_size_inches(3.1 * len(shown), 3.9)
    names = trajectory.words or ()
    for ax, k in zip(figure.axes, shown):
        z = trajectory.at(k)
        box = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
        ax.plot(*_boundary(m).T, color=ink, lw=1.0, ls="--", zorder=1)
        ax.plot(*(example.weight @ z), "X", color=ink, ms=8, mec="white", zorder=12)
        ax.set(**box)
        for i in cy.roles(trajectory).led_at(k):
            ax.annotate(names[i], z[i], xytext=(4, 4), textcoords="offset points",
                        fontsize=cy.plot.TICK, zorder=13)  # fmt: skip
    return figure


def _boundary(m: TrainedModel) -> np.ndarray:
    """Two far points of the line <v, z> + b = 0 of the plane."""
    v, b = m.weights["v"], float(m.weights["b"])
    foot, along = -b * v / (v @ v), np.array([-v[1], v[0]]) / np.linalg.norm(v)
    return foot + np.outer([-1e3, 1e3], along)


def moving(m: TrainedModel, kind: str, example: Example) -> cy.Picture:
    """The review as a GIF: the decision line, words coloured by their side of it, the mean."""
    title = f"The {kind} review, layer by layer"
    caption = "Words gather around their leaders (stars)."
    if example.trajectory.z.shape[-1] != 2:
        return cy.Picture(title, caption, cy.movie.gif(example.trajectory, size=420))
    caption += (
        " Dashed: the decision line; words are blue on its positive side, orange on the other. The "
        "cross is the mean of the words, whose side is the verdict."
    )
    return cy.Picture(title, caption, _gif(m, example))


def _gif(m: TrainedModel, example: Example) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    trajectory = example.trajectory
    z, names = trajectory.values, trajectory.words or ()
    v, b = m.weights["v"], float(m.weights["b"])
    led = [set(cy.roles(trajectory).led_at(k)) for k in range(LAYERS + 1)]
    low, high = z.min(axis=(0, 1)), z.max(axis=(0, 1))
    room = 0.12 * (high - low).max()
    blue, orange = cy.plot.PALETTE[:2]
    figure = Figure(figsize=(_SIDE, _SIDE), dpi=100)
    canvas = FigureCanvasAgg(figure)
    pictures = []
    for frame in range(LAYERS * _FRAMES + 1):
        k, s = divmod(frame, _FRAMES)
        here = z[k] if s == 0 else z[k] + (z[k + 1] - z[k]) * s / _FRAMES
        figure.clear()
        ax = figure.add_axes((0.1, 0.08, 0.86, 0.84))
        ax.plot(*_boundary(m).T, color=cy.plot.INK, lw=1.0, ls="--", zorder=1)
        colours = np.where(here @ v + b > 0, blue, orange)
        ax.scatter(here[:, 0], here[:, 1], s=16, c=colours, alpha=0.75, linewidths=0, zorder=3)
        for i in sorted(led[k]):
            ax.plot(*here[i], "*", color=colours[i], ms=13, mec="white", mew=0.6, zorder=5)
            ax.annotate(names[i], here[i], xytext=(5, 5), textcoords="offset points",
                        fontsize=cy.plot.TICK, zorder=6)  # fmt: skip
        ax.plot(*(example.weight @ here), "X", color=cy.plot.INK, ms=9, mec="white", zorder=7)
        ax.set(xlim=(low[0] - room, high[0] + room), ylim=(low[1] - room, high[1] + room))
        ax.set_title(f"layer {k}", fontsize=cy.plot.TITLE)
        ax.tick_params(labelsize=cy.plot.TICK)
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
        pictures.append(image.quantize(48, dither=Image.Dither.NONE))
    stream, times = io.BytesIO(), [110] * (len(pictures) - 1) + [110 * _PAUSE]
    pictures[0].save(stream, "GIF", save_all=True, append_images=pictures[1:], duration=times,
                     loop=0, optimize=True)  # fmt: skip
    return stream.getvalue()
