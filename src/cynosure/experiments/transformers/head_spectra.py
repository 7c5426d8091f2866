"""Spectra of A and V in a real model, in the picture arXiv 2305.05465 draws for ALBERT.

Whose weights: MiniLM's where nothing else is named. The paper's, heads 5 and 14 of ALBERT-xlarge,
once its weights are in a folder: `cynosure run head_spectra --model FOLDER --set only=5,14`.
See in the planes: the eigenvalues of V of every head, a star where the leading one is real and
positive. A head is a good triple when that star is also the largest in modulus and <Qf, Kf> > 0 for
its eigenvector f; then its idealised flow ends on at most three hyperplanes.

Beside it stand heads that know nothing: Gaussian matrices of the same shapes and norms, and the V
of one head with the A of another. In MiniLM good triples are as frequent as in Gaussian heads, so
their number says nothing about training. What training left is seen elsewhere: the real parts of
V's eigenvalues lean to one side. That no head is definite is shape: a head of rank d_k < d/2 has as
many negative as positive directions, trained or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained.chapters import heads_chapter
from ...pretrained.examples import ONE_THREAD, example_transformer, weights_note
from ...theorems import Hypothesis
from .._frame import Progress, report_of, require, silent
from .._measurements import kept
from ._named_heads import named_heads
from ._null_heads import forms, is_good, lean, random_head

TITLE = "Spectra of real heads (MiniLM's, where no other model is named)"
PAIRINGS = 2000  # permutations that give each V the A of another head; they cost nothing


@dataclass(frozen=True)
class Params:
    """`model` is a folder or a hub id such as albert-xlarge-v2; empty: MiniLM if it is installed,
    else random weights. At most `panels` heads are drawn, the nearest to a good triple first, or
    those named in `only` (L2H0,L3H1, or 5,14 in the first layer); `copies` times every head is set
    beside a Gaussian one."""

    model: str = ""
    only: str = ""
    panels: int = 24
    copies: int = 60
    seed: int = 0


QUICK = Params(panels=6, copies=3)


class Counts(NamedTuple):
    """Of all heads of a model, or of as many that know nothing."""

    leading: int  # V has a real positive eigenvalue
    simple: int  # and it leads
    attracted: int  # <Qf, Kf> > 0, of those that have a leading one
    good: int
    lean: float


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


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Facts and spectra of all heads, the planes of the first of them."""
    say = progress or silent
    require(min(p.panels, p.copies) >= 1, "panels, copies >= 1", p)
    say(0.0, "model")
    return _report(p, example_transformer(p.model, family="albert"), say)


@ONE_THREAD
def _report(p: Params, m: cy.Transformer, say: Progress) -> cy.Report:
    say(0.2, "heads")
    chapter = heads_chapter(m)
    heads = [head for layer in m.distinct_layers for head in m.heads(layer)]
    distance = [_distance(head) for head in heads]
    nearest = [heads[i] for i in np.argsort(distance, kind="stable")[: p.panels]]
    drawn = named_heads(heads, p.only) if p.only else nearest
    good = [head for head, x in zip(heads, distance) if x == 0]
    say(0.3, "heads that know nothing")
    nulls = _nulls(p, heads)
    say(0.7, "planes")
    names = ", ".join(head.name for head in good)
    forms_ = "; ".join(f"{h.name} {h.leading.form:.3g}" for h in good if h.leading is not None)
    summary = (
        f"{weights_note(m)}{m.name}: {len(good)} of {len(heads)} heads are good triples"
        f"{f' ({names})' if good else ''}. {_verdict(nulls)}\n\n{chapter.summary}"
    ) + (f"\n\n<Qf, Kf> of the good triples: {forms_}." if forms_ else "")
    if p.only:
        summary += f"\n\nThe heads drawn: {'; '.join(map(_said, drawn))}."
    return report_of(
        __name__,
        p,
        summary,
        controls=_controls(nulls, _inertia([_copy(p, h, 0) for h in heads])),
        tables=(_null_table(nulls), *chapter.tables, _eigenvalues(heads)),
        checks={m.name: [_inertia(heads)]},
        figures=(
            _planes(m.name, drawn, "V"),
            _cloud(m.name, heads, [_copy(p, head, 0) for head in heads]),
            _planes(m.name, drawn, "A"),
            *chapter.figures,
        ),
    )


