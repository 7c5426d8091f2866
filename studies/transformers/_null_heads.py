"""Heads chosen by name, and heads that know nothing to set beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import cynosure as cy

MATRICES = ("Q", "K", "W_V", "W_O")


def random_head(head: cy.pretrained.Head, draw: np.random.Generator) -> cy.pretrained.Head:
    """A head of the same shape whose matrices are Gaussian, each of the norm of the trained one."""
    matrices = {name: getattr(head, name) for name in MATRICES}
    noise = {name: draw.standard_normal(M.shape) for name, M in matrices.items()}
    return replace(
        head,
        **{k: x * (np.linalg.norm(matrices[k]) / np.linalg.norm(x)) for k, x in noise.items()},
    )


def uniform_head(head: cy.pretrained.Head) -> cy.pretrained.Head:
    """The same values V, but every token looks at all tokens alike: A = 0, P_ij = 1/n."""
    return replace(head, Q=np.zeros_like(head.Q), K=np.zeros_like(head.K))


def is_good(head: cy.pretrained.Head) -> bool:
    """A good triple: V leads with a simple real positive eigenvalue, and <Qf, Kf> > 0."""
    return next(h.holds for h in head.hypotheses() if h.name == "good triple")


def forms(heads: list[cy.pretrained.Head]) -> np.ndarray:
    """<Q_j f_i, K_j f_i>: f leads V of head i (NaN where there is none), Q and K are of head j."""
    out = np.full((len(heads), len(heads)), np.nan)
    for i, head in enumerate(heads):
        if head.leading is not None:
            f = head.leading.f
            out[i] = [float((other.Q @ f) @ (other.K @ f)) for other in heads]
    return out


def lean(head: cy.pretrained.Head) -> float:
    """How far the real parts of V's eigenvalues lean to one side: 0 half and half, 1 all of one."""
    real = head.V_eigenvalues.real
    return float(abs((real > 0).sum() - (real < 0).sum()) / len(real))


def named_heads(heads: list[cy.pretrained.Head], only: str) -> list[cy.pretrained.Head]:
    """Those named in `only`, in that order: "L2H0,L3H1", or "4,13" for heads of the first layer.

    Layers and heads are counted from 0. All of them when nothing is named.
    """
    if not only.strip():
        return heads
    known = {head.name: head for head in heads}
    names = [name.strip() for name in only.split(",")]
    full = [name if name.startswith("L") else f"L0H{name}" for name in names]
    unknown = [name for name in full if name not in known]
    if unknown:
        raise ValueError(
            f"only: no head {', '.join(unknown)}; there are {heads[0].name} to {heads[-1].name}"
        )
    return [known[name] for name in full]
