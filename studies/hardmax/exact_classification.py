"""A hardmax network that is built, not trained, and right on every sequence it was built for.

Feed-forward layers and attention with a form A = v v^T of rank one alternate: the first raise a
tent over a landmark, the second sends every token of a sequence to its highest one, so that the
sequence learns how far it is from the landmark (arXiv 2502.02270; docs/mathematics.md F1). See:
sequences become points whose heights differ wherever their labels do. How many blocks need
attention depends on how the sequences share their tokens; about one more for every change of label
along the heights reads the labels off, and a rule behind the labels hardly saves any of these.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.construction.network import Pull

TITLE = "Sequences classified exactly by hardmax layers"


@dataclass(frozen=True)
class Params:
    """Numbers of sequences, dimensions, longest length, words known, draws for each."""

    N: tuple[int, ...] = (4, 10, 30, 100, 250, 1000)
    d: tuple[int, ...] = (2, 8)
    longest: int = 20
    vocabulary: int = 60
    hardest: int = 30  # the largest N for sequences that miss one token each: N^3 exact steps
    draws: int = 1
    seed: int = 0


QUICK = Params(N=(4, 12, 30), d=(2,), longest=6, vocabulary=12, hardest=12, draws=1)


def _apart(p: Params, N: int, rng: np.random.Generator, d: int) -> list[np.ndarray]:
    return [rng.standard_normal((rng.integers(1, p.longest + 1), d)) for _ in range(N)]


def _words(p: Params, N: int, rng: np.random.Generator, d: int) -> list[np.ndarray]:
    known = rng.standard_normal((p.vocabulary, d))
    bags: dict[frozenset[int], np.ndarray] = {}
    while len(bags) < N:
        bag = rng.integers(0, p.vocabulary, rng.integers(1, p.longest + 1))
        bags.setdefault(frozenset(bag.tolist()), known[bag])
    return list(bags.values())


def _all_but_one(p: Params, N: int, rng: np.random.Generator, d: int) -> list[np.ndarray]:
    known = rng.standard_normal((N, d))
    return [np.delete(known, k, axis=0) for k in range(N)]


FAMILIES: dict[str, Callable[..., list[np.ndarray]]] = {
    "no shared token": _apart,
    "words of a vocabulary": _words,
    "all tokens but one": _all_but_one,
}


def _all_sizes(p: Params, N: int, rng: np.random.Generator, d: int) -> list[np.ndarray]:
    """Words whose lengths range from 1e-8 to 1e8: what the length of the weights depends on."""
    known = rng.standard_normal((p.vocabulary, d)) * 10 ** rng.uniform(-8, 8, (p.vocabulary, 1))
    return [known[rng.integers(0, p.vocabulary, rng.integers(2, p.longest + 1))] for _ in range(N)]


def _by_rule(sequences: list[np.ndarray], rng: np.random.Generator) -> list[bool]:
    """Is the mean of the first coordinate above the median of all sequences?"""
    means = [float(z[:, 0].mean()) for z in sequences]
    middle = float(np.median(means))
    return [m > middle for m in means]


def _at_random(sequences: list[np.ndarray], rng: np.random.Generator) -> list[bool]:
    return [bool(k % 2) for k in rng.permutation(len(sequences))]


LABELS: dict[str, Callable[..., list[bool]]] = {"by a rule": _by_rule, "random": _at_random}


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Networks for every family, kind of labels, dimension and number of sequences."""
    sensible = min(*p.N, p.hardest) >= 2 and min(*p.d, p.longest, p.draws) >= 1
    st.require(sensible and p.vocabulary >= 4, "N >= 2, d, longest, draws >= 1, vocabulary >= 4", p)
    axes = {"sequences": tuple(FAMILIES), "labels": tuple(LABELS), "d": p.d, "N": p.N}
    cells = st.over_grid(_networks, p, axes, st.part(progress, 0, 0.95))
    built = [network for cell in cells for network in cell]
    wide = st.kept(_built, p, "words of all lengths", "random", p.d[0], p.hardest, 0)
    columns = st.columns(
        "sequences = family, labels, d, N, blocks, with attention = attentions, parameters, "
        "bits of the longest weight = bits, wrong, wrong if averaged = averaged"
    )
    note = "One row per network; wrong: sequences of N that get another label than their own."
    return st.report_of(
        p,
        _summary(p, built),
        controls=_controls(p, built, wide),
        tables=[st.Table.of("Networks built", [*built, wide], columns, note)],
        checks={"every network": _checks([*built, wide])},
        figures=[st.Picture.of("Sequences become points", _way, p)],
    )


def _networks(p: Params, family: str, labels: str, d: int, N: int) -> list[st.Cell]:
    if family == "all tokens but one" and p.hardest < N:
        return []
    return [_built(p, family, labels, d, N, draw) for draw in range(p.draws)]


def _built(p: Params, family: str, labels: str, d: int, N: int, draw: int) -> st.Cell:
    """One network and what it does to the sequences it was built for."""
    rng = np.random.default_rng([p.seed, d, N, draw])
    sequences = FAMILIES.get(family, _all_sizes)(p, N, rng, d)
    named = LABELS[labels](sequences, rng)
    network = cy.construction.construct_classifier(sequences, named)
    # The same layers with v = 0: all scores are equal, and every token follows all of them.
    layers = [replace(x, v=0 * x.v) if isinstance(x, Pull) else x for x in network.layers]
    mean = replace(network, layers=tuple(layers))
    return st.Cell(
        **{"family": family, "labels": labels, "d": d, "N": N},
        **{x: getattr(network, x) for x in ("attentions", "blocks", "parameters", "bits")},
        wrong=len(network.verify()),
        averaged=len(mean.verify()),  # wrong when every attention takes the mean of the sequence
    )