def _said(head: cy.Head) -> str:
    """The numbers the paper gives of a head."""
    lead = head.leading
    if lead is None:
        return f"{head.name}, V without a real positive eigenvalue"
    rest = "leads" if lead.gap > 0 else "does not lead"
    form = f"⟨Qf, Kf⟩ = {lead.form:.3g}"
    return f"{head.name}, l1 = {lead.value:.3g} {rest} (gap {lead.gap:.3g}), {form}"


# --- heads that know nothing ---------------------------------------------------------------------


def _copy(p: Params, head: cy.Head, number: int) -> cy.Head:
    """The Gaussian head number `number` of the shape and norms of `head`."""
    return random_head(head, np.random.default_rng([p.seed, number, head.layer, head.index]))


def _counts(heads: list[cy.Head]) -> Counts:
    leads = [head.leading for head in heads]
    return Counts(
        leading=sum(lead is not None for lead in leads),
        simple=sum(lead is not None and lead.gap > 0 for lead in leads),
        attracted=sum(lead is not None and lead.form > 0 for lead in leads),
        good=sum(map(is_good, heads)),
        lean=float(np.mean([lean(head) for head in heads])),
    )


def _copied(p: Params, heads: list[cy.Head]) -> list[Counts]:
    return [_counts([_copy(p, head, k) for head in heads]) for k in range(p.copies)]


def _nulls(p: Params, heads: list[cy.Head]) -> dict[str, Null]:
    """Each statistic beside Gaussian heads, and beside the same V with the A of another head."""
    real, copies = _counts(heads), kept(_copied, p, heads)
    gaussian = f"{p.copies} sets of Gaussian heads, same shapes and norms"
    exchanged = f"{PAIRINGS} pairings of each V with the A of another head"
    attracted, good = _paired(p, heads)

    def of(name: str, share: Callable[[Counts], float]) -> Null:
        return Null(name, gaussian, share(real), np.array([share(c) for c in copies]))

    return {
        "good": of("good triples", lambda c: c.good),
        "good, paired": Null("good triples", exchanged, real.good, good),
        "simple": of("V leads with a simple real positive eigenvalue", lambda c: c.simple),
        "attracted": of(
            "<Qf, Kf> > 0, share of the heads with a real positive eigenvalue",
            lambda c: c.attracted / max(c.leading, 1),
        ),
        "attracted, paired": Null(
            "<Qf, Kf> > 0, share of the heads with a real positive eigenvalue",
            exchanged,
            real.attracted / max(real.leading, 1),
            attracted,
        ),
        "lean": of("real parts of V on one side, mean (0 half and half, 1 all)", lambda c: c.lean),
    }


def _paired(p: Params, heads: list[cy.Head]) -> tuple[np.ndarray, np.ndarray]:
    """Share with <Qf, Kf> > 0, and number of good triples, when V and A are of different heads."""
    F, draw = forms(heads), np.random.default_rng(p.seed)
    gap = np.array([-1.0 if h.leading is None else h.leading.gap for h in heads])
    some, row = np.isfinite(F[:, 0]), np.arange(len(heads))
    shares, counts = [], []
    for _ in range(PAIRINGS):
        form = F[row, draw.permutation(len(heads))]
        shares.append((form[some] > 0).mean() if some.any() else 0.0)
        counts.append(((gap > 0) & (form > 0)).sum())
    return np.array(shares, float), np.array(counts, float)


def _verdict(nulls: dict[str, Null]) -> str:
    good, side = nulls["good"], nulls["lean"]
    low, high = good.range
    said = "not more or fewer" if not good.outside else "another number"
    return (
        f"Gaussian heads of the same shapes give {good.drawn.mean():.1f} (95 % between {low:.0f} "
        f"and {high:.0f}), {said} than training left. The real parts of V lean to one side by "
        f"{side.real:.2f} on average (0: half and half, 1: all), in Gaussian heads by "
        f"{side.drawn.mean():.2f}."
    )


