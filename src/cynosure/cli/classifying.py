"""`cynosure fit | predict | evaluate | card`: the readable classifier on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .helping import arg, opt
from .inputs import can_be_made, claim
from .options import ForceOption, JsonOption
from .output import Voice, document, show_table
from .terminal import field, show, show_json
from .texts import DATA, chunks, labelled, load_model, model_and, open_model, texts_of

if TYPE_CHECKING:
    from ..classifier.estimator import HardmaxClassifier
    from ..classifier.evaluating.evaluation import Evaluation
    from ..classifier.evaluating.faithfulness import Faithfulness
    from ..classifier.explaining.loaded_model import LoadedModel
    from ..classifier.fitting.placement import Fit
    from ..classifier.text.datasets import Dataset

TextColumn = Annotated[str, opt("Column (field) of the texts.")]
LabelColumn = Annotated[str, opt("Column (field) of the labels.")]


def fit(
    ctx: typer.Context,
    data: Annotated[str, arg(DATA, of="DATA")],
    out: Annotated[Path, opt("Folder for the model.")],
    dim: Annotated[int, opt("Dimension of the tokens.")] = 2,
    ngrams: Annotated[str, opt("Lengths of terms: 1,2 is words and pairs.")] = ("1,2"),
    leaders: Annotated[float, opt("Budget of leaders per text, on average.")] = 15.0,
    words: Annotated[
        float | None, opt("Deciding words per text, mean; 0: all [14, more if needed].")
    ] = None,
    strength: Annotated[
        float | None, opt("Inverse regularisation of --method placed [chosen on the data].", "--C")
    ] = None,
    negation: Annotated[
        str,
        opt(
            "yes: words behind an English negator are words of their own; opposite: and half "
            "the opposite of the plain word; no; auto: opposite or no, as held-out texts say."
        ),
    ] = "auto",
    method: Annotated[
        str, opt("placed (convex, seconds) or learned (gradient, needs torch).")
    ] = "placed",
    test: Annotated[str | None, opt("Evaluate on this.", of="DATA")] = None,
    max_features: Annotated[int | None, opt("Keep so many terms.")] = None,
    min_df: Annotated[
        int | None, opt("Drop terms found in fewer texts [1 of few words, else 2].")
    ] = None,
    epochs: Annotated[int, opt("Most epochs of --method learned.")] = 20,
    device: Annotated[str, opt("Of --method learned: auto, cpu, cuda.")] = "auto",
    checkpoint: Annotated[
        Path | None, opt("With --method learned: file to resume a fit from.")
    ] = None,
    seed: Annotated[int, opt("The same seed gives the same model.")] = 0,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit a classifier to labelled texts.

    \b
    cynosure fit aclImdb.tar.gz:train --test aclImdb.tar.gz:test --out model
    cynosure fit reviews.csv --text-column review --label-column stars --out model
    """
    import time

    from ..classifier.model.model import FOLDER

    voice: Voice = ctx.obj
    if out.exists() and not force:
        raise ValueError(f"{out} exists (use --force to replace it)")
    if negation not in _NEGATION:
        raise ValueError(f"--negation: expected yes, no, opposite or auto, got {negation!r}")
    FOLDER.refuse_foreign(out)
    can_be_made(out)
    with voice.working(f"reading {data}") as step:
        from ..classifier.estimator import HardmaxClassifier

        clf = HardmaxClassifier(
            dim, _ngrams(ngrams), leaders, words="auto" if words is None else words or None,
            method=_method(method, epochs, device, checkpoint), C=strength,
            negation=_NEGATION[negation], max_features=max_features, min_df=min_df,
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
    for note in clf.notes_:
        voice.note(note)
    facts: dict[str, Any] = {
        "model": str(out), "texts": len(train), "classes": clf.classes_.tolist(),
        "terms": len(clf.vocabulary_), "fit_seconds": round(seconds, 2),
    }  # fmt: skip
    tested = None if held_out is None else _evaluation(voice, clf, held_out, 0)
    if json_:
        _show_document(voice, [data, test], facts | {"test": tested})
        return
    rows = _in_words(facts | {"classes": ", ".join(map(str, facts["classes"]))})
    show_table(("", ""), rows + ([] if tested is None else _rows(tested)))


_NEGATION: dict[str, Any] = {"yes": True, "no": False, "opposite": "opposite", "auto": None}


def _ngrams(text: str) -> tuple[int, int]:
    try:
        low, high = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--ngrams: expected two numbers such as 1,2, got {text!r}") from None
    return low, high


def _method(name: str, epochs: int, device: str, checkpoint: Path | None) -> Fit | None:
    if name == "learned":
        from ..classifier.fitting.training import Learned

        kept = None if checkpoint is None else str(checkpoint)
        return Learned(epochs=epochs, device=device, checkpoint=kept)
    if name != "placed":
        raise ValueError(f"--method: expected placed or learned, got {name!r}")
    if checkpoint is not None:
        raise ValueError("--checkpoint: only --method learned takes long enough to need one")
    return None  # Placed, the default


def predict(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        arg(
            "Texts, one per line; or .csv .tsv .jsonl (also .gz); - is one per line on stdin. "
            "MODEL is a folder from `fit`; the shipped model (imdb) if absent. With --out: "
            "folders, globs and files, .parquet too, and --model instead of MODEL.",
            of="[MODEL] FILE|-",
        ),
    ],
    model: Annotated[str | None, opt("Folder from `fit`, or imdb, instead of MODEL.")] = None,
    out: Annotated[
        Path | None,
        opt(
            "Folder for parquet, a partition per file: label, probability, the words that "
            "decided, evidence, file and row. The same command resumes after an interruption."
        ),
    ] = None,
    workers: Annotated[int | None, opt("With --out: so many processes.")] = None,
    scheduler: Annotated[str | None, opt("With --out: a Dask cluster.", of="tcp://...")] = None,
    id_column: Annotated[str | None, opt("With --out: a column that names the rows, kept.")] = None,
    rows: Annotated[int, opt("With --out: about so many per partition.")] = 100_000,
    text_column: TextColumn = "text",
    jsonl: Annotated[
        bool, opt("A JSON object per text instead of label, probability.", "--jsonl")
    ] = False,
    abstain: Annotated[
        str | None, opt("Label of a text of which no word is evidence.", of="LABEL")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Label every text, with its probability.

    Texts are streamed and stay in order, so there may be any number of them.

    One line in, one line out. A text of which no word is evidence, such as an empty line, gets no
    verdict: both fields are empty, and its JSON has "label": null and "evidence": false.

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
        _bulk(
            voice, given, out, json_, text=text_column, id=id_column, rows=rows, abstain=abstain,
            model=model, workers=workers, client=scheduler,
        )  # fmt: skip
        return
    if workers is not None or scheduler is not None or id_column is not None:
        raise ValueError("--workers, --scheduler, --id-column: only with --out FOLDER")
    named, source = model_and(given if model is None else [model, *given], "FILE or -")
    texts = texts_of(source, text_column)
    with voice.working("reading the model"):
        clf = open_model(named)
    if json_:
        head, tail = document(voice, {"texts": source}, []).rsplit("]", 1)
        show_json(head, end="")
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
        show_json("]" + tail)
    voice.note(f"{done} texts")


def _bulk(voice: Voice, sources: list[str], out: Path, json_: bool, **how: Any) -> None:
    """Files into parquet, partition by partition."""
    from ..classifier import bulk

    if how["workers"] is not None and how["client"] is not None:
        raise ValueError("--workers and --scheduler: choose one")
    can_be_made(out)
    try:
        with voice.bar(None, " partitions", "labelling texts") as move:

            def told(done: int, of: int) -> None:
                if move is not None:
                    move(done, f"of {of}")

            given = sources if len(sources) > 1 else sources[0]
            done = bulk.predict(given, out=out, progress=told, **how)
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
        show_json(document(voice, {"texts": sources}, facts))
        return
    show_table(("", ""), _in_words(facts))


def _answers(
    clf: LoadedModel, texts: list[str], abstain: str | None, *, as_json: bool
) -> list[str]:
    """One line per text: the most probable label and its probability; or what `abstain` says."""
    verdicts = clf.read(texts)
    classes, p = clf.classes_.tolist(), clf.probabilities(verdicts.decision)
    out = []
    for row, best, said in zip(p, clf.winners(verdicts).tolist(), verdicts.evidence.tolist()):
        label: Any = classes[best] if said else abstain
        if not as_json:
            shown = "" if label is None else field(label)
            out.append(f"{shown}\t" + (f"{row[best]:.6f}" if said else ""))
            continue
        answer = {"label": label, "score": float(row[best]) if said else None}
        answer |= {} if said else {"evidence": False}
        out.append(json.dumps(answer, ensure_ascii=False))
    return out


def evaluate(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        arg(
            f"Labelled texts: {DATA} MODEL is a folder from `fit`; the shipped model (imdb) "
            "if absent.",
            of="[MODEL] DATA",
        ),
    ],
    train: Annotated[
        str | None,
        opt("Compare with TF-IDF and NB-SVM, fitted on this.", of="DATA"),
    ] = None,
    explained: Annotated[int, opt("Texts explained to measure faithfulness; 0 for none.")] = 500,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    json_: JsonOption = False,
) -> None:
    """Measure a classifier on labelled texts.

    Accuracy, calibration, leaders and faithfulness, compared with other models.

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
        result = {"model": model or "imdb", "evaluation": evaluation, "rivals": rivals}
        _show_document(voice, [data, train], result)
        return
    show_table(("", ""), _rows(evaluation))
    if evaluation.faithfulness is not None:
        show("")
        _show_faithfulness(evaluation.faithfulness)
    if rivals:
        rows = [("this model", evaluation.accuracy), *((r["name"], r["accuracy"]) for r in rivals)]
        show("")
        show_table(("fitted on the same texts", "accuracy"), rows)


def card(
    ctx: typer.Context,
    model: Annotated[
        str | None, arg("Folder from `fit`; the shipped model (imdb).", of="MODEL")
    ] = None,
    data: Annotated[str | None, opt(f"Judge it on labelled texts: {DATA}", of="DATA")] = None,
    html: Annotated[Path | None, opt("The card as a page (.html).")] = None,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Show what a classifier knows.

    Words for each class, and on texts calibration, confusions and examples.

    \b
    cynosure card --html card.html
    cynosure card model --data reviews.csv --html card.html
    """
    from dataclasses import replace

    from ..classifier.evaluating.model_card import card as card_of

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

    from ..classifier.evaluating.evaluation import Rivals

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


def _show_document(voice: Voice, sources: list[str | None], result: dict[str, Any]) -> None:
    named = [source for source in sources if source is not None]
    show_json(document(voice, {"data": named}, result))


def _evaluation(
    voice: Voice, clf: HardmaxClassifier, held_out: Dataset, explained: int
) -> Evaluation:
    from ..classifier.evaluating.evaluation import evaluate as judge

    with voice.bar(1.0, "", f"judging {len(held_out)} texts") as move:
        return judge(clf, held_out.texts, held_out.labels, explained=explained, progress=move)


def _in_words(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), str(value)) for name, value in facts.items()]


