"""Spectra of A and V in a real model, as arXiv 2305.05465 shows them for ALBERT.

See in the planes: the eigenvalues of V of every head, a star where the leading one is real and
positive. A head is a good triple when that star is also the largest in modulus and <Qf, Kf> > 0 for
its eigenvector f; then its idealised flow ends on at most three hyperplanes. See in the table: no
trained head meets the hypotheses of the hardmax theorem (A symmetric positive definite), and it
cannot: a head of rank d_k < d/2 has as many negative as positive directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import cynosure as cy

from ...pretrained.chapters import heads_chapter
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...theorems import Hypothesis
from .._frame import Progress, report_of, require, silent

TITLE = "Spectra of the heads of a real transformer"


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id such as albert-xlarge-v2; empty: MiniLM if it is installed,
    else random weights. At most `panels` heads are drawn, the nearest to a good triple first."""

    model: str = ""
    panels: int = 24


QUICK = Params(panels=6)


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Facts and spectra of all heads, the planes of the first of them."""
    say = progress or silent
    require(p.panels >= 1, "panels >= 1", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, family="albert"), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    say(0.2, "heads")
    chapter = heads_chapter(m)
    heads = [head for layer in m.distinct_layers for head in m.heads(layer)]
    distance = [_distance(head) for head in heads]
    nearest = [heads[i] for i in np.argsort(distance, kind="stable")[: p.panels]]
    good = [head for head, x in zip(heads, distance) if x == 0]
    say(0.6, "planes")
    names = ", ".join(head.name for head in good)
    forms = "; ".join(f"{h.name} {h.leading.form:.3g}" for h in good if h.leading is not None)
    summary = (
        f"{weights_note(m)}{m.name}: {len(good)} of {len(heads)} heads are good triples"
        f"{f' ({names})' if good else ''}.\n\n{chapter.summary}"
    ) + (f"\n\n<Qf, Kf> of the good triples: {forms}." if forms else "")
    return report_of(
        __name__,
        p,
        summary,
        tables=(*chapter.tables, _eigenvalues(heads)),
        checks={m.name: [_inertia(heads)]},
        figures=(*chapter.figures, _planes(nearest, "V"), _planes(nearest, "A"), _cloud(heads)),
    )


def _distance(head: cy.Head) -> float:
    """0 for a good triple; else its distance, above 0 also where only strictness is missing."""
    triple = {h.name: h for h in head.hypotheses()}["good triple"]
    return 0.0 if triple.holds else max(triple.value, 1e-12)


def _inertia(heads: list[cy.Head]) -> cy.Check:
    """d_k positive and d_k negative eigenvalues of A + Aᵀ where the rows of K and Q are free."""
    k, d = heads[0].Q.shape
    worst = 0
    for head in heads:
        lam = head.symmetric_eigenvalues
        zero = 1e-10 * float(np.abs(lam).max())
        worst = max(worst, abs(int((lam > zero).sum()) - k), abs(int((lam < -zero).sum()) - k))
    free = min(int(np.linalg.matrix_rank(np.vstack([h.K, h.Q]))) for h in heads)
    applies = free == 2 * k
    return cy.Check(
        theorem="inertia",
        reference="the difference of two squares, |(K + Q)x|²/4 - |(K - Q)x|²/4",
        statement="A + Aᵀ of a head has d_k positive and d_k negative eigenvalues",
        applies=applies,
        holds=worst == 0 if applies else None,
        margin=float(-worst),
        tol=0.0,
        witness={"heads": len(heads), "d_k": k, "d": d},
        hypotheses=(Hypothesis("the 2 d_k rows of K and Q are independent", applies, float(free)),),
        arithmetic="float64",
    )


def _planes(heads: list[cy.Head], matrix: str) -> cy.Picture:
    from ...pretrained.pictures import plane

    columns = min(6, len(heads))
    figure, axes = cy.plot.sheet(-(-len(heads) // columns), columns, 2.4, 2.5)
    for ax, head in zip(axes.flat, heads):
        if matrix == "A":
            plane(ax, head.A_eigenvalues, head.name)
        else:
            lead = head.leading
            plane(ax, head.V_eigenvalues, head.name, None if lead is None else lead.value)
    for ax in axes.flat[len(heads) :]:
        ax.remove()
    star = " The star is the leading real positive eigenvalue." if matrix == "V" else ""
    caption = (
        f"Complex plane of {matrix}, {len(heads)} heads, the nearest to a good triple first; blue "
        f"is real, orange complex, structural zeros are left out.{star}"
    )
    return cy.Picture(f"Eigenvalues of {matrix}", caption, figure)


def _cloud(heads: list[cy.Head]) -> cy.Picture:
    from ...pretrained.pictures import plane

    figure, axes = cy.plot.sheet(1, 2, 4.5, 4.4)
    for ax, name in zip(axes[0], ("A", "V")):
        values = [getattr(h, f"{name}_eigenvalues") for h in heads]
        plane(ax, np.concatenate([v / np.abs(v[0]) for v in values]), name)
        ax.set_xlabel("real part / spectral radius", fontsize=cy.plot.LABEL)
    caption = "Every eigenvalue of every head, divided by the spectral radius of its matrix."
    return cy.Picture("All heads together", caption, figure)


def _eigenvalues(heads: list[cy.Head]) -> cy.Table:
    rows = tuple(
        (head.name, matrix, i, float(value.real), float(value.imag))
        for head in heads
        for matrix in ("A", "V")
        for i, value in enumerate(getattr(head, f"{matrix}_eigenvalues")[:8])
    )
    columns = ("head", "matrix", "number", "real part", "imaginary part")
    return cy.Table("Eight largest eigenvalues", columns, rows)
