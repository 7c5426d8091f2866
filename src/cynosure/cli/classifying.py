"""`cynosure fit | predict | explain | evaluate`: the readable classifier on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from .commands import COMMON, ForceOption, JsonOption, app
from .inputs import claim
from .output import Voice

if TYPE_CHECKING:
    from ..classifier.datasets import Dataset
    from ..classifier.deletions import Faithfulness
    from ..classifier.estimator import HardmaxClassifier
    from ..classifier.evaluation import Evaluation
    from ..classifier.explanation import Explanation
    from ..classifier.placement import Fit
    from ..drawing.report import Table

__all__ = ["evaluate", "explain", "fit", "predict"]

DATA = (
    "aclImdb folder or .tar.gz (with :train or :test behind it), or .csv .tsv .jsonl with a header."
)
TextColumn = Annotated[str, typer.Option("--text-column", help="Column (field) of the texts.")]
LabelColumn = Annotated[str, typer.Option("--label-column", help="Column (field) of the labels.")]


@app.command(epilog=COMMON)
def fit(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    dim: Annotated[int, typer.Option(help="Dimension of the tokens.")] = 2,
    ngrams: Annotated[str, typer.Option(help="Words taken together: 1,2 is words and pairs.")] = (
        "1,2"
    ),
    leaders: Annotated[float, typer.Option(help="Budget of leaders per text, on average.")] = 10.0,
    words: Annotated[
        float, typer.Option(help="Budget of telling words per text, on average; 0: no bound.")
    ] = 40.0,
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

    from ..classifier.estimator import HardmaxClassifier

    voice: Voice = ctx.obj
    if out.exists() and not force:
        raise ValueError(f"{out} exists (use --force to replace it)")
    if out.exists() and not (out / "model.json").is_file():
        raise ValueError(f"{out} is not a cynosure model; choose another folder")
    clf = HardmaxClassifier(
        dim, _ngrams(ngrams), leaders, words=words or None,
        method=_method(method, epochs, device, checkpoint), max_features=max_features,
        min_df=min_df, random_state=seed,
    )  # fmt: skip
    train = _labelled(data, "train", text_column, label_column)
    held = None if test is None else _labelled(test, "test", text_column, label_column)
    voice.note(f"fitting on {len(train)} texts")
    started = time.perf_counter()
    clf.fit(train.texts, train.labels)
    seconds = time.perf_counter() - started
    clf.save(out)
    voice.note(f"wrote {out}")
    told: dict[str, Any] = {
        "model": str(out), "texts": len(train), "classes": clf.classes_.tolist(),
        "terms": len(clf.vocabulary_), "fit_seconds": round(seconds, 2),
    }  # fmt: skip
    found = None if held is None else _evaluation(voice, clf, held, 0)
    if json_:
        from ..drawing.report import jsonable

        _print_document(voice, [data, test], told | {"test": jsonable(found)})
        return
    rows = [(name.replace("_", " "), _words(value)) for name, value in told.items()]
    print(_facts(rows + ([] if found is None else _rows(found))).to_text())


def _ngrams(given: str) -> tuple[int, int]:
    try:
        low, high = (int(part) for part in given.split(","))
    except ValueError:
        raise ValueError(f"--ngrams: expected two numbers such as 1,2, got {given!r}") from None
    return low, high


def _method(name: str, epochs: int, device: str, checkpoint: Path | None) -> Fit:
    if name == "learned":
        from ..classifier.training import Learned

        return Learned(
            epochs=epochs, device=device, checkpoint=None if checkpoint is None else str(checkpoint)
        )
    if name != "placed":
        raise ValueError(f"--method: expected placed or learned, got {name!r}")
    if checkpoint is not None:
        raise ValueError("--checkpoint: only --method learned takes long enough to need one")
    from ..classifier.placement import Placed

    return Placed()


@app.command(epilog=COMMON)
def predict(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] FILE|-",
            help="Texts, one per line; or .csv .tsv .jsonl (also .gz); - is one per line on stdin. "
            "MODEL is a folder from `fit`; the shipped model (imdb) if absent.",
        ),
    ],
    text_column: TextColumn = "text",
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="A JSON object per text instead of label, probability.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Label and probability of every text, streamed: any number of them, in order.

    One line in, one line out; an empty line is a text without words and gets the prior.

    \b
    cynosure predict reviews.txt > labels.tsv
    zcat reviews.txt.gz | cynosure predict model - --jsonl
    """
    voice: Voice = ctx.obj
    model, source = _model_and(given, "FILE or -")
    if jsonl and json_:
        raise ValueError("--json and --jsonl: choose one")
    texts = _texts(source, text_column)
    clf = _load(model)
    classes = clf.classes_.tolist()
    out = sys.stdout
    if json_:
        head = {"version": __version__, "command": voice.command, "inputs": {"texts": source}}
        out.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "result": [')
    done = 0
    with voice.bar(None, " texts") as move:
        for chunk in _chunks(texts):
            p = clf.predict_proba(chunk)
            best = p.argmax(axis=1).tolist()
            lines = []
            for i, c in enumerate(best):
                score = float(p[i, c])
                if json_ or jsonl:
                    row = json.dumps({"label": classes[c], "score": score}, ensure_ascii=False)
                    lines.append((", " if done + i and json_ else "") + row)
                else:
                    lines.append(f"{classes[c]}\t{score:.6f}")
            out.write(("" if json_ else "\n").join(lines) + ("" if json_ else "\n"))
            out.flush()
            done += len(chunk)
            if move is not None:
                move(done)
    if json_:
        out.write("]}\n")
    voice.note(f"{done} texts")


@app.command(epilog=COMMON)
def explain(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] TEXT|-",
            help="The text itself, - for stdin. MODEL is a folder from `fit`; the shipped model "
            "(imdb) if absent.",
        ),
    ],
    label: Annotated[
        str | None, typer.Option(help="Explain this label [the predicted one].")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="The explanation as a page (.html).")] = None,
    json_: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Why a text gets its label: leaders, followers, contributions.

    Contributions and intercept add up to the log-odds exactly; it is the prediction itself.

    \b
    cynosure explain "A slow film, but what an ending!"
    cynosure explain model - --html why.html < review.txt
    """
    voice: Voice = ctx.obj
    model, text = _model_and(given, "TEXT or -")
    claim(html, (".html",), force)
    if text == "-":
        text = _decoded(sys.stdin.buffer.read(), "stdin")
    clf = _load(model)
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
        print(json.dumps(head | {"result": ex.to_dict()}, ensure_ascii=False))
        return
    _show(ex)


@app.command(epilog=COMMON)
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
    import time

    voice: Voice = ctx.obj
    model, data = _model_and(given, "DATA")
    clf = _load(model)
    held = _labelled(data, "test", text_column, label_column)
    texts = None if train is None else _labelled(train, "train", text_column, label_column)
    found = _evaluation(voice, clf, held, explained)
    rivals: list[dict[str, Any]] = []
    if texts is not None:
        from ..classifier.evaluation import Rivals

        voice.note(f"fitting the rivals on {len(texts)} texts")
        started = time.perf_counter()
        fitted = Rivals.fit(texts.texts, texts.labels, clf.vocabulary_.tokenizer.ngrams)
        seconds = round(time.perf_counter() - started, 1)
        for name, labels in fitted.predict(held.texts).items():
            accuracy = float((labels == held.labels).mean())
            rivals.append({"name": name, "accuracy": accuracy, "C": fitted.C[name]})
        voice.note(f"both fitted in {seconds} s, the choice of C included")
    if json_:
        from ..drawing.report import jsonable

        result = {"model": model or "imdb", "evaluation": jsonable(found), "rivals": rivals}
        _print_document(voice, [data, train], result)
        return
    print(_facts(_rows(found)).to_text())
    if found.faithfulness is not None:
        print("\n" + _faithful(found.faithfulness))
    if rivals:
        from ..drawing.report import Table

        rows = (("this model", found.accuracy), *((r["name"], r["accuracy"]) for r in rivals))
        print("\n" + Table("", ("fitted on the same texts", "accuracy"), rows).to_text())


# --- what the commands are given --------------------------------------------------------------


def _model_and(given: list[str], what: str) -> tuple[str | None, str]:
    """([MODEL], the rest): one argument is the rest, two are both."""
    if len(given) > 2:
        raise ValueError(
            f"expected [MODEL] and {what}, got {len(given)} arguments (quote the text)"
        )
    return (None, given[0]) if len(given) == 1 else (given[0], given[1])


def _load(model: str | None) -> HardmaxClassifier:
    from ..classifier.estimator import HardmaxClassifier
    from ..classifier.shipped import available, load_pretrained

    if model is None:
        return load_pretrained()
    if not Path(model).exists():
        if model in available():
            return load_pretrained(model)
        raise ValueError(
            f"{model}: no such model; expected a folder written by `cynosure fit`, "
            f"or {' or '.join(available())}"
        )
    return HardmaxClassifier.load(model)


def _labelled(spec: str, part: str, text: str, label: str) -> Dataset:
    """DATA[:train|:test]; `part` is what aclImdb gives without one."""
    from ..classifier.datasets import read

    path, mark, named = spec.rpartition(":")
    if mark and named in ("train", "test") and not Path(spec).exists():
        name = Path(path).name.lower()
        if not Path(path).is_dir() and not name.endswith((".tar", ".tar.gz", ".tgz")):
            raise ValueError(f"{spec}: only aclImdb has parts; name the file without :{named}")
        spec, part = path, named
    if not Path(spec).exists():
        raise ValueError(f"{spec}: no such file or folder (expected {DATA})")
    return read(spec, part=part, text=text, label=label)


def _texts(source: str, column: str) -> Iterator[str]:
    """The texts of a table, or the lines of a file or of stdin, one by one."""
    from ..classifier.datasets import stream

    if source == "-":
        return _lines(sys.stdin.buffer, "stdin")
    path = Path(source)
    if not path.exists():
        raise ValueError(f"{source}: no such file")
    if path.is_dir():
        raise ValueError(f"{source}: a folder; expected a file with one text per line, or a table")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv", ".jsonl", ".ndjson")):
        return (text for text, _ in stream(path, text=column, label=None))
    if name.endswith((".tar", ".tgz")):
        raise ValueError(f"{source}: an archive; expected one text per line, or a table")
    return _lines_of(path)


def _lines_of(path: Path) -> Iterator[str]:
    import gzip

    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as stream:
        try:
            yield from _lines(stream, str(path))
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: {error}") from None


def _lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Split at line feeds only: other breaks may stand inside a text."""
    for number, line in enumerate(stream, 1):
        text = _decoded(line, f"{name}, line {number}")
        yield (
            text.removesuffix("\n").removesuffix("\r").removeprefix("\ufeff" if number == 1 else "")
        )


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: not UTF-8 ({error.reason} at byte {error.start}); convert it, for example "
            "with `iconv -f latin1 -t utf-8`"
        ) from None


