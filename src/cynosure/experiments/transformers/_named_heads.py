"""Heads of a model chosen by name."""

from __future__ import annotations

import cynosure as cy


def named_heads(heads: list[cy.Head], only: str) -> list[cy.Head]:
    """Those named in `only`, in that order: "L2H0,L3H1", or "5,14" for heads of the first layer.

    All of them when nothing is named.
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
