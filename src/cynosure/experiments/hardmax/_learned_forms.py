"""The forms A = K^T Q of trained heads, run as hardmax layers on the tokens of a sentence."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained.examples import SENTENCE, example_transformer, weights_note
from .._frame import Progress
from .._measurements import kept_each
from ._forms import FormEffect, effect_of

__all__ = ["LearnedForm", "head_table", "heads", "heads_picture", "learned_text"]


class LearnedForm(NamedTuple):
    """The A of one head, and what it does to the tokens of a sentence."""

    head: str
    alpha: float
    tokens: int
    antisymmetric: float  # |A - A^T| / 2|A|, Frobenius
    least: float  # eigenvalue of the symmetric part, divided by the largest size of one
    effect: FormEffect


def heads(
    model: str, blocks: int, alphas: tuple[float, ...], layers: int, progress: Progress
) -> list[LearnedForm]:
    """Heads of the first blocks of the model named, or of MiniLM where it is installed."""
    if not blocks or find_spec("transformers") is None:
        return []
    transformer = example_transformer(model)
    if weights_note(transformer):  # random weights stand in for a model that is not there
        return []
    found = [h for k in range(min(blocks, transformer.depth)) for h in transformer.heads(k)]
    z0 = transformer.trace(SENTENCE).z[0].astype(np.float64)
    forms = [(h.name, h.A.astype(np.float64)) for h in found]
    every = [(*form, z0, float(alpha), layers) for form in forms for alpha in alphas]
    return kept_each(_learned, every, progress, [args[0] for args in every])


def _learned(
    name: str, A: np.ndarray, z0: np.ndarray, alpha: float | int, layers: int
) -> LearnedForm:
    eigenvalues = np.linalg.eigvalsh((A + A.T) / 2)
    share = float(np.linalg.norm(A - A.T) / 2 / np.linalg.norm(A))
    least = float(eigenvalues[0] / np.abs(eigenvalues).max())
    effect = effect_of(*_on_span(A, z0), alpha, layers)
    return LearnedForm(name, float(alpha), len(z0), share, least, effect)


def _on_span(A: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The form and the tokens in orthonormal coordinates of the span of the tokens.

    Layers never leave that span and see of A only its scores there; a dozen tokens of a sentence
    in R^384 are tokens in R^12, where exact arithmetic is thirty times cheaper.
    """
    if z.shape[1] <= len(z):
        return A, z
    Q = np.linalg.qr(z.T)[0]
    return Q.T @ A @ Q, z @ Q


def head_table(heads: list[LearnedForm]) -> cy.Table:
    columns = {
        **{"head": "head", "alpha": "alpha", "antisymmetric share": "antisymmetric"},
        **{"least / largest eigenvalue": "least", "proved": "effect.certified"},
        **{"leaders": "effect.leaders", "limits": "effect.limits", "circle": "effect.cycle"},
        "norms fell": "effect.norms_fell",
    }
    note = f"{heads[0].tokens} tokens of a sentence; eigenvalues of the symmetric part of A."
    return cy.Table.of("Heads of a trained transformer", heads, columns, note)


def heads_picture(heads: list[LearnedForm]) -> cy.Picture:
    alphas = list(dict.fromkeys(h.alpha for h in heads))
    orange = cy.plot.PALETTE[1]
    figure, axes = cy.plot.sheet(1, 2, 5, 3.6)
    left, right = axes[0]
    first = [h for h in heads if h.alpha == alphas[0]]
    for circles, name in ((True, "followers in a circle"), (False, "no circle")):
        of = [h for h in first if h.effect.cycle == circles]
        x, y = [h.antisymmetric for h in of], [h.effect.limits for h in of]
        fill = orange if circles else "white"
        left.plot(x, y, "o", color=orange, mfc=fill, ms=6, alpha=0.7, label=name)
    left.set(xlabel="antisymmetric share of A", ylabel="limits", xlim=(0, 1))
    left.set_ylim(bottom=0)
    most = max(h.effect.limits for h in heads)
    width = 0.8 / len(alphas)
    for j, (colour, alpha) in enumerate(zip(cy.plot.PALETTE, alphas)):
        leaders = [h.effect.leaders for h in heads if h.alpha == alpha]
        count = np.bincount(leaders, minlength=most + 1)
        places = np.arange(len(count)) + (j - (len(alphas) - 1) / 2) * width
        right.bar(places, count, width, color=colour, label=rf"$\alpha$ = {alpha:g}")
    right.set(xlabel="leaders", ylabel="heads")
    right.locator_params(axis="x", integer=True)
    for ax in axes[0]:
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    caption = (
        "Left: one dot per head, how far its A is from symmetric (0: symmetric, 1: antisymmetric, "
        "0.71: random) against the limits its hardmax layers leave of a sentence, alpha = "
        f"{alphas[0]:g}; filled where tokens follow each other in a circle at an early layer. "
        "Right: heads by number of leaders, for every alpha."
    )
    return cy.Picture("Heads of a trained transformer", caption, figure)


def learned_text(heads: list[LearnedForm]) -> str:
    if not heads:
        return ""
    alphas = list(dict.fromkeys(h.alpha for h in heads))
    one = [h for h in heads if h.alpha == alphas[0]]
    of = [h.effect for h in one]
    lead = [
        f"{sum(h.effect.leaders > 0 for h in heads if h.alpha == a)} at alpha = {a:g}"
        for a in alphas
    ]
    return (
        f"\n\nOf {len(one)} heads of a trained transformer {sum(h.least > 0 for h in one)} "
        f"have a positive definite symmetric part; the median antisymmetric share is "
        f"{np.median([h.antisymmetric for h in one]):.2f}. As hardmax layers on the "
        f"{one[0].tokens} tokens of a sentence so many have a leader: {', '.join(lead)}. At alpha "
        f"= {alphas[0]:g}, {sum(f.certified for f in of)} of the limits are proved, "
        f"{sum(f.limits == 1 for f in of)} heads leave one limit, {sum(f.cycle for f in of)} show "
        f"followers in a circle, and norms fall in {sum(f.norms_fell for f in of)}."
    )
