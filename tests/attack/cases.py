"""Cases: a start, or a batch of them, and the questions asked about it.

A case is made from the seed and its number alone, so `--replay SEED:INDEX` makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from zlib import crc32

import numpy as np

from .starts import STARTS, UNDRAWN, Rng, Start, Tokens, matrices, steps
from .structured import STRUCTURED

KINDS = STARTS | STRUCTURED
BATCHED = ("batch", "mixed batch", "masked batch", "review batch")
MASKED = ("masked batch", "review batch", "masked single")
MODES = {  # mode -> share
    "single": 20,
    "batch": 10,
    "mixed batch": 4,
    "masked batch": 8,
    "review batch": 4,
    "masked single": 4,
    "limit": 30,
    "transformed": 14,
    "unnormalised": 3,
    "causal": 5,
    "rotary": 3,
    "heads": 3,
    "layouts": 4,
    "control": 6,
}


@dataclass(frozen=True)
class Case:
    """One configuration, or a batch of equal shape, with A (None: identity), alpha and a mode."""

    seed: int
    index: int
    kind: str
    mode: str
    z: tuple[Tokens, ...]
    A: Tokens | None
    alpha: float | str
    layers: int  # how far the oracle tries to go
    mask: tuple[tuple[bool, ...], ...] | None = None
    turn: int = 0  # seeds the transformation, in the mode that transforms

    @property
    def name(self) -> str:
        return f"{self.seed}:{self.index}"

    @property
    def rational(self) -> bool:
        """True where tokens are no floats, so that only exact answers can be asked for."""
        return any(isinstance(x, Fraction) for row in self.z[0] for x in row)

    def code(self) -> str:
        """The case as Python to paste."""
        batched = self.mode in BATCHED
        z = _literal(self.z if batched else self.z[0])
        A = "None" if self.A is None else f"np.array({_literal(self.A)})"
        lines = [
            f"# {self.name}: {self.kind}, {self.mode}",
            "import numpy as np, cynosure as cy",
            *(["from fractions import Fraction"] if self.rational else []),
            f"z = {z}" if self.rational else f"z = np.array({z})",
            f"attention = cy.Hardmax({A})",
        ]
        mask = ""
        if self.mask is not None:
            lines.append(f"mask = np.array({_literal(self.mask if batched else self.mask[0])})")
            mask = ", mask=mask"
        kind = "UnnormalizedAttention" if self.mode == "unnormalised" else "PureAttention"
        around = {
            "causal": "cy.attention.Causal(attention)",
            "rotary": "cy.attention.Rotary(attention)",
        }
        attention = around.get(self.mode, "attention")
        lines.append(f"layers = cy.dynamics.{kind}({attention}, {self.alpha!r})")
        if self.mode not in ("limit", "transformed"):
            lines.append(f"tr = cy.simulate(layers, z, layers={self.layers}{mask})")
        if self.mode in ("limit", "transformed", "masked single"):
            lines.append(f"exact = cy.limit(layers, z, exact=True{mask})")
            if not self.rational:
                lines.append(f"li = cy.limit(layers, z{mask})")
        return "\n".join(lines)


def _literal(x: Any) -> str:
    return "[" + ", ".join(map(_literal, x)) + "]" if isinstance(x, tuple) else repr(x)


def case(seed: int, index: int) -> Case:
    """Case number `index` of the attack `seed`."""
    kind = _WHEEL[index % len(_WHEEL)]
    rng = np.random.default_rng([seed, crc32(kind.encode()), index])
    modes, shares = list(MODES), np.array(list(MODES.values()), dtype=float)
    mode = modes[rng.choice(len(modes), p=shares / shares.sum())]
    return made(KINDS[kind][0](rng), mode, rng, seed, index, kind)


def made(start: Start, mode: str, rng: Rng, seed: int, index: int, kind: str) -> Case:
    """A start asked about in one mode; the generator draws what both leave open."""
    if any(isinstance(x, Fraction) for row in start.z for x in row):
        mode = "limit"
    z = [start.z]
    A = matrices(rng, len(start.z[0])) if start.A is UNDRAWN else start.A
    alpha = steps(rng) if start.alpha is UNDRAWN else start.alpha
    if mode in BATCHED:
        more = int(rng.integers(1, 4))
        kinds = rng.choice(list(KINDS), more).tolist() if mode == "mixed batch" else [kind] * more
        z += [_shaped(KINDS[other][0](rng).z, start.z) for other in kinds]
    return Case(
        seed=seed,
        index=index,
        kind=kind,
        mode=mode,
        z=tuple(z),
        A=A,
        alpha=alpha,
        layers=int(rng.integers(0, start.layers + 1)) if mode == "single" else start.layers,
        mask=tuple(_mask(rng, len(start.z), mode) for _ in z) if mode in MASKED else None,
        turn=int(rng.integers(1 << 30)),
    )


def _mask(rng: Rng, n: int, mode: str) -> tuple[bool, ...]:
    """Padding anywhere, or at the end only, as reviews have it. At least one token is real."""
    if mode == "review batch":
        length = int(rng.integers(1, n + 1))
        return tuple(i < length for i in range(n))
    real = rng.random(n) < 0.7
    real[rng.integers(n)] = True
    return tuple(map(bool, real))


def _shaped(z: Tokens, model: Tokens) -> Tokens:
    """Another start of the same kind, cut or repeated to the shape of the first."""
    n, d = len(model), len(model[0])
    rows = [tuple(float(row[c % len(row)]) for c in range(d)) for row in z]
    return tuple(rows[i % len(rows)] for i in range(n))


def _wheel() -> tuple[str, ...]:
    """The kinds in a fixed order that mixes them, each as often as its share."""
    slots = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
    return tuple(slots[i] for i in np.random.default_rng(0).permutation(len(slots)))


_WHEEL = _wheel()
