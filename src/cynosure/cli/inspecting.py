"""`cynosure inspect`: real transformers on the command line."""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .helping import arg, opt
from .inputs import claim
from .options import ForceOption, JsonOption
from .output import ROWS_ON_SCREEN, Voice, save_into
from .terminal import show, show_json

if TYPE_CHECKING:
    from ..drawing.report import Report
    from ..drawing.tables import Table
    from ..pretrained import Transformer

DESCRIPTION = """Look inside a trained transformer.

Llama, Mistral, Mixtral, Qwen, Gemma, Phi, GPT-OSS, OLMo 2, Cohere, Falcon, StableLM, Granite,
GPT-NeoX (Pythia), GPT-J, OPT, GPT-2, BLOOM, BERT (MiniLM), ELECTRA, RoBERTa, DistilBERT, ALBERT,
ModernBERT, ViT. It needs cynosure[models].

\b
cynosure inspect heads ./minilm                              every head
cynosure inspect text ./minilm "A slow film." --out page     one sentence
cynosure inspect iterate ./minilm --layer 2 --times 200      iterate one layer
cynosure inspect survey ./llama lines.txt --store c.zarr     many texts
cynosure inspect image ./vit cat.png --out page              a picture
"""

ModelArg = Annotated[
    str,
    arg("Folder with config.json and model.safetensors (read offline), or a hub id.", of="MODEL"),
]
LayerOption = Annotated[int | None, opt("Layer to look at, from 0.")]
HeadOption = Annotated[int | None, opt("Head of that layer, from 0.")]
LayersOption = Annotated[
    int | None,
    opt("Go through N layers; more than the model has if it shares weights (ALBERT).", of="N"),
]
WordsOption = Annotated[bool, opt("Join sub-words into words.", "--words")]
OutOption = Annotated[
    Path | None, opt("Folder for report.html, report.json and data/.", of="FOLDER")
]
PickleOption = Annotated[
    bool, opt("Read a pickled checkpoint, which can run code; trust it first.", "--allow-pickle")
]


def heads(
    ctx: typer.Context,
    model: ModelArg,
    layer: LayerOption = None,
    head: HeadOption = None,
    out: OutOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
    allow_pickle: PickleOption = False,
) -> None:
    """Measure every head: its spectrum and its hypotheses."""
    _inspect(ctx.obj, model, allow_pickle, (out, json_, force), layer=layer, head=head)


def text(
    ctx: typer.Context,
    model: ModelArg,
    sentence: Annotated[str, arg("The text, - for stdin.", of="TEXT")],
    words: WordsOption = False,
    layers: LayersOption = None,
    layer: LayerOption = None,
    head: HeadOption = None,
    out: OutOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
    allow_pickle: PickleOption = False,
) -> None:
    """Follow one text through the layers."""
    chosen: dict[str, Any] = dict(layer=layer, head=head, layers=layers, words=words)
    given = _sentence(sentence)
    _inspect(ctx.obj, model, allow_pickle, (out, json_, force), given=given, **chosen)


def image(
    ctx: typer.Context,
    model: ModelArg,
    picture: Annotated[Path, arg("A PNG or JPEG picture.", of="FILE")],
    layers: LayersOption = None,
    layer: LayerOption = None,
    head: HeadOption = None,
    out: OutOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
    allow_pickle: PickleOption = False,
) -> None:
    """Follow one picture through a vision transformer."""
    chosen: dict[str, Any] = dict(layer=layer, head=head, layers=layers)
    _inspect(ctx.obj, model, allow_pickle, (out, json_, force), given=picture, **chosen)


def iterate(
    ctx: typer.Context,
    model: ModelArg,
    times: Annotated[int, opt("How often the layer is run.", of="N")] = 200,
    layer: LayerOption = None,
    head: HeadOption = None,
    sentence: Annotated[str | None, opt("Start from this text [random tokens].", "--text")] = None,
    picture: Annotated[Path | None, opt("Start from this picture.", "--image", of="FILE")] = None,
    words: WordsOption = False,
    out: OutOption = None,
    json_: JsonOption = False,
    force: ForceOption = False,
    allow_pickle: PickleOption = False,
) -> None:
    """Iterate one layer, together with its controls."""
    if picture is not None and sentence is not None:
        raise ValueError("--text and --image: a model reads one or the other, got both")
    if times < 1:
        raise ValueError(f"--times: expected a number of times from 1 on, got {times}")
    given = picture if sentence is None else _sentence(sentence)
    chosen: dict[str, Any] = dict(layer=layer, head=head, words=words, iterate=times)
    _inspect(ctx.obj, model, allow_pickle, (out, json_, force), given=given, **chosen)