def _chunks(texts: Iterable[str], most: int = 4096, characters: int = 1 << 22) -> Iterator[list]:
    """A few texts first, for an early answer, then up to `most`; never many characters."""
    chunk: list[str] = []
    size, limit = 0, 16
    try:
        for text in texts:
            chunk.append(text)
            size += len(text)
            if len(chunk) >= limit or size >= characters:
                yield chunk
                chunk, size, limit = [], 0, min(2 * limit, most)
    except ValueError:  # a bad line: the good ones before it are answered first
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


# --- what they show ---------------------------------------------------------------------------


def _print_document(voice: Voice, sources: list[str | None], result: dict[str, Any]) -> None:
    """One JSON document: what made it, from which files, and the result."""
    named = [source for source in sources if source is not None]
    head = {"version": __version__, "command": voice.command, "inputs": {"data": named}}
    print(json.dumps(head | {"result": result}, allow_nan=False, ensure_ascii=False))


def _evaluation(voice: Voice, clf: HardmaxClassifier, held: Dataset, explained: int) -> Evaluation:
    from ..classifier.evaluation import evaluate as judge

    with voice.bar(1.0, "") as move:
        return judge(clf, held.texts, held.labels, explained=explained, progress=move)


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(rows: list[tuple[str, str]]) -> Table:
    from ..drawing.report import Table

    return Table("", ("", ""), tuple(rows))


