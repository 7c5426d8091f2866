"""Explanations for a text pipeline that people already have: a vectorizer and a linear model.

The score of a linear model is an intercept and a sum of terms, score = b + sum_j u_j, where
u_j = x_j w_j is the entry of the vectorizer times the coefficient. `read_linear` reads the terms by
falling |u_j| and stops where those read outweigh what the others could still say:

    side (b + sum of u over the terms read) >= kappa sqrt(sum of u^2 over the others),

`side` being the sign of the score. So the terms read give the verdict of the pipeline by
themselves. The pipeline is asked, never refitted: every verdict here is its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, final

import numpy as np

from .explaining.deletion import Span, least_turning, spans
from .explaining.explanation import saved, words_and_spans
from .explaining.passages import Passage, Place, bracketed, passages, pieces
from .text.inputs import as_texts

__all__ = ["LinearExplanation", "LinearReader", "LinearTerm", "read_linear"]

_CLOSE = 1e-6  # of the score that the pipeline gives itself


@final
@dataclass(frozen=True)
class LinearTerm:
    """A feature of the text: where it stands (nowhere if the tokenizer hides it), and x_j w_j."""

    text: str
    offsets: tuple[Place, ...]
    contribution: float


@final
@dataclass(frozen=True, eq=False)
class LinearExplanation:
    """Why a pipeline gives a text its label. `intercept` and the contributions of `terms` add up to
    `decision`, the score of `label`; with several classes its lead over the score of `other`, the
    second. `probability` is what the pipeline says of `label`, or None."""

    text: str
    label: str
    other: str
    decision: float
    intercept: float
    probability: float | None
    terms: tuple[LinearTerm, ...]
    kappa: float
    words: tuple[Place, ...]
    verdicts: Callable[[Sequence[str]], list[str]]

    def __repr__(self) -> str:
        return f"LinearExplanation({self.headline}, {len(self.read)} of {len(self.terms)} terms)"

    @property
    def headline(self) -> str:
        """The label with its probability, where there is one, and its score."""
        sure = "" if self.probability is None else f" {100 * self.probability:.1f} %,"
        return f"{self.label}{sure} score {self.decision:+z.3f} against {self.other}"

    @cached_property
    def read(self) -> tuple[LinearTerm, ...]:
        """The terms that give this verdict by themselves, the weightiest first. None where the
        intercept does."""
        u = np.array([term.contribution for term in self.terms])
        order = np.argsort(-np.abs(u), kind="stable")
        said = self.intercept + np.concatenate(([0.0], np.cumsum(u[order])))
        left = np.append(np.cumsum(u[order][::-1] ** 2)[::-1], 0.0)
        ahead = said >= self.kappa * np.sqrt(left)
        stop = int(np.argmax(ahead)) if ahead.any() else len(u)
        return tuple(self.terms[j] for j in order[:stop].tolist())

    @property
    def rest(self) -> float:
        """What the terms that were not read contribute together."""
        return self.decision - self.intercept - sum(term.contribution for term in self.read)

    @property
    def enough(self) -> tuple[str, ...]:
        """The words of the terms read."""
        return tuple(dict.fromkeys(w for term in self.read for w in term.text.split(" ")))

    @cached_property
    def overturn(self) -> tuple[str, ...]:
        """Words without which the pipeline gives another label, wherever they stand in the text; ()
        where none were found. The set is found, not proved smallest."""
        shown = [self.text[a:b] for a, b in self.words]
        at = {a: k for k, (a, _) in enumerate(self.words)}

        def covered(a: int, b: int) -> Iterable[str]:
            return (shown[k].lower() for k in range(at[a], len(shown)) if self.words[k][1] <= b)

        inside = [frozenset(w for o in term.offsets for w in covered(*o)) for term in self.terms]

        def turns(sets: Sequence[Sequence[str]]) -> np.ndarray:
            found = self.verdicts([self.without(words) for words in sets])
            return np.array(found) != self.label

        return tuple(least_turning(inside, [term.contribution for term in self.terms], turns))

    def without(self, words: Collection[str]) -> str:
        """The text with these words deleted wherever they stand, in any case."""
        gone = {w.lower() for w in words}
        out, at = [], 0
        for a, b in self.words:
            if self.text[a:b].lower() in gone:
                out.append(self.text[at:a])
                at = b
        return "".join(out) + self.text[at:]

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The terms read, those that overlap as one, the largest contribution first."""
        placed = ((t.text, t.offsets, t.contribution) for t in self.read if t.offsets)
        return spans(self.text, placed)

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        """The text divided among the words read, as `Explanation.passages` is."""
        placed = ((t.offsets, t.contribution) for t in self.read if t.offsets)
        return passages(self.text, self.words, placed)

    @property
    def marked(self) -> str:
        """The text with its passages in brackets, each with its contribution."""
        return bracketed(self.text, self.passages)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        return {
            "text": self.text, "label": self.label, "other": self.other,
            "decision": self.decision, "intercept": self.intercept, "rest": self.rest,
            "probability": self.probability, "enough": list(self.enough),
            "overturn": list(self.overturn),
            "read": [
                {"text": t.text, "offsets": [list(o) for o in t.offsets],
                 "contribution": t.contribution}
                for t in self.read
            ],
            "passages": [passage.to_dict() for passage in self.passages],
        }  # fmt: skip

    def to_html(self) -> str:
        """One self-contained page: the verdict, the text with its passages, the terms read."""
        from ..drawing.page import page

        most = max((abs(p.contribution) for p in self.passages), default=0.0) or 1.0
        out = []
        for passage, cut in groupby(pieces(self.text, self.passages), key=itemgetter(1)):
            shown = "".join(f"<b>{escape(x)}</b>" if read else escape(x) for x, _, read in cut)
            if passage is not None:
                tone = "for" if passage.contribution >= 0 else "against"
                look = (
                    f"background: rgba(var(--{tone}), {0.6 * abs(passage.contribution) / most:.3f})"
                )
                said = f" <small>{passage.contribution:+z.2f}</small>"
                shown = f'<span style="{look}">{shown}{said}</span>'
            out.append(shown)
        rows = "".join(
            f'<tr><td>{escape(name)}</td><td class="r">{x:+z.3f}</td></tr>'
            for name, x in [
                *((t.text, t.contribution) for t in self.read),
                (f"{len(self.terms) - len(self.read)} other terms", self.rest),
                ("intercept", self.intercept), ("score", self.decision),
            ]
        )  # fmt: skip
        turning = ", ".join(self.overturn)
        body = (
            f"<h1>{escape(self.headline)}</h1>"
            f"<p>{escape(f'Without {turning} the verdict turns.') if turning else ''}</p>"
            f'<p style="white-space: pre-wrap">{"".join(out)}</p>'
            '<p class="note">Bold words were read and give this verdict by themselves. The other '
            "words of a passage follow the nearest of them.</p>"
            f"<table><thead><tr><th>term</th><th>contribution to {escape(self.label)}</th></tr>"
            f"</thead><tbody>{rows}</tbody></table>"
        )
        css = (Path(__file__).parent / "explaining" / "explanation.css").read_text("utf-8")
        return page(self.headline, body, css)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.to_html())}" width="100%" height="480"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page (.html)."""
        return saved(path, {".html": self.to_html})


