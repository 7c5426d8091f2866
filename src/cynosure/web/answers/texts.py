"""Answers about texts: labels and explanations by the classifiers named when the server started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...classifier.bundled import available, load_pretrained
from ...classifier.estimator import HardmaxClassifier
from ...classifier.explaining.page_data import plane_view
from . import File

Asked = Mapping[str, Any]
_CARD = 20_000  # characters of a card


def classifiers(folders: Mapping[str, str]) -> dict[str, Callable[[], HardmaxClassifier]]:
    """Name -> loader: the folders named at start first, then the models that are shipped."""
    named = {name: lambda path=path: HardmaxClassifier.load(path) for name, path in folders.items()}
    shipped = {name: lambda name=name: load_pretrained(name) for name in available()}
    return {**named, **{name: load for name, load in shipped.items() if name not in named}}


def text_answers(folders: Mapping[str, str]) -> dict[str, Callable[..., dict[str, Any]]]:
    """The answers of a server that was given these model folders (name -> path)."""
    loaders = classifiers(folders)

    @cache
    def loaded(name: str) -> HardmaxClassifier:
        return loaders[name]()

    def chosen(asked: Asked) -> HardmaxClassifier:
        name = asked.get("model") or next(iter(loaders))
        if name not in loaders:
            raise ValueError(f"model: there are {', '.join(loaders)}; got {name!r:.60}")
        return loaded(name)

    def models(asked: Asked) -> dict[str, Any]:
        """Every classifier: its labels, its settings, its card."""
        return {"models": [_described(name, loaded(name), folders.get(name)) for name in loaders]}

    def predict(asked: Asked) -> dict[str, Any]:
        """Label, probability and log-odds of every text, in order; no label without evidence."""
        clf = chosen(asked)
        verdicts = clf.read(asked["texts"])
        decision = verdicts.decision
        best = clf._opened.winners(verdicts)
        labels, predictions = [str(label) for label in clf.classes_], []
        columns = (best, clf.probabilities(decision), decision, verdicts.evidence)
        for k, p, x, said in zip(*(column.tolist() for column in columns)):
            label, probability = (labels[k], p[k]) if said else (None, None)
            shown = x[-1 if len(labels) == 2 else k]
            predictions.append({"label": label, "probability": probability, "decision": shown})
        return {"labels": labels, "predictions": predictions}

    def explain(asked: Asked) -> dict[str, Any]:
        """The explanation of one text: words, leaders, clusters, the plane, the sum."""
        clf = chosen(asked)
        label = asked["label"]
        known = {str(one): one for one in clf.classes_.tolist()}
        if label is not None and label not in known:
            raise ValueError(f"label: expected one of {', '.join(known)}; got {label!r:.60}")
        of = None if label is None else known[label]
        ex = clf.explain(asked["text"], of, struck=asked["struck"])
        spans = [[w.text, *span, w.token, w.contribution] for w in ex.words for span in w.offsets]
        words = [list(row) for row in clf.vocabulary_.tokenizer.words(asked["text"])]
        more = {"prediction": ex.prediction, "spans": spans, "words": words}
        return ex.to_dict() | plane_view(ex) | more

    def card(asked: Asked) -> dict[str, Any]:
        """The whole of what a model knows, as a page."""
        from ...classifier.evaluating.model_card import card as described

        page = described(chosen(asked), name=asked["model"]).to_html()
        raise File("text/html; charset=utf-8", page.encode())

    return {"models": models, "predict": predict, "explain": explain, "card": card}


def _described(name: str, clf: HardmaxClassifier, folder: str | None) -> dict[str, Any]:
    place = Path(folder) if folder else Path(__file__).parents[2] / "classifier" / "models" / name
    card = place / "README.md"
    said = card.read_text("utf-8", errors="replace")[:_CARD] if card.is_file() else ""
    settings = clf.get_params(deep=False)
    settings.pop("method", None)
    return {
        "name": name,
        "labels": [str(label) for label in clf.classes_],
        "terms": len(clf.vocabulary_),
        "settings": {k: v if isinstance(v, int | float) else str(v) for k, v in settings.items()},
        "card": said,
    }
