"""What the page of an explanation draws: tokens by layer, and the weights to compute it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..text.vocabulary import surface
from .leaders import Leader

if TYPE_CHECKING:
    from .explanation import Explanation

_MOST_TOKENS = 3000  # beyond, the silent ones are not all drawn
_MOST_CHARACTERS = 200_000  # of the text shown
_MOST_PASSAGES = 1000  # of a long text, and as many spans


def plane_view(ex: Explanation) -> dict[str, Any]:
    """What is shown of an explanation besides its numbers: the places of its tokens by layer in the
    two directions worth drawing, along v and the widest one across.

    A long text is shown in part, so that the page stays small: its beginning, every word that was
    read, and some of the silent ones; nothing can be struck out there."""
    z = ex.trajectory.values
    size = float(np.linalg.norm(ex.v))
    along = ex.v / size if size else np.eye(len(ex.v))[0]
    rest = z - (z @ along)[..., None] * along
    if z.shape[-1] == 1:
        across = np.zeros_like(along)
    elif z.shape[-1] == 2:
        across = np.array([-along[1], along[0]])
    else:
        across = np.linalg.svd(rest.reshape(-1, z.shape[-1]), full_matrices=False)[2][0]
    cluster = np.zeros(z.shape[1], dtype=int)
    for c, leader in enumerate(ex.leaders):
        cluster[list(leader.tokens)] = c
    shown = _shown(ex)
    new = {int(t): i for i, t in enumerate(shown)}
    view = np.stack((z @ along, z @ across), axis=-1)[:, shown]
    whole = len(shown) == z.shape[1] and len(ex.text) <= _MOST_CHARACTERS
    names = np.array(["(neutral)", *(ex.trajectory.words or ())[1:]], dtype=object)
    return {
        **({} if whole else _first_passages(ex)),
        "text": ex.text[:_MOST_CHARACTERS],
        "leaders": [_leader(leader, new) for leader in ex.leaders if leader.token in new],
        "layers": np.round(view, 9).tolist(),
        "cluster": cluster[shown].tolist(),
        "names": names[shown].tolist(),
        "known": len({word for w in ex.words for word in surface(w.text)}),
        **{name: getattr(ex, name) for name in ("headline", "count", "rival", "rest")},
        "tie": ex.label if ex.takes_ties else ex.other,
        "boundary": -ex.intercept / size if size else None,
        "reading": _reading(ex) if whole else None,
        "note": ex.note if whole else f"{ex.note} A long text, shown in part.".strip(),
        "tokens": {
            "offsets": [
                [new[w.token], a, b, w.contribution]
                for w in ex.words
                if w.token in new
                for a, b in w.offsets
                if b <= _MOST_CHARACTERS
            ]
        },
    }


def _first_passages(ex: Explanation) -> dict[str, Any]:
    """The first passages and the strongest spans of a long text; the other spans as one."""
    spans = sorted(ex.to_dict()["spans"], key=lambda span: -abs(span["contribution"]))
    rest = spans[_MOST_PASSAGES:]
    others = {"text": f"{len(rest)} more", "offsets": [], "terms": []}
    total = sum(span["contribution"] for span in rest)
    return {
        "spans": [*spans[:_MOST_PASSAGES], *([{**others, "contribution": total}] if rest else [])],
        "passages": [passage.to_dict() for passage in ex.passages[:_MOST_PASSAGES]],
    }


def _shown(ex: Explanation) -> np.ndarray:
    """The tokens that are drawn: all, or the anchor, the leaders, those read, and some others."""
    n = ex.trajectory.values.shape[1]
    if n <= _MOST_TOKENS:
        return np.arange(n)
    heads = [0, *(leader.token for leader in ex.leaders), *(w.token for w in ex.read)]
    first = dict.fromkeys(heads[: _MOST_TOKENS // 2])
    others = (t for t in range(n) if t not in first)
    some = [t for t, _ in zip(others, range(_MOST_TOKENS - len(first)))]
    return np.sort(np.array([*first, *some]))


def _leader(leader: Leader, new: dict[int, int]) -> dict[str, Any]:
    return {
        "text": leader.text, "offsets": [list(o) for o in leader.offsets], "score": leader.score,
        "contribution": leader.contribution, "share": leader.share,
        "followers": [{"text": w.text} for w in leader.followers if w.token in new],
    }  # fmt: skip


def _reading(ex: Explanation) -> dict[str, Any] | None:
    """What the page needs to read the text again without some words; None where words do not lie on
    few rays from the origin, or several classes read together."""
    model = ex.text_model.model
    plane = model.planes[model.locate(ex.row)[0]]
    rays = plane.rays
    if rays is None or not rays.apart or len(plane.v) != 1 or not ex.leaders or plane.together:
        return None
    index = ex.text_model.vocabulary.index
    terms = np.array([index[name] for name in (ex.trajectory.words or ())[1:]], dtype=np.intp)
    ray = rays.ray[terms]
    ladder = plane.ladder
    z = ex.trajectory.values
    return {
        "kappa": plane.kappa if plane.kappa < float("inf") else None,
        "left": (1.0 / (1.0 + float(model.alpha))) ** model.layers,
        "level": [0, *ladder.level[ray].tolist()],
        "value": [0.0, *ladder.value[ray].tolist()],
        "ray": [rays.anchor_ray, *ray.tolist()],
        "radius": [0.0, *rays.radius[terms].tolist()],
        "score": (z[0] @ ex.v).tolist(),
    }
