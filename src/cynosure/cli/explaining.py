"""`cynosure explain`: why a text gets its label."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from .inputs import claim
from .options import ForceOption, JsonOption
from .output import WIDTH, Voice
from .terminal import show, show_coloured, show_json
from .texts import chunks, decoded, model_and, open_model, texts_of

if TYPE_CHECKING:
    from ..classifier.explanation import Explanation

__all__ = ["explain"]

_MOST_ROWS = 20


def explain(
    ctx: typer.Context,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] TEXT|-",
            help="The text itself, - for stdin. MODEL is a folder from `fit`; the shipped model "
            "(imdb) if absent.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE|-",
            help="Explain every text of a file (as `predict` reads them), a JSON object per line: "
            "label, probability, decision, enough, overturn, spans. Give MODEL or nothing before.",
        ),
    ] = None,
    text_column: Annotated[
        str, typer.Option("--text-column", help="Column (field) of the texts of --file.")
    ] = "text",
    label: Annotated[
        str | None, typer.Option(help="Explain this label [the predicted one; of two, the second].")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="The explanation as a page (.html).")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Why a text gets its label: what was read, what would overturn it, leaders and followers.

    Contributions and intercept add up to the log-odds exactly; it is the prediction itself.

    \b
    cynosure explain "A slow film, but what an ending!"
    cynosure explain model - --html why.html < review.txt
    cynosure explain --file reviews.csv > why.jsonl
    """
    voice: Voice = ctx.obj
    if file is not None:
        _stream(voice, given or [], file, text_column, html)
        return
    if not given:
        raise ValueError("expected TEXT, or - for stdin, or --file FILE")
    model, text = model_and(given, "TEXT or -")
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
        inputs = {"model": model or "imdb"}
        head = {"version": __version__, "command": voice.command, "inputs": inputs}
        show_json(json.dumps(head | {"result": ex.to_dict()}, ensure_ascii=False))
        return
    _show(ex)


def _stream(voice: Voice, given: list[str], file: str, column: str, html: Path | None) -> None:
    """A JSON object for every text, in order."""
    if len(given) > 1 or html is not None:
        raise ValueError("--file: expected [MODEL] before it, and neither a text nor --html")
    texts = texts_of(file, column)
    with voice.working("reading the model"):
        clf = open_model(given[0] if given else None)
    for chunk in chunks(texts):
        for row in clf.explain_all(chunk):
            show_json(json.dumps(row, ensure_ascii=False))
        sys.stdout.flush()


def _show(ex: Explanation) -> None:
    """The verdict, what decided it and what would overturn it, then the leaders and the text."""
    from ..drawing.report import Table

    sure = ex.probability if ex.prediction == ex.label else 1.0 - ex.probability
    if not ex.leaders:
        show(f"no evidence  {ex.prediction} by the prior, probability {sure:.3f}")
        show(ex.note)
        return
    show(
        f"{ex.prediction}  probability {sure:.3f}\n"
        f"log-odds of {ex.label} {ex.decision:+.3f} = intercept {ex.intercept:+.3f} "
        f"and {len(ex.leaders)} leaders:"
    )
    flat = tuple((span.text, round(span.contribution, 3)) for span in ex.spans[:_MOST_ROWS])
    show(Table("", ("read, by weight", "contribution"), flat).to_text(WIDTH))
    if len(ex.spans) > _MOST_ROWS:
        show(f"and {len(ex.spans) - _MOST_ROWS} more")
    show(_some("enough", ex.enough))
    show((_some("overturn", ex.overturn) if ex.overturn else "overturn: none found") + "\n")
    named = any(leader.subject for leader in ex.leaders)
    rows = tuple(
        (
            leader.text, round(leader.contribution, 3), round(leader.share, 3),
            round(leader.score, 2), *([leader.subject] if named else []),
            _followers(leader.followers),
        )
        for leader in ex.leaders
    )  # fmt: skip
    subject = ("subject",) if named else ()
    head = ("leader", "contribution", "share", "score", *subject, "followers")
    show(Table("", head, rows).to_text(WIDTH))
    show_coloured(ex)


def _some(name: str, words: tuple[str, ...]) -> str:
    more = f" and {len(words) - _MOST_ROWS} more" if len(words) > _MOST_ROWS else ""
    count = f"{len(words)} word" + "s" * (len(words) != 1)
    listed = f"{name} ({count}): {', '.join(words[:_MOST_ROWS])}{more}"
    return fill(listed, WIDTH, subsequent_indent="  ", break_long_words=False)


def _followers(words: tuple[Any, ...], shown: int = 6) -> str:
    names = [w.text for w in sorted(words, key=lambda w: -abs(w.contribution))]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
