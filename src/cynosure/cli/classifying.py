"""`cynosure fit | predict | evaluate | card`: the readable classifier on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from .inputs import can_be_made, claim
from .options import ForceOption, JsonOption
from .output import Voice
from .terminal import field, show, show_json
from .texts import DATA, chunks, labelled, load_model, model_and, open_model, texts_of

if TYPE_CHECKING:
    from ..classifier.datasets import Dataset
    from ..classifier.deletions import Faithfulness
    from ..classifier.estimator import HardmaxClassifier
    from ..classifier.evaluation import Evaluation
    from ..classifier.opened import Opened
    from ..classifier.placement import Fit
    from ..drawing.report import Table

__all__ = ["card", "evaluate", "fit", "predict"]

TextColumn = Annotated[str, typer.Option("--text-column", help="Column (field) of the texts.")]
LabelColumn = Annotated[str, typer.Option("--label-column", help="Column (field) of the labels.")]


def fit(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    dim: Annotated[int, typer.Option(help="Dimension of the tokens.")] = 2,
    ngrams: Annotated[str, typer.Option(help="Words taken together: 1,2 is words and pairs.")] = (
        "1,2"
    ),
    leaders: Annotated[float, typer.Option(help="Budget of leaders per text, on average.")] = 15.0,
    words: Annotated[
        float, typer.Option(help="Budget of words read per text, on average; 0: no bound.")
    ] = 14.0,
    strength: Annotated[
        float | None,
        typer.Option("--C", help="Inverse regularisation of --method placed [chosen on the data]."),
    ] = None,
    negation: Annotated[
        str,
        typer.Option(
            help="yes: words behind an English negator are words of their own; opposite: and half "
            "the opposite of the plain word; no."
        ),
    ] = "opposite",
    method: Annotated[
        str, typer.Option(help="placed (convex, seconds) or learned (gradient, needs torch).")
    ] = "placed",
    test: Annotated[str | None, typer.Option(metavar="DATA", help="Evaluate on this.")] = None,
    max_features: Annotated[int | None, typer.Option(help="Keep so many terms.")] = None,
    min_df: Annotated[int, typer.Option(help="Drop terms found in fewer texts.")] = 2,
    epochs: Annotated[int, typer.Option(help="Most epochs of --method learned.")] = 20,
    device: Annotated[str, typer.Option(help="Of --method learned: auto, cpu, cuda.")] = "auto",
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Of --method learned: a file from which an interrupted fit goes on."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a classifier that explains itself, from labelled texts.

    \b
    cynosure fit aclImdb.tar.gz:train --test aclImdb.tar.gz:test --out model
    cynosure fit reviews.csv --text-column review --label-column stars --out model
    """
    import time

    from ..classifier.model import FOLDER

    voice: Voice = ctx.obj
    if out.exists() and not force:
        raise ValueError(f"{out} exists (use --force to replace it)")
    FOLDER.refuse_foreign(out)
    can_be_made(out)
    with voice.working(f"reading {data}") as step:
        from ..classifier.estimator import HardmaxClassifier

        clf = HardmaxClassifier(
            dim, _ngrams(ngrams), leaders, words=words or None,
            method=_method(method, epochs, device, checkpoint), C=strength,
            negation=_negation(negation), max_features=max_features, min_df=min_df,
            random_state=seed,
        )  # fmt: skip
        train = labelled(data, "train", text_column, label_column)
        held_out = None
        if test is not None:
            step(0.1, f"reading {test}")
            held_out = labelled(test, "test", text_column, label_column)
    voice.note(f"fitting on {len(train)} texts")
    started = time.perf_counter()
    with voice.working("fitting"):
        clf.fit(train.texts, train.labels)
    seconds = time.perf_counter() - started
    clf.save(out)
    voice.note(f"wrote {out}")
    facts: dict[str, Any] = {
        "model": str(out), "texts": len(train), "classes": clf.classes_.tolist(),
        "terms": len(clf.vocabulary_), "fit_seconds": round(seconds, 2),
    }  # fmt: skip
    tested = None if held_out is None else _evaluation(voice, clf, held_out, 0)
    if json_:
        from ..drawing.report import jsonable

        _print_document(voice, [data, test], facts | {"test": jsonable(tested)})
        return
    rows = [(name.replace("_", " "), _words(value)) for name, value in facts.items()]
    show(_facts(rows + ([] if tested is None else _rows(tested))).to_text())