def _controls(nulls: dict[str, Null], inertia: cy.Check) -> list[cy.Comparison]:
    claims = {
        "good": "The number of good triples is the work of training.",
        "good, paired": "A head's own A makes more good triples than another head's.",
        "simple": "That V leads with a real positive eigenvalue is the work of training.",
        "attracted, paired": "<Qf, Kf> has its sign by the head's own A: another head's differs.",
        "lean": "The real parts of V's eigenvalues lean to one side.",
    }
    above = {"good, paired", "lean"}  # claims of more, not only of different
    out = [
        cy.Comparison(
            claim,
            nulls[key].beside,
            f"{nulls[key].name}: {nulls[key].said}",
            nulls[key].real > nulls[key].range[1] if key in above else nulls[key].outside,
        )
        for key, claim in claims.items()
    ]
    shape = inertia.applies and inertia.holds
    out.append(
        cy.Comparison(
            "That no head has a definite A + Aᵀ is the work of training.",
            "Gaussian heads of the same shapes",
            "they have d_k positive and d_k negative eigenvalues too: it is the shape"
            if shape
            else "their inertia differs",
            not shape,
        )
    )
    return out


def _null_table(nulls: dict[str, Null]) -> cy.Table:
    columns: dict[str, Any] = {
        "what": "name",
        "this model": "real",
        "set beside": "beside",
        "mean there": lambda x: float(x.drawn.mean()),
        "2.5 %": lambda x: x.range[0],
        "97.5 %": lambda x: x.range[1],
        "outside": "outside",
    }
    note = "The middle 95 % of what heads that know nothing give; outside: the model is not there."
    return cy.Table.of("Beside heads that know nothing", list(nulls.values()), columns, note)


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


def _planes(name: str, heads: list[cy.Head], matrix: str) -> cy.Picture:
    from ...pretrained.pictures import plane

    columns = min(6, len(heads))
    figure, axes = cy.plot.sheet(-(-len(heads) // columns), columns, 2.4, 2.5)
    for ax, head in zip(axes.flat, heads):
        title = f"{head.name}, good triple" if is_good(head) else head.name
        if matrix == "A":
            plane(ax, head.A_eigenvalues, title)
        else:
            lead = head.leading
            plane(ax, head.V_eigenvalues, title, None if lead is None else lead.value)
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_major_locator().set_params(nbins=4)
    for ax in axes[:, 0]:
        ax.set_ylabel("imaginary part")
    for ax in axes[-1]:
        ax.set_xlabel("real part")
    for ax in axes.flat[len(heads) :]:
        ax.remove()
    star = " The star is the leading real positive eigenvalue." if matrix == "V" else ""
    caption = (
        f"{name}: complex plane of {matrix}, {len(heads)} heads, the nearest to a good triple "
        f"first; blue is real, orange complex, structural zeros are left out.{star} Each panel has "
        "the scale of its own spectral radius."
    )
    return cy.Picture(f"Eigenvalues of {matrix}, heads of {name}", caption, figure)


def _cloud(name: str, heads: list[cy.Head], copies: list[cy.Head]) -> cy.Picture:
    from ...pretrained.pictures import plane

    figure, axes = cy.plot.sheet(2, 2, 4.5, 4.4)
    for row, (whose, group) in zip(axes, ((name, heads), ("Gaussian copies", copies))):
        for ax, matrix in zip(row, ("A", "V")):
            values = [getattr(h, f"{matrix}_eigenvalues") for h in group]
            unit = [v / (np.abs(v[0]) or 1.0) for v in values]
            plane(ax, np.concatenate(unit), f"{matrix}, {whose}")
            ax.set_xlabel("real part / spectral radius", fontsize=cy.plot.LABEL)
        row[0].set_ylabel("imaginary part / spectral radius", fontsize=cy.plot.LABEL)
    caption = (
        "Every eigenvalue of every head, divided by the spectral radius of its matrix. Above: "
        f"{name}. Below: Gaussian matrices of the same shapes and norms, the null model."
    )
    return cy.Picture("All heads together, and heads that know nothing", caption, figure)


def _eigenvalues(heads: list[cy.Head]) -> cy.Table:
    rows = tuple(
        (head.name, matrix, i, float(value.real), float(value.imag))
        for head in heads
        for matrix in ("A", "V")
        for i, value in enumerate(getattr(head, f"{matrix}_eigenvalues")[:8])
    )
    columns = ("head", "matrix", "number", "real part", "imaginary part")
    return cy.Table("Eight largest eigenvalues", columns, rows)
