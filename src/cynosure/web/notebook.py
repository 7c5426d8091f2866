"""Tokens one can hold in a notebook: the picture of the page, answered by the kernel."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from .._types import as_tokens
from ..analysis.limits import Limit
from ..analysis.limits import limit as prove
from ..attention import Hardmax
from ..dynamics import PureAttention
from . import answers
from .bounds import BOUNDS

__all__ = ["widget"]

_STATIC = Path(__file__).with_name("static")
_SECONDS = 3.0  # for one answer; then tokens are undecided


def widget(z0: Any, *, alpha: float = 0.5, A: Any = None) -> Any:
    """Tokens of the plane to drag in a notebook: who leads, who follows whom, and what is proved.

    Double-click adds a token. The widget's `z`, `alpha` and `A` can be read and set from other
    cells, `w.limit` is the limit of what is shown, with its proofs, and `w.observe(f, "z")` calls f
    when a token was let go. Needs `pip install "cynosure[notebook]"`.
    """
    z = as_tokens(z0, "z0", ndim=2)
    if z.shape[1] != 2 or not 1 <= len(z) <= BOUNDS["tokens"]:
        raise ValueError(
            f"z0: expected 1 to {BOUNDS['tokens']} tokens of the plane, shape (n, 2); got {z.shape}"
        )
    attention = Hardmax(A)
    attention.matrix(2)  # this and the next line refuse what cannot be used, by name
    layers = PureAttention(attention, alpha)
    return _kind()(z=z.tolist(), alpha=float(layers.alpha), A=A)


@cache
def _kind() -> type:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ImportError('widget: pip install "cynosure[notebook]"') from None

    class TokensWidget(anywidget.AnyWidget):
        """The state that page and kernel share; `A` stays here, where the mathematics is."""

        _esm = _module("dom.js", "scene.js", "widget.js")
        _css = (_STATIC / "widget.css").read_text("utf-8")
        z: Any = traitlets.List().tag(sync=True)
        alpha = traitlets.Float(0.5).tag(sync=True)
        A = traitlets.Any(None)

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.on_msg(self._asked)
            self.observe(lambda _: self._asked(self, {"z": self.z, "alpha": self.alpha}, []), "A")

        def _asked(self, _: Any, asked: Any, buffers: Any) -> None:
            """Answer one question of the picture: the limit of its tokens, or what is wrong."""
            more = {"exact": False, "max_layers": 100_000, "followed": False, "deadline": _SECONDS}
            wanted = {"tokens": asked["z"], "alpha": asked["alpha"], "A": self.A, "brief": True}
            try:
                self.send({"found": answers.limit(wanted | more)})
            except (ValueError, TypeError) as error:
                self.send({"problem": str(error)})

        @property
        def limit(self) -> Limit:
            """The limit of the tokens that are shown."""
            layers = PureAttention(Hardmax(self.A), self.alpha)
            return prove(layers, self.z, deadline=_SECONDS)

    return TokensWidget


def _module(*names: str) -> str:
    """Modules of the page as one: a notebook has no folder to import the others from."""
    text = "\n".join((_STATIC / name).read_text("utf-8") for name in names)
    text = re.sub(r'^import .* from "\./.*";$', "", text, flags=re.MULTILINE)
    return re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)
