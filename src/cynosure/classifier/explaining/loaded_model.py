"""A fitted classifier that only reads: predictions and explanations, without scikit-learn.

Most of a second goes into importing scikit-learn, which fitting needs and reading does not, so the
command line opens models this way; `HardmaxClassifier` reads through the same object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np

from ..model.model import FOLDER, Model, Verdicts, load_files
from ..text.inputs import as_texts
from ..text.vocabulary import Vocabulary
from .deletion import TextModel
from .explanation import Explanation, explain, row_of


@final
@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model, its vocabulary, and the labels of its decisions."""

    model: Model
    vocabulary: Vocabulary
    classes_: np.ndarray

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LoadedModel:
        """Read a folder written by `HardmaxClassifier.save`; nothing is unpickled."""
        model, vocabulary, settings = load_files(path)
        try:
            return cls(model, vocabulary, classes_of(settings["classes"], model.rows))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise FOLDER.refused(Path(path), f"settings: {error}") from None

    def read(self, X: Any, layers: int | None = None, jobs: int = 1) -> Verdicts:
        """Verdicts on the texts X, through the model's layers or another number of them."""
        texts = as_texts(X)

        def one(part: Sequence[str]) -> Verdicts:
            return self.model.read(self.vocabulary.encode(part), layers=layers)

        if jobs == 1 or len(texts) < 2 * jobs:
            return one(texts)
        cut = np.linspace(0, len(texts), jobs + 1).astype(int).tolist()
        return Verdicts.joined(_threads(one, [texts[a:b] for a, b in pairwise(cut)]))

    def read_with_words(self, texts: Sequence[str]) -> tuple[Verdicts, list[tuple[str, ...]]]:
        """The same verdicts, and the words that decided each: `explain(text).enough`."""
        from .evidence import read_with_words

        verdicts, deciding = read_with_words(self, texts)
        return verdicts, deciding.tuples()

    def probabilities(self, decision: np.ndarray) -> np.ndarray:
        """Probabilities (texts, classes) from the decisions (texts, rows) of `read`."""
        decision = np.clip(decision, -500.0, 500.0)
        if self.shared:
            inside = np.exp(decision - decision.max(axis=1, keepdims=True, initial=-500.0))
        else:
            inside = 1.0 / (1.0 + np.exp(-decision))
        if len(self.classes_) == 2:
            return np.column_stack((1.0 - inside[:, 0], inside[:, 0]))
        return inside / inside.sum(axis=1, keepdims=True)

    def evidence(self, verdicts: Verdicts) -> np.ndarray:
        """(texts,) how far the words move the log-odds from the prior: of two classes; of several
        the most that a log-odds against the mean of the others moves. 0 where nothing was read."""
        prior = np.concatenate([plane.prior for plane in self.model.planes])
        moved = verdicts.decision - prior
        if moved.shape[1] > 1:
            moved = moved - moved.mean(axis=1, keepdims=True)
        return np.where(verdicts.evidence, np.abs(moved).max(axis=1), 0.0)

    @property
    def shared(self) -> bool:
        """Whether the classes, more than two, share one softmax."""
        return len(self.classes_) > 2 and (self.model.joint or len(self.model.planes) == 1)

    def winners(self, verdicts: Verdicts) -> np.ndarray:
        """The number of the class that wins in each text."""
        decision = verdicts.decision
        if len(self.classes_) == 2:
            return (decision[:, 0] > 0).astype(np.intp)
        return decision.argmax(axis=1)

    def labels(self, verdicts: Verdicts) -> np.ndarray:
        """The label that wins in each text."""
        return self.classes_[self.winners(verdicts)]

    def explain(self, text: str, label: Any = None, struck: Collection[str] = ()) -> Explanation:
        """See `HardmaxClassifier.explain`."""
        (text,) = as_texts([text], "text")
        known = self.classes_.tolist()
        if label is not None and not (isinstance(label, Hashable) and label in known):
            raise ValueError(f"label: expected one of {known}, got {label!r}")
        two = len(self.classes_) == 2
        gone = frozenset(map(self.vocabulary.tokenizer.spelling, struck))
        verdict = self.model.read(self.vocabulary.without(text, [gone]))
        if label is None:
            label = self.classes_[1] if two else self.labels(verdict)[0]
        column = known.index(label)
        others = np.delete(verdict.decision[0], column) if self.shared else None
        return explain(
            text, TextModel(self.vocabulary, self.model), 0 if two else column,
            -1.0 if two and not column else 1.0, label=str(self.classes_[column]),
            other=str(self.classes_[1 - column]) if two else "the other classes",
            probability=float(self.probabilities(verdict.decision)[0, column]),
            others=others, struck=gone, evidence=bool(verdict.evidence[0]),
        )  # fmt: skip

    def explain_all(self, X: Any) -> list[dict[str, Any]]:
        """See `HardmaxClassifier.explain_all`."""
        return [row_of(self.explain(text)) for text in as_texts(X)]


def _threads(work: Callable[[Sequence[str]], Verdicts], parts: list[list[str]]) -> list[Verdicts]:
    """The parts side by side; the compiled work holds no lock."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(work, parts))


def classes_of(labels: Any, rows: int) -> np.ndarray:
    """The labels of a saved model, one per decision; two share one."""
    kinds = {type(label) for label in labels}
    if not isinstance(labels, list) or not kinds <= {str, int, float, bool} or len(kinds) != 1:
        raise ValueError("expected classes as strings or numbers")
    if len(set(labels)) != len(labels) or rows != (1 if len(labels) == 2 else len(labels)):
        raise ValueError(f"expected a class per decision, got {len(labels)} for {rows}")
    return np.array(labels)
