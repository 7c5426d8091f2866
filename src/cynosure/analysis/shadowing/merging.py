"""By when a cluster of several points has provably become one: docs/mathematics.md B42, part 2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .enclosure import Form, Layer
from .rounding import MORE, U, norms
from .trap import Tube

_PHASE = 0.9
_WHOLE = 36.0


def gathered(layer: Layer, tube: Tube, a: int, within: float) -> float:
    """The logarithm of a time by which all tokens of cluster a are `within` of each other.

    inf where that is not proved in the time of the tube. While tokens x of the cluster score each
    other alike, |beta <Ax, y - w>| <= s, each gives every other a weight e^-s / n at least. So
    their diameter falls by the factor 1 - eta e^-s a layer, but for what the other clusters do.
    """
    if layer.sphere:
        return np.inf
    balls = tube.balls
    mine, tokens = balls.label == a, balls.tokens[a]
    wide = float(2 * balls.spread[a] + 2 * balls.radius[a]) * MORE
    for s, (start, end) in enumerate(zip(tube.log_layers, tube.log_layers[1:], strict=False)):
        points, width = tube.path[s][mine], float(tube.width[s + 1, a])
        shift = float(norms(tube.path[s + 1][mine] - points).max())
        shares = [_common(form, points, width, shift, len(tokens)) for form in layer.forms]
        leak = 2 * float(tube.width[s + 1, a] - tube.width[s, a]) * MORE
        length = end + np.log1p(-np.exp(start - end)) if start < end else -np.inf
        spent = -np.inf
        while True:
            if wide + leak <= within:
                return float(np.logaddexp(start, spent))
            if wide <= 0.01 * leak:
                break
            rate = layer.eta * float(np.mean([share(wide + leak) for share in shares])) / MORE
            if not rate > 0:
                break
            phase = float(np.log(-np.log(_PHASE)) - np.log(rate))
            if phase < _WHOLE and not layer.flows:
                phase = float(np.log(np.ceil(np.exp(phase))))
            after = float(np.logaddexp(spent, phase))
            if after > length:
                break  # what is left of this step counts for nothing
            spent, wide = after, wide * _PHASE * MORE
        wide += leak
    return np.inf


def _common(
    form: Form, points: np.ndarray, width: float, shift: float, count: int
) -> Callable[[float], float]:
    """Of the weights of two tokens `wide` apart, at least this share is common in this step."""
    diameter = float(norms(points[:, None] - points[None]).max())
    steps = points - points[0]
    basis = np.linalg.svd(steps, full_matrices=False)[2][: max(len(points) - 1, 1)]
    missed = float(norms(steps - steps @ basis.T @ basis).max())  # nothing but rounding
    queries, R = points @ form.A.T, float(norms(points).max())
    off = form.size * (width + shift) + 1e-12 * form.entries * R
    full = (float(norms(queries).max()) + off) * MORE
    along = min((float(norms(queries @ basis.T).max()) + off) * MORE, full)
    slack = 64 * U * form.entries * R * R

    def share(wide: float) -> float:
        near = min(wide + 2 * width, diameter)
        score = min(full * wide, along * near + 2 * full * (width + missed))
        return float(np.exp(-form.beta * (score + slack) * MORE)) / (count if form.causal else 1)

    return share
