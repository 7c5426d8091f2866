"""Does hardmax say anything about a head? Gaps at its own scale, and proved layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ...analysis.shadowing import shadow
from ...attention import Softmax
from ...drawing.report import Report
from ...dynamics import PureAttention
from ..heads.head import Head
from ..reading.traces import Trace
from ..reading.transformer import Transformer
from .chapters import table_of

ALPHA, LAYERS = 0.5, 10
NEAR = 0.05  # of the largest distance of two tokens: softmax and hardmax count as the same
MOST = 1e6  # by how much a scale is raised at most
_COLUMNS = {
    "head": "head", "gap": "median gap", "mass": "mass on C_i", "mass_least": "least mass",
    "off": "off after a layer", "near": "tokens near", "proved": "layers proved",
    "half": "scale for half", "all": "scale for all",
}  # fmt: skip
_NOTE = (
    "Gap: between the best and the next score of a token, at the head's own scale (beta = 1). "
    "Mass: what softmax puts on the tokens of the best score, median and least over tokens. Off: "
    "how far one layer z + (m - z)/3 with softmax is from that with hardmax (median), as a share "
    "of the largest distance of two tokens; near: tokens for which it is at most "
    f"{NEAR:g}. Layers proved: for half of the tokens, at most {LAYERS}; –: the head has no single "
    "A (rotary positions, masks, ...). Scale for half, all: the factor on all scores that brings "
    "so many tokens near in one layer; no certificate can do with less."
)


def softmax_rows(transformer: Transformer, trace: Trace) -> list[dict[str, Any]]:
    """One row per layer and head, on the tokens that its attention was given."""
    return [
        {"head": f"L{layer}H{head.index}"} | _row(head, x.astype(np.float64))
        for layer, x in enumerate(trace.seen[: transformer.depth])
        for head in transformer.heads(layer)
    ]


def _row(head: Head, x: Float[np.ndarray, "n d"]) -> dict[str, Any]:
    P = head.weights(x)
    seen = P > 0
    scores = np.where(seen, head.scores(x), -np.inf)
    best = scores == scores.max(axis=1, keepdims=True)
    second = np.where(best, -np.inf, scores).max(axis=1)
    gap = scores.max(axis=1) - second
    mass = (P * best).sum(axis=1)
    hard = best / best.sum(axis=1, keepdims=True)
    diameter = float(np.linalg.norm(x[None] - x[:, None], axis=2).max()) or 1.0

    def off(scale: float) -> np.ndarray:
        """|softmax - hardmax| after a layer, as a share of the diameter."""
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(np.maximum(scale * (scores - top), -700.0)) * seen
        sink = -np.inf if head.sink is None else head.sink
        lost = np.exp(np.minimum(scale * (sink - top), 700.0))
        moved = (weights / (weights.sum(axis=1, keepdims=True) + lost) - hard) @ x
        return ALPHA / (1 + ALPHA) * np.linalg.norm(moved, axis=1) / diameter

    own = off(1.0)
    near = int((own <= NEAR).sum())
    more = (head.rotary, head.norm, head.cap, head.window, head.sink)
    proved = None
    if not head.causal and all(part is None for part in more) and not head.slope:
        proved = _proved(head, x, NEAR * diameter) if 2 * near >= len(x) else 0
    return {
        "gap": float(np.median(gap[np.isfinite(gap)])) if np.isfinite(gap).any() else None,
        "mass": float(np.median(mass)),
        "mass_least": float(mass.min()),
        "off": float(np.median(own)),
        "near": near,
        "proved": proved,
        "half": _scale(lambda s: 2 * int((off(s) <= NEAR).sum()) >= len(x)),
        "all": _scale(lambda s: bool((off(s) <= NEAR).all())),
    }


def _scale(enough: Any) -> float | None:
    """The factor found by doubling and halving; None beyond MOST (a tie, or two equal scores)."""
    if enough(1.0):
        return 1.0
    high = 2.0
    while not enough(high):
        high *= 2
        if high > MOST:
            return None
    low = high / 2
    while high / low > 1.01:
        mid = float(np.sqrt(low * high))
        low, high = (low, mid) if enough(mid) else (mid, high)
    return high


def _proved(head: Head, x: Float[np.ndarray, "n d"], tolerance: float) -> int:
    """Layers of this head alone, repeated, in which half of the tokens provably follow hardmax; in
    coordinates of the span of the tokens, rounded once."""
    whole, lifted = np.column_stack([x, np.ones(len(x))]), head.lifted()
    basis = np.linalg.qr(whole.T)[0]
    A = (lifted.K @ basis).T @ (lifted.Q @ basis)
    model = PureAttention(Softmax(1.0, A), ALPHA)
    found = shadow(model, whole @ basis, layers=LAYERS, tolerance=tolerance, plateaus=False)
    until = np.sort(found.agrees_until(tolerance))
    return int(until[len(until) // 2])


def softmax_chapter(transformer: Transformer, trace: Trace) -> Report:
    """Whether hardmax says anything about these heads, on these tokens."""
    rows = softmax_rows(transformer, trace)
    n = trace.seen.shape[1]
    half = [row["half"] for row in rows if row["half"] is not None]
    alike = sum(2 * row["near"] >= n for row in rows)
    shown = [row["proved"] for row in rows if row["proved"] is not None]
    summary = (
        f"At their own scale {alike} of {len(rows)} heads move at least half of the {n} tokens as "
        f"hardmax would, for one layer, within {NEAR:g} of the largest distance. The median head "
        f"puts {np.median([row['mass'] for row in rows]):.2f} of its weight on the best score. Its "
        f"scores would have to be {np.median(half):.3g} times larger for half of the tokens. "
        f"Proved for a layer or more: {sum(k > 0 for k in shown)} of the {len(shown)} heads that "
        "have one matrix A."
    )
    table = table_of("Softmax and hardmax by head", rows, _COLUMNS, _NOTE)
    return Report("Does hardmax describe these heads?", summary, {}, (table,))