def _rows(found: Evaluation) -> list[tuple[str, str]]:
    return [
        ("texts", str(found.texts)),
        ("accuracy", f"{found.accuracy:.4f} +- {found.standard_error:.4f}"),
        ("calibration error", f"{found.calibration:.4f}"),
        ("log-loss", f"{found.log_loss:.4f}"),
        ("leaders per text", f"{found.leaders:.2f}"),
        ("weight on leaders", f"{found.on_leaders:.4f}"),
        ("alpha, layers, dim", f"{found.alpha:g}, {found.layers}, {found.dim}"),
        ("terms", str(found.terms)),
        ("texts without a known word", str(found.unknown)),
    ]


def _faithful(found: Faithfulness) -> str:
    from ..drawing.report import Table

    rows = tuple((d.name, d.flipped, d.terms, d.drop, d.words, d.struck) for d in found.deletions)
    head = ("deleted", "flipped", "terms", "fall of probability", "words", "flipped, struck out")
    median, mean, tail = found.words_to_flip
    return (
        f"{Table('', head, rows).to_text()}\n"
        f"Words struck out, strongest cluster first: {found.flipped_at_all:.1%} flip, after "
        f"{median:.0f} words (median; mean {mean:.1f}, 95 % within {tail:.0f});\n"
        f"{found.flipped_within:.1%} within {found.most_words} words, where words chosen to flip "
        f"reach {found.best_within:.1%}. {found.texts} texts explained."
    )


def _show(ex: Explanation) -> None:
    """The verdict, the words in place (on a terminal), and a row per leader."""
    from ..drawing.report import Table
    from .terminal import painted, plain, wants_colour

    sure = ex.probability if ex.prediction == ex.label else 1.0 - ex.probability
    print(
        f"{ex.prediction}  probability {sure:.3f}\n"
        f"log-odds of {ex.label} {ex.decision:+.3f} = intercept {ex.intercept:+.3f} "
        f"and {len(ex.leaders)} leaders:"
    )
    if ex.note:
        print(ex.note)
    if ex.leaders:
        rows = tuple(
            (
                plain(leader.text), round(leader.contribution, 3), round(leader.share, 3),
                round(leader.score, 2), _followers(leader.followers),
            )
            for leader in ex.leaders
        )  # fmt: skip
        head = ("leader", "contribution", "share", "score", "followers")
        print(Table("", head, rows).to_text())
    if wants_colour(sys.stdout):
        print("\n" + painted(ex))


def _followers(words: tuple[Any, ...], shown: int = 6) -> str:
    from .terminal import plain

    names = [plain(w.text) for w in sorted(words, key=lambda w: -abs(w.contribution))]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
