"""HardmaxClassifier: a scikit-learn classifier of texts whose explanation is its computation."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, SupportsFloat, final

import numpy as np
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .._blame import shown
from .._exports import guarded
from .._progress import showing
from .._types import as_array
from .explaining.explanation import Explanation
from .explaining.loaded_model import LoadedModel, classes_of
from .fitting.choosing import least_texts, turns_words
from .fitting.parameters import Parameters, as_json, class_weights, repetitions, seed_of, whole
from .fitting.placement import AUTO_WORDS, Fit, Placed, Task
from .model.model import FOLDER, Verdicts, load_files, save_files
from .text.inputs import as_labels, as_texts
from .text.vocabulary import Tokenizer, Vocabulary, name_of

__all__ = ["HardmaxClassifier", "Lexeme"]


@final
@dataclass(frozen=True)
class Lexeme:
    """A word that leads: in how many texts, its polarity <v, E>, the mean share of its cluster."""

    term: str
    texts: int
    score: float
    share: float


@guarded
@final
class HardmaxClassifier(ClassifierMixin, BaseEstimator):
    """Text classifier whose tokens gather around a few leader words (arXiv 2407.01602).

        z^0 = embeddings of the distinct known terms and one neutral token,
        z^{k+1} = PureAttention(z^k),   decision = b + < v, mean_i z_i^layers >

    (the neutral token counts m times in the mean, see `cynosure.classifier.model.model`).

    Two classes share one plane. With more, `Placed` gives each class a plane of its own, in at
    least three dimensions, so every decision can be drawn; all planes use the same words.
    `Learned` gives each class a decoder row.
    A text without any known term gets the prior of the training labels, and `explain` says so.

    Parameters
    ----------
    dim : dimension of the tokens.
    ngrams : (low, high), the n-grams taken as terms.
    leaders : budget of leaders per text, on average over the training texts (of each plane).
        Where `words="auto"` leaves its budget, this one is left too; `words=14` keeps both.
    words : budget of deciding words per text, on average over held-out texts. Terms are taken by
        decreasing weight until the rest is unlikely to change the label; all others follow the
        neutral token. None sets no bound. "auto" is 14, or more where 14 would lose too much of
        what the texts tell: an eighth (0.5 % with several classes) of 10,000 texts a class, less
        of fewer; `notes_` then says so.
    C : inverse regularisation of the convex fit; None chooses it on held-out texts.
    method : how to fit: `Placed()` (the default: convex, seconds) or `Learned()` (gradient, torch).
    alpha, layers : step (> 0) and number of the attention layers.
    lowercase, min_df, max_features : vocabulary, as in scikit-learn's CountVectorizer; min_df is a
        number of texts (a whole number) or a share of them (a float from 0.0 to 1.0). None takes 1
        where all texts together have fewer than about 500,000 words, else 2.
    negation : True makes up to three words after a negator (not, never, didn't, ...), up to the
        next punctuation, words of their own: "not_good". "opposite" also gives them half the
        opposite weight of the plain word, if that word has a clear side ("not bad at all"). None
        chooses between "opposite" and False on held-out texts; labels other than sentiments are
        told apart better without.
    negators : "english", "german", "french", "spanish", "italian", or a list: the words
        that negate those after them, if `negation` is on.
    tokenizer : a function from a text to the list of its words, such as `str.split`, instead of the
        rules for words of this package; they are put in lower case if `lowercase`. Texts that are
        split already: join them by spaces, with `str.split`. `explain` needs words that stand in
        the text. A saved model has the name of the function, module:name.
    stop_words : None, "english" or a list of words: no term contains one of them.
    class_weight : None, "balanced", or a weight per label, by which its texts count.
    n_jobs : threads that read texts; None is one, -1 as many as there are processors.
    random_state : an int; the same int gives the same model. From a RandomState or None an int is
        drawn at each fit.

    Examples
    --------
    >>> import cynosure as cy
    >>> data = cy.datasets.synthetic(200)
    >>> clf = cy.HardmaxClassifier(leaders=6).fit(data.texts, data.labels)
    >>> clf.predict(["a wonderful, moving film", "dull and tedious"]).tolist()
    ['positive', 'negative']
    """

    def __init__(
        self,
        dim: SupportsFloat = 2,  # numpy's numbers too: a grid search makes them
        ngrams: Sequence[SupportsFloat] = (1, 2),
        leaders: SupportsFloat = 15,
        *,
        words: SupportsFloat | str | None = "auto",
        C: SupportsFloat | None = None,
        method: Fit | None = None,
        alpha: SupportsFloat = 1.0,
        layers: SupportsFloat = 8,
        lowercase: bool | np.bool_ = True,
        negation: bool | np.bool_ | str | None = None,
        negators: str | Sequence[str] = "english",
        tokenizer: Callable[[str], Iterable[str]] | None = None,
        stop_words: str | Sequence[str] | None = None,
        min_df: SupportsFloat | None = None,
        max_features: SupportsFloat | None = None,
        class_weight: Any = None,
        n_jobs: SupportsFloat | None = None,
        random_state: Any = 0,
    ) -> None:
        self.dim, self.ngrams, self.leaders, self.words = dim, ngrams, leaders, words
        self.C, self.method, self.alpha, self.layers = C, method, alpha, layers
        self.lowercase, self.negation, self.negators = lowercase, negation, negators
        self.tokenizer, self.stop_words = tokenizer, stop_words
        self.min_df, self.max_features = min_df, max_features
        self.class_weight, self.n_jobs, self.random_state = class_weight, n_jobs, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HardmaxClassifier:
        """Learn vocabulary, placement and decoder from texts X and labels y.

        A text of weight k counts as k equal texts with that label would, in the vocabulary too
        (`min_df` and `max_features` count weights), and one of weight 0 as if it were not there.
        The weight of a class multiplies that of its texts. Every class needs a text that counts.
        Trap: weights that sum to 1 leave no term in `min_df` texts; scale them to a mean of 1.
        """
        texts, labels = as_texts(X), as_labels(y)
        given = self._checked(len(texts), len(labels))
        rows, times = _counted(texts, labels, repetitions(sample_weight, len(texts)))
        gone = set(labels.tolist()) - set(labels[rows].tolist())
        if gone and len(gone) < len(set(labels.tolist())) - 1:
            raise ValueError(
                f"sample_weight: leaves no text of the class {min(gone, key=str)!r}, which would "
                "silently not be known; drop its texts from X and y, or give one a weight > 0"
            )
        texts, labels = [texts[i] for i in rows.tolist()], labels[rows]
        classes, number = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            weighed = "" if sample_weight is None else " with a weight > 0"
            raise ValueError(
                f"y: expected at least two classes{weighed}, got one class: {classes.tolist()}"
            )
        weight = class_weights(self.class_weight, classes, number, times)[number] * times
        self.seed_ = seed_of(self.random_state)
        least: float | int = least_texts(texts, weight)
        if given.min_df is not None:
            least = given.threshold(float(weight.sum()))
        tokenizer = Tokenizer(
            given.ngrams, given.lowercase, negators=given.negators, own=given.tokenizer
        )
        negation = given.negation
        if negation is None:
            turns = turns_words(texts, number, weight, tokenizer, least, self.seed_)
            negation = "opposite" if turns else False
        vocabulary, documents = Vocabulary.build(
            texts, replace(tokenizer, negation=bool(negation)), min_df=least, times=weight,
            max_features=given.max_features, stop_words=given.stop_words,
        )  # fmt: skip
        if not len(vocabulary):
            weighed = "" if (weight == 1).all() else ", counted by their weights"
            raise ValueError(
                f"texts: no term occurs in {least:g} texts{weighed}; give more texts or min_df=1"
            )
        words = AUTO_WORDS if isinstance(given.words, str) else given.words
        task = Task(
            documents=documents, y=number, weight=weight,
            df=np.bincount(documents.indices, weight[documents.text], len(vocabulary)),
            spelled=vocabulary.spelled,
            turns=(vocabulary.opposites, vocabulary.negating) if negation == "opposite" else None,
            classes=len(classes), dim=given.dim, leaders=given.leaders,
            words=words, strict=words is given.words,
            alpha=given.alpha, layers=given.layers, seed=self.seed_,
        )  # fmt: skip
        with showing(None, "fitting"):
            self.model_ = (self.method or Placed(C=given.C)).model(task)
        self.vocabulary_, self.classes_ = vocabulary, classes
        self.texts_: int | None = round(float(times.sum()))  # of the training, for the card
        self.notes_ = tuple(task.notes)
        return self

    def _checked(self, texts: int, labels: int) -> Parameters:
        if texts != labels:
            raise ValueError(f"expected one label per text, got {texts} texts and {labels} labels")
        if not texts:
            raise ValueError("texts: expected at least one text, got none")
        if not isinstance(self.method, Fit | None):
            raise TypeError(f"method: expected Placed() or Learned(), got {self.method!r}")
        if self.method is not None and self.C is not None:
            both = f"{self.C!r} beside method={self.method!r}"
            raise ValueError(f"C: got {both}; say it once, there or here")
        return Parameters.of(self.get_params(deep=False))

    def read(self, X: Any, layers: SupportsFloat | None = None) -> Verdicts:
        """Decisions with the number of leaders and the share of the mean on leaders, per text."""
        depth = None if layers is None else whole("layers", layers, 0, " or None")
        jobs = 1 if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        return self._opened.read(X, depth, jobs)

    @property
    def _opened(self) -> LoadedModel:
        check_is_fitted(self, "model_")
        return LoadedModel(self.model_, self.vocabulary_, self.classes_)

    def decision_function(self, X: Any, layers: SupportsFloat | None = None) -> np.ndarray:
        """Log-odds of classes_[1], shape (texts,); one column per class when there are more.

        `layers` reads the same model at another depth: with 0 every word speaks.
        """
        decision = (self.read(X) if layers is None else self.read(X, layers)).decision
        return decision[:, 0] if len(self.classes_) == 2 else decision

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (texts, classes); with more than two classes the softmax of the decisions.
        A text without a known term gets the prior: the shares of the classes in training."""
        return self.probabilities(self.read(X).decision)

    def probabilities(self, decision: np.ndarray) -> np.ndarray:
        """What `predict_proba` makes of the decisions (texts, rows) of `read`."""
        expected = "decisions of shape (texts, rows)"
        return self._opened.probabilities(as_array(decision, "decision", expected))

    def predict(
        self,
        X: Any,
        *,
        abstain: Any = None,
        probability: SupportsFloat = 0.0,
        evidence: SupportsFloat = 0.0,
    ) -> np.ndarray:
        """The most probable label of each text.

        `abstain` is what a text gets of which no term is read, or whose label has less than this
        `probability` or `evidence`: how far its words move the log-odds from the prior
        (`cynosure.classifier.coverage` shows what that costs and gains). None gives it the label
        that the prior favours, since scikit-learn needs one.
        """
        verdicts = self.read(X)
        labels = self._opened.labels(verdicts)
        if abstain is None:
            if probability or evidence:
                raise ValueError("abstain: say what a text below the bounds gets, e.g. 'unsure'")
            return labels
        out = labels.astype(object)
        sure = self.probabilities(verdicts.decision).max(axis=1) >= float(probability)
        sure &= self._opened.evidence(verdicts) >= float(evidence)
        out[~(verdicts.evidence & sure)] = abstain
        same = isinstance(abstain, str) and labels.dtype.kind == "U"
        return out.astype(str) if same else out

    def without(self, words: Iterable[str], X: Any = None, y: Any = None) -> HardmaxClassifier:
        """A copy in which no term with one of these words weighs anything, in any text.

        The other weights stay. With texts X and labels y, best none of the training, the decoder
        is fitted again, so that probabilities are right for what is left.
        """
        from .fitting.editing import silenced

        check_is_fitted(self, "model_")
        out = copy(self)
        known = self.vocabulary_, self.classes_
        out.model_, note = silenced(self.model_, *known, words, X, y)
        out.notes_ = (*self.notes_, note)
        return out

    @property
    def coef_(self) -> np.ndarray:
        """What each term weighs for each decision (rows, terms), if it is read: <v, E_j>."""
        check_is_fitted(self, "model_")
        rows = [plane.v @ plane.embedding.T for plane in self.model_.planes]
        return np.concatenate(rows)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The terms of the vocabulary, in the order of the columns of `coef_`."""
        check_is_fitted(self, "model_")
        return np.array(self.vocabulary_.terms, dtype=object)

    def explain(self, text: str, label: Any = None, *, struck: Iterable[str] = ()) -> Explanation:
        """Why `text` gets its decision: for `label`, or for the label the model predicts.

        With two classes and no `label` it is the log-odds of classes_[1], whatever is predicted;
        those of classes_[0] are the same numbers with the other sign. The words `struck` are left
        out wherever they stand, with every n-gram they are part of; none is formed across the gap.
        """
        words = (struck,) if isinstance(struck, str) else tuple(struck)
        if not all(isinstance(word, str) for word in words):
            raise TypeError(f"struck: expected words such as ['good'], got {shown(struck)}")
        return self._opened.explain(text, label, words)

    def explain_all(self, X: Any) -> list[dict[str, Any]]:
        """A row per text, for a table: `DataFrame(clf.explain_all(texts))` in pandas and polars.

        Label and its probability (None without evidence), the decision, whether anything was read,
        the words that were enough, those that overturn the verdict, and the spans with their
        contributions.
        """
        return self._opened.explain_all(X)

    def lexicon(self, X: Any, label: Any = None, *, top: int | None = 50) -> list[Lexeme]:
        """The words that lead most often in the texts X, with polarity and mean share."""
        count: Counter[str] = Counter()
        share: Counter[str] = Counter()
        score: dict[str, float] = {}
        for text in as_texts(X):
            for leader in self.explain(text, label).leaders:
                if leader.offsets:  # not the anchor
                    count[leader.text] += 1
                    share[leader.text] += leader.share  # type: ignore[assignment]
                    score[leader.text] = leader.score
        return [Lexeme(t, k, score[t], share[t] / k) for t, k in count.most_common(top)]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model folder (safetensors and JSON with checksums), whole or not at all."""
        check_is_fitted(self, "model_")
        given = {k: v for k, v in self.get_params(deep=False).items() if k != "method"}
        if not isinstance(self.random_state, Integral):
            given["random_state"] = self.seed_  # the int that was drawn: it gives this model again
        if isinstance(self.class_weight, Mapping):
            given["class_weight"] = list(self.class_weight.items())
        given["tokenizer"] = name_of(self.tokenizer)
        settings = {name: as_json(name, value) for name, value in given.items()}
        method = None if self.method is None else self.method.describe()
        if method is not None:
            method = {name: as_json(f"method.{name}", value) for name, value in method.items()}
        classes = as_json("classes_", self.classes_)
        described = {
            "params": settings, "method": method, "classes": classes, "texts": self.texts_,
            "notes": list(self.notes_),
        }  # fmt: skip
        return save_files(path, self.model_, self.vocabulary_, described)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> HardmaxClassifier:
        """Read a folder written by `save`; nothing is unpickled, and nothing is imported: the
        module of a tokenizer of your own must be imported before."""
        model, vocabulary, settings = load_files(path)
        try:
            params = _params(settings) | {"tokenizer": vocabulary.tokenizer.own}
            out = cls(**params, method=_method(settings["method"]))
            out.classes_ = classes_of(settings["classes"], model.rows)
            out.texts_ = _texts(settings.get("texts"))
            out.notes_ = tuple(str(note) for note in settings.get("notes", ()))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise FOLDER.refused(Path(path), f"settings: {error}") from None
        out.model_, out.vocabulary_ = model, vocabulary
        out.seed_ = out.random_state
        return out


def _params(settings: dict[str, Any]) -> dict[str, Any]:
    """The parameters as the constructor takes them; older files lack some of them."""
    params = {"words": None, "C": None, "negation": False, "n_jobs": None} | settings["params"]
    params["ngrams"] = (params["ngrams"][0], params["ngrams"][1])
    if isinstance(params["class_weight"], list):
        params["class_weight"] = {k: v for k, v in params["class_weight"]}
    return params


def _texts(count: Any) -> int | None:
    """How many texts a model was made from; older files do not say."""
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"texts: expected how many it was made from, got {count!r}")
    return count


def _method(described: dict[str, Any] | None) -> Fit | None:
    if described is None:
        return None
    from .fitting.training import Learned

    kinds: dict[str, type[Fit]] = {"placed": Placed, "learned": Learned}
    kind = kinds[described["name"]]
    return kind(**{f.name: described[f.name] for f in fields(kind) if f.name in described})  # type: ignore[arg-type]


def _counted(
    texts: Sequence[str], labels: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the different (text, label) pairs that count, as they first appear; how often each:
    what is fitted depends on how often a text counts, not on how that was written down."""
    first: dict[tuple[str, Any], int] = {}
    total: Counter[int] = Counter()
    pairs = zip(texts, labels.tolist(), times.tolist(), strict=True)
    for i, (text, label, once) in enumerate(pairs):
        if once:
            total[first.setdefault((text, label), i)] += once
    return np.fromiter(total, np.intp, len(total)), np.fromiter(total.values(), float, len(total))
