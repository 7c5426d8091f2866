"""Movies of trajectories: GIF through Pillow.

Tokens glide from layer to layer in the markers of `plot`; those of a flow leave trails, and a ring
is around a leader that is born. The axes are drawn once and each frame puts the tokens on a copy of
them (d = 3: the camera turns, and all is drawn anew).
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path, PosixPath, WindowsPath
from typing import Any, final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure

from .._exports import guard
from .._files import write_atomically
from .._progress import Progress, showing
from ..analysis.polytope import hull
from ..simulation.trajectory import Trajectory
from .markers import Appearance, Markers, View, draw_tokens, marker_size, shade
from .style import INK, PALETTE, TITLE

__all__ = ["Film", "frames", "gif", "movie"]

SIDE = 4.0  # inches: a smaller picture has fewer dots an inch, and its labels shrink with it
REST = 1.5  # seconds for which a GIF rests on its last layer before it starts again
MOST_TRAILS = 200  # tokens whose trails are drawn
_INLINE = 32 << 20  # bytes of a movie that a notebook holds
TURN = 90.0  # degrees by which the camera of a 3-D movie turns


def movie(
    trajectory: Trajectory,
    path: str | os.PathLike[str],
    *,
    fps: float | int = 10,
    tween: int = 4,
    size: int = 480,
    progress: Progress = None,
) -> Film:
    """Writes the trajectory as a .gif to `path`; the path shows it at the end of a notebook cell.

    `fps` frames a second, `tween` frames per layer, `size` pixels a side (odd ones are rounded
    up). The axes are those of the whole run. For long runs simulate with save_every.
    `progress(frames done, frames in all)` is called after each frame; None shows a bar where
    somebody looks and it takes over a second, False never.
    """
    target = Path(path)
    if (kind := target.suffix.lower()) != ".gif":
        raise ValueError(f"{target.name}: a movie ends in .gif, got {kind or 'no'} ending")
    if not 0 < fps <= 100:
        raise ValueError(f"fps: expected frames per second in (0, 100], got {fps!r}")
    pictures = frames(trajectory, tween=tween, size=size)
    total = (len(trajectory) - 1) * tween + 1
    with showing(progress, "drawing", total, " frames") as tell:

        def counted() -> Iterator[np.ndarray]:
            for done, picture in enumerate(pictures, start=1):
                yield picture
                if tell is not None:
                    tell(done, total)

        return Film(write_atomically(target, lambda stream: _gif(stream, counted(), fps, total)))


@final
class Film(PosixPath if os.name == "posix" else WindowsPath):  # type: ignore[misc]
    """The path of a movie, which a notebook shows."""

    def _repr_html_(self) -> str | None:
        if self.suffix.lower() != ".gif" or not self.is_file():
            return None
        if self.stat().st_size > _INLINE:
            return f"<p>{escape(str(self))}: {self.stat().st_size >> 20} MB, not shown here</p>"
        data = base64.b64encode(self.read_bytes()).decode()
        return f'<img alt="{escape(self.name)}" src="data:image/gif;base64,{data}">'


def gif(trajectory: Trajectory, *, fps: float | int = 10, tween: int = 4, size: int = 480) -> bytes:
    """The bytes of the .gif that `movie` would write, for a page or a `Picture`."""
    stream = io.BytesIO()
    pictures = frames(trajectory, tween=tween, size=size)
    _gif(stream, pictures, fps, (len(trajectory) - 1) * tween + 1)
    return stream.getvalue()


def frames(trajectory: Trajectory, *, tween: int = 4, size: int = 480) -> Iterator[np.ndarray]:
    """The pictures of a movie, RGB arrays (size, size, 3) of bytes: (saved - 1) tween + 1 of them.

    Between two saved layers tokens move on straight lines, as the layer map does; markers are
    those of the earlier one.
    """
    if tween != int(tween) or tween < 1:
        raise ValueError(f"tween: expected a whole number of frames per layer >= 1, got {tween!r}")
    if size != int(size) or not 64 <= size <= 4096:
        raise ValueError(f"size: expected 64..4096 pixels, got {size!r}")
    # Most encoders refuse odd sides.
    stage = _Stage(trajectory, View.of(trajectory.tokens), int(size) + int(size) % 2)
    return stage.play(int(tween))


@final
class _Stage:
    """One figure whose tokens are replaced frame by frame."""

    def __init__(self, trajectory: Trajectory, view: View, size: int) -> None:
        self.trajectory, self.view = trajectory, view
        self.appearance = Appearance.of(trajectory)
        self.figure = Figure(figsize=(SIDE, SIDE), dpi=size / SIDE)
        self.canvas = FigureCanvasAgg(self.figure)
        box = (0.02, 0.02, 0.9, 0.9) if view.solid else (0.14, 0.11, 0.82, 0.82)
        self.ax: Any = self.figure.add_axes(box, projection="3d" if view.solid else None)
        view.frame(self.ax, view.x)
        view.name(self.ax)
        self.title = self.figure.text(0.55, 0.955, "", fontsize=TITLE, ha="center", va="center")
        self.markers = marker_size(view.x.shape[1])
        self.background: Any = None
        self.corners = np.empty((0, 2))

    def play(self, tween: int) -> Iterator[np.ndarray]:
        x, t = self.view.x, self.trajectory.t
        total = max((len(t) - 1) * tween, 1)
        for row, k in enumerate(t.tolist()):
            look = self._enter(row, k)
            last = row == len(t) - 1
            for step in range(1 if last else tween):
                s = step / tween
                here = x[row] if last else (1 - s) * x[row] + s * x[row + 1]
                if self.view.solid:
                    self.ax.view_init(azim=-60 + TURN * (row * tween + step) / total)
                yield self._picture(here, look, row)

    def _enter(self, row: int, k: int | float) -> Markers:
        """The scenery of a layer: its number and, when it has changed, the hull of the leaders."""
        self.title.set_text(f"$t = {k:.2f}$" if self.trajectory.in_time else f"$k = {int(k)}$")
        corners = self.view.x[row, self.appearance.leaders(k)]
        if self.background is None or not np.array_equal(corners, self.corners):
            self.corners = corners
            for old in [a for a in self.ax.get_children() if a.get_gid() == "hull"]:
                old.remove()
            if len(corners):
                shade(self.ax, hull(corners))
            self.title.set_visible(False)
            self.canvas.draw()
            self.title.set_visible(True)
            self.background = self.canvas.copy_from_bbox(self.figure.bbox)
        return self.appearance.at(k)

    def _born(self, row: int) -> np.ndarray:
        """Rows of the tokens that lead at this saved layer and did not at the one before."""
        if row == 0:
            return np.empty(0, dtype=np.intp)
        now, before = (self.appearance.leaders(int(k)) for k in self.trajectory.t[[row, row - 1]])
        return np.setdiff1d(now, before)

    def trails(self, x: np.ndarray, row: int) -> list[Any]:
        """The way each token came, where nobody leads: layers of hardmax show whom they follow."""
        drawn = self.appearance.roles is not None or self.view.line
        if drawn or self.trajectory.made_by.grows or x.shape[0] > MOST_TRAILS:
            return []
        ways = np.swapaxes(np.concatenate([self.view.x[: row + 1], x[None]]), 0, 1)
        how = {"lw": 0.8, "alpha": 0.5, "zorder": 1, "gid": "trail"}
        colours = self.appearance.colour
        return [self.ax.plot(*way.T, color=c, **how)[0] for way, c in zip(ways, colours)]

    def ring(self, x: np.ndarray, born: np.ndarray) -> Any:
        """A circle around the tokens that have just become leaders."""
        look = {"fc": "none", "ec": INK, "linewidths": 1.2, "zorder": 9, "gid": "births"}
        return self.ax.scatter(*x[born].T, s=12 * self.markers, **look)

    def _picture(self, x: np.ndarray, look: Markers, row: int) -> np.ndarray:
        drawn = [*self.trails(x, row), *draw_tokens(self.ax, x, look, self.markers)]
        born = self._born(row)
        if len(born):
            drawn.append(self.ring(x, born))
        if self.view.solid:
            self.canvas.draw()
        else:
            self.canvas.restore_region(self.background)
            for artist in (*drawn, self.title):
                artist.draw(self.canvas.get_renderer())
        picture = np.asarray(self.canvas.buffer_rgba())[..., :3].copy()
        for artist in drawn:
            artist.remove()
        return picture


def _gif(stream: Any, pictures: Iterator[np.ndarray], fps: float | int, total: int) -> None:
    from PIL import Image

    opening = next(pictures)
    # One table of colours for all frames: nothing flickers, and only what moves is stored.
    table = _colour_table(opening)
    nearest = np.zeros(1 << 24, dtype=np.int16)  # place + 1 in the table, as colours turn up
    # Pillow's own search is coarse: it turned white into the next grey.

    def indexed(picture: np.ndarray) -> Image.Image:
        code = _codes(picture)
        new = np.unique(code[nearest[code] == 0])
        gaps = ((_rgb(new)[:, None] - table.astype(np.int32)) ** 2).sum(axis=-1)
        nearest[new] = gaps.argmin(axis=1) + 1
        image = Image.fromarray((nearest[code] - 1).astype(np.uint8))
        image.putpalette(table.tobytes())
        return image

    tick = max(20, round(100 / fps) * 10)  # GIF counts in 1/100 s; viewers slow down below 2
    duration = [tick] * (total - 1) + [max(tick, int(1000 * REST))]
    how: dict[str, Any] = {"loop": 0, "disposal": 1, "duration": duration}
    rest = map(indexed, pictures)
    indexed(opening).save(stream, format="GIF", save_all=True, append_images=rest, **how)


def _codes(picture: np.ndarray) -> np.ndarray:
    """Each pixel (..., 3) as one number."""
    red, green, blue = (picture[..., channel].astype(np.int32) for channel in range(3))
    return red << 16 | green << 8 | blue


def _rgb(codes: np.ndarray) -> np.ndarray:
    """The colours (m, 3) of such numbers."""
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)


def _colour_table(picture: np.ndarray) -> np.ndarray:
    """At most 256 colours (m, 3): those of the palette, the commonest of a frame, shades between.

    Cutting by frequency alone, as Pillow does for one frame, loses the thin coloured edges.
    """
    from PIL import Image

    own = np.rint(255 * to_rgba_array([*PALETTE, INK])[:, :3]).astype(np.uint8)
    codes, times = np.unique(_codes(picture), return_counts=True)
    colours = _rgb(codes)[np.argsort(-times, kind="stable")].astype(np.uint8)
    common, rare = colours[:128], colours[128:]
    if len(rare):
        cut = Image.fromarray(rare[None]).quantize(128 - len(own)).getpalette()
        rare = np.array(cut, dtype=np.uint8).reshape(-1, 3)
    return np.concatenate([common, own, rare])[:256]


guard(__name__)
