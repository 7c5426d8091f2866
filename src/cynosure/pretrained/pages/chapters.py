"""Chapters of a report on a transformer: tokens and attention of a text, heads of the model.

With pictures=False a chapter holds its tables only, which takes much less time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ...drawing.report import Picture, Report, Table
from ...simulation.trajectory import Trajectory
from ..heads.facts import facts, hypothesis_counts
from ..heads.head import Head
from ..reading.traces import (
    BINS,
    EPSILON,
    NEAR,
    Trace,
    attention_table,
    leaders_by_layer,
    sentence_table,
)
from ..reading.transformer import Transformer

_ONE_THREAD = threadpool_limits.wrap(limits=1, user_api="blas")  # many small factorisations
OFFSETS = (0, -1, -2, -4, -8, -16, -64)  # at which the form of a rotary head is shown
OUTLIER = 5.0  # a token this many times longer than the median one would hide the others

# What is said of a head first, under the name a reader sees; the rest are its distances.
SPECTRUM = {
    "head": "head", "rank_A": "rank A", "positive": "A+Aᵀ: positive", "negative": "negative",
    "zero": "zero", "smallest_symmetric": "smallest", "largest_symmetric": "largest",
    "distance: A symmetric": "antisymmetric share", "beta": "β = |A|", "trace_A": "trace A",
    "bias": "bias", "rank_V": "rank V", "radius_V": "radius V", "V_positive": "V: Re > 0",
    "V_negative": "Re < 0", "V_complex": "complex", "trace_V": "trace V", "leading": "leading l1",
    "gap": "gap 1 - |l2|/l1", "form": "⟨Qf, Kf⟩", "holds: good triple": "good triple",
}  # fmt: skip
ATTENTION = {
    "head": "head", "argmax_mass": "mass on the argmax", "sink_word": "sink",
    "sink_mass": "mass on the sink", "leaders": "leaders", "followed": "followed",
    "epsilon_rank": "ε-rank of P",
}  # fmt: skip


def chosen_heads(m: Transformer, layer: int, head: int | None) -> tuple[Head, ...]:
    """The heads of a layer, or the one asked for."""
    heads = m.heads(layer)
    if head is None:
        return heads
    if not 0 <= head < m.width:
        raise ValueError(f"head: {m.name} has heads 0 to {m.width - 1}, got {head}")
    return (heads[head],)


def table_of(
    title: str, rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], note: str = ""
) -> Table:
    """The entries of `rows` named in `names`, under the names given there."""
    body = tuple(tuple(row[key] for key in names) for row in rows)
    return Table(title, tuple(names.values()), body, note)


# --- tokens --------------------------------------------------------------------------------------


@_ONE_THREAD
def tokens_chapter(trace: Trace, *, pictures: bool = True) -> Report:
    """Where the tokens go: paths, cosines, clusters by layer."""
    rows = sentence_table(trace)
    first, last = rows[0], rows[-1]
    n = trace.z.shape[1]
    summary = (
        f"Over {last['layer']} layers the mean cosine of two of the {n} tokens goes from "
        f"{_number(first['mean_cosine'])} to {_number(last['mean_cosine'])}, and the clusters at "
        f"tolerance {NEAR:g} from {first['clusters']} to {last['clusters']}. {_gathering(rows)}"
    )
    names = {
        "layer": "layer", "length": "root-mean-square length", "mean_cosine": "mean cosine",
        "clusters": f"clusters at {NEAR:g}", "energy": "energy",
    }  # fmt: skip
    layers = [f"layer {row['layer']}" for row in rows]
    counts = zip(first["tolerances"], *(row["cluster_counts"] for row in rows), strict=True)
    unit = "Tolerances in units of the root-mean-square token length of the layer."
    curve = Table("Clusters by tolerance", ("tolerance", *layers), tuple(counts), unit)
    edges = BINS.round(2).tolist()
    pairs = zip(edges[:-1], edges[1:], *(row["cosine_histogram"] for row in rows), strict=True)
    histogram = Table("Pairwise cosines by layer", ("from", "to", *layers), tuple(pairs))
    tables = (table_of("Tokens by layer", rows, names), curve, histogram)
    figures = _token_figures(trace, rows) if pictures else ()
    movies = (_movie(trace),) if pictures else ()
    return Report("Tokens by layer", summary, tables=tables, figures=figures, movies=movies)


def _gathering(rows: Sequence[Mapping[str, Any]]) -> str:
    """The layers that lower the energy, and the longest stretch with one number of clusters."""
    fell = [b["layer"] - 1 for a, b in pairwise(rows) if b["energy"] < a["energy"]]
    stretches = [[k["layer"] for k in same] for _, same in groupby(rows, lambda k: k["clusters"])]
    longest = max(stretches, key=len)
    count = rows[longest[0] - rows[0]["layer"]]["clusters"]
    which = ", ".join(map(str, fell))
    return (
        "The energy of the directions, which the idealised flow never lowers, goes from "
        f"{rows[0]['energy']:.2f} to {rows[-1]['energy']:.2f}"
        + (f" and is lowered by layer {which}" if fell else " and no layer lowers it")
        + f". The longest plateau is {count} clusters from layer {longest[0]} to {longest[-1]}."
    )


def visible(trajectory: Trajectory) -> tuple[Trajectory, str]:
    """The trajectory to draw: directions only, where one token is far longer than the rest."""
    z = trajectory.values.astype(np.float64)
    length = np.linalg.norm(z, axis=-1)
    middle = float(np.median(length))
    if middle == 0 or length.max() <= OUTLIER * middle:
        return trajectory, ""
    unit = z / np.where(length > 0, length, 1)[..., None]
    said = (
        f" Some tokens are over {OUTLIER:g} times longer than the median one and would hide the "
        "others: directions z/|z| are drawn."
    )
    return replace(trajectory, z=unit), said


def _token_figures(trace: Trace, rows: Sequence[Mapping[str, Any]]) -> tuple[Picture, ...]:
    from .pictures import cosine_map, staircases, word_paths

    shown, said = visible(trace.trajectory)
    ax, left = word_paths(shown, None, *_patch_colours(trace))
    lost = f" {left} words found no place." if left else ""
    word = "its word" if trace.grid is None else "the colour of its patch"
    caption = (
        "One projection, the principal directions of all layers together. A circle is where a "
        f"token enters layer 0, a dot with {word} where it ends.{said}{lost}"
    )
    steps = (
        "Tokens are in one cluster when steps of at most the tolerance join them; dotted: the "
        "tolerance of the table. A long flat piece is a number of clusters to believe in."
    )
    pairs, mean = "Cosines of pairs of tokens", "Histogram by layer, and the mean."
    return (
        Picture("Paths of the tokens", caption, ax.figure),
        Picture(pairs, mean, cosine_map(rows, BINS)),
        Picture("Clusters by tolerance", steps, staircases(rows, NEAR)),
    )


def _patch_colours(trace: Trace) -> tuple[tuple[str, ...] | None, np.ndarray | None]:
    """Of a picture: names of the special tokens alone, and the mean colour of every patch."""
    grid, picture = trace.grid, trace.picture
    if grid is None or picture is None:
        return None, None
    high, wide = (size // parts for size, parts in zip(picture.shape, (grid.rows, grid.columns)))
    whole = picture[: high * grid.rows, : wide * grid.columns]
    means = whole.reshape(grid.rows, high, grid.columns, wide, 3).mean(axis=(1, 3)).reshape(-1, 3)
    white = np.ones((len(grid.special), 3))
    names = (*grid.special, *("",) * len(means))
    return names, np.concatenate([white, means])


def _movie(trace: Trace) -> Picture:
    from ...drawing.movie import gif

    shown, said = visible(trace.trajectory)
    tween = int(np.clip(48 // (len(shown) - 1), 1, 4))
    caption = f"Layers 0 to {shown.t[-1]} in the same projection, straight lines in between.{said}"
    return Picture("The layers as a movie", caption, gif(shown, tween=tween))


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:.2f}"


# --- attention -----------------------------------------------------------------------------------


def attention_chapter(trace: Trace, *, pictures: bool = True) -> Report:
    """Who is looked at: hardmax-likeness, sinks, leaders, ε-rank of every head."""
    rows = attention_table(trace)
    n = trace.z.shape[1]
    words = trace.words or tuple(str(i) for i in range(n))
    likeness = [row["argmax_mass"] for row in rows]
    best = rows[int(np.argmax(likeness))]
    sinks = Counter(row["sink"] for row in rows)
    sink, times = sinks.most_common(1)[0]
    summary = (
        f"The most hardmax-like head is {best['head']}: its largest weights average "
        f"{best['argmax_mass']:.2f} (1 is hardmax, {1 / n:.2f} uniform; the median head has "
        f"{np.median(likeness):.2f}). In {times} of {len(rows)} heads the most attended token is "
        f"{words[sink]!r} (token {sink})."
    )
    by_token = {"layer": "layer", "token": "token", "word": "word", "leads": "leads in heads",
                "followed": "followed in heads", "sink": "sink of heads"}  # fmt: skip

    def named(row: Mapping[str, Any], key: str) -> dict[str, str]:
        return {key: ", ".join(words[i] for i in row[key])}

    shown = [
        {**row, **named(row, "leaders"), **named(row, "followed"), "sink_word": words[row["sink"]]}
        for row in rows
    ]
    note = (
        "Sink: the token that receives most of the attention. A leader's own largest weight is on "
        "itself alone; followed: somebody's largest weight is there. ε-rank: singular values of P "
        f"above {EPSILON:g} times the largest."
    )
    tables = (
        table_of("Attention by layer and head", shown, ATTENTION, note),
        table_of("Leaders and sinks by layer", leaders_by_layer(trace), by_token),
    )
    figures = _attention_figures(trace, rows, words) if pictures else ()
    return Report("Attention by layer and head", summary, {}, tables, {}, figures)


def _attention_figures(
    trace: Trace, rows: Sequence[Mapping[str, Any]], words: Sequence[str]
) -> tuple[Picture, ...]:
    from .pictures import MOST_TOKENS, head_maps, token_map

    layers, heads, n, _ = trace.attentions.shape

    def of(value: Any) -> np.ndarray:
        return np.array([value(row) for row in rows]).reshape(layers, heads)

    maps = {
        r"hardmax-likeness: mean of $\max_j P_{ij}$": of(lambda r: r["argmax_mass"]),
        "share of the attention on the sink": of(lambda r: r["sink_mass"]),
        f"ε-rank of P, n = {n}": of(lambda r: r["epsilon_rank"]),
        "number of leaders": of(lambda r: len(r["leaders"])),
    }
    limits = dict(zip(maps, ((0, 1), (0, 1), (1, n))))
    received = trace.attentions.astype(np.float64).mean(axis=(1, 2))
    likeness = "Hardmax-likeness 1 means that every token looks at one token only."
    mean = "Mean over all heads and all tokens that look; 1/n would be uniform."
    if n > MOST_TOKENS:
        mean += f" The {MOST_TOKENS} tokens of {n} that receive most."
    of_token = token_map(received, words, "share of the attention a token receives")
    return (
        Picture("Attention by layer and head", likeness, head_maps(maps, range(layers), limits)),
        Picture("Attention received", mean, of_token),
    )


# --- heads ---------------------------------------------------------------------------------------


@_ONE_THREAD
def heads_chapter(
    transformer: Transformer,
    *,
    layer: int | None = None,
    head: int | None = None,
    pictures: bool = True,
) -> Report:
    """A and V of every head: spectra, and the distance to each hypothesis of the theorems.

    With `layer` and `head` the spectra of that head are drawn, and listed in a table.
    """
    heads = [h for k in transformer.distinct_layers for h in transformer.heads(k)]
    rows, counts = [facts(h) for h in heads], hypothesis_counts(heads)
    held = [f"{row['hypothesis']} ({row['satisfied']})" for row in counts if row["satisfied"]]
    summary = (
        f"Hypotheses of the theorems that some of the {len(heads)} heads satisfy, and in how many "
        f"heads: {', '.join(held) or 'none'}. All others hold in no head; the table has the "
        "distances."
    )
    distances = {key: key.removeprefix("distance: ") for key in rows[0] if "distance:" in key}
    tables = [
        table_of(
            "Hypotheses of the theorems",
            counts,
            {"hypothesis": "hypothesis", "satisfied": "heads that satisfy it", "heads": "of",
             "median_distance": "median distance", "nearest": "nearest head",
             "nearest_distance": "its distance", "reference": "asked by"},
            "Relative distances: 0 holds, 1 is as far as can be. Biases are left out.",
        ),
        table_of("Spectra of the heads", rows, SPECTRUM, _BIAS),
        table_of("Distances of the heads", rows, {"head": "head", **distances}),
    ]  # fmt: skip
    figures: list[Picture] = []
    if pictures:
        figures.append(_head_figure(transformer, rows))
    if layer is not None and head is not None:
        (one,) = chosen_heads(transformer, layer, head)
        tables += [_spectrum_table(one), *([] if one.rotary is None else [_offset_table(one)])]
        if pictures:
            figures.append(_spectra_figure(one))
    return Report("Heads", summary, {}, tuple(tables), {}, tuple(figures))


_BIAS = (
    "A = KᵀQ/√d_k gives the scores ⟨A x_i, x_j⟩, V = W_O W_V what a head adds; f is the leading "
    "eigenvector of V. Bias: |Kᵀb_Q|/|A|, how strongly targets are preferred whoever looks."
)


def _head_figure(m: Transformer, rows: Sequence[Mapping[str, Any]]) -> Picture:
    from .pictures import head_maps

    def of(key: str) -> np.ndarray:
        return np.array([row[key] for row in rows]).reshape(-1, m.width)

    maps = {
        "antisymmetric share |A - Aᵀ| / 2|A|": of("distance: A symmetric"),
        "distance from a good triple": of("distance: good triple"),
        "negative share of (A + Aᵀ)/2": of("distance: A + Aᵀ positive definite"),
        "β = |A|": of("beta"),
        "rank of A": of("rank_A"),
        "inertia of A + Aᵀ: positive minus negative": of("positive") - of("negative"),
        "trace of V": of("trace_V"),
        "bias |Kᵀb_Q| / |A|": of("bias"),
    }
    varied = {name: values for name, values in maps.items() if np.ptp(values) > 0} or maps
    same = [f"{name} = {x.flat[0]:g}" for name, x in maps.items() if name not in varied]
    caption = "Share and distance 0 are what the theorems ask for."
    if same:
        caption += f" The same in every head: {'; '.join(same)}."
    limits = dict.fromkeys(list(maps)[:3], (0, 1))
    figure = head_maps(varied, m.distinct_layers, limits)
    return Picture("A and V by layer and head", caption, figure)


def _spectrum_table(head: Head) -> Table:
    lists = {
        "A": head.A_eigenvalues,
        "V": head.V_eigenvalues,
        "(A + Aᵀ)/2": head.symmetric_eigenvalues[head.symmetric_eigenvalues != 0][::-1],
    }
    rows = tuple(
        (name, i, float(value.real), float(value.imag))
        for name, values in lists.items()
        for i, value in enumerate(values)
    )
    columns = ("matrix", "number", "real part", "imaginary part")
    return Table(f"Eigenvalues of {head.name}", columns, rows, "Structural zeros are left out.")


def _offset_table(head: Head) -> Table:
    """The head's forms: what tokens that far apart see each other with."""
    rows = []
    for offset in OFFSETS if head.causal else (*OFFSETS, *(-x for x in OFFSETS[1:])):
        row = facts(head.at(offset))
        share = float(np.linalg.norm(head.form(offset) - head.A) / (np.linalg.norm(head.A) or 1.0))
        rows.append({"offset": offset, "turned": share, **row})
    names = {
        "offset": "offset j - i", "turned": "|A_offset - A| / |A|",
        "distance: A symmetric": "antisymmetric share", "trace_A": "trace",
        "largest_symmetric": "largest of (A+Aᵀ)/2", "form": "⟨Qf, Kf⟩",
    }  # fmt: skip
    note = "Rotary positions: the score of tokens i and j is ⟨A_{j-i} x_i, x_j⟩; A is that of 0."
    return table_of(f"Forms of {head.name} by offset", rows, names, note)


def _spectra_figure(head: Head) -> Picture:
    from .pictures import spectra

    lead, said = head.leading, "V has no real positive eigenvalue."
    if lead is not None:
        said = (
            f"The star is the leading real positive eigenvalue of V, {lead.value:.3g}; gap "
            f"{lead.gap:.3g}, ⟨Qf, Kf⟩ = {lead.form:.3g}."
        )
    good = "a good triple" if facts(head)["holds: good triple"] else "no good triple"
    caption = f"Structural zeros are left out on the left. {said} The head is {good}."
    return Picture(f"Spectra of {head.name}", caption, spectra(head))