def _negation(text: str) -> bool | str:
    if text not in ("yes", "no", "opposite"):
        raise ValueError(f"--negation: expected yes, no or opposite, got {text!r}")
    return text if text == "opposite" else text == "yes"


def _ngrams(text: str) -> tuple[int, int]:
    try:
        low, high = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--ngrams: expected two numbers such as 1,2, got {text!r}") from None
    return low, high


def _method(name: str, epochs: int, device: str, checkpoint: Path | None) -> Fit | None:
    if name == "learned":
        from ..classifier.training import Learned

        return Learned(
            epochs=epochs, device=device, checkpoint=None if checkpoint is None else str(checkpoint)
        )
    if name != "placed":
        raise ValueError(f"--method: expected placed or learned, got {name!r}")
    if checkpoint is not None:
        raise ValueError("--checkpoint: only --method learned takes long enough to need one")
    return None  # Placed, the default


def predict(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] FILE|-",
            help="Texts, one per line; or .csv .tsv .jsonl (also .gz); - is one per line on stdin. "
            "MODEL is a folder from `fit`; the shipped model (imdb) if absent. With --out: "
            "folders, globs and files, .parquet too, and --model instead of MODEL.",
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Folder from `fit`, or imdb, instead of MODEL.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for parquet, a partition per file: label, probability, the words that "
            "decided, evidence, file and row. The same command again goes on where it ended."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="With --out: so many processes.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="tcp://...", help="With --out: a Dask cluster.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="With --out: a column that names the rows, kept.")
    ] = None,
    rows: Annotated[int, typer.Option(help="With --out: about so many per partition.")] = 100_000,
    text_column: TextColumn = "text",
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="A JSON object per text instead of label, probability.")
    ] = False,
    abstain: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Give this label to texts without any known word."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Label and probability of every text, streamed: any number of them, in order.

    One line in, one line out; an empty line is a text without words and gets the prior, and its
    JSON says "evidence": false.

    \b
    cynosure predict reviews.txt > labels.tsv
    zcat reviews.txt.gz | cynosure predict model - --jsonl
    cynosure predict 'reviews/*.parquet' --out labels --workers 8
    """
    voice: Voice = ctx.obj
    if jsonl and json_:
        raise ValueError("--json and --jsonl: choose one")
    if out is not None:
        if jsonl:
            raise ValueError("--jsonl: --out writes parquet; leave one of them out")
        how = {"text": text_column, "id": id_column, "rows": rows, "abstain": abstain}
        _bulk(voice, given, out, model, how, workers, scheduler, json_=json_)
        return
    if workers is not None or scheduler is not None or id_column is not None:
        raise ValueError("--workers, --scheduler, --id-column: only with --out FOLDER")
    named, source = model_and(given if model is None else [model, *given], "FILE or -")
    texts = texts_of(source, text_column)
    with voice.working("reading the model"):
        clf = open_model(named)
    if json_:
        head = {"version": __version__, "command": voice.command, "inputs": {"texts": source}}
        show_json(json.dumps(head, ensure_ascii=False)[:-1] + ', "result": [', end="")
    done = 0
    with voice.bar(None, " texts", "labelling texts") as move:
        for chunk in chunks(texts):
            lines = _answers(clf, chunk, abstain, as_json=json_ or jsonl)
            if json_:  # rows of one list, across chunks
                show_json((", " if done else "") + ", ".join(lines), end="")
            elif jsonl:
                show_json("\n".join(lines))
            else:
                show("\n".join(lines))
            sys.stdout.flush()
            done += len(chunk)
            if move is not None:
                move(done)
    if json_:
        show_json("]}")
    voice.note(f"{done} texts")


def _bulk(
    voice: Voice,
    sources: list[str],
    out: Path,
    model: str | None,
    how: dict[str, Any],
    workers: int | None,
    scheduler: str | None,
    *,
    json_: bool,
) -> None:
    """Files into parquet, partition by partition."""
    from ..classifier import bulk

    if workers is not None and scheduler is not None:
        raise ValueError("--workers and --scheduler: choose one")
    can_be_made(out)
    try:
        with voice.bar(None, " partitions", "labelling texts") as move:

            def told(done: int, of: int) -> None:
                if move is not None:
                    move(done, f"of {of}")

            done = bulk.predict(
                sources if len(sources) > 1 else sources[0], out=out, model=model,
                workers=workers, client=scheduler, progress=told, **how,
            )  # fmt: skip
    except KeyboardInterrupt:
        voice.note(f"what is in {out} is whole; start the same again to go on")
        raise
    except RuntimeError as error:  # of the workers, not of the command
        raise ValueError(str(error)) from error
    if done.bad:
        voice.note(
            f"{done.bad} rows could not be read, see {out}/_bad-*.jsonl; first: {done.first_bad}"
        )
    facts = {
        "out": str(done.out), "texts": done.rows, "without_evidence": done.unknown,
        "bad_rows": done.bad, "partitions": done.parts, "made_now": done.made,
    }  # fmt: skip
    if json_:
        head = {"version": __version__, "command": voice.command, "inputs": {"texts": sources}}
        show_json(json.dumps(head | {"result": facts}, ensure_ascii=False))
        return
    show(_facts([(name.replace("_", " "), str(value)) for name, value in facts.items()]).to_text())


def _answers(clf: Opened, texts: list[str], abstain: str | None, *, as_json: bool) -> list[str]:
    """One line per text: the most probable label and its probability; or what `abstain` says."""
    verdicts = clf.read(texts)
    classes, p = clf.classes_.tolist(), clf.probabilities(verdicts.decision)
    out = []
    for row, best, known in zip(p, p.argmax(axis=1).tolist(), verdicts.known.tolist()):
        label: Any = classes[best] if known or abstain is None else abstain
        if not as_json:
            out.append(f"{field(label)}\t{row[best]:.6f}")
            continue
        answer = {"label": label, "score": float(row[best])}
        answer |= {} if known else {"evidence": False}
        out.append(json.dumps(answer, ensure_ascii=False))
    return out


def evaluate(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] DATA",
            help=f"Labelled texts: {DATA} MODEL is a folder from `fit`; the shipped model (imdb) "
            "if absent.",
        ),
    ],
    train: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="Fit TF-IDF + logistic regression and NB-SVM on this, beside it."
        ),
    ] = None,
    explained: Annotated[
        int, typer.Option(help="Texts explained to measure faithfulness; 0 for none.")
    ] = 500,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    json_: JsonOption = False,
) -> None:
    """Accuracy, calibration, leaders, faithfulness; rivals beside it.

    \b
    cynosure evaluate model aclImdb.tar.gz:test --train aclImdb.tar.gz:train
    """
    voice: Voice = ctx.obj
    model, data = model_and(given, "DATA")
    with voice.working("reading the model") as step:
        clf = load_model(model)
        step(0.1, f"reading {data}")
        held_out = labelled(data, "test", text_column, label_column)
        texts = None if train is None else labelled(train, "train", text_column, label_column)
    evaluation = _evaluation(voice, clf, held_out, explained)
    rivals = [] if texts is None else _rivals(voice, clf, texts, held_out)
    if json_:
        from ..drawing.report import jsonable

        result = {"model": model or "imdb", "evaluation": jsonable(evaluation), "rivals": rivals}
        _print_document(voice, [data, train], result)
        return
    show(_facts(_rows(evaluation)).to_text())
    if evaluation.faithfulness is not None:
        show("\n" + _faithful(evaluation.faithfulness))
    if rivals:
        from ..drawing.report import Table

        rows = (("this model", evaluation.accuracy), *((r["name"], r["accuracy"]) for r in rivals))
        show("\n" + Table("", ("fitted on the same texts", "accuracy"), rows).to_text())


def card(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="Folder from `fit`; the shipped model (imdb)."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help=f"Judge it on labelled texts: {DATA}")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="The card as a page (.html).")] = None,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """What a model knows: words for each class; on texts: calibration, confusions, examples.

    \b
    cynosure card --html card.html
    cynosure card model --data reviews.csv --html card.html
    """
    from dataclasses import replace

    from ..classifier.card import card as card_of

    voice: Voice = ctx.obj
    claim(html, (".html",), force)
    with voice.working("reading the model") as step:
        clf = load_model(model)
        step(0.1, f"reading {data}")
        texts = None if data is None else labelled(data, "test", text_column, label_column)
        step(0.2, "reading the texts")
        report = replace(card_of(clf, texts, name=model or "imdb"), command=voice.command)
    if html is not None:
        report.save(html)
        voice.note(f"wrote {html}")
    if json_:
        show_json(report.to_json())
    elif html is None:
        tables = [table for part in report.parts() for table in part.tables]
        show("\n\n".join(f"{table.title}\n{table.to_text()}" for table in tables))


def _rivals(
    voice: Voice, clf: HardmaxClassifier, texts: Dataset, held_out: Dataset
) -> list[dict[str, Any]]:
    """Accuracy of the usual linear classifiers, fitted on `texts` with the model's n-grams."""
    import time

    from ..classifier.evaluation import Rivals

    voice.note(f"fitting the rivals on {len(texts)} texts")
    started = time.perf_counter()
    fitted = Rivals.fit(texts.texts, texts.labels, clf.vocabulary_.tokenizer.ngrams)
    seconds = round(time.perf_counter() - started, 1)
    rivals = []
    for name, labels in fitted.predict(held_out.texts).items():
        accuracy = float((labels == held_out.labels).mean())
        rivals.append({"name": name, "accuracy": accuracy, "C": fitted.C[name]})
    voice.note(f"both fitted in {seconds} s, the choice of C included")
    return rivals


