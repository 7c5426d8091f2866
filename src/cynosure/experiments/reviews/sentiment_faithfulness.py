"""Which words, once deleted, change the decision? Leaders, clusters, gradient, LIME and SHAP.

An explanation ranks the words of a review. *Comprehensiveness*: delete its first k words, send the
rest through the layers again, and see how far the probability of the predicted label falls and how
often the prediction flips (more is better). *Sufficiency*: keep only the first k (less is better).
The classifier is a `HardmaxClassifier` with placed words, the model of arXiv 2407.01602; every
method explains that same model.

See: leaders alone are not faithful, since their followers elect new ones, and the gradient, which
names leaders first (followers only through the rest rho^8 of their own place), lags behind; a
leader *with its cluster* is as good as any choice of that many words, which here is the order by
own score <v, E>. The sampling methods stay a little below it at hundreds of evaluations per review,
and change with the seed.
LIME (Ribeiro et al. 2016) and SHAP (Lundberg and Lee 2017) are the published packages where they
are installed (pip install "cynosure[compare]"), and otherwise the small samplers below, named so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from ...analysis.leaders import roles
from ...classifier.deletions import Faithfulness, faithfulness
from ...classifier.estimator import HardmaxClassifier
from ...classifier.explanation import Explanation
from ...classifier.text import Documents
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...theorems import Check
from .._frame import Progress, at_most
from ._sentiment import evenly, labelled

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Faithful explanations: what flips when words are deleted"
Probe: TypeAlias = Callable[[np.ndarray], np.ndarray]  # masks (s, m) -> probability of the label
Sampler: TypeAlias = Callable[[Probe, int, int, int], np.ndarray]  # probe, m, samples, seed
CLUSTERS, LEADERS, OWN, SIZE = "leaders with clusters", "leaders alone", "<v, E>", "|<v, E>|"
GRADIENT, RANDOM = "gradient", "random"


@final
@dataclass(frozen=True)
class Params:
    """`data`: reviews, "" for made-up ones; `reviews` of each part (0: all) to fit and to choose
    from; `budget` of telling words per review (0: no bound); `explained` test reviews; `words`
    deleted or kept; `samples` evaluations for LIME."""

    data: str = ""
    reviews: int = 0
    ngrams: int = 1
    leaders: float = 10.0
    budget: float = 20.0
    explained: int = 300
    words: tuple[int, ...] = (1, 2, 3, 5, 8, 10, 15, 20, 30)
    samples: int = 500
    seed: int = 0


QUICK = Params(reviews=240, explained=24, leaders=6.0, words=(1, 2, 3, 5), samples=60)


class Case(NamedTuple):
    """A review: its known terms, its predicted label, and each method's ranking of positions."""

    terms: np.ndarray
    label: int
    p: float
    ranking: dict[str, np.ndarray]
    winning: int  # words in the clusters that speak for the label
    overlap: dict[str, float]  # of the first ten words with those under another seed
    evaluations: dict[str, int]


class Curve(NamedTuple):
    """Means over reviews at each number of words: flips and fall of the probability."""

    method: str
    delete_flips: np.ndarray
    delete_drop: np.ndarray
    keep_flips: np.ndarray
    keep_drop: np.ndarray
    matched: float  # flips when as many words as the winning clusters have are deleted
    overlap: float
    evaluations: float


