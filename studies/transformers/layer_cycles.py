"""One whole layer of a trained model repeated: where it comes to rest, and which part moves it.

The theory repeats one attention layer and sees tokens come to rest (arXiv 2305.05465). A trained
layer has a feed-forward part and a norm as well, and ALBERT does repeat one layer. Here it is
repeated far beyond its depth, from several texts at once. See the curves: how near the state comes
to where it was p layers before. A dip to 0 at p = 5, 10, ... is a cycle of period 5; a dip that
ends above 0 is a motion that almost comes back.

Each part is left out in turn: heads, feed-forward part, norm. Beside them stand heads that look at
all tokens alike, the words in another order, Gaussian tokens, the same matrices with their entries
in random places, and the weights that training starts from.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.examples import ONE_THREAD, RANDOM
from cynosure.pretrained.reading.weights import untrained
from cynosure.simulation.cycles import cycle_of

from ._models import TEXTS, Measured, models_of, side_by_side, starts_of

TITLE = "A whole layer repeated: rest, cycles, and which part makes them"
LAST = 64  # layers at the end that are looked at, more than three of the longest periods shown
LAGS = 12
STILL = 1e-3  # relative change over one layer below which a run counts as at rest
NEARLY = 0.5  # the share of the distance at lag 1 below which a state almost returns
WHOLE = "whole layer"
QUERIES = ("query", "q_proj")  # names of what makes W_Q, and with it the scores


@dataclass(frozen=True)
class Params:
    """`model`: folders or hub ids with commas; empty: MiniLM, else random weights. Of each text the
    first `tokens` tokens are read, of `texts` texts; a layer of the model is repeated `times`
    times, at most `layers` of them, spread over its depth. `seeds` untrained and scrambled copies
    stand beside it."""

    model: str = ""
    texts: int = 8
    tokens: int = 12
    times: int = 600
    seeds: int = 1
    layers: int = 2
    seed: int = 0


QUICK = Params(texts=2, tokens=6, times=70, seeds=1, layers=1)


class Ended(NamedTuple):
    """How one text ends in one variant: `distances[p - 1]` is |u_n - u_{n-p}| / |u_n|, u_n the
    directions of the tokens; `period` 0 at rest, None where no cycle was found."""

    layer: int
    variant: str
    text: int
    period: int | None
    distances: np.ndarray
    clusters: int

    @property
    def end(self) -> str:
        if self.period is not None:
            return f"period {self.period}" if self.period else "rest"
        lag = 1 + int(self.distances.argmin())
        back = lag > 1 and self.distances.min() < NEARLY * self.distances[0]
        return f"almost {lag}" if back else "moving"


@ONE_THREAD
def run(p: Params, progress: cy.study.Progress | None = None) -> cy.study.Report:
    """Every layer of every model, whole, without each of its parts, and beside its null models."""
    say = progress or cy.study.silent
    sensible = 1 <= p.texts <= len(TEXTS) and min(p.tokens, p.seeds, p.layers) >= 1
    said = f"1 <= texts <= {len(TEXTS)}, tokens, seeds, layers >= 1, times > {LAST}"
    cy.study.require(sensible and p.times > LAST, said, p)
    say(0.0, "models")
    models = models_of(p.model, " ".join(TEXTS[: p.texts]), "albert")
    return side_by_side(p, models, lambda m, tell: _measured(p, m, tell), say, _curves)


def _measured(p: Params, m: cy.pretrained.Transformer, say: cy.study.Progress) -> Measured:
    own = m.distinct_layers
    layers = [own[k] for k in np.unique(np.linspace(0, len(own) - 1, p.layers).round().astype(int))]
    ends: list[Ended] = []
    for k, layer in enumerate(layers):
        ends += _ends(p, m, layer, cy.study.part(say, k / len(layers), 1.0))
    moving = {layer: _moves(_of(ends, WHOLE, layer)) for layer in layers}
    layer, resting = max(moving, key=lambda k: (moving[k], -k)), [*moving.values()].count(0)
    shown = [e for e in ends if e.layer == layer]
    said = "; ".join(f"{name} {_counted(_of(shown, name))}" for name in _variants(shown))
    summary = (
        f"{m.name}: a whole layer repeated {p.times} times from {p.texts} texts of {p.tokens} "
        f"tokens comes to rest in {resting} of {len(layers)} layers. Layer {layer}, texts by how "
        f"they end: {said}."
    )
    facts = {
        "layers": len(layers),
        "layers that rest": resting,
        "layer shown": layer,
        "clusters": _ends_of(_of(shown, WHOLE)),
        "in untrained and scrambled": _ends_of(_null(shown)),
        **{name: _counted(_of(shown, name)) for name in _variants(shown)},
    }
    tables, figures = [_table(ends)], [_curves([m.name], [shown])]
    report = cy.study.report_of(
        p, summary, controls=_controls(shown), tables=tables, figures=figures
    )
    return Measured(report, facts, shown)


# --- runs ----------------------------------------------------------------------------------------


def _ends(
    p: Params, m: cy.pretrained.Transformer, layer: int, say: cy.study.Progress
) -> list[Ended]:
    """The layer in every variant from every text."""
    draw = np.random.default_rng([p.seed, layer])
    z = starts_of(m, TEXTS[: p.texts], layer, p.tokens)
    mixed = starts_of(m, TEXTS[: p.texts], layer, p.tokens, draw)
    noise = np.stack([cy.configurations.like(x, seed=draw) for x in z])
    even = replace(m, model=deepcopy(m.model))
    for name, weight in even.model.named_parameters():
        if any(part in name for part in QUERIES):
            weight.data.zero_()
    variants: dict[str, tuple[cy.pretrained.Transformer, np.ndarray, dict[str, Any]]] = {
        WHOLE: (m, z, {}),
        "no heads": (m, z, {"head": ()}),
        "no feed-forward": (m, z, {"parts": "attention"}),
        "no norm": (m, z, {"norm": False}),
        "uniform attention": (even, z, {}),
        "another order": (m, mixed, {}),
        "Gaussian tokens": (m, noise, {}),
    }
    for k in range(p.seeds):
        variants[f"scrambled {k + 1}"] = (scrambled(m, p.seed + k), z, {})
        if RANDOM not in m.name:
            variants[f"untrained {k + 1}"] = (untrained(m, p.seed + k), z, {})
    out = []
    for name, (model, start, options) in variants.items():
        say(0.0, f"layer {layer}, {name}")
        out += ends_of(model, start, layer, p.times, name, **options)
    return out


def scrambled(m: cy.pretrained.Transformer, seed: int) -> cy.pretrained.Transformer:
    """The model with the entries of each of its matrices in random places: norms stay the same."""
    draw, model = np.random.default_rng(seed), deepcopy(m.model)
    for weight in model.parameters():
        if weight.dim() == 2:
            order = draw.permutation(weight.numel())
            weight.data = weight.data.flatten()[order].reshape(weight.shape)
    return replace(m, model=model, name=f"{m.name}, scrambled")


def ends_of(
    m: cy.pretrained.Transformer,
    z: np.ndarray,
    layer: int,
    times: int,
    variant: str,
    parts: Literal["block", "attention"] = "block",
    **options: Any,
) -> list[Ended]:
    """How each of the starts z (texts, n, d) ends; only the last states are kept."""
    first = times - LAST
    early = m.iterate(z, layer, first, parts=parts, save_every=first, **options)
    late = m.iterate(early.z[-1], layer, LAST, parts=parts, **options)
    states = late.values.astype(np.float64)
    if "overflow" in (early.status.code, late.status.code):
        far = np.full(LAGS, np.nan)
        return [Ended(layer, variant, k, None, far, 0) for k in range(len(z))]
    unit = states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-300)
    out = []
    for k, u in enumerate(unit.swapaxes(0, 1)):
        away = np.array([np.linalg.norm(u[-1] - u[-1 - p]) for p in range(1, LAGS + 1)])
        away /= np.linalg.norm(u[-1])
        found = cycle_of(u, times)
        period = 0 if away[0] < STILL else None if found is None else found.period
        out.append(Ended(layer, variant, k, period, away, cy.clusters(u[-1], 0.01).count))
    return out


# --- what is said --------------------------------------------------------------------------------


def _of(ends: list[Ended], variant: str, layer: int | None = None) -> list[Ended]:
    return [e for e in ends if e.variant == variant and layer in (None, e.layer)]


def _null(ends: list[Ended]) -> list[Ended]:
    return [e for e in ends if e.variant.startswith(("scrambled", "untrained"))]


def _variants(ends: list[Ended]) -> list[str]:
    return list(dict.fromkeys(e.variant for e in ends))


def _counted(ends: list[Ended]) -> str:
    """ "period 5 ×3, rest ×1", the most frequent first."""
    if all(np.isnan(e.distances).all() for e in ends):
        return "overflow"
    kinds = [e.end for e in ends]
    names = sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))
    return ", ".join(f"{name} ×{kinds.count(name)}" for name in names)


def _ends_of(ends: list[Ended]) -> str:
    """Clusters, fewest to most."""
    return f"{min(e.clusters for e in ends)} to {max(e.clusters for e in ends)}"


def _moves(ends: list[Ended]) -> int:
    return sum(e.period != 0 for e in ends)


def _controls(ends: list[Ended]) -> list[cy.study.Comparison]:
    whole, n = _of(ends, WHOLE), len(_of(ends, WHOLE))
    out = []
    for part, variant in (("heads", "no heads"), ("feed-forward part", "no feed-forward")):
        rest = _of(ends, variant)
        out.append(
            cy.study.Comparison(
                f"Without its {part} the layer comes to rest.",
                "the whole layer, same texts",
                f"texts still moving: whole layer {cy.study.counted(_moves(whole), n)}; {variant} "
                f"{cy.study.counted(_moves(rest), n)}: {_counted(rest)}",
                _moves(rest) == 0 < _moves(whole),
            )
        )
    for claim, others in (
        ("The way it ends is that of the text.", ("another order", "Gaussian tokens")),
        ("It takes heads that choose whom to look at.", ("uniform attention",)),
    ):
        seen = "; ".join(f"{name}: {_counted(_of(ends, name))}" for name in (WHOLE, *others))
        same = [_counted(_of(ends, name)) == _counted(whole) for name in others]
        out.append(cy.study.Comparison(claim, ", ".join(others), seen, not any(same)))
    null = _null(ends)
    still = cy.study.wilson(_moves(null), len(null))[1] < cy.study.wilson(_moves(whole), n)[0]
    beside = "the same matrices with their entries in random places, and untrained weights"
    return [
        *out,
        cy.study.Comparison(
            "Trained, the layer keeps tokens apart for all this time.",
            beside,
            f"clusters of tokens at the end, fewest to most: trained {_ends_of(whole)}, null "
            f"models {_ends_of(null)}",
            min(e.clusters for e in whole) > max(e.clusters for e in null),
        ),
        cy.study.Comparison(
            "That the layer does not come to rest is the work of training.",
            beside,
            f"still moving: trained {cy.study.counted(_moves(whole), n)}; "
            + "; ".join(f"{name} {_counted(_of(null, name))}" for name in _variants(null)),
            still,
        ),
    ]


def _table(ends: list[Ended]) -> cy.study.Table:
    def known(x: float) -> float | None:
        return None if np.isnan(x) else float(x)

    columns: dict[str, Any] = cy.study.columns("layer, variant, text, ends = end")
    columns |= {"one layer moves it": lambda e: known(e.distances[0])}
    columns |= {"nearest to where it was": lambda e: known(e.distances.min())}
    columns |= {"layers before": lambda e: 1 + int(e.distances.argmin()), "clusters": "clusters"}
    note = (
        "Of the directions of the tokens, relative distances after the last layer. Rest: one layer "
        f"moves them by less than {STILL:g}. Almost p: nearest p layers before, less than half as "
        "far as after one layer, and no cycle."
    )
    return cy.study.Table.of("How each text ends", ends, columns, note)


def _curves(names: list[str], drawn: list[list[Ended]]) -> cy.study.Picture:
    """Distance by lag, a panel for each model, a line for each variant."""
    figure, axes = cy.plot.sheet(1, len(names), 4.8, 3.9)
    lags = np.arange(1, LAGS + 1)
    for ax, name, ends in zip(axes[0], names, drawn):
        for variant, colour in zip(_variants(ends)[:5], (*cy.plot.PALETTE, "0.5")):
            away = np.array([e.distances for e in _of(ends, variant)])
            wide = {"lw": 2.2, "zorder": 4} if variant == WHOLE else {"lw": 1.2}
            if not np.isnan(away).any():
                middle = np.median(away, axis=0)
                ax.plot(lags, middle, "o-", ms=3, color=colour, label=variant, **wide)
        middle = np.median([e.distances for e in _null(ends)], axis=0)
        ax.plot(lags, middle, "--", color="0.6", label="scrambled, untrained")
        ax.set(xlabel="layers before the last", yscale="log", ylim=(1e-8, 3))
        ax.set_title(f"{name}, layer {ends[0].layer}", fontsize=cy.plot.TITLE, loc="left")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel("distance to the last state")
    cy.plot.legend_below(axes[0, 0])
    caption = (
        "How far the last state is from those before it, median over the texts. A line at the "
        "bottom is at rest; one that touches it at 2, 4, ... or 5, 10, ... is a cycle of that "
        "period. Variants that leave the floats are not drawn."
    )
    return cy.study.Picture("Where a repeated layer was before", caption, figure)