def survey(
    ctx: typer.Context,
    model: ModelArg,
    texts: Annotated[str, arg("File with one text a line.", of="TEXTS")],
    store: Annotated[
        Path, opt("Zarr store of the results; resumes after an interruption.", of="FOLDER")
    ],
    json_: JsonOption = False,
    allow_pickle: PickleOption = False,
) -> None:
    """Survey many texts and store their statistics."""
    from ..drawing.tables import Table
    from .texts import texts_of

    voice: Voice = ctx.obj
    lines = [line for line in texts_of(texts, "text") if line.strip()]
    with voice.bar(1.0, "", "reading the texts") as move:
        from ..pretrained import survey_texts

        transformer = _load(model, allow_pickle)
        found = survey_texts(transformer, lines, store, progress=move)
    names = [name for name, x in found.items() if "layer" in x.dims and name != "sink"]
    means = {name: found[name].mean(("text", "head")).values for name in names}
    rows = tuple((k, *(float(means[name][k]) for name in names)) for k in range(transformer.depth))
    refused = int((found["state"] == 2).sum())
    voice.note(
        f"{len(lines)} texts in {store}" + (f", {refused} could not be read" if refused else "")
    )
    columns = ("layer", *map(str, names))
    if json_:
        import json

        show_json(json.dumps([dict(zip(columns, row)) for row in rows], indent=1))
    else:
        _print((Table(f"{transformer.name}: means over texts and heads", columns, rows),))


COMMANDS = (heads, text, image, iterate, survey)


def _load(model: str, pickled: bool) -> Transformer:
    """The one place of the package that may be asked to read a pickle."""
    from ..pretrained import load_transformer

    return load_transformer(model, allow_pickle=pickled)


def _inspect(
    voice: Voice, model: str, pickled: bool, outputs: tuple[Path | None, bool, bool],
    given: str | Path | None = None, **chosen: Any,
) -> None:  # fmt: skip
    """Load the model, look, write the report, and print the tables that were asked for."""
    from .._files.writing import alone

    out, as_json, force = outputs
    claim(out and out / "report.html", (".html",), force)
    with voice.steps(_source(voice, model)) as step, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # cut texts are in the report, said below
        from ..pretrained.pages.inspection import inspection

        transformer = _load(model, pickled)
        sees = transformer.adapter.picture is not None
        if isinstance(given, Path) and not sees:
            raise ValueError(f"{transformer.name} reads texts (inspect text), not pictures")
        if isinstance(given, str) and sees:
            raise ValueError(f"{transformer.name} reads pictures (inspect image), not texts")
        pictures = out is not None
        report = inspection(transformer, given, **chosen, pictures=pictures, progress=step)
    report = replace(report, command=voice.command)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with alone(out):
            save_into(out, report)
    voice.note(report.summary.replace("\n\n", "\n"))
    layer, head = chosen["layer"], chosen["head"]
    if as_json:
        show_json(report.to_json())
    elif out is not None:
        show(out / "report.html")
    else:
        if layer is not None and given is None:  # a table of heads has each set of weights once
            layer = transformer.original(layer)
        _print(_tables(report, given, head, "iterate" in chosen), layer, head)


def _sentence(given: str) -> str:
    return sys.stdin.read().strip() if given == "-" else given


def _source(voice: Voice, model: str) -> str:
    """What is read, for the first line; a question to the hub is said before it is asked."""
    if not Path(model).expanduser().exists() and re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", model):
        voice.note(f"no folder {model} here: looking for {model} on the Hugging Face hub ...")
        return "waiting for the hub"
    return f"reading {model}"


def _tables(
    report: Report, given: str | Path | None, head: int | None, iterated: bool
) -> tuple[Table, ...]:
    """The tables for a terminal: of the iteration, else the text, else the heads."""
    if iterated:
        return report.chapters[-1].tables
    if given is not None:
        shown = ("Tokens", "Attention", "The picture", "Does hardmax")
        return tuple(c.tables[0] for c in report.chapters if c.title.startswith(shown))
    return report.chapters[0].tables[: 2 if head is None else None]


def _print(tables: tuple[Table, ...], layer: int | None = None, head: int | None = None) -> None:
    """Every table under its title; of tables by head, only the rows of those chosen."""
    for i, table in enumerate(tables):
        rows = table.rows
        if layer is not None and table.columns[0] == "head":
            name = f"L{layer}H{'' if head is None else head}"
            rows = tuple(
                r for r in rows if (r[0] if head is not None else r[0][: len(name)]) == name
            )
        shown = rows if not sys.stdout.isatty() else rows[:ROWS_ON_SCREEN]
        show(("\n" if i else "") + f"{table.title}\n")
        show(replace(table, rows=shown).to_text())
        if len(shown) < len(rows):
            show(f"... {len(rows) - len(shown)} more (pipe the output, or use --json or --out)")