def read_linear(pipeline: Any, *, kappa: float = 1.0) -> LinearReader:
    """Returns a reader that explains the verdicts of a fitted scikit-learn text pipeline.

    Parameters
    ----------
    pipeline : a fitted `Pipeline` of a CountVectorizer or TfidfVectorizer over words, steps that
        keep its columns (TfidfTransformer, SelectKBest, scalers), and a linear model with `coef_`
        (LogisticRegression, LinearSVC, SGDClassifier, RidgeClassifier, ...) or MultinomialNB.
    kappa : how far the deciding terms must outweigh the rest, in standard deviations of the rest;
        a larger value takes more terms.

    Returns
    -------
    LinearReader
        `predict` and `explain`, as of a HardmaxClassifier.

    Raises
    ------
    ValueError
        If the pipeline is not linear in words, or not fitted.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> texts = ["good film", "fine, good", "bad film", "dull, bad"]
    >>> model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10))
    >>> reader = read_linear(model.fit(texts, ["pos", "pos", "neg", "neg"]))
    >>> reader.explain("a good film with a dull end").enough
    ('good',)
    """
    return LinearReader(pipeline, kappa)


@final
class LinearReader:
    """Explains a fitted pipeline, see `read_linear`."""

    def __init__(self, pipeline: Any, kappa: float = 1.0) -> None:
        steps = [step for _, step in getattr(pipeline, "steps", [])]
        if len(steps) < 2 or not all(
            hasattr(steps[0], name) for name in ("build_analyzer", "vocabulary_", "token_pattern")
        ):
            raise ValueError(
                "pipeline: expected a fitted Pipeline of CountVectorizer or TfidfVectorizer and a "
                f"linear model, got {type(pipeline).__name__} of "
                f"{[type(step).__name__ for step in steps]}; make_pipeline(vectorizer, model) "
                "joins two fitted steps"
            )
        if not kappa > 0:
            raise ValueError(f"kappa: expected a number > 0, got {kappa!r}")
        self.pipeline, self.kappa = pipeline, float(kappa)
        self.vectorizer, self.final = steps[0], steps[-1]
        if self.vectorizer.analyzer != "word":
            raise ValueError(
                f"pipeline: expected analyzer='word', got {self.vectorizer.analyzer!r}; parts of "
                "words have no words to show"
            )
        self.weight, self.intercept = _linear(self.final)
        names = list(pipeline[:-1].get_feature_names_out())
        if len(names) != self.weight.shape[1] or not set(names) <= set(self.vectorizer.vocabulary_):
            raise ValueError(
                "pipeline: a step between the vectorizer and the model mixes its columns; expected "
                "steps that keep or select them"
            )
        self.names = names
        self.classes = [str(c) for c in self.final.classes_]

    def explain(self, text: str) -> LinearExplanation:
        """Why the pipeline gives `text` its label."""
        (text,) = as_texts([text], "text")
        x = self.pipeline[:-1].transform([text])
        row = x.toarray()[0] if hasattr(x, "toarray") else np.asarray(x)[0]
        (column,) = np.nonzero(row)
        scores = self._scores(row, x)
        order = np.argsort(-scores, kind="stable")
        first, second = int(order[0]), int(order[1])
        u = row[column] * (self.weight[first, column] - self.weight[second, column])
        words, places = self._placed(text)
        terms = tuple(
            LinearTerm(self.names[j], tuple(places.get(self.names[j], ())), float(one))
            for j, one in zip(column.tolist(), u.tolist())
        )
        sure = getattr(self.pipeline, "predict_proba", None)
        return LinearExplanation(
            text=text, label=self.classes[first], other=self.classes[second],
            decision=float(scores[first] - scores[second]),
            intercept=float(self.intercept[first] - self.intercept[second]),
            probability=None if sure is None else float(sure([text])[0][first]), terms=terms,
            kappa=self.kappa, words=tuple(words), verdicts=self._verdicts,
        )  # fmt: skip

    def explain_all(self, X: Any) -> list[dict[str, Any]]:
        """A row for each text: `DataFrame(reader.explain_all(texts))`."""
        return [
            {"text": ex.text, "label": ex.label, "probability": ex.probability,
             "decision": ex.decision, **words_and_spans(ex)}
            for ex in map(self.explain, as_texts(X))
        ]  # fmt: skip

    def _verdicts(self, texts: Sequence[str]) -> list[str]:
        return [str(label) for label in self.pipeline.predict(list(texts))]

    def _scores(self, row: np.ndarray, x: Any) -> np.ndarray:
        """The score of each class, which has to be what the pipeline computes."""
        scores = self.weight @ row + self.intercept
        own = getattr(self.final, "decision_function", None)
        if own is None:
            own = self.final.predict_joint_log_proba
        said = np.atleast_1d(np.asarray(own(x))[0])
        said = np.array([0.0, said[0]]) if len(said) == 1 else said
        if np.abs(said - scores).max() > _CLOSE * (1 + np.abs(said).max()):
            raise ValueError(
                f"pipeline: {type(self.final).__name__} is not the sum of its coefficients "
                f"({said.tolist()} against {scores.tolist()})"
            )
        return scores

    def _placed(self, text: str) -> tuple[list[Place], dict[str, list[Place]]]:
        """Where the words stand, and the features that the vectorizer makes of them."""
        make = self.vectorizer
        prepared, cut = make.build_preprocessor(), make.build_tokenizer()
        tokens = cut(prepared(text))
        if make.tokenizer is None:
            places = [m.span(m.re.groups) for m in re.finditer(make.token_pattern, text)]
        else:
            places = []
        if [prepared(text[a:b]) for a, b in places] != tokens:
            places = list(_searched(text, tokens))
        kept = [(w, p) for w, p in zip(tokens, places) if w not in (make.get_stop_words() or ())]
        where: dict[str, list[Place]] = {}
        low, high = make.ngram_range
        for i in range(len(kept)):
            for n in range(low, min(high, len(kept) - i) + 1):
                some = kept[i : i + n]
                if all(b > a for _, (a, b) in some):
                    name = " ".join(w for w, _ in some)
                    where.setdefault(name, []).append((some[0][1][0], some[-1][1][1]))
        return sorted({p for p in places if p[1] > p[0]}), where


