"""`cynosure inspect`: real transformers on the command line."""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .inputs import claim
from .options import ForceOption, JsonOption
from .output import ROWS_ON_SCREEN, Voice
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..drawing.report import Report, Table
    from ..pretrained import Transformer

__all__ = ["inspect"]


def inspect(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder with config.json and model.safetensors (read offline), or a hub id.",
        ),
    ],
    text: Annotated[str | None, typer.Option(help="A text to send through the model.")] = None,
    image: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A PNG or JPEG picture to send through a ViT."),
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="Group the sub-words of the text into words.")
    ] = False,
    layers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Send the text through N layers; more than the model has if it shares weights "
            "(ALBERT).",
        ),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to look at, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Head of that layer, from 0.")] = None,
    iterate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Run that layer N times over, beside the same layer with its heads silent; from "
            "the text or picture, or else from random tokens.",
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Survey every text of FILE, one a line; goes into --store."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Store for --texts, read with xarray; goes on where it stopped."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, report.json and data/.")
    ] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle", help="Read a pickled checkpoint, which can run code; trust it first."
        ),
    ] = False,
) -> None:
    """Heads of a real transformer, a text in it, a layer iterated.

    Llama, Mistral, Mixtral, Qwen, Gemma, Phi, GPT-OSS, OLMo 2, Cohere, Falcon, StableLM, Granite,
    GPT-NeoX (Pythia), GPT-J, OPT, GPT-2, BLOOM, BERT (MiniLM), ELECTRA, RoBERTa, DistilBERT,
    ALBERT, ModernBERT, ViT; needs cynosure[models].

    \b
    cynosure inspect ./minilm                                     every head
    cynosure inspect ./minilm --text "A slow film." --out page    one sentence
    cynosure inspect ./minilm --layer 2 --head 3 --iterate 200    one head
    cynosure inspect ./llama --texts lines.txt --store c.zarr     many texts
    cynosure inspect ./vit --image cat.png --out page             a picture
    """
    voice: Voice = ctx.obj
    if texts is not None or store is not None:
        _survey(voice, model, allow_pickle, texts, store, json_)
        return
    if image is not None and text is not None:
        raise ValueError("--text and --image: a model reads one or the other, got both")
    if iterate is not None and iterate < 1:
        raise ValueError(f"--iterate: expected a number of times from 1 on, got {iterate}")
    if out is not None:
        claim(out / "report.html", (".html",), force)
    with voice.steps(_source(voice, model)) as step, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # cut texts are in the report, said below
        transformer = _load(model, allow_pickle)
        from ..pretrained.inspection import inspection

        given = text if image is None else image
        if image is not None and transformer.adapter.picture is None:
            raise ValueError(f"--image: {transformer.name} reads texts (--text), not pictures")
        if text is not None and transformer.adapter.picture is not None:
            raise ValueError(f"--text: {transformer.name} reads pictures (--image), not texts")
        report = inspection(
            transformer,
            given,
            layer=layer,
            head=head,
            layers=layers,
            words=words,
            iterate=iterate or 0,
            pictures=out is not None,
            progress=step,
        )
    report = replace(report, command=voice.command)
    if out is not None:
        report.save(out / "report.json")
        report.save_data(out / "data")
        report.save(out / "report.html")
    voice.note(report.summary.replace("\n\n", "\n"))
    if json_:
        show_json(report.to_json())
    elif out is not None:
        show(out / "report.html")
    else:
        if layer is not None and given is None:  # a table of heads has each set of weights once
            layer = transformer.original(layer)
        _print(_asked(report, given, head, iterate), layer, head)


def _survey(
    voice: Voice, model: str, pickled: bool, texts: str | None, store: Path | None, as_json: bool
) -> None:
    """Every text into the store, and what they show on average, by layer."""
    from ..drawing.report import Table
    from .texts import texts_of

    if texts is None or store is None:
        raise ValueError("--texts and --store: one needs the other (a file, and a folder)")
    lines = [line for line in texts_of(texts, "text") if line.strip()]
    with voice.bar(1.0, "", "reading the texts") as move:
        transformer = _load(model, pickled)
        from ..pretrained import survey_texts

        found = survey_texts(transformer, lines, store, progress=move)
    names = [name for name, x in found.items() if "layer" in x.dims and name != "sink"]
    means = {name: found[name].mean(("text", "head")).values for name in names}
    rows = tuple((k, *(float(means[name][k]) for name in names)) for k in range(transformer.depth))
    refused = int((found["state"] == 2).sum())
    note = f"{len(lines)} texts in {store}" + (f", {refused} could not be read" if refused else "")
    voice.note(note)
    table = Table(
        f"{transformer.name}: means over texts and heads", ("layer", *map(str, names)), rows, note
    )
    if as_json:
        import json

        show_json(json.dumps([dict(zip(table.columns, row)) for row in rows], indent=1))
    else:
        _print((table,), None, None)


def _source(voice: Voice, model: str) -> str:
    """What is read, for the first line; a question to the hub is said before it is asked.

    A folder of that name is taken, with or without ./ before it. Only names that can be hub ids
    (`name`, `owner/name`) are asked for.
    """
    here = Path(model).expanduser().exists()
    if not here and re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", model):
        voice.note(f"no folder {model} here: looking for {model} on the Hugging Face hub ...")
        return "waiting for the hub"
    return f"reading {model}"


def _load(model: str, pickled: bool) -> Transformer:
    from ..pretrained import load_transformer

    return load_transformer(model, allow_pickle=pickled)


def _asked(
    report: Report, text: str | Path | None, head: int | None, iterate: int | None
) -> tuple[Table, ...]:
    """The tables for a terminal: of the iteration, else the text, else the heads."""
    if iterate:
        return report.chapters[-1].tables
    if text is not None:
        shown = 2 if isinstance(text, str) else 3  # the third is that of a picture
        return tuple(chapter.tables[0] for chapter in report.chapters[:shown])
    return report.chapters[0].tables[: 2 if head is None else None]


def _print(tables: tuple[Table, ...], layer: int | None, head: int | None) -> None:
    """Every table under its title; of tables by head, only the rows of those chosen."""
    for i, table in enumerate(tables):
        rows = _rows_of(table, layer, head)
        shown = rows if not sys.stdout.isatty() else rows[:ROWS_ON_SCREEN]
        show(("\n" if i else "") + f"{table.title}\n")
        show(replace(table, rows=shown).to_text())
        if len(shown) < len(rows):
            show(f"... {len(rows) - len(shown)} more (pipe the output, or use --json or --out)")


def _rows_of(table: Table, layer: int | None, head: int | None) -> tuple[tuple, ...]:
    if layer is None or table.columns[0] != "head":
        return table.rows
    name = f"L{layer}H" if head is None else f"L{layer}H{head}"
    return tuple(r for r in table.rows if r[0] == name or (head is None and r[0].startswith(name)))