def run(p: Params, progress: Progress | None = None) -> Report:
    """Fit, explain by every method, delete and keep."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    say(0.0, "fit")
    train, test = labelled(p.data, p.reviews, p.seed)
    clf = HardmaxClassifier(
        2, (1, p.ngrams), p.leaders, words=p.budget or None, random_state=p.seed
    )
    clf.fit(train.texts, train.labels)
    texts = test.take(evenly(len(test), p.explained)).texts
    cases = []
    for i, text in enumerate(texts):
        say(0.1 + 0.6 * i / len(texts), f"review {i + 1} of {len(texts)}")
        case = _case(p, clf, clf.explain(text), np.random.default_rng([p.seed, i]))
        if case is not None:
            cases.append(case)
    if not cases:
        raise ValueError("data: no test review has a known word")
    say(0.7, "deletions")
    curves = [_curve(p, clf, cases, name) for name in cases[0].ranking]
    say(0.9, "clusters")
    whole = faithfulness(clf, texts, seed=p.seed)
    accuracy = float(clf.score(test.texts, test.labels))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, curves, cases, whole, accuracy),
        asdict(p),
        (_table(p, curves, cases), _whole_table(whole)),
        {"explained reviews": (_identity(clf, texts),)},
        (
            Picture("Deleting the words an explanation names", _DELETED, _draw(p, curves, True)),
            Picture("Keeping only those words", _KEPT, _draw(p, curves, False)),
        ),
        command="cynosure run sentiment_faithfulness",
    )


# --- rankings -----------------------------------------------------------------------------------


def _case(
    p: Params, clf: HardmaxClassifier, ex: Explanation, draw: np.random.Generator
) -> Case | None:
    """Every method's ranking; only words that speak for the label, but for the random one."""
    index = clf.vocabulary_.index
    terms = np.array([index[w] for w in (ex.trajectory.words or ())[1:]], np.int32)
    m = len(terms)
    if not m:
        return None
    label = int(ex.decision > 0)
    sign = 1.0 if label else -1.0
    own = sign * (ex.trajectory.values[0] @ ex.v)[1:]
    winning = sorted(
        (x for x in ex.leaders if sign * x.score > 0 and x.token and not _has_anchor(x)),
        key=lambda x: -sign * x.score,
    )
    members = [
        [x.token - 1, *sorted((w.token - 1 for w in x.followers), key=lambda j: -own[j])]
        for x in winning
    ]
    ranking = {
        CLUSTERS: np.array([j for group in members for j in group], np.intp),
        LEADERS: np.array([x.token - 1 for x in winning], np.intp),
        GRADIENT: _ranked(sign * _gradient(ex)[1:]),
        OWN: _ranked(own),
        SIZE: np.argsort(-np.abs(own), kind="stable"),
        RANDOM: draw.permutation(m),
    }

    def probe(masks: np.ndarray) -> np.ndarray:
        return _probability(clf, [terms[mask] for mask in masks])[:, label]

    overlap, evaluations = dict.fromkeys(ranking, 1.0), dict.fromkeys(ranking, 1)
    overlap[RANDOM] = _jaccard(ranking[RANDOM], draw.permutation(m))
    for name, sampler in samplers().items():
        counted = _Counter(probe)
        first, second = (
            _ranked(sampler(counted, m, p.samples, int(draw.integers(1 << 31)))) for _ in range(2)
        )
        ranking[name], overlap[name] = first, _jaccard(first, second)
        evaluations[name] = counted.evaluations // 2
    everything = float(probe(np.ones((1, m), bool))[0])
    return Case(terms, label, everything, ranking, len(ranking[CLUSTERS]), overlap, evaluations)


def _has_anchor(leader: Any) -> bool:
    return any(w.token == 0 for w in leader.followers)


def _ranked(x: np.ndarray) -> np.ndarray:
    """Positions with x > 0, largest first."""
    order = np.argsort(-x, kind="stable")
    return order[x[order] > 0]


def _gradient(ex: Explanation) -> np.ndarray:
    """Gradient times token, token by token: w_j <v, E_j> with decision = b + sum_j w_j <v, E_j>.

    w = (m, 1, ..., 1) M_{K-1} ... M_0 / W, M_k = rho I + eta P_k: the sets C_i hold still almost
    everywhere.
    """
    tr = ex.trajectory
    alpha = float(tr.dynamics.alpha)  # type: ignore[union-attr]
    ro = roles(tr)
    w = np.full(tr.z.shape[1], 1.0 / ex.total)
    w[0] *= ex.count
    for k in range(len(tr.t) - 2, -1, -1):
        w = (w + alpha * (w @ np.asarray(ro.followed(k).weights()))) / (1 + alpha)
    return w * (tr.values[0] @ ex.v)


@final
class _Counter:
    """A probe that counts how many reviews it was asked about."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.evaluations = probe, 0

    def __call__(self, masks: np.ndarray) -> np.ndarray:
        self.evaluations += len(masks)
        return self.probe(masks)


def samplers() -> dict[str, Sampler]:
    """LIME and SHAP: the packages where they are installed, else the own ones."""
    out: dict[str, Sampler] = {}
    for name, package, own in (("LIME", _lime, own_lime), ("SHAP", _shap, own_shap)):
        installed = find_spec(name.lower()) is not None
        out[name if installed else f"{name}, own sampler"] = package if installed else own
    return out


def own_shap(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """Shapley values by random orders and their reverses: mean change when a word comes in."""
    draw = np.random.default_rng(seed)
    rounds = max(1, samples // (2 * (m + 1)))
    value = np.zeros(m)
    for _ in range(rounds):
        order = draw.permutation(m)
        for walk in (order, order[::-1]):
            masks = np.zeros((m + 1, m), bool)
            for step, j in enumerate(walk, 1):
                masks[step:, j] = True
            value[walk] += np.diff(probe(masks))
    return value / (2 * rounds)


def own_lime(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """Coefficients of a ridge regression on random subsets, near ones weighted more."""
    draw = np.random.default_rng(seed)
    masks = np.ones((samples, m), bool)
    for mask in masks[1:]:
        mask[draw.choice(m, int(draw.integers(1, m + 1)), replace=False)] = False
    distance = 100 * (1 - np.sqrt(masks.mean(axis=1)))  # cosine distance to the whole review
    weight = np.sqrt(np.exp(-(distance**2) / 25**2))
    x = masks.astype(float)
    y = probe(masks)
    x0, y0 = weight @ x / weight.sum(), weight @ y / weight.sum()
    xw = (x - x0) * weight[:, None]
    return np.linalg.solve(xw.T @ (x - x0) + np.eye(m), xw.T @ (y - y0))


def _imported(name: str) -> Any:
    """The package; what it says about its own dependencies while it loads is not ours to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(name)


