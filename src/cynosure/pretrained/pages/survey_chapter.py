"""Chapter of a report: sinks, leaders and gathering of a text, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...drawing.report import Picture, Report
from ..reading.surveys import Survey
from .chapters import table_of

COLUMNS = {
    "layer": "layer", "first_mass": "on the first token", "follow_first": "follow it",
    "first_leads": "it leads", "sink_mass": "on the sink", "leaders": "leaders per head",
    "evenness": "evenness", "entropy": "entropy", "clusters": "clusters", "rank": "rank",
    "effective_rank": "effective rank", "spread": "spread", "first_length": "length of the first",
}  # fmt: skip
NOTE = (
    "Means over the heads of a layer; tokens as they enter it. On the first token: its share of "
    "all attention; follow it: share of the others whose largest weight it has; it leads: share of "
    "the heads where C_0 = {0} if there were no mask. Evenness: entropy as a share of that of even "
    "rows (1 even, 0 hardmax). Spread: root-mean-square distance of directions from their mean. "
    "Length of the first: in units of the median token's."
)


def even_share(n: int, causal: bool) -> float:
    """What the first of n tokens receives when every row of P is even: H_n / n under the mask."""
    return float((1 / np.arange(1, n + 1)).mean()) if causal else 1 / n


def survey_chapter(survey: Survey, causal: bool, *, pictures: bool = True) -> Report:
    """Who is looked at and how the tokens gather, by layer, beside what even attention gives."""
    rows = [{k: None if x != x else x for k, x in row.items()} for row in survey.table()]  # NaN
    even = even_share(survey.n, causal)
    first = survey.heads["first_mass"].mean(axis=1)
    top = int(first.argmax())
    summary = (
        f"The first token receives {first.mean():.0%} of the attention (even rows: {even:.0%}), "
        f"most in layer {top} ({first[top]:.0%}). The spread of the tokens' directions changes by "
        f"a factor {survey.collapse:.3f} per layer, their effective rank from "
        f"{survey.tokens['effective_rank'][0]:.1f} to {survey.tokens['effective_rank'][-1]:.1f}."
    )
    figures = (_figure(survey, even),) if pictures else ()
    table = table_of("Sinks and gathering by layer", rows, COLUMNS, NOTE)
    return Report("Sinks and gathering by layer", summary, {}, (table,), {}, figures)


def _figure(survey: Survey, even: float) -> Picture:
    from ...drawing.plot import GREY, LABEL, PALETTE, TITLE
    from .pictures import grid

    axes = grid(2, 2, (11.0, 6.4))
    panels: dict[str, Any] = {
        "attention on the first token": "first_mass",
        "evenness of attention (1 even, 0 hardmax)": "evenness",
        "spread of the directions": "spread",
        "effective rank of the tokens": "effective_rank",
    }
    for ax, (title, name) in zip(axes.flat, panels.items(), strict=True):
        if name in survey.heads:
            values = survey.heads[name]
            k = np.arange(len(values))
            ax.plot(k, values, ".", color=GREY, ms=4)
            ax.plot(k, values.mean(axis=1), "o-", color=PALETTE[0], ms=4)
        else:
            ax.plot(survey.tokens[name], "o-", color=PALETTE[1], ms=4)
        if name == "first_mass":
            ax.axhline(even, color=PALETTE[1], ls=":", lw=1.2)
        ax.set_title(title, fontsize=TITLE, loc="left")
        ax.set_xlabel("layer", fontsize=LABEL)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_ylim(0, 1.05 * ax.get_ylim()[1])
    caption = (
        "Grey: one head each, blue: their mean. Dotted: what even attention gives the first token."
    )
    return Picture("Sinks and gathering", caption, axes[0, 0].figure)