def _print_document(voice: Voice, sources: list[str | None], result: dict[str, Any]) -> None:
    """One JSON document: what made it, from which files, and the result."""
    named = [source for source in sources if source is not None]
    head = {"version": __version__, "command": voice.command, "inputs": {"data": named}}
    show_json(json.dumps(head | {"result": result}, allow_nan=False, ensure_ascii=False))


def _evaluation(
    voice: Voice, clf: HardmaxClassifier, held_out: Dataset, explained: int
) -> Evaluation:
    from ..classifier.evaluation import evaluate as judge

    with voice.bar(1.0, "", f"judging {len(held_out)} texts") as move:
        return judge(clf, held_out.texts, held_out.labels, explained=explained, progress=move)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(rows: list[tuple[str, str]]) -> Table:
    from ..drawing.report import Table

    return Table("", ("", ""), tuple(rows))


def _rows(evaluation: Evaluation) -> list[tuple[str, str]]:
    return [
        ("texts", str(evaluation.texts)),
        ("accuracy", f"{evaluation.accuracy:.4f} +- {evaluation.standard_error:.4f}"),
        ("calibration error", f"{evaluation.calibration:.4f}"),
        ("log-loss", f"{evaluation.log_loss:.4f}"),
        ("words read, mean and median", f"{evaluation.words[0]:.1f}, {evaluation.words[1]:g}"),
        ("leaders per text", f"{evaluation.leaders:.2f}"),
        ("accuracy with 0 layers", f"{evaluation.unlayered:.4f}"),
        ("verdicts the layers change", str(evaluation.changed)),
        ("terms the layers silence", f"{evaluation.silenced:.1%}"),
        ("weight on leaders", f"{evaluation.on_leaders:.4f}"),
        ("alpha, layers, dim", f"{evaluation.alpha:g}, {evaluation.layers}, {evaluation.dim}"),
        ("terms", str(evaluation.terms)),
        ("texts without a known word", str(evaluation.unknown)),
    ]


def _faithful(faithfulness: Faithfulness) -> str:
    from ..drawing.report import Table

    rows = tuple(
        (d.name, d.flipped, d.terms, d.drop, d.words, d.struck) for d in faithfulness.deletions
    )
    head = ("deleted", "flipped", "terms", "fall of probability", "words", "flipped, struck out")
    median, mean, tail = faithfulness.words_to_flip
    return (
        f"{Table('', head, rows).to_text()}\n"
        f"Words struck out, strongest cluster first: {faithfulness.flipped_at_all:.1%} flip, after "
        f"{median:.0f} words (median; mean {mean:.1f}, 95 % within {tail:.0f});\n"
        f"{faithfulness.flipped_within:.1%} within {faithfulness.most_words} words, where words "
        f"chosen to flip reach {faithfulness.best_within:.1%}.\n"
        f"Words that overturn a verdict: {faithfulness.overturn_words[1]:.1f} (mean; median "
        f"{faithfulness.overturn_words[0]:g}), at most {faithfulness.most_words} in "
        f"{faithfulness.overturned:.1%}. "
        f"{faithfulness.texts} texts explained."
    )