def _forgets(layer: Any) -> bool:
    """Is this the first layer of the readout, the only one of two neurons that reads x?"""
    W1 = layer.arrays[0]
    return layer.kind == "feed-forward" and len(W1) == 2 and bool(W1[0, 0])


def _checks(built: list[st.Cell]) -> list[cy.theorems.Check]:
    F1 = "docs/mathematics.md F1"
    right = sum(b.wrong == 0 for b in built)
    within = sum(
        b.attentions <= b.N - 1
        and b.blocks <= 2 * b.N - 1
        and b.parameters <= 2 * b.d + 35 * b.N - 21
        for b in built
    )
    said = "at most N - 1 blocks with attention, 2 N - 1 in all, 2 d + 35 N - 21 parameters"
    return [
        st.all_of("exact", F1, "every sequence gets its label, in rationals", right, len(built)),
        st.all_of("bounds", F1, said, within, len(built)),
    ]


def _controls(p: Params, built: list[st.Cell], wide: st.Cell) -> list[st.Comparison]:
    useful = [b for b in built if b.attentions]
    wrong, total = sum(b.averaged for b in useful), sum(b.N for b in useful)
    common, longest = max(N for N in p.N if p.hardest >= N), max(b.bits for b in built)
    cells = st.grouped(built, "labels", "family", "N")

    def mean(kind: str, name: str) -> float:
        return float(np.mean([b.attentions for b in cells[kind, name, common]]))

    shares = {kind: [mean(kind, name) for name in FAMILIES] for kind in LABELS}
    told = "; ".join(f"{x}: {a:.3g} and {b:.3g}" for x, a, b in zip(FAMILIES, *shares.values()))
    return [
        st.Comparison(
            "Taking the highest token is what the network classifies by.",
            "the same layers with the mean of the sequence instead (v = 0)",
            f"{wrong} of {total} sequences wrong",
            survives=wrong > total / 10,
        ),
        st.Comparison(
            "How sequences share their tokens decides how many blocks need attention.",
            "labels by a rule, and random labels on the same sequences",
            f"blocks with attention for N = {common}, by a rule and random: {told}",
            survives=all(seen == sorted(seen) and seen[0] < seen[-1] for seen in shares.values()),
        ),
        st.Comparison(
            "How long the weights are depends on the range of the tokens.",
            "words whose lengths range from 1e-8 to 1e8",
            f"at most {longest} bits in every network for Gaussian tokens; {wide.bits} for "
            f"{wide.N} sequences of words of all lengths",
            wide.bits > max(b.bits for b in built if b.N <= wide.N),
        ),
    ]


def _summary(p: Params, built: list[st.Cell]) -> str:
    largest, families = max(b.N for b in built), st.grouped(built, "family")
    words = [b for b in families["words of a vocabulary"] if largest == b.N]
    right, bits = sum(b.N - b.wrong for b in built), max(b.bits for b in words)
    most = {name: max(b.attentions for b in of) for name, of in families.items()}

    return (
        f"{len(built)} networks, {right} of {sum(b.N for b in built)} sequences right in exact "
        f"arithmetic. For N = {largest} sequences of up to {p.longest} words of {p.vocabulary}, "
        f"up to {max(b.attentions for b in words)} of up to {max(b.blocks for b in words)} blocks "
        f"have attention, with up to {max(b.parameters for b in words)} parameters of at most "
        f"{bits} bits. Where no token is shared, at "
        f"most {most['no shared token']} of the blocks have attention; where each sequence lacks "
        f"one of {p.hardest} tokens or fewer, up to {most['all tokens but one']}."
    )


def _way(p: Params) -> Any:
    """Six sequences of words out of six, each with a colour, two classes (filled and open), drawn a
    little apart where they share a token. The words; then, over the line x of a generic direction,
    for each block tents raised over its landmark (dotted) and every token sent up to the highest of
    its sequence; after the last attention a sequence is a point, with a height that none of the
    other class has; the readout moves it to x = 0 or x = 1.
    """
    words = np.array([[0, 0], [1, 2], [3, 1], [2, 3], [4, 4], [5, 0]])
    bags = [[0, 1], [0, 1, 2], [2, 4], [2, 3, 4], [0, 5], [0, 1, 2, 5]]
    sequences, named = [words[bag] for bag in bags], [0, 1, 0, 1, 0, 1]
    network = cy.construction.construct_classifier(sequences, named)
    ways = [network.run(z).as_floats() for z in sequences]
    start = next(k for k, x in enumerate(network.layers) if _forgets(x))
    shown = [0, *range(2, start + 1), len(network.layers)]
    titles = {0: "tokens given", len(network.layers): "readout"}
    for k in range(2, start + 1):
        titles[k] = f"block {k // 2}: " + ("tents" if k % 2 == 0 else "attention")
    columns = 3
    rows = -(-len(shown) // columns)
    figure, axes = cy.plot.sheet(rows, columns, 3.9, 3.1)
    for ax, k in zip(axes.flat, shown):
        for s, way in enumerate(ways):
            z, colour = way[k], cy.plot.PALETTE[s % len(cy.plot.PALETTE)]
            apart = (s - 2.5) * (0.1 if k == 0 else 0.35 if k < start else 0.0)
            fill = colour if named[s] else "white"
            ax.plot(z[:, 0] + apart, z[:, 1], "o", color=colour, ms=6, mfc=fill, mew=1.5)
        if 2 <= k <= start:
            t = -float(network.layers[2 * (k // 2) - 1].arrays[1][1])
            ax.axvline(t, ls=":", color=cy.plot.GREY)
        ax.set(title=titles[k], xlabel="$z_1$" if k == 0 else "$x$")
        ax.set(ylabel="$z_2$" if k == 0 else "$c$")
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    return figure
