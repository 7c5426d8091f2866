"""`cynosure explain`: why a text gets its label."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .helping import arg, opt
from .inputs import claim
from .options import ForceOption, JsonOption
from .output import WIDTH, Voice, document, show_table
from .terminal import show, show_coloured, show_json
from .texts import chunks, decoded, open_model, texts_of

if TYPE_CHECKING:
    from ..classifier.explaining.explanation import Explanation

_MOST_ROWS = 20


def explain(
    ctx: typer.Context,
    given: Annotated[list[str] | None, arg("The text itself, or - for stdin.", of="TEXT|-")] = None,
    model: Annotated[str, opt("Folder from `fit`, or a shipped model.")] = "imdb",
    file: Annotated[
        str | None,
        opt(
            "Explain every text of a file (as `predict` reads them), a JSON object per line: "
            "label, probability, decision, enough, overturn, spans.",
            of="FILE|-",
        ),
    ] = None,
    text_column: Annotated[str, opt("Column (field) of the texts of --file.")] = "text",
    label: Annotated[str | None, opt("Give the contributions to this label.")] = None,
    html: Annotated[Path | None, opt("The explanation as a page (.html).")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Show why a text gets its label.

    Contributions and intercept add up to the log-odds exactly; it is the prediction itself.

    \b
    cynosure explain "A slow film, but what an ending!"
    cynosure explain - --model model --html why.html < review.txt
    cynosure explain --file reviews.csv > why.jsonl
    """
    voice: Voice = ctx.obj
    if given is not None and len(given) > 1:
        quote = "quote the text, and name a model by --model FOLDER"
        raise ValueError(f"expected one TEXT, got {len(given)} arguments: {quote}")
    text = given[0] if given else None
    if file is not None:
        if text is not None or html is not None:
            raise ValueError("--file: expected neither a text nor --html with it")
        texts = texts_of(file, text_column)
        with voice.working("reading the model"):
            clf = open_model(model)
        for chunk in chunks(texts):
            for row in clf.explain_all(chunk):
                show_json(json.dumps(row, ensure_ascii=False))
            sys.stdout.flush()
        return
    if text is None:
        raise ValueError("expected TEXT, or - for stdin, or --file FILE")
    claim(html, (".html",), force)
    if text == "-":
        text = decoded(sys.stdin.buffer.read(), "stdin")
    with voice.working("reading the model"):
        clf = open_model(model)
        names = {str(c): c for c in clf.classes_.tolist()}
        if label is not None and label not in names:
            raise ValueError(f"--label: expected one of {', '.join(names)}, got {label!r}")
        ex = clf.explain(text, None if label is None else names[label])
    if html is not None:
        ex.save(html)
        voice.note(f"wrote {html}")
    if json_:
        show_json(document(voice, {"model": model}, ex.to_dict()))
        return
    _show(ex)


def _show(ex: Explanation) -> None:
    """The verdict, what decided it and what would overturn it, then the leaders and the text."""
    show(ex.headline)
    if not ex.evidence:
        show(ex.note)
        return
    show_coloured(ex)
    passage = "Each passage shows what its deciding words add; all other words add nothing."
    show(fill(f"+ speaks for {ex.label}, - against it. {passage}", WIDTH))
    total = f"Decision {ex.decision:+z.3f} = intercept {ex.intercept:+z.3f}"
    show(f"{total} and {len(ex.leaders)} leaders.\n")
    flat = ((span.text, round(span.contribution, 3)) for span in ex.spans[:_MOST_ROWS])
    show_table(("deciding words", "contribution"), flat, WIDTH)
    if len(ex.spans) > _MOST_ROWS:
        show(f"and {len(ex.spans) - _MOST_ROWS} more")
    show(_some("enough", ex.enough))
    show((_some("overturn", ex.overturn) if ex.overturn else "overturn: none found") + "\n")
    rows = (
        (
            one.text, round(one.contribution, 3), round(one.share, 3), round(one.score, 2),
            _followers(one.followers),
        )
        for one in ex.leaders
    )  # fmt: skip
    show_table(("leader", "contribution", "share", "score", "followers"), rows, WIDTH)


def _some(name: str, words: tuple[str, ...]) -> str:
    more = f" and {len(words) - _MOST_ROWS} more" if len(words) > _MOST_ROWS else ""
    count = f"{len(words)} word" + "s" * (len(words) != 1)
    listed = f"{name} ({count}): {', '.join(words[:_MOST_ROWS])}{more}"
    return fill(listed, WIDTH, subsequent_indent="  ", break_long_words=False)


def _followers(words: tuple[Any, ...], shown: int = 6) -> str:
    names = [w.text for w in sorted(words, key=lambda w: -abs(w.contribution))]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