def _searched(text: str, tokens: Iterable[str]) -> Iterable[Place]:
    """Where each token of a tokenizer stands, searched from the one before; (0, 0) if nowhere."""
    folded = text.lower() if len(text.lower()) == len(text) else text
    at = 0
    for token in tokens:
        found = folded.find(token, at)
        yield (found, found + len(token)) if found >= 0 else (0, 0)
        at = max(at, found + len(token)) if found >= 0 else at


def _linear(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights (classes, features) and intercepts (classes,); of two classes the first has zeros."""
    if type(model).__name__ == "MultinomialNB" and hasattr(model, "feature_log_prob_"):
        return model.feature_log_prob_, model.class_log_prior_
    weight, intercept = getattr(model, "coef_", None), getattr(model, "intercept_", None)
    if weight is None or not hasattr(model, "classes_"):
        raise ValueError(
            f"pipeline: expected a fitted linear classifier with coef_, got {type(model).__name__}"
            + ("; give its estimator" if hasattr(model, "calibrated_classifiers_") else "")
        )
    weight = np.atleast_2d(weight.toarray() if hasattr(weight, "toarray") else weight)
    bias = np.broadcast_to(np.asarray(intercept, float), len(weight))
    if len(weight) == 1:
        return np.vstack((np.zeros_like(weight), weight)), np.array([0.0, bias[0]])
    return weight, bias.copy()
