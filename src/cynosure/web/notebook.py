"""Tokens one can hold in a notebook: the picture of the page, answered by the kernel."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .._types import as_tokens
from ..analysis.limits import Limit
from ..analysis.limits import limit as prove
from ..attention import Hardmax
from ..dynamics import PureAttention
from ..simulation.loop import simulate
from ..simulation.trajectory import Trajectory
from .answers import tokens as answers
from .requests.bounds import BOUNDS

__all__ = ["widget"]

_STATIC = Path(__file__).with_name("static")
_LAYERS = 30  # that are played
_MOST_STATES, _MOST_WALKING = 200, 400  # of a run that is shown
_SECONDS = 3.0  # for one answer; then tokens are undecided


def widget(z0: Any, *, alpha: float = 0.5, A: Any = None) -> Any:
    """Shows tokens that you can drag in a notebook: who leads, who follows whom, what is proved.

    Needs `pip install "cynosure[notebook]"`. Double-click adds a token, ▶ plays the layers.

    Parameters
    ----------
    z0
        Tokens of the plane or of space, or a run: a `Trajectory`, or the `Trace` of a real sentence
        (on its principal directions if d > 3).
    alpha, A
        Step and matrix of the hardmax layers.

    Returns
    -------
    anywidget.AnyWidget
        Other cells can read and set its `z`, `alpha` and `A`. `w.limit` is the proved limit of what
        is shown. `w.observe(f, "z")` calls f when a token was dropped.

    Raises
    ------
    ImportError
        If the extra is not installed.

    Examples
    --------
    >>> import cynosure as cy
    >>> w = cy.widget([[2.0, 0.0], [1.0, 0.5]], alpha=1.0)  # doctest: +SKIP
    """
    run = getattr(z0, "trajectory", z0)
    if isinstance(run, Trajectory):
        if run.z.shape[-2] > _MOST_WALKING:
            raise ValueError(f"run: at most {_MOST_WALKING} tokens can walk, got {run.z.shape[-2]}")
        return _kind()(walk=_walk(run), z=[])
    z = as_tokens(z0, "z0", ndim=2)
    if z.shape[1] not in (2, 3) or not 1 <= len(z) <= BOUNDS["tokens"]:
        wanted = f"1 to {BOUNDS['tokens']} tokens of the plane or of space, (n, 2) or (n, 3)"
        raise ValueError(f"z0: expected {wanted}, or a run; got {z.shape}")
    attention = Hardmax(A)
    attention.matrix(z.shape[1])  # this and the next line refuse what cannot be used, by name
    layers = PureAttention(attention, alpha)
    return _kind()(z=z.tolist(), alpha=float(layers.alpha), A=A)


def _walk(run: Trajectory) -> dict[str, Any]:
    """A run as the picture walks through it: at most three coordinates, colours, births."""
    from ..analysis.clustering import clusters
    from ..analysis.leaders import can_lead, roles
    from ..drawing.markers import View, evenly

    values, some = run.tokens, evenly(len(run), _MOST_STATES)
    view, n = View.of(values), values.shape[1]
    width = float(np.ptp(values[0], 0).max())
    born, group = np.full(n, -1), clusters(values[-1], 0.02 * width)
    if can_lead(run):
        born = roles(run).born[run.real]
    d = values.shape[-1]
    seen = "" if d <= 3 else f", drawn on {' and '.join(view.names)}".replace("$", "")
    return {
        "states": view.x[some].tolist(),
        "t": run.t[some].tolist(),
        "unit": "t =" if run.in_time else "layer",
        "words": None if run.words is None or run.mask is not None else list(run.words),
        "group": group.labels.tolist() if group.count < n else [-1] * n,
        "born": born.tolist(),
        "about": f"{n} tokens in dimension {d}{seen}",
    }


@cache
def _kind() -> type:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ImportError('widget: pip install "cynosure[notebook]"') from None

    class TokensWidget(anywidget.AnyWidget):
        """The state that page and kernel share; `A` stays here, where the mathematics is."""

        _esm = _one_module("dom.js", "scene.js", "widget.js")
        _css = (_STATIC / "widget.css").read_text("utf-8")
        z: Any = traitlets.List().tag(sync=True)
        alpha = traitlets.Float(0.5).tag(sync=True)
        walk: Any = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
        A = traitlets.Any(None)

        def __repr__(self) -> str:
            if self.walk:
                return f"widget(a run of {len(self.walk['states'])} states, {self.walk['about']})"
            return f"widget({len(self.z)} tokens, alpha={self.alpha:g})"

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.on_msg(self._asked)
            self.observe(lambda _: self._asked(self, {"z": self.z, "alpha": self.alpha}, []), "A")

        def _asked(self, _: Any, asked: Any, buffers: Any) -> None:
            """Answer one question of the picture: the limit of its tokens, or what is wrong."""
            wanted = {"tokens": asked["z"], "alpha": asked["alpha"], "A": self.A, "brief": True}
            more = {"exact": False, "max_layers": 100_000, "followed": False, "deadline": _SECONDS}
            try:
                if asked.get("walk"):
                    layers = PureAttention(Hardmax(self.A), asked["alpha"])
                    how: Any = {"layers": _LAYERS, "deadline": _SECONDS, "progress": False}
                    self.send({"walk": _walk(simulate(layers, asked["z"], **how))})
                else:
                    self.send({"found": answers.limit(wanted | more)})
            except (ValueError, TypeError) as error:
                self.send({"problem": str(error)})

        @property
        def limit(self) -> Limit:
            """The limit of the tokens that are shown."""
            layers = PureAttention(Hardmax(self.A), self.alpha)
            return prove(layers, self.z, deadline=_SECONDS)

    return TokensWidget


def _one_module(*names: str) -> str:
    """Modules of the page as one: a notebook has no folder to import the others from."""
    text = "\n".join((_STATIC / name).read_text("utf-8") for name in names)
    text = re.sub(r'^import .* from "\./.*";$', "", text, flags=re.MULTILINE)
    return re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)