def _lime(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """The package's text explainer, on a text of m different words."""

    def classify(texts: list[str]) -> np.ndarray:
        masks = np.zeros((len(texts), m), bool)
        for mask, text in zip(masks, texts):
            mask[[int(word[1:]) for word in text.split()]] = True
        p = probe(masks)
        return np.column_stack((1 - p, p))

    explainer = _imported("lime.lime_text").LimeTextExplainer(
        split_expression=r"\s+", random_state=seed
    )
    text = " ".join(f"w{j}" for j in range(m))
    found = explainer.explain_instance(text, classify, num_features=m, num_samples=samples)
    value = np.zeros(m)
    for word, weight in found.as_list():
        value[int(word[1:])] = weight
    return value


def _shap(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """The package's permutation explainer on presence, nothing present as background."""
    explainer = _imported("shap").PermutationExplainer(
        lambda x: probe(np.asarray(x) > 0.5), np.zeros((1, m)), seed=seed
    )
    most = max(samples, 2 * m + 1)
    return explainer(np.ones((1, m)), max_evals=most, silent=True).values[0]


def _jaccard(a: np.ndarray, b: np.ndarray, top: int = 10) -> float:
    one, two = set(a[:top].tolist()), set(b[:top].tolist())
    return len(one & two) / max(len(one | two), 1)


# --- deletions ----------------------------------------------------------------------------------


def _probability(clf: HardmaxClassifier, rows: list[np.ndarray]) -> np.ndarray:
    """Probabilities of both labels of reviews given as sets of terms."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    terms = np.concatenate([np.empty(0, np.int32), *rows]).astype(np.int32)
    decision = clf.model_.read(Documents(indptr, terms)).decision[:, 0]
    p = 1 / (1 + np.exp(-np.clip(decision, -500, 500)))
    return np.column_stack((1 - p, p))


def _curve(p: Params, clf: HardmaxClassifier, cases: list[Case], method: str) -> Curve:
    label = np.array([c.label for c in cases])
    before = np.array([c.p for c in cases])

    def after(keep: Callable[[Case], np.ndarray]) -> tuple[float, float]:
        """(flips, mean fall) when each review is cut to the positions `keep` gives."""
        found = _probability(clf, [c.terms[keep(c)] for c in cases])
        now = found[np.arange(len(cases)), label]
        return float((found.argmax(axis=1) != label).mean()), float((before - now).mean())

    def first(k: int) -> Callable[[Case], np.ndarray]:
        return lambda c: c.ranking[method][:k]

    def rest(k: int | None) -> Callable[[Case], np.ndarray]:
        def keep(c: Case) -> np.ndarray:
            gone = c.ranking[method][: c.winning if k is None else k]
            return np.setdiff1d(np.arange(len(c.terms)), gone)

        return keep

    deleted = np.array([after(rest(k)) for k in p.words])
    kept = np.array([after(first(k)) for k in p.words])
    return Curve(
        method, deleted[:, 0], deleted[:, 1], kept[:, 0], kept[:, 1], after(rest(None))[0],
        float(np.mean([c.overlap[method] for c in cases])),
        float(np.mean([c.evaluations[method] for c in cases])),
    )  # fmt: skip


def _identity(clf: HardmaxClassifier, texts: tuple[str, ...]) -> Check:
    """The contributions of an explanation add up to the decision, twice over."""
    worst = 0.0
    for text in texts[:50]:
        ex = clf.explain(text)
        if ex.leaders:
            parts = ex.intercept + sum(x.contribution for x in ex.leaders)
            gradient = ex.intercept + float(_gradient(ex).sum())
            apart = (ex.decision - parts, ex.decision - gradient)
            worst = max(worst, *(abs(x) / max(1.0, abs(ex.decision)) for x in apart))
    return at_most(
        "exact",
        "docs/mathematics.md C5",
        "contributions of the leaders, and gradient times token, each add up to the decision",
        worst,
        1e-9,
    )


# --- tables and figures -------------------------------------------------------------------------


def _at(p: Params) -> int:
    """Position in p.words of the number of words quoted: 10, or the largest below."""
    return int(np.argmax(np.where(np.array(p.words) <= 10, p.words, 0)))


def _table(p: Params, curves: list[Curve], cases: list[Case]) -> Table:
    k = _at(p)
    rows = tuple(
        (
            c.method, c.delete_flips[k], c.delete_drop[k], c.matched, c.keep_flips[k],
            c.keep_drop[k], c.overlap, c.evaluations,
        )
        for c in curves
    )  # fmt: skip
    n = p.words[k]
    columns = (
        "words chosen by", f"flips, {n} deleted", f"fall of p, {n} deleted",
        "flips, as many as winning clusters have", f"flips, only {n} kept",
        f"fall of p, only {n} kept", "overlap of two seeds", "model evaluations",
    )  # fmt: skip
    size = float(np.mean([c.winning for c in cases]))
    note = (
        f"{len(cases)} reviews of {np.mean([len(c.terms) for c in cases]):.0f} distinct terms; the "
        f"winning clusters have {size:.1f} words. Overlap: Jaccard index of the first ten words "
        "under two seeds. A ranking may end early: leaders are few."
    )
    return Table("Comprehensiveness and sufficiency", columns, rows, note)


def _whole_table(f: Faithfulness) -> Table:
    rows = tuple((d.name, d.terms, d.flipped, d.drop, d.words, d.struck) for d in f.deletions)
    note = (
        f"Words of the winning clusters struck out one after the other, strongest leader first, "
        f"flip {f.flipped_within:.1%} of the predictions within {f.most_words} words; that many "
        f"words chosen to flip them reach {f.best_within:.1%}."
    )
    columns = (
        "deleted", "terms", "flips", "fall of the probability", "words", "flips, words struck out"
    )  # fmt: skip
    return Table("Whole clusters", columns, rows, note)


def _summary(
    p: Params, curves: list[Curve], cases: list[Case], whole: Faithfulness, accuracy: float
) -> str:
    by = {c.method: c for c in curves}
    k = _at(p)
    sampled = [c for c in curves if c.method.startswith(("LIME", "SHAP"))]
    rivals = "; ".join(
        f"{c.method} {c.delete_flips[k]:.1%} ({c.evaluations:.0f} evaluations, two seeds share "
        f"{c.overlap:.0%} of the first ten words)"
        for c in sampled
    )
    (quiet,) = (d for d in whole.deletions if "neutral" in d.name)
    return (
        f"A classifier with {accuracy:.4f} test accuracy, {len(cases)} of its predictions. "
        f"Deleting the {p.words[k]} words named first flips: leaders with their clusters "
        f"{by[CLUSTERS].delete_flips[k]:.1%}, leaders alone {by[LEADERS].delete_flips[k]:.1%}, "
        f"gradient {by[GRADIENT].delete_flips[k]:.1%}, words by their own score "
        f"{by[OWN].delete_flips[k]:.1%}, random words {by[RANDOM].delete_flips[k]:.1%}; {rivals}."
        f"\n\nThe winning clusters, whole, have {np.mean([c.winning for c in cases]):.1f} words "
        f"and flip {by[CLUSTERS].matched:.1%}; as many random words flip {by[RANDOM].matched:.1%}. "
        f"Keeping only the non-neutral clusters flips {quiet.flipped:.1%}. The "
        "explanation by clusters costs one evaluation and never changes."
    )


_DELETED = (
    "Share of predictions that flip (left) and mean fall of the predicted label's probability "
    "(right) when the first words of each ranking are deleted and the rest is read again."
)
_KEPT = (
    "The same when only these words are kept: the lower, the more of the decision they carry. "
    "Methods as above."
)


def _draw(p: Params, curves: list[Curve], delete: bool) -> Any:
    from ...drawing.plot import GREY, PALETTE

    figure, axes = sheet(1, 2, 4.6, 3.4)
    colours = dict(zip((c.method for c in curves if c.method != RANDOM), PALETTE))
    styles = {LEADERS: "--", GRADIENT: ":", SIZE: "-.", OWN: "--"}
    for c in curves:
        pair = (c.delete_flips, c.delete_drop) if delete else (c.keep_flips, c.keep_drop)
        for ax, y in zip(axes[0], pair):
            ax.plot(p.words, y, styles.get(c.method, "-"), color=colours.get(c.method, GREY),
                    marker="o", ms=3.5, lw=2.2 if c.method == CLUSTERS else 1.3,
                    label=c.method)  # fmt: skip
    what = "deleted" if delete else "kept"
    for ax, name in zip(axes[0], ("predictions flipped", "fall of the probability")):
        ax.set(xlabel=f"words {what}", ylabel=name)
        if delete:
            ax.set_ylim(bottom=0)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  frameon=False, fontsize="small")  # fmt: skip
    return figure