def _rows(e: Evaluation) -> list[tuple[str, str]]:
    return [
        ("texts", str(e.texts)),
        ("accuracy", f"{e.accuracy:.4f} +- {e.standard_error:.4f}"),
        ("calibration error", f"{e.calibration:.4f}"),
        ("log-loss", f"{e.log_loss:.4f}"),
        ("deciding words, mean and median", f"{e.words[0]:.1f}, {e.words[1]:g}"),
        ("leaders per text", f"{e.leaders:.2f}"),
        ("accuracy with 0 layers", f"{e.unlayered:.4f}"),
        ("verdicts the layers change", str(e.changed)),
        ("terms the layers silence", f"{e.silenced:.1%}"),
        ("weight on leaders", f"{e.on_leaders:.4f}"),
        ("alpha, layers, dim", f"{e.alpha:g}, {e.layers}, {e.dim}"),
        ("terms", str(e.terms)),
        ("texts without a known word", str(e.unknown)),
    ]


def _show_faithfulness(f: Faithfulness) -> None:
    head = ("deleted", "flipped", "terms", "fall of probability", "words", "flipped everywhere")
    show_table(head, ((d.name, d.flipped, d.terms, d.drop, d.words, d.struck) for d in f.deletions))
    median, mean, tail = f.words_to_flip
    show(
        f"Words deleted, strongest cluster first: {f.flipped_at_all:.1%} flip, after "
        f"{median:.0f} words (median; mean {mean:.1f}, 95 % within {tail:.0f});\n"
        f"{f.flipped_within:.1%} within {f.most_words} words, where words chosen to flip reach "
        f"{f.best_within:.1%}.\n"
        f"Words that overturn a verdict: {f.overturn_words[1]:.1f} (mean; median "
        f"{f.overturn_words[0]:g}), at most {f.most_words} in {f.overturned:.1%}. "
        f"{f.texts} texts explained."
    )
