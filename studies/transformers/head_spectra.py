"""Spectra of V in real models, in the picture arXiv 2305.05465 draws for ALBERT.

Name a model with `--model FOLDER`, several with commas (`--model plbert,stories15M,minilm`); MiniLM
is read where none is named. The paper's own: with ALBERT-xlarge-v2 in a folder, `cynosure run
head_spectra --model FOLDER --set only=4,13`. Heads are counted from 0 here; the paper and its
notebook count from 1 and call these two heads 5 and 14.
See in the planes: the eigenvalues of V of every head, a star where the leading one is real and
positive. A head is a good triple when that star is also the largest in modulus and <Qf, Kf> > 0 for
its eigenvector f; then its idealised flow ends on at most three hyperplanes.

Beside it stand heads that know nothing: Gaussian matrices of the same shapes and norms, and the V
of one head with the A of another. What training left is seen where these differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained.pages.chapters import heads_chapter
from cynosure.pretrained.reading.examples import ONE_THREAD

from ._models import Measured, models_of, side_by_side
from ._null_heads import forms, is_good, lean, named_heads, random_head

TITLE = "Spectra of real heads (MiniLM's, where no other model is named)"
SIDES = (-1.05, 1.05)  # of the picture of gaps and cosines
PAIRINGS = 2000  # permutations that give each V the A of another head; they cost nothing


@dataclass(frozen=True)
class Params:
    """`model`: folders or hub ids with commas; empty: MiniLM, else random weights. At most `panels`
    heads are drawn, the nearest to a good triple first, or those named in `only` (L2H0,L3H1, or
    4,13 in the first layer); `copies` times every head is set beside a Gaussian one."""

    model: str = ""
    only: str = ""
    panels: int = 12
    copies: int = 12
    seed: int = 0


QUICK = Params(panels=6, copies=3)


class Null(NamedTuple):
    """A statistic of the model, and its values where there is nothing to find."""

    name: str
    beside: str
    real: float
    drawn: np.ndarray

    @property
    def range(self) -> tuple[float, float]:
        """The middle 95 % of the null values."""
        low, high = np.quantile(self.drawn, (0.025, 0.975))
        return float(low), float(high)

    @property
    def outside(self) -> bool:
        low, high = self.range
        return not low <= self.real <= high

    @property
    def said(self) -> str:
        low, high = self.range
        return (
            f"{self.real:.3g}; null {self.drawn.mean():.3g} (95 % of {len(self.drawn)} draws: "
            f"{low:.3g} to {high:.3g})"
        )


@ONE_THREAD
def run(p: Params, progress: cy.study.Progress | None = None) -> cy.study.Report:
    """Facts and spectra of all heads, the planes of the first of them."""
    say = progress or cy.study.silent
    cy.study.require(min(p.panels, p.copies) >= 1, "panels, copies >= 1", p)
    say(0.0, "model")
    models = models_of(p.model, family="albert")
    return side_by_side(p, models, lambda m, tell: _measured(p, m, tell), say, _sides)


def _measured(p: Params, m: cy.pretrained.Transformer, say: cy.study.Progress) -> Measured:
    say(0.2, "heads")
    chapter = heads_chapter(m)
    heads = [head for layer in m.distinct_layers for head in m.heads(layer)]
    distance = [_distance(head) for head in heads]
    nearest = [heads[i] for i in np.argsort(distance, kind="stable")[: p.panels]]
    drawn = named_heads(heads, p.only) if p.only else nearest
    good = [head for head, x in zip(heads, distance) if x == 0]
    say(0.3, "heads that know nothing")
    nulls, copies = _nulls(p, heads), [_copy(p, head, 0) for head in heads]
    say(0.7, "planes")
    forms_ = "; ".join(f"{h.name} {h.leading.form:.3g}" for h in good if h.leading is not None)
    names = ", ".join(head.name for head in good)
    summary = (
        f"{m.name}: {len(good)} of {len(heads)} heads are good triples"
        f"{f' ({names})' if good else ''}. {nulls['good'].said}.\n\n{chapter.summary}"
    ) + (f"\n\n<Qf, Kf> of the good triples: {forms_}." if forms_ else "")
    if p.only:
        summary += f"\n\nThe heads drawn: {'; '.join(map(_said, drawn))}."
    report = cy.study.report_of(
        p,
        summary,
        controls=_controls(nulls),
        tables=chapter.tables,
        figures=(
            _planes(m.name, drawn),
            _sides([m.name], [(heads, copies)]),
            *chapter.figures,
        ),
    )
    real, (low, high) = _counts(heads), nulls["good"].range
    facts = {
        "heads": len(heads),
        "V has a real positive eigenvalue": real.leading,
        "it leads, with a gap": real.simple,
        "⟨Qf, Kf⟩ > 0": real.attracted,
        "good triples": real.good,
        "in Gaussian heads": f"{nulls['good'].drawn.mean():.1f} ({low:.0f} to {high:.0f})",
        "they are": names,
        "counted from 1": ", ".join(str(head.index + 1) for head in good),
        "lean of V": real.lean,
        "in Gaussian heads ": float(nulls["lean"].drawn.mean()),
    }
    return Measured(report, facts, (heads, copies))


def _sides(
    names: list[str], drawn: list[tuple[list[cy.pretrained.Head], list[cy.pretrained.Head]]]
) -> cy.study.Picture:
    """Gap of V and cosine of Qf and Kf: where both are positive a head is a good triple."""
    figure, axes = cy.plot.sheet(1, len(names), 4.2, 4.2)
    blue, *_ = cy.plot.PALETTE
    for ax, name, groups in zip(axes[0], names, drawn):
        ax.fill_between((0, SIDES[1]), 0, SIDES[1], color=blue, alpha=0.08, lw=0)
        for heads, look in zip(groups, ({"c": blue, "s": 22, "zorder": 3}, {"c": "0.7", "s": 14})):
            leads = [head.leading for head in heads if head.leading is not None]
            at = [(max(lead.gap, -1.0), lead.cosine) for lead in leads]
            ax.scatter(*np.array(at or np.empty((0, 2))).T, lw=0, **look)
        for head in groups[0]:
            if is_good(head) and head.leading is not None:
                place = (head.leading.gap, head.leading.cosine)
                ax.annotate(head.name, place, (3, 3), textcoords="offset points", fontsize=7)
        ax.set(xlim=SIDES, ylim=SIDES, xlabel="gap 1 - |l2| / l1 (-1 and less at the edge)")
        ax.set_title(name, fontsize=cy.plot.TITLE, loc="left")
    axes[0, 0].set_ylabel("cosine of Qf and Kf")
    caption = (
        "A dot for each head whose V has a real positive eigenvalue l1. In the shaded corner l1 "
        "leads and Qf, Kf make an acute angle: a good triple. Grey: Gaussian heads of the same "
        "shapes. Heads are counted from 0."
    )
    return cy.study.Picture("Good triples, model by model", caption, figure)


def _said(head: cy.pretrained.Head) -> str:
    """The numbers the paper gives of a head."""
    lead = head.leading
    if lead is None:
        return f"{head.name}, V without a real positive eigenvalue"
    rest = "leads" if lead.gap > 0 else "does not lead"
    form = f"⟨Qf, Kf⟩ = {lead.form:.3g}"
    return f"{head.name}, l1 = {lead.value:.3g} {rest} (gap {lead.gap:.3g}), {form}"


# --- heads that know nothing ---------------------------------------------------------------------


def _copy(p: Params, head: cy.pretrained.Head, number: int) -> cy.pretrained.Head:
    """The Gaussian head number `number` of the shape and norms of `head`."""
    return random_head(head, np.random.default_rng([p.seed, number, head.layer, head.index]))


def _counts(heads: list[cy.pretrained.Head]) -> cy.study.Cell:
    """Of all heads of a model, or of as many that know nothing: V has a real positive eigenvalue,
    that leads, has <Qf, Kf> > 0, good triples, and the lean of V."""
    leads = [head.leading for head in heads]
    return cy.study.Cell(
        leading=sum(lead is not None for lead in leads),
        simple=sum(lead is not None and lead.gap > 0 for lead in leads),
        attracted=sum(lead is not None and lead.form > 0 for lead in leads),
        good=sum(map(is_good, heads)),
        lean=float(np.mean([lean(head) for head in heads])),
    )


def _copied(p: Params, heads: list[cy.pretrained.Head]) -> list[cy.study.Cell]:
    return [_counts([_copy(p, head, k) for head in heads]) for k in range(p.copies)]


def _nulls(p: Params, heads: list[cy.pretrained.Head]) -> dict[str, Null]:
    """Each statistic beside Gaussian heads, and beside the same V with the A of another head."""
    real, copies = _counts(heads), cy.study.kept(_copied, p, heads)
    gaussian = f"{p.copies} sets of Gaussian heads, same shapes and norms"
    exchanged = f"{PAIRINGS} pairings of each V with the A of another head"
    attracted, good = _paired(p, heads)

    def of(name: str, share: Callable[[cy.study.Cell], float]) -> Null:
        return Null(name, gaussian, share(real), np.array([share(c) for c in copies]))

    sign = "<Qf, Kf> > 0, share of the heads with a real positive eigenvalue"
    share = real.attracted / max(real.leading, 1)
    return {
        "good": of("good triples", lambda c: c.good),
        "good, paired": Null("good triples", exchanged, real.good, good),
        "simple": of("V leads with a simple real positive eigenvalue", lambda c: c.simple),
        "attracted, paired": Null(sign, exchanged, share, attracted),
        "lean": of("real parts of V on one side, mean (0 half and half, 1 all)", lambda c: c.lean),
    }


def _paired(p: Params, heads: list[cy.pretrained.Head]) -> tuple[np.ndarray, np.ndarray]:
    """Share with <Qf, Kf> > 0, and number of good triples, when V and A are of different heads."""
    F, draw = forms(heads), np.random.default_rng(p.seed)
    leads = np.array([h.leading is not None and h.leading.gap > 0 for h in heads])
    some, row = np.isfinite(F[:, 0]), np.arange(len(heads))
    acute = np.stack([F[row, draw.permutation(len(heads))] > 0 for _ in range(PAIRINGS)])
    shares = acute[:, some].mean(axis=1) if some.any() else np.zeros(PAIRINGS)
    return shares, (acute & leads).sum(axis=1).astype(float)


def _controls(nulls: dict[str, Null]) -> list[cy.study.Comparison]:
    claims = {
        "good": "The number of good triples is the work of training.",
        "good, paired": "A head's own A makes more good triples than another head's.",
        "simple": "That V leads with a real positive eigenvalue is the work of training.",
        "attracted, paired": "<Qf, Kf> has its sign by the head's own A: another head's differs.",
        "lean": "The real parts of V's eigenvalues lean to one side.",
    }
    above = {"good, paired", "lean"}  # claims of more, not only of different
    return [
        cy.study.Comparison(
            claim,
            nulls[key].beside,
            f"{nulls[key].name}: {nulls[key].said}",
            nulls[key].real > nulls[key].range[1] if key in above else nulls[key].outside,
        )
        for key, claim in claims.items()
    ]


def _distance(head: cy.pretrained.Head) -> float:
    """0 for a good triple; else its distance, above 0 also where only strictness is missing."""
    triple = {h.name: h for h in head.hypotheses()}["good triple"]
    return 0.0 if triple.holds else max(triple.value, 1e-12)


def _planes(name: str, heads: list[cy.pretrained.Head]) -> cy.study.Picture:
    from cynosure.pretrained.pages.pictures import plane

    columns = min(6, len(heads))
    figure, axes = cy.plot.sheet(-(-len(heads) // columns), columns, 2.4, 2.5)
    for ax, head in zip(axes.flat, heads):
        title = f"{head.name}, good triple" if is_good(head) else head.name
        star = None if head.leading is None else head.leading.value
        plane(ax, head.V_eigenvalues, title, star)
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_major_locator().set_params(nbins=4)
    for ax in axes[:, 0]:
        ax.set_ylabel("imaginary part")
    for ax in axes[-1]:
        ax.set_xlabel("real part")
    for ax in axes.flat[len(heads) :]:
        ax.remove()
    caption = (
        f"{name}: complex plane of V, {len(heads)} heads, the nearest to a good triple first; blue "
        "is real, orange complex, structural zeros are left out. The star is the leading real "
        "positive eigenvalue. Each panel has the scale of its own spectral radius."
    )
    return cy.study.Picture(f"Eigenvalues of V, heads of {name}", caption, figure)
